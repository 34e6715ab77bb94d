/*
 * Owns the manifest's small files: giving chunks to others, and getting a file from several members
 * at once. Its one idea: chunks are asked for a little ahead of what is on disk (swarm.h decides of
 * whom) and written in order, so the file on disk is always a prefix, and a download that was cut
 * off goes on where it ended. It refuses a file whose hash is wrong: it is fetched again from one
 * donor at a time. What each chunk was and who sent it is remembered, so that the file, once it is
 * right, says who sent a wrong one; such a donor is not asked any more, also not over its next link.
 */
#include "gossip/pool/files.h"

#include "atom/base/clock.h"
#include "atom/base/files.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"
#include "gossip/pool/dir.h"
#include "gossip/pool/donors.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    WINDOW = 24,   /* chunks that are asked for ahead of what is on disk */
    ASKS_MAX = 16, /* chunks that one link waits for; the oldest makes room */
    GIVEN_PER_STEP = 16,
};
static const uint64_t LIAR_NS = 3600000000000u;
static const uint64_t ALONE_NS = 60000000000u; /* without a chunk of the one that is asked alone */

typedef struct chunk {
    bool here;
    uint32_t bytes;
    uint8_t *data;
} chunk;

/* What came as one chunk of a file. */
typedef struct origin {
    gsp_key from; /* zero: it was here before */
    gsp_hash hash;
} origin;

/* A download in progress. */
typedef struct fetch {
    const gsp_manifest_file *file; /* NULL: none */
    char *path, *aside;
    int fd;
    uint64_t done;               /* on disk; a multiple of the chunk, or all */
    uint64_t resumed;            /* of which so many were here before */
    gsp_swarm *swarm;            /* its one set: the file's chunks */
    chunk window[WINDOW];        /* chunk k of the file is window[k % WINDOW] */
    const gsp_link *only;        /* NULL: everybody is asked */
    uint64_t only_born, only_ns; /* ns: when it last gave a chunk */
    uint32_t turn;
    origin *came;   /* of each chunk that is here or on disk */
    origin *before; /* of a file that several sent and that was wrong; NULL: there was none */
    bool whole;     /* it is in its place */
    atom_status failed;
} fetch;

/* What is known of a link. */
typedef struct side {
    uint64_t born; /* of the link that this is about */
    uint32_t n;
    struct {
        gsp_hash hash;
        uint64_t offset;
        uint32_t bytes;
    } ask[ASKS_MAX]; /* chunks that it waits for */
} side;

struct gsp_files {
    const char *directory;
    const gsp_manifest *manifest;
    gsp_links *links;
    gsp_event_log *diary;
    side side[GSP_NET_PEERS_MAX];
    uint64_t now_ns; /* of the last step */
    struct {
        gsp_key key;
        uint64_t until_ns; /* it sent wrong bytes, and is not asked until then; 0: free */
    } unfit[GSP_NET_PEERS_MAX];
    fetch fetch;
};

static side *side_of(gsp_files *all, const gsp_link *link)
{
    side *s = &all->side[link - all->links->link];
    if (s->born != link->born)
        *s = (side){.born = link->born};
    return s;
}

atom_status gsp_files_hash(const char *path, uint64_t *bytes, gsp_hash *hash)
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

void gsp_files_asked(gsp_files *all, const gsp_link *from, const gsp_word *m)
{
    side *s = side_of(all, from);
    if (s->n == ASKS_MAX)
        memmove(s->ask, s->ask + 1, --s->n * sizeof *s->ask); /* it asks again if it wants */
    s->ask[s->n].hash = m->hash;
    s->ask[s->n].offset = m->offset;
    s->ask[s->n++].bytes = m->bytes;
}

static const gsp_manifest_file *by_hash(const gsp_files *all, const gsp_hash *hash)
{
    for (uint32_t i = 0; i < all->manifest->n_files; i++)
        if (!all->manifest->file[i].later && gsp_hash_equal(&all->manifest->file[i].hash, hash))
            return &all->manifest->file[i];
    return NULL;
}

