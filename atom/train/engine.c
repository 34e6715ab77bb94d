/*
 * Owns the opening of a plan that runs: its memory, device, streams, code and disk. One idea: what
 * a plan takes was counted when it was made, so what does not fit is refused here, before anything
 * is computed. Refuses to know about files, schedules or people.
 */
#include "atom/train/engine.h"

#include "atom/plan/device.h"

#include "atom/base/hash.h"
#include "atom/base/machine.h"
#include "atom/base/mem.h"
#include "atom/base/size.h"
#include "codegen/build.h"
#include "kernels/cuda_load.h"

#include <stdio.h>
#include <string.h>

static atom_status open_code(train_engine *e)
{
    gen_module *module = NULL;
    e->execute = "interpreted";
    if (e->c.execute == TRAIN_EXECUTE_INTERPRETED)
        return ATOM_OK;
    atom_status st = gen_build(e->low->program, NULL, &module);
    if (st == ATOM_OK) {
        e->module = module;
        e->execute = "generated";
        return ATOM_OK;
    }
    if (e->c.execute == TRAIN_EXECUTE_GENERATED)
        return st;
    snprintf(e->why, sizeof e->why, "%s", atom_fail_message());
    return ATOM_OK;
}

static atom_status open_devices(train_engine *e)
{
    uint64_t budget = e->c.plan->device_budget_bytes;
    for (uint32_t d = 0; d < e->c.plan->devices; d++) {
        ATOM_TRY(plan_device_open(e->c.bench, d, budget, &e->devices[d]));
        e->n_devices = d + 1;
    }
    return ATOM_OK;
}

/* Of host memory: the CPU's devices are that, too. */
static uint64_t arena_bytes(const train_engine *e)
{
    return e->c.bench->card < 0 ? e->low->device_bytes * e->low->n_devices : 0;
}

uint64_t train_engine_host_bytes(const train_engine *e)
{
    return e->low->host_bytes + e->files.most;
}

uint64_t train_engine_host_peak(const train_engine *e)
{
    return e->devices[0]->host_peak_bytes + e->files.peak;
}

/* Spare memory is what others leave: it shrinks where they need all. */
static void choose_spare(train_engine *e)
{
    uint64_t available = atom_host_available_bytes() + dev_cuda_kept_bytes();
    uint64_t need = train_engine_host_bytes(e) + arena_bytes(e);
    uint64_t left = available > need ? available - need : 0;
    bool none = e->c.plan->disk || !e->low->layout.trained;
    e->spare_bytes = none ? 0 : e->c.spare_bytes;
    if (available && e->spare_bytes > left / 2)
        e->spare_bytes = left / 2;
}

static atom_status check_host_memory(const train_engine *e)
{
    uint64_t budget = e->c.plan->host_budget_bytes;
    uint64_t available = atom_host_available_bytes() + dev_cuda_kept_bytes();
    uint64_t host = train_engine_host_bytes(e), need = host + arena_bytes(e);
    char a[24], b[24];
    if (budget && host > budget)
        return atom_fail(ATOM_E_RESOURCE,
                         "host memory: this run needs %s, but host_memory allows only %s; raise "
                         "it or use a smaller model",
                         atom_size_text(host, a), atom_size_text(budget, b));
    const graph *g = e->c.bench->g;
    if (available && need > available)
        return atom_fail(
            ATOM_E_RESOURCE,
            "host memory: this %s needs %s, but only %s are available (%llu bytes are missing); "
            "use %sa smaller model, micro_batch_size or sequence_len",
            graph_trains(g) ? "run" : "evaluation", atom_size_text(need, a),
            atom_size_text(available, b), (unsigned long long)(need - available),
            !graph_trains(g) && g->dtype == ATOM_F32 ? "--dtype bf16, " : "");
    return ATOM_OK;
}

/* What a state on disk belongs to: the parameters, how they are cut into blocks, what trains them,
 * and what moments are in. */
static uint64_t state_hash(const train_engine *e, atom_dtype moments)
{
    const graph *g = e->c.bench->g;
    const swap_blocks *b = &e->low->layout.blocks;
    const uint64_t cut[2] = {b->extent, b->each};
    uint64_t hash = atom_hash(ATOM_HASH_SEED, cut, sizeof cut);
    if (g->optimizer != GRAPH_ADAMW)
        hash = atom_hash(hash, &g->optimizer, sizeof g->optimizer);
    if (moments != ATOM_F32)
        hash = atom_hash(hash, &moments, sizeof moments);
    for (uint32_t p = 0; p < g->n_params; p++) {
        hash = atom_hash(hash, g->params[p].name, strlen(g->params[p].name) + 1);
        hash = atom_hash(hash, &g->params[p].elements, sizeof g->params[p].elements);
    }
    return hash;
}

static atom_status open_disk(train_engine *e)
{
    const swap_host_layout *h = &e->low->layout;
    if (!e->c.plan->disk || !e->c.store)
        return ATOM_OK;
    bool half = h->moments == ATOM_BF16;
    swap_disk_config config = {.path = e->c.store,
                               .kind = e->c.store_kind,
                               .create = true,
                               .run = state_hash(e, h->moments),
                               .relative = state_hash(e, half ? ATOM_F32 : ATOM_BF16),
                               .relation =
                                   half ? "holds this run's state with moments in fp32; resume "
                                          "with --moments-dtype fp32 until a checkpoint is "
                                          "saved, or remove it and continue from the last "
                                          "checkpoint"
                                        : "holds this run's state with moments in bf16; resume "
                                          "with --moments-dtype bf16 until a checkpoint is "
                                          "saved, or remove it and continue from the last "
                                          "checkpoint",
                               .blocks = h->blocks,
                               .params = e->low->params,
                               .n_params = e->low->n_params,
                               .ring = (char *)swap_exec_slab(e->exec) + h->ring,
                               .ring_bytes = h->ring_bytes};
    ATOM_TRY(swap_disk_open(&config, &e->disk));
    swap_exec_attach(e->exec, e->disk);
    return ATOM_OK;
}

