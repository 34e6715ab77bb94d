/*
 * Owns a store's file: its head, its lock, the space reserved for it, and the commit records. One
 * idea: everything that decides whether a file may be used or trusted is in three blocks before the
 * data, each with a checksum. Refuses files that are not stores, stores of other runs, and a second
 * user of the same one.
 */
#include "swap/store_inner.h"

#include "atom/base/assert.h"
#include "atom/base/clock.h"
#include "atom/base/hash.h"
#include "atom/base/mem.h"
#include "atom/base/size.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#define MAGIC "atomstor"
enum { VERSION = 1, HEAD_AT = 0, COMMIT_AT = STORE_ALIGN, LOCK_SECONDS = 3 };

/* In the first bytes of their blocks; little-endian, as the machines that atom runs on. */
typedef struct head {
    char magic[8];
    uint32_t version, align;
    uint64_t bytes, owner;
    uint64_t check; /* of the bytes before */
} head;
typedef struct commit {
    char magic[8];
    uint64_t owner, sequence, step;
    uint64_t check;
} commit;

static uint64_t check_of(const void *record, size_t bytes)
{
    return atom_hash(ATOM_HASH_SEED, record, bytes);
}

atom_status store_fail(const store *s, bool write, uint64_t offset, int64_t moved)
{
    const char *what = write ? "write" : "read";
    if (moved == 0)
        return atom_fail(ATOM_E_RUNTIME,
                         "%s: the file ends before byte %" PRIu64
                         "; it was cut while it was in use; resume from the last checkpoint",
                         s->path, offset);
    int code = (int)-moved;
    if (code == ENOSPC || code == EDQUOT || code == EFBIG)
        return atom_fail_errno(code,
                               "%s: no room to %s at byte %" PRIu64
                               "; free space and resume from the last checkpoint",
                               s->path, what, offset);
    return atom_fail_errno(code,
                           "%s: the disk failed to %s at byte %" PRIu64
                           "; put the store on another disk and resume from the last checkpoint",
                           s->path, what, offset);
}

/* One block, whole or not at all. */
static atom_status block_move(store *s, bool write, uint64_t offset)
{
    ssize_t moved;
    do
        moved = write ? pwrite(s->fd, s->block, STORE_ALIGN, (off_t)offset)
                      : pread(s->fd, s->block, STORE_ALIGN, (off_t)offset);
    while (moved < 0 && errno == EINTR);
    if (moved == STORE_ALIGN)
        return ATOM_OK;
    return store_fail(s, write, offset, moved < 0 ? -errno : 0);
}

static atom_status sync_file(store *s)
{
    if (fdatasync(s->fd) == 0)
        return ATOM_OK;
    return atom_fail_errno(errno,
                           "%s: the disk failed to make what was written durable; put the store on "
                           "another disk and resume from the last checkpoint",
                           s->path);
}

/* The kernel ends the queues of a killed process a moment after the process, and they hold its
 * files open: a run that is started again at once must not take its own ghost for another run. */
static bool lock_soon(int fd)
{
    const struct timespec pause = {.tv_nsec = 20000000};
    double until = atom_clock_seconds() + LOCK_SECONDS;
    while (flock(fd, LOCK_EX | LOCK_NB)) {
        if (errno != EWOULDBLOCK || atom_clock_seconds() > until)
            return false;
        nanosleep(&pause, NULL);
    }
    return true;
}

/* Opens and locks; O_DIRECT where it can be had. *missing: there is no such file. */
static atom_status open_file(store *s, const char *path, int more, bool *missing)
{
    int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | more;
    s->direct = true;
    s->fd = open(path, flags | O_DIRECT, 0600);
    if (s->fd < 0 && errno == EINVAL) {
        s->direct = false;
        s->fd = open(path, flags, 0600);
    }
    struct stat info;
    *missing = s->fd < 0 && errno == ENOENT;
    if (*missing)
        return atom_fail(ATOM_E_FORMAT,
                         "%s: the store is gone; resume from a checkpoint, which creates it again",
                         s->path);
    if (s->fd < 0)
        return atom_fail_errno(errno, "%s: cannot be opened", path);
    if (fstat(s->fd, &info))
        return atom_fail_errno(errno, "%s", s->path);
    if (!S_ISREG(info.st_mode))
        return atom_fail(ATOM_E_FORMAT, "%s is not a regular file; name another place", s->path);
    if (!lock_soon(s->fd))
        return atom_fail(ATOM_E_USAGE,
                         "%s: another run has this store open; stop that run, or use another "
                         "directory",
                         s->path);
    return ATOM_OK;
}

