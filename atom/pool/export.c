/*
 * Owns the way of a pool's certified weights to other programs. Its one idea: the anchor's files
 * are whole or not by their own hashes, so they can be read beside a member that writes them: what
 * was being replaced is read again. It refuses fragments of different states.
 */
#include "atom/pool/export.h"
#include "atom/pool/anchor.h"
#include "atom/pool/store.h"

#include "atom/base/files.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"
#include "atom/export/export.h"
#include "atom/file/hfdir.h"
#include "atom/file/peft.h"
#include "atom/graph/models.h"
#include "atom/train/config.h"
#include "gossip/pool/manifest.h"
#include "gossip/pool/pool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TRIES = 50, TRY_US = 100000 };

typedef struct job {
    gsp_manifest *manifest;
    pool_store store;
    uint64_t n_floats, longest; /* of the vector; of a fragment */
    file_model model;
    graph *g, *base; /* base: the model under adapters, of which g has some; or NULL */
    file_lora lora;
    char *files, *home; /* of the pool's files; of the run */
    atom_dtype dtype;
    uint64_t shard_bytes;
    int fd; /* the vector, in a file without a name */
    uint64_t epoch, version;
} job;

/* The newest epoch of which every fragment has a file; false: there is none. */
static bool find_epoch(job *j)
{
    bool found = false;
    for (uint32_t s = 0; s < 2; s++) {
        pool_header first;
        bool all = pool_file_header(&j->store, 0, s, &first);
        for (uint32_t f = 1; all && f < j->manifest->n_fragments; f++) {
            pool_header a, b;
            bool has_a = pool_file_header(&j->store, f, 0, &a);
            bool has_b = pool_file_header(&j->store, f, 1, &b);
            all = (has_a && a.epoch == first.epoch) || (has_b && b.epoch == first.epoch);
        }
        if (all && (!found || first.epoch > j->epoch)) {
            j->epoch = first.epoch;
            found = true;
        }
    }
    return found;
}

static bool newest_of(const job *j, uint32_t f, uint32_t *slot, pool_header *out)
{
    bool found = false;
    for (uint32_t s = 0; s < 2; s++) {
        pool_header h;
        if (!pool_file_header(&j->store, f, s, &h) || h.epoch != j->epoch ||
            (found && h.version <= out->version))
            continue;
        *out = h;
        *slot = s;
        found = true;
    }
    return found;
}

static atom_status put(int fd, uint64_t first, uint64_t n, const float *x)
{
    int error = atom_fd_write(fd, first * sizeof *x, x, n * sizeof *x);
    return error ? atom_fail_errno(error, "cannot write the weights") : ATOM_OK;
}

/* One fragment into the vector; false: its files changed meanwhile, or are damaged. */
static bool take_fragment(job *j, uint32_t f, float *anchor, atom_status *st)
{
    pool_header h;
    uint32_t slot = 0;
    uint64_t first;
    uint64_t n = pool_fragment_range(j->n_floats, j->manifest->n_fragments, f, &first);
    if (!newest_of(j, f, &slot, &h))
        return false;
    *st = pool_file_read(&j->store, f, slot, &h, anchor, NULL);
    if (*st == ATOM_E_FORMAT || *st == ATOM_E_RUNTIME)
        return false;
    if (*st == ATOM_OK)
        *st = put(j->fd, first, n, anchor);
    if (*st == ATOM_OK && h.version > j->version)
        j->version = h.version;
    return true;
}

