/*
 * Owns a member's memory on disk. Its one idea: a small state that is replaced whole, and beside it
 * a journal that only grows, named by the state's epoch, so that a journal of another epoch is
 * never read. It refuses to guess: where something other than the last entry is damaged, the member
 * has lost its memory.
 */
#include "gossip/member/votes.h"

#include "atom/base/bytes.h"
#include "atom/base/clock.h"
#include "atom/base/files.h"
#include "atom/base/mem.h"
#include "gossip/agree/wire.h"
#include "gossip/trust/identity.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum {
    HASH_BYTES = 32,
    CHECK_BYTES = 16,
    STATE_HEAD_BYTES = 8 + 3 * 8 + 4,
    JOURNAL_HEAD_BYTES = 8 + 8,
    ENTRY_HEAD_BYTES =
        4 + 4 + 8, /* the size twice, so that a torn entry is told from a damaged one */
    RECORD_BYTES_MAX = 96 * 1024, /* wire.h: 41 KiB of proposal, 40 KiB of proof */
    ENTRY_BYTES_MAX = ENTRY_HEAD_BYTES + RECORD_BYTES_MAX + CHECK_BYTES,
    JOURNAL_BYTES_MAX = 8 << 20, /* then the state is written anew */
};
static const char STATE_MAGIC[] = "atomvst5", JOURNAL_MAGIC[] = "atomvjr3";

struct gsp_votes {
    char *directory;
    int lock, journal;
    bool dead, has_saved;
    uint64_t epoch, clock_ns, incarnation;
    uint64_t bytes; /* of the journal */
    gsp_saved saved;
    uint8_t buffer[GSP_WIRE_SAVED_BYTES_MAX + STATE_HEAD_BYTES + HASH_BYTES];
};

static char *path_of(const gsp_votes *v, const char *name)
{
    return atom_path_join(v->directory, name);
}

static char *journal_path(const gsp_votes *v, uint64_t epoch)
{
    char name[40];
    snprintf(name, sizeof name, "votes.%llu", (unsigned long long)epoch);
    return path_of(v, name);
}

static void entry_check(uint64_t epoch, uint64_t at, const void *entry, size_t bytes,
                        uint8_t out[CHECK_BYTES])
{
    crypto_generichash_state state;
    uint8_t place[16];
    atom_writer w = atom_writer_make(place, sizeof place);
    atom_write_uint(&w, epoch, 8);
    atom_write_uint(&w, at, 8);
    crypto_generichash_init(&state, NULL, 0, CHECK_BYTES);
    crypto_generichash_update(&state, place, sizeof place);
    crypto_generichash_update(&state, entry, bytes);
    crypto_generichash_final(&state, out, CHECK_BYTES);
}

/* ---- reading ---- */

static atom_status state_damaged(const char *path)
{
    return atom_fail(
        ATOM_E_FORMAT,
        "%s: the record of this member's votes is damaged, or of another version of atom; the "
        "member has to forget it and come back as a new one",
        path);
}

static atom_status state_read(gsp_votes *v)
{
    atom_status st = ATOM_OK;
    char *data = NULL, *path = path_of(v, "state");
    uint64_t bytes = 0;
    uint8_t hash[HASH_BYTES];
    if (!path)
        return atom_fail_memory("the path of votes", 0);
    if (!atom_path_exists(path))
        goto cleanup;
    ATOM_TRY_CLEAN(atom_file_read(path, sizeof v->buffer, &data, &bytes));
    if (bytes < STATE_HEAD_BYTES + HASH_BYTES || memcmp(data, STATE_MAGIC, 8) != 0)
        ATOM_TRY_CLEAN(state_damaged(path));
    crypto_generichash(hash, sizeof hash, (const uint8_t *)data, bytes - HASH_BYTES, NULL, 0);
    if (memcmp(hash, data + bytes - HASH_BYTES, HASH_BYTES) != 0)
        ATOM_TRY_CLEAN(state_damaged(path));
    atom_reader r = atom_reader_make(data + 8, bytes - 8);
    v->epoch = atom_read_u64(&r);
    v->clock_ns = atom_read_u64(&r);
    v->incarnation = atom_read_u64(&r);
    uint32_t size = atom_read_u32(&r);
    if (size != bytes - STATE_HEAD_BYTES - HASH_BYTES ||
        (size != 0 && !gsp_wire_get_saved(r.at, size, &v->saved)))
        ATOM_TRY_CLEAN(state_damaged(path));
    v->has_saved = size != 0; /* a member that forgot has only its incarnation */
cleanup:
    atom_free(data);
    atom_free(path);
    return st;
}

