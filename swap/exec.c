/*
 * Owns the execution of tapes. One idea: hand every instruction to its stream in tape order, behind
 * the waits the tape names; all concurrency comes from the streams. Allocates everything at open.
 * Refuses to know why an instruction is there.
 */
#include "swap/exec_inner.h"

#include "atom/base/assert.h"
#include "atom/base/clock.h"
#include "atom/base/hash.h"
#include "atom/base/mem.h"

static void find_updates(swap_exec *exec, const swap_tape *tape)
{
    exec->first_update = exec->last_update = NULL;
    for (uint32_t i = 0; i < tape->n; i++) {
        bool updates = tape->instrs[i].code == SWAP_UPDATE || tape->instrs[i].code == SWAP_BEGIN;
        if (!updates || tape->instrs[i].ahead)
            continue;
        exec->first_update = exec->first_update ? exec->first_update : &tape->instrs[i];
        exec->last_update = &tape->instrs[i];
    }
}

/* --- issuing --------------------------------------------------------------------------------- */

/* Equal keys of a device: equal lists on equal memory, so equal kernels and arguments. */
static uint64_t key_of(const swap_exec *exec, const swap_instr *in)
{
    const char *arena = exec->arenas[in->device];
    uint64_t key = atom_hash(ATOM_HASH_SEED, &arena, sizeof arena);
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

static void *at(const swap_exec *exec, const swap_instr *in, swap_range range)
{
    return swap_exec_at(exec, in->device, range);
}

static dev_stream *lane_of(const swap_exec *exec, const swap_instr *in)
{
    return exec->lanes[swap_lane(in->device, in->stream)];
}

static atom_status launch_lists(swap_exec *exec, const swap_instr *in, swap_launch *l)
{
    dev *d = exec->c.devices[in->device];
    dev_stream *s = lane_of(exec, in);
    if (!d->ops->launch_again)
        return d->ops->launch(d, s, swap_work_compute, l, in->cost);
    return d->ops->launch_again(d, s, key_of(exec, in), &l->step, swap_work_compute, l, in->cost);
}

static atom_status issue_work(swap_exec *exec, const swap_instr *in, swap_launch *l)
{
    dev *d = exec->c.devices[in->device];
    dev_stream *s = lane_of(exec, in);
    switch (in->code) {
    case SWAP_UPLOAD:
    case SWAP_FETCH:
    case SWAP_STASH:
    case SWAP_UNSTASH:
    case SWAP_HAND:
    case SWAP_TAKE:
    case SWAP_RAISE:
    case SWAP_LOWER:
    case SWAP_SPILL:
    case SWAP_LOSS:
        return d->ops->copy(d, s, at(exec, in, in->dst), at(exec, in, in->src), in->src.bytes,
                            in->cost);
    case SWAP_CLEAR:
        return d->ops->zero(d, s, at(exec, in, in->dst), in->dst.bytes, in->cost);
    case SWAP_FWD:
    case SWAP_BWD:
    case SWAP_LATE:
        return launch_lists(exec, in, l);
    case SWAP_ROUND:
    case SWAP_ORTHO:
        return d->ops->launch(d, s, swap_work_compute, l, in->cost);
    case SWAP_UPDATE:
        if (in->stream == DEV_COMPUTE)
            return d->ops->launch(d, s, swap_work_compute, l, in->cost);
        return d->ops->host_call(d, s, swap_work_host, l, in->cost);
    case SWAP_CLIP:
    case SWAP_BEGIN:
    case SWAP_LOAD:
    case SWAP_STORE:
    case SWAP_COMMIT:
        return d->ops->host_call(d, s, swap_work_host, l, in->cost);
    case SWAP_CODE_N:
        break;
    }
    ATOM_UNREACHABLE("unknown instruction");
}

/* Of a micro-batch that is not run there are only the events. */
static bool is_run(const swap_exec *exec, const swap_instr *in)
{
    uint32_t n = exec->step.micro_batches;
    return n == 0 || in->micro_batch < 0 || (uint32_t)in->micro_batch < n;
}

static dev_event *end_of(const swap_exec *exec, const swap_tape *tape, uint32_t i)
{
    return exec->ends[tape->instrs[i].device][i];
}

static atom_status issue(swap_exec *exec, const swap_tape *tape, uint32_t i)
{
    const swap_instr *in = &tape->instrs[i];
    dev *d = exec->c.devices[in->device];
    dev_stream *s = lane_of(exec, in);
    swap_launch *l = &exec->launches[i];
    uint32_t micro_batch = in->micro_batch < 0 ? 0 : (uint32_t)in->micro_batch;
    const int32_t *starts = exec->step.starts;
    *l = (swap_launch){exec,
                       in,
                       {.seed = exec->step.seed,
                        .step = exec->step.step,
                        .micro_batch = exec->step.micro_batch + micro_batch,
                        .loss_scale = exec->step.loss_scale,
                        .train = in->train,
                        .starts = starts ? starts + micro_batch * exec->step.starts_n : NULL}};
    for (uint32_t w = 0; w < in->n_waits; w++)
        ATOM_TRY(d->ops->wait(d, s, end_of(exec, tape, in->waits[w])));
    ATOM_TRY(d->ops->record(d, s, exec->starts[in->device][i]));
    if (is_run(exec, in))
        ATOM_TRY(issue_work(exec, in, l));
    return d->ops->record(d, s, end_of(exec, tape, i));
}

/* The device that a lane belongs to. */
static uint32_t device_of(uint32_t lane)
{
    return lane < DEV_STREAM_N ? 0 : 1 + (lane - DEV_STREAM_N) / DEV_OWN_STREAMS;
}

/* Of several failures the one that is not merely of what failed before. */
static atom_status sync_all(swap_exec *exec)
{
    atom_status st = ATOM_OK;
    for (uint32_t i = 0; i < swap_lanes(exec->c.n_devices); i++) {
        dev *d = exec->c.devices[device_of(i)];
        atom_status one = d->ops->stream_sync(d, exec->lanes[i]);
        if (st == ATOM_OK || (st == ATOM_E_DEAD && one != ATOM_OK))
            st = one;
    }
    return st;
}

static double collect_spans(swap_exec *exec, const swap_tape *tape)
{
    uint64_t zero = UINT64_MAX, past = 0;
    exec->n_spans = tape->n;
    for (uint32_t i = 0; i < tape->n; i++) {
        uint32_t on = tape->instrs[i].device;
        dev *d = exec->c.devices[on];
        exec->spans[i].start_ns = d->ops->event_ns(d, exec->starts[on][i]);
        exec->spans[i].end_ns = d->ops->event_ns(d, exec->ends[on][i]);
        zero = exec->spans[i].start_ns < zero ? exec->spans[i].start_ns : zero;
        past = exec->spans[i].end_ns > past ? exec->spans[i].end_ns : past;
    }
    for (uint32_t i = 0; i < tape->n; i++) {
        exec->spans[i].start_ns -= zero;
        exec->spans[i].end_ns -= zero;
    }
    return tape->n ? (double)(past - zero) * 1e-9 : 0;
}

/* Of the devices together. */
static double launch_seconds(const swap_exec *exec)
{
    double seconds = 0;
    for (uint32_t d = 0; d < exec->c.n_devices; d++)
        seconds += swap_exec_stats(exec, d, DEV_COMPUTE).host_seconds;
    return seconds;
}

atom_status swap_exec_run(swap_exec *exec, const swap_tape *tape, const swap_step *step,
                          swap_result *result)
{
    atom_status st = ATOM_OK;
    if (exec->dead)
        return atom_fail(ATOM_E_DEAD, "the executor failed earlier: %s", atom_fail_message());
    ATOM_ASSERT(tape->n <= exec->c.instrs_max && tape->n_devices == exec->c.n_devices);
    exec->step = *step;
    for (uint32_t d = 0; d < exec->c.n_devices; d++)
        exec->c.devices[d]->starts_n = step->starts ? step->starts_n : 0;
    find_updates(exec, tape);
    exec->draining = tape->kind == SWAP_TAPE_DRAIN;
    double begin = atom_clock_seconds();
    double launched = launch_seconds(exec);
    for (uint32_t i = 0; i < tape->n && st == ATOM_OK; i++)
        st = issue(exec, tape, i);
    exec->host.issue_seconds = atom_clock_seconds() - begin;
    atom_status synced = sync_all(exec);
    exec->host.launch_seconds = launch_seconds(exec) - launched;
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

static atom_status open_lanes(swap_exec *exec)
{
    static const char *const names[DEV_STREAM_N] = {"compute", "h2d",  "d2h",
                                                    "host",    "load", "store"};
    for (uint32_t i = 0; i < swap_lanes(exec->c.n_devices); i++) {
        dev *d = exec->c.devices[device_of(i)];
        uint32_t kind = i < DEV_STREAM_N ? i : (i - DEV_STREAM_N) % DEV_OWN_STREAMS;
        ATOM_TRY(d->ops->stream_open(d, (dev_stream_kind)kind, names[kind], &exec->lanes[i]));
    }
    return ATOM_OK;
}

static atom_status open_events(swap_exec *exec, uint32_t device)
{
    dev *d = exec->c.devices[device];
    uint32_t n = exec->c.instrs_max;
    dev_event **starts = exec->starts[device] = atom_alloc(n, sizeof *starts);
    dev_event **ends = exec->ends[device] = atom_alloc(n, sizeof *ends);
    if (!starts || !ends)
        return atom_fail_memory("the executor", n * sizeof *starts);
    for (uint32_t i = 0; i < n; i++) {
        ATOM_TRY(d->ops->event_open(d, &starts[i]));
        ATOM_TRY(d->ops->event_open(d, &ends[i]));
    }
    return ATOM_OK;
}

/* One slab, which the first device takes and the others copy from and to. */
static atom_status open_memory(swap_exec *exec)
{
    dev *const *d = exec->c.devices;
    for (uint32_t i = 0; i < exec->c.n_devices; i++)
        ATOM_TRY(d[i]->ops->alloc(d[i], exec->c.device_bytes, (void **)&exec->arenas[i]));
    ATOM_TRY(d[0]->ops->host_alloc(d[0], exec->c.host_bytes, (void **)&exec->slab));
    for (uint32_t i = 1; i < exec->c.n_devices; i++) {
        if (d[i]->ops->host_use)
            d[i]->ops->host_use(d[i], d[0], exec->slab);
    }
    return ATOM_OK;
}

atom_status swap_exec_open(const swap_exec_config *config, swap_exec **out)
{
    atom_status st;
    swap_exec *exec = atom_alloc(1, sizeof *exec);
    if (!exec)
        return atom_fail_memory("the executor", sizeof *exec);
    ATOM_ASSERT(config->n_devices > 0 && config->n_devices <= SWAP_DEVICES_MAX);
    exec->c = *config;
    exec->clip_scale = 1.0f;
    ATOM_TRY_CLEAN(open_memory(exec));
    ATOM_TRY_CLEAN(open_lanes(exec));
    exec->launches = atom_alloc(config->instrs_max, sizeof *exec->launches);
    exec->spans = atom_alloc(config->instrs_max, sizeof *exec->spans);
    if (!exec->launches || !exec->spans)
        ATOM_TRY_CLEAN(
            atom_fail_memory("the executor", config->instrs_max * sizeof *exec->launches));
    for (uint32_t d = 0; d < config->n_devices; d++)
        ATOM_TRY_CLEAN(open_events(exec, d));
    *out = exec;
    return ATOM_OK;
cleanup:
    swap_exec_close(&exec);
    return st;
}

static void close_events(swap_exec *exec, uint32_t device)
{
    dev *d = exec->c.devices[device];
    dev_event **starts = exec->starts[device], **ends = exec->ends[device];
    for (uint32_t i = 0; i < exec->c.instrs_max; i++) {
        if (starts && starts[i])
            d->ops->event_close(d, starts[i]);
        if (ends && ends[i])
            d->ops->event_close(d, ends[i]);
    }
    atom_free(starts);
    atom_free(ends);
}

/* All streams first: each may wait for events of another device, and use the slab. */
void swap_exec_close(swap_exec **exec_ref)
{
    swap_exec *exec = *exec_ref;
    if (!exec)
        return;
    dev *const *d = exec->c.devices;
    for (uint32_t i = 0; i < swap_lanes(exec->c.n_devices); i++) {
        if (exec->lanes[i])
            d[device_of(i)]->ops->stream_close(d[device_of(i)], exec->lanes[i]);
    }
    for (uint32_t i = 0; i < exec->c.n_devices; i++) {
        close_events(exec, i);
        if (exec->arenas[i])
            d[i]->ops->free(d[i], exec->arenas[i], exec->c.device_bytes);
    }
    if (exec->slab)
        d[0]->ops->host_free(d[0], exec->slab, exec->c.host_bytes);
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

dev_stats swap_exec_stats(const swap_exec *exec, uint32_t device, dev_stream_kind stream)
{
    dev *d = exec->c.devices[device];
    if (device && !dev_stream_is_own(stream))
        return (dev_stats){0};
    return d->ops->stream_stats(d, exec->lanes[swap_lane(device, stream)]);
}
