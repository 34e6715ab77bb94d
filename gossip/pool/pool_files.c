/*
 * Owns the manifest's small files: giving chunks to others, and getting a file from several members
 * at once. Its one idea: chunks are asked for a little ahead of what is on disk (swarm.h decides of
 * whom) and written in order, so the file on disk is always a prefix, and a download that was cut
 * off goes on where it ended. It refuses a file whose hash is wrong: it is fetched again from one
 * donor at a time, and a donor that gave a wrong one by itself is not asked any more.
 */
#include "gossip/pool/whole.h"

#include "atom/base/clock.h"
#include "atom/base/files.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WINDOW = 24, SERVED_PER_STEP = 16 };
static const uint64_t LIAR_NS = 3600000000000u;

typedef struct chunk {
    bool here;
    uint32_t bytes;
    uint8_t *data;
} chunk;

struct pool_fetch {
    const gsp_manifest_file *file;
    char *path, *aside;
    int fd;
    uint64_t done;        /* on disk; a multiple of the chunk, or all */
    uint64_t resumed;     /* of which so many were here before */
    bool here;            /* the whole file is in its place */
    gsp_swarm *swarm;     /* its one set: the file's chunks */
    chunk window[WINDOW]; /* chunk k of the file is window[k % WINDOW] */
    bool one_donor;
    uint8_t donor[GSP_PUBLIC_BYTES];
    uint32_t turn;
    atom_status failed;
};

atom_status gsp_pool_hash_file(const char *path, uint64_t *bytes, gsp_hash *hash)
{
    enum { BUFFER = 1 << 20 };
    crypto_generichash_state state;
    uint8_t *buffer = NULL;
    uint64_t total = 0;
    size_t n;
    atom_status st = ATOM_OK;
    FILE *file = fopen(path, "rbe");
    if (!file)
        return atom_fail(ATOM_E_FORMAT, "%s: %s", path, strerror(errno));
    buffer = atom_alloc(BUFFER, 1);
    if (!buffer)
        ATOM_TRY_CLEAN(atom_fail_memory("a file", BUFFER));
    crypto_generichash_init(&state, NULL, 0, sizeof hash->byte);
    while ((n = fread(buffer, 1, BUFFER, file)) > 0) {
        crypto_generichash_update(&state, buffer, n);
        total += n;
    }
    if (ferror(file))
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_FORMAT, "%s: it cannot be read", path));
    crypto_generichash_final(&state, hash->byte, sizeof hash->byte);
    *bytes = total;
cleanup:
    fclose(file);
    atom_free(buffer);
    return st;
}

/* ---- giving ---- */

void gsp_pool_file_asked(gsp_link *from, const gsp_word *m)
{
    if (from->n_asks == POOL_ASKS_MAX) {
        memmove(from->ask, from->ask + 1, sizeof from->ask - sizeof *from->ask);
        from->n_asks--; /* the oldest; a peer that still wants it asks again */
    }
    from->ask[from->n_asks].hash = m->hash;
    from->ask[from->n_asks].offset = m->offset;
    from->ask[from->n_asks++].bytes = m->bytes;
}

static const gsp_manifest_file *by_hash(const gsp_pool *p, const gsp_hash *hash)
{
    for (uint32_t i = 0; p->door.has_manifest && i < p->door.manifest->n_files; i++)
        if (!p->door.manifest->file[i].later &&
            gsp_hash_equal(&p->door.manifest->file[i].hash, hash))
            return &p->door.manifest->file[i];
    return NULL;
}

