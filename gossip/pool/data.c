/*
 * Owns the getting of data: which of the manifest's data files lie in a directory, and fetching the
 * others from all members at once. Its one idea: a piece proves itself, so it may come from anybody
 * in any order; the swarm (swarm.h) decides whom to ask. It refuses a donor that sent a wrong piece,
 * from then on.
 */
#include "gossip/pool/data.h"

#include "atom/base/clock.h"
#include "atom/base/files.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"
#include "gossip/pool/dir.h"
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

struct gsp_haul {
    const char *directory;
    uint32_t next; /* file of the manifest to begin with next */
    part part[FILES_AT_ONCE];
    gsp_swarm *swarm;
    uint64_t bytes, whole; /* of all files; of those that are whole */
    uint64_t begun_ns, news_ns;
    atom_status failed;
};

static atom_status open_swarm(const gsp_data *d, gsp_swarm **out)
{
    uint32_t n_pieces[GSP_MANIFEST_FILES_MAX] = {0};
    gsp_swarm_config config = {
        .n_donors = GSP_NET_PEERS_MAX,
        .n_sets = d->manifest->n_files,
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
    for (uint32_t i = 0; i < d->manifest->n_files; i++) {
        const gsp_manifest_file *file = &d->manifest->file[i];
        if (file->later) /* also of what is whole now: it may be lost, and is fetched again then */
            n_pieces[i] = (uint32_t)gsp_piece_count(file->bytes);
    }
    void *memory = atom_alloc(1, gsp_swarm_bytes(&config));
    if (!memory)
        return atom_fail_memory("a download", gsp_swarm_bytes(&config));
    *out = gsp_swarm_open(&config, memory);
    return ATOM_OK;
}

/* ---- what comes ---- */

static void wrong(gsp_data *d, const gsp_link *from, const gsp_manifest_file *file)
{
    char who[GSP_PUBLIC_TEXT_BYTES], text[GSP_MEMBER_TEXT_BYTES];
    atom_log(ATOM_LOG_WARN, "%s sent wrong bytes of %s; it is not asked again",
             gsp_member_text(from->name, from->key, text), file->name);
    gsp_event_log_add(d->diary, "\"event\":\"bad_piece\",\"key\":\"%s\",\"name\":\"%s\"",
                      gsp_public_text(from->key, who), file->name);
}

void gsp_data_came(gsp_data *d, const gsp_link *from, const gsp_word *m)
{
    gsp_haul *h = d->haul;
    uint32_t donor = h ? gsp_swarm_find(h->swarm, from->key) : GSP_SWARM_NOBODY;
    uint64_t now = atom_clock_ns();
    gsp_swarm_verdict verdict = GSP_SWARM_GOOD;
    part *t = NULL;
    bool good = true;
    for (uint32_t i = 0; donor != GSP_SWARM_NOBODY && i < FILES_AT_ONCE; i++)
        if (h->part[i].pieces && gsp_hash_equal(&d->manifest->file[h->part[i].file].hash, &m->hash))
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
        wrong(d, from, &d->manifest->file[t->file]);
}

/* ---- asking ---- */

static bool ask(void *context, const gsp_swarm_ask *a)
{
    gsp_data *d = context;
    gsp_word m = {.kind = GSP_WORD_ASK_PIECES,
                  .hash = d->manifest->file[a->set].hash,
                  .piece = a->first,
                  .n_pieces = a->n};
    return gsp_links_tell(d->links, a->name, &m);
}

/* Looks at what a former run left of a file, then asks for the rest; true: all was looked at. */
static bool recheck(gsp_haul *h, part *t)
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

void gsp_data_step(gsp_data *d, uint64_t now)
{
    gsp_haul *h = d->haul;
    bool all = true;
    if (!h || h->failed != ATOM_OK)
        return;
    for (uint32_t i = 0; i < FILES_AT_ONCE; i++)
        all &= !h->part[i].pieces || recheck(h, &h->part[i]);
    if (!all)
        gsp_net_wake(d->links->net); /* there is more to look at */
    gsp_donors_update(d->links, h->swarm, NULL, NULL);
    gsp_swarm_turn(h->swarm, now, ask, d);
}

/* ---- files ---- */

static uint64_t count_here(const gsp_haul *h)
{
    uint64_t bytes = h->whole;
    for (uint32_t i = 0; i < FILES_AT_ONCE; i++)
        if (h->part[i].pieces)
            bytes += (uint64_t)gsp_pieces_here(h->part[i].pieces) * GSP_PIECE_BYTES;
    return bytes < h->bytes ? bytes : h->bytes;
}

void gsp_data_progress(const gsp_data *d, uint64_t *bytes, uint64_t *bytes_here, double *left_s)
{
    const gsp_haul *h = d->haul;
    uint64_t now = atom_clock_ns();
    double seconds = 1e-9 * (double)(now - h->begun_ns);
    gsp_swarm_status swarm;
    gsp_swarm_look(h->swarm, now, &swarm);
    double came = (double)swarm.came * GSP_PIECE_BYTES;
    *bytes = h->bytes;
    *bytes_here = count_here(h);
    if (came > 0 && seconds > 1)
        *left_s = (double)(*bytes - *bytes_here) * seconds / came;
}

static char *aside_path(const char *directory, const char *name)
{
    return atom_format("%s/.%s.part", directory, name);
}

/* The next file that is not here. */
static atom_status begin_next(gsp_data *d, part *t)
{
    gsp_haul *h = d->haul;
    while (h->next < d->manifest->n_files &&
           (!d->manifest->file[h->next].later || d->whole[h->next]))
        h->next++;
    if (h->next == d->manifest->n_files)
        return ATOM_OK;
    const gsp_manifest_file *file = &d->manifest->file[h->next];
    char *path = aside_path(h->directory, file->name), *tree = gsp_data_tree_path(d, file->name);
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

static atom_status finish(gsp_data *d, part *t)
{
    gsp_haul *h = d->haul;
    const gsp_manifest_file *file = &d->manifest->file[t->file];
    char *path = atom_path_join(h->directory, file->name);
    atom_status st = path ? gsp_pieces_finish(t->pieces, path) : atom_fail_memory("a path", 256);
    atom_free(path);
    gsp_swarm_end(h->swarm, t->file);
    if (st == ATOM_E_FORMAT) { /* it begins anew */
        atom_log(ATOM_LOG_WARN, "%s", atom_fail_message());
        return ATOM_OK;
    }
    ATOM_TRY(st);
    d->whole[t->file] = true; /* from now on others get it from here */
    h->whole += file->bytes;
    gsp_event_log_add(d->diary, "\"event\":\"file\",\"name\":\"%s\",\"bytes\":%llu", file->name,
                      (unsigned long long)file->bytes);
    gsp_pieces_close(&t->pieces);
    return ATOM_OK;
}

/* True in *done: there is nothing left to begin or to wait for. */
static atom_status turn_files(gsp_data *d, bool *done)
{
    gsp_haul *h = d->haul;
    ATOM_TRY(h->failed);
    *done = true;
    for (uint32_t i = 0; i < FILES_AT_ONCE; i++) {
        part *t = &h->part[i];
        if (t->pieces && gsp_pieces_recheck(t->pieces, 0) &&
            gsp_pieces_here(t->pieces) == gsp_pieces_n(t->pieces))
            ATOM_TRY(finish(d, t));
        if (!t->pieces)
            ATOM_TRY(begin_next(d, t));
        *done = *done && !t->pieces;
    }
    return ATOM_OK;
}

const char *gsp_data_text(const gsp_data *d, char *text, size_t bytes)
{
    const gsp_haul *h = d->haul;
    uint32_t linked = 0;
    uint64_t now = atom_clock_ns();
    gsp_swarm_status swarm;
    gsp_swarm_look(h->swarm, now, &swarm);
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++)
        linked += d->links->link[i].up && !d->links->link[i].guest;
    if (!linked)
        snprintf(text, bytes,
                 "there is no connection to a member that could have the data set; "
                 "waiting");
    else if (!swarm.giving && now - h->news_ns > QUIET_NS)
        snprintf(text, bytes,
                 "none of the %u connected members sends the data set at the moment; waiting",
                 linked);
    else
        snprintf(text, bytes, "fetching the data set from %u of %u member%s", swarm.giving, linked,
                 linked == 1 ? "" : "s");
    return text;
}

/* ---- a whole data set ---- */

atom_status gsp_data_place(gsp_data *d, const char *directory)
{
    char *copy = atom_strdup(directory);
    atom_status st = copy ? gsp_dir_make(d->directory, "trees") : atom_fail_memory("a path", 256);
    gsp_data_close_open(d);
    memset(d->whole, 0, sizeof d->whole);
    atom_free(d->place);
    d->place = copy;
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

atom_status gsp_data_look(gsp_data *d, uint32_t i, gsp_pool_data *out)
{
    const gsp_manifest_file *file = &d->manifest->file[i];
    char *path = atom_path_join(d->place, file->name), *tree = gsp_data_tree_path(d, file->name);
    bool there = false, same = false;
    atom_status st = path && tree
                         ? gsp_pieces_check(path, tree, file->bytes, &file->hash, &there, &same)
                         : atom_fail_memory("a path", 256);
    out->n_files++;
    out->bytes += file->bytes;
    out->n_here += same;
    out->bytes_here += same ? file->bytes : left_of(d->place, file);
    d->whole[i] = same;
    if (there && !same && !out->wrong[0])
        memcpy(out->wrong, file->name, sizeof out->wrong);
    /* What was fetched, or was once the pool's, has a tree. */
    if (there && !same && tree && !atom_path_exists(tree) && !out->in_the_way[0])
        memcpy(out->in_the_way, file->name, sizeof out->in_the_way);
    if (!there && !out->missing[0])
        memcpy(out->missing, file->name, sizeof out->missing);
    atom_free(path);
    atom_free(tree);
    return st;
}

atom_status gsp_data_fetch_begin(gsp_data *d, const char *directory, uint64_t bytes)
{
    ATOM_TRY(atom_dir_make(directory));
    gsp_haul *h = atom_alloc(1, sizeof *h);
    if (!h)
        return atom_fail_memory("a download", sizeof *h);
    *h = (gsp_haul){.directory = directory, .bytes = bytes};
    d->haul = h;
    for (uint32_t i = 0; i < d->manifest->n_files; i++)
        h->whole += d->whole[i] ? d->manifest->file[i].bytes : 0;
    h->begun_ns = h->news_ns = atom_clock_ns();
    return open_swarm(d, &h->swarm);
}

static void note_end(gsp_data *d)
{
    const gsp_haul *h = d->haul;
    uint64_t now = atom_clock_ns();
    gsp_swarm_status swarm;
    gsp_swarm_look(h->swarm, now, &swarm);
    gsp_event_log_add(
        d->diary,
        "\"event\":\"data\",\"bytes\":%llu,\"pieces\":%llu,\"again\":%llu,\"wrong\":%llu,"
        "\"donors\":%u,\"seconds\":%.3f",
        (unsigned long long)h->bytes, (unsigned long long)swarm.came,
        (unsigned long long)swarm.again, (unsigned long long)swarm.wrong, swarm.givers,
        1e-9 * (double)(now - h->begun_ns));
}

atom_status gsp_data_fetch_turn(gsp_data *d, bool *finished)
{
    ATOM_TRY(turn_files(d, finished));
    if (*finished)
        note_end(d);
    return ATOM_OK;
}

double gsp_data_silent_s(const gsp_data *d)
{
    return 1e-9 * (double)(atom_clock_ns() - d->haul->news_ns);
}

void gsp_data_fetch_end(gsp_data *d)
{
    gsp_haul *h = d->haul;
    d->haul = NULL;
    for (uint32_t i = 0; h && i < FILES_AT_ONCE; i++)
        gsp_pieces_close(&h->part[i].pieces);
    if (h)
        atom_free(h->swarm);
    atom_free(h);
}

void gsp_data_close(gsp_data *d)
{
    gsp_data_close_open(d);
    atom_free(d->place);
    d->place = NULL;
}
