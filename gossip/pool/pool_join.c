/*
 * Owns the way into a pool: from a ticket to a member with a manifest and its small files. Its one
 * idea: the same words and steps as later, turned on the caller's thread, until nothing is missing.
 * It refuses a directory of another pool, and to wait where waiting does not help.
 */
#include "gossip/pool/pool_inner.h"

#include "atom/base/clock.h"
#include "atom/base/files.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"

#include <sodium.h>
#include <string.h>

static const uint64_t SLICE_NS = 50000000u, ASK_NS = 1000000000u, NOTE_WAIT_NS = 20000000u;

static void progress_of(gsp_pool *p, gsp_pool_progress *out)
{
    *out = (gsp_pool_progress){.stage = p->headline.now, .text = p->headline.text};
    if (p->haul)
        life_haul_progress(p, out);
    else if (p->has_manifest)
        for (uint32_t i = 0; i < p->manifest->n_files; i++)
            out->bytes += p->manifest->file[i].later ? 0 : p->manifest->file[i].bytes;
}

atom_status life_wait(gsp_pool *p, uint64_t ns, gsp_pool_watch *watch, void *context)
{
    uint64_t until = atom_clock_ns() + ns;
    gsp_pool_progress progress;
    for (uint64_t now = 0; now < until; now = atom_clock_ns()) {
        gsp_net_event event;
        ATOM_TRY(gsp_net_next(p->net, SLICE_NS < ns ? SLICE_NS : ns, &event));
        (void)life_take(p, &event); /* words of the agreement are not for us yet */
        gsp_net_free(p->net, event.data);
        life_step(p);
        ATOM_TRY(gsp_headline_check(&p->headline));
    }
    progress_of(p, &progress);
    if (watch && !watch(context, &progress))
        return atom_fail(ATOM_E_INTERRUPTED, "interrupted while joining: %s", p->headline.text);
    return ATOM_OK;
}

/* ---- from the ticket ---- */

static void take_ticket(gsp_pool *p, const gsp_ticket *t)
{
    static const char mark[] = "plain+";
    memcpy(p->pool, t->pool, sizeof p->pool);
    memcpy(p->owner, t->owner, sizeof p->owner);
    memcpy(p->psk[0], t->psk, sizeof t->psk);
    p->n_psks = 1;
    p->n_hosts = t->n_hosts;
    memcpy(p->hosts, t->hosts, sizeof p->hosts);
    p->plain = t->n_hosts > 0 && strncmp(t->hosts[0], mark, sizeof mark - 1) == 0;
}

/* What an earlier membership left here; keys that are newer than the ticket's stay. */
static atom_status take_earlier(gsp_pool *p, const gsp_ticket *t)
{
    uint8_t psk[GSP_PSK_BYTES];
    char *keys = atom_path_join(p->directory, "keys"),
         *manifest = atom_path_join(p->directory, "manifest.json");
    atom_status st = ATOM_OK;
    if (!keys || !manifest)
        ATOM_TRY_CLEAN(atom_fail_memory("a path", 0));
    if (!atom_path_exists(keys))
        goto cleanup;
    ATOM_TRY_CLEAN(life_load_keys(p));
    if (memcmp(p->pool, t->pool, sizeof p->pool) != 0)
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_USAGE, "%s belongs to another pool; take another directory",
                                 p->directory));
    if (atom_path_exists(manifest))
        ATOM_TRY_CLEAN(life_load_manifest(p));
    memcpy(psk, p->psk[0], sizeof psk);
    bool keep = p->has_manifest && p->manifest->number >= t->manifest;
    take_ticket(p, t);
    if (keep)
        memcpy(p->psk[0], psk, sizeof psk);
    sodium_memzero(psk, sizeof psk);
cleanup:
    atom_free(keys);
    atom_free(manifest);
    return st;
}

static atom_status begin(gsp_pool *p, const gsp_ticket *t)
{
    take_ticket(p, t);
    atom_status st = ATOM_OK;
    ATOM_TRY(take_earlier(p, t));
    if (gsp_pool_is_owner(p))
        return atom_fail(ATOM_E_USAGE, "this is the owner's own directory; resume it instead");
    if (!life_load_admission(p)) {
        p->credential_bytes = (uint32_t)gsp_ticket_credential(t, p->credential);
        p->is_guest = true;
        if (p->credential_bytes == 0)
            return atom_fail(ATOM_E_USAGE,
                             "the ticket has no invite; ask the pool's owner for one that has");
    }
    st = life_save_keys(p);
    return st == ATOM_OK ? life_open_net(p) : st;
}

/* ---- until nothing is missing ---- */

static gsp_link *any_member(gsp_pool *p)
{
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++)
        if (p->links.link[i].up && !p->links.link[i].guest)
            return &p->links.link[i];
    return NULL;
}