static atom_status take_all(job *j)
{
    atom_status st = ATOM_OK;
    float *anchor = atom_alloc(j->longest, sizeof *anchor);
    uint32_t tries = 0, f = 0;
    if (!anchor)
        st = atom_fail_memory("a fragment of the anchor", 4 * j->longest);
    else if (!find_epoch(j))
        st = atom_fail(ATOM_E_USAGE,
                       "%s holds no weights of the pool yet; they are downloaded when this "
                       "member takes part",
                       j->store.directory);
    while (st == ATOM_OK && f < j->manifest->n_fragments) {
        if (take_fragment(j, f, anchor, &st)) {
            f++;
        } else if (tries++ == TRIES) {
            st = atom_fail(ATOM_E_FORMAT,
                           "%s: fragment %u is damaged; run atom pool join to download it again, "
                           "then retry. If the run has ended, another member has the same model",
                           j->store.directory, f);
        } else {
            st = ATOM_OK;
            usleep(TRY_US); /* a running member is writing it */
            uint64_t before = j->epoch;
            if (find_epoch(j) && j->epoch != before)
                f = 0, j->version = 0; /* it fetched a whole state: from the beginning */
        }
    }
    atom_free(anchor);
    return st;
}

static atom_status get(void *context, uint64_t first, uint64_t n, float *to)
{
    const job *j = context;
    int error = atom_fd_read(j->fd, first * sizeof *to, to, n * sizeof *to);
    return error ? atom_fail_errno(error, "cannot read the weights again") : ATOM_OK;
}

static atom_status fill(void *context, const char *dir)
{
    job *j = context;
    ATOM_TRY(atom_dir_make(dir));
    if (j->base) {
        ATOM_TRY(
            file_lora_write(dir, &j->lora, j->base, j->g, (file_vector){.ctx = j, .get = get}));
        ATOM_TRY(file_model_copy(j->files, dir));
        return atom_dir_sync(dir);
    }
    ATOM_TRY(file_weights_write_as(dir, j->g, (file_vector){.ctx = j, .get = get}, j->dtype,
                                   j->shard_bytes));
    ATOM_TRY(file_config_write_as(dir, &j->model.config, j->model.source, NULL, j->dtype));
    ATOM_TRY(file_model_copy(j->files, dir));
    return atom_dir_sync(dir);
}

static atom_status read_manifest(job *j, const char *place)
{
    char *path = atom_path_join(place, "manifest.json"), *text = NULL;
    uint64_t bytes = 0;
    atom_status st;
    if (!path)
        return atom_fail_memory("a path", 256);
    ATOM_TRY_CLEAN(gsp_pool_check_rights(place));
    if (!atom_path_exists(path))
        ATOM_TRY_CLEAN(
            atom_fail(ATOM_E_USAGE, "%s holds no pool; name the directory of a member", place));
    ATOM_TRY_CLEAN(atom_file_read(path, GSP_MANIFEST_TEXT_BYTES_MAX, &text, &bytes));
    ATOM_TRY_CLEAN(gsp_manifest_parse(text, (size_t)bytes, j->manifest));
cleanup:
    atom_free(text);
    atom_free(path);
    return st;
}

/* Options from a file that need not be there. */
static atom_status read_run(const char *dir, const char *name, train_config *c, opt_parsed *parsed)
{
    char *path = atom_path_join(dir, name), *text = NULL;
    uint64_t bytes = 0;
    atom_status st = ATOM_OK;
    if (!path)
        return atom_fail_memory("a path", 256);
    if (!atom_path_exists(path))
        goto cleanup;
    ATOM_TRY_CLEAN(atom_file_read(path, OPT_FILE_BYTES_MAX, &text, &bytes));
    ATOM_TRY_CLEAN(opt_read_text(&train_command, path, text, (size_t)bytes, c, parsed));
cleanup:
    atom_free(text);
    atom_free(path);
    return st;
}

/* Where the run has adapters, they are what the pool has; g is then the model with them. */
static atom_status open_adapters(job *j)
{
    train_config c;
    opt_parsed parsed;
    atom_status st = ATOM_OK;
    ATOM_TRY(opt_defaults(&train_command, &c, &parsed));
    ATOM_TRY_CLEAN(read_run(j->files, "run.yml", &c, &parsed));
    if (c.lora.r <= 0)
        goto cleanup;
    ATOM_TRY_CLEAN(read_run(j->home, "local.yml", &c, &parsed)); /* where this host has the model */
    ATOM_TRY_CLEAN(file_lora_make(&c.lora, c.model, &j->lora));
    ATOM_TRY_CLEAN(file_lora_untie(&j->lora, &j->model.config));
    graph_close(&j->g);
    ATOM_TRY_CLEAN(graph_model_build(&j->model.config, ATOM_F32, 1, 1, &j->base));
    ATOM_TRY_CLEAN(file_lora_graph(j->base, &j->lora, &j->g));
cleanup:
    opt_free(&train_command, &c);
    return st;
}

