/*
 * Owns what a run leaves on disk. One idea: build the directory under a temporary name, sync it,
 * rename it; only then may an old one go. Refuses to load half of anything.
 */
#include "atom/train/checkpoint.h"

#include "atom/base/files.h"
#include "atom/base/hash.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"
#include "atom/file/safetensors.h"
#include "atom/text/tokenizer.h"
#include "atom/train/checkpoint_names.h"

#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BAND_ELEMENTS = 1 << 18 };

/* --- optimizer.safetensors ------------------------------------------------------------------- */

enum { KIND_M, KIND_V, KIND_MASTER, KINDS };
static const char MASTER[] = "master";

/* Master weights stand here where model.safetensors has them rounded. */
static uint32_t kinds_of(const train_checkpoint *c)
{
    return c->dtype == ATOM_F32 ? KIND_MASTER : KINDS;
}

static atom_dtype dtype_of(const train_checkpoint *c, uint32_t kind)
{
    return kind == KIND_MASTER ? ATOM_F32 : c->g->moments;
}

/* What that of a parameter is called, as PyTorch's optimizers call it; NULL: there is none. */
static const char *kind_name(const graph *g, const graph_param *p, uint32_t kind)
{
    int64_t rows[GRAPH_MATRICES_MAX];
    bool muon = graph_matrices(g, (int32_t)(p - g->params), rows) > 0;
    const char *const names[KINDS] = {muon ? "momentum_buffer" : "exp_avg",
                                      muon ? NULL : "exp_avg_sq", MASTER};
    return p->frozen ? NULL : names[kind];
}

uint64_t train_checkpoint_bytes(const train_checkpoint *c)
{
    uint64_t state = 0;
    for (uint32_t i = 0; i < kinds_of(c) * c->g->n_params; i++) {
        const graph_param *p = &c->g->params[i / kinds_of(c)];
        uint32_t kind = i % kinds_of(c);
        state += kind_name(c->g, p, kind) ? p->elements * atom_dtype_bytes(dtype_of(c, kind)) : 0;
    }
    if (c->base) /* the adapters alone */
        return state + c->g->trained_elements * sizeof(float);
    return state + c->g->param_elements * atom_dtype_bytes(c->dtype) + graph_buffers_bytes(c->g);
}

/* slots[k]: which the k-th is that was declared, kinds_of(c) for each parameter. */
static atom_status declare_state(file_st_writer *w, const train_checkpoint *c, uint32_t *slots)
{
    uint32_t n = kinds_of(c), declared = 0;
    atom_status st = ATOM_OK;
    char name[128];
    for (uint32_t i = 0; st == ATOM_OK && i < n * c->g->n_params; i++) {
        const graph_param *p = &c->g->params[i / n];
        const char *kind = kind_name(c->g, p, i % n);
        if (!kind)
            continue;
        uint64_t dims[GRAPH_RANK_MAX];
        for (int d = 0; d < p->rank; d++)
            dims[d] = (uint64_t)p->dims[d];
        slots[declared++] = i;
        snprintf(name, sizeof name, "%s.%s", kind, p->name);
        bool half = dtype_of(c, i % n) == ATOM_BF16;
        st = file_st_declare(w, name, half ? FILE_BF16 : FILE_F32, p->rank, dims);
    }
    return st;
}

/* n numbers at band, made narrower in place; they are bf16's already. */
static void narrow(float *band, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        atom_bf16 half = atom_f32_to_bf16(band[i]);
        memcpy((char *)band + i * sizeof half, &half, sizeof half);
    }
}

static atom_status write_moment(file_st_writer *w, const graph_param *p, file_vector from,
                                atom_dtype dtype, float *band)
{
    for (uint64_t at = 0, some; at < p->elements; at += some) {
        some = p->elements - at < BAND_ELEMENTS ? p->elements - at : BAND_ELEMENTS;
        ATOM_TRY(from.get(from.ctx, p->offset + at, some, band));
        if (dtype == ATOM_BF16)
            narrow(band, some);
        ATOM_TRY(file_st_write(w, band, some * atom_dtype_bytes(dtype)));
        file_vector_done(from, p->offset + at, some);
    }
    return ATOM_OK;
}

