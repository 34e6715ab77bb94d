/*
 * Owns the measuring of profiles. One idea: time the very calls that the run will make: lower the
 * resident plan, pick a node's forward and backward out of its call lists, run them on buffers of
 * the right size. Refuses to extrapolate: what was not timed is not in the profile.
 */
#include "atom/plan/measure.h"

#include "atom/base/hash.h"
#include "atom/base/machine.h"
#include "atom/base/mem.h"
#include "atom/base/size.h"
#include "atom/plan/bench_sizes.h"
#include "atom/plan/meanwhile.h"
#include "atom/plan/timer.h"
#include "codegen/lower.h"
#include "kernels/bench.h"
#include "kernels/cuda_load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Rates under a sanitizer mean nothing and take a minute: there so much less is measured. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { LESS = 16 };
#else
enum { LESS = 1 };
#endif
enum { BUFFERS_MAX = KRN_BUF_MAX };
static const double SECONDS_PER_NODE = 0.25 / LESS; /* stop repeating after this long */
static const double PROBE_SECONDS = 1.0;            /* a probe takes less */

typedef struct stopwatch {
    plan_workbench *bench;
    gen_lowered *low;
    const part_device *rates; /* of the machine, known already; NULL: they are measured */
    plan_measure *card;       /* NULL: the CPU */
    part_device device;       /* as far as it is measured */
    plan_timer timer;         /* of calls on the CPU */
    plan_meanwhile rest;      /* what else a step does between two of them */
    const swap_call *probe;   /* the one that took longest; NULL: none yet */
    double probe_seconds;
    plan_progress_fn progress;
    void *ctx;
    uint32_t done, total;
} stopwatch;

static void say(const stopwatch *w, const char *what)
{
    char text[96];
    snprintf(text, sizeof text, "timing %.80s", what);
    if (w->progress)
        w->progress(w->ctx, text, w->done, w->total);
}

/* Small numbers in floats, valid ids in integers. */
static void fill_buffer(const graph *g, const swap_call *call, int b, void *data)
{
    uint64_t bytes = call->bytes[b];
    swap_base base = call->buf[b].base;
    if (base == SWAP_BASE_TOKENS || base == SWAP_BASE_TARGETS) {
        int64_t V = g->params[0].dims[0];
        for (uint64_t i = 0; i < bytes / 4; i++)
            ((int32_t *)data)[i] = (int32_t)((i * 7919) % (uint64_t)V);
        return;
    }
    if (base == SWAP_BASE_GRAD || base == SWAP_BASE_SHARED)
        return;
    if (g->dtype == ATOM_BF16) {
        for (uint64_t i = 0; i < bytes / 2; i++)
            ((atom_bf16 *)data)[i] =
                atom_f32_to_bf16((float)((int)(i * 2654435761u >> 20 & 255) - 128) * 0.002f);
        return;
    }
    for (uint64_t i = 0; i < bytes / 4; i++)
        ((float *)data)[i] = (float)((int)(i * 2654435761u >> 20 & 255) - 128) * 0.002f;
}

static void free_buffers(const swap_call *call, void *buffers[BUFFERS_MAX])
{
    for (int b = 0; b < call->n_buf; b++)
        atom_pages_give(buffers[b], atom_align(call->bytes[b]));
}

static atom_status take_buffers(const graph *g, const swap_call *call, void *buffers[BUFFERS_MAX])
{
    memset(buffers, 0, BUFFERS_MAX * sizeof *buffers);
    for (int b = 0; b < call->n_buf; b++) {
        if (call->bytes[b] == 0)
            continue;
        buffers[b] = atom_pages_take(atom_align(call->bytes[b]));
        if (!buffers[b]) {
            free_buffers(call, buffers);
            return atom_fail_memory("profiling a node", call->bytes[b]);
        }
        fill_buffer(g, call, b, buffers[b]);
    }
    return ATOM_OK;
}