/* The last block is reserved and never written: a file that was cut stays short, however far later
 * writes reach, and what reads as zeros then is not taken for data. */
static uint64_t whole_bytes(const store *s)
{
    return STORE_DATA_AT + s->bytes + STORE_ALIGN;
}

static atom_status check_whole(store *s)
{
    struct stat info;
    if (fstat(s->fd, &info))
        return atom_fail_errno(errno, "%s", s->path);
    if ((uint64_t)info.st_size >= whole_bytes(s)) {
        struct stat named;
        s->lost |=
            stat(s->path, &named) || named.st_ino != info.st_ino || named.st_dev != info.st_dev;
        return ATOM_OK;
    }
    return atom_fail(
        ATOM_E_RUNTIME,
        "%s: the file is too short; it was cut while it was in use; remove it and resume "
        "from the last checkpoint",
        s->path);
}

/* Space for the data area, taken at once, so that a full disk shows before training. */
static atom_status reserve(store *s)
{
    uint64_t whole = whole_bytes(s);
    int code = posix_fallocate(s->fd, 0, (off_t)whole);
    struct statvfs disk;
    if (code == 0)
        return ATOM_OK;
    if (code != ENOSPC || fstatvfs(s->fd, &disk))
        return atom_fail_errno(code, "%s: cannot reserve %" PRIu64 " bytes", s->path, whole);
    char want[24], have[24];
    uint64_t left = (uint64_t)disk.f_bavail * disk.f_frsize;
    return atom_fail(ATOM_E_RESOURCE,
                     "%s: not enough disk space: the store needs %s (%" PRIu64 " bytes), but "
                     "there is only %s: %" PRIu64 " bytes are missing; free some space, name "
                     "another disk, or raise --host-memory",
                     s->path, atom_size_text(whole, want), whole, atom_size_text(left, have),
                     whole > left ? whole - left : 0);
}

/* Leaves the block zero. */
static atom_status clear_commits(store *s)
{
    memset(s->block, 0, STORE_ALIGN);
    for (uint64_t i = 0; i < 2; i++)
        ATOM_TRY(block_move(s, true, COMMIT_AT + i * STORE_ALIGN));
    return ATOM_OK;
}

static atom_status head_write(store *s)
{
    head h = {.version = VERSION, .align = STORE_ALIGN, .bytes = s->bytes, .owner = s->owner};
    memcpy(h.magic, MAGIC, sizeof h.magic);
    h.check = check_of(&h, offsetof(head, check));
    ATOM_TRY(clear_commits(s));
    memcpy(s->block, &h, sizeof h);
    ATOM_TRY(block_move(s, true, HEAD_AT));
    return sync_file(s);
}

