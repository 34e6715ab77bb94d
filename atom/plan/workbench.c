/*
 * Owns a model as a graph with the kernels that would run it. One idea: profile, plan, train and
 * eval all start from the same few facts, so they are gathered once. Refuses to touch a device or
 * weights.
 */
#include "atom/plan/workbench.h"
#include "atom/plan/boundaries.h"
#include "atom/plan/device.h"

#include "atom/base/files.h"
#include "atom/base/machine.h"
#include "atom/base/mem.h"
#include "atom/text/tokenizer.h"

#include <math.h>
#include <string.h>

atom_status plan_vocab_read(const char *data, plan_vocab *out)
{
    atom_status st = ATOM_OK;
    text_tokenizer *tokenizer = NULL;
    char *path = atom_path_join(data, "tokenizer.json");
    *out = (plan_vocab){.end = -1, .start = -1};
    if (path && atom_path_exists(path)) {
        ATOM_TRY_CLEAN(text_tokenizer_load(path, &tokenizer));
        out->tokens = text_tokenizer_vocab(tokenizer);
        out->padded = ((int64_t)out->tokens + 63) / 64 * 64;
        out->end = (int64_t)text_tokenizer_end(tokenizer);
        out->start = (int64_t)text_tokenizer_start(tokenizer);
    }
cleanup:
    text_tokenizer_close(&tokenizer);
    atom_free(path);
    return st;
}

/* *out: NULL where there is none, or none that can be read. */
static atom_status find_tokenizer(const char *dir, text_tokenizer **out)
{
    char *path = atom_path_join(dir, "tokenizer.json");
    *out = NULL;
    if (!path)
        return atom_fail_memory("a path", 256);
    atom_status st = atom_path_exists(path) ? text_tokenizer_load(path, out) : ATOM_OK;
    atom_free(path);
    return st == ATOM_E_RESOURCE ? st : ATOM_OK;
}

atom_status plan_vocab_check(const char *model_dir, const char *data, bool *alike)
{
    text_tokenizer *models = NULL, *datas = NULL;
    atom_status st;
    ATOM_TRY_CLEAN(find_tokenizer(model_dir, &models));
    ATOM_TRY_CLEAN(find_tokenizer(data, &datas));
    if (models && datas && !text_tokenizer_agrees(models, datas))
        st = atom_fail(
            ATOM_E_USAGE,
            "%s was prepared with another tokenizer than that of model %s, so its tokens have "
            "another meaning for the model; prepare it with --tokenizer %s/tokenizer.json",
            data, model_dir, model_dir);
    if (alike)
        *alike = !models || !datas || text_tokenizer_equal(models, datas);
cleanup:
    text_tokenizer_close(&models);
    text_tokenizer_close(&datas);
    return st;
}

/* Somebody's own model has dropout where its program has it, and as much. */
static atom_status check_own_dropout(const graph *own, float dropout)
{
    bool same = true;
    for (uint32_t i = 0; i < own->n_nodes; i++)
        same = same && (fabsf(own->nodes[i].p - dropout) <= 0 || own->nodes[i].p <= 0);
    for (uint32_t i = 0; i < own->n_nodes && dropout > 0 && same; i++)
        same = own->nodes[i].op != ATOM_OP_attention || own->nodes[i].p > 0;
    return same ? ATOM_OK
                : atom_fail(ATOM_E_USAGE,
                            "dropout: %g would not change this model, which was exported by "
                            "torch.export with its own dropout; leave dropout out, or export the "
                            "model again with another",
                            (double)dropout);
}

static atom_status apply_overrides(const plan_workbench_config *config, file_model *model)
{
    graph_config *c = &model->config;
    if (config->dropout >= 0 && config->trains && c->own)
        ATOM_TRY(check_own_dropout(c->own, (float)config->dropout));
    if (config->dropout >= 0)
        c->embd_pdrop = c->attn_pdrop = c->resid_pdrop = (float)config->dropout;
    if (model->kind == FILE_MODEL_PRESET && config->vocab_size > 0)
        c->vocab_size = config->vocab_size;
    return ATOM_OK;
}

