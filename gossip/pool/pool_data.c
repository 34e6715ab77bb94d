/*
 * Owns the getting of data: which of the manifest's data files lie in a directory, and fetching the
 * others from all members at once. Its one idea: a piece proves itself, so each donor is asked for
 * as much as it gives in half a second, and what one is late with is asked of another. It refuses
 * who sent a wrong piece, from then on.
 */
#include "gossip/pool/pool_inner.h"

#include "atom/base/clock.h"
#include "atom/base/files.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum {
    WINDOW_FIRST = 4,
    WINDOW_MAX = 64,     /* pieces asked of one donor */
    FILES_AT_ONCE = 2,   /* the next begins where the last pieces of one are awaited */
    RECHECK_PIECES = 16, /* of a former run, per step */
    FILE_WORDS = (GSP_MANIFEST_FILES_MAX + 63) / 64,
};
static const uint64_t SECOND = 1000000000u, WAIT_NS = 50000000u;
static const uint64_t SLOW_NS = 8000000000u;  /* without a piece: others get its work */
static const uint64_t LACKS_NS = 5000000000u; /* until who lacked a file is asked for it again */
static const uint64_t LATE_NS = 400000000u;   /* at the end: asked of somebody idle too */

typedef struct asked {
    uint32_t file, piece;
    uint64_t ns;
} asked;

typedef struct donor {
    bool known, liar;
    uint8_t key[GSP_PUBLIC_BYTES];
    uint64_t heard_ns, given;
    uint64_t lacks[FILE_WORDS], lacks_ns; /* bits of the manifest's files */
    uint32_t n, window;
    asked out[WINDOW_MAX];
    uint64_t rate, rate_ns, rate_bytes; /* bytes per second, of late */
} donor;

typedef struct part {
    uint32_t file;
    gsp_pieces *pieces; /* NULL: free */
    uint8_t *asked;     /* bits */
    uint32_t cursor;
} part;

struct pool_haul {
    const char *directory;
    uint32_t next; /* file of the manifest to begin with next */
    part part[FILES_AT_ONCE];
    donor donor[GSP_NET_PEERS_MAX];
    uint64_t bytes, whole; /* of all files; of those that are whole */
    uint64_t begun_ns, news_ns, came, again, wrong;
    atom_status failed;
};

/* ---- donors ---- */

static donor *donor_of(pool_haul *h, const uint8_t *key, bool add)
{
    donor *place = NULL;
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++) {
        donor *o = &h->donor[i];
        if (o->known && memcmp(o->key, key, sizeof o->key) == 0)
            return o;
        if (!o->known && !place)
            place = o;
    }
    if (!add || !place)
        return NULL;
    *place = (donor){.known = true, .window = WINDOW_FIRST};
    memcpy(place->key, key, sizeof place->key);
    return place;
}

static part *part_of(pool_haul *h, uint32_t file)
{
    for (uint32_t i = 0; i < FILES_AT_ONCE; i++)
        if (h->part[i].pieces && h->part[i].file == file)
            return &h->part[i];
    return NULL;
}

static void mark(part *t, uint32_t piece, bool on)
{
    uint8_t bit = (uint8_t)(1u << (piece % 8));
    t->asked[piece / 8] = (uint8_t)(on ? t->asked[piece / 8] | bit : t->asked[piece / 8] & ~bit);
    if (!on && piece < t->cursor)
        t->cursor = piece;
}

/* What the donor was asked for may be asked of others. */
static void release(pool_haul *h, donor *o)
{
    for (uint32_t k = 0; k < o->n; k++) {
        part *t = part_of(h, o->out[k].file);
        if (t)
            mark(t, o->out[k].piece, false);
    }
    o->n = 0;
}

static bool answered(donor *o, uint32_t file, uint32_t piece)
{
    for (uint32_t k = 0; k < o->n; k++)
        if (o->out[k].file == file && o->out[k].piece == piece) {
            o->out[k] = o->out[--o->n];
            return true;
        }
    return false;
}

static bool lacks(const donor *o, uint32_t file)
{
    return o->lacks[file / 64] >> (file % 64) & 1;
}

/* ---- what comes ---- */

