/*
 * Owns the execution of tapes. One idea: hand every instruction to its stream in tape order, behind
 * the waits the tape names; all concurrency comes from the streams. Allocates everything at open.
 * Refuses to know why an instruction is there.
 */
#include "swap/exec.h"

#include "atom/base/assert.h"
#include "atom/base/clock.h"
#include "atom/base/hash.h"
#include "atom/base/mem.h"

#include <math.h>
#include <string.h>

typedef struct launch {
    struct swap_exec *exec;
    const swap_instr *in;
    krn_step step;
} launch;

struct swap_exec {
    swap_exec_config c;
    char *arena, *slab;
    swap_disk *disk; /* NULL: everything is in the slab */
    swap_cow *cow;   /* NULL: nobody reads the state while it changes */
    dev_stream *streams[DEV_STREAM_N];
    dev_event **starts, **ends; /* instrs_max each */
    launch *launches;
    swap_span *spans;
    uint32_t n_spans;
    swap_step step;
    const swap_instr *first_update, *last_update; /* of the tape that runs; NULL: it has none */
    bool draining;                                /* what runs is the drain tape */
    float clip_scale;                             /* of the gradients that wait on the host */
    double grad_norm;
    swap_host_time host; /* of the last run */
    bool dead;
};

static void *at(const swap_exec *exec, swap_range range)
{
    return (range.space == SWAP_DEVICE ? exec->arena : exec->slab) + range.offset;
}

/* --- what instructions do -------------------------------------------------------------------- */

static void run_lists(krn_ctx *cx, const launch *l)
{
    const swap_exec *exec = l->exec;
    const swap_instr *in = l->in;
    const swap_sub_model *s = &exec->c.program->sub_models[in->sub_model];
    swap_bases bases = {{0}};
    for (int b = 0; b < SWAP_BASE_N; b++) {
        if (in->base[b].bytes)
            bases.at[b] = at(exec, in->base[b]);
    }
    for (int list = 0; list < SWAP_LIST_N; list++) {
        if (!(in->lists & (1u << list)))
            continue;
        swap_compiled_fn fn = exec->c.compiled ? exec->c.compiled[in->sub_model].list[list] : NULL;
        if (fn)
            fn(cx, exec->c.table, bases.at);
        else
            swap_calls_run(cx, exec->c.table, &s->list[list], &bases);
    }
}

static void run_round(krn_ctx *cx, const launch *l)
{
    const swap_exec *exec = l->exec;
    const swap_instr *in = l->in;
    uint32_t each = atom_dtype_bytes(exec->c.program->dtype);
    const swap_param *first = &exec->c.params[in->first_param];
    for (int32_t p = in->first_param; p < in->last_param; p++) {
        const swap_param *param = &exec->c.params[p];
        uint64_t at_element = param->offset - first->offset;
        exec->c.table->settle(cx, (char *)at(exec, in->dst) + at_element * each,
                              (float *)at(exec, in->src) + at_element,
                              (double *)at(exec, in->norms) +
                                  (param->norm_chunk - first->norm_chunk),
                              param->elements);
    }
}

static void on_compute(krn_ctx *cx, void *arg)
{
    launch *l = arg;
    const swap_exec *exec = l->exec;
    cx->workspace = exec->arena + exec->c.workspace.offset;
    cx->workspace_bytes = exec->c.workspace.bytes;
    krn_ctx_step(cx, &l->step);
    if (l->in->code == SWAP_ROUND)
        run_round(cx, l);
    else
        run_lists(cx, l);
}

static double chunk_sum(const swap_exec *exec, int32_t first, int32_t last)
{
    const double *norms = (const double *)(exec->slab + exec->c.layout.norms);
    double total = 0;
    for (int32_t p = first; p < last; p++) {
        double sum = 0;
        const swap_param *param = &exec->c.params[p];
        for (uint64_t c = 0; c < krn_norm_chunks(param->elements); c++)
            sum += norms[param->norm_chunk + c];
        total += sum;
    }
    return total;
}