typedef struct one_call {
    krn_fn fn;
    krn_ctx *cx;
    const krn_args *args;
    const plan_meanwhile *rest;
    const void *fresh; /* what the node that ran just before has written */
    uint64_t fresh_bytes;
} one_call;

static void run_call(void *arg)
{
    const one_call *c = arg;
    c->fn(c->cx, c->args);
}

static void let_others_run(void *arg)
{
    const one_call *c = arg;
    plan_meanwhile_pass(c->rest, false, c->fresh, c->fresh_bytes);
}

static void let_sub_model_run(void *arg)
{
    const one_call *c = arg;
    plan_meanwhile_pass(c->rest, true, c->fresh, c->fresh_bytes);
}

/* Which buffer the node before this one wrote: the input, or in backward the output's gradient. */
static int fresh_buffer(const swap_call *call)
{
    const atom_op_info *op = atom_op_get(call->op);
    if (!call->backward || (op->flags & ATOM_OP_TERMINAL))
        return 0;
    return op->ins + op->params_max + op->outs + op->saved;
}

static uint64_t call_bytes(const krn_table *table, const swap_call *call)
{
    uint64_t bytes = table->workspace ? table->workspace(call->op, call->backward, call->dim) : 0;
    for (int b = 0; b < call->n_buf; b++)
        bytes += call->bytes[b];
    return bytes;
}

/* Seconds of one run with cold caches, and by how much less a run with warm ones takes: 0 where a whole pass
 * through the model leaves them as warm, and where no sub-model with this call is ever warm. */
static void time_states(stopwatch *w, const swap_call *call, one_call *one, double *seconds,
                        double *gain)
{
    static void (*const states[2])(void *) = {let_others_run, let_sub_model_run};
    const uint64_t bytes = call_bytes(w->bench->table, call);
    double both[2];
    *gain = 0;
    if (w->rest.warm_bytes == w->rest.bytes || part_warm_share(&w->device, bytes) == 0) {
        *seconds = plan_timer_median(&w->timer, run_call, let_others_run, one);
        return;
    }
    plan_timer_medians(&w->timer, run_call, states, one, both);
    *seconds = both[0];
    *gain = both[0] > both[1] ? both[0] - both[1] : 0;
}

/* gain: 0 on a card, whose runs follow each other at once (docs/design/engine.md#cold-and-warm). */
static atom_status time_call(stopwatch *w, const swap_call *call, double *seconds, double *gain)
{
    const krn_table *table = w->bench->table;
    void *buffers[BUFFERS_MAX];
    krn_step step = {.seed = 1, .step = 1, .loss_scale = 1e-3f, .train = 1};
    krn_ctx cx = {.threads = w->bench->threads, .step = &step};
    krn_args args = {.eps = call->eps,
                     .p = call->p,
                     .flags = call->flags,
                     .rng = call->rng,
                     .rope = call->rope,
                     .scale = call->scale,
                     .lift = call->lift,
                     .cap = call->cap};
    krn_fn fn = call->backward ? table->bwd[call->op] : table->fwd[call->op];
    if (!fn)
        return atom_fail(ATOM_E_UNSUPPORTED, "the %s backend has no %s kernel for %s",
                         table->backend, call->backward ? "backward" : "forward",
                         atom_op_get(call->op)->name);
    memcpy(args.dim, call->dim, sizeof args.dim);
    atom_status st = ATOM_OK;
    *gain = 0;
    ATOM_TRY(take_buffers(w->bench->g, call, buffers));
    if (w->card) {
        st = plan_measure_call(w->card, table, call, buffers, seconds);
        free_buffers(call, buffers);
        return st;
    }
    memcpy(args.buf, buffers, sizeof args.buf);
    const int fresh = fresh_buffer(call);
    cx.workspace_bytes =
        table->workspace ? table->workspace(call->op, call->backward, call->dim) : 0;
    if (cx.workspace_bytes)
        cx.workspace = atom_pages_take(atom_align(cx.workspace_bytes));
    if (cx.workspace_bytes && !cx.workspace)
        st = atom_fail_memory("a node's workspace", cx.workspace_bytes);
    else
        time_states(w, call,
                    &(one_call){fn, &cx, &args, &w->rest, buffers[fresh], call->bytes[fresh]},
                    seconds, gain);
    if (cx.workspace)
        atom_pages_give(cx.workspace, atom_align(cx.workspace_bytes));
    free_buffers(call, buffers);
    return st;
}