static atom_status build_graph(plan_workbench *bench)
{
    const plan_workbench_config *config = &bench->config;
    graph *plain = NULL;
    int64_t T = config->sequence > 0 ? config->sequence : graph_model_usual(&bench->model.config);
    atom_status st;
    if (config->micro_batch < 1)
        return atom_fail(ATOM_E_USAGE, "micro_batch_size must be at least 1");
    if (T > bench->model.config.positions)
        return atom_fail(ATOM_E_USAGE,
                         "sequence_len %lld is longer than the model's %lld positions; use at most "
                         "that",
                         (long long)T, (long long)bench->model.config.positions);
    ATOM_TRY_CLEAN(graph_model_build(&bench->model.config,
                                     plan_device_dtype(bench->card, config->dtype),
                                     config->micro_batch, T, &plain));
    if (bench->lora.rank == 0) {
        ATOM_TRY_CLEAN(graph_fuse(plain, &bench->g));
    } else {
        ATOM_TRY_CLEAN(file_lora_graph(plain, &bench->lora, &bench->g));
        bench->base = plain;
        plain = NULL;
    }
    graph_set_moments(bench->g, config->moments);
    graph_set_optimizer(bench->g, config->optimizer);
    ATOM_TRY_CLEAN(plan_boundaries_cut(&bench->g, &bench->boundaries));
    if (config->forward)
        graph_set_forward(bench->g);
cleanup:
    graph_close(&plain);
    return st;
}

static atom_status copy_text(const char *text, char **out)
{
    atom_free(*out);
    *out = atom_strdup(text);
    return *out ? ATOM_OK : atom_fail_memory("a path", strlen(text));
}