static atom_status on_clip(void *arg)
{
    launch *l = arg;
    swap_exec *exec = l->exec;
    double norm = sqrt(chunk_sum(exec, 0, (int32_t)exec->c.n_params));
    exec->grad_norm = norm;
    if (!isfinite(norm))
        return atom_fail(
            ATOM_E_DIVERGED,
            "step %u: the gradient is not finite; nothing was updated. Resume from the "
            "last checkpoint with a lower learning_rate or a max_grad_norm",
            exec->step.step);
    float limit = exec->step.max_grad_norm;
    exec->clip_scale = 1.0f;
    if (limit > 0) {
        double scale = (double)limit / (norm + 1e-6); /* as torch.nn.utils.clip_grad_norm_ */
        if (scale < 1)
            exec->clip_scale = (float)scale;
    }
    return ATOM_OK;
}

static krn_adamw_step update_step(const swap_exec *exec, bool clipped)
{
    krn_adamw_step step = exec->step.update;
    step.scale = clipped ? exec->clip_scale : 1.0f;
    return step;
}

/* Where the state of a parameter's elements from `first` on is. */
typedef struct state_at {
    float *master;
    char *m, *v;
} state_at;

static state_at state_of(const swap_exec *exec, const swap_instr *in, const swap_param *param,
                         uint64_t first)
{
    const swap_host_layout *h = &exec->c.layout;
    uint32_t moment = atom_dtype_bytes(h->moments);
    uint64_t second = param->second + (first - param->offset);
    if (in->src.bytes && in->src.space == SWAP_HOST) { /* a block's slot of the ring */
        uint64_t k = swap_block_of(h->blocks, in->first_element), i = first - in->first_element;
        uint64_t n = swap_block_part(h->blocks, k, SWAP_STATE_M);
        char *slot = at(exec, in->src);
        return (state_at){(float *)(void *)slot + i,
                          slot + swap_state_offset(SWAP_STATE_M, h->moments, n) + i * moment,
                          slot + swap_state_offset(SWAP_STATE_V, h->moments, n) +
                              (second - swap_block_second(h->blocks, k)) * moment};
    }
    if (in->src.bytes) {
        uint64_t n = in->src.bytes / atom_state_bytes(h->moments), i = first - in->first_element;
        char *slot = at(exec, in->src);
        return (state_at){(float *)(void *)slot + i,
                          slot + swap_state_offset(SWAP_STATE_M, h->moments, n) + i * moment,
                          slot + swap_state_offset(SWAP_STATE_V, h->moments, n) + i * moment};
    }
    return (state_at){(float *)(void *)(exec->slab + h->master) + first,
                      exec->slab + h->m + first * moment, exec->slab + h->v + second * moment};
}

/* The part of one parameter that an UPDATE has, in pieces that may change: elements [from, to). */
static void update_piece(swap_exec *exec, const swap_instr *in, const swap_param *param,
                         krn_adamw_step step, uint64_t from, uint64_t to)
{
    atom_dtype dtype = exec->c.program->dtype;
    char *wire = exec->slab + exec->c.layout.wire;
    bool kept = exec->cow && !in->src.bytes;
    for (uint64_t some; from < to; from += some) {
        state_at state = state_of(exec, in, param, from);
        some = kept ? swap_cow_before_write(exec->cow, from, to - from) : to - from;
        ATOM_ASSERT(from % KRN_DRAW_ALIGN == 0 || step.moments == ATOM_F32);
        step.first = from;
        exec->c.host->adamw(exec->c.threads, &step, dtype, wire + from * atom_dtype_bytes(dtype),
                            state.master, state.m, state.v, some);
    }
}

/* A matrix is updated as a whole, once nobody needs anything of its parameter as it was. A block of
 * the disk tier has some of a parameter's matrices; none ends inside of one. */