static const swap_call *find_call(const gen_lowered *low, int32_t node, bool backward)
{
    const swap_sub_model *s = &low->program->sub_models[0];
    for (int l = 0; l < SWAP_LIST_N; l++) {
        for (uint32_t c = 0; c < s->list[l].n; c++) {
            const swap_call *call = &s->list[l].calls[c];
            if (call->node == node && call->op != ATOM_OP_N && call->backward == backward)
                return call;
        }
    }
    return NULL;
}

static void propose_probe(stopwatch *w, const swap_call *call, double seconds)
{
    if (w->card || seconds <= w->probe_seconds || seconds >= PROBE_SECONDS)
        return;
    w->probe = call;
    w->probe_seconds = seconds;
}

/* Times the probe again, after everything else. */
static atom_status repeat_probe(stopwatch *w)
{
    if (!w->probe)
        return ATOM_OK;
    double gain;
    w->timer.probe_before = w->probe_seconds;
    return time_call(w, w->probe, &w->timer.probe_after, &gain);
}

static atom_status time_node(void *ctx, const graph *g, int32_t node, part_node_cost *cost)
{
    stopwatch *w = ctx;
    const swap_call *forward = find_call(w->low, node, false);
    const swap_call *backward = find_call(w->low, node, true);
    const krn_table *table = w->bench->table;
    say(w, g->nodes[node].name);
    w->done++;
    ATOM_TRY(time_call(w, forward, &cost->fwd_seconds, &cost->fwd_gain_seconds));
    propose_probe(w, forward, cost->fwd_seconds);
    if (backward) {
        ATOM_TRY(time_call(w, backward, &cost->bwd_seconds, &cost->bwd_gain_seconds));
        propose_probe(w, backward, cost->bwd_seconds);
    }
    uint64_t f = table->workspace ? table->workspace(forward->op, 0, forward->dim) : 0;
    uint64_t b =
        backward && table->workspace ? table->workspace(backward->op, 1, backward->dim) : 0;
    cost->workspace_bytes = f > b ? f : b;
    return ATOM_OK;
}

/* --- the device ------------------------------------------------------------------------------ */

/* The first warms up, and the median of five bears two that were disturbed. */
enum { BENCH_ROUNDS = 6 };
static const uint64_t CARD_COPY_BYTES = 512u << 20;
static const uint64_t COPY_BYTES = (64u << 20) / LESS;

static plan_bench_sizes bench_sizes(const plan_workbench *bench)
{
    const graph *g = bench->g;
    uint32_t each = atom_dtype_bytes(g->dtype) + atom_state_bytes(g->moments);
    uint64_t caches = LESS == 1 ? atom_cache_bytes(ATOM_CPUS) : 0;
    plan_bench_sizes sizes =
        plan_bench_sizes_of(caches, atom_host_available_bytes(), g->trained_extent, each);
    return (plan_bench_sizes){sizes.triad_bytes / LESS, sizes.adamw_params / LESS};
}

static atom_status measure_copies(const plan_workbench *bench, dev_copy_bench *copies)
{
    dev *d = NULL;
    uint64_t limit = bench->config.link_bandwidth;
    uint64_t bytes = bench->card >= 0
                         ? CARD_COPY_BYTES
                         : COPY_BYTES; /* a throttled link: about a tenth of a second per copy */
    if (limit && limit / 10 < bytes)
        bytes = limit / 10 < (1u << 16) ? 1u << 16 : atom_align(limit / 10);
    atom_status st = plan_device_open(bench, 0, 0, &d);
    if (st == ATOM_OK)
        st = dev_bench_copy(d, bench->threads, bytes, BENCH_ROUNDS, copies);
    dev_close(&d);
    return st;
}