static void say_where(gsp_pool *p)
{
    if (!any_member(p)) {
        if (p->headline.now != GSP_POOL_SEEKING)
            life_seek_say(p);
    } else if (p->is_guest) {
        if (p->headline.now != GSP_POOL_ASKING)
            gsp_headline_say(&p->headline, GSP_POOL_ASKING, "asking to be admitted");
    } else if (!p->has_manifest) {
        if (p->headline.now != GSP_POOL_READING)
            gsp_headline_say(&p->headline, GSP_POOL_READING, "reading the manifest");
    }
}

static atom_status come_in(gsp_pool *p, double patience_s, gsp_pool_watch *watch, void *context)
{
    double until = atom_clock_seconds() + patience_s;
    uint64_t ask_ns = 0;
    gsp_word ask = {.kind = GSP_WORD_ASK_MANIFEST};
    life_seek_say(p);
    while (p->is_guest || !p->has_manifest) {
        ATOM_TRY(life_wait(p, SLICE_NS, watch, context));
        say_where(p);
        gsp_link *member = any_member(p);
        if (member && !p->is_guest && !p->has_manifest && atom_clock_ns() >= ask_ns) {
            ask_ns = atom_clock_ns() + ASK_NS;
            (void)gsp_links_tell(&p->links, member->key, &ask);
        }
        if (patience_s > 0 && atom_clock_seconds() > until)
            return atom_fail(ATOM_E_RUNTIME, "could not join in time: %s", p->headline.text);
    }
    return ATOM_OK;
}

/* The transport that the ticket's hosts said is the manifest's. */
static atom_status check(const gsp_pool *p)
{
    gsp_hash hash;
    gsp_manifest_key_hash(p->psk[0], &hash);
    if (p->manifest->plain != p->plain)
        return atom_fail(ATOM_E_FORMAT, "ticket and manifest disagree about the transport");
    if (!gsp_hash_equal(&hash, &p->manifest->key))
        atom_log(ATOM_LOG_DEBUG, "the key is of another manifest; a newer one will come");
    return ATOM_OK;
}

atom_status gsp_pool_join(const gsp_pool_host *host, const char *text, double patience_s,
                          gsp_pool_watch *watch, void *context, gsp_pool **out)
{
    gsp_pool *p = NULL;
    gsp_ticket t = {0};
    atom_status st;
    ATOM_TRY_CLEAN(gsp_ticket_parse(text, &t));
    ATOM_TRY_CLEAN(gsp_ticket_check(&t, (uint64_t)atom_wall_seconds()));
    ATOM_TRY_CLEAN(life_make(host, &p));
    ATOM_TRY_CLEAN(begin(p, &t));
    ATOM_TRY_CLEAN(come_in(p, patience_s, watch, context));
    ATOM_TRY_CLEAN(check(p));
    for (uint32_t i = 0; i < p->manifest->n_files; i++)
        if (!p->manifest->file[i].later)
            ATOM_TRY_CLEAN(life_file_fetch(p, &p->manifest->file[i], watch, context));
    gsp_diary_add(&p->diary, "\"event\":\"joined\",\"manifest\":%u", p->manifest->number);
    gsp_headline_say(&p->headline, GSP_POOL_READY, "ready");
    *out = p;
    p = NULL;
cleanup:
    sodium_memzero(&t, sizeof t);
    if (st != ATOM_OK && p) {
        char why[GSP_POOL_WHY_BYTES];
        snprintf(why, sizeof why, "%s", atom_fail_message());
        (void)gsp_pool_close(&p);
        return atom_fail(st, "%s", why);
    }
    return st;
}

atom_status gsp_pool_fetch(gsp_pool *p, const char *name, gsp_pool_watch *watch, void *context,
                           char **path)
{
    const gsp_manifest_file *file = gsp_manifest_find(p->manifest, name);
    if (!file)
        return atom_fail(ATOM_E_USAGE, "the pool has no file '%s'", name);
    if (file->later)
        return atom_fail(ATOM_E_USAGE, "'%s' is of the pool's data", name);
    if (p->has_thread)
        return atom_fail(ATOM_E_USAGE, "files are fetched before the pool starts");
    ATOM_TRY(life_file_fetch(p, file, watch, context));
    gsp_headline_say(&p->headline, GSP_POOL_READY, "ready");
    char *at = atom_format("%s/files/%s", p->directory, name);
    if (!at)
        return atom_fail_memory("a path", 0);
    *path = at;
    return ATOM_OK;
}

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
        st = life_wait(p, NOTE_WAIT_NS, watch, watching);
        now = atom_clock_ns();
    }
    *found = gsp_notes_ask_end(p->notes);
    return st;
}
