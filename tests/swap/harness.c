/* Owns one run of a plan for tests: lowering, hazard proof, device, batches, steps, copies of the
 * state. */
#include "tests/swap/harness.h"

#include "atom/base/mem.h"
#include "atom/base/rng.h"
#include "atom/train/init.h"
#include "codegen/build.h"
#include "kernels/cuda_load.h"
#include "tests/lib/inside_regions.h"
#include "tests/lib/wire_bytes.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void fill_batch(const graph *g, const swap_host_layout *h, char *slab, uint64_t seed,
                       uint32_t step, uint32_t C, uint32_t *targets)
{
    int64_t n = g->micro_batch * g->sequence, V = g->params[0].dims[0];
    *targets = 0;
    for (uint32_t i = 0; i < C; i++) {
        int32_t *tokens = (int32_t *)(slab + h->tokens + i * h->micro_batch_bytes);
        int32_t *target = tokens + h->micro_batch_bytes / 8;
        atom_rng_key key = {.seed = seed, .step = step, .micro_batch = i, .node = 99991};
        for (int64_t e = 0; e < n; e++) {
            tokens[e] = (int32_t)(atom_rng_u32(key, (uint64_t)e) % (uint64_t)V);
            uint32_t word = atom_rng_u32(key, (uint64_t)(n + e));
            target[e] = word % 11 == 0 ? -1 : (int32_t)((word >> 4) % (uint64_t)V);
            *targets += target[e] >= 0;
        }
    }
}

static krn_adamw_step adamw_step(const harness_run *run, uint32_t step)
{
    double beta1 = 0.9, beta2 = 0.95;
    return (krn_adamw_step){.scale = 1,
                            .beta1 = (float)beta1,
                            .one_minus_beta1 = (float)(1 - beta1),
                            .beta2 = (float)beta2,
                            .one_minus_beta2 = (float)(1 - beta2),
                            .inv_bias1 = (float)(1 / (1 - pow(beta1, step))),
                            .inv_sqrt_bias2 = (float)(1 / sqrt(1 - pow(beta2, step))),
                            .eps = 1e-8f,
                            .lr = 1e-2f,
                            .decay = 0.1f,
                            .moments = run->g->moments,
                            .rng = {.seed = run->seed, .step = step, .node = KRN_RNG_MOMENTS}};
}

static krn_muon_step muon_step(const harness_run *run, uint32_t step)
{
    return (krn_muon_step){.scale = 1,
                           .momentum = 0.95f,
                           .lr = 1e-2,
                           .decay = 0.1,
                           .moments = run->g->moments,
                           .rng = {.seed = run->seed, .step = step, .node = KRN_RNG_MOMENTS}};
}

static atom_status prove(const gen_lowered *low)
{
    atom_status st = inside_regions(low);
    for (int t = 0; st == ATOM_OK && t < SWAP_TAPE_N; t++)
        st = low->tapes[t] ? swap_hazard_check(low->tapes[t]) : ATOM_OK;
    return st;
}

static void *copy_of(const void *data, uint64_t bytes)
{
    void *copy = atom_alloc(bytes, 1);
    if (copy)
        memcpy(copy, data, bytes);
    return copy;
}

/* One part of the state: from the slab, or off the disk. */
static atom_status keep_part(const gen_lowered *low, swap_disk *disk, const char *slab,
                             swap_state part, float **out)
{
    const swap_host_layout *h = &low->layout;
    const uint64_t place[SWAP_STATE_N] = {h->master, h->m, h->v};
    *out = atom_alloc(h->trained, 4);
    if (!*out)
        return atom_fail_memory("a result", 1);
    if (disk)
        return swap_disk_get(disk, part, 0, h->trained, *out);
    uint32_t each = atom_dtype_bytes(swap_state_dtype(part, h->moments));
    for (uint32_t p = 0; p < low->n_params; p++) { /* padding stays zero */
        const swap_param *param = &low->params[p];
        uint64_t from = part == SWAP_STATE_V ? param->second : param->offset;
        if (part != SWAP_STATE_V || !param->n_matrices)
            swap_state_read(swap_state_dtype(part, h->moments), slab + place[part] + from * each,
                            param->elements, *out + param->offset);
    }
    return ATOM_OK;
}

