/*
 * Owns `atom export`: a model directory in, what another program reads out. One idea: the weights
 * are a vector that lies in the files that are read, and the writers take it piece by piece, both
 * through the disk's queues. Refuses directories without weights, and to write over anything that
 * it was not told to.
 */
#include "atom/export/export.h"

#include "atom/base/files.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"
#include "atom/file/ggufmodel.h"
#include "atom/file/llmc.h"
#include "atom/plan/source.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What is exported: a directory with weights, checked, and the LoRA adapter that is merged into
 * them, or NULL. It stays where it was opened. */
typedef struct export_source {
    file_source from; /* how large files are read, and written */
    file_sink to;
    file_model model;
    graph *g;
    file_weights *weights;
    file_adapter *adapter; /* of the model; or NULL */
    file_vector merged;    /* the weights, with the adapter merged in */
    bool warned;           /* of weights that are not finite */
} export_source;

static void warn_of(const export_source *s, uint64_t element)
{
    const char *name = "?";
    for (uint32_t i = 0; i < s->g->n_params; i++)
        if (s->g->params[i].offset <= element)
            name = s->g->params[i].name;
    atom_log(ATOM_LOG_WARN,
             "%s: '%s' has values that are not finite, and they are exported as they are; such a "
             "model produces nothing sensible",
             s->model.dir, name);
}

static atom_status watched_get(void *ctx, uint64_t first, uint64_t n, float *to)
{
    export_source *s = ctx;
    ATOM_TRY(s->merged.get(s->merged.ctx, first, n, to));
    for (uint64_t i = 0; i < n && !s->warned; i++) {
        s->warned = !isfinite(to[i]);
        if (s->warned)
            warn_of(s, first + i);
    }
    return ATOM_OK;
}

static void watched_done(void *ctx, uint64_t first, uint64_t n)
{
    const export_source *s = ctx;
    file_vector_done(s->merged, first, n);
}

/* After a failure, too, it must be closed. */
static atom_status source_open(const char *dir, const char *adapter, export_source *source)
{
    *source = (export_source){.from = plan_file_source(NULL), .to = plan_file_sink(NULL)};
    ATOM_TRY(file_model_resolve(dir, &source->model));
    if (!source->model.has_weights)
        return atom_fail(ATOM_E_USAGE,
                         "model '%s' has no weights; name a directory with model.safetensors", dir);
    if (adapter) {
        atom_free(source->model.adapter);
        source->model.adapter = atom_strdup(adapter);
        if (!source->model.adapter)
            return atom_fail_memory("a path", strlen(adapter));
        ATOM_TRY(file_adapter_warn(adapter, source->model.dir));
    }
    ATOM_TRY(file_adapter_untie(source->model.adapter, &source->model.config));
    ATOM_TRY(graph_model_build(&source->model.config, ATOM_F32, 1, 1, &source->g));
    ATOM_TRY(file_weights_open(source->model.dir, source->g, &source->from, &source->weights));
    source->model.config.tied_files = false; /* of what is written: head and embedding differ */
    if (source->model.adapter)
        ATOM_TRY(file_adapter_open(source->model.adapter, source->g, source->model.dir,
                                   &source->adapter));
    return source->adapter ? file_adapter_measure(source->adapter, source->model.dir) : ATOM_OK;
}

/* The weights as they are written; the first that is not finite is told. */
static file_vector source_vector(export_source *s)
{
    file_vector weights = file_weights_vector(s->weights);
    weights.sink = &s->to;
    s->merged = s->adapter ? file_adapter_over(s->adapter, weights) : weights;
    return (file_vector){.ctx = s,
                         .get = watched_get,
                         .done = watched_done,
                         .source = s->merged.source,
                         .sink = s->merged.sink};
}

static void source_close(export_source *source)
{
    file_adapter_close(&source->adapter);
    file_weights_close(&source->weights);
    graph_close(&source->g);
    file_model_free(&source->model);
}

/* real: the path, or where its links lead. A device must not become a file, nor a link what it led to. */
static atom_status check_output(const char *path, bool replace, char real[PATH_MAX])
{
    struct stat s;
    if (snprintf(real, PATH_MAX, "%s", path) >= PATH_MAX)
        return atom_fail(ATOM_E_USAGE, "%.64s...: the path is too long", path);
    if (stat(path, &s) != 0)
        return ATOM_OK;
    if (S_ISDIR(s.st_mode))
        return atom_fail(ATOM_E_USAGE, "%s is a directory; give the name of a file", path);
    if (!S_ISREG(s.st_mode))
        return atom_fail(ATOM_E_USAGE, "%s is not an ordinary file; name another file", path);
    if (!replace)
        return atom_fail(ATOM_E_USAGE, "%s already exists; name another file, or use --overwrite",
                         path);
    return realpath(path, real) ? ATOM_OK : atom_fail_errno(errno, "%s", path);
}

/* --- gguf ------------------------------------------------------------------------------------ */