static atom_status write_moments(const char *dir, const train_checkpoint *c)
{
    const file_vector from[3] = {c->m, c->v, c->master};
    file_st_writer *w = NULL;
    uint32_t i, n = kinds_of(c);
    atom_status st;
    float *band = atom_alloc(BAND_ELEMENTS, sizeof *band);
    uint32_t *slots = atom_alloc((size_t)n * c->g->n_params, sizeof *slots);
    char *path = atom_path_join(dir, "optimizer.safetensors");
    if (!path || !band || !slots)
        ATOM_TRY_CLEAN(atom_fail_memory("a checkpoint", BAND_ELEMENTS * sizeof *band));
    ATOM_TRY_CLEAN(file_st_create(path, &w));
    file_st_into(w, c->m.sink);
    ATOM_TRY_CLEAN(declare_state(w, c, slots));
    ATOM_TRY_CLEAN(file_st_begin(w));
    while (file_st_next(w, &i)) {
        uint32_t kind = slots[i] % n;
        ATOM_TRY_CLEAN(
            write_moment(w, &c->g->params[slots[i] / n], from[kind], dtype_of(c, kind), band));
    }
    ATOM_TRY_CLEAN(file_st_finish(w));
cleanup:
    file_st_writer_close(&w);
    atom_free(slots);
    atom_free(band);
    atom_free(path);
    return st;
}

static bool has_shape(const file_tensor *t, const graph_param *p)
{
    bool same = t->rank == (uint32_t)p->rank;
    for (int d = 0; same && d < p->rank; d++)
        same = t->dims[d] == (uint64_t)p->dims[d];
    return same;
}

/* No step leaves others behind: they would make the weights NaN in the next one. */
static bool can_be(uint32_t kind, const float *band, uint64_t n)
{
    bool good = true;
    for (uint64_t i = 0; i < n; i++)
        good &= kind == KIND_V ? band[i] >= 0 : fabsf(band[i]) <= FLT_MAX;
    return good;
}

static atom_status read_moment(const file_safetensors *file, const graph *g, const graph_param *p,
                               uint32_t which, file_vector to, float *band)
{
    const char *kind = kind_name(g, p, which);
    char name[128];
    if (!kind)
        return ATOM_OK;
    snprintf(name, sizeof name, "%s.%s", kind, p->name);
    const file_tensor *t = file_st_find(file, name);
    if (!t || !has_shape(t, p))
        return atom_fail(ATOM_E_FORMAT,
                         "%s: tensor %s is missing or has another shape; this is not the optimizer "
                         "state of this model",
                         file->path, name);
    for (uint64_t at = 0, some; at < p->elements; at += some) {
        some = p->elements - at < BAND_ELEMENTS ? p->elements - at : BAND_ELEMENTS;
        ATOM_TRY(file_st_read_f32(file, t, at, some, band));
        if (!can_be(which, band, some))
            return atom_fail(ATOM_E_FORMAT,
                             "%s: tensor %s has values that no step leaves behind (%s); the file "
                             "is damaged: copy it again, or resume from another checkpoint",
                             file->path, name,
                             which == KIND_V ? "not a number, or negative" : "not finite");
        ATOM_TRY(to.put(to.ctx, p->offset + at, some, band));
    }
    return ATOM_OK;
}

/* Of another model there may be all of this one's, and more. */
static atom_status check_number(const file_safetensors *file, const train_checkpoint *c,
                                bool masters)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < KINDS * c->g->n_params; i++) {
        bool here = i % KINDS != KIND_MASTER || masters;
        n += here && kind_name(c->g, &c->g->params[i / KINDS], i % KINDS);
    }
    if (file->n_tensors <= n) /* else what is missing is named as it is read */
        return ATOM_OK;
    return atom_fail(ATOM_E_FORMAT,
                     "%s has %u tensors, but the optimizer state of this model has %u; it belongs "
                     "to another model",
                     file->path, file->n_tensors, n);
}

/* Are the master weights here? */
static bool has_masters(const file_safetensors *file, const graph *g)
{
    char name[128];
    snprintf(name, sizeof name, "%s.%s", MASTER, g->params[0].name);
    return file_st_find(file, name) != NULL;
}

static atom_dtype moments_of(const file_safetensors *file, const graph *g)
{
    char name[128];
    for (uint32_t p = 0; p < g->n_params; p++) {
        const char *kind = kind_name(g, &g->params[p], KIND_M);
        snprintf(name, sizeof name, "%s.%s", kind ? kind : "", g->params[p].name);
        const file_tensor *t = kind ? file_st_find(file, name) : NULL;
        if (t)
            return t->dtype == FILE_BF16 ? ATOM_BF16 : ATOM_F32;
    }
    return ATOM_F32;
}