static atom_status head_read(store *s, const store_config *config)
{
    head h;
    struct stat info;
    if (fstat(s->fd, &info) == 0 && info.st_size < STORE_DATA_AT)
        return atom_fail(
            ATOM_E_FORMAT,
            "%s is too short to be a store of atom, so it was not touched; name another place",
            s->path);
    ATOM_TRY(block_move(s, false, HEAD_AT));
    memcpy(&h, s->block, sizeof h);
    if (memcmp(h.magic, MAGIC, sizeof h.magic) != 0 ||
        h.check != check_of(&h, offsetof(head, check)))
        return atom_fail(ATOM_E_FORMAT,
                         "%s is not a store of atom, so it was not touched; name another place",
                         s->path);
    if (h.version != VERSION || h.align != STORE_ALIGN)
        return atom_fail(ATOM_E_FORMAT,
                         "%s: it is a store of version %" PRIu32 ", but this atom "
                         "uses version %d",
                         s->path, h.version, VERSION);
    if (h.owner != s->owner && config->relation && h.owner == config->relative)
        return atom_fail(ATOM_E_FORMAT, "%s: %s", s->path, config->relation);
    if (h.owner != s->owner)
        return atom_fail(ATOM_E_FORMAT,
                         "%s is the store of another run, or of this one with another model, "
                         "optimizer or adapters; go on with those, or name another place",
                         s->path);
    if (s->bytes && h.bytes != s->bytes)
        return atom_fail(ATOM_E_FORMAT,
                         "%s has %" PRIu64 " bytes, but this run needs %" PRIu64 "; remove it "
                         "and resume from a checkpoint",
                         s->path, h.bytes, s->bytes);
    s->bytes = h.bytes;
    return ATOM_OK;
}

/* The newer of the records that are whole. */
static atom_status commit_read(store *s)
{
    for (uint64_t i = 0; i < 2; i++) {
        commit c;
        ATOM_TRY(block_move(s, false, COMMIT_AT + i * STORE_ALIGN));
        memcpy(&c, s->block, sizeof c);
        if (memcmp(c.magic, MAGIC, sizeof c.magic) != 0 || c.owner != s->owner ||
            c.check != check_of(&c, offsetof(commit, check)) || c.sequence <= s->sequence)
            continue;
        s->sequence = c.sequence;
        s->committed = c.step;
    }
    return ATOM_OK;
}

atom_status store_commit(store *s, uint64_t step)
{
    ATOM_ASSERT(step > s->committed);
    commit c = {.owner = s->owner, .sequence = s->sequence + 1, .step = step};
    memcpy(c.magic, MAGIC, sizeof c.magic);
    c.check = check_of(&c, offsetof(commit, check));
    ATOM_TRY(check_whole(s));
    ATOM_TRY(sync_file(s));
    memset(s->block, 0, STORE_ALIGN);
    memcpy(s->block, &c, sizeof c);
    ATOM_TRY(block_move(s, true, COMMIT_AT + c.sequence % 2 * STORE_ALIGN));
    ATOM_TRY(sync_file(s));
    s->sequence = c.sequence;
    s->committed = step;
    return ATOM_OK;
}

atom_status store_forget(store *s)
{
    ATOM_TRY(clear_commits(s));
    ATOM_TRY(sync_file(s));
    s->committed = s->sequence = 0;
    return ATOM_OK;
}

static const store_engine *const engines[STORE_KIND_N] = {NULL, &store_engine_uring,
                                                          &store_engine_aio, &store_engine_threads};

/* Tries a queue on the file itself. */
static atom_status try_engine(const store *s, const store_engine *engine)
{
    store_queue *q = NULL;
    store_queue_config config = {s->fd, s->depth, NULL, 0};
    ATOM_TRY(engine->open(&config, &q));
    engine->close(q);
    return ATOM_OK;
}

static atom_status choose_engine(store *s, const store_config *config)
{
    s->engine = config->engine ? config->engine : engines[config->kind];
    if (s->engine)
        return try_engine(s, s->engine);
    for (int kind = STORE_URING; kind < STORE_KIND_N; kind++) {
        /* libaio blocks in submit without O_DIRECT */
        if (kind == STORE_AIO && !s->direct)
            continue;
        s->engine = engines[kind];
        if (try_engine(s, s->engine) == ATOM_OK)
            return ATOM_OK;
    }
    return atom_fail(ATOM_E_UNSUPPORTED,
                     "%s: it cannot be read and written on this machine in "
                     "the chosen way",
                     s->path);
}

atom_status store_queue_open(store_kind kind, bool direct, const store_queue_config *config,
                             const store_engine **engine, store_queue **out)
{
    if (!*engine)
        *engine = engines[kind];
    if (*engine)
        return (*engine)->open(config, out);
    for (int k = STORE_URING; k < STORE_KIND_N; k++) {
        if (k == STORE_AIO && !direct)
            continue;
        *engine = engines[k];
        if ((*engine)->open(config, out) == ATOM_OK)
            return ATOM_OK;
    }
    return atom_fail(ATOM_E_UNSUPPORTED, "files cannot be read and written on this machine in "
                                         "the chosen way");
}