static void learn_rate(donor *o, uint64_t bytes, uint64_t now)
{
    o->heard_ns = now;
    o->rate_bytes += bytes;
    if (now - o->rate_ns < SECOND / 4)
        return;
    uint64_t rate = (uint64_t)((double)o->rate_bytes * 1e9 / (double)(now - o->rate_ns));
    o->rate = o->rate ? (o->rate + rate) / 2 : rate;
    o->rate_ns = now;
    o->rate_bytes = 0;
    uint64_t window = o->rate / 2 / GSP_PIECE_BYTES + WINDOW_FIRST;
    o->window = window < WINDOW_MAX ? (uint32_t)window : WINDOW_MAX;
}

static void wrong(gsp_pool *p, donor *o, const gsp_manifest_file *file)
{
    char who[GSP_PUBLIC_TEXT_BYTES];
    p->haul->wrong++;
    o->liar = true;
    release(p->haul, o);
    atom_log(ATOM_LOG_WARN, "member %.12s sent bytes that are not %s; it is not asked again",
             gsp_public_text(o->key, who), file->name);
    gsp_diary_add(&p->diary, "\"event\":\"bad_piece\",\"key\":\"%s\",\"name\":\"%s\"",
                  gsp_public_text(o->key, who), file->name);
}

void life_piece_came(gsp_pool *p, gsp_link *from, const gsp_word *m)
{
    pool_haul *h = p->haul;
    donor *o = h ? donor_of(h, from->key, false) : NULL;
    part *t = NULL;
    bool good = false;
    for (uint32_t i = 0; o && i < FILES_AT_ONCE; i++)
        if (h->part[i].pieces && gsp_hash_equal(&p->manifest->file[h->part[i].file].hash, &m->hash))
            t = &h->part[i];
    if (!t || o->liar || m->piece >= gsp_pieces_n(t->pieces))
        return;
    bool was_asked = answered(o, t->file, m->piece);
    if (m->kind == GSP_WORD_NO_PIECE) {
        if (was_asked)
            mark(t, m->piece, false);
        o->lacks[t->file / 64] |= 1ull << (t->file % 64);
        o->lacks_ns = atom_clock_ns();
        release(h, o); /* what else it was asked for in that word */
        return;
    }
    if (gsp_pieces_has(t->pieces, m->piece)) {
        h->again++;
        return;
    }
    atom_status st =
        gsp_pieces_put(t->pieces, m->piece, m->body, m->body_bytes, m->path, m->n_path, &good);
    if (st != ATOM_OK) {
        h->failed = st;
        return;
    }
    if (!good) {
        mark(t, m->piece, false);
        wrong(p, o, &p->manifest->file[t->file]);
        return;
    }
    o->given++;
    h->came++;
    h->news_ns = atom_clock_ns();
    learn_rate(o, m->body_bytes, h->news_ns);
}

/* ---- asking ---- */

/* The next piece of a part that nobody was asked for. */
static bool next_piece(part *t, uint32_t *piece)
{
    uint32_t n = gsp_pieces_n(t->pieces);
    while (t->cursor < n && (gsp_pieces_has(t->pieces, t->cursor) ||
                             (t->asked[t->cursor / 8] >> (t->cursor % 8) & 1)))
        t->cursor++;
    *piece = t->cursor;
    return t->cursor < n;
}

static bool pick(pool_haul *h, const donor *o, uint32_t *file, uint32_t *piece)
{
    part *best = NULL;
    for (uint32_t i = 0; i < FILES_AT_ONCE; i++) {
        part *t = &h->part[i];
        if (t->pieces && !lacks(o, t->file) && (!best || t->file < best->file) &&
            gsp_pieces_recheck(t->pieces, 0) && next_piece(t, piece))
            best = t;
    }
    if (!best)
        return false;
    *file = best->file;
    return next_piece(best, piece);
}

/* At the end: what somebody else is late with. */
static bool pick_late(pool_haul *h, const donor *o, uint64_t now, uint32_t *file, uint32_t *piece)
{
    uint64_t oldest = now - LATE_NS;
    bool found = false;
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++) {
        const donor *other = &h->donor[i];
        for (uint32_t k = 0; other->known && other != o && k < other->n; k++) {
            const asked *a = &other->out[k];
            const part *t = part_of(h, a->file);
            if (a->ns < oldest && t && !lacks(o, a->file) && !gsp_pieces_has(t->pieces, a->piece)) {
                oldest = a->ns;
                *file = a->file;
                *piece = a->piece;
                found = true;
            }
        }
    }
    return found;
}