static atom_status keep_state(const harness_run *run, const gen_lowered *low, swap_disk *disk,
                              const char *slab, harness_result *out)
{
    const swap_host_layout *h = &low->layout;
    out->extent = h->extent;
    ATOM_TRY(keep_part(low, disk, slab, SWAP_STATE_MASTER, &out->master));
    ATOM_TRY(keep_part(low, disk, slab, SWAP_STATE_M, &out->m));
    ATOM_TRY(keep_part(low, disk, slab, SWAP_STATE_V, &out->v));
    if (disk && swap_disk_about(disk).step != run->steps)
        return atom_fail(ATOM_E_RUNTIME, "step %u was not committed", run->steps);
    out->wire = copy_of(slab + h->wire, h->extent * atom_dtype_bytes(run->g->dtype));
    return out->wire ? ATOM_OK : atom_fail_memory("a result", 1);
}

/* First weights, with moments of zero, where the plan wants them. */
static atom_status first_weights(const harness_run *run, const gen_lowered *low, swap_disk *disk,
                                 char *slab)
{
    const swap_host_layout *h = &low->layout;
    float *all = atom_alloc(h->extent, 4), *zero = disk ? atom_alloc(h->trained, 4) : NULL;
    atom_status st = ATOM_OK;
    if (!all || (disk && !zero)) {
        st = atom_fail_memory("weights", h->extent * 4);
        goto cleanup;
    }
    train_init_weights(run->g, run->seed, all);
    for (uint64_t e = 0; e < h->extent; e++) {
        if (run->g->dtype == ATOM_F32)
            ((float *)(slab + h->wire))[e] = all[e];
        else
            ((atom_bf16 *)(slab + h->wire))[e] = atom_f32_to_bf16(all[e]);
    }
    if (disk) {
        ATOM_TRY_CLEAN(swap_disk_put(disk, SWAP_STATE_MASTER, 0, h->trained, all));
        ATOM_TRY_CLEAN(swap_disk_put(disk, SWAP_STATE_M, 0, h->trained, zero));
        ATOM_TRY_CLEAN(swap_disk_put(disk, SWAP_STATE_V, 0, h->trained, zero));
        ATOM_TRY_CLEAN(swap_disk_flush(disk));
    } else {
        memcpy(slab + h->master, all, h->trained * 4);
    }
cleanup:
    atom_free(all);
    atom_free(zero);
    return st;
}

static void keep_losses(const harness_run *run, const gen_lowered *low, const char *slab,
                        uint32_t row, harness_result *out)
{
    uint64_t n = (uint64_t)(run->g->micro_batch * run->g->sequence);
    uint32_t C = run->plan->micro_batches;
    if (run->brought && row < run->steps)
        C = run->brought; /* the others stay zero */
    for (uint32_t i = 0; i < C; i++)
        memcpy(out->losses + ((uint64_t)row * run->plan->micro_batches + i) * n,
               slab + low->layout.losses + i * low->layout.loss_bytes, n * 4);
}

int32_t *harness_starts(const graph *g, uint64_t seed, uint32_t C)
{
    uint64_t T = (uint64_t)g->sequence, n = (uint64_t)g->micro_batch * T * C;
    int32_t *starts = atom_alloc(n, sizeof *starts);
    atom_rng_key key = {.seed = seed, .node = 99993};
    for (uint64_t e = 0; starts && e < n; e++) {
        bool begins = e % T == 0 || atom_rng_u32(key, e) % 5 == 0;
        starts[e] = begins ? (int32_t)(e % T) : starts[e - 1];
    }
    return starts;
}

/* A run that is under way. */
typedef struct state {
    const harness_run *run;
    const gen_lowered *low;
    swap_exec *exec;
    swap_disk *disk;
    int32_t *starts;
    uint32_t pending; /* step whose updates, or the rest of them, have not run; 0: none */
    bool rest;        /* only the rest */
} state;