/* False: the link is full. What is not here, or more than the peer may have, gets no answer. */
static bool give(gsp_files *all, const gsp_link *to, const side *s, uint8_t *buffer)
{
    const gsp_manifest_file *f = by_hash(all, &s->ask[0].hash);
    uint64_t offset = s->ask[0].offset;
    uint32_t bytes = s->ask[0].bytes;
    if (!f || offset >= f->bytes)
        return true;
    if (bytes > f->bytes - offset)
        bytes = (uint32_t)(f->bytes - offset);
    uint64_t most = gsp_manifest_gives(all->manifest), now = atom_clock_ns();
    if (!gsp_links_may_give(all->links, to->key, bytes, most, now))
        return true;
    char *path = atom_format("%s/files/%s", all->directory, f->name);
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
    if (!gsp_links_tell(all->links, to->key, &m))
        return false;
    gsp_links_give(all->links, to->key, bytes, most, now);
    return true;
}

static void give_some(gsp_files *all)
{
    uint8_t *buffer = NULL;
    uint32_t left = GIVEN_PER_STEP;
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++) {
        const gsp_link *l = &all->links->link[i];
        side *s = l->up ? side_of(all, l) : NULL;
        while (s && s->n && left) {
            if (!buffer)
                buffer = atom_alloc(GSP_WORD_CHUNK_BYTES, 1);
            if (!buffer || !give(all, l, s, buffer))
                break;
            memmove(s->ask, s->ask + 1, --s->n * sizeof *s->ask);
            left--;
        }
    }
    atom_free(buffer);
}

/* ---- getting ---- */

static uint32_t chunk_bytes(const fetch *f, uint64_t k)
{
    uint64_t at = k * GSP_WORD_CHUNK_BYTES, left = f->file->bytes - at;
    return left < GSP_WORD_CHUNK_BYTES ? (uint32_t)left : GSP_WORD_CHUNK_BYTES;
}

static uint64_t chunk_count(const fetch *f)
{
    return (f->file->bytes + GSP_WORD_CHUNK_BYTES - 1) / GSP_WORD_CHUNK_BYTES;
}

static bool is_unfit(const gsp_files *all, const uint8_t *key)
{
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++)
        if (all->now_ns < all->unfit[i].until_ns &&
            memcmp(all->unfit[i].key.byte, key, GSP_KEY_BYTES) == 0)
            return true;
    return false;
}

/* In the place of the one whose time is over first. */
static void blame(gsp_files *all, const gsp_key *key)
{
    char who[GSP_PUBLIC_TEXT_BYTES];
    uint32_t at = 0;
    if (is_unfit(all, key->byte))
        return;
    for (uint32_t i = 1; i < GSP_NET_PEERS_MAX; i++)
        if (all->unfit[i].until_ns < all->unfit[at].until_ns)
            at = i;
    all->unfit[at].key = *key;
    all->unfit[at].until_ns = all->now_ns + LIAR_NS;
    gsp_public_text(key->byte, who);
    atom_log(ATOM_LOG_WARN, "member %.12s sent wrong bytes of %s; it is not asked for an hour", who,
             all->fetch.file->name);
    gsp_event_log_add(all->diary, "\"event\":\"bad_piece\",\"key\":\"%s\",\"name\":\"%s\"", who,
                      all->fetch.file->name);
}

/* Whom to ask: members that sent nothing wrong, or one of them alone. */
static bool is_donor(void *context, const gsp_link *l)
{
    const gsp_files *all = context;
    const fetch *f = &all->fetch;
    return !is_unfit(all, l->key) && (!f->only || f->only == l);
}