/* The model of config.json, and that it has the manifest's fragments. */
static atom_status open_model(job *j)
{
    const gsp_manifest *m = j->manifest;
    char *config = atom_path_join(j->files, "config.json");
    uint64_t first;
    if (!config)
        return atom_fail_memory("a path", 256);
    atom_status st = file_model_resolve(config, &j->model);
    atom_free(config);
    ATOM_TRY(st);
    ATOM_TRY(graph_model_build(&j->model.config, ATOM_F32, 1, 1, &j->g));
    ATOM_TRY(open_adapters(j));
    j->n_floats = j->g->trained_extent;
    for (uint32_t f = 0; f < m->n_fragments; f++) {
        uint64_t n = pool_fragment_range(j->g->trained_extent, m->n_fragments, f, &first);
        if (n != m->n_floats[f])
            return atom_fail(ATOM_E_FORMAT,
                             "the pool's config.json describes another model than its manifest");
        j->store.n[f] = n;
        j->longest = n > j->longest ? n : j->longest;
    }
    return ATOM_OK;
}

/* Beside the output: where it fits, the weights fit too. */
static atom_status open_vector(job *j, const char *output)
{
    size_t n = strlen(output);
    while (n > 1 && output[n - 1] == '/')
        n--;
    char *path = atom_format("%.*s.vector-XXXXXX", (int)n, output);
    if (!path)
        return atom_fail_memory("a path", n);
    j->fd = mkstemp(path);
    atom_status st = j->fd < 0 ? atom_fail_errno(errno, "cannot write beside %s", output) : ATOM_OK;
    if (j->fd >= 0) {
        unlink(path);
        fcntl(j->fd, F_SETFD, FD_CLOEXEC);
    }
    atom_free(path);
    return st;
}

atom_status pool_export(const char *place, atom_dtype dtype, uint64_t shard_bytes,
                        const char *output, pool_exported *said)
{
    job j = {.dtype = dtype == ATOM_DTYPE_N ? ATOM_F32 : dtype,
             .shard_bytes = shard_bytes,
             .fd = -1,
             .manifest = atom_alloc(1, sizeof *j.manifest),
             .files = atom_path_join(place, "files"),
             .home = atom_path_join(place, "..")};
    atom_status st = ATOM_OK;
    if (!j.manifest || !j.files || !j.home ||
        !(j.store.directory = atom_path_join(place, "anchor")))
        ATOM_TRY_CLEAN(atom_fail_memory("an export", sizeof *j.manifest));
    ATOM_TRY_CLEAN(read_manifest(&j, place));
    ATOM_TRY_CLEAN(open_model(&j));
    ATOM_TRY_CLEAN(open_vector(&j, output));
    ATOM_TRY_CLEAN(take_all(&j));
    ATOM_TRY_CLEAN(pool_anchor_hash((file_vector){.ctx = &j, .get = get}, j.n_floats,
                                    j.manifest->n_fragments, &said->anchor));
    ATOM_TRY_CLEAN(export_directory(output, fill, &j));
    said->version = j.version;
    if (j.version == 0)
        atom_log(ATOM_LOG_WARN,
                 "%s: these are the weights that the pool began with: no version is made yet, so "
                 "nothing that its members have learned is in them",
                 output);
cleanup:
    if (j.fd >= 0)
        close(j.fd);
    graph_close(&j.g);
    graph_close(&j.base);
    file_lora_free(&j.lora);
    file_model_free(&j.model);
    atom_free(j.store.directory);
    atom_free(j.files);
    atom_free(j.home);
    atom_free(j.manifest);
    return st;
}