/* The matrix of the model that takes Muon longest; false: there is none. */
static bool largest_matrix(const graph *g, int64_t *rows, int64_t *cols)
{
    const part_device unit = {.ortho_flops_per_second = 1};
    double most = 0;
    for (uint32_t p = 0; p < g->n_params; p++) {
        int64_t each[GRAPH_MATRICES_MAX];
        uint32_t n = graph_matrices(g, (int32_t)p, each);
        for (uint32_t i = 0; i < n; i++) {
            double work = part_ortho_seconds(&unit, each[i], g->params[p].dims[1]);
            if (work <= most)
                continue;
            most = work;
            *rows = each[i];
            *cols = g->params[p].dims[1];
        }
    }
    return most > 0;
}

/* Muon's products on the card, on a matrix of the model: small ones leave much of a card idle. */
static atom_status measure_ortho(stopwatch *w, part_device *d)
{
    enum { MEASURED_MAX = 4096 };
    const plan_workbench *bench = w->bench;
    const part_device unit = {.ortho_flops_per_second = 1};
    int64_t rows, cols;
    double seconds;
    if (!bench->table->ortho || !largest_matrix(bench->g, &rows, &cols))
        return ATOM_OK;
    rows = rows < MEASURED_MAX ? rows : MEASURED_MAX;
    cols = cols < MEASURED_MAX ? cols : MEASURED_MAX;
    ATOM_TRY(plan_measure_ortho(w->card, bench->table, &rows, &cols, &seconds));
    if (seconds > 0)
        d->ortho_flops_per_second = part_ortho_seconds(&unit, rows, cols) / seconds;
    return ATOM_OK;
}

/* The numbers that differ on a card from this CPU's. */
static atom_status describe_card(stopwatch *w, part_device *d)
{
    d->unified = false;
    d->device_bytes = plan_device_bytes(w->bench);
    d->launch_seconds = 2e-6;
    ATOM_TRY(plan_measure_open(w->bench, &w->card));
    ATOM_TRY(plan_measure_memory(w->card, &d->device_bytes_per_second));
    return measure_ortho(w, d);
}

static atom_status measure_muon(stopwatch *w, part_device *d)
{
    enum { ROWS = 384, COLS = 1024 };
    const plan_workbench *bench = w->bench;
    const part_device unit = {.muon_flops_per_second = 1};
    krn_bench muon;
    ATOM_TRY(krn_bench_muon(bench->threads, bench->host, bench->g->dtype, ROWS, COLS, BENCH_ROUNDS,
                            &muon));
    plan_timer_saw(&w->timer, "Muon", &muon);
    d->muon_flops_per_second = part_muon_seconds(&unit, ROWS, COLS) / muon.seconds;
    return ATOM_OK;
}

static atom_status measure_host(stopwatch *w, part_device *d)
{
    plan_workbench *bench = w->bench;
    krn_bench triad, adamw, beside;
    dev_copy_bench copies;
    const plan_bench_sizes sizes = bench_sizes(bench);
    memset(d, 0, sizeof *d);
    say(w, "memory and copies");
    ATOM_TRY(dev_bench_triad(bench->threads, sizes.triad_bytes, BENCH_ROUNDS, &triad));
    ATOM_TRY(measure_copies(bench, &copies));
    const krn_adamw_kinds kinds = {bench->g->dtype, bench->g->moments};
    ATOM_TRY(krn_bench_adamw(bench->threads, bench->host, kinds, sizes.adamw_params, BENCH_ROUNDS,
                             &adamw, &beside));
    plan_timer_saw(&w->timer, "the memory's rate", &triad);
    plan_timer_saw(&w->timer, "AdamW", &adamw);
    plan_timer_saw(&w->timer, "copying to the device", &copies.h2d);
    plan_timer_saw(&w->timer, "copying to the host", &copies.d2h);
    d->host_bytes_per_second = d->device_bytes_per_second = triad.bytes_per_second;
    d->h2d_bytes_per_second = copies.h2d.bytes_per_second;
    d->d2h_bytes_per_second = copies.d2h.bytes_per_second;
    d->h2d_both_bytes_per_second = copies.h2d_both.bytes_per_second;
    d->d2h_both_bytes_per_second = copies.d2h_both.bytes_per_second;
    d->copy_latency_seconds = copies.latency_seconds;
    d->adamw_params_per_second = (double)sizes.adamw_params / adamw.seconds;
    return ATOM_OK;
}

