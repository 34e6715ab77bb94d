/*
 * Owns what the caller gets from others before the start: files, the data set, notes. Its one idea:
 * whoever waits turns the net himself, with the same words and steps as the pool's thread later. It
 * refuses all of it once that thread runs.
 */
#include "gossip/pool/pool_inner.h"

#include "atom/base/clock.h"
#include "atom/base/files.h"
#include "atom/base/mem.h"
#include "gossip/pool/dir.h"

static const uint64_t SLICE_NS = 50000000u, FILE_WAIT_NS = 20000000u, NOTE_WAIT_NS = 20000000u;

static void progress_of(gsp_pool *p, gsp_pool_progress *out)
{
    *out = (gsp_pool_progress){.stage = p->headline.now, .text = p->headline.text};
    if (p->data.haul)
        gsp_data_progress(&p->data, &out->bytes, &out->bytes_done, &out->left_s);
    else if (p->door.has_manifest)
        for (uint32_t i = 0; i < p->door.manifest->n_files; i++)
            out->bytes += p->door.manifest->file[i].later ? 0 : p->door.manifest->file[i].bytes;
}

atom_status gsp_pool_wait(gsp_pool *p, uint64_t ns, gsp_pool_watch *watch, void *context)
{
    uint64_t until = atom_clock_ns() + ns;
    gsp_pool_progress progress;
    if (atomic_load(&p->asked_stop) || atomic_load(&p->leave)) /* over the control socket */
        return atom_fail(ATOM_E_INTERRUPTED, "asked to end while joining: %s", p->headline.text);
    for (uint64_t now = 0; now < until; now = atom_clock_ns()) {
        gsp_net_event event;
        ATOM_TRY(gsp_net_next(p->net, SLICE_NS < ns ? SLICE_NS : ns, &event));
        (void)gsp_pool_take(p, &event); /* words of the agreement are not for us yet */
        gsp_net_free(p->net, event.data);
        gsp_pool_step(p);
        ATOM_TRY(gsp_headline_check(&p->headline));
    }
    progress_of(p, &progress);
    if (watch && !watch(context, &progress))
        return atom_fail(ATOM_E_INTERRUPTED, "interrupted while joining: %s", p->headline.text);
    return ATOM_OK;
}

/* ---- files ---- */

static atom_status fetch_file(gsp_pool *p, const gsp_manifest_file *file, double patience_s,
                              gsp_pool_watch *watch, void *context)
{
    bool finished = false;
    atom_status st;
    double news = atom_clock_seconds();
    ATOM_TRY_CLEAN(gsp_files_fetch_begin(p->files, file));
    for (uint64_t here = gsp_files_fetched(p->files);;) {
        gsp_headline_say(&p->headline, GSP_POOL_FETCHING, "fetching %s", file->name);
        ATOM_TRY_CLEAN(gsp_files_fetch_turn(p->files, &finished));
        if (finished)
            break;
        ATOM_TRY_CLEAN(gsp_pool_wait(p, FILE_WAIT_NS, watch, context));
        if (here != gsp_files_fetched(p->files))
            news = atom_clock_seconds();
        here = gsp_files_fetched(p->files);
        if (patience_s > 0 && atom_clock_seconds() - news > patience_s)
            ATOM_TRY_CLEAN(atom_fail(ATOM_E_RUNTIME,
                                     "%s could not be fetched in time, because no member sends it",
                                     file->name));
    }
cleanup:
    gsp_files_fetch_end(p->files);
    return st;
}

atom_status gsp_pool_fetch(gsp_pool *p, const char *name, double patience_s, gsp_pool_watch *watch,
                           void *context, char **path)
{
    const gsp_manifest_file *file = gsp_manifest_find(p->door.manifest, name);
    if (!file)
        return atom_fail(ATOM_E_USAGE, "the pool has no file '%s'", name);
    if (file->later)
        return atom_fail(ATOM_E_USAGE,
                         "'%s' belongs to the pool's data set, which is fetched as a whole", name);
    if (p->has_thread)
        return atom_fail(ATOM_E_USAGE, "files are fetched before the pool starts");
    ATOM_TRY(fetch_file(p, file, patience_s, watch, context));
    gsp_headline_say(&p->headline, GSP_POOL_READY, "ready");
    char *at = atom_format("%s/files/%s", p->directory, name);
    if (!at)
        return atom_fail_memory("a path", 0);
    *path = at;
    return ATOM_OK;
}