/* A run of pieces in one word; false: nothing more to ask, or the link is full. */
static bool ask_run(gsp_pool *p, donor *o, uint64_t now)
{
    pool_haul *h = p->haul;
    uint32_t file = 0, first = 0, n = 0, at;
    bool late = false;
    if (o->n >= o->window)
        return false;
    if (!pick(h, o, &file, &first)) {
        late = o->n == 0 && pick_late(h, o, now, &file, &first);
        if (!late)
            return false;
    }
    part *t = part_of(h, file);
    uint32_t first_out = o->n;
    do {
        mark(t, first + n, true);
        o->out[o->n++] = (asked){file, first + n, now};
        n++;
    } while (!late && o->n < o->window && n < GSP_WORD_PIECES_MAX && next_piece(t, &at) &&
             at == first + n);
    gsp_word m = {.kind = GSP_WORD_ASK_PIECES,
                  .hash = p->manifest->file[file].hash,
                  .piece = first,
                  .n_pieces = n};
    if (first_out == 0)
        o->heard_ns = o->rate_ns = now;
    if (gsp_links_tell(&p->links, o->key, &m))
        return !late;
    o->n = first_out;
    for (uint32_t k = 0; k < n && !late; k++)
        mark(t, first + k, false);
    return false;
}

static void ask(gsp_pool *p, uint64_t now)
{
    pool_haul *h = p->haul;
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++) {
        donor *o = &h->donor[i];
        if (o->known && o->n && (o->liar || !gsp_links_find(&p->links, o->key)))
            release(h, o);
        if (o->known && o->n && now - o->heard_ns > SLOW_NS) {
            release(h, o);
            o->window = WINDOW_FIRST;
        }
        if (o->lacks_ns && now - o->lacks_ns > LACKS_NS) {
            o->lacks_ns = 0;
            memset(o->lacks, 0, sizeof o->lacks);
        }
    }
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++) {
        const gsp_link *l = &p->links.link[i];
        donor *o = l->up && !l->guest ? donor_of(h, l->key, true) : NULL;
        while (o && !o->liar && ask_run(p, o, now))
            ;
    }
}

void life_haul_step(gsp_pool *p, uint64_t now)
{
    pool_haul *h = p->haul;
    if (!h || h->failed != ATOM_OK || p->is_guest)
        return;
    bool all = true;
    for (uint32_t i = 0; i < FILES_AT_ONCE; i++)
        all &= !h->part[i].pieces || gsp_pieces_recheck(h->part[i].pieces, RECHECK_PIECES);
    if (!all)
        gsp_net_wake(p->net); /* there is more to look at */
    ask(p, now);
}

/* ---- files ---- */

static uint64_t bytes_here(const pool_haul *h)
{
    uint64_t bytes = h->whole;
    for (uint32_t i = 0; i < FILES_AT_ONCE; i++)
        if (h->part[i].pieces)
            bytes += (uint64_t)gsp_pieces_here(h->part[i].pieces) * GSP_PIECE_BYTES;
    return bytes < h->bytes ? bytes : h->bytes;
}

void life_haul_progress(const gsp_pool *p, gsp_pool_progress *out)
{
    const pool_haul *h = p->haul;
    double seconds = 1e-9 * (double)(atom_clock_ns() - h->begun_ns);
    double came = (double)h->came * GSP_PIECE_BYTES;
    out->bytes = h->bytes;
    out->bytes_done = bytes_here(h);
    if (came > 0 && seconds > 1)
        out->left_s = (double)(out->bytes - out->bytes_done) * seconds / came;
}

static char *aside_path(const char *directory, const char *name)
{
    return atom_format("%s/.%s.part", directory, name);
}

