/*
 * A member's state on its way to a joiner (docs/design/pool.md#joining), without the network: how
 * it is cut and hashed, what members sign about it, whom a joiner believes, and where it keeps what
 * has come. The messages are in types.h (STATE_...), the two sides of the talk in donor.h and
 * fetch.h.
 *
 * A fragment's state is cut into chunks of GSP_CHUNK_BYTES; chunk k is leaf k of a Merkle tree
 * (merkle.h's leaves and nodes, more of them). Everybody who applied the same versions has the same
 * bits, so the roots are equal, and a root that a quorum signed stands for the bits wherever they
 * come from.
 *
 * Whom a joiner believes: a chain of steps from the pool's first lineage shows which roster decides
 * now (certificate_chain.h). The certificate that it starts from is one that this chain shows, and every root
 * must be signed by a quorum of that certificate's roster. Who else says what does not matter.
 *
 * Thread: the caller's.
 */
#ifndef GOSSIP_MEMBER_TRANSFER_H
#define GOSSIP_MEMBER_TRANSFER_H

#include "gossip/agree/agree.h"
#include "gossip/trust/identity.h"

enum { GSP_CHUNK_FLOATS = GSP_CHUNK_BYTES / 4, GSP_CHUNKS_MAX = 1 << GSP_STATE_PATH_MAX };

/* ---- the tree ---- */

/* Chunks of a fragment's state; 0 for 0 floats. More than GSP_CHUNKS_MAX are refused at open. */
static inline uint64_t gsp_chunks(uint64_t n_floats)
{
    return (n_floats + GSP_CHUNK_FLOATS - 1) / GSP_CHUNK_FLOATS;
}
/* Floats of one chunk. */
static inline uint64_t gsp_chunk_floats(uint64_t n_floats, uint64_t chunk)
{
    uint64_t left = n_floats - chunk * GSP_CHUNK_FLOATS;
    return left < GSP_CHUNK_FLOATS ? left : GSP_CHUNK_FLOATS;
}

/* Hashes of all levels, one after the other: n leaves, (n + 1) / 2 above them, ..., the root. */
typedef struct gsp_tree {
    uint32_t n;
    gsp_hash *node;
} gsp_tree;

/* How many there are. */
uint64_t gsp_tree_nodes(uint32_t n);
/* n <= GSP_CHUNKS_MAX leaves, zero; n may be 0: the root is zero then. */
ATOM_MUST atom_status gsp_tree_open(gsp_tree *tree, uint32_t n);
void gsp_tree_close(gsp_tree *tree);
/* The caller has set the leaves node[0 .. n). */
void gsp_tree_build(gsp_tree *tree);
/* After gsp_tree_build. */
gsp_hash gsp_tree_root(const gsp_tree *tree);
/* The proof of a leaf, after gsp_tree_build; returns how many hashes it has. */
uint32_t gsp_tree_path(const gsp_tree *tree, uint32_t leaf, gsp_hash path[GSP_STATE_PATH_MAX]);
/* Is `leaf` number `at` of n under `root`? Numbers may be anything that a peer sent. */
ATOM_MUST bool gsp_tree_check(const gsp_hash *root, uint64_t n, uint32_t at, const gsp_hash *leaf,
                              const gsp_hash *path, uint32_t n_path);

/* ---- what is signed ---- */

/* The newest version <= v, from 1, that concerns the fragment; 0: none. */
uint64_t gsp_state_version(uint64_t v, uint32_t fragment, uint32_t n_fragments);
/* Signs (GSP_FOR_STATE) as signer, whose key is identity's. */
void gsp_roots_seal(gsp_state_roots *roots, const gsp_seals *seals, const gsp_member *signer,
                    const gsp_identity *identity);
/* Counts, versions, and the seal of `signer`. */
ATOM_MUST bool gsp_roots_check(const gsp_state_roots *roots, const gsp_seals *seals,
                               const gsp_member *signer);

/* ---- whom to believe ---- */