static void update_matrices(swap_exec *exec, const swap_instr *in, const swap_param *param,
                            krn_muon_step step)
{
    const swap_host_layout *h = &exec->c.layout;
    atom_dtype dtype = exec->c.program->dtype;
    uint64_t i = param->offset, next;
    ATOM_ASSERT(step.moments == h->moments);
    if (!in->src.bytes)
        swap_cow_leave(exec->cow, i, param->elements);
    step.decay = param->decay ? step.decay : 0;
    for (uint8_t k = 0; k < param->n_matrices; k++, i = next) {
        next = i + (uint64_t)(param->rows[k] * param->cols);
        if (next <= in->first_element || i >= in->last_element)
            continue;
        ATOM_ASSERT(i >= in->first_element && next <= in->last_element);
        state_at state = state_of(exec, in, param, i);
        step.first = i;
        exec->c.host->muon(exec->c.threads, &step, dtype,
                           exec->slab + h->wire + i * atom_dtype_bytes(dtype), state.master,
                           state.m, param->rows[k], param->cols, exec->slab + h->muon);
    }
}

/* Masters that only pass by are shown to whoever takes part. */
static void show_block(const swap_exec *exec, const swap_instr *in, bool begin)
{
    if (exec->c.on_block && in->src.bytes && !in->ahead)
        exec->c.on_block(exec->c.ctx, in->first_element, in->last_element - in->first_element,
                         at(exec, in->src), begin);
}

static atom_status on_update(void *arg)
{
    launch *l = arg;
    swap_exec *exec = l->exec;
    const swap_instr *in = l->in;
    if (exec->c.on_updates && in == exec->first_update)
        exec->c.on_updates(exec->c.ctx, exec->step.update_step, true);
    bool clipped = exec->step.max_grad_norm > 0;
    krn_adamw_step step = update_step(exec, clipped);
    krn_muon_step muon = in->ahead ? exec->step.muon_ahead : exec->step.muon;
    float decay = exec->step.update.decay;
    if (in->ahead) { /* that it is finite is seen before this is committed */
        step = exec->step.ahead;
        step.scale = 1;
        decay = step.decay;
    }
    muon.scale = step.scale;
    if (!clipped && !isfinite(chunk_sum(exec, l->in->first_param, l->in->last_param)))
        return atom_fail(
            ATOM_E_DIVERGED,
            "step %u: a gradient is not finite; resume from the last checkpoint with a "
            "lower learning_rate or a max_grad_norm",
            exec->step.step);
    show_block(exec, in, true);
    for (int32_t p = in->first_param; p < in->last_param; p++) {
        const swap_param *param = &exec->c.params[p];
        uint64_t from = param->offset, to = param->offset + param->elements;
        from = from > in->first_element ? from : in->first_element;
        to = to < in->last_element ? to : in->last_element;
        if (from >= to)
            continue;
        step.decay = param->decay ? decay : 0;
        if (param->n_matrices)
            update_matrices(exec, in, param, muon);
        else
            update_piece(exec, in, param, step, from, to);
    }
    show_block(exec, in, false);
    if (exec->c.on_updates && in == exec->last_update)
        exec->c.on_updates(exec->c.ctx, exec->step.update_step, false);
    return ATOM_OK;
}

/* The same on the device; the clip factor was known before the tape began. The state of the host
 * changes only when a drain brings it there, behind the update, so only then is anybody asked. */
static void on_device_update(krn_ctx *cx, void *arg)
{
    const launch *l = arg;
    const swap_exec *exec = l->exec;
    const swap_instr *in = l->in;
    uint32_t each = atom_dtype_bytes(exec->c.program->dtype);
    char *wire = at(exec, in->base[SWAP_BASE_PARAM]), *grad = at(exec, in->base[SWAP_BASE_GRAD]);
    krn_adamw_step step = update_step(exec, exec->step.max_grad_norm > 0);
    if (exec->draining && in == exec->first_update)
        swap_cow_leave(exec->cow, 0, exec->c.layout.trained);
    for (int32_t p = in->first_param; p < in->last_param; p++) {
        const swap_param *param = &exec->c.params[p];
        uint64_t i = param->offset - in->first_element;
        step.decay = param->decay ? exec->step.update.decay : 0;
        ATOM_ASSERT(param->offset % KRN_DRAW_ALIGN == 0 || step.moments == ATOM_F32);
        step.first = param->offset;
        state_at state = state_of(exec, in, param, param->offset);
        exec->c.table->update(cx, &step, wire + i * each, grad + i * each, state.master, state.m,
                              state.v, param->elements);
    }
}

