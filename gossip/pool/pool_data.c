/*
 * Owns the getting of data: which of the manifest's data files lie in a directory, and fetching the
 * others from all members at once. Its one idea: a piece proves itself, so it may come from anybody
 * in any order; the swarm (swarm.h) decides whom to ask. It refuses a donor that sent a wrong piece,
 * from then on.
 */
#include "gossip/pool/whole.h"

#include "atom/base/clock.h"
#include "atom/base/files.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"
#include "gossip/pool/donors.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum {
    FILES_AT_ONCE = 2,   /* the next begins where the last pieces of one are awaited */
    RECHECK_PIECES = 16, /* of a former run, per step */
};
static const uint64_t QUIET_NS = 5000000000u;

typedef struct part {
    uint32_t file;      /* of the manifest; its set in the swarm */
    gsp_pieces *pieces; /* NULL: free */
} part;

struct pool_haul {
    const char *directory;
    uint32_t next; /* file of the manifest to begin with next */
    part part[FILES_AT_ONCE];
    gsp_swarm *swarm;
    uint64_t bytes, whole; /* of all files; of those that are whole */
    uint64_t begun_ns, news_ns;
    atom_status failed;
};

static atom_status open_swarm(const gsp_pool *p, gsp_swarm **out)
{
    uint32_t n_pieces[GSP_MANIFEST_FILES_MAX] = {0};
    gsp_swarm_config config = {
        .n_donors = GSP_NET_PEERS_MAX,
        .n_sets = p->door.manifest->n_files,
        .n_pieces = n_pieces,
        .piece_bytes = GSP_PIECE_BYTES,
        .window_first = 4,
        .window_min = 4,
        .window_max = 64,
        .run_max = GSP_WORD_PIECES_MAX,
        .offers_all = true,
        .silent_ns = 8000000000u,
        .deny_ns = 5000000000u,
        .late_ns = 400000000u,
    };
    for (uint32_t i = 0; i < p->door.manifest->n_files; i++) {
        const gsp_manifest_file *file = &p->door.manifest->file[i];
        if (file->later && !p->data_whole[i])
            n_pieces[i] = (uint32_t)gsp_piece_count(file->bytes);
    }
    void *memory = atom_alloc(1, gsp_swarm_bytes(&config));
    if (!memory)
        return atom_fail_memory("a download", gsp_swarm_bytes(&config));
    *out = gsp_swarm_open(&config, memory);
    return ATOM_OK;
}

/* ---- what comes ---- */

static void wrong(gsp_pool *p, const gsp_link *from, const gsp_manifest_file *file)
{
    char who[GSP_PUBLIC_TEXT_BYTES];
    atom_log(ATOM_LOG_WARN, "member %.12s sent bytes that are not %s; it is not asked again",
             gsp_public_text(from->key, who), file->name);
    gsp_diary_add(&p->diary, "\"event\":\"bad_piece\",\"key\":\"%s\",\"name\":\"%s\"",
                  gsp_public_text(from->key, who), file->name);
}

void gsp_pool_piece_came(gsp_pool *p, const gsp_link *from, const gsp_word *m)
{
    pool_haul *h = p->haul;
    uint32_t donor = h ? gsp_swarm_find(h->swarm, from->key) : GSP_SWARM_NOBODY;
    uint64_t now = atom_clock_ns();
    gsp_swarm_verdict verdict = GSP_SWARM_GOOD;
    part *t = NULL;
    bool good = true;
    for (uint32_t i = 0; donor != GSP_SWARM_NOBODY && i < FILES_AT_ONCE; i++)
        if (h->part[i].pieces &&
            gsp_hash_equal(&p->door.manifest->file[h->part[i].file].hash, &m->hash))
            t = &h->part[i];
    if (!t || h->failed != ATOM_OK || gsp_swarm_is_barred(h->swarm, donor) ||
        m->piece >= gsp_pieces_n(t->pieces))
        return;
    if (m->kind == GSP_WORD_NO_PIECE) {
        verdict = GSP_SWARM_DENIED;
    } else if (!gsp_pieces_has(t->pieces, m->piece)) {
        h->failed =
            gsp_pieces_put(t->pieces, m->piece, m->body, m->body_bytes, m->path, m->n_path, &good);
        if (h->failed != ATOM_OK)
            return;
        if (good)
            h->news_ns = now;
        else
            verdict = GSP_SWARM_WRONG;
    }
    gsp_swarm_came(h->swarm, now, donor, t->file, m->piece, m->body_bytes, verdict);
    if (verdict == GSP_SWARM_WRONG)
        wrong(p, from, &p->door.manifest->file[t->file]);
}

