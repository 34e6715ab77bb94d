/*
 * Owns the way from contributions to a part's result. Its one idea: it is a function of its inputs,
 * and the only one of its kind, so an owner's work can be done again by anybody. It refuses to know
 * where contributions come from.
 */
#include "gossip/sum/mix.h"

#include "atom/base/mem.h"
#include "gossip/agree/round.h"
#include "gossip/sum/merkle.h"
#include "gossip/sum/reduce.h"
#include "gossip/sum/robust.h"

#include <math.h>
#include <string.h>

uint64_t gsp_part_stride(uint64_t n, uint32_t n_parts)
{
    uint64_t each = (n + n_parts - 1) / n_parts;
    return (each + GSP_INT8_BLOCK - 1) / GSP_INT8_BLOCK * GSP_INT8_BLOCK;
}

uint64_t gsp_part_cut(uint64_t n, uint32_t n_parts, uint32_t number, uint64_t *first)
{
    uint64_t stride = gsp_part_stride(n, n_parts);
    uint64_t at = number * stride < n ? number * stride : n;
    *first = at;
    return n - at < stride ? n - at : stride;
}

atom_status gsp_mix_open(gsp_mix *m, gsp_codec codec, bool robust, uint64_t floats_max)
{
    *m = (gsp_mix){.codec = codec, .robust = robust, .floats_max = floats_max ? floats_max : 1};
    m->sum = atom_alloc(m->floats_max, sizeof(float));
    m->scratch = atom_alloc(m->floats_max, sizeof(float));
    if (!m->sum || !m->scratch)
        return atom_fail_memory("a part", m->floats_max * 2 * sizeof(float));
    return ATOM_OK;
}

void gsp_mix_close(gsp_mix *m)
{
    for (uint32_t k = 0; k < GSP_MEMBERS_MAX; k++)
        atom_free(m->row[k]);
    atom_free(m->sum);
    atom_free(m->scratch);
    *m = (gsp_mix){0};
}

/* Whether no sum of these weights wraps, and some weight is left. */
static bool weighs(const gsp_contributor *contributor, uint32_t n_contributors, uint32_t included)
{
    uint32_t all = n_contributors >= 32 ? UINT32_MAX : (1u << n_contributors) - 1;
    if (n_contributors > GSP_MEMBERS_MAX || (included & ~all))
        return false;
    for (uint32_t i = 0; i < n_contributors; i++)
        if (contributor[i].weight > GSP_TOKENS_MAX)
            return false;
    return gsp_included_weight(contributor, n_contributors, included) > 0;
}

/* m->sum = the weighted sum over those `included` that decode; returns their bits. */
static uint32_t sum_up(gsp_mix *m, const gsp_contributor *contributor, uint32_t n_contributors,
                       const void *const *input, uint32_t included, uint64_t n)
{
    uint64_t bytes = gsp_codec_bytes(m->codec, n);
    for (bool again = true; again && included;) {
        uint64_t total = gsp_included_weight(contributor, n_contributors, included);
        bool first = true;
        again = false;
        for (uint32_t i = 0; i < n_contributors && !again; i++) {
            if (!(included >> i & 1))
                continue;
            again = !input[i] || total == 0 ||
                    !gsp_reduce_add(m->codec, input[i], bytes, contributor[i].weight, total, first,
                                    m->sum, m->scratch, n);
            if (again)
                included &= ~(1u << i);
            first = false;
        }
    }
    return included;
}

/* The same for robust pools: decodes all, then m->sum = their robust combination. lean[] by
 * contributor. */
static uint32_t combine(gsp_mix *m, const gsp_contributor *contributor, uint32_t n_contributors,
                        const void *const *input, uint32_t included, uint64_t n, int8_t *lean,
                        atom_status *status)
{
    uint64_t bytes = gsp_codec_bytes(m->codec, n), weight[GSP_MEMBERS_MAX], total = 0;
    const float *x[GSP_MEMBERS_MAX];
    uint8_t who[GSP_MEMBERS_MAX];
    int8_t leans[GSP_MEMBERS_MAX];
    uint32_t k = 0;
    for (uint32_t i = 0; i < n_contributors; i++) {
        const void *in = included >> i & 1 ? input[i] : NULL;
        if (in && !m->row[k] && !(m->row[k] = atom_alloc(m->floats_max, sizeof(float)))) {
            *status = atom_fail_memory("a contribution", m->floats_max * sizeof(float));
            return 0;
        }
        if (in && gsp_decode(m->codec, in, bytes, m->row[k], n)) {
            x[k] = m->row[k];
            weight[k] = contributor[i].weight;
            total += contributor[i].weight;
            who[k++] = (uint8_t)i;
        } else {
            included &= ~(1u << i);
        }
    }
    if (total == 0)
        return 0;
    gsp_robust_combine(x, weight, k, n, m->sum, m->scratch, leans);
    for (uint32_t j = 0; j < k; j++)
        lean[who[j]] = leans[j];
    return included;
}

bool gsp_mix_part(gsp_mix *m, uint32_t number, const gsp_contributor *contributor,
                  uint32_t n_contributors, const void *const *input, uint32_t included, uint64_t n,
                  void *out, gsp_part *part, atom_status *status)
{
    double norm = 0.0;
    *status = ATOM_OK;
    memset(part, 0, sizeof *part);
    if (!weighs(contributor, n_contributors, included) || n > m->floats_max)
        return false;
    part->included =
        m->robust ? combine(m, contributor, n_contributors, input, included, n, part->lean, status)
                  : sum_up(m, contributor, n_contributors, input, included, n);
    if (part->included == 0 || !gsp_reduce_finish(m->codec, m->sum, n, out, &norm) ||
        !isfinite((float)norm))
        return false;
    part->weight = gsp_included_weight(contributor, n_contributors, part->included);
    part->norm = (float)norm;
    gsp_merkle_leaf(number, out, gsp_codec_bytes(m->codec, n), &part->hash);
    return true;
}