void gsp_files_came(gsp_files *all, const gsp_link *from, const gsp_word *m)
{
    fetch *f = &all->fetch;
    uint32_t donor = f->file ? gsp_swarm_find(f->swarm, from->key) : GSP_SWARM_NOBODY;
    uint64_t k = m->offset / GSP_WORD_CHUNK_BYTES;
    if (donor == GSP_SWARM_NOBODY || !is_donor(all, from) ||
        !gsp_hash_equal(&m->hash, &f->file->hash) || m->of_bytes != f->file->bytes ||
        m->offset % GSP_WORD_CHUNK_BYTES || k >= chunk_count(f) ||
        m->body_bytes != chunk_bytes(f, k))
        return; /* not of this file, or not of one that is asked for it */
    /* Over a slow line a chunk comes after its donor was given up: it is as good. */
    chunk *c = &f->window[k % WINDOW];
    bool fits = m->offset >= f->done && k < f->done / GSP_WORD_CHUNK_BYTES + WINDOW && !c->here;
    if (!fits && !gsp_swarm_asked(f->swarm, donor, 0, (uint32_t)k))
        return;
    if (fits) {
        memcpy(c->data, m->body, m->body_bytes);
        c->bytes = (uint32_t)m->body_bytes;
        c->here = true;
        memcpy(f->came[k].from.byte, from->key, GSP_KEY_BYTES);
        crypto_generichash(f->came[k].hash.byte, GSP_HASH_BYTES, m->body, m->body_bytes, NULL, 0);
        f->only_ns = all->now_ns;
    }
    gsp_swarm_came(f->swarm, all->now_ns, donor, 0, (uint32_t)k, m->body_bytes, GSP_SWARM_GOOD);
}

/* The chunks that follow what is on disk. */
static void write_ready(fetch *f)
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

static bool ask(void *context, const gsp_swarm_ask *a)
{
    const gsp_files *all = context;
    gsp_word m = {.kind = GSP_WORD_ASK_FILE,
                  .hash = all->fetch.file->hash,
                  .offset = (uint64_t)a->first * GSP_WORD_CHUNK_BYTES,
                  .bytes = chunk_bytes(&all->fetch, a->first)};
    return gsp_links_tell(all->links, a->name, &m);
}

static const gsp_link *next_donor(gsp_files *all)
{
    const gsp_link *was = all->fetch.only;
    all->fetch.only = NULL;
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++) {
        const gsp_link *l = &all->links->link[++all->fetch.turn % GSP_NET_PEERS_MAX];
        if (l->up && !l->guest && is_donor(all, l) && l != was)
            return l;
    }
    return was && was->up && is_donor(all, was) ? was : NULL;
}

/* Goes on where what is on disk ends. */
static void begin_at(fetch *f, uint64_t done)
{
    f->done = f->resumed = done;
    for (uint32_t i = 0; i < WINDOW; i++)
        f->window[i].here = false;
    memset(f->came, 0, chunk_count(f) * sizeof *f->came);
    gsp_swarm_begin(f->swarm, 0, 0);
    for (uint64_t k = 0; k * GSP_WORD_CHUNK_BYTES < done; k++)
        gsp_swarm_here(f->swarm, 0, (uint32_t)k, true);
}

/* All of it from another donor, and from that one alone; where there is none, from everybody. */
static void ask_alone(gsp_files *all)
{
    fetch *f = &all->fetch;
    f->only = next_donor(all);
    f->only_born = f->only ? f->only->born : 0;
    f->only_ns = all->now_ns;
    begin_at(f, 0);
    if (ftruncate(f->fd, 0) != 0)
        f->failed = atom_fail_errno(errno, "%s", f->aside);
}

static bool is_slow(const gsp_files *all)
{
    return all->now_ns > all->fetch.only_ns + ALONE_NS;
}