static swap_step step_of(const state *s, uint32_t number, uint32_t targets)
{
    uint32_t updates = s->run->plan->clip && s->pending ? s->pending : number;
    return (swap_step){.seed = s->run->seed,
                       .step = number,
                       .micro_batches = s->run->passed_over ? s->run->brought : 0,
                       .update_step = updates,
                       .loss_scale = targets ? 1.0f / (float)targets : 0,
                       .max_grad_norm = s->run->max_grad_norm,
                       .update = adamw_step(s->run, updates),
                       .ahead = adamw_step(s->run, number),
                       .muon = muon_step(s->run, updates),
                       .muon_ahead = muon_step(s->run, number),
                       .starts = s->starts,
                       .starts_n = (uint64_t)(s->run->g->micro_batch * s->run->g->sequence)};
}

static atom_status drain(state *s)
{
    swap_step step = step_of(s, s->pending, 0);
    swap_tape_kind kind = s->rest ? SWAP_TAPE_REST : SWAP_TAPE_DRAIN;
    atom_status st = swap_exec_run(s->exec, s->low->tapes[kind], &step, NULL);
    s->pending = 0;
    s->rest = false;
    return st;
}

/* The wire copy from the masters on disk. */
static atom_status wire_again(const state *s)
{
    const swap_host_layout *h = &s->low->layout;
    char *slab = swap_exec_slab(s->exec);
    float *masters = NULL;
    atom_status st = keep_part(s->low, s->disk, slab, SWAP_STATE_MASTER, &masters);
    for (uint64_t e = 0; e < h->trained && st == ATOM_OK; e++) {
        if (s->run->g->dtype == ATOM_F32)
            ((float *)(slab + h->wire))[e] = masters[e];
        else
            ((atom_bf16 *)(slab + h->wire))[e] = atom_f32_to_bf16(masters[e]);
    }
    atom_free(masters);
    return st;
}

/* Whoever brings fewer micro-batches leaves the rest without targets. */
static void mask_rest(const harness_run *run, const swap_host_layout *h, char *slab,
                      uint32_t *targets)
{
    int64_t n = run->g->micro_batch * run->g->sequence;
    for (uint32_t i = run->brought; run->brought && i < run->plan->micro_batches; i++) {
        int32_t *tokens = (int32_t *)(slab + h->tokens + i * h->micro_batch_bytes);
        int32_t *target = tokens + h->micro_batch_bytes / 8;
        for (int64_t e = 0; e < n; e++) {
            *targets -= target[e] >= 0;
            target[e] = -1;
        }
    }
}

static atom_status run_step(state *s, uint32_t number, uint32_t targets, bool guess,
                            harness_result *out)
{
    swap_result result;
    if (s->pending && s->rest != guess)
        ATOM_TRY(drain(s));
    swap_step step = step_of(s, number, targets);
    swap_tape_kind kind = guess        ? s->rest ? SWAP_TAPE_AGAIN : SWAP_TAPE_AHEAD
                          : s->pending ? SWAP_TAPE_TRAIN
                                       : SWAP_TAPE_FIRST;
    ATOM_TRY(swap_exec_run(s->exec, s->low->tapes[kind], &step, &result));
    s->rest = guess && result.scale == 1.0f;
    s->pending = number;
    out->right += s->rest;
    if (guess && !s->rest) {
        out->wrong++;
        ATOM_TRY(wire_again(s));
        ATOM_TRY(swap_exec_run(s->exec, s->low->tapes[SWAP_TAPE_FIRST], &step, &result));
    }
    out->norms[number - 1] = result.grad_norm;
    return ATOM_OK;
}