/* ---- asking ---- */

static bool ask(void *context, const gsp_swarm_ask *a)
{
    gsp_pool *p = context;
    gsp_word m = {.kind = GSP_WORD_ASK_PIECES,
                  .hash = p->door.manifest->file[a->set].hash,
                  .piece = a->first,
                  .n_pieces = a->n};
    return gsp_links_tell(&p->links, a->name, &m);
}

/* Looks at what a former run left of a file, then asks for the rest; true: all was looked at. */
static bool recheck(pool_haul *h, part *t)
{
    if (!gsp_pieces_recheck(t->pieces, RECHECK_PIECES))
        return false;
    if (gsp_swarm_is_open(h->swarm, t->file))
        return true;
    gsp_swarm_begin(h->swarm, t->file, 0);
    for (uint32_t k = 0; k < gsp_pieces_n(t->pieces); k++)
        gsp_swarm_here(h->swarm, t->file, k, gsp_pieces_has(t->pieces, k));
    return true;
}

void gsp_pool_haul_step(gsp_pool *p, uint64_t now)
{
    pool_haul *h = p->haul;
    bool all = true;
    if (!h || h->failed != ATOM_OK || p->door.is_guest)
        return;
    for (uint32_t i = 0; i < FILES_AT_ONCE; i++)
        all &= !h->part[i].pieces || recheck(h, &h->part[i]);
    if (!all)
        gsp_net_wake(p->net); /* there is more to look at */
    gsp_donors_update(&p->links, h->swarm, NULL, NULL);
    gsp_swarm_turn(h->swarm, now, ask, p);
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

void gsp_pool_haul_progress(const gsp_pool *p, gsp_pool_progress *out)
{
    const pool_haul *h = p->haul;
    uint64_t now = atom_clock_ns();
    double seconds = 1e-9 * (double)(now - h->begun_ns);
    gsp_swarm_status swarm;
    gsp_swarm_look(h->swarm, now, &swarm);
    double came = (double)swarm.came * GSP_PIECE_BYTES;
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
    while (h->next < p->door.manifest->n_files &&
           (!p->door.manifest->file[h->next].later || p->data_whole[h->next]))
        h->next++;
    if (h->next == p->door.manifest->n_files)
        return ATOM_OK;
    const gsp_manifest_file *file = &p->door.manifest->file[h->next];
    char *path = aside_path(h->directory, file->name), *tree = gsp_pool_tree_path(p, file->name);
    atom_status st;
    *t = (part){.file = h->next++};
    if (!path || !tree)
        ATOM_TRY_CLEAN(atom_fail_memory("a download", 256));
    ATOM_TRY_CLEAN(gsp_pieces_begin(path, tree, file->bytes, &file->hash, &t->pieces));
cleanup:
    atom_free(path);
    atom_free(tree);
    return st;
}

static atom_status finish(gsp_pool *p, part *t)
{
    pool_haul *h = p->haul;
    const gsp_manifest_file *file = &p->door.manifest->file[t->file];
    char *path = atom_path_join(h->directory, file->name);
    atom_status st = path ? gsp_pieces_finish(t->pieces, path) : atom_fail_memory("a path", 256);
    atom_free(path);
    gsp_swarm_end(h->swarm, t->file);
    if (st == ATOM_E_FORMAT) { /* it begins anew */
        atom_log(ATOM_LOG_WARN, "%s", atom_fail_message());
        return ATOM_OK;
    }
    ATOM_TRY(st);
    p->data_whole[t->file] = true; /* from now on others get it from here */
    h->whole += file->bytes;
    gsp_diary_add(&p->diary, "\"event\":\"file\",\"name\":\"%s\",\"bytes\":%llu", file->name,
                  (unsigned long long)file->bytes);
    gsp_pieces_close(&t->pieces);
    return ATOM_OK;
}

/* True in *done: there is nothing left to begin or to wait for. */
static atom_status turn_files(gsp_pool *p, bool *done)
{
    pool_haul *h = p->haul;
    ATOM_TRY(h->failed);
    *done = true;
    for (uint32_t i = 0; i < FILES_AT_ONCE; i++) {
        part *t = &h->part[i];
        if (t->pieces && gsp_pieces_recheck(t->pieces, 0) &&
            gsp_pieces_here(t->pieces) == gsp_pieces_n(t->pieces))
            ATOM_TRY(finish(p, t));
        if (!t->pieces)
            ATOM_TRY(begin_next(p, t));
        *done = *done && !t->pieces;
    }
    return ATOM_OK;
}

static void say(gsp_pool *p)
{
    const pool_haul *h = p->haul;
    uint32_t linked = 0;
    uint64_t now = atom_clock_ns();
    gsp_swarm_status swarm;
    gsp_swarm_look(h->swarm, now, &swarm);
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++)
        linked += p->links.link[i].up && !p->links.link[i].guest;
    if (!linked)
        gsp_headline_say(&p->headline, GSP_POOL_FETCHING,
                         "no member is linked that could have the data set; waiting");
    else if (!swarm.giving && now - h->news_ns > QUIET_NS)
        gsp_headline_say(&p->headline, GSP_POOL_FETCHING,
                         "none of the %u members that are linked gives the data set now; waiting",
                         linked);
    else
        gsp_headline_say(&p->headline, GSP_POOL_FETCHING,
                         "fetching the data set from %u of %u members", swarm.giving, linked);
}

