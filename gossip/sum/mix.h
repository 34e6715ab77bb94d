/*
 * What the owner of a part makes of the contributions to it (docs/design/pool.md#sums,
 * #hostile-members), from encoded bytes to encoded bytes: by reduce.h or, in a robust pool, by
 * robust.h. One function for whoever owns a part and for whoever checks it afterwards, so that the
 * two cannot differ.
 *
 * Contributions that do not decode are left out, as if they had not come: `included` says which
 * were summed. Anybody with the same contributions gets the same bits.
 * Whoever makes other bits of them is convicted by it (audit.h): a change of what comes out is a
 * change of GSP_TYPES_VERSION, so that old and new members do not meet.
 *
 * Memory: 2 floats per float of a part; in a robust pool one more for every contribution, from its
 * first use on. Thread: one at a time per object.
 */
#ifndef GOSSIP_SUM_MIX_H
#define GOSSIP_SUM_MIX_H

#include "gossip/agree/types.h"
#include "gossip/sum/quant.h"

/* How a fragment of n floats is cut: floats of part `number`, *first the first of them. All parts
 * have the same length, a multiple of GSP_INT8_BLOCK, but the last ones, which may be empty. */
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
 * Part `number`, of n <= floats_max floats, of the contributions that are `included`: input[i] are
 * the encoded bytes (of gsp_codec_bytes(codec, n)) of contributor i, NULL: not there. Writes the
 * encoded result to out and what an owner says of it to *part (hash, included, weight, norm, lean;
 * no seal).
 * False: nothing can be made of them (nobody with weight is left, or the sum is not finite), or
 * *status tells of an error: ATOM_E_RESOURCE.
 */
ATOM_MUST bool gsp_mix_part(gsp_mix *mix, uint32_t number, const gsp_contributor *contributor,
                            uint32_t n_contributors, const void *const *input, uint32_t included,
                            uint64_t n, void *out, gsp_part *part, atom_status *status);

#endif