void gsp_files_step(gsp_files *all, uint64_t now)
{
    fetch *f = &all->fetch;
    all->now_ns = now;
    give_some(all);
    if (!f->file || f->whole)
        return;
    if (f->only && (!f->only->up || f->only->born != f->only_born || is_slow(all)))
        ask_alone(all);
    write_ready(f);
    gsp_donors_update(all->links, f->swarm, is_donor, all);
    gsp_swarm_reach(f->swarm, 0, (uint32_t)(f->done / GSP_WORD_CHUNK_BYTES) + WINDOW);
    gsp_swarm_turn(f->swarm, now, ask, all);
}

/* ---- a whole file ---- */

void gsp_files_fetch_end(gsp_files *all)
{
    fetch *f = &all->fetch;
    if (!f->file)
        return;
    if (f->fd >= 0)
        close(f->fd);
    for (uint32_t i = 0; i < WINDOW; i++)
        atom_free(f->window[i].data);
    atom_free(f->swarm);
    atom_free(f->came);
    atom_free(f->before);
    atom_free(f->path);
    atom_free(f->aside);
    *f = (fetch){0};
}

uint64_t gsp_files_fetched(const gsp_files *all)
{
    return all->fetch.done;
}

static atom_status open_swarm(fetch *f)
{
    uint32_t n = (uint32_t)chunk_count(f);
    gsp_swarm_config config = {
        .n_donors = GSP_NET_PEERS_MAX,
        .n_sets = 1,
        .n_pieces = &n,
        .piece_bytes = GSP_WORD_CHUNK_BYTES,
        .window_first = 4,
        .window_min = 4,
        .window_max = ASKS_MAX,
        .run_max = 1,
        .offers_all = true,
        .silent_ns = 15000000000u,
        .aside_ns = 15000000000u,
        .late_ns = 4000000000u,
    };
    void *memory = n == chunk_count(f) ? atom_alloc(1, gsp_swarm_bytes(&config)) : NULL;
    if (!memory)
        return atom_fail_memory("a download", gsp_swarm_bytes(&config));
    f->swarm = gsp_swarm_open(&config, memory);
    f->came = atom_alloc(n ? n : 1, sizeof *f->came);
    return f->came ? ATOM_OK : atom_fail_memory("a download", n * sizeof *f->came);
}

static bool is_here(const fetch *f)
{
    gsp_hash hash;
    uint64_t bytes = 0;
    struct stat s;
    return stat(f->path, &s) == 0 && (uint64_t)s.st_size == f->file->bytes &&
           gsp_files_hash(f->path, &bytes, &hash) == ATOM_OK &&
           gsp_hash_equal(&hash, &f->file->hash);
}

