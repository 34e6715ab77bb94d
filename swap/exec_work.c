/*
 * Owns what the instructions of a tape do where it is more than a copy: call lists, rounding, the
 * clip factor, updates, blocks of a state on disk. One idea: all of it is in the instruction and in
 * the numbers of the step. Refuses to know what ran before; the tape's waits say that.
 */
#include "swap/exec_inner.h"

#include "atom/base/assert.h"

#include <math.h>
#include <string.h>

static void *at(const swap_exec *exec, const swap_instr *in, swap_range range)
{
    return swap_exec_at(exec, in->device, range);
}

/* --- compute --------------------------------------------------------------------------------- */

static void run_lists(krn_ctx *cx, const swap_launch *l)
{
    const swap_exec *exec = l->exec;
    const swap_instr *in = l->in;
    const swap_sub_model *s = &exec->c.program->sub_models[in->sub_model];
    swap_bases bases = {{0}};
    for (int b = 0; b < SWAP_BASE_N; b++) {
        if (in->base[b].bytes)
            bases.at[b] = at(exec, in, in->base[b]);
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

static void run_round(krn_ctx *cx, const swap_launch *l)
{
    const swap_exec *exec = l->exec;
    const swap_instr *in = l->in;
    uint32_t each = atom_dtype_bytes(exec->c.program->dtype);
    const swap_param *first = &exec->c.params[in->first_param];
    for (int32_t p = in->first_param; p < in->last_param; p++) {
        const swap_param *param = &exec->c.params[p];
        uint64_t at_element = param->offset - first->offset;
        exec->c.table->settle(cx, (char *)at(exec, in, in->dst) + at_element * each,
                              (float *)at(exec, in, in->src) + at_element,
                              (double *)at(exec, in, in->norms) +
                                  (param->norm_chunk - first->norm_chunk),
                              param->elements);
    }
}

/* --- the optimizer ---------------------------------------------------------------------------- */

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

static atom_status on_clip(swap_exec *exec)
{
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
        char *slot = at(exec, in, in->src);
        return (state_at){(float *)(void *)slot + i,
                          slot + swap_state_offset(SWAP_STATE_M, h->moments, n) + i * moment,
                          slot + swap_state_offset(SWAP_STATE_V, h->moments, n) +
                              (second - swap_block_second(h->blocks, k)) * moment};
    }
    if (in->src.bytes) {
        uint64_t n = in->src.bytes / atom_state_bytes(h->moments), i = first - in->first_element;
        char *slot = at(exec, in, in->src);
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

/* Of one matrix the whole update, or the part before or behind the device's. */
static void update_matrix(swap_exec *exec, const swap_instr *in, const krn_muon_step *step,
                          state_at state, int64_t rows, int64_t cols)
{
    const krn_host_table *host = exec->c.host;
    const swap_host_layout *h = &exec->c.layout;
    atom_dtype dtype = exec->c.program->dtype;
    atom_threads *threads = exec->c.threads;
    void *space = exec->slab + h->muon;
    void *wire = exec->slab + h->wire + step->first * atom_dtype_bytes(dtype);
    if (in->code == SWAP_BEGIN)
        host->muon_begin(threads, step, dtype, wire, state.m, rows, cols, space);
    else if (in->begun)
        host->muon_end(threads, step, dtype, wire, state.master, rows, cols);
    else
        host->muon(threads, step, dtype, wire, state.master, state.m, rows, cols, space);
}

/* A matrix is updated as a whole, once nobody needs anything of its parameter as it was. A block of
 * the disk tier has some of a parameter's matrices; none ends inside of one. */
static void update_matrices(swap_exec *exec, const swap_instr *in, const swap_param *param,
                            krn_muon_step step)
{
    uint64_t i = param->offset, next;
    ATOM_ASSERT(step.moments == exec->c.layout.moments);
    if (!in->src.bytes)
        swap_cow_leave(exec->cow, i, param->elements);
    step.decay = param->decay ? step.decay : 0;
    for (uint8_t k = 0; k < param->n_matrices; k++, i = next) {
        next = i + (uint64_t)(param->rows[k] * param->cols);
        if (next <= in->first_element || i >= in->last_element)
            continue;
        ATOM_ASSERT(i >= in->first_element && next <= in->last_element);
        step.first = i;
        update_matrix(exec, in, &step, state_of(exec, in, param, i), param->rows[k], param->cols);
    }
}

/* Masters that only pass by are shown to whoever takes part. */
static void show_block(const swap_exec *exec, const swap_instr *in, bool begin)
{
    if (exec->c.on_block && in->code == SWAP_UPDATE && in->src.bytes && !in->ahead)
        exec->c.on_block(exec->c.ctx, in->first_element, in->last_element - in->first_element,
                         at(exec, in, in->src), begin);
}

static atom_status on_update(swap_exec *exec, const swap_instr *in)
{
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
    if (!clipped && !isfinite(chunk_sum(exec, in->first_param, in->last_param)))
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
        else if (in->code == SWAP_UPDATE)
            update_piece(exec, in, param, step, from, to);
    }
    show_block(exec, in, false);
    if (exec->c.on_updates && in == exec->last_update)
        exec->c.on_updates(exec->c.ctx, exec->step.update_step, false);
    return ATOM_OK;
}

/* The same on the device; the clip factor was known before the tape began. The state of the host
 * changes only when a drain brings it there, behind the update, so only then is anybody asked. */
static void run_update(krn_ctx *cx, const swap_launch *l)
{
    const swap_exec *exec = l->exec;
    const swap_instr *in = l->in;
    uint32_t each = atom_dtype_bytes(exec->c.program->dtype);
    char *wire = at(exec, in, in->base[SWAP_BASE_PARAM]),
         *grad = at(exec, in, in->base[SWAP_BASE_GRAD]);
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

static void run_ortho(krn_ctx *cx, const swap_launch *l)
{
    const swap_exec *exec = l->exec;
    const swap_instr *in = l->in;
    const swap_param *param = &exec->c.params[in->first_param];
    int64_t rows = (int64_t)(in->last_element - in->first_element) / param->cols;
    exec->c.table->ortho(cx, at(exec, in, in->src), rows, param->cols, at(exec, in, in->dst));
}

void swap_work_compute(krn_ctx *cx, void *arg)
{
    swap_launch *l = arg;
    const swap_exec *exec = l->exec;
    cx->workspace = swap_exec_at(exec, l->in->device, exec->c.workspace);
    cx->workspace_bytes = exec->c.workspace.bytes;
    krn_ctx_step(cx, &l->step);
    if (l->in->code == SWAP_ROUND)
        run_round(cx, l);
    else if (l->in->code == SWAP_UPDATE)
        run_update(cx, l);
    else if (l->in->code == SWAP_ORTHO)
        run_ortho(cx, l);
    else
        run_lists(cx, l);
}

/* A device that failed lets everything pass that waited for it: what it left behind is no gradient,
 * and must not become weights or a commit. */
static atom_status check_devices(const swap_exec *exec)
{
    for (uint32_t d = 1; d < exec->c.n_devices; d++) {
        const dev *device = exec->c.devices[d];
        if (device->ops->has_failed && device->ops->has_failed(device))
            return atom_fail(ATOM_E_DEAD, "device %u failed during this step", d);
    }
    return ATOM_OK;
}

atom_status swap_work_host(void *arg)
{
    swap_launch *l = arg;
    const swap_instr *in = l->in;
    ATOM_TRY(check_devices(l->exec));
    switch (in->code) {
    case SWAP_CLIP:
        return on_clip(l->exec);
    case SWAP_BEGIN:
    case SWAP_UPDATE:
        return on_update(l->exec, in);
    case SWAP_LOAD:
        return swap_disk_load(l->exec->disk, in->src.offset, at(l->exec, in, in->dst),
                              in->src.bytes);
    case SWAP_STORE:
        return swap_disk_save(l->exec->disk, in->dst.offset, at(l->exec, in, in->src),
                              in->src.bytes);
    case SWAP_COMMIT:
        return swap_disk_commit(l->exec->disk, l->exec->step.update_step);
    default:
        ATOM_UNREACHABLE("no work for the host");
    }
}