static atom_status read_adapter(const char *dir, train_checkpoint *c)
{
    file_adapter *a = NULL;
    atom_status st = file_adapter_open(dir, c->base, NULL, &a);
    if (st == ATOM_OK)
        st = file_adapter_put(a, c->g, c->master);
    file_adapter_close(&a);
    return st;
}

/* Moments, and master weights from here (*masters_here) or from model.safetensors. */
static atom_status read_vectors(const char *dir, train_checkpoint *c, bool *masters_here)
{
    file_safetensors *file = NULL;
    atom_status st;
    float *band = atom_alloc(BAND_ELEMENTS, sizeof *band);
    char *path = atom_path_join(dir, "optimizer.safetensors");
    if (!path || !band)
        ATOM_TRY_CLEAN(atom_fail_memory("a checkpoint", BAND_ELEMENTS * sizeof *band));
    ATOM_TRY_CLEAN(file_st_open(path, &file));
    bool masters = *masters_here = has_masters(file, c->g);
    c->moments = moments_of(file, c->g);
    ATOM_TRY_CLEAN(check_number(file, c, masters));
    if (c->base)
        ATOM_TRY_CLEAN(read_adapter(dir, c));
    else if (!masters)
        ATOM_TRY_CLEAN(file_weights_read_to(dir, c->g, c->master));
    ATOM_TRY_CLEAN(file_st_through(file, c->m.source)); /* after those: there is one window */
    for (uint32_t p = 0; p < c->g->n_params; p++) {
        const graph_param *param = &c->g->params[p];
        ATOM_TRY_CLEAN(read_moment(file, c->g, param, KIND_M, c->m, band));
        ATOM_TRY_CLEAN(read_moment(file, c->g, param, KIND_V, c->v, band));
        if (masters)
            ATOM_TRY_CLEAN(read_moment(file, c->g, param, KIND_MASTER, c->master, band));
    }
cleanup:
    file_st_close(&file);
    atom_free(band);
    atom_free(path);
    return st;
}

/* --- marks ----------------------------------------------------------------------------------- */

/* Of the three vectors, while they are saved or loaded. */
typedef struct marks {
    train_mark *master, *m, *v;
} marks;

static void marks_close(marks *all)
{
    train_mark_close(&all->master);
    train_mark_close(&all->m);
    train_mark_close(&all->v);
}

/* From here on c's vectors are watched. */
static atom_status marks_open(train_checkpoint *c, marks *all)
{
    *all = (marks){0};
    atom_status st = train_mark_open(c->g, &all->master);
    if (st == ATOM_OK)
        st = train_mark_open(c->g, &all->m);
    if (st == ATOM_OK)
        st = train_mark_open(c->g, &all->v);
    if (st != ATOM_OK) {
        marks_close(all);
        return st;
    }
    c->master = train_mark_over(all->master, c->master);
    c->m = train_mark_over(all->m, c->m);
    c->v = train_mark_over(all->v, c->v);
    return ATOM_OK;
}

static uint64_t moments_mark(const marks *all)
{
    uint64_t both[2] = {train_mark_hash(all->m), train_mark_hash(all->v)};
    return atom_hash(ATOM_HASH_SEED, both, sizeof both);
}

static train_sum both(train_sum m, train_sum v)
{
    return (train_sum){m.n + v.n, m.sum ^ (v.sum << 1 | v.sum >> 63)};
}

/* A sum of fewer or more numbers was made in another way, and says nothing. */
static bool differs(train_sum saved, train_sum now)
{
    return saved.n == now.n && saved.sum != now.sum;
}

/* Are all numbers those that were saved here? */
static atom_status check_sums(const char *path, const train_checkpoint *c, const marks *all,
                              const char *weights)
{
    const train_state *s = &c->state;
    train_sum moments = both(train_mark_put(all->m), train_mark_put(all->v));
    bool damaged = differs(s->moments_sum, moments);
    if (!damaged && !differs(s->weights_sum, train_mark_put(all->master)))
        return ATOM_OK;
    return atom_fail(
        ATOM_E_FORMAT,
        "%s: numbers in %s changed since they were saved after step %" PRId64
        " (their checksum is another one); if the disk or a copy damaged them, copy the "
        "whole checkpoint again; if they were changed on purpose, start a new run from "
        "its weights with --%s %s",
        path, damaged ? "optimizer.safetensors" : weights, s->step, c->base ? "adapter" : "model",
        path);
}

