/*
 * Owns the files of results. Its one idea: append, and remember where, so that a write is one
 * sequential copy into the page cache, and the disk is asked to begin at once. It refuses to keep
 * more versions than it was told to.
 */
#include "gossip/member/results.h"

#include "atom/base/bytes.h"
#include "atom/base/files.h"
#include "atom/base/hash.h"
#include "atom/base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEAD_BYTES = 64, FILES_MAX = 16 };
static const uint32_t MAGIC = 0x72747361; /* "astr" */

typedef struct entry {
    uint32_t part;
    gsp_hash hash;
    uint64_t at, bytes; /* of the data */
} entry;

typedef struct results_file {
    uint64_t version; /* 0: free */
    int fd;
    uint64_t bytes;
    bool dirty;
    entry *entries;
    size_t n, room;
} results_file;

struct gsp_results {
    char *directory;
    uint32_t keep;
    results_file file[FILES_MAX];
};

static char *file_path(const gsp_results *r, uint64_t version)
{
    char name[40];
    snprintf(name, sizeof name, "results.%llu", (unsigned long long)version);
    return atom_path_join(r->directory, name);
}

static void file_close(results_file *f)
{
    if (f->version)
        close(f->fd);
    atom_free(f->entries);
    *f = (results_file){0};
}

static void file_remove(gsp_results *r, results_file *f)
{
    char *path = file_path(r, f->version);
    if (path)
        unlink(path);
    atom_free(path);
    file_close(f);
}

static void head_write(uint8_t head[HEAD_BYTES], uint64_t version, const entry *e)
{
    atom_writer w = atom_writer_make(head, HEAD_BYTES);
    atom_write_uint(&w, MAGIC, 4);
    atom_write_uint(&w, e->part, 4);
    atom_write_uint(&w, version, 8);
    atom_write_uint(&w, e->bytes, 8);
    atom_write_bytes(&w, e->hash.byte, sizeof e->hash.byte);
    atom_write_uint(&w, atom_hash(ATOM_HASH_SEED, head, HEAD_BYTES - 8), 8);
}

static bool head_read(const uint8_t head[HEAD_BYTES], uint64_t version, entry *out)
{
    atom_reader r = atom_reader_make(head, HEAD_BYTES);
    bool good = atom_read_u32(&r) == MAGIC;
    out->part = atom_read_u32(&r);
    good &= atom_read_u64(&r) == version;
    out->bytes = atom_read_u64(&r);
    atom_read_bytes(&r, out->hash.byte, sizeof out->hash.byte);
    return good && atom_read_u64(&r) == atom_hash(ATOM_HASH_SEED, head, HEAD_BYTES - 8) &&
           out->bytes < (uint64_t)1 << 40;
}

static atom_status remember(results_file *f, const entry *e)
{
    ATOM_TRY(atom_grow((void **)&f->entries, f->n, &f->room, sizeof *f->entries));
    f->entries[f->n++] = *e;
    return ATOM_OK;
}

/* Which entries are there; cuts a torn tail off. */
static atom_status file_scan(results_file *f)
{
    struct stat s;
    uint8_t head[HEAD_BYTES];
    entry e;
    if (fstat(f->fd, &s) != 0)
        return atom_fail_errno(errno, "results of version %llu", (unsigned long long)f->version);
    while (pread(f->fd, head, sizeof head, (off_t)f->bytes) == HEAD_BYTES &&
           head_read(head, f->version, &e) &&
           f->bytes + HEAD_BYTES + e.bytes <= (uint64_t)s.st_size) {
        e.at = f->bytes + HEAD_BYTES;
        f->bytes = e.at + e.bytes;
        ATOM_TRY(remember(f, &e));
    }
    if (ftruncate(f->fd, (off_t)f->bytes) != 0)
        return atom_fail_errno(errno, "results of version %llu", (unsigned long long)f->version);
    return ATOM_OK;
}

static atom_status file_open(gsp_results *r, uint64_t version, results_file **out)
{
    results_file *f = NULL, *oldest = NULL;
    for (uint32_t i = 0; i < FILES_MAX; i++) {
        results_file *g = &r->file[i];
        if (g->version == version) {
            *out = g;
            return ATOM_OK;
        }
        if (!g->version)
            f = g;
        else if (!oldest || g->version < oldest->version)
            oldest = g;
    }
    if (!f) {
        f = oldest;
        file_remove(r, f);
    }
    char *path = file_path(r, version);
    if (!path)
        return atom_fail_memory("the path of results", 0);
    f->fd = atom_fd_open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    atom_status st = f->fd < 0 ? atom_fail_errno(errno, "%s", path) : ATOM_OK;
    atom_free(path);
    ATOM_TRY(st);
    f->version = version;
    st = file_scan(f);
    if (st != ATOM_OK)
        file_close(f);
    *out = f;
    return st;
}

static void retire(gsp_results *r, uint64_t newest)
{
    for (uint32_t i = 0; i < FILES_MAX; i++)
        if (r->file[i].version && r->file[i].version + r->keep <= newest)
            file_remove(r, &r->file[i]);
}