static atom_status run_steps(const harness_run *run, const gen_lowered *low, swap_exec *exec,
                             swap_disk *disk, harness_result *out)
{
    char *slab = swap_exec_slab(exec);
    const graph *g = run->g;
    uint32_t C = run->plan->micro_batches, targets = 0;
    atom_status st = ATOM_OK;
    state s = {run, low, exec, disk, run->apart ? harness_starts(g, run->seed, C) : NULL, 0, 0};
    if (run->apart && !s.starts)
        return atom_fail_memory("starts", (uint64_t)(g->micro_batch * g->sequence) * C * 4);
    ATOM_TRY_CLEAN(first_weights(run, low, disk, slab));
    for (uint32_t i = 1; i <= run->steps; i++) {
        atom_rng_key key = {.seed = run->seed, .step = i, .node = 99997};
        bool can = run->ahead && low->tapes[SWAP_TAPE_AHEAD];
        fill_batch(g, &low->layout, slab, run->seed, i, C, &targets);
        mask_rest(run, &low->layout, slab, &targets);
        ATOM_TRY_CLEAN(run_step(&s, i, targets, can && atom_rng_u32(key, 0) % 4 != 0, out));
        keep_losses(run, low, slab, i - 1, out);
    }
    swap_step last = step_of(&s, run->steps, 0);
    last.micro_batches = 0;
    if (run->steps > 0)
        ATOM_TRY_CLEAN(drain(&s));
    swap_tape_kind kind = SWAP_TAPE_EVAL;
    for (int again = 0; low->tapes[SWAP_TAPE_EVAL_NEXT] && again < 2; again++) {
        fill_batch(g, &low->layout, slab, run->seed + 1, 1 + (uint32_t)again, C, &targets);
        ATOM_TRY_CLEAN(swap_exec_run(exec, low->tapes[kind], &last, NULL));
        kind = SWAP_TAPE_EVAL_NEXT;
    }
    if (run->steps == 0)
        fill_batch(g, &low->layout, slab, run->seed, 0, C, &targets);
    ATOM_TRY_CLEAN(swap_exec_run(exec, low->tapes[kind], &last, NULL));
    keep_losses(run, low, slab, run->steps, out);
    ATOM_TRY_CLEAN(keep_state(run, low, disk, slab, out));
cleanup:
    atom_free(s.starts);
    return st;
}

/* A file of its own, with no name once it is open. */
static atom_status open_disk(const harness_run *run, const gen_lowered *low, swap_exec *exec,
                             swap_disk **disk)
{
    char path[64];
    const swap_host_layout *h = &low->layout;
    if (!run->plan->disk)
        return ATOM_OK;
    snprintf(path, sizeof path, "/var/tmp/swapeq-%ld.store", (long)getpid());
    swap_disk_config config = {.path = path,
                               .kind = run->store,
                               .create = true,
                               .run = run->seed,
                               .blocks = h->blocks,
                               .params = low->params,
                               .n_params = low->n_params,
                               .ring = (char *)swap_exec_slab(exec) + h->ring,
                               .ring_bytes = h->ring_bytes};
    atom_status st = swap_disk_open(&config, disk);
    (void)unlink(path);
    if (st == ATOM_OK)
        swap_exec_attach(exec, *disk);
    return st;
}

/* Several devices are on cards of their own where there are as many, else they share what there is. */
static atom_status open_device(const harness_run *run, uint32_t number, uint64_t budget,
                               atom_threads *threads, dev **out)
{
    dev_cuda_info info;
    if (run->cuda) {
        ATOM_TRY(dev_cuda_describe(0, &info));
        dev_cuda_config config = {.card = (int)number % info.cards, .budget_bytes = budget};
        return dev_cuda_open(&config, threads, out);
    }
    return dev_cpu_open(&(dev_cpu_config){.budget_bytes = budget}, threads, out);
}

/* Parameters may be called anything, and the same in several sub-models. */
static void name_oddly(swap_program *program)
{
    static const char *const odd[] = {"X", "for", "0.weight", "PARAMETERS", "table"};
    for (uint32_t k = 0; k < program->n_sub_models; k++) {
        swap_sub_model *s = &program->sub_models[k];
        for (uint32_t i = 0; i < s->n_symbols && i < sizeof odd / sizeof *odd; i++)
            snprintf(s->symbols[i].name, sizeof s->symbols[i].name, "%s", odd[i]);
    }
}

