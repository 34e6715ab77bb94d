/*
 * What the owner of a part makes of the contributions to it (docs/design/pool.md#sums,
 * #hostile-members), from encoded bytes to encoded bytes: by reduce.h or, in a robust pool, by
 * robust.h. Owners and those who check them call this same function, so that the two cannot differ.
 *
 * A contribution that does not decode is left out, as if it had not arrived; `included` says which
 * ones were summed. Anybody with the same contributions gets the same bits, and an owner that
 * publishes other bits is convicted by them (claim.h). So a change of the result is a change of
 * GSP_TYPES_VERSION, which keeps old and new members apart.
 *
 * Memory: 2 floats per float of a part; in a robust pool one more for every contribution, allocated
 * at its first use. Thread: one at a time per object.
 */
#ifndef GOSSIP_SUM_MIX_H
#define GOSSIP_SUM_MIX_H

#include "gossip/agree/types.h"
#include "gossip/sum/quant.h"

/* How a fragment of n floats is cut into parts: returns the length of part `number`, and its first
 * float in *first. All parts have the same length, a multiple of GSP_INT8_BLOCK, but the last ones
 * may be shorter or empty. */
uint64_t gsp_part_stride(uint64_t n, uint32_t n_parts); /* of all but the last ones */
uint64_t gsp_part_cut(uint64_t n, uint32_t n_parts, uint32_t number, uint64_t *first);

typedef struct gsp_mix {
    gsp_codec codec;
    bool robust;
    uint64_t floats_max;         /* of a part */
    float *sum, *scratch;        /* floats_max each */
    float *row[GSP_MEMBERS_MAX]; /* decoded contributions; NULL: not needed yet */
} gsp_mix;

/* Errors  ATOM_E_RESOURCE; gsp_mix_close is right all the same. */
ATOM_MUST atom_status gsp_mix_open(gsp_mix *mix, gsp_codec codec, bool robust, uint64_t floats_max);
void gsp_mix_close(gsp_mix *mix);

/*
 * Combines part `number`, of n <= floats_max floats, over the contributors `included`. input[i]:
 * contributor i's encoded bytes, gsp_codec_bytes(codec, n) of them; NULL: not there. Writes the
 * encoded result to out, and what an owner says of it to *part (hash, included, weight, norm and
 * lean, without the seal).
 * False: there is no result, because nobody with weight is left, a weight is above GSP_TOKENS_MAX,
 * `included` names nobody, or the sum is not finite; or *status is an error, ATOM_E_RESOURCE.
 */
ATOM_MUST bool gsp_mix_part(gsp_mix *mix, uint32_t number, const gsp_contributor *contributor,
                            uint32_t n_contributors, const void *const *input, uint32_t included,
                            uint64_t n, void *out, gsp_part *part, atom_status *status);

#endif
