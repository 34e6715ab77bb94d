/*
 * Owns which codec a run has on its boundaries, and where. One idea: it is a part of what is
 * learnt, so a run that goes on keeps it unless somebody says otherwise, and then hears of it.
 * Refuses codecs in a pool, whose members learn one model by one rule, and to change bottlenecks,
 * which are weights.
 */
#include "atom/train/trainer_inner.h"

#include "atom/base/assert.h"
#include "atom/base/files.h"
#include "atom/base/mem.h"

#include <stdio.h>
#include <string.h>

/* The newest state that the run can go on from; nothing in it where there is none. */
static void recall(const trainer *t, const char *checkpoint, train_state *out)
{
    const char *resume = t->config->resume_from_checkpoint;
    char *path = checkpoint ? atom_path_join(checkpoint, "atom_state.json") : NULL;
    train_state s;
    if (path && train_state_read(path, &s) == ATOM_OK)
        *out = s;
    atom_free(path);
    for (uint32_t i = 0; resume && strcmp(resume, "auto") == 0 && i < SWAP_GENERATIONS; i++)
        if (train_disk_state_find(trainer_store_dir(t), i, &s) == ATOM_OK && s.step > out->step)
            *out = s;
}

/* Bottlenecks have weights and moments, which a checkpoint has or has not. */
static atom_status check_learnt(const train_state *was, const char *codec, const char *at)
{
    bool learns = plan_boundaries_learn(codec),
         learnt = plan_boundaries_learn(was->compress_boundaries);
    if ((!learns && !learnt) ||
        (strcmp(codec, was->compress_boundaries) == 0 && strcmp(at, was->at) == 0))
        return ATOM_OK;
    if (learnt)
        return atom_fail(ATOM_E_USAGE,
                         "compress_boundaries: the run to be resumed has %s after %s blocks, and "
                         "they are a part of its model; leave compress_boundaries and at out",
                         was->compress_boundaries, was->at);
    return atom_fail(ATOM_E_USAGE,
                     "compress_boundaries: the run to be resumed has no bottlenecks, so its "
                     "checkpoint has no weights for them; start a new run from the checkpoint "
                     "with --model");
}

atom_status trainer_boundaries_choose(trainer *t, const char *checkpoint)
{
    const train_config *c = t->config;
    train_state was = {0};
    recall(t, checkpoint, &was);
    if (t->hooks.seam && plan_boundaries_learn(was.compress_boundaries))
        was.compress_boundaries[0] = was.at[0] = 0; /* they are the model's that the pool has */
    const char *codec = c->compress_boundaries ? c->compress_boundaries : was.compress_boundaries;
    bool none = !codec[0] || strcmp(codec, "none") == 0;
    const char *at = c->at ? c->at : none ? "" : was.at;
    if (!none && t->hooks.seam)
        return atom_fail(ATOM_E_USAGE,
                         "compress_boundaries: members of a pool train the model without codecs; "
                         "leave the key out");
    if (was.step > 0)
        ATOM_TRY(check_learnt(&was, codec, at));
    t->compress_boundaries = atom_strdup(codec);
    t->compress_at = atom_strdup(at);
    if (!t->compress_boundaries || !t->compress_at)
        return atom_fail_memory("boundaries", 64);
    return ATOM_OK;
}

void trainer_boundaries_note(const trainer *t)
{
    const plan_boundaries *b = &t->bench->boundaries;
    if (b->n)
        trainer_note(t,
                     "boundaries: %s after %s of %u blocks: %llu bytes per token would be sent "
                     "in each direction, %llu in bf16",
                     b->text, b->at, b->blocks, (unsigned long long)b->token_bytes,
                     (unsigned long long)b->token_bytes_bf16);
    if (b->width)
        trainer_note(t, "bottlenecks: %lld of %lld values; they are a part of the model%s",
                     (long long)b->width, (long long)t->bench->model.config.width,
                     b->added ? ", and only atom can read its checkpoints" : "");
}

/* --- bottlenecks that are new in a model with weights ------------------------------------------ */

/* The vector of the model without them, each parameter at its place in the one with. */
typedef struct around {
    const graph *without, *with;
    file_vector all;
} around;

/* How many of n elements from `first` stand together in both, and where in the larger. */
static uint64_t place_of(const around *a, uint64_t first, uint64_t n, uint64_t *to)
{
    const graph_param *p = a->without->params, *q = a->with->params;
    uint64_t room;
    for (;; p++, q++) {
        ATOM_ASSERT(p < a->without->params + a->without->n_params);
        while (graph_is_bottleneck(q))
            q++;
        room = (p->elements + GRAPH_PARAM_ALIGN - 1) / GRAPH_PARAM_ALIGN * GRAPH_PARAM_ALIGN;
        if (first >= p->offset && first - p->offset < room)
            break;
    }
    *to = q->offset + (first - p->offset);
    room -= first - p->offset;
    return room < n ? room : n;
}

static atom_status around_get(void *ctx, uint64_t first, uint64_t n, float *out)
{
    const around *a = ctx;
    for (uint64_t some, at; n > 0; first += some, out += some, n -= some) {
        some = place_of(a, first, n, &at);
        ATOM_TRY(a->all.get(a->all.ctx, at, some, out));
    }
    return ATOM_OK;
}

static atom_status around_put(void *ctx, uint64_t first, uint64_t n, const float *from)
{
    const around *a = ctx;
    for (uint64_t some, at; n > 0; first += some, from += some, n -= some) {
        some = place_of(a, first, n, &at);
        ATOM_TRY(a->all.put(a->all.ctx, at, some, from));
    }
    return ATOM_OK;
}

atom_status trainer_boundaries_read(const trainer *t, const char *dir, file_vector master)
{
    const graph *g = t->bench->g;
    graph_config plain = t->bench->model.config;
    graph *without = NULL;
    plain.bottlenecks.n = 0;
    ATOM_TRY(graph_model_build(&plain, g->dtype, g->micro_batch, g->sequence, &without));
    around a = {.without = without, .with = g, .all = master};
    const file_vector to = {.ctx = &a,
                            .get = around_get,
                            .put = around_put,
                            .source = master.source,
                            .odd = master.odd};
    atom_status st = file_weights_read_to(dir, without, to);
    graph_close(&without);
    return st;
}

/* --- what changed ----------------------------------------------------------------------------- */

void trainer_boundaries_changed(const trainer *t, const train_state *now)
{
    const train_state *was = &t->state;
    const char *none = "none";
    if (strcmp(was->compress_boundaries, now->compress_boundaries) != 0)
        trainer_note(t, "resume: compress_boundaries is %s from here; it was %s",
                     now->compress_boundaries[0] ? now->compress_boundaries : none,
                     was->compress_boundaries[0] ? was->compress_boundaries : none);
    if (was->at[0] && now->at[0] && strcmp(was->at, now->at) != 0)
        trainer_note(t, "resume: at is %s from here; it was %s", now->at, was->at);
}