/* False: the link is full. What is not here gets no answer. */
static bool give(gsp_pool *p, gsp_link *to, uint8_t *buffer)
{
    const gsp_manifest_file *f = by_hash(p, &to->ask[0].hash);
    uint64_t offset = to->ask[0].offset;
    uint32_t bytes = to->ask[0].bytes;
    if (!f || offset >= f->bytes)
        return true;
    if (bytes > f->bytes - offset)
        bytes = (uint32_t)(f->bytes - offset);
    char *path = atom_format("%s/files/%s", p->directory, f->name);
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    atom_free(path);
    if (fd < 0)
        return true;
    ssize_t n = pread(fd, buffer, bytes, (off_t)offset);
    close(fd);
    if (n != (ssize_t)bytes)
        return true;
    gsp_word m = {.kind = GSP_WORD_FILE,
                  .hash = f->hash,
                  .offset = offset,
                  .of_bytes = f->bytes,
                  .body = buffer,
                  .body_bytes = bytes};
    return gsp_links_tell(&p->links, to->key, &m);
}

static void give_some(gsp_pool *p)
{
    uint8_t *buffer = NULL;
    uint32_t left = SERVED_PER_STEP;
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++) {
        gsp_link *l = &p->links.link[i];
        while (l->up && l->n_asks && left) {
            if (!buffer)
                buffer = atom_alloc(GSP_WORD_CHUNK_BYTES, 1);
            if (!buffer || !give(p, l, buffer))
                break;
            memmove(l->ask, l->ask + 1, sizeof l->ask - sizeof *l->ask);
            l->n_asks--;
            left--;
        }
    }
    atom_free(buffer);
}

/* ---- getting ---- */

static uint32_t chunk_bytes(const pool_fetch *f, uint64_t k)
{
    uint64_t at = k * GSP_WORD_CHUNK_BYTES, left = f->file->bytes - at;
    return left < GSP_WORD_CHUNK_BYTES ? (uint32_t)left : GSP_WORD_CHUNK_BYTES;
}

static uint64_t chunk_count(const pool_fetch *f)
{
    return (f->file->bytes + GSP_WORD_CHUNK_BYTES - 1) / GSP_WORD_CHUNK_BYTES;
}

void gsp_pool_file_came(gsp_pool *p, const gsp_link *from, const gsp_word *m)
{
    pool_fetch *f = p->fetch;
    uint32_t donor = f ? gsp_swarm_find(f->swarm, from->key) : GSP_SWARM_NOBODY;
    uint64_t k = m->offset / GSP_WORD_CHUNK_BYTES;
    if (donor == GSP_SWARM_NOBODY || !gsp_hash_equal(&m->hash, &f->file->hash) ||
        m->of_bytes != f->file->bytes || m->offset % GSP_WORD_CHUNK_BYTES || k >= chunk_count(f) ||
        m->body_bytes != chunk_bytes(f, k) || !gsp_swarm_asked(f->swarm, donor, 0, (uint32_t)k))
        return; /* not what was asked of this one */
    chunk *c = &f->window[k % WINDOW];
    memcpy(c->data, m->body, m->body_bytes);
    c->bytes = (uint32_t)m->body_bytes;
    c->here = true;
    gsp_swarm_came(f->swarm, atom_clock_ns(), donor, 0, (uint32_t)k, c->bytes, GSP_SWARM_GOOD);
}

/* The chunks that follow what is on disk. */
static void write_ready(pool_fetch *f)
{
    while (f->failed == ATOM_OK && f->done < f->file->bytes) {
        chunk *c = &f->window[f->done / GSP_WORD_CHUNK_BYTES % WINDOW];
        if (!c->here)
            return;
        if (pwrite(f->fd, c->data, c->bytes, (off_t)f->done) != (ssize_t)c->bytes)
            f->failed = atom_fail_errno(errno, "%s", f->aside);
        f->done += c->bytes;
        c->here = false;
    }
}

static bool is_donor(const gsp_link *l, const uint8_t *only, uint64_t now)
{
    return l->up && !l->guest && now >= l->unfit_ns &&
           (!only || memcmp(l->key, only, sizeof l->key) == 0);
}