atom_status gsp_results_open(const char *directory, uint32_t keep, gsp_results **out)
{
    atom_status st = ATOM_OK;
    DIR *dir = NULL;
    uint64_t newest = 0;
    gsp_results *r = atom_alloc(1, sizeof *r);
    if (!r || !(r->directory = atom_strdup(directory)))
        ATOM_TRY_CLEAN(atom_fail_memory("the results", sizeof *r));
    r->keep = keep < FILES_MAX - 1 ? keep : FILES_MAX - 1;
    dir = opendir(directory);
    if (!dir)
        ATOM_TRY_CLEAN(atom_fail_errno(errno, "%s", directory));
    for (struct dirent *d; (d = readdir(dir));) {
        results_file *f;
        char *end = NULL;
        uint64_t version = strncmp(d->d_name, "results.", 8) == 0 && d->d_name[8]
                               ? strtoull(d->d_name + 8, &end, 10)
                               : 0;
        if (version == 0 || *end)
            continue;
        ATOM_TRY_CLEAN(file_open(r, version, &f));
        newest = version > newest ? version : newest;
    }
    retire(r, newest);
    closedir(dir);
    *out = r;
    return ATOM_OK;
cleanup:
    if (dir)
        closedir(dir);
    gsp_results_close(&r);
    return st;
}

void gsp_results_close(gsp_results **results)
{
    gsp_results *r = *results;
    *results = NULL;
    if (!r)
        return;
    for (uint32_t i = 0; i < FILES_MAX; i++)
        if (r->file[i].version)
            file_close(&r->file[i]);
    atom_free(r->directory);
    atom_free(r);
}

static const entry *find_in(const results_file *f, uint32_t part, const gsp_hash *hash)
{
    for (size_t k = 0; k < f->n; k++)
        if (f->entries[k].part == part &&
            memcmp(f->entries[k].hash.byte, hash->byte, sizeof hash->byte) == 0)
            return &f->entries[k];
    return NULL;
}

static const entry *find(const gsp_results *r, uint32_t part, const gsp_hash *hash, int *fd)
{
    for (uint32_t i = 0; i < FILES_MAX; i++) {
        const entry *e = r->file[i].version ? find_in(&r->file[i], part, hash) : NULL;
        if (e) {
            *fd = r->file[i].fd;
            return e;
        }
    }
    return NULL;
}

static atom_status write_all(const gsp_results *r, int fd, const void *data, uint64_t bytes,
                             uint64_t at)
{
    int error = atom_fd_write(fd, at, data, bytes);
    return error ? atom_fail_errno(error, "%s: cannot write results", r->directory) : ATOM_OK;
}

atom_status gsp_results_put(gsp_results *r, uint64_t version, uint32_t part, const gsp_hash *hash,
                            const void *data, uint64_t bytes)
{
    results_file *f;
    uint8_t head[HEAD_BYTES];
    retire(r, version);
    ATOM_TRY(file_open(r, version, &f));
    if (find_in(f, part, hash))
        return ATOM_OK;
    entry e = {.part = part, .hash = *hash, .at = f->bytes + HEAD_BYTES, .bytes = bytes};
    head_write(head, version, &e);
    ATOM_TRY(write_all(r, f->fd, head, sizeof head, f->bytes));
    ATOM_TRY(write_all(r, f->fd, data, bytes, e.at));
    ATOM_TRY(remember(f, &e));
    f->bytes = e.at + bytes;
    f->dirty = true;
    /* The disk may begin; where it cannot be told, the sync will do it all. */
    (void)sync_file_range(f->fd, (off_t)(e.at - HEAD_BYTES), (off_t)(HEAD_BYTES + bytes),
                          SYNC_FILE_RANGE_WRITE);
    return ATOM_OK;
}

atom_status gsp_results_sync(gsp_results *r, uint64_t version)
{
    for (uint32_t i = 0; i < FILES_MAX; i++) {
        results_file *f = &r->file[i];
        if (f->version != version || !f->dirty)
            continue;
        if (fdatasync(f->fd) != 0)
            return atom_fail_errno(errno, "results of version %llu", (unsigned long long)version);
        f->dirty = false;
        return atom_dir_sync(r->directory);
    }
    return ATOM_OK;
}

bool gsp_results_has(const gsp_results *r, uint64_t version, uint32_t part, const gsp_hash *hash)
{
    for (uint32_t i = 0; i < FILES_MAX; i++)
        if (version && r->file[i].version == version)
            return find_in(&r->file[i], part, hash) != NULL;
    return false;
}

bool gsp_results_find(const gsp_results *r, uint32_t part, const gsp_hash *hash, uint64_t *bytes)
{
    int fd;
    const entry *e = find(r, part, hash, &fd);
    if (e)
        *bytes = e->bytes;
    return e != NULL;
}

atom_status gsp_results_read(const gsp_results *r, uint32_t part, const gsp_hash *hash, void *out)
{
    int fd;
    const entry *e = find(r, part, hash, &fd);
    int error = e ? atom_fd_read(fd, e->at, out, e->bytes) : 0;
    if (error)
        return atom_fail_errno(error, "cannot read results");
    return e ? ATOM_OK : atom_fail(ATOM_E_RUNTIME, "no such result");
}
