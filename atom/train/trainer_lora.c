/*
 * Owns what a LoRA run does differently: the model's weights go to the frozen part of the wire copy,
 * but for modules that are trained whole; the adapters start at random or as a directory has them.
 * One idea: the model is read by the names and places of the graph without adapters, each parameter
 * to where the trained graph has it. Refuses models without weights: adapters of random numbers are
 * of no use to anybody.
 */
#include "atom/train/trainer_inner.h"

#include "atom/base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct beside {
    file_lora_base weights;
    uint64_t *sum; /* of what was put */
} beside;

static uint64_t stir(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* A sum over place and value: the same in whatever order and pieces files are read. */
static void add_up(uint64_t sum[2], uint64_t first, uint64_t n, const float *from)
{
    for (uint64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &from[i], sizeof bits);
        uint64_t x = stir((first + i + 1) * 0x9e3779b97f4a7c15u ^ (uint64_t)bits << 20);
        sum[0] += x;
        sum[1] += stir(x + bits);
    }
}

static atom_status beside_put(void *ctx, uint64_t first, uint64_t n, const float *from)
{
    const beside *b = ctx;
    add_up(b->sum, first, n, from);
    return file_lora_base_put(&b->weights, first, n, from);
}

atom_status trainer_lora_check(const trainer *t)
{
    const train_config *c = t->config;
    if (!t->bench->base)
        return ATOM_OK;
    if (t->hooks.seam && t->bench->model.adapter)
        return atom_fail(ATOM_E_USAGE,
                         "adapter: a pool starts with new adapters, whose lora_r all members "
                         "know; leave the key out, or merge %s into its model first (atom export)",
                         t->bench->model.adapter);
    if (c->init == TRAIN_INIT_RANDOM)
        return atom_fail(ATOM_E_USAGE,
                         "init: adapters need a trained model; leave out either init: random or "
                         "lora_r");
    if (!t->bench->model.has_weights && !c->dry_run)
        return atom_fail(ATOM_E_USAGE,
                         "lora_r: model '%s' has no weights, but adapters need a trained model; "
                         "name a directory with weights, or leave lora_r out",
                         c->model);
    return ATOM_OK;
}

/* The model may have changed under a name that is the same. */
static void know_base(trainer *t)
{
    char now[TRAIN_BASE_BYTES];
    trainer_base(t, now);
    if (t->state.base[0] && strcmp(t->state.base, now) != 0)
        trainer_note(t,
                     "resume: the weights of the model under the adapters (%s) are not those that "
                     "the checkpoint's adapters were trained over",
                     t->bench->model.dir);
    memcpy(t->state.base, now, sizeof now);
}

atom_status trainer_lora_base(trainer *t, bool fresh)
{
    beside b = {.sum = t->base_hash};
    file_vector all = train_engine_weights(t->engine);
    file_vector to = {.ctx = &b, .put = beside_put, .source = all.source, .odd = &t->odd};
    if (!t->bench->base || !t->bench->model.has_weights)
        return ATOM_OK;
    fresh =
        fresh && !t->bench->model.adapter; /* else modules_to_save are what they were saved as */
    ATOM_TRY(file_lora_base_open(t->bench->base, t->bench->g, fresh, all, &b.weights));
    atom_status st = file_weights_read_to(t->bench->model.dir, t->bench->base, to);
    file_lora_base_close(&b.weights);
    if (st == ATOM_OK)
        know_base(t);
    return st;
}

const char *trainer_base(const trainer *t, char text[TRAIN_BASE_BYTES])
{
    text[0] = 0;
    if (t->bench->base)
        snprintf(text, TRAIN_BASE_BYTES, "%016" PRIx64 "%016" PRIx64, t->base_hash[0],
                 t->base_hash[1]);
    return text;
}

atom_status trainer_lora_start(trainer *t)
{
    const plan_workbench *b = t->bench;
    file_vector master = train_engine_vector(t->engine, SWAP_STATE_MASTER);
    file_adapter *a = NULL;
    atom_status st = ATOM_OK;
    if (!b->base || !(b->model.adapter || b->model.has_weights))
        return ATOM_OK;
    if (!b->model.adapter)
        return file_lora_start(&b->lora, b->base, b->model.dir, b->g, master);
    ATOM_TRY_CLEAN(file_adapter_open(b->model.adapter, b->base, b->model.dir, &a));
    ATOM_TRY_CLEAN(file_adapter_put(a, b->g, master));
cleanup:
    file_adapter_close(&a);
    return st;
}

/* The same modules have adapters? */
static bool same_modules(const graph_target *a, uint32_t n_a, const graph_target *b, uint32_t n_b)
{
    bool same = n_a == n_b;
    for (uint32_t i = 0; same && i < n_a; i++)
        same = strcmp(a[i].name, b[i].name) == 0;
    return same;
}

/* Where adapters are; what else the checkpoint has is compared when the model is known to be its own. */
static atom_status check_modules(const trainer *t, const char *checkpoint)
{
    file_lora saved = {0};
    graph_target *was = NULL, *is = NULL;
    uint32_t n_was, n_is;
    atom_status st;
    ATOM_TRY_CLEAN(file_lora_read(checkpoint, &saved));
    ATOM_TRY_CLEAN(file_lora_targets(t->bench->base, &saved, &was, &n_was));
    ATOM_TRY_CLEAN(file_lora_targets(t->bench->base, &t->bench->lora, &is, &n_is));
    if (!same_modules(was, n_was, is, n_is))
        ATOM_TRY_CLEAN(atom_fail(
            ATOM_E_USAGE,
            "%s was trained with adapters on other modules than this run has: %u (%s), not %u "
            "(%s); give the same lora_target_modules and lora_layers, or start a new run in "
            "another output_dir",
            checkpoint, n_was, saved.targets, n_is, t->bench->lora.targets));
cleanup:
    atom_free(was);
    atom_free(is);
    file_lora_free(&saved);
    return st;
}

atom_status trainer_lora_resume(const trainer *t, const char *checkpoint)
{
    if (!checkpoint || !file_lora_is_dir(checkpoint))
        return ATOM_OK;
    if (t->bench->base)
        return check_modules(t, checkpoint);
    return atom_fail(
        ATOM_E_USAGE,
        "%s is the checkpoint of a LoRA run; give the same lora_r and lora_target_modules to "
        "continue it",
        checkpoint);
}

void trainer_lora_note(const trainer *t)
{
    const graph *g = t->bench->g;
    if (t->bench->base)
        trainer_note(t, "%s: %llu of %llu parameters are trained (rank %lld)",
                     t->bench->lora.dora ? "DoRA" : "LoRA", (unsigned long long)g->trained_elements,
                     (unsigned long long)g->param_elements, (long long)t->bench->lora.rank);
}