/* The next file that is not here. */
static atom_status begin_next(gsp_pool *p, part *t)
{
    pool_haul *h = p->haul;
    while (h->next < p->manifest->n_files &&
           (!p->manifest->file[h->next].later || p->data_whole[h->next]))
        h->next++;
    if (h->next == p->manifest->n_files)
        return ATOM_OK;
    const gsp_manifest_file *file = &p->manifest->file[h->next];
    char *path = aside_path(h->directory, file->name), *tree = life_tree_path(p, file->name);
    atom_status st;
    *t = (part){.file = h->next++};
    t->asked = atom_alloc(gsp_piece_count(file->bytes) / 8 + 1, 1);
    if (!path || !tree || !t->asked)
        ATOM_TRY_CLEAN(atom_fail_memory("a download", 256));
    ATOM_TRY_CLEAN(gsp_pieces_begin(path, tree, file->bytes, &file->hash, &t->pieces));
cleanup:
    atom_free(path);
    atom_free(tree);
    return st;
}

static void part_close(part *t)
{
    gsp_pieces_close(&t->pieces);
    atom_free(t->asked);
    *t = (part){0};
}

static atom_status finish(gsp_pool *p, part *t)
{
    pool_haul *h = p->haul;
    const gsp_manifest_file *file = &p->manifest->file[t->file];
    char *path = atom_path_join(h->directory, file->name);
    atom_status st = path ? gsp_pieces_finish(t->pieces, path) : atom_fail_memory("a path", 256);
    atom_free(path);
    if (st == ATOM_E_FORMAT) {
        atom_log(ATOM_LOG_WARN, "%s", atom_fail_message());
        memset(t->asked, 0, gsp_piece_count(file->bytes) / 8 + 1);
        t->cursor = 0;
        return ATOM_OK;
    }
    if (st != ATOM_OK)
        return st;
    p->data_whole[t->file] = true; /* from now on others get it from here */
    h->whole += file->bytes;
    gsp_diary_add(&p->diary, "\"event\":\"file\",\"name\":\"%s\",\"bytes\":%llu", file->name,
                  (unsigned long long)file->bytes);
    part_close(t);
    return ATOM_OK;
}

/* True in *done: there is nothing left to begin or to wait for. */
static atom_status turn_files(gsp_pool *p, bool *done)
{
    pool_haul *h = p->haul;
    atom_status st = h->failed;
    *done = true;
    for (uint32_t i = 0; i < FILES_AT_ONCE && st == ATOM_OK; i++) {
        part *t = &h->part[i];
        if (t->pieces && gsp_pieces_recheck(t->pieces, 0) &&
            gsp_pieces_here(t->pieces) == gsp_pieces_n(t->pieces))
            st = finish(p, t);
        if (st == ATOM_OK && !t->pieces)
            st = begin_next(p, t);
        *done = *done && !t->pieces;
    }
    return st;
}

static void say(gsp_pool *p)
{
    const pool_haul *h = p->haul;
    uint32_t linked = 0, giving = 0;
    uint64_t now = atom_clock_ns();
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++) {
        linked += p->links.link[i].up && !p->links.link[i].guest;
        giving += h->donor[i].known && h->donor[i].n && now - h->donor[i].heard_ns < SECOND * 2;
    }
    if (!linked)
        gsp_headline_say(&p->headline, GSP_POOL_FETCHING,
                         "no member is linked that could have the data set; waiting");
    else if (!giving && now - h->news_ns > LACKS_NS)
        gsp_headline_say(&p->headline, GSP_POOL_FETCHING,
                         "none of the %u members that are linked gives the data set now; waiting",
                         linked);
    else
        gsp_headline_say(&p->headline, GSP_POOL_FETCHING,
                         "fetching the data set from %u of %u members", giving, linked);
}

static atom_status haul_all(gsp_pool *p, double patience_s, gsp_pool_watch *watch, void *context)
{
    pool_haul *h = p->haul;
    for (bool done = false;;) {
        atom_status st = turn_files(p, &done);
        if (st != ATOM_OK || done)
            return st;
        say(p);
        ATOM_TRY(life_wait(p, WAIT_NS, watch, context));
        double silent = 1e-9 * (double)(atom_clock_ns() - h->news_ns);
        if (patience_s > 0 && silent > patience_s)
            return atom_fail(ATOM_E_RUNTIME, "the data set could not be fetched in time: %s",
                             p->headline.text);
    }
}

/* ---- a whole data set ---- */

