/*
 * Makes node.c a host whose sums are false: linked into a program of its own with gsp_mix_part
 * wrapped (CMakeLists.txt), so that it is an honest member but for the last byte of every result.
 * It looks into nobody else's: it would find everybody wrong.
 */
#include "gossip/sum/merkle.h"
#include "gossip/sum/mix.h"

bool __real_gsp_mix_part(gsp_mix *mix, uint32_t number, const gsp_contributor *contributor,
                         uint32_t n_contributors, const void *const *input, uint32_t included,
                         uint64_t n, void *out, gsp_part *part, atom_status *status);
bool __wrap_gsp_mix_part(gsp_mix *mix, uint32_t number, const gsp_contributor *contributor,
                         uint32_t n_contributors, const void *const *input, uint32_t included,
                         uint64_t n, void *out, gsp_part *part, atom_status *status);
void __wrap_gsp_audit_choose(void *agree);

bool __wrap_gsp_mix_part(gsp_mix *mix, uint32_t number, const gsp_contributor *contributor,
                         uint32_t n_contributors, const void *const *input, uint32_t included,
                         uint64_t n, void *out, gsp_part *part, atom_status *status)
{
    uint64_t bytes = gsp_codec_bytes(mix->codec, n);
    bool made = __real_gsp_mix_part(mix, number, contributor, n_contributors, input, included, n,
                                    out, part, status);
    if (made && bytes) {
        ((uint8_t *)out)[bytes - 1] ^= 1;
        gsp_merkle_leaf(number, out, bytes, &part->hash);
    }
    return made;
}

void __wrap_gsp_audit_choose(void *agree)
{
    (void)agree;
}