static atom_status measure_rates(stopwatch *w, part_device *d)
{
    plan_workbench *bench = w->bench;
    if (w->rates)
        *d = *w->rates;
    else
        ATOM_TRY(measure_host(w, d));
    plan_device_name(bench, d->name, sizeof d->name);
    d->unified = true;
    snprintf(d->isa, sizeof d->isa, "%s", bench->table->isa);
    d->cores = atom_threads_count(bench->threads);
    d->host_bytes = plan_host_bytes();
    d->launch_seconds = 2e-6;
    d->cache_bytes = bench->card < 0 ? atom_last_cache_bytes(ATOM_CPUS) : 0;
    if (bench->g->optimizer == GRAPH_MUON && d->muon_flops_per_second == 0)
        ATOM_TRY(measure_muon(w, d));
    if (bench->card >= 0)
        ATOM_TRY(describe_card(w, d));
    return ATOM_OK;
}

uint64_t plan_measure_rates_key(const plan_workbench *bench)
{
    const plan_bench_sizes sizes = bench_sizes(bench);
    const uint64_t facts[4] = {sizes.triad_bytes, sizes.adamw_params, bench->g->dtype,
                               bench->g->moments};
    return atom_hash(0, facts, sizeof facts);
}

/* Sustained matmul rate: what the largest linear node reached. */
static void derive_flops(const graph *g, part_profile *p)
{
    double best = 0;
    for (int32_t i = 0; i < (int32_t)g->n_nodes; i++) {
        if (g->nodes[i].op != ATOM_OP_linear && g->nodes[i].op != ATOM_OP_linear_gelu)
            continue;
        double seconds = p->nodes[i].fwd_seconds + p->nodes[i].bwd_seconds;
        double flops = graph_node_flops(g, i, false) + graph_node_flops(g, i, true);
        if (seconds > 0 && flops / seconds > best)
            best = flops / seconds;
    }
    *(g->dtype == ATOM_BF16 ? &p->device.flops_bf16 : &p->device.flops_fp32) = best;
}

static uint32_t count_classes(const graph *g)
{
    uint32_t n = 0;
    for (int32_t i = 0; i < (int32_t)g->n_nodes; i++) {
        bool first = true;
        for (int32_t j = 0; j < i && first; j++)
            first = graph_node_class(g, j) != graph_node_class(g, i);
        n += first;
    }
    return n;
}

/*
 * What one micro-batch reads and writes on its way through the model, forward and backward: weights
 * twice, their gradients once each way, activations and their gradients once each way, statistics.
 */
static uint64_t count_pass_bytes(const graph *g, const part_profile *blank)
{
    uint64_t bytes = g->param_extent * 2 * (atom_dtype_bytes(g->dtype) + sizeof(float));
    for (uint32_t i = 0; i < blank->n_nodes; i++)
        bytes += 4 * blank->nodes[i].output_bytes + 2 * blank->nodes[i].saved_bytes;
    return bytes;
}