static void find_updates(swap_exec *exec, const swap_tape *tape)
{
    exec->first_update = exec->last_update = NULL;
    for (uint32_t i = 0; i < tape->n; i++) {
        if (tape->instrs[i].code != SWAP_UPDATE || tape->instrs[i].ahead)
            continue;
        exec->first_update = exec->first_update ? exec->first_update : &tape->instrs[i];
        exec->last_update = &tape->instrs[i];
    }
}

static atom_status on_load(void *arg)
{
    const launch *l = arg;
    const swap_instr *in = l->in;
    return swap_disk_load(l->exec->disk, in->src.offset, at(l->exec, in->dst), in->src.bytes);
}

static atom_status on_store(void *arg)
{
    const launch *l = arg;
    const swap_instr *in = l->in;
    return swap_disk_save(l->exec->disk, in->dst.offset, at(l->exec, in->src), in->src.bytes);
}

static atom_status on_commit(void *arg)
{
    const launch *l = arg;
    return swap_disk_commit(l->exec->disk, l->exec->step.update_step);
}

/* --- issuing --------------------------------------------------------------------------------- */

/* Equal keys: equal lists on equal memory, so equal kernels and arguments. */
static uint64_t key_of(const swap_exec *exec, const swap_instr *in)
{
    uint64_t key = atom_hash(ATOM_HASH_SEED, &exec->arena, sizeof exec->arena);
    key = atom_hash(key, &in->code, sizeof in->code);
    key = atom_hash(key, &in->sub_model, sizeof in->sub_model);
    key = atom_hash(key, &in->lists, sizeof in->lists);
    for (int b = 0; b < SWAP_BASE_N; b++) {
        const swap_range *base = &in->base[b];
        uint64_t where[2] = {base->bytes ? base->offset + 1 : 0, base->bytes ? base->space : 0};
        key = atom_hash(key, where, sizeof where);
    }
    return key;
}

static atom_status launch_lists(swap_exec *exec, const swap_instr *in, launch *l)
{
    dev *d = exec->c.device;
    dev_stream *s = exec->streams[in->stream];
    if (!d->ops->launch_again)
        return d->ops->launch(d, s, on_compute, l, in->cost);
    return d->ops->launch_again(d, s, key_of(exec, in), &l->step, on_compute, l, in->cost);
}

static atom_status issue_work(swap_exec *exec, const swap_instr *in, launch *l)
{
    dev *d = exec->c.device;
    dev_stream *s = exec->streams[in->stream];
    switch (in->code) {
    case SWAP_UPLOAD:
    case SWAP_FETCH:
    case SWAP_STASH:
    case SWAP_UNSTASH:
    case SWAP_SPILL:
    case SWAP_LOSS:
        return d->ops->copy(d, s, at(exec, in->dst), at(exec, in->src), in->src.bytes, in->cost);
    case SWAP_FWD:
    case SWAP_BWD:
    case SWAP_LATE:
        return launch_lists(exec, in, l);
    case SWAP_ROUND:
        return d->ops->launch(d, s, on_compute, l, in->cost);
    case SWAP_CLIP:
        return d->ops->host_call(d, s, on_clip, l, in->cost);
    case SWAP_UPDATE:
        if (in->stream == DEV_COMPUTE)
            return d->ops->launch(d, s, on_device_update, l, in->cost);
        return d->ops->host_call(d, s, on_update, l, in->cost);
    case SWAP_LOAD:
        return d->ops->host_call(d, s, on_load, l, in->cost);
    case SWAP_STORE:
        return d->ops->host_call(d, s, on_store, l, in->cost);
    case SWAP_COMMIT:
        return d->ops->host_call(d, s, on_commit, l, in->cost);
    case SWAP_CODE_N:
        break;
    }
    ATOM_UNREACHABLE("unknown instruction");
}