void gsp_pool_donors(gsp_links *links, gsp_swarm *swarm, const uint8_t *only, uint64_t now)
{
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++) {
        const uint8_t *name = gsp_swarm_name(swarm, i);
        const gsp_link *l = name ? gsp_links_find(links, name) : NULL;
        if (name && (!l || !is_donor(l, only, now)))
            gsp_swarm_down(swarm, i);
    }
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++)
        if (is_donor(&links->link[i], only, now))
            gsp_swarm_up(swarm, links->link[i].key);
}

static bool ask(void *context, const gsp_swarm_ask *a)
{
    gsp_pool *p = context;
    gsp_word m = {.kind = GSP_WORD_ASK_FILE,
                  .hash = p->fetch->file->hash,
                  .offset = (uint64_t)a->first * GSP_WORD_CHUNK_BYTES,
                  .bytes = chunk_bytes(p->fetch, a->first)};
    return gsp_links_tell(&p->links, a->name, &m);
}

static void fetch_step(gsp_pool *p, pool_fetch *f, uint64_t now)
{
    write_ready(f);
    gsp_pool_donors(&p->links, f->swarm, f->one_donor ? f->donor : NULL, now);
    gsp_swarm_reach(f->swarm, 0, (uint32_t)(f->done / GSP_WORD_CHUNK_BYTES) + WINDOW);
    gsp_swarm_turn(f->swarm, now, ask, p);
}

void gsp_pool_files_step(gsp_pool *p, uint64_t now)
{
    give_some(p);
    if (p->fetch)
        fetch_step(p, p->fetch, now);
}

/* ---- a whole file ---- */

static atom_status open_swarm(pool_fetch *f)
{
    uint32_t n = (uint32_t)chunk_count(f);
    gsp_swarm_config config = {
        .n_donors = GSP_NET_PEERS_MAX,
        .n_sets = 1,
        .n_pieces = &n,
        .piece_bytes = GSP_WORD_CHUNK_BYTES,
        .window_first = 4,
        .window_min = 4,
        .window_max = POOL_ASKS_MAX,
        .run_max = 1,
        .offers_all = true,
        .silent_ns = 4000000000u,
        .aside_ns = 15000000000u,
    };
    void *memory = n == chunk_count(f) ? atom_alloc(1, gsp_swarm_bytes(&config)) : NULL;
    if (!memory)
        return atom_fail_memory("a download", gsp_swarm_bytes(&config));
    f->swarm = gsp_swarm_open(&config, memory);
    return ATOM_OK;
}

/* Goes on where what is on disk ends. */
static void begin_at(pool_fetch *f, uint64_t done)
{
    f->done = f->resumed = done;
    gsp_swarm_begin(f->swarm, 0, 0);
    for (uint64_t k = 0; k * GSP_WORD_CHUNK_BYTES < done; k++)
        gsp_swarm_here(f->swarm, 0, (uint32_t)k, true);
}

static atom_status fetch_open(const gsp_pool *p, pool_fetch *f)
{
    struct stat s;
    const gsp_manifest_file *file = f->file;
    ATOM_TRY(gsp_dir_make(p->directory, "files"));
    f->path = atom_format("%s/files/%s", p->directory, file->name);
    f->aside = atom_format("%s/files/.%s.part", p->directory, file->name);
    if (!f->path || !f->aside)
        return atom_fail_memory("a path", 0);
    for (uint32_t i = 0; i < WINDOW; i++) {
        f->window[i].data = atom_alloc(GSP_WORD_CHUNK_BYTES, 1);
        if (!f->window[i].data)
            return atom_fail_memory("a download", WINDOW * GSP_WORD_CHUNK_BYTES);
    }
    ATOM_TRY(open_swarm(f));
    f->fd = open(f->aside, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (f->fd < 0 || fstat(f->fd, &s) != 0)
        return atom_fail_errno(errno, "%s", f->aside);
    uint64_t here = (uint64_t)s.st_size;
    if (here > file->bytes)
        here = 0;
    else if (here < file->bytes)
        here -= here % GSP_WORD_CHUNK_BYTES;
    begin_at(f, here);
    return ATOM_OK;
}

static const gsp_link *next_donor(gsp_pool *p, pool_fetch *f, uint64_t now)
{
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++) {
        const gsp_link *l = &p->links.link[++f->turn % GSP_NET_PEERS_MAX];
        if (is_donor(l, NULL, now))
            return l;
    }
    return NULL;
}