static atom_status resident_lowering(plan_workbench *bench, const part_device *device,
                                     uint64_t *pass_bytes, gen_lowered **low)
{
    part_profile *blank = NULL;
    part_plan *plan = NULL;
    atom_status st;
    ATOM_TRY_CLEAN(part_profile_open(bench->g, device, &blank));
    *pass_bytes = count_pass_bytes(bench->g, blank);
    ATOM_TRY_CLEAN(part_plan_open(bench->g, blank, 1, &plan));
    plan->micro_batches = 1;
    plan->in_place = true;
    plan->sub_models[0].first_node = 0;
    plan->sub_models[0].last_node = (int32_t)bench->g->n_nodes;
    plan->sub_models[0].param_bytes = bench->g->param_extent * atom_dtype_bytes(bench->g->dtype);
    ATOM_TRY_CLEAN(gen_lower(bench->g, plan, blank, bench->table, low));
cleanup:
    part_plan_close(&plan);
    part_profile_close(&blank);
    return st;
}

/* Said before anything is timed and memory touched: the kernel would rather end this process than
 * refuse. */
static atom_status check_room(const stopwatch *w)
{
    const graph *g = w->bench->g;
    const swap_sub_model *s = &w->low->program->sub_models[0];
    uint64_t most = 0, have = atom_host_available_bytes();
    int32_t node = 0;
    char need[24], has[24];
    for (int l = 0; l < SWAP_LIST_N; l++) {
        for (uint32_t c = 0; c < s->list[l].n; c++) {
            const swap_call *call = &s->list[l].calls[c];
            uint64_t bytes = call->op != ATOM_OP_N ? call_bytes(w->bench->table, call) : 0;
            node = bytes > most ? call->node : node;
            most = bytes > most ? bytes : most;
        }
    }
    if (most <= have)
        return ATOM_OK;
    return atom_fail(ATOM_E_RESOURCE,
                     "a micro-batch of %lld x %lld tokens needs %s of memory for %s alone, and "
                     "only %s are available; use a smaller micro_batch_size (with more "
                     "gradient_accumulation_steps) or a smaller sequence_len",
                     (long long)g->micro_batch, (long long)g->sequence, atom_size_text(most, need),
                     g->nodes[node].name, atom_size_text(have, has));
}

atom_status plan_profile_measure(plan_workbench *bench, plan_progress_fn progress, void *ctx,
                                 part_profile **out)
{
    return plan_measure_profile(bench, NULL, progress, ctx, out);
}

atom_status plan_measure_profile(plan_workbench *bench, const part_device *rates,
                                 plan_progress_fn progress, void *ctx, part_profile **out)
{
    stopwatch w = {.bench = bench,
                   .rates = rates,
                   .progress = progress,
                   .ctx = ctx,
                   .timer = plan_timer_begin(&bench->machine, SECONDS_PER_NODE)};
    part_profile *profile = NULL;
    uint64_t pass_bytes = 0;
    atom_status st;
    w.total = count_classes(bench->g);
    ATOM_TRY_CLEAN(measure_rates(&w, &w.device));
    ATOM_TRY_CLEAN(resident_lowering(bench, &w.device, &pass_bytes, &w.low));
    ATOM_TRY_CLEAN(check_room(&w));
    if (!w.card)
        w.rest = plan_meanwhile_open(bench->threads, pass_bytes / LESS, atom_cache_bytes(ATOM_CPUS),
                                     w.device.cache_bytes / 2, atom_host_available_bytes());
    ATOM_TRY_CLEAN(part_profile_measure(bench->g, &w.device, time_node, &w, &profile));
    ATOM_TRY_CLEAN(repeat_probe(&w));
    bench->busy[0] = 0;
    plan_timer_busy(&w.timer, bench->busy, sizeof bench->busy);
    derive_flops(bench->g, profile);
    *out = profile;
    profile = NULL;
cleanup:
    part_profile_close(&profile);
    plan_meanwhile_close(&w.rest);
    plan_measure_close(&w.card);
    gen_lowered_close(&w.low);
    return st;
}