/* The reader of a state in memory that updates change meanwhile. */
static atom_status open_cow(train_engine *e)
{
    const swap_host_layout *h = &e->low->layout;
    const char *slab = swap_exec_slab(e->exec);
    if (e->c.plan->disk || !h->trained)
        return ATOM_OK;
    swap_cow_config config = {.parts = {slab + h->master, slab + h->m, slab + h->v},
                              .moments = h->moments,
                              .extent = h->trained,
                              .params = e->low->params,
                              .n_params = e->low->n_params,
                              .spare_bytes = e->spare_bytes};
    ATOM_TRY(swap_cow_open(&config, &e->cow));
    swap_exec_keep(e->exec, e->cow);
    return ATOM_OK;
}

uint64_t train_engine_starts_n(const train_engine *e)
{
    return (uint64_t)(e->c.bench->g->micro_batch * e->c.bench->g->sequence);
}

static atom_status open_starts(train_engine *e)
{
    uint64_t n = train_engine_starts_n(e) * e->c.plan->micro_batches;
    if (!(e->c.bench->table->can & KRN_CAN_APART))
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "packing: the %s backend does not support 'apart' yet; use packing: "
                         "across, or another device",
                         e->c.bench->table->backend);
    e->starts = atom_alloc(n, sizeof *e->starts);
    return e->starts ? ATOM_OK : atom_fail_memory("the starts of documents", n * sizeof *e->starts);
}

int32_t *train_engine_starts(train_engine *e, uint32_t i)
{
    return e->starts ? e->starts + i * train_engine_starts_n(e) : NULL;
}

atom_status train_engine_open(const train_engine_config *config, train_engine **out)
{
    atom_status st;
    train_engine *e = atom_alloc(1, sizeof *e);
    if (!e)
        return atom_fail_memory("the engine", sizeof *e);
    e->c = *config;
    e->files.kind = config->store_kind;
    e->files.most = part_window_bytes(config->bench->g);
    e->source = plan_file_source(&e->files);
    e->sink = plan_file_sink(&e->files);
    for (int part = 0; part < SWAP_STATE_N; part++)
        e->parts[part] = (train_part){e, (swap_state)part};
    ATOM_TRY_CLEAN(
        gen_lower(config->bench->g, config->plan, config->profile, config->bench->table, &e->low));
    e->ahead = (train_ahead){.mode = config->update_ahead,
                             .possible = e->low->tapes[SWAP_TAPE_AHEAD] != NULL,
                             .limit = config->max_grad_norm};
    choose_spare(e);
    ATOM_TRY_CLEAN(check_host_memory(e));
    ATOM_TRY_CLEAN(open_devices(e));
    ATOM_TRY_CLEAN(open_code(e));
    swap_exec_config exec = gen_exec_config(e->low);
    memcpy(exec.devices, e->devices, sizeof e->devices);
    exec.threads = config->bench->threads;
    exec.table = config->bench->table;
    exec.host = config->bench->host;
    exec.on_updates = config->on_updates;
    exec.on_block = config->on_block;
    exec.ctx = config->ctx;
    exec.compiled = e->module ? gen_module_compiled(e->module) : NULL;
    ATOM_TRY_CLEAN(swap_exec_open(&exec, &e->exec));
    e->wire = (plan_wire){.g = config->bench->g,
                          .host = config->bench->host,
                          .threads = config->bench->threads,
                          .at = train_engine_slab(e, e->low->layout.wire)};
    ATOM_TRY_CLEAN(open_disk(e));
    ATOM_TRY_CLEAN(open_cow(e));
    if (config->apart)
        ATOM_TRY_CLEAN(open_starts(e));
    *out = e;
    return ATOM_OK;
cleanup:
    train_engine_close(&e);
    return st;
}

void train_engine_close(train_engine **e_ref)
{
    train_engine *e = *e_ref;
    if (!e)
        return;
    gen_module *module = e->module;
    swap_disk_close(&e->disk);
    swap_cow_close(&e->cow);
    swap_exec_close(&e->exec);
    gen_module_close(&module);
    for (uint32_t d = 0; d < e->n_devices; d++)
        dev_close(&e->devices[d]);
    atom_free(e->starts);
    gen_lowered_close(&e->low);
    atom_free(e);
    *e_ref = NULL;
}

/* --- its memory ------------------------------------------------------------------------------ */

char *train_engine_slab(train_engine *e, uint64_t offset)
{
    return (char *)swap_exec_slab(e->exec) + offset;
}

void train_engine_batch(train_engine *e, uint32_t i, int32_t **tokens, int32_t **targets)
{
    const swap_host_layout *h = &e->low->layout;
    *tokens = (int32_t *)train_engine_slab(e, h->tokens + i * h->micro_batch_bytes);
    *targets = *tokens + h->micro_batch_bytes / 8;
}