/* How long the entry at data is when it is whole; 0: it is not. Reads the record into *out. */
static size_t entry_read(const gsp_votes *v, const uint8_t *data, size_t left, uint64_t at,
                         uint64_t *clock_ns, gsp_record *out)
{
    uint8_t check[CHECK_BYTES];
    atom_reader r = atom_reader_make(data, left);
    uint32_t size = atom_read_u32(&r), twice = atom_read_u32(&r);
    uint64_t clock = atom_read_u64(&r);
    if (!atom_reader_ok(&r) || size != twice || size > RECORD_BYTES_MAX ||
        atom_reader_left(&r) < (size_t)size + CHECK_BYTES)
        return 0;
    entry_check(v->epoch, at, data, ENTRY_HEAD_BYTES + size, check);
    if (memcmp(check, r.at + size, CHECK_BYTES) != 0 || !gsp_wire_get_record(r.at, size, out))
        return 0;
    *clock_ns = clock;
    return ENTRY_HEAD_BYTES + (size_t)size + CHECK_BYTES;
}

/* Whether what is left at the journal's end can be one entry whose writing was cut short: it says
 * that it is at least as long as what is there, or nothing of it arrived. */
static bool torn(const uint8_t *data, size_t left)
{
    atom_reader r = atom_reader_make(data, left);
    uint32_t size = atom_read_u32(&r), twice = atom_read_u32(&r);
    if (left < 8 || (size == twice && size <= RECORD_BYTES_MAX &&
                     left <= ENTRY_HEAD_BYTES + size + CHECK_BYTES))
        return true;
    for (size_t i = 0; i < left; i++)
        if (data[i])
            return false;
    return left <= ENTRY_BYTES_MAX;
}

/* Reads up to the last whole entry and cuts the torn one off. */
static atom_status journal_read(gsp_votes *v)
{
    atom_status st = ATOM_OK;
    char *data = NULL, *path = journal_path(v, v->epoch);
    gsp_record *record = atom_alloc(1, sizeof *record);
    uint64_t bytes = 0, at = JOURNAL_HEAD_BYTES;
    if (!path || !record)
        ATOM_TRY_CLEAN(atom_fail_memory("the journal of votes", sizeof *record));
    if (!atom_path_exists(path))
        ATOM_TRY_CLEAN(state_damaged(path));
    ATOM_TRY_CLEAN(atom_file_read(path, JOURNAL_BYTES_MAX + ENTRY_BYTES_MAX, &data, &bytes));
    atom_reader r = atom_reader_make(data, bytes);
    uint8_t magic[8];
    atom_read_bytes(&r, magic, sizeof magic);
    if (atom_read_u64(&r) != v->epoch || !atom_reader_ok(&r) ||
        memcmp(magic, JOURNAL_MAGIC, 8) != 0)
        ATOM_TRY_CLEAN(state_damaged(path));
    for (size_t n = 1; at < bytes && n; at += n) {
        n = entry_read(v, (const uint8_t *)data + at, bytes - at, at, &v->clock_ns, record);
        if (n)
            v->saved.record = *record;
    }
    if (at < bytes && !torn((const uint8_t *)data + at, bytes - at))
        ATOM_TRY_CLEAN(state_damaged(path));
    v->journal = open(path, O_RDWR | O_CLOEXEC);
    if (v->journal < 0 ||
        (at < bytes && (ftruncate(v->journal, (off_t)at) != 0 || fsync(v->journal) != 0)))
        ATOM_TRY_CLEAN(atom_fail_errno(errno, "%s", path));
    v->bytes = at;
cleanup:
    atom_free(record);
    atom_free(data);
    atom_free(path);
    return st;
}

/* ---- writing ---- */

static atom_status write_all(const gsp_votes *v, int fd, const void *data, size_t bytes,
                             uint64_t at)
{
    int error = atom_fd_write(fd, at, data, bytes);
    return error ? atom_fail_errno(error, "%s: cannot write votes", v->directory) : ATOM_OK;
}

