/*
 * Owns the chain's file. Its one idea: it only grows while a lineage lives, and where the member
 * moves, the chain of the new state lies beside it until that state is on disk. It refuses to
 * guess: it ends where it stops making sense.
 */
#include "gossip/member/trail_file.h"

#include "atom/base/bytes.h"
#include "atom/base/files.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"
#include "gossip/agree/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { CHECK_BYTES = 16, HEAD_BYTES = 8, ENTRY_HEAD_BYTES = 4 + CHECK_BYTES };
static const char MAGIC[] = "atomchn3", NAME[] = "chain", NEXT[] = "chain.next";

static void check_of(uint64_t place, const void *data, size_t bytes, uint8_t out[CHECK_BYTES])
{
    crypto_generichash_state state;
    uint8_t at[8];
    atom_writer w = atom_writer_make(at, sizeof at);
    atom_write_uint(&w, place, 8);
    crypto_generichash_init(&state, NULL, 0, CHECK_BYTES);
    crypto_generichash_update(&state, at, sizeof at);
    crypto_generichash_update(&state, data, bytes);
    crypto_generichash_final(&state, out, CHECK_BYTES);
}

size_t gsp_trail_parse(gsp_trail *t, const void *data, size_t bytes)
{
    atom_reader r = atom_reader_make(data, bytes);
    uint8_t magic[HEAD_BYTES], check[CHECK_BYTES], right[CHECK_BYTES];
    size_t good = 0;
    gsp_step step;
    atom_read_bytes(&r, magic, sizeof magic);
    if (!atom_reader_ok(&r) || memcmp(magic, MAGIC, sizeof magic) != 0)
        return 0;
    for (;;) {
        good = bytes - atom_reader_left(&r);
        uint32_t size = atom_read_u32(&r);
        atom_read_bytes(&r, check, sizeof check);
        if (!atom_reader_ok(&r) || size > GSP_WIRE_STEP_BYTES_MAX || size > atom_reader_left(&r))
            return good;
        check_of(t->n, r.at, size, right);
        if (memcmp(check, right, sizeof right) != 0 || !gsp_wire_get_step(r.at, size, &step))
            return good;
        bool late = t->n > 1 && step.is_genesis && step.as.genesis.reset > t->end.reset;
        if (late || gsp_trail_add(t, &step, true) != ATOM_OK) /* late: nobody writes that */
            return good;
        r.at += size;
    }
}

static size_t entry(const gsp_trail *t, uint32_t i, uint8_t *out)
{
    atom_writer w = atom_writer_make(out, ENTRY_HEAD_BYTES);
    uint8_t check[CHECK_BYTES];
    check_of(i, t->step[i].data, t->step[i].bytes, check);
    atom_write_uint(&w, t->step[i].bytes, 4);
    atom_write_bytes(&w, check, sizeof check);
    memcpy(out + ENTRY_HEAD_BYTES, t->step[i].data, t->step[i].bytes);
    return ENTRY_HEAD_BYTES + t->step[i].bytes;
}

static size_t file_bytes(const gsp_trail *t)
{
    return HEAD_BYTES + t->bytes + (size_t)t->n * ENTRY_HEAD_BYTES;
}

/* All of it, in one piece. */
static atom_status write_whole(const gsp_trail *t, const char *path)
{
    size_t bytes = file_bytes(t), at = HEAD_BYTES;
    uint8_t *all = atom_alloc(bytes, 1);
    if (!all)
        return atom_fail_memory("a chain", bytes);
    memcpy(all, MAGIC, HEAD_BYTES);
    for (uint32_t i = 0; i < t->n; i++)
        at += entry(t, i, all + at);
    atom_status st = atom_file_write(path, all, bytes);
    atom_free(all);
    return st;
}