atom_status gsp_files_fetch_begin(gsp_files *all, const gsp_manifest_file *file)
{
    fetch *f = &all->fetch;
    struct stat s;
    gsp_files_fetch_end(all);
    if (file->bytes > GSP_FILE_BYTES_MAX)
        return atom_fail(ATOM_E_FORMAT,
                         "the pool's %s has %llu bytes, but such a file may have at most %d; "
                         "nothing of it was fetched",
                         file->name, (unsigned long long)file->bytes, GSP_FILE_BYTES_MAX);
    *f = (fetch){.file = file, .fd = -1};
    ATOM_TRY(gsp_dir_make(all->directory, "files"));
    f->path = atom_format("%s/files/%s", all->directory, file->name);
    f->aside = atom_format("%s/files/.%s.part", all->directory, file->name);
    if (!f->path || !f->aside)
        return atom_fail_memory("a path", 0);
    for (uint32_t i = 0; i < WINDOW; i++) {
        f->window[i].data = atom_alloc(GSP_WORD_CHUNK_BYTES, 1);
        if (!f->window[i].data)
            return atom_fail_memory("a download", WINDOW * GSP_WORD_CHUNK_BYTES);
    }
    ATOM_TRY(open_swarm(f));
    f->fd = open(f->aside, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (f->fd < 0 || fstat(f->fd, &s) != 0)
        return atom_fail_errno(errno, "%s", f->aside);
    uint64_t here = (uint64_t)s.st_size;
    if (here > file->bytes)
        here = 0;
    else if (here < file->bytes)
        here -= here % GSP_WORD_CHUNK_BYTES;
    begin_at(f, here);
    f->whole = is_here(f);
    return f->whole ? ATOM_OK : gsp_dir_room(all->directory, file->bytes - here, file->name);
}

/* What several sent is not the file: what they sent is kept, to be compared. What one sent alone is
 * its own fault. */
static void suspect(gsp_files *all)
{
    fetch *f = &all->fetch;
    uint64_t n = chunk_count(f);
    bool alone = true;
    for (uint64_t k = 1; k < n; k++)
        alone = alone && gsp_key_compare(&f->came[k].from, &f->came[0].from) == 0;
    if (alone) {
        static const gsp_key nobody;
        if (n && gsp_key_compare(&f->came[0].from, &nobody) != 0)
            blame(all, &f->came[0].from);
        return;
    }
    origin *swap = f->before;
    f->before = f->came;
    f->came = swap;
}

/* The file is right: those whose chunks of it were others sent wrong ones. */
static void convict(gsp_files *all)
{
    static const gsp_key nobody;
    fetch *f = &all->fetch;
    for (uint64_t k = 0; f->before && k < chunk_count(f); k++)
        if (gsp_key_compare(&f->before[k].from, &nobody) != 0 &&
            gsp_key_compare(&f->came[k].from, &nobody) != 0 &&
            !gsp_hash_equal(&f->before[k].hash, &f->came[k].hash))
            blame(all, &f->before[k].from);
}

/* All bytes are here, and wrong: begins again, with one donor. */
static atom_status begin_again(gsp_files *all)
{
    fetch *f = &all->fetch;
    gsp_event_log_add(all->diary, "\"event\":\"bad_file\",\"name\":\"%s\"", f->file->name);
    atom_log(ATOM_LOG_WARN, "%s came with a wrong hash; fetching it again", f->file->name);
    suspect(all);
    if (!f->came && !(f->came = atom_alloc(chunk_count(f), sizeof *f->came)))
        return atom_fail_memory("a download", chunk_count(f) * sizeof *f->came);
    ask_alone(all);
    return f->failed;
}

atom_status gsp_files_fetch_turn(gsp_files *all, bool *finished)
{
    fetch *f = &all->fetch;
    gsp_hash hash;
    uint64_t bytes = 0;
    ATOM_TRY(f->failed);
    *finished = f->whole;
    if (f->whole)
        unlink(f->aside);
    if (f->whole || f->done < f->file->bytes)
        return ATOM_OK;
    if (fsync(f->fd) != 0)
        return atom_fail_errno(errno, "%s", f->aside);
    ATOM_TRY(gsp_files_hash(f->aside, &bytes, &hash));
    if (bytes != f->file->bytes || !gsp_hash_equal(&hash, &f->file->hash))
        return begin_again(all);
    convict(all);
    gsp_event_log_add(all->diary,
                      "\"event\":\"file\",\"name\":\"%s\",\"bytes\":%llu,\"resumed\":%llu",
                      f->file->name, (unsigned long long)bytes, (unsigned long long)f->resumed);
    *finished = true;
    return rename(f->aside, f->path) == 0 ? ATOM_OK : atom_fail_errno(errno, "%s", f->path);
}

/* ---- life ---- */

gsp_files *gsp_files_open(const char *directory, const gsp_manifest *manifest, gsp_links *links,
                          gsp_event_log *diary)
{
    gsp_files *all = atom_alloc(1, sizeof *all);
    if (all) {
        all->directory = directory;
        all->manifest = manifest;
        all->links = links;
        all->diary = diary;
    }
    return all;
}

void gsp_files_close(gsp_files **files)
{
    if (*files)
        gsp_files_fetch_end(*files);
    atom_free(*files);
    *files = NULL;
}