/* ---- a whole data set ---- */

static atom_status take_place(gsp_pool *p, const char *directory)
{
    char *copy = atom_strdup(directory);
    atom_status st = copy ? gsp_dir_make(p->directory, "trees") : atom_fail_memory("a path", 256);
    gsp_pool_close_pieces(p);
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
    const gsp_manifest_file *file = &p->door.manifest->file[i];
    char *path = atom_path_join(p->data_dir, file->name), *tree = gsp_pool_tree_path(p, file->name);
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
    ATOM_TRY(take_place(p, directory));
    *out = (gsp_pool_data){0};
    for (uint32_t i = 0; i < p->door.manifest->n_files; i++) {
        if (!p->door.manifest->file[i].later)
            continue;
        if (watch && !watch(context, &progress))
            return atom_fail(ATOM_E_INTERRUPTED, "interrupted while looking at the data");
        ATOM_TRY(look_at(p, i, out));
    }
    return ATOM_OK;
}

atom_status gsp_pool_haul_begin(gsp_pool *p, const char *directory, uint64_t bytes)
{
    ATOM_TRY(atom_dir_make(directory));
    pool_haul *h = atom_alloc(1, sizeof *h);
    if (!h)
        return atom_fail_memory("a download", sizeof *h);
    *h = (pool_haul){.directory = directory, .bytes = bytes};
    p->haul = h;
    for (uint32_t i = 0; i < p->door.manifest->n_files; i++)
        h->whole += p->data_whole[i] ? p->door.manifest->file[i].bytes : 0;
    h->begun_ns = h->news_ns = atom_clock_ns();
    return open_swarm(p, &h->swarm);
}

static void note_end(gsp_pool *p)
{
    const pool_haul *h = p->haul;
    uint64_t now = atom_clock_ns();
    gsp_swarm_status swarm;
    gsp_swarm_look(h->swarm, now, &swarm);
    gsp_diary_add(&p->diary,
                  "\"event\":\"data\",\"bytes\":%llu,\"pieces\":%llu,\"again\":%llu,\"wrong\":%llu,"
                  "\"donors\":%u,\"seconds\":%.3f",
                  (unsigned long long)h->bytes, (unsigned long long)swarm.came,
                  (unsigned long long)swarm.again, (unsigned long long)swarm.wrong, swarm.givers,
                  1e-9 * (double)(now - h->begun_ns));
}

atom_status gsp_pool_haul_turn(gsp_pool *p, bool *finished)
{
    ATOM_TRY(turn_files(p, finished));
    if (*finished)
        note_end(p);
    else
        say(p);
    return ATOM_OK;
}

double gsp_pool_haul_silent_s(const gsp_pool *p)
{
    return 1e-9 * (double)(atom_clock_ns() - p->haul->news_ns);
}

void gsp_pool_haul_end(gsp_pool *p)
{
    pool_haul *h = p->haul;
    p->haul = NULL;
    for (uint32_t i = 0; h && i < FILES_AT_ONCE; i++)
        gsp_pieces_close(&h->part[i].pieces);
    if (h)
        atom_free(h->swarm);
    atom_free(h);
}