/* An adapter's own tokenizer goes first. */
static atom_status put_tokenizer(file_gguf *w, const file_model *model)
{
    const char *dir = file_lora_tokenizer_dir(model);
    bool any;
    if (model->kind != FILE_MODEL_GGUF || dir != model->dir)
        return export_tokens(w, dir, model->source, model->config.vocab_size);
    ATOM_TRY(export_tokens_copy(w, dir, &any));
    if (!any)
        atom_log(ATOM_LOG_WARN, "%s has no tokenizer, so the file will contain none", dir);
    return ATOM_OK;
}

static void warn_of_gelu(const graph_config *c)
{
    if (graph_family_traits(c->family)->neox && !c->tanh_gelu)
        atom_log(
            ATOM_LOG_WARN,
            "llama.cpp computes the GELU of %s models by its tanh form, which differs from this "
            "model's exact one by up to 0.0005",
            graph_family_name(c->family));
}

/* llama.cpp reads the key only of families that have windows in some layers. */
static void warn_of_window(const graph_config *c)
{
    if (c->window > 0 && c->window < c->positions &&
        graph_family_traits(c->family)->windows != GRAPH_WINDOW_MOST)
        atom_log(
            ATOM_LOG_WARN,
            "llama.cpp does not use the window of %lld tokens (sliding_window) of %s models; in "
            "longer texts each token sees all before it there, as it did not in training",
            (long long)c->window, graph_family_name(c->family));
}

atom_status export_gguf(const char *dir, const char *adapter, file_gguf_type type, const char *path,
                        bool replace)
{
    export_source s;
    file_gguf *w = NULL;
    char real[PATH_MAX];
    atom_status st = ATOM_OK;
    ATOM_TRY(check_output(path, replace, real));
    ATOM_TRY_CLEAN(source_open(dir, adapter, &s));
    const file_model *model = &s.model;
    ATOM_TRY_CLEAN(file_gguf_create(real, &s.to, &w));
    ATOM_TRY_CLEAN(file_gguf_put_model(w, &model->config, type));
    warn_of_window(&model->config);
    warn_of_gelu(&model->config);
    ATOM_TRY_CLEAN(put_tokenizer(w, model));
    ATOM_TRY_CLEAN(file_gguf_put_tensors(w, &model->config, s.g, type, source_vector(&s)));
    ATOM_TRY_CLEAN(file_gguf_finish(w));
cleanup:
    file_gguf_close(&w);
    source_close(&s);
    return st;
}

/* --- llmc ------------------------------------------------------------------------------------ */

atom_status export_llmc(const char *dir, const char *adapter, atom_dtype dtype, const char *path,
                        bool replace)
{
    export_source s;
    char real[PATH_MAX];
    atom_status st = ATOM_OK;
    ATOM_TRY(check_output(path, replace, real));
    ATOM_TRY_CLEAN(source_open(dir, adapter, &s));
    ATOM_TRY_CLEAN(file_llmc_check(dir, &s.model.config));
    dtype = dtype == ATOM_DTYPE_N ? file_weights_dtype(s.weights) : dtype;
    ATOM_TRY_CLEAN(file_llmc_write(real, &s.model.config, s.g, source_vector(&s), dtype));
cleanup:
    source_close(&s);
    return st;
}

/* --- hf -------------------------------------------------------------------------------------- */

/* A GGUF file's chat template, if it has one, as a file of its own. */
static atom_status write_template(const char *gguf, const char *dir)
{
    char *jinja = NULL, *path = atom_path_join(dir, "chat_template.jinja");
    atom_status st = path ? import_template(gguf, &jinja) : atom_fail_memory("a path", strlen(dir));
    if (st == ATOM_OK && jinja)
        st = atom_file_write(path, jinja, strlen(jinja));
    atom_free(jinja);
    atom_free(path);
    return st;
}

/* What stands beside the weights: files, or in a GGUF file its tokenizer. */
static atom_status write_tokenizer(const file_model *model, const char *dir)
{
    text_tokenizer *tokenizer = NULL;
    if (model->kind != FILE_MODEL_GGUF)
        return file_model_copy(model->dir, dir);
    atom_status st;
    ATOM_TRY_CLEAN(import_tokenizer(model->dir, &tokenizer));
    if (tokenizer)
        ATOM_TRY_CLEAN(text_tokenizer_save_model(tokenizer, dir));
    if (tokenizer)
        ATOM_TRY_CLEAN(write_template(model->dir, dir));
    else
        atom_log(ATOM_LOG_WARN, "%s has no tokenizer; the directory gets no tokenizer.json",
                 model->dir);
cleanup:
    text_tokenizer_close(&tokenizer);
    return st;
}

static atom_status write_directory(export_source *s, atom_dtype dtype, uint64_t shard_bytes,
                                   const char *dir)
{
    ATOM_TRY(atom_dir_make(dir));
    ATOM_TRY(file_weights_write_as(dir, s->g, source_vector(s), dtype, shard_bytes));
    ATOM_TRY(file_config_write_as(dir, &s->model.config, s->model.source, NULL, dtype));
    ATOM_TRY(write_tokenizer(&s->model, dir));
    if (s->model.adapter && file_lora_tokenizer_dir(&s->model) == s->model.adapter)
        ATOM_TRY(file_model_copy(s->model.adapter, dir));
    return atom_dir_sync(dir);
}