atom_status harness_do(const harness_run *run, harness_result *out)
{
    atom_status st;
    gen_lowered *low = NULL;
    atom_threads *threads = NULL;
    dev *devices[SWAP_DEVICES_MAX] = {NULL};
    swap_exec *exec = NULL;
    swap_disk *disk = NULL;
    gen_module *module = NULL;
    memset(out, 0, sizeof *out);
    uint64_t n = (uint64_t)(run->g->micro_batch * run->g->sequence);
    ATOM_TRY_CLEAN(gen_lower(run->g, run->plan, NULL, run->table, &low));
    ATOM_TRY_CLEAN(prove(low));
    ATOM_TRY_CLEAN(atom_threads_open(run->threads, &threads));
    uint64_t budget = run->budget_bytes ? run->budget_bytes : low->device_bytes;
    swap_exec_config config = gen_exec_config(low);
    for (uint32_t d = 0; d < low->n_devices; d++) {
        ATOM_TRY_CLEAN(open_device(run, d, budget, threads, &devices[d]));
        config.devices[d] = devices[d];
    }
    config.threads = threads;
    config.table = run->table;
    config.host = run->host;
    if (run->generated) {
        name_oddly(low->program);
        ATOM_TRY_CLEAN(gen_build(low->program, NULL, &module));
        config.compiled = gen_module_compiled(module);
    }
    ATOM_TRY_CLEAN(swap_exec_open(&config, &exec));
    out->n_losses = (run->steps + 1) * run->plan->micro_batches * n;
    out->losses = atom_alloc(out->n_losses, sizeof(float));
    if (!out->losses) {
        st = atom_fail_memory("losses", out->n_losses * 4);
        goto cleanup;
    }
    ATOM_TRY_CLEAN(open_disk(run, low, exec, &disk));
    ATOM_TRY_CLEAN(run_steps(run, low, exec, disk, out));
    out->device_peak_bytes = devices[0]->peak_bytes;
cleanup:
    swap_disk_close(&disk);
    swap_exec_close(&exec);
    gen_module_close(&module);
    for (uint32_t d = 0; d < SWAP_DEVICES_MAX; d++)
        dev_close(&devices[d]);
    atom_threads_close(&threads);
    gen_lowered_close(&low);
    if (st != ATOM_OK)
        harness_free(out);
    return st;
}

void harness_free(harness_result *r)
{
    atom_free(r->master);
    atom_free(r->m);
    atom_free(r->v);
    atom_free(r->wire);
    atom_free(r->losses);
    memset(r, 0, sizeof *r);
}

/* frozen: those that have nothing but a wire copy, too. */
static bool params_equal(const graph *g, const char *a, const char *b, uint32_t each, bool frozen,
                         char text[256], const char *what)
{
    for (uint32_t p = 0; p < g->n_params; p++) {
        if (g->params[p].frozen && !frozen)
            continue;
        uint64_t offset = g->params[p].offset * each, bytes = g->params[p].elements * each;
        for (uint64_t i = 0; i < bytes; i += each) {
            if (memcmp(a + offset + i, b + offset + i, each) == 0)
                continue;
            snprintf(text, 256, "%s of %s differs at element %llu", what, g->params[p].name,
                     (unsigned long long)(i / each));
            return false;
        }
    }
    return true;
}

const char *harness_compare(const graph *g, const harness_result *a, const harness_result *b,
                            char text[256])
{
    if (memcmp(a->norms, b->norms, sizeof a->norms) != 0) {
        snprintf(text, 256, "gradient norms differ: %.17g %.17g", a->norms[0], b->norms[0]);
        return text;
    }
    for (uint64_t i = 0; i < a->n_losses; i++) {
        if (memcmp(&a->losses[i], &b->losses[i], 4) != 0) {
            snprintf(text, 256, "loss %llu differs: %.9g %.9g", (unsigned long long)i,
                     (double)a->losses[i], (double)b->losses[i]);
            return text;
        }
    }
    if (!params_equal(g, (char *)a->master, (char *)b->master, 4, false, text, "master") ||
        !params_equal(g, (char *)a->m, (char *)b->m, 4, false, text, "m") ||
        !params_equal(g, (char *)a->v, (char *)b->v, 4, false, text, "v") ||
        !params_equal(g, a->wire, b->wire, atom_dtype_bytes(g->dtype), true, text, "wire copy"))
        return text;
    return NULL;
}

/* --- plans ----------------------------------------------------------------------------------- */

static uint32_t draw(uint64_t seed, uint32_t *i)
{
    return atom_rng_u32((atom_rng_key){.seed = seed, .node = 0x706c616e}, (*i)++);
}