/* Each file is fine by itself, but is it the one that was saved here? */
static atom_status check_marks(const char *path, const train_checkpoint *c, const marks *all,
                               bool masters_here)
{
    const train_state *s = &c->state;
    const char *weights = masters_here ? "optimizer.safetensors"
                          : c->base    ? "adapter_model.safetensors"
                                       : "the model's weights";
    bool known = s->weights_mark && s->moments_mark;
    bool moments = known && moments_mark(all) != s->moments_mark;
    if (!moments && (!known || train_mark_hash(all->master) == s->weights_mark))
        return check_sums(path, c, all, weights);
    return atom_fail(ATOM_E_FORMAT,
                     "%s: %s %s not what was saved there after step %" PRId64 ", but of another "
                     "step or run, or changed since; copy the whole checkpoint again, or start a "
                     "new run from its weights with --%s %s",
                     path, moments ? "optimizer.safetensors" : weights,
                     moments || masters_here || c->base ? "is" : "are", s->step,
                     c->base ? "adapter" : "model", path);
}

/* --- the whole ------------------------------------------------------------------------------- */

/* NULL where dir is NULL or has no tokenizer.json. */
static atom_status load_tokenizer(const char *dir, text_tokenizer **out)
{
    char *path = dir ? atom_path_join(dir, "tokenizer.json") : NULL;
    atom_status st = ATOM_OK;
    if (dir && !path)
        st = atom_fail_memory("a path", strlen(dir));
    else if (dir && atom_path_exists(path))
        st = text_tokenizer_load(path, out);
    atom_free(path);
    return st;
}

/* The data's tokenizer; where the model that training started from has the same one, or the data
 * has none, the model's own files. Its settings for generation are about ids, which mean the same in both. */
static atom_status write_tokenizer(const char *dir, const train_checkpoint *c)
{
    text_tokenizer *data = NULL, *model = NULL;
    atom_status st;
    ATOM_TRY_CLEAN(load_tokenizer(c->data, &data));
    if (load_tokenizer(c->model_dir, &model) != ATOM_OK)
        model = NULL; /* one that atom cannot read is not the data's */
    if (data)
        ATOM_TRY_CLEAN(text_tokenizer_save_model(data, dir));
    if (c->model_dir && (!data || (model && text_tokenizer_equal(data, model))))
        ATOM_TRY_CLEAN(file_model_copy(c->model_dir, dir));
    else if (model && text_tokenizer_agrees(data, model))
        ATOM_TRY_CLEAN(file_model_copy_one(c->model_dir, dir, "generation_config.json"));
    if (data) /* the template that the data's chats were made with */
        ATOM_TRY_CLEAN(file_model_copy_one(c->data, dir, "chat_template.jinja"));
cleanup:
    text_tokenizer_close(&data);
    text_tokenizer_close(&model);
    return st;
}

static atom_status write_pool(const char *dir, const char *text)
{
    char *path = text ? atom_path_join(dir, "pool.json") : NULL;
    atom_status st = ATOM_OK;
    if (text)
        st = path ? atom_file_write(path, text, strlen(text)) : atom_fail_memory("a path", 256);
    atom_free(path);
    return st;
}

/* What others load: the model, or the adapters of one. */
static atom_status write_weights(const char *dir, const train_checkpoint *c)
{
    atom_status st = ATOM_OK;
    file_vector master = c->master;
    bool last = kinds_of(c) == 2; /* nobody asks for masters after this */
    if (!last)
        master.done = NULL;
    if (c->base) {
        ATOM_TRY_CLEAN(file_lora_write(dir, c->lora, c->base, c->g, master));
    } else {
        ATOM_TRY_CLEAN(file_config_write_as(dir, c->config, c->source, &c->ends, c->dtype));
        ATOM_TRY_CLEAN(file_weights_write_as(dir, c->g, master, c->dtype, FILE_SHARD_BYTES));
    }
cleanup:
    if (last)
        file_vector_done(c->master, 0, UINT64_MAX);
    return st;
}

static atom_status write_all(const char *dir, const train_checkpoint *c, const marks *all)
{
    ATOM_TRY(atom_dir_make(dir));
    ATOM_TRY(write_weights(dir, c));
    if (kinds_of(c) == KINDS) /* those that are resumed from come now */
        train_mark_again(all->master);
    ATOM_TRY(write_tokenizer(dir, c));
    ATOM_TRY(write_moments(dir, c));
    ATOM_TRY(train_trainer_state_write(dir, &c->state));
    return write_pool(dir, c->pool);
}