/* An empty journal of this epoch, there before the state that names it. */
static atom_status journal_make(gsp_votes *v, uint64_t epoch, int *out)
{
    atom_status st = ATOM_OK;
    uint8_t head[JOURNAL_HEAD_BYTES];
    char *path = journal_path(v, epoch);
    int fd = path ? atom_fd_open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) : -1;
    if (fd < 0)
        ATOM_TRY_CLEAN(path ? atom_fail_errno(errno, "%s", path)
                            : atom_fail_memory("the journal of votes", 0));
    memcpy(head, JOURNAL_MAGIC, 8);
    atom_writer w = atom_writer_make(head + 8, 8);
    atom_write_uint(&w, epoch, 8);
    ATOM_TRY_CLEAN(write_all(v, fd, head, sizeof head, 0));
    if (fsync(fd) != 0)
        ATOM_TRY_CLEAN(atom_fail_errno(errno, "%s", path));
    ATOM_TRY_CLEAN(atom_dir_sync(v->directory));
    *out = fd;
    fd = -1;
cleanup:
    if (fd >= 0)
        close(fd);
    atom_free(path);
    return st;
}

static atom_status state_write(gsp_votes *v, const gsp_saved *saved, uint64_t epoch,
                               uint64_t incarnation)
{
    char *path = path_of(v, "state");
    size_t size =
        saved ? gsp_wire_put_saved(saved, v->buffer + STATE_HEAD_BYTES, GSP_WIRE_SAVED_BYTES_MAX)
              : 0;
    atom_writer w = atom_writer_make(v->buffer, STATE_HEAD_BYTES);
    if (!path)
        return atom_fail_memory("the path of votes", 0);
    atom_write_bytes(&w, STATE_MAGIC, 8);
    atom_write_uint(&w, epoch, 8);
    atom_write_uint(&w, v->clock_ns, 8);
    atom_write_uint(&w, incarnation, 8);
    atom_write_uint(&w, size, 4);
    size += STATE_HEAD_BYTES;
    crypto_generichash(v->buffer + size, HASH_BYTES, v->buffer, size, NULL, 0);
    atom_status st = atom_file_write(path, v->buffer, size + HASH_BYTES);
    atom_free(path);
    return st;
}

static void journal_remove(gsp_votes *v, uint64_t epoch)
{
    char *path = journal_path(v, epoch);
    if (path)
        unlink(path);
    atom_free(path);
}

atom_status gsp_votes_state(gsp_votes *v, const gsp_saved *saved, uint64_t incarnation)
{
    atom_status st = ATOM_OK;
    int fd = -1;
    uint64_t before = v->epoch;
    if (v->dead)
        return atom_fail(ATOM_E_DEAD, "%s: could not be written earlier", v->directory);
    ATOM_TRY_CLEAN(journal_make(v, before + 1, &fd));
    ATOM_TRY_CLEAN(state_write(v, saved, before + 1, incarnation));
    if (v->journal >= 0)
        close(v->journal);
    v->journal = fd;
    v->epoch = before + 1;
    v->bytes = JOURNAL_HEAD_BYTES;
    v->incarnation = incarnation;
    v->has_saved = true;
    if (saved != &v->saved)
        v->saved = *saved;
    journal_remove(v, before);
    return ATOM_OK;
cleanup:
    if (fd >= 0)
        close(fd);
    v->dead = true;
    return st;
}

atom_status gsp_votes_record(gsp_votes *v, const gsp_record *record)
{
    if (v->dead || !v->has_saved)
        return atom_fail(ATOM_E_DEAD, "%s: cannot keep votes", v->directory);
    v->saved.record = *record;
    if (v->bytes + ENTRY_BYTES_MAX > JOURNAL_BYTES_MAX)
        return gsp_votes_state(v, &v->saved, v->incarnation);
    size_t size = gsp_wire_put_record(record, v->buffer + ENTRY_HEAD_BYTES, RECORD_BYTES_MAX);
    atom_writer w = atom_writer_make(v->buffer, ENTRY_HEAD_BYTES);
    atom_write_uint(&w, size, 4);
    atom_write_uint(&w, size, 4);
    atom_write_uint(&w, gsp_votes_clock(v), 8);
    size += ENTRY_HEAD_BYTES;
    entry_check(v->epoch, v->bytes, v->buffer, size, v->buffer + size);
    size += CHECK_BYTES;
    atom_status st = write_all(v, v->journal, v->buffer, size, v->bytes);
    if (st == ATOM_OK && fdatasync(v->journal) != 0)
        st = atom_fail_errno(errno, "%s: cannot write votes", v->directory);
    v->dead = st != ATOM_OK;
    v->bytes += size;
    return st;
}