static atom_status plan_with(const graph *g, const int32_t *cuts, uint32_t n_cuts, uint32_t C,
                             bool clip, part_plan **out)
{
    part_profile *profile = NULL;
    part_plan *plan = NULL;
    part_device device = {.name = "test",
                          .isa = "none",
                          .unified = true,
                          .cores = 2,
                          .host_bytes = 1ull << 34,
                          .flops_fp32 = 1e11,
                          .flops_bf16 = 1e11,
                          .device_bytes_per_second = 1e10,
                          .h2d_bytes_per_second = 1e9,
                          .d2h_bytes_per_second = 1e9,
                          .h2d_both_bytes_per_second = 1e9,
                          .d2h_both_bytes_per_second = 1e9,
                          .host_bytes_per_second = 1e10,
                          .adamw_params_per_second = 1e9};
    atom_status st;
    ATOM_TRY_CLEAN(part_profile_open(g, &device, &profile));
    ATOM_TRY_CLEAN(part_plan_open(g, profile, n_cuts + 1, &plan));
    plan->micro_batches = C;
    plan->clip = clip;
    for (uint32_t k = 0; k <= n_cuts; k++) {
        plan->sub_models[k].first_node = k ? cuts[k - 1] : 0;
        plan->sub_models[k].last_node = k < n_cuts ? cuts[k] : (int32_t)g->n_nodes;
        plan->sub_models[k].param_bytes =
            wire_bytes_of(g, plan->sub_models[k].first_node, plan->sub_models[k].last_node);
        if (k)
            plan->cut_bytes += graph_boundary_bytes(g, plan->sub_models[k].first_node);
    }
    *out = plan;
cleanup:
    part_profile_close(&profile);
    return st;
}

/* Every other plan keeps its state on disk, in small blocks. */
static void harness_use_disk(part_plan *plan, const graph *g, uint64_t seed)
{
    uint32_t i = 1000, align = (uint32_t)swap_block_align(g->moments);
    plan->disk = draw(seed, &i) % 2;
    plan->over_boundaries = plan->disk && seed % 3 == 0;
    plan->ring_blocks = plan->disk ? 2 + draw(seed, &i) % 12 : 0;
    plan->block_elements = plan->disk ? align * (1 + draw(seed, &i) % 8) : 0;
}

/* Sub-models that keep some hold any of their nodes, in any place; one that could hold nothing
 * recomputes. */
static atom_status hold_some(part_plan *plan, const graph *g, uint64_t seed)
{
    uint32_t i = 2000;
    for (uint32_t k = 0; k < plan->n_sub_models; k++) {
        part_sub_model *s = &plan->sub_models[k];
        bool any = false;
        if (s->keep != PART_KEEP_SOME)
            continue;
        if (!plan->holds)
            ATOM_TRY(part_plan_open_holds(plan));
        for (int32_t node = s->first_node; node < s->last_node; node++) {
            uint32_t hold = draw(seed, &i) % 3;
            plan->holds[node] = part_can_hold(g, s, node) ? (uint8_t)hold : PART_AGAIN;
            any |= plan->holds[node] != PART_AGAIN;
        }
        s->keep = any ? PART_KEEP_SOME : PART_RECOMPUTE;
    }
    return ATOM_OK;
}

atom_status harness_random_plan(const graph *g, uint64_t seed, uint32_t C, bool clip,
                                part_plan **out)
{
    int32_t cuts[512];
    uint32_t n = 0, i = 0;
    uint32_t one_in = 1 + draw(seed, &i) % 12;
    for (int32_t c = 1; c < (int32_t)g->n_nodes && n < 512; c++) {
        if (graph_can_cut(g, c) && draw(seed, &i) % one_in == 0)
            cuts[n++] = c;
    }
    ATOM_TRY(plan_with(g, cuts, n, C, clip, out));
    (*out)->boundaries = draw(seed, &i) % 2 ? PART_ON_HOST : PART_ON_DEVICE;
    bool mixed = draw(seed, &i) % 2;
    for (uint32_t k = 0; k <= n; k++) {
        (*out)->sub_models[k].keep =
            mixed ? (part_keep)(draw(seed, &i) % (k < n ? 4 : 3)) : PART_RECOMPUTE;
        (*out)->sub_models[k].resident = draw(seed, &i) % 8 == 0;
    }
    harness_use_disk(*out, g, seed);
    return hold_some(*out, g, seed);
}

atom_status harness_resident_plan(const graph *g, uint32_t C, bool clip, bool in_place,
                                  part_plan **out)
{
    atom_status st = plan_with(g, NULL, 0, C, clip, out);
    if (st == ATOM_OK)
        (*out)->in_place = in_place;
    return st;
}
