/*
 * Owns model files of llm.c on their way out. One idea: a fixed header, then tensors by kind, each
 * kind with all its layers in a row, as a table says. Refuses models that llm.c would run with
 * other mathematics: it has numbers for sizes only.
 */
#include "atom/file/llmc.h"

#include "atom/base/assert.h"
#include "atom/base/files.h"
#include "atom/base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MAGIC = 20240326, VERSION_F32 = 3, VERSION_BF16 = 5, HEADER_INTS = 256, PAD_ROWS = 128 };
enum { BAND = 1 << 18 };

typedef struct writer {
    const graph *g;
    file_vector vector;
    bool narrow; /* BF16 */
    FILE *file;
    void *writer; /* of the vector's sink; NULL: plain writes */
    float *band;
    const char *path;
} writer;

static const char *const layer_names[] = {
    "ln_1.weight",        "ln_1.bias",        "attn.c_attn.weight", "attn.c_attn.bias",
    "attn.c_proj.weight", "attn.c_proj.bias", "ln_2.weight",        "ln_2.bias",
    "mlp.c_fc.weight",    "mlp.c_fc.bias",    "mlp.c_proj.weight",  "mlp.c_proj.bias",
};

atom_status file_llmc_check(const char *what, const graph_config *c)
{
    if (c->family != GRAPH_GPT2)
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "%s: llm.c's model files are for gpt2, but this "
                         "model is %s",
                         what, graph_family_name(c->family));
    if (c->untied)
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "%s: the head has its own weights (tie_word_embeddings false), but "
                         "llm.c's model files have one matrix for head and embedding; export it "
                         "to hf or gguf",
                         what);
    if (c->bottlenecks.n)
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "%s: the model has bottlenecks between blocks (atom_bottlenecks), which "
                         "llm.c's model files cannot hold",
                         what);
    if (c->inner != 4 * c->width)
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "%s: n_inner is %lld, but llm.c's files do not store it: there it is "
                         "always 4 * n_embd",
                         what, (long long)c->inner);
    if (c->epsilon < 1e-5f || c->epsilon > 1e-5f)
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "%s: layer_norm_epsilon is %g, but llm.c's files do not store it: there "
                         "it is always 1e-5",
                         what, (double)c->epsilon);
    if (c->vocab_size > INT32_MAX - PAD_ROWS || c->positions > INT32_MAX)
        return atom_fail(ATOM_E_UNSUPPORTED, "%s: too large for llm.c's header", what);
    return ATOM_OK;
}

static int64_t padded(int64_t rows)
{
    return (rows + PAD_ROWS - 1) / PAD_ROWS * PAD_ROWS;
}

static atom_status write_bytes(const writer *w, const void *data, size_t bytes)
{
    if (w->writer)
        return w->vector.sink->write(w->writer, data, bytes);
    if (bytes == 0 || fwrite(data, bytes, 1, w->file) == 1)
        return ATOM_OK;
    return atom_fail_errno(errno ? errno : EIO, "cannot write %s", w->path);
}

/* n numbers at w->band, made narrower in place where the file is. */
static atom_status put(const writer *w, uint64_t n)
{
    char *narrow = (char *)w->band;
    for (uint64_t i = 0; w->narrow && i < n; i++) {
        atom_bf16 half = atom_f32_to_bf16(w->band[i]);
        memcpy(narrow + i * sizeof half, &half, sizeof half);
    }
    return write_bytes(w, w->band, (size_t)(n * (w->narrow ? sizeof(atom_bf16) : sizeof(float))));
}

static atom_status put_zeros(const writer *w, uint64_t n)
{
    atom_status st = ATOM_OK;
    for (uint64_t some; n && st == ATOM_OK; n -= some) {
        some = n < BAND ? n : BAND;
        memset(w->band, 0, (size_t)some * sizeof *w->band);
        st = put(w, some);
    }
    return st;
}

static atom_status put_param(const writer *w, const char *name)
{
    uint32_t i = 0;
    while (i < w->g->n_params && strcmp(w->g->params[i].name, name) != 0)
        i++;
    ATOM_ASSERT(i < w->g->n_params);
    const graph_param *p = &w->g->params[i];
    for (uint64_t at = 0, some; at < p->elements; at += some) {
        some = p->elements - at < BAND ? p->elements - at : BAND;
        ATOM_TRY(w->vector.get(w->vector.ctx, p->offset + at, some, w->band));
        ATOM_TRY(put(w, some));
    }
    return ATOM_OK;
}