/* Makes the file under another name, so that a store is never half made. */
static atom_status make_file(store *s)
{
    bool missing;
    char *made = atom_format("%s.new", s->path);
    if (!made)
        return atom_fail_memory("a file name", strlen(s->path));
    bool is_open = false;
    atom_status st = ATOM_OK;
    ATOM_TRY_CLEAN(open_file(s, made, O_CREAT, &missing));
    is_open = true;
    if (ftruncate(s->fd, 0))
        ATOM_TRY_CLEAN(atom_fail_errno(errno, "%s", made));
    ATOM_TRY_CLEAN(reserve(s));
    ATOM_TRY_CLEAN(head_write(s));
    if (rename(made, s->path))
        st = atom_fail_errno(errno, "%s: cannot be put in place", s->path);
cleanup:
    if (st != ATOM_OK && is_open)
        (void)unlink(made);
    atom_free(made);
    return st;
}

/* An existing file is taken over only if it is a store of this run. */
static atom_status open_or_make(store *s, const store_config *config)
{
    bool missing = false;
    atom_status st = open_file(s, s->path, 0, &missing);
    s->made = missing && config->create;
    if (s->made)
        return make_file(s);
    ATOM_TRY(st);
    ATOM_TRY(head_read(s, config));
    ATOM_TRY(check_whole(s));
    return commit_read(s);
}

atom_status store_open(const store_config *config, store **out)
{
    ATOM_ASSERT(config->depth <= STORE_DEPTH_MAX && config->chunk_bytes % STORE_ALIGN == 0);
    atom_status st = ATOM_OK;
    store *s = atom_alloc(1, sizeof *s);
    if (!s)
        return atom_fail_memory("a store", sizeof *s);
    s->fd = -1;
    s->path = atom_strdup(config->path);
    s->block = aligned_alloc(STORE_ALIGN, STORE_ALIGN);
    s->depth = config->depth ? config->depth : STORE_DEPTH;
    s->chunk_bytes = config->chunk_bytes ? config->chunk_bytes : STORE_CHUNK_BYTES;
    s->ring = config->ring;
    s->ring_bytes = config->ring_bytes;
    s->bytes = (config->bytes + STORE_ALIGN - 1) / STORE_ALIGN * STORE_ALIGN;
    s->owner = config->owner;
    if (!s->path || !s->block)
        ATOM_TRY_CLEAN(atom_fail_memory("a store", STORE_ALIGN));
    ATOM_TRY_CLEAN(open_or_make(s, config));
    ATOM_TRY_CLEAN(choose_engine(s, config));
    *out = s;
    return ATOM_OK;
cleanup:
    store_close(&s);
    return st;
}

void store_close(store **s)
{
    if (!*s)
        return;
    if ((*s)->fd >= 0) {
        /* the kernel ends io_urings late, and they hold the open file and so its lock */
        (void)flock((*s)->fd, LOCK_UN);
        (void)close((*s)->fd);
    }
    atom_free((*s)->path);
    free((*s)->block);
    atom_free(*s);
    *s = NULL;
}

store_facts store_about(const store *s)
{
    return (store_facts){.engine = s->engine->name,
                         .direct = s->direct,
                         .registered = s->registered,
                         .bytes = s->bytes,
                         .committed = s->committed,
                         .made = s->made,
                         .lost = s->lost};
}

const char *store_kind_name(store_kind kind)
{
    return kind == STORE_AUTO ? "auto" : engines[kind]->name;
}

atom_status store_probe(store_kind kind)
{
    if (kind == STORE_AUTO)
        return ATOM_OK;
    store_queue *q = NULL;
    store_queue_config config = {.fd = STDERR_FILENO, .depth = 1};
    ATOM_TRY(engines[kind]->open(&config, &q));
    engines[kind]->close(q);
    return ATOM_OK;
}
