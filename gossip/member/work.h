/*
 * What a member averages for. Its functions are called on the member's thread. The state of
 * fragment f is n_state[f] floats, any bits, equal to the bit on all members that have applied the
 * same version: a joiner gets it from them, into files in its directory, together as large as the
 * state, which go when it is adopted.
 */
#ifndef GOSSIP_MEMBER_WORK_H
#define GOSSIP_MEMBER_WORK_H

#include "gossip/agree/agree.h"

#include "atom/base/status.h"

typedef enum gsp_freeze {
    GSP_FREEZE_NOTHING, /* nothing to bring to this version */
    GSP_FREEZE_READY,   /* *x, *tokens, *samples are set */
    GSP_FREEZE_LATER,   /* in the middle of something: asked again with every turn */
} gsp_freeze;

typedef struct gsp_work {
    void *context;
    bool on_disk; /* memory is short: contributions that were brought are kept on disk */
    /*
     * The contribution to `version`: *x points to the fragment's floats, finite, which stay as they
     * are until this version is applied or another one is frozen.
     */
    gsp_freeze (*freeze)(void *context, uint64_t version, const float **x, uint64_t *tokens,
                         uint64_t *samples);
    /*
     * The averaged floats [first, first + n) of the fragment; once per part that changed.
     * early: parts also come while the version is still being made, so that nothing is left to do
     * when it is certified. Such a part may come again with other floats, which take the place of
     * the first ones, or with x NULL: as if it had never come. Only what stands at `apply` counts;
     * until then nothing of it may be seen by state_read.
     */
    void (*part)(void *context, uint64_t version, uint64_t first, const float *x, uint64_t n);
    bool early;
    /* All parts of the certificate were given; result: Merkle root over its part hashes. Makes
     * anchor and momentum durable. An error ends the member. */
    atom_status (*apply)(void *context, const gsp_certificate *certificate, const gsp_hash *result);

    /*
     * Where contributions are pieces of one sum (gsp_rules.summed), else NULL: how much of mine
     * there is for `version`. 0: it is being made; 1: nothing; more: one plus its samples. Asked
     * with every turn.
     */
    uint64_t (*ready)(void *context, uint64_t version);
    /* Then: gsp_rules.summed_samples. Afterwards samples are what gsp_node_report says, and what an
     * encoding lost of pieces of the sum is not added to anything. */
    uint64_t summed_samples;

    /* How many samples member i of n brings to `version` (gsp_rules.lease), where contributions are
     * pieces of one sum; UINT64_MAX: not known now. NULL: as many as it likes. */
    uint64_t (*lease)(void *context, uint64_t version, uint32_t n, uint32_t i);

    /* Whether nothing is computed here now, for whatever reason: the others are told. NULL: never. */
    bool (*rests)(void *context);

    /* Right after `apply`: bits of the certificate's contributors whose work is in the state now. NULL:
     * of all that are in any part. */
    uint32_t (*counted)(void *context, const gsp_certificate *certificate);

    /* Nothing more is made, and what there is should be averaged soon: true: every version is due as soon
     * as all who are here say so, or after thirty heartbeats, whatever was reported. Not where
     * contributions are pieces of one sum. Asked with every turn; NULL: never. */
    bool (*hastens)(void *context);

    /* Floats; all 0: there is no state, and the rest may be NULL. */
    uint64_t n_state[GSP_FRAGMENTS_MAX];
    /* For joiners: floats [first, first + n) of the fragment's state, as of what is applied. */
    atom_status (*state_read)(void *context, uint32_t fragment, uint64_t first, uint64_t n,
                              float *out);
    /*
     * A state that takes the place of mine: floats [first, first + n) of the fragment as `version`
     * left it (the last one that concerned it), whole, checked, in order, all fragments, right
     * before state_adopt. Not visible before. It may begin again from the start after a crash.
     */
    atom_status (*state_write)(void *context, uint32_t fragment, uint64_t version, uint64_t first,
                               uint64_t n, const float *x);
    /*
     * All that was written is the state now: of saved->certificate (of saved->genesis where
     * has_certificate is false). Durable when it returns. The state before it must still be
     * there after a crash: the member may come back with its old version, and fetch again.
     */
    atom_status (*state_adopt)(void *context, const gsp_saved *saved);
    /* A lineage begins from the state that is here, by this member or others with it. NULL: the
     * work does not care. */
    void (*begins)(void *context, const gsp_genesis *genesis);
} gsp_work;

/* The work has a state at all. */
static inline bool gsp_work_has_state(const gsp_work *work, uint32_t n_fragments)
{
    for (uint32_t f = 0; f < n_fragments; f++)
        if (work->n_state[f])
            return true;
    return false;
}

#endif