/* Of the whole file: what the vector has but for padding, and rows of the embedding. */
static uint64_t file_bytes(const writer *w, const graph_config *c)
{
    uint64_t n = (uint64_t)((padded(c->vocab_size) - c->vocab_size) * c->width);
    for (uint32_t i = 0; i < w->g->n_params; i++)
        n += w->g->params[i].elements;
    return HEADER_INTS * sizeof(int32_t) + n * (w->narrow ? sizeof(atom_bf16) : sizeof(float));
}

static atom_status put_all(const writer *w, const graph_config *c)
{
    const int32_t header[HEADER_INTS] = {
        MAGIC,
        w->narrow ? VERSION_BF16 : VERSION_F32,
        (int32_t)c->positions,
        (int32_t)c->vocab_size,
        (int32_t)c->layers,
        (int32_t)c->heads,
        (int32_t)c->width,
        (int32_t)padded(c->vocab_size),
    };
    char name[GRAPH_NAME_MAX];
    atom_status st = ATOM_OK;
    ATOM_TRY(write_bytes(w, header, sizeof header));
    ATOM_TRY(put_param(w, "wte.weight"));
    ATOM_TRY(put_zeros(w, (uint64_t)((padded(c->vocab_size) - c->vocab_size) * c->width)));
    ATOM_TRY(put_param(w, "wpe.weight"));
    for (size_t k = 0; k < sizeof layer_names / sizeof layer_names[0]; k++) {
        for (int64_t layer = 0; layer < c->layers; layer++) {
            snprintf(name, sizeof name, "h.%lld.%s", (long long)layer, layer_names[k]);
            ATOM_TRY(put_param(w, name));
        }
    }
    ATOM_TRY(put_param(w, "ln_f.weight"));
    ATOM_TRY(put_param(w, "ln_f.bias"));
    if (w->writer)
        ATOM_TRY(w->vector.sink->finish(w->writer));
    if (fflush(w->file) != 0 || fsync(fileno(w->file)) < 0)
        st = atom_fail_errno(errno, "cannot write %s", w->path);
    return st;
}

/* The file's size is known, and its room taken, before anything is written. */
static atom_status write_temporary(writer *w, const graph_config *config, const char *temporary)
{
    const file_sink *sink = w->vector.sink;
    const uint64_t bytes = file_bytes(w, config);
    atom_status st = atom_fd_room(fileno(w->file), w->path, bytes);
    if (st == ATOM_OK && sink)
        st = sink->open(sink->ctx, temporary, fileno(w->file), bytes, &w->writer);
    if (st == ATOM_OK)
        st = put_all(w, config);
    if (w->writer)
        sink->close(w->writer);
    if (st == ATOM_OK && rename(temporary, w->path) < 0)
        st = atom_fail_errno(errno, "cannot rename %s to %s", temporary, w->path);
    if (st != ATOM_OK) /* while it is locked: it is ours */
        unlink(temporary);
    return st;
}

atom_status file_llmc_write(const char *path, const graph_config *config, const graph *g,
                            file_vector vector, atom_dtype dtype)
{
    writer w = {.g = g, .vector = vector, .narrow = dtype == ATOM_BF16, .path = path};
    char *temporary = NULL;
    int fd = -1;
    atom_status st = ATOM_OK;
    ATOM_TRY(file_llmc_check(path, config));
    temporary = atom_format("%s.tmp", path);
    w.band = atom_alloc(BAND, sizeof *w.band);
    if (!temporary || !w.band)
        ATOM_TRY_CLEAN(atom_fail_memory("a band of a tensor", BAND * sizeof *w.band));
    ATOM_TRY_CLEAN(atom_temporary_open(temporary, ATOM_TEMPORARY_MS, &fd));
    w.file = fdopen(fd, "wb");
    if (w.file) {
        st = write_temporary(&w, config, temporary);
        fclose(w.file); /* nothing is left to write */
    } else {
        unlink(temporary);
        close(fd);
        st = atom_fail_memory(temporary, 4096);
    }
cleanup:
    atom_free(temporary);
    atom_free(w.band);
    return st;
}
