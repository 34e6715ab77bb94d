/*
 * Owns the optimizer's state of a running plan as vectors: weights and moments, in the slab or on
 * disk, whichever the plan says. One idea: a reader or writer need not know where they lie. Refuses to look
 * while an update is pending: drain first.
 */
#include "atom/train/engine.h"

#include "atom/base/mem.h"
#include "atom/train/init.h"

static atom_status disk_get(void *ctx, uint64_t first, uint64_t n, float *to)
{
    const train_part *p = ctx;
    return swap_disk_get(p->engine->disk, p->part, first, n, to);
}

static atom_status disk_put(void *ctx, uint64_t first, uint64_t n, const float *from)
{
    const train_part *p = ctx;
    return swap_disk_put(p->engine->disk, p->part, first, n, from);
}

/* Where that element is in memory; *dtype: what is there. */
static char *state_at(const train_part *p, uint64_t element, atom_dtype *dtype)
{
    const gen_lowered *low = p->engine->low;
    const swap_host_layout *h = &low->layout;
    const uint64_t place[SWAP_STATE_N] = {h->master, h->m, h->v};
    if (p->part == SWAP_STATE_V)
        element = swap_second_at(low->params, low->n_params, element);
    *dtype = swap_state_dtype(p->part, h->moments);
    return train_engine_slab(p->engine, place[p->part] + element * atom_dtype_bytes(*dtype));
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Of n elements from `first`: those that are kept, or not kept (*kept false), without a break. */
static uint64_t run_of(const train_part *p, uint64_t first, uint64_t n, bool *kept)
{
    const gen_lowered *low = p->engine->low;
    *kept = true;
    if (p->part != SWAP_STATE_V || low->layout.seconds == low->layout.trained)
        return n;
    uint32_t i = swap_param_at(low->params, low->n_params, first);
    *kept = low->params[i].n_matrices == 0;
    return i + 1 < low->n_params ? least(n, low->params[i + 1].offset - first) : n;
}

/* What is not kept is zero. */
static atom_status memory_get(void *ctx, uint64_t first, uint64_t n, float *to)
{
    atom_dtype dtype;
    bool kept;
    for (uint64_t some; n > 0; first += some, to += some, n -= some) {
        some = run_of(ctx, first, n, &kept);
        const char *from = state_at(ctx, first, &dtype);
        if (kept)
            swap_state_read(dtype, from, some, to);
        else
            memset(to, 0, some * sizeof *to);
    }
    return ATOM_OK;
}

static atom_status memory_put(void *ctx, uint64_t first, uint64_t n, const float *from)
{
    atom_dtype dtype;
    bool kept;
    for (uint64_t some; n > 0; first += some, from += some, n -= some) {
        some = run_of(ctx, first, n, &kept);
        char *to = state_at(ctx, first, &dtype);
        if (kept)
            swap_state_write(dtype, to, from, some);
    }
    return ATOM_OK;
}

file_vector train_engine_vector(train_engine *e, swap_state part)
{
    train_part *p = &e->parts[part];
    atom_dtype dtype;
    const swap_host_layout *h = &e->low->layout;
    bool whole = part != SWAP_STATE_V || h->seconds == h->trained;
    file_vector v = {.ctx = p, .get = disk_get, .put = disk_put};
    if (!e->c.plan->disk) {
        char *at = state_at(p, 0, &dtype);
        bool floats = dtype == ATOM_F32 && whole;
        v = floats ? file_vector_memory((float *)(void *)at)
                   : (file_vector){.ctx = p, .get = memory_get, .put = memory_put};
    }
    v.source = &e->source;
    v.sink = &e->sink;
    return v;
}

float *train_engine_masters(train_engine *e)
{
    return e->c.plan->disk ? NULL : (float *)(void *)train_engine_slab(e, e->low->layout.master);
}

/* What is frozen is in the wire copy, the only one there is. */
static atom_status weights_get(void *ctx, uint64_t first, uint64_t n, float *to)
{
    train_engine *e = ctx;
    uint64_t trained = e->low->layout.trained;
    uint64_t some = first < trained ? least(n, trained - first) : 0;
    file_vector master = train_engine_vector(e, SWAP_STATE_MASTER);
    file_vector frozen = plan_wire_vector(&e->wire);
    atom_status st = some ? master.get(master.ctx, first, some, to) : ATOM_OK;
    if (st == ATOM_OK && some < n)
        st = frozen.get(frozen.ctx, first + some, n - some, to + some);
    return st;
}

static atom_status weights_put(void *ctx, uint64_t first, uint64_t n, const float *from)
{
    train_engine *e = ctx;
    uint64_t trained = e->low->layout.trained;
    uint64_t some = first < trained ? least(n, trained - first) : 0;
    file_vector master = train_engine_vector(e, SWAP_STATE_MASTER);
    file_vector frozen = plan_wire_vector(&e->wire);
    atom_status st = some ? master.put(master.ctx, first, some, from) : ATOM_OK;
    if (st == ATOM_OK && some < n)
        st = frozen.put(frozen.ctx, first + some, n - some, from + some);
    return st;
}

file_vector train_engine_weights(train_engine *e)
{
    file_vector v = {.ctx = e, .get = weights_get, .put = weights_put};
    if (!graph_trains(e->c.bench->g))
        v = plan_wire_vector(&e->wire);
    e->in_slots = false;
    v.source = &e->source;
    return v;
}

atom_status train_engine_replace(train_engine *e)
{
    return e->disk ? swap_disk_forget(e->disk) : ATOM_OK;
}

/* Calls `visit` for one band of the canonical vector after another. */
typedef atom_status (*band_fn)(train_engine *e, uint64_t first, uint64_t n, float *band);
static atom_status each_band(train_engine *e, uint64_t extent, band_fn visit)
{
    enum { BAND = 1 << 18 };
    atom_status st = ATOM_OK;
    float *band = atom_alloc(BAND, sizeof *band);
    if (!band)
        return atom_fail_memory("a band of weights", BAND * sizeof *band);
    for (uint64_t at = 0; at < extent && st == ATOM_OK; at += BAND)
        st = visit(e, at, extent - at < BAND ? extent - at : BAND, band);
    atom_free(band);
    return st;
}

static atom_status init_band(train_engine *e, uint64_t first, uint64_t n, float *band)
{
    file_vector v = train_engine_weights(e);
    train_init_range(e->c.bench->g, e->init_seed, first, n, e->c.bench->threads, band);
    return v.put(v.ctx, first, n, band);
}

static atom_status clear_band(train_engine *e, uint64_t first, uint64_t n, float *band)
{
    atom_status st = ATOM_OK;
    memset(band, 0, n * sizeof *band);
    for (int part = SWAP_STATE_M; part < SWAP_STATE_N && st == ATOM_OK; part++) {
        file_vector v = train_engine_vector(e, (swap_state)part);
        st = v.put(v.ctx, first, n, band);
    }
    return st;
}

atom_status train_engine_init(train_engine *e, uint64_t seed)
{
    e->init_seed = seed;
    ATOM_TRY(each_band(e, e->low->layout.extent, init_band));
    return each_band(e, e->low->layout.trained, clear_band);
}

static atom_status sync_band(train_engine *e, uint64_t first, uint64_t n, float *band)
{
    const graph *g = e->c.bench->g;
    krn_ctx cx = {.threads = e->c.bench->threads};
    file_vector v = train_engine_vector(e, SWAP_STATE_MASTER);
    ATOM_TRY(v.get(v.ctx, first, n, band));
    e->c.bench->host->round[g->dtype](
        &cx, train_engine_slab(e, e->low->layout.wire + first * atom_dtype_bytes(g->dtype)), band,
        n);
    return ATOM_OK;
}

atom_status train_engine_sync(train_engine *e)
{
    atom_status st = e->disk ? swap_disk_flush(e->disk) : ATOM_OK;
    return st == ATOM_OK ? each_band(e, e->low->layout.trained, sync_band) : st;
}