/* The first key that says something, but for the rank; NULL: none does. */
static const char *lora_key(const file_lora_keys *k)
{
    const struct {
        bool set;
        const char *name;
    } keys[] = {{k->alpha > 0, "lora_alpha"},
                {k->dropout > 0, "lora_dropout"},
                {k->targets && strcmp(k->targets, "all-linear") != 0, "lora_target_modules"},
                {k->rslora, "lora_rslora"},
                {k->dora, "lora_dora"},
                {k->save != NULL, "lora_modules_to_save"},
                {k->layers != NULL, "lora_layers"},
                {k->ranks != NULL, "lora_rank_pattern"},
                {k->alphas != NULL, "lora_alpha_pattern"}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (keys[i].set)
            return keys[i].name;
    return NULL;
}

atom_status plan_lora_check(const char *adapter, const file_lora_keys *keys)
{
    const char *key = lora_key(keys);
    if (!key || (keys->r > 0 && !adapter))
        return ATOM_OK;
    if (adapter)
        return atom_fail(ATOM_E_USAGE, "%s: the adapter %s has its own; leave the key out", key,
                         adapter);
    return atom_fail(ATOM_E_USAGE,
                     "%s has no effect without lora_r, because the whole model would be trained; "
                     "set lora_r, or leave %s out",
                     key, key);
}

/* Which adapters are trained: those of a directory, or new ones. */
static atom_status choose_lora(plan_workbench *bench)
{
    const plan_workbench_config *c = &bench->config;
    file_lora *lora = &bench->lora;
    file_model *model = &bench->model;
    if (c->adapter)
        ATOM_TRY(copy_text(c->adapter, &model->adapter));
    if (model->adapter && c->lora.r > 0)
        return atom_fail(ATOM_E_USAGE,
                         "the adapter %s has its own rank and targets; leave lora_r out",
                         model->adapter);
    ATOM_TRY(plan_lora_check(model->adapter, &c->lora));
    if (!c->trains || !(model->adapter || c->lora.r > 0))
        return ATOM_OK;
    if (model->adapter)
        ATOM_TRY(file_lora_read(model->adapter, lora));
    else
        ATOM_TRY(file_lora_make(&c->lora, NULL, lora));
    if (model->dir)
        ATOM_TRY(copy_text(model->dir, &lora->base));
    return ATOM_OK;
}

static atom_status untie(plan_workbench *bench)
{
    graph_config *config = &bench->model.config;
    if (bench->config.adapter && bench->model.dir)
        ATOM_TRY(file_adapter_warn(bench->config.adapter, bench->model.dir));
    return bench->lora.rank ? file_lora_untie(&bench->lora, config)
                            : file_adapter_untie(bench->model.adapter, config);
}

static atom_status choose_boundaries(plan_workbench *bench)
{
    ATOM_TRY(plan_boundaries_choose(&bench->config, &bench->model.config, &bench->boundaries));
    if (!bench->boundaries.added || bench->lora.rank == 0)
        return ATOM_OK;
    return atom_fail(ATOM_E_USAGE,
                     "compress_boundaries: with adapters the model itself is not trained, so new "
                     "bottlenecks would stay random; train the model with bottlenecks first, and "
                     "adapters for it after that");
}

static bool has_all_kernels(const plan_workbench *bench)
{
    for (uint32_t i = 0; i < bench->g->n_nodes; i++) {
        atom_op op = bench->g->nodes[i].op;
        if (!bench->table->fwd[op] || !bench->table->bwd[op])
            return false;
        int64_t window = op == ATOM_OP_attention ? bench->g->nodes[i].window : 0;
        if (window && window < bench->g->sequence && !(bench->table->can & KRN_CAN_WINDOW))
            return false;
    }
    return true;
}

atom_status plan_workbench_open(const plan_workbench_config *config, plan_workbench **out)
{
    atom_status st;
    plan_workbench *bench = atom_alloc(1, sizeof *bench);
    if (!bench)
        return atom_fail_memory("a model", sizeof *bench);
    bench->config = *config;
    ATOM_TRY_CLEAN(plan_device_choose(config->device, &bench->card));
    ATOM_TRY_CLEAN(file_model_resolve(config->model, &bench->model));
    ATOM_TRY_CLEAN(apply_overrides(config, &bench->model));
    ATOM_TRY_CLEAN(choose_lora(bench));
    ATOM_TRY_CLEAN(untie(bench));
    ATOM_TRY_CLEAN(choose_boundaries(bench));
    ATOM_TRY_CLEAN(build_graph(bench));
    ATOM_TRY_CLEAN(plan_device_table(bench->card, bench->g->dtype, &bench->table));
    if (bench->card >= 0 && strcmp(config->device, "auto") == 0 && !has_all_kernels(bench)) {
        bench->card =
            -1; /* auto takes what works; a user who asks for cuda is told what is missing */
        graph_close(&bench->g);
        graph_close(&bench->base);
        ATOM_TRY_CLEAN(build_graph(bench));
        ATOM_TRY_CLEAN(plan_device_table(bench->card, bench->g->dtype, &bench->table));
    }
    ATOM_TRY_CLEAN(plan_device_several(bench->card, config->devices));
    bench->host = krn_cpu_host_table();
    ATOM_TRY_CLEAN(atom_threads_open(config->threads > 0 ? (uint32_t)config->threads : atom_cores(),
                                     &bench->threads));
    *out = bench;
    return ATOM_OK;
cleanup:
    plan_workbench_close(&bench);
    return st;
}

void plan_workbench_close(plan_workbench **bench_ref)
{
    plan_workbench *bench = *bench_ref;
    if (!bench)
        return;
    atom_threads_close(&bench->threads);
    graph_close(&bench->g);
    graph_close(&bench->base);
    file_lora_free(&bench->lora);
    file_model_free(&bench->model);
    atom_free(bench);
    *bench_ref = NULL;
}