static atom_status append(const gsp_trail *t, const char *path, uint32_t n)
{
    atom_status st = ATOM_OK;
    uint8_t bytes[ENTRY_HEAD_BYTES + GSP_WIRE_STEP_BYTES_MAX];
    uint64_t at = HEAD_BYTES;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return atom_fail_errno(errno, "%s", path);
    for (uint32_t i = 0; i < n; i++)
        at += ENTRY_HEAD_BYTES + t->step[i].bytes;
    for (uint32_t i = n; i < t->n && st == ATOM_OK; i++) {
        size_t size = entry(t, i, bytes);
        int error = atom_fd_write(fd, at, bytes, size);
        st = error ? atom_fail_errno(error, "%s", path) : ATOM_OK;
        at += size;
    }
    if (st == ATOM_OK && (ftruncate(fd, (off_t)at) != 0 || fsync(fd) != 0))
        st = atom_fail_errno(errno, "%s", path);
    close(fd);
    return st;
}

atom_status gsp_trail_save(const gsp_trail *t, const char *directory, uint32_t n)
{
    char *path = atom_path_join(directory, NAME);
    if (!path)
        return atom_fail_memory("the path of a chain", 0);
    atom_status st = n ? append(t, path, n) : write_whole(t, path);
    atom_free(path);
    return st;
}

atom_status gsp_trail_save_next(const gsp_trail *t, const char *directory)
{
    char *path = atom_path_join(directory, NEXT);
    if (!path)
        return atom_fail_memory("the path of a chain", 0);
    atom_status st = write_whole(t, path);
    atom_free(path);
    return st;
}

atom_status gsp_trail_turn(const char *directory)
{
    atom_status st = ATOM_OK;
    char *from = atom_path_join(directory, NEXT), *to = atom_path_join(directory, NAME);
    if (!from || !to)
        ATOM_TRY_CLEAN(atom_fail_memory("the path of a chain", 0));
    if (rename(from, to) != 0)
        ATOM_TRY_CLEAN(atom_fail_errno(errno, "%s", from));
    ATOM_TRY_CLEAN(atom_dir_sync(directory));
cleanup:
    atom_free(from);
    atom_free(to);
    return st;
}

/* None: the trail stays empty. */
static atom_status load(gsp_trail *t, const char *path)
{
    char *data = NULL;
    uint64_t bytes = 0;
    gsp_trail_cut(t, 0);
    if (!atom_path_exists(path))
        return ATOM_OK;
    ATOM_TRY(atom_file_read(path, 2 * (uint64_t)GSP_TRAIL_BYTES_MAX, &data, &bytes));
    size_t good = gsp_trail_parse(t, data, bytes);
    atom_free(data);
    if (good == bytes && bytes)
        return ATOM_OK;
    atom_log(
        ATOM_LOG_WARN,
        "%s: only the first %zu of %llu bytes are whole steps of this pool; the rest is dropped",
        path, good, (unsigned long long)bytes);
    return write_whole(t, path);
}

atom_status gsp_trail_load(gsp_trail *t, const char *directory)
{
    char *path = atom_path_join(directory, NAME);
    if (!path)
        return atom_fail_memory("the path of a chain", 0);
    atom_status st = load(t, path);
    atom_free(path);
    return st;
}

atom_status gsp_trail_recall(gsp_trail *t, const char *directory, const gsp_saved *saved,
                             bool *leads)
{
    atom_status st = ATOM_OK;
    char *next = atom_path_join(directory, NEXT), *path = atom_path_join(directory, NAME);
    *leads = false;
    if (!next || !path)
        ATOM_TRY_CLEAN(atom_fail_memory("the path of a chain", 0));
    if (atom_path_exists(
            next)) { /* the last move was cut off before or after its state was saved */
        ATOM_TRY_CLEAN(load(t, next));
        *leads = t->n && gsp_trail_back(t, saved);
        if (*leads)
            ATOM_TRY_CLEAN(write_whole(t, path));
        unlink(next);
    }
    if (!*leads) {
        ATOM_TRY_CLEAN(load(t, path));
        uint32_t before = t->n;
        *leads = gsp_trail_back(t, saved);
        if (!*leads)
            gsp_trail_cut(t, 0);
        if (t->n != before)
            ATOM_TRY_CLEAN(write_whole(t, path));
    }
cleanup:
    atom_free(next);
    atom_free(path);
    return st;
}