static atom_status issue(swap_exec *exec, const swap_tape *tape, uint32_t i)
{
    dev *d = exec->c.device;
    const swap_instr *in = &tape->instrs[i];
    dev_stream *s = exec->streams[in->stream];
    launch *l = &exec->launches[i];
    uint32_t micro_batch = in->micro_batch < 0 ? 0 : (uint32_t)in->micro_batch;
    const int32_t *starts = exec->step.starts;
    *l = (launch){exec,
                  in,
                  {.seed = exec->step.seed,
                   .step = exec->step.step,
                   .micro_batch = exec->step.micro_batch + micro_batch,
                   .loss_scale = exec->step.loss_scale,
                   .train = in->train,
                   .starts = starts ? starts + micro_batch * exec->step.starts_n : NULL}};
    for (uint32_t w = 0; w < in->n_waits; w++)
        ATOM_TRY(d->ops->wait(d, s, exec->ends[in->waits[w]]));
    ATOM_TRY(d->ops->record(d, s, exec->starts[i]));
    ATOM_TRY(issue_work(exec, in, l));
    return d->ops->record(d, s, exec->ends[i]);
}

static atom_status sync_all(swap_exec *exec)
{
    atom_status st = ATOM_OK;
    for (int s = 0; s < DEV_STREAM_N; s++) {
        atom_status one = exec->c.device->ops->stream_sync(exec->c.device, exec->streams[s]);
        if (st == ATOM_OK)
            st = one;
    }
    return st;
}

static double collect_spans(swap_exec *exec, const swap_tape *tape)
{
    dev *d = exec->c.device;
    uint64_t zero = UINT64_MAX, past = 0;
    exec->n_spans = tape->n;
    for (uint32_t i = 0; i < tape->n; i++) {
        exec->spans[i].start_ns = d->ops->event_ns(d, exec->starts[i]);
        exec->spans[i].end_ns = d->ops->event_ns(d, exec->ends[i]);
        zero = exec->spans[i].start_ns < zero ? exec->spans[i].start_ns : zero;
        past = exec->spans[i].end_ns > past ? exec->spans[i].end_ns : past;
    }
    for (uint32_t i = 0; i < tape->n; i++) {
        exec->spans[i].start_ns -= zero;
        exec->spans[i].end_ns -= zero;
    }
    return tape->n ? (double)(past - zero) * 1e-9 : 0;
}

atom_status swap_exec_run(swap_exec *exec, const swap_tape *tape, const swap_step *step,
                          swap_result *result)
{
    atom_status st = ATOM_OK;
    if (exec->dead)
        return atom_fail(ATOM_E_DEAD, "the executor failed earlier: %s", atom_fail_message());
    ATOM_ASSERT(tape->n <= exec->c.instrs_max);
    exec->step = *step;
    exec->c.device->starts_n = step->starts ? step->starts_n : 0;
    find_updates(exec, tape);
    exec->draining = tape->kind == SWAP_TAPE_DRAIN;
    double begin = atom_clock_seconds();
    double launched = swap_exec_stats(exec, DEV_COMPUTE).host_seconds;
    for (uint32_t i = 0; i < tape->n && st == ATOM_OK; i++)
        st = issue(exec, tape, i);
    exec->host.issue_seconds = atom_clock_seconds() - begin;
    atom_status synced = sync_all(exec);
    exec->host.launch_seconds = swap_exec_stats(exec, DEV_COMPUTE).host_seconds - launched;
    if (st == ATOM_OK)
        st = synced;
    if (st != ATOM_OK) {
        exec->dead = true;
        return st;
    }
    double seconds = collect_spans(exec, tape);
    if (result)
        *result = (swap_result){exec->grad_norm, exec->clip_scale, seconds};
    return ATOM_OK;
}