enum { GSP_WITNESS_SAID_MAX = 4 };

/* What one peer has said, newest and before: states of fragments do not become untrue. */
typedef struct gsp_witness {
    gsp_member who;
    gsp_hash lineage, proposal; /* of the newest answer; proposal: its certificate's hash */
    gsp_state_roots newest;
    bool shown; /* gsp_witness_judge */
    uint32_t n_said[GSP_FRAGMENTS_MAX];
    struct {
        uint64_t version;
        gsp_hash root;
    } said[GSP_FRAGMENTS_MAX][GSP_WITNESS_SAID_MAX];
} gsp_witness;

/* Takes an answer that gsp_roots_check approved. Another lineage or incarnation: starts anew. */
void gsp_witness_hear(gsp_witness *witness, const gsp_seals *seals, const gsp_member *who,
                      const gsp_state_roots *roots);

/* The root that it named for a fragment's version; NULL: none, or too long ago. */
const gsp_hash *gsp_witness_said(const gsp_witness *witness, uint32_t fragment, uint64_t version);

typedef struct gsp_plan {
    bool found;
    gsp_hash lineage;
    uint64_t version;
    gsp_saved saved; /* genesis and certificate; no record */
    struct {
        uint64_t version;
        gsp_hash root;
    } fragment[GSP_FRAGMENTS_MAX];
    uint32_t signers, answers; /* the fewest of the roster behind any root; how many answered */
} gsp_plan;

/*
 * The state to fetch, by what n witnesses said (NULLs are skipped), of which at least one must be
 * shown by the chain. plan->found false: not enough of them agree (yet); signers and answers
 * then say how near it is.
 */
void gsp_plan_choose(gsp_plan *plan, const gsp_chain_terms *terms, const gsp_chain *chain,
                     gsp_witness *const *witness, uint32_t n, const uint64_t *n_floats,
                     uint32_t n_fragments);
/* Whether the witness's newest word is about where the chain leads; kept in witness->shown. */
void gsp_witness_judge(gsp_witness *witness, const gsp_chain_terms *terms, const gsp_chain *chain);

/* ---- what has come ---- */

/*
 * One fragment's state on its way in: a file `state.F` in the member's directory,
 *
 *   8 bytes "atomstg2", u32 fragment, u32 chunks, u64 version, u64 floats, 32 bytes root, 32 bytes
 *   BLAKE2b of these; then 32 bytes per chunk: its leaf, zero: not here; then the chunks' floats
 *
 * Nothing is fsynced: what a former run left is hashed again before it counts.
 */
typedef struct gsp_stage gsp_stage;

/* Goes on where a file of the same version and root ended, else begins anew. */
ATOM_MUST atom_status gsp_stage_open(const char *directory, uint32_t fragment, uint64_t version,
                                     const gsp_hash *root, uint64_t n_floats, gsp_stage **out);
/* NULL is fine. The file stays. */
void gsp_stage_close(gsp_stage **stage);
/* No file of any fragment stays. */
void gsp_stage_remove_all(const char *directory);
/* Looks at up to n chunks that a former run left. True: all were looked at. */
ATOM_MUST bool gsp_stage_recheck(gsp_stage *stage, uint32_t n);
uint32_t gsp_stage_n(const gsp_stage *stage);    /* chunks */
uint32_t gsp_stage_here(const gsp_stage *stage); /* of them, checked and here */
bool gsp_stage_has(const gsp_stage *stage, uint32_t chunk);
bool gsp_stage_is(const gsp_stage *stage, uint64_t version, const gsp_hash *root);
/* A chunk that was checked against the root. */
ATOM_MUST atom_status gsp_stage_put(gsp_stage *stage, uint32_t chunk, const gsp_hash *leaf,
                                    const void *data);
/* Reads a chunk back into out[GSP_CHUNK_FLOATS]; false: it is not what it was, and is forgotten. */
ATOM_MUST bool gsp_stage_read(gsp_stage *stage, uint32_t chunk, float *out);

#endif
