/*
 * Owns the way between floats and the wire copy. One idea: rounding is element by element, so it may be
 * done as weights arrive, piece by piece, with the bits that rounding all of them at once would give.
 * Refuses to know who reads or writes them.
 */
#include "atom/plan/wire.h"

static char *place(const plan_wire *w, uint64_t element)
{
    return (char *)w->at + element * atom_dtype_bytes(w->g->dtype);
}

static atom_status get(void *ctx, uint64_t first, uint64_t n, float *to)
{
    const plan_wire *w = ctx;
    const void *from = place(w, first);
    for (uint64_t i = 0; i < n; i++)
        to[i] = w->g->dtype == ATOM_F32 ? ((const float *)from)[i]
                                        : atom_bf16_to_f32(((const atom_bf16 *)from)[i]);
    return ATOM_OK;
}

static atom_status put(void *ctx, uint64_t first, uint64_t n, const float *from)
{
    const plan_wire *w = ctx;
    krn_ctx cx = {.threads = w->threads};
    w->host->round[w->g->dtype](&cx, place(w, first), from, n);
    return ATOM_OK;
}

file_vector plan_wire_vector(plan_wire *w)
{
    return (file_vector){.ctx = w,
                         .get = get,
                         .put = put,
                         .floats = w->g->dtype == ATOM_F32 ? (float *)w->at : NULL};
}
