/*
 * What exactly is hashed and signed, and what a quorum is (docs/design/pool.md#agreement). Hashes
 * and seals run over canonical bytes of their own, without padding; they do not depend on how wire.h
 * encodes messages.
 *
 * Thread: any. No function fails: a bad seal is `false`.
 */
#ifndef GOSSIP_AGREE_SIGNED_H
#define GOSSIP_AGREE_SIGNED_H

#include "gossip/agree/types.h"

#include "atom/base/status.h"

#include <stddef.h>

/* Versions and certified tokens that nobody reaches: what lies above them is not believed, so that
 * none of the sums that follow can wrap. */
#define GSP_VERSION_MAX ((uint64_t)1 << 48)
#define GSP_CERTIFIED_MAX ((uint64_t)1 << 62)

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

/* Over contributors, parts and what is counted of members: what a version did, without who follows. */
void gsp_contents_hash(const gsp_seals *seals, const gsp_proposal *proposal, gsp_hash *out);
/* The head of a proposal, and its hash. A head alone shows who was put on the roster, with votes of
 * those before. */
void gsp_head_of(const gsp_seals *seals, const gsp_proposal *proposal, gsp_head *out);
void gsp_head_hash(const gsp_seals *seals, const gsp_head *head, gsp_hash *out);
/* The hash of the proposal's head: what is voted for. */
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
/* R(version + 1) of a lineage that begins. */
void gsp_genesis_roster(const gsp_genesis *genesis, gsp_roster *out);
/* The pool's owner orders this very reset. Everything else of the genesis but its seal is there. */
void gsp_order_seal(const gsp_seals *seals, gsp_genesis *genesis);
/*
 * NULL, or what is wrong. A fork must be signed by its founder and by everybody on its roster. A
 * lineage with a reset number must show the owner's order for that number, which is bound to the
 * lineage and version that the reset began after, so an old order is worth nothing for a later
 * number. The first lineage (generation 0) is known by the manifest alone: the caller compares ids.
 */
ATOM_MUST const char *gsp_genesis_wrong(const gsp_seals *seals, const gsp_key *owner,
                                        const gsp_genesis *genesis);

/* Signs as the member that seals->context stands for, which must be statement->signer. */
void gsp_statement_seal(const gsp_seals *seals, gsp_statement *statement);
/* Also false where a field that the kind does not use is not zero. */
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

/*
 * Whether the voters (bits of a roster of n) are a quorum. Among friends: more than half, or exactly
 * half with the lowest key (index 0) among them, so that any two quorums share a member. Among
 * strangers: more than two thirds, so that any two quorums share an honest member.
 */
bool gsp_quorum(gsp_trust trust, uint32_t n, uint32_t voters);
/*
 * How many hostile members of n the pool is made to survive: among friends one, where there are
 * three or more; among strangers as many as are fewer than a third.
 */
uint32_t gsp_liars_max(gsp_trust trust, uint32_t n);
/* Whether there are 1 to 32 members, ascending by key, each of an incarnation. */
bool gsp_roster_sane(const gsp_roster *roster);
bool gsp_roster_equal(const gsp_roster *a, const gsp_roster *b);
/* "friends" or "strangers"; parse: false for anything else. */
const char *gsp_trust_name(gsp_trust trust);
ATOM_MUST bool gsp_trust_parse(const char *name, gsp_trust *out);

/* Whether this is a certificate that follows `previous` (the hash of the one before), with the
 * votes of a quorum of `roster`. Whether the proposal is right is what those voters vouch for. */
ATOM_MUST bool gsp_certificate_check(const gsp_seals *seals, gsp_trust trust,
                                     const gsp_roster *roster, const gsp_hash *previous,
                                     const gsp_certificate *certificate);

#endif
