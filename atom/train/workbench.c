/*
 * Owns a model as a graph with the kernels that would run it. One idea: profile, plan, train and
 * eval all start from the same few facts, so they are gathered once. Refuses to touch a device or
 * weights.
 */
#include "atom/train/trainer.h"

#include "atom/base/env.h"
#include "atom/base/mem.h"

#include <string.h>

static atom_status check_device(const char *device)
{
    if (!device || strcmp(device, "auto") == 0 || strcmp(device, "cpu") == 0)
        return ATOM_OK;
    if (strncmp(device, "cuda", 4) == 0)
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "device: this build has no CUDA module; use --device cpu");
    return atom_fail(ATOM_E_USAGE, "device: '%s' is not a device; use auto, cpu or cuda[:N]",
                     device);
}

static bool native_bf16(void)
{
    return __builtin_cpu_supports("avx512bf16");
}

static atom_dtype resolve_dtype(int32_t dtype)
{
    if (dtype == TRAIN_DTYPE_FP32)
        return ATOM_F32;
    if (dtype == TRAIN_DTYPE_BF16)
        return ATOM_BF16;
    return native_bf16() ? ATOM_BF16 : ATOM_F32;
}

static void apply_overrides(const train_bench_config *config, file_model *model)
{
    graph_config *c = &model->config;
    if (config->dropout >= 0)
        c->embd_pdrop = c->attn_pdrop = c->resid_pdrop = (float)config->dropout;
    if (model->kind == FILE_MODEL_PRESET && config->vocab_size > 0)
        c->vocab_size = config->vocab_size;
}

static atom_status build_graph(train_workbench *bench)
{
    const train_bench_config *config = &bench->config;
    graph *plain = NULL;
    int64_t T = config->sequence > 0 ? config->sequence : graph_model_longest(&bench->model.config);
    atom_status st;
    if (config->micro_batch < 1)
        return atom_fail(ATOM_E_USAGE, "micro_batch_size must be at least 1");
    if (T > bench->model.config.positions)
        return atom_fail(ATOM_E_USAGE,
                         "sequence_len %lld is longer than the model's %lld positions; use at most "
                         "that",
                         (long long)T, (long long)bench->model.config.positions);
    ATOM_TRY(graph_model_build(&bench->model.config, resolve_dtype(config->dtype),
                               config->micro_batch, T, &plain));
    ATOM_TRY(graph_fuse(plain, &bench->g));
fail:
    graph_close(&plain);
    return st;
}

atom_status train_workbench_open(const train_bench_config *config, train_workbench **out)
{
    atom_status st;
    train_workbench *bench = atom_alloc(1, sizeof *bench);
    if (!bench)
        return atom_fail_memory("a model", sizeof *bench);
    bench->config = *config;
    ATOM_TRY(check_device(config->device));
    ATOM_TRY(file_model_resolve(config->model, &bench->model));
    apply_overrides(config, &bench->model);
    ATOM_TRY(build_graph(bench));
    bench->table = krn_cpu_table(bench->g->dtype);
    bench->host = krn_cpu_host_table();
    if (!bench->table) {
        st = atom_fail(ATOM_E_UNSUPPORTED, "dtype: the CPU backend cannot compute in %s here",
                       atom_dtype_name(bench->g->dtype));
        goto fail;
    }
    ATOM_TRY(atom_threads_open(config->threads > 0 ? (uint32_t)config->threads : atom_cores(),
                               &bench->threads));
    *out = bench;
    return ATOM_OK;
fail:
    train_workbench_close(&bench);
    return st;
}

void train_workbench_close(train_workbench **bench_ref)
{
    train_workbench *bench = *bench_ref;
    if (!bench)
        return;
    atom_threads_close(&bench->threads);
    graph_close(&bench->g);
    file_model_free(&bench->model);
    atom_free(bench);
    *bench_ref = NULL;
}