static atom_status write_marked(const char *dir, const train_checkpoint *c)
{
    train_checkpoint watched = *c;
    marks all;
    ATOM_TRY(marks_open(&watched, &all));
    atom_status st = write_all(dir, &watched, &all);
    watched.state.weights_mark = train_mark_hash(all.master);
    watched.state.moments_mark = moments_mark(&all);
    watched.state.weights_sum = train_mark_got(all.master);
    watched.state.moments_sum = both(train_mark_got(all.m), train_mark_got(all.v));
    marks_close(&all);
    /* It comes last: it says that the rest is there, and its writing syncs the directory. */
    return st == ATOM_OK ? train_state_write(dir, "atom_state.json", &watched.state) : st;
}

/* Gives the new checkpoint its name. One that has it already changes places with it, and goes when that is on the
 * disk: whenever the process is killed, one of them is there. Not every file system can do that. */
static atom_status put_in_place(const char *output_dir, const char *temporary, const char *final)
{
    if (renameat2(AT_FDCWD, temporary, AT_FDCWD, final, RENAME_EXCHANGE) == 0) {
        ATOM_TRY(atom_dir_sync(output_dir));
        return atom_dir_remove(temporary);
    }
    ATOM_TRY(atom_dir_remove(final));
    if (rename(temporary, final) < 0)
        return atom_fail_errno(errno, "cannot rename %s", temporary);
    return atom_dir_sync(output_dir);
}

atom_status train_checkpoint_save(const char *output_dir, const train_checkpoint *c, int64_t limit,
                                  char **path)
{
    atom_status st;
    char *final = train_checkpoint_path(output_dir, c->state.step, false);
    char *temporary = train_checkpoint_path(output_dir, c->state.step, true);
    if (!final || !temporary)
        ATOM_TRY_CLEAN(atom_fail_memory("a path", 256));
    train_checkpoints_tidy(output_dir);
    ATOM_TRY_CLEAN(atom_dir_remove(temporary));
    st = write_marked(temporary, c);
    if (st != ATOM_OK) {
        char keep[1024];
        snprintf(keep, sizeof keep, "%s", atom_fail_message());
        if (atom_dir_remove(temporary) != ATOM_OK)
            atom_log(ATOM_LOG_WARN, "%s could not be removed", temporary);
        st = atom_fail(st, "checkpoint of step %" PRId64 " was not saved: %s", c->state.step, keep);
        goto cleanup;
    }
    ATOM_TRY_CLEAN(put_in_place(output_dir, temporary, final));
    train_checkpoints_limit(output_dir, limit, c->state.step);
    *path = final;
    atom_free(temporary);
    return ATOM_OK;
cleanup:
    atom_free(temporary);
    atom_free(final);
    return st;
}

static atom_status not_a_checkpoint(const char *path)
{
    char *newest = NULL;
    ATOM_TRY(train_checkpoint_newest(path, &newest));
    atom_status st =
        newest ? atom_fail(ATOM_E_USAGE,
                           "%s is the directory of a run; name one of its checkpoints, such as %s",
                           path, newest)
               : atom_fail(ATOM_E_USAGE,
                           "%s is not a checkpoint of atom (no atom_state.json); to start from its "
                           "weights use --model %s",
                           path, path);
    atom_free(newest);
    return st;
}

atom_status train_checkpoint_load(const char *path, train_checkpoint *c)
{
    train_checkpoint watched = *c;
    marks all = {0};
    bool masters_here = false;
    atom_status st;
    char *state = atom_path_join(path, "atom_state.json");
    if (!state)
        return atom_fail_memory("a path", 256);
    if (!atom_path_exists(state))
        ATOM_TRY_CLEAN(not_a_checkpoint(path));
    ATOM_TRY_CLEAN(train_state_read(state, &watched.state));
    ATOM_TRY_CLEAN(marks_open(&watched, &all));
    ATOM_TRY_CLEAN(read_vectors(path, &watched, &masters_here));
    ATOM_TRY_CLEAN(check_marks(path, &watched, &all, masters_here));
    c->moments = watched.moments;
    c->state = watched.state;
    c->state.weights_sum = c->state.moments_sum = (train_sum){0};
    c->state.weights_mark = c->state.moments_mark = 0; /* of those files, not of this run */
cleanup:
    marks_close(&all);
    atom_free(state);
    return st;
}
