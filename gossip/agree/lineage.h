/*
 * Hashes, seals and lineages: what exactly is hashed and signed, and which of two lineages wins
 * when they meet (docs/design/pool.md#manifest, #forks, #who-gets-in). The bytes below are
 * canonical and have no padding; wire.h may encode messages in any way it likes, hashes and seals
 * do not depend on it.
 *
 * Thread: any. No function fails: a bad seal is `false`.
 */
#ifndef GOSSIP_AGREE_LINEAGE_H
#define GOSSIP_AGREE_LINEAGE_H

#include "gossip/agree/types.h"

#include "atom/base/status.h"

#include <stddef.h>

/* The cryptography, as functions, so that a simulator can use cheap ones. gsp_seals_real is
 * libsodium's: BLAKE2b-256 and Ed25519 with purpose GSP_FOR_AGREEMENT. */
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
/* Index in the roster, or GSP_NOBODY. By key alone, and by key and incarnation. */
uint32_t gsp_roster_find_key(const gsp_roster *roster, const gsp_key *key);
uint32_t gsp_roster_find(const gsp_roster *roster, const gsp_member *member);

/* Counts within their limits; what hashing and checking rely on. */
bool gsp_proposal_fits(const gsp_proposal *proposal);
/* How much of a gsp_message a kind uses; 0: no such kind. */
size_t gsp_message_bytes(gsp_message_kind kind);

void gsp_proposal_hash(const gsp_seals *seals, const gsp_proposal *proposal, gsp_hash *out);
/* Of root, tokens and samples: what a proposal repeats of it. Rates are only advice. */
void gsp_contribution_hash(const gsp_seals *seals, const gsp_contribution *c, gsp_hash *out);
/* Of what its owner says of a part: without owner and seal. */
void gsp_part_hash(const gsp_seals *seals, uint32_t number, const gsp_part *part, gsp_hash *out);
/* Of all contributors of a round, with their weights: what a part's `included` counts. */
void gsp_contributors_hash(const gsp_seals *seals, const gsp_contributor *contributor, uint32_t n,
                           gsp_hash *out);
/* Without the seals: a lineage's id. */
void gsp_genesis_hash(const gsp_seals *seals, const gsp_genesis *genesis, gsp_hash *out);
/* The owner orders this very reset: the genesis is otherwise complete but for its seal. */
void gsp_order_seal(const gsp_seals *seals, gsp_genesis *genesis);
/*
 * NULL or what is wrong: a fork is signed by its founder, and a lineage with a reset number has the
 * owner's order for that number, bound to the lineage and version that it began after: an old order
 * is worth nothing for a later number. Of the first lineage (generation 0) only the manifest says
 * which it is: whoever calls compares ids.
 */
ATOM_MUST const char *gsp_genesis_wrong(const gsp_seals *seals, const gsp_key *owner,
                                        const gsp_genesis *genesis);

/* Signs as seals->context; statement->signer must be that. */
void gsp_statement_seal(const gsp_seals *seals, gsp_statement *statement);
ATOM_MUST bool gsp_statement_verify(const gsp_seals *seals, const gsp_statement *statement);
/* The REDUCED that owner said of a part, with the seal that the part carries; the owner itself
 * seals it afterwards. contributors: gsp_contributors_hash. */
void gsp_reduced_statement(const gsp_seals *seals, const gsp_hash *lineage, uint64_t version,
                           uint32_t number, const gsp_part *part, const gsp_hash *contributors,
                           const gsp_member *owner, gsp_statement *out);
/* No honest member signs both: different subjects for one thing, or a promise that denies a vote.
 * Both seals are checked. */
ATOM_MUST bool gsp_statements_convict(const gsp_seals *seals, const gsp_statement *a,
                                      const gsp_statement *b);

/* More than half of n, or exactly half with the lowest key (index 0) among them. Any two quorums
 * share a member. */
bool gsp_quorum(uint32_t n, uint32_t voters);

/* The certificate of a version, against the roster and the hash of the version before. */
ATOM_MUST bool gsp_certificate_check(const gsp_seals *seals, const gsp_roster *roster,
                                     const gsp_hash *previous, const gsp_certificate *certificate);

/* How a lineage stands, as its own members say it. */
typedef struct gsp_standing {
    gsp_hash lineage;
    uint32_t reset; /* the owner's resets win */
    uint32_t generation;
    uint64_t tokens;  /* certified */
    uint32_t n_votes; /* behind its newest certificate */
    bool live;        /* it has certified something within T_fork, as far as the judge has seen */
} gsp_standing;

/*
 * Whether `theirs` is to be preferred to `mine`: the owner's later reset; else more certified
 * tokens; at equal tokens the later generation (a fork wins against the parent that had no quorum;
 * else its founder would fall back at once), then the lower hash (docs/design/pool.md#forks). One
 * exception, against a liar that forks alone and certifies invented tokens: a live lineage never
 * yields to one with less than half its votes, and that one yields to it. Never true in both
 * directions for the same two standings.
 */
bool gsp_lineage_beats(const gsp_standing *theirs, const gsp_standing *mine);

#endif