/* All bytes are here. Right: it is put in its place. Wrong: begin again, with one donor. */
static atom_status settle(gsp_pool *p, pool_fetch *f)
{
    gsp_hash hash;
    uint64_t bytes = 0, now = atom_clock_ns();
    if (fsync(f->fd) != 0)
        return atom_fail_errno(errno, "%s", f->aside);
    ATOM_TRY(gsp_pool_hash_file(f->aside, &bytes, &hash));
    if (bytes == f->file->bytes && gsp_hash_equal(&hash, &f->file->hash)) {
        f->here = true;
        gsp_diary_add(&p->diary,
                      "\"event\":\"file\",\"name\":\"%s\",\"bytes\":%llu,\"resumed\":%llu",
                      f->file->name, (unsigned long long)bytes, (unsigned long long)f->resumed);
        return rename(f->aside, f->path) == 0 ? ATOM_OK : atom_fail_errno(errno, "%s", f->path);
    }
    gsp_link *liar = f->one_donor ? gsp_links_find(&p->links, f->donor) : NULL;
    if (liar)
        liar->unfit_ns = now + LIAR_NS;
    gsp_diary_add(&p->diary, "\"event\":\"bad_file\",\"name\":\"%s\"", f->file->name);
    atom_log(ATOM_LOG_WARN, "%s came with a wrong hash; fetching it again", f->file->name);
    const gsp_link *next = next_donor(p, f, now);
    f->one_donor = next != NULL;
    if (next)
        memcpy(f->donor, next->key, sizeof f->donor);
    begin_at(f, 0);
    return ftruncate(f->fd, 0) == 0 ? ATOM_OK : atom_fail_errno(errno, "%s", f->aside);
}

static bool is_here(const pool_fetch *f)
{
    gsp_hash hash;
    uint64_t bytes = 0;
    struct stat s;
    return stat(f->path, &s) == 0 && (uint64_t)s.st_size == f->file->bytes &&
           gsp_pool_hash_file(f->path, &bytes, &hash) == ATOM_OK &&
           gsp_hash_equal(&hash, &f->file->hash);
}

atom_status gsp_pool_fetch_begin(gsp_pool *p, const gsp_manifest_file *file)
{
    pool_fetch *f = atom_alloc(1, sizeof *f);
    if (!f)
        return atom_fail_memory("a download", sizeof *f);
    *f = (pool_fetch){.file = file, .fd = -1};
    p->fetch = f;
    ATOM_TRY(fetch_open(p, f));
    f->here = is_here(f);
    return ATOM_OK;
}

atom_status gsp_pool_fetch_turn(gsp_pool *p, bool *finished)
{
    pool_fetch *f = p->fetch;
    ATOM_TRY(f->failed);
    if (f->one_donor && !gsp_links_find(&p->links, f->donor))
        f->one_donor = false; /* it went away */
    gsp_headline_say(&p->headline, GSP_POOL_FETCHING, "fetching %s", f->file->name);
    if (!f->here && f->done == f->file->bytes)
        ATOM_TRY(settle(p, f));
    *finished = f->here;
    if (f->here)
        unlink(f->aside);
    return ATOM_OK;
}

void gsp_pool_fetch_end(gsp_pool *p)
{
    pool_fetch *f = p->fetch;
    p->fetch = NULL;
    if (!f)
        return;
    if (f->fd >= 0)
        close(f->fd);
    for (uint32_t i = 0; i < WINDOW; i++)
        atom_free(f->window[i].data);
    atom_free(f->swarm);
    atom_free(f->path);
    atom_free(f->aside);
    atom_free(f);
}
