/*
 * What exactly is hashed and signed, what a quorum is, and which of two lineages wins when they
 * meet (docs/design/pool.md#agreement, #forks). Hashes and seals run over canonical bytes of their
 * own, without padding; they do not depend on how wire.h encodes messages.
 *
 * Thread: any. No function fails: a bad seal is `false`.
 */
#ifndef GOSSIP_AGREE_LINEAGE_H
#define GOSSIP_AGREE_LINEAGE_H

#include "gossip/agree/types.h"

#include "atom/base/status.h"

#include <stddef.h>

/* The cryptography as functions, so that a simulator can use cheap ones. The real ones are
 * gsp_seals_real (seals.h): BLAKE2b-256 and Ed25519 with purpose GSP_FOR_AGREEMENT. */
typedef struct gsp_seals {
    void *context;
    void (*hash)(void *context, const void *data, size_t bytes, gsp_hash *out);
    void (*seal)(void *context, const void *data, size_t bytes, uint8_t out[GSP_SEAL_BYTES]);
    bool (*verify)(void *context, const gsp_key *key, const void *data, size_t bytes,
                   const uint8_t seal[GSP_SEAL_BYTES]);
} gsp_seals;

int gsp_key_compare(const gsp_key *a, const gsp_key *b);
bool gsp_hash_equal(const gsp_hash *a, const gsp_hash *b);
bool gsp_hash_none(const gsp_hash *a);
bool gsp_member_equal(const gsp_member *a, const gsp_member *b);
/* Index in the roster, or GSP_NOBODY: by key alone, and by key and incarnation. */
uint32_t gsp_roster_find_key(const gsp_roster *roster, const gsp_key *key);
uint32_t gsp_roster_find(const gsp_roster *roster, const gsp_member *member);

/* Whether all counts are within their limits, which hashing and checking rely on. */
bool gsp_proposal_fits(const gsp_proposal *proposal);
/* How much of a gsp_message a kind uses; 0: no such kind. */
size_t gsp_message_bytes(gsp_message_kind kind);

void gsp_proposal_hash(const gsp_seals *seals, const gsp_proposal *proposal, gsp_hash *out);
/* Over root, tokens and samples, which a proposal repeats. Rates are only advice. */
void gsp_contribution_hash(const gsp_seals *seals, const gsp_contribution *c, gsp_hash *out);
/* Over what its owner says of a part: everything but the owner's place and seal. */
void gsp_part_hash(const gsp_seals *seals, uint32_t number, const gsp_part *part, gsp_hash *out);
/* Over all contributors of a round with their weights: a part's `included` are bits of these. */
void gsp_contributors_hash(const gsp_seals *seals, const gsp_contributor *contributor, uint32_t n,
                           gsp_hash *out);
/* Over everything but the seals: this is a lineage's id. */
void gsp_genesis_hash(const gsp_seals *seals, const gsp_genesis *genesis, gsp_hash *out);
/* The pool's owner orders this very reset. Everything else of the genesis but its seal is there. */
void gsp_order_seal(const gsp_seals *seals, gsp_genesis *genesis);
/*
 * NULL, or what is wrong. A fork must be signed by its founder. A lineage with a reset number must
 * show the owner's order for that number, which is bound to the lineage and version that the reset
 * began after, so an old order is worth nothing for a later number. The first lineage (generation
 * 0) is known by the manifest alone: the caller compares ids.
 */
ATOM_MUST const char *gsp_genesis_wrong(const gsp_seals *seals, const gsp_key *owner,
                                        const gsp_genesis *genesis);

/* Signs as the member that seals->context stands for, which must be statement->signer. */
void gsp_statement_seal(const gsp_seals *seals, gsp_statement *statement);
ATOM_MUST bool gsp_statement_verify(const gsp_seals *seals, const gsp_statement *statement);
/* Makes the REDUCED statement of an owner about a part, with the seal that the part carries; the
 * owner itself seals it afterwards. contributors: gsp_contributors_hash. */
void gsp_reduced_statement(const gsp_seals *seals, const gsp_hash *lineage, uint64_t version,
                           uint32_t number, const gsp_part *part, const gsp_hash *contributors,
                           const gsp_member *owner, gsp_statement *out);
/* Whether no honest member signs both: different subjects for one thing, or a promise that denies a
 * vote. Both seals are checked. */
ATOM_MUST bool gsp_statements_convict(const gsp_seals *seals, const gsp_statement *a,
                                      const gsp_statement *b);

/* Whether the voters (bits of a roster of n) are more than half, or exactly half with the lowest
 * key (index 0) among them. So any two quorums share a member. */
bool gsp_quorum(uint32_t n, uint32_t voters);

/* Whether this is a certificate that follows `previous` (the hash of the one before), with the
 * votes of a quorum of `roster`. Whether the proposal is right is what those voters vouch for. */
ATOM_MUST bool gsp_certificate_check(const gsp_seals *seals, const gsp_roster *roster,
                                     const gsp_hash *previous, const gsp_certificate *certificate);

/* How a lineage stands, as its own members tell. */
typedef struct gsp_standing {
    gsp_hash lineage;
    uint32_t reset; /* the owner's resets win */
    uint32_t generation;
    uint64_t tokens;  /* certified */
    uint32_t n_votes; /* behind its newest certificate */
    bool live;        /* it has certified something within T_fork, as far as the judge has seen */
} gsp_standing;

/*
 * Whether `theirs` is to be preferred to `mine` (docs/design/pool.md#forks). In this order:
 *   - the owner's later reset wins;
 *   - a live lineage wins against one with less than half its votes: a liar that forks alone can
 *     certify any number of tokens, but not collect votes;
 *   - more certified tokens win;
 *   - the later generation wins: a fork is ahead of the parent that had no quorum, else its founder
 *     would fall back at once;
 *   - the lower hash wins.
 * Of two different lineages, exactly one is preferred.
 */
bool gsp_lineage_beats(const gsp_standing *theirs, const gsp_standing *mine);

#endif