static atom_status take_place(gsp_pool *p, const char *directory)
{
    char *copy = atom_strdup(directory), *trees = atom_path_join(p->directory, "trees");
    atom_status st = copy && trees ? atom_dir_make(trees) : atom_fail_memory("a path", 256);
    atom_free(trees);
    life_pieces_close(p);
    memset(p->data_whole, 0, sizeof p->data_whole);
    atom_free(p->data_dir);
    p->data_dir = copy;
    return st;
}

/* What a former run left of a file. */
static uint64_t left_of(const char *directory, const gsp_manifest_file *file)
{
    struct stat s;
    char *path = aside_path(directory, file->name);
    uint64_t bytes = path && stat(path, &s) == 0 ? (uint64_t)s.st_blocks * 512 : 0;
    atom_free(path);
    return bytes < file->bytes ? bytes : file->bytes;
}

static atom_status look_at(gsp_pool *p, uint32_t i, gsp_pool_data *out)
{
    const gsp_manifest_file *file = &p->manifest->file[i];
    char *path = atom_path_join(p->data_dir, file->name), *tree = life_tree_path(p, file->name);
    bool there = false, same = false;
    atom_status st = path && tree
                         ? gsp_pieces_check(path, tree, file->bytes, &file->hash, &there, &same)
                         : atom_fail_memory("a path", 256);
    out->n_files++;
    out->bytes += file->bytes;
    out->n_here += same;
    out->bytes_here += same ? file->bytes : left_of(p->data_dir, file);
    p->data_whole[i] = same;
    if (there && !same && !out->wrong[0])
        memcpy(out->wrong, file->name, sizeof out->wrong);
    if (!there && !out->missing[0])
        memcpy(out->missing, file->name, sizeof out->missing);
    atom_free(path);
    atom_free(tree);
    return st;
}

atom_status gsp_pool_data_look(gsp_pool *p, const char *directory, gsp_pool_watch *watch,
                               void *context, gsp_pool_data *out)
{
    gsp_pool_progress progress = {.stage = p->headline.now, .text = "looking at the data"};
    if (p->has_thread)
        return atom_fail(ATOM_E_USAGE, "data is looked at before the pool starts");
    atom_status st = take_place(p, directory);
    *out = (gsp_pool_data){0};
    for (uint32_t i = 0; st == ATOM_OK && i < p->manifest->n_files; i++) {
        if (!p->manifest->file[i].later)
            continue;
        if (watch && !watch(context, &progress))
            return atom_fail(ATOM_E_INTERRUPTED, "interrupted while looking at the data");
        st = look_at(p, i, out);
    }
    return st;
}

atom_status gsp_pool_data_fetch(gsp_pool *p, const char *directory, double patience_s,
                                gsp_pool_watch *watch, void *context)
{
    gsp_pool_data data;
    uint32_t donors = 0;
    atom_status st;
    pool_haul *h = NULL;
    ATOM_TRY_CLEAN(gsp_pool_data_look(p, directory, watch, context, &data));
    ATOM_TRY_CLEAN(atom_dir_make(directory));
    h = atom_alloc(1, sizeof *h);
    if (!h)
        ATOM_TRY_CLEAN(atom_fail_memory("a download", sizeof *h));
    *h = (pool_haul){.directory = directory, .bytes = data.bytes};
    for (uint32_t i = 0; i < p->manifest->n_files; i++)
        h->whole += p->data_whole[i] ? p->manifest->file[i].bytes : 0;
    h->begun_ns = h->news_ns = atom_clock_ns();
    p->haul = h;
    ATOM_TRY_CLEAN(haul_all(p, patience_s, watch, context));
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++)
        donors += h->donor[i].given > 0;
    gsp_diary_add(&p->diary,
                  "\"event\":\"data\",\"bytes\":%llu,\"pieces\":%llu,\"again\":%llu,\"wrong\":%llu,"
                  "\"donors\":%u,\"seconds\":%.3f",
                  (unsigned long long)data.bytes, (unsigned long long)h->came,
                  (unsigned long long)h->again, (unsigned long long)h->wrong, donors,
                  1e-9 * (double)(atom_clock_ns() - h->begun_ns));
    gsp_headline_say(&p->headline, GSP_POOL_READY, "ready");
cleanup:
    p->haul = NULL;
    for (uint32_t i = 0; h && i < FILES_AT_ONCE; i++)
        part_close(&h->part[i]);
    atom_free(h);
    return st;
}