/* ---- data ---- */

atom_status gsp_pool_data_look(gsp_pool *p, const char *directory, gsp_pool_watch *watch,
                               void *context, gsp_pool_data *out)
{
    const gsp_manifest *m = p->door.manifest;
    gsp_pool_progress progress = {.stage = p->headline.now, .text = "looking at the data"};
    if (p->has_thread)
        return atom_fail(ATOM_E_USAGE, "data is looked at before the pool starts");
    ATOM_TRY(gsp_data_place(&p->data, directory));
    *out = (gsp_pool_data){0};
    for (uint32_t i = 0; i < m->n_files; i++) {
        if (!m->file[i].later)
            continue;
        if (watch && !watch(context, &progress))
            return atom_fail(ATOM_E_INTERRUPTED, "interrupted while looking at the data");
        ATOM_TRY(gsp_data_look(&p->data, i, out));
    }
    return ATOM_OK;
}

atom_status gsp_pool_data_fetch(gsp_pool *p, const char *directory, double patience_s,
                                gsp_pool_watch *watch, void *context)
{
    gsp_pool_data data;
    char text[GSP_POOL_WHY_BYTES];
    bool finished = false;
    atom_status st;
    ATOM_TRY_CLEAN(gsp_pool_data_look(p, directory, watch, context, &data));
    if (data.in_the_way[0])
        ATOM_TRY_CLEAN(
            atom_fail(ATOM_E_USAGE,
                      "%s/%s is not the pool's file and did not come from the pool, so it is not "
                      "replaced. Move it away, or fetch into another directory",
                      directory, data.in_the_way));
    ATOM_TRY_CLEAN(atom_dir_make(directory));
    ATOM_TRY_CLEAN(gsp_dir_room(directory, data.bytes - data.bytes_here, "the data set"));
    ATOM_TRY_CLEAN(gsp_data_fetch_begin(&p->data, directory, data.bytes));
    for (;;) {
        ATOM_TRY_CLEAN(gsp_data_fetch_turn(&p->data, &finished));
        if (finished)
            break;
        gsp_headline_say(&p->headline, GSP_POOL_FETCHING, "%s",
                         gsp_data_text(&p->data, text, sizeof text));
        ATOM_TRY_CLEAN(gsp_pool_wait(p, SLICE_NS, watch, context));
        if (patience_s > 0 && gsp_data_silent_s(&p->data) > patience_s)
            ATOM_TRY_CLEAN(atom_fail(
                ATOM_E_RUNTIME, "the data set could not be fetched in time: %s", p->headline.text));
    }
    gsp_headline_say(&p->headline, GSP_POOL_READY, "ready");
cleanup:
    gsp_data_fetch_end(&p->data);
    return st;
}

/* ---- notes ---- */

atom_status gsp_pool_note(gsp_pool *p, const gsp_hash *key, const char *text)
{
    if (p->has_thread)
        return atom_fail(ATOM_E_USAGE, "notes are left before the pool starts");
    return gsp_notes_leave(p->notes, key, text);
}

atom_status gsp_pool_ask(gsp_pool *p, const gsp_hash *key, double patience_s, gsp_pool_watch *watch,
                         void *watching, gsp_pool_look *look, void *context, bool *found)
{
    uint64_t now = atom_clock_ns(), end = now + (uint64_t)(1e9 * patience_s);
    atom_status st = ATOM_OK;
    *found = false;
    if (p->has_thread)
        return atom_fail(ATOM_E_USAGE, "notes are asked for before the pool starts");
    gsp_notes_ask_begin(p->notes, key, look, context);
    while (st == ATOM_OK && now < end && !gsp_notes_ask_step(p->notes, now)) {
        st = gsp_pool_wait(p, NOTE_WAIT_NS, watch, watching);
        now = atom_clock_ns();
    }
    *found = gsp_notes_ask_end(p->notes);
    return st;
}