/* ---- open and close ---- */

static atom_status take_lock(gsp_votes *v)
{
    char *path = path_of(v, "lock");
    v->lock = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    atom_status st = ATOM_OK;
    if (!path)
        st = atom_fail_memory("the path of votes", 0);
    else if (v->lock < 0)
        st = atom_fail_errno(errno, "%s", path);
    else if (flock(v->lock, LOCK_EX | LOCK_NB) != 0)
        st = atom_fail(ATOM_E_USAGE,
                       "%s: another process already runs as this member; stop it "
                       "first",
                       v->directory);
    atom_free(path);
    return st;
}

static uint64_t wall_ns(void)
{
    return (uint64_t)(atom_wall_seconds() * 1e9);
}

static atom_status open_locked(const char *directory, gsp_votes **out)
{
    atom_status st = gsp_crypto_start();
    gsp_votes *v = NULL;
    if (st != ATOM_OK)
        return st;
    ATOM_TRY_CLEAN(atom_dir_make(directory));
    v = atom_alloc(1, sizeof *v);
    if (!v)
        return atom_fail_memory("the votes", sizeof *v);
    v->lock = v->journal = -1;
    v->directory = atom_strdup(directory);
    if (!v->directory)
        ATOM_TRY_CLEAN(atom_fail_memory("the votes", sizeof *v));
    ATOM_TRY_CLEAN(take_lock(v));
    *out = v;
    return ATOM_OK;
cleanup:
    gsp_votes_close(&v);
    return st;
}

atom_status gsp_votes_open(const char *directory, gsp_votes **out)
{
    gsp_votes *v = NULL;
    atom_status st = ATOM_OK;
    ATOM_TRY(open_locked(directory, &v));
    ATOM_TRY_CLEAN(state_read(v));
    if (v->has_saved) {
        ATOM_TRY_CLEAN(journal_read(v));
        /* Left over from a stop between the making of one epoch and the end of another. */
        journal_remove(v, v->epoch - 1);
        journal_remove(v, v->epoch + 1);
    } else {
        uint64_t now_us = wall_ns() / 1000;
        v->incarnation = v->incarnation + 1 > now_us ? v->incarnation + 1 : now_us;
    }
    *out = v;
    return ATOM_OK;
cleanup:
    gsp_votes_close(&v);
    return st;
}

void gsp_votes_close(gsp_votes **votes)
{
    gsp_votes *v = *votes;
    *votes = NULL;
    if (!v)
        return;
    if (v->journal >= 0)
        close(v->journal);
    if (v->lock >= 0)
        close(v->lock);
    atom_free(v->directory);
    atom_free(v);
}

atom_status gsp_votes_forget(const char *directory)
{
    gsp_votes *v = NULL;
    atom_status st = ATOM_OK;
    ATOM_TRY(open_locked(directory, &v));
    bool readable = state_read(v) == ATOM_OK;
    uint64_t epoch = v->epoch, now_us = wall_ns() / 1000;
    if (!readable || v->incarnation < now_us) /* incarnations begin as microseconds */
        v->incarnation = now_us;
    st = state_write(v, NULL, 0, v->incarnation);
    if (st == ATOM_OK && readable)
        journal_remove(v, epoch);
    gsp_votes_close(&v);
    return st;
}

const gsp_saved *gsp_votes_saved(const gsp_votes *v)
{
    return v->has_saved ? &v->saved : NULL;
}

uint64_t gsp_votes_incarnation(const gsp_votes *v)
{
    return v->incarnation;
}

uint64_t gsp_votes_clock(gsp_votes *v)
{
    uint64_t now = wall_ns();
    v->clock_ns = now > v->clock_ns ? now : v->clock_ns;
    return v->clock_ns;
}