/* --- life ------------------------------------------------------------------------------------ */

static atom_status open_streams(swap_exec *exec)
{
    static const char *const names[DEV_STREAM_N] = {"compute", "h2d",  "d2h",
                                                    "host",    "load", "store"};
    dev *d = exec->c.device;
    for (int s = 0; s < DEV_STREAM_N; s++)
        ATOM_TRY(d->ops->stream_open(d, (dev_stream_kind)s, names[s], &exec->streams[s]));
    return ATOM_OK;
}

static atom_status open_events(swap_exec *exec)
{
    dev *d = exec->c.device;
    uint32_t n = exec->c.instrs_max;
    exec->starts = atom_alloc(n, sizeof(dev_event *));
    exec->ends = atom_alloc(n, sizeof(dev_event *));
    exec->launches = atom_alloc(n, sizeof *exec->launches);
    exec->spans = atom_alloc(n, sizeof *exec->spans);
    if (!exec->starts || !exec->ends || !exec->launches || !exec->spans)
        return atom_fail_memory("the executor", n * sizeof *exec->launches);
    for (uint32_t i = 0; i < n; i++) {
        ATOM_TRY(d->ops->event_open(d, &exec->starts[i]));
        ATOM_TRY(d->ops->event_open(d, &exec->ends[i]));
    }
    return ATOM_OK;
}

atom_status swap_exec_open(const swap_exec_config *config, swap_exec **out)
{
    atom_status st;
    dev *d = config->device;
    swap_exec *exec = atom_alloc(1, sizeof *exec);
    if (!exec)
        return atom_fail_memory("the executor", sizeof *exec);
    exec->c = *config;
    exec->clip_scale = 1.0f;
    ATOM_TRY_CLEAN(d->ops->alloc(d, config->device_bytes, (void **)&exec->arena));
    ATOM_TRY_CLEAN(d->ops->host_alloc(d, config->host_bytes, (void **)&exec->slab));
    ATOM_TRY_CLEAN(open_streams(exec));
    ATOM_TRY_CLEAN(open_events(exec));
    *out = exec;
    return ATOM_OK;
cleanup:
    swap_exec_close(&exec);
    return st;
}

void swap_exec_close(swap_exec **exec_ref)
{
    swap_exec *exec = *exec_ref;
    if (!exec)
        return;
    dev *d = exec->c.device;
    for (int s = 0; s < DEV_STREAM_N; s++) {
        if (exec->streams[s])
            d->ops->stream_close(d, exec->streams[s]);
    }
    for (uint32_t i = 0; i < exec->c.instrs_max; i++) {
        if (exec->starts && exec->starts[i])
            d->ops->event_close(d, exec->starts[i]);
        if (exec->ends && exec->ends[i])
            d->ops->event_close(d, exec->ends[i]);
    }
    if (exec->arena)
        d->ops->free(d, exec->arena, exec->c.device_bytes);
    if (exec->slab)
        d->ops->host_free(d, exec->slab, exec->c.host_bytes);
    atom_free(exec->starts);
    atom_free(exec->ends);
    atom_free(exec->launches);
    atom_free(exec->spans);
    atom_free(exec);
    *exec_ref = NULL;
}

void swap_exec_attach(swap_exec *exec, swap_disk *disk)
{
    exec->disk = disk;
}

void swap_exec_keep(swap_exec *exec, swap_cow *cow)
{
    exec->cow = cow;
}

void *swap_exec_slab(swap_exec *exec)
{
    return exec->slab;
}

const swap_span *swap_exec_spans(const swap_exec *exec, uint32_t *n)
{
    *n = exec->n_spans;
    return exec->spans;
}

swap_host_time swap_exec_host_time(const swap_exec *exec)
{
    return exec->host;
}

dev_stats swap_exec_stats(const swap_exec *exec, dev_stream_kind stream)
{
    return exec->c.device->ops->stream_stats(exec->c.device, exec->streams[stream]);
}