static bool is_empty(const char *path)
{
    DIR *dir = opendir(path);
    int entries = 0;
    while (dir && entries <= 2 && readdir(dir))
        entries++;
    if (dir)
        closedir(dir);
    return dir && entries <= 2; /* "." and ".." */
}

/* Nothing, or an empty directory that can give way when all is written: none that something is mounted on. */
static atom_status check_free(const char *output, const char *temporary)
{
    struct stat is, beside;
    if (lstat(output, &is) != 0)
        return ATOM_OK;
    if (!S_ISDIR(is.st_mode) || !is_empty(output))
        return atom_fail(ATOM_E_USAGE, "%s already exists; name a directory that does not", output);
    if (stat(temporary, &beside) == 0 && beside.st_dev != is.st_dev)
        return atom_fail(ATOM_E_USAGE,
                         "%s has a file system of its own, so nothing can take its place; name a "
                         "directory inside it",
                         output);
    return ATOM_OK;
}

/* An empty directory gives way; anything else stays. */
static atom_status move_over(const char *temporary, const char *output)
{
    if (rename(temporary, output) == 0)
        return ATOM_OK;
    if (errno == ENOTEMPTY || errno == EEXIST || errno == ENOTDIR)
        return atom_fail(ATOM_E_USAGE, "%s already exists; name a directory that does not", output);
    return atom_fail_errno(errno, "cannot rename %s to %s", temporary, output);
}

/* The directory under its temporary name, locked; it may have what a killed export left there. */
static atom_status open_temporary(const char *temporary, const char *output, int *lock)
{
    int64_t holder = 0;
    ATOM_TRY(atom_dir_make(temporary));
    ATOM_TRY(atom_dir_lock(temporary, lock, &holder));
    if (*lock < 0)
        return atom_fail(ATOM_E_USAGE,
                         "%s is being written by another process (%" PRId64
                         "); wait until that has ended, or name another directory",
                         output, holder);
    struct stat named, locked;
    if (stat(temporary, &named) != 0 || fstat(*lock, &locked) != 0 ||
        named.st_ino != locked.st_ino) /* whoever held the lock has renamed it */
        return atom_fail(ATOM_E_USAGE, "%s was just written by another process", output);
    return ATOM_OK;
}

/* Leaves nothing of a directory that failed; the message stays. */
static atom_status give_up(const char *temporary, atom_status st)
{
    char keep[1024];
    snprintf(keep, sizeof keep, "%s", atom_fail_message());
    if (atom_dir_remove(temporary) != ATOM_OK)
        atom_log(ATOM_LOG_WARN, "%s could not be removed", temporary);
    return atom_fail(st, "%s", keep);
}

atom_status export_directory(const char *output, export_fill *fill, void *context)
{
    char *temporary = NULL;
    size_t n = strlen(output);
    int lock = -1;
    atom_status st;
    while (n > 1 && output[n - 1] == '/')
        n--;
    temporary = atom_format("%.*s.atom-tmp", (int)n, output);
    if (!temporary)
        return atom_fail_memory("a path", n);
    ATOM_TRY_CLEAN(check_free(output, output));
    ATOM_TRY_CLEAN(open_temporary(temporary, output, &lock));
    st = atom_dir_empty(temporary);
    st = st == ATOM_OK ? check_free(output, temporary) : st;
    st = st == ATOM_OK ? fill(context, temporary) : st;
    st = st == ATOM_OK ? move_over(temporary, output) : st;
    if (st != ATOM_OK)
        st = give_up(temporary, st);
cleanup:
    if (lock >= 0)
        close(lock);
    atom_free(temporary);
    return st;
}

typedef struct hf_job {
    export_source source;
    atom_dtype dtype;
    uint64_t shard_bytes;
} hf_job;

static atom_status fill_hf(void *context, const char *dir)
{
    hf_job *job = context;
    return write_directory(&job->source, job->dtype, job->shard_bytes, dir);
}

atom_status export_hf(const char *dir, const char *adapter, atom_dtype dtype, uint64_t shard_bytes,
                      const char *output)
{
    hf_job job = {.dtype = dtype, .shard_bytes = shard_bytes};
    atom_status st;
    ATOM_TRY_CLEAN(source_open(dir, adapter, &job.source));
    if (dtype == ATOM_DTYPE_N)
        job.dtype = file_weights_dtype(job.source.weights);
    if (job.source.model.config.bottlenecks.n)
        atom_log(ATOM_LOG_WARN,
                 "the model has bottlenecks between blocks, so only atom can read %s; "
                 "transformers does not know such models",
                 output);
    ATOM_TRY_CLEAN(export_directory(output, fill_hf, &job));
cleanup:
    source_close(&job.source);
    return st;
}
