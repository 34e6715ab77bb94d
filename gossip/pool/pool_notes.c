/*
 * Owns notes: small texts that members leave for each other under a key (pool.h). Its one idea: a
 * note is advice; who uses one checks it as if an enemy had written it, so nobody signs them, and
 * it does not matter which member hands one over. It refuses more than a few notes of one member,
 * long ones, and to answer one member more than once a second.
 */
#include "gossip/pool/pool_inner.h"

#include "atom/base/clock.h"
#include "atom/base/files.h"
#include "atom/base/mem.h"

#include <dirent.h>
#include <sodium.h>
#include <string.h>

enum {
    NOTES_MAX = 48,
    PER_MEMBER = 2, /* that one member may leave here; a new one takes its oldest's place */
    PER_ANSWER = 4, /* notes in one answer */
    KEY_TEXT = 2 * GSP_HASH_BYTES + 1,
    ASKED_MAX = 8,   /* a question is said again so often */
    LOOKED_MAX = 16, /* different notes that are looked at for one question */
};
static const uint64_t SECOND_NS = 1000000000u;

typedef struct pool_note {
    gsp_hash key;
    uint8_t from[GSP_PUBLIC_BYTES]; /* who handed it over; ourselves: it is ours */
    uint64_t order;
    char *text; /* NULL: a free place */
    size_t bytes;
} pool_note;

struct pool_notes {
    pool_note note[NOTES_MAX];
    uint64_t order;
    /* A question of ours, while gsp_pool_ask waits. */
    bool asking, found;
    gsp_hash asked;
    gsp_pool_look *look;
    void *context;
    uint32_t n_looked;
    gsp_hash looked[LOOKED_MAX]; /* of their texts: several members may have the same note */
};

static bool is_ours(const gsp_pool *p, const pool_note *n)
{
    return n->text && memcmp(n->from, p->identity.public_key, sizeof n->from) == 0;
}

static pool_notes *notes_of(gsp_pool *p)
{
    if (!p->notes)
        p->notes = atom_alloc(1, sizeof *p->notes);
    return p->notes;
}

/* Where a note goes: in the place of the same one, in a free place while its giver has few, in the
 * place of its giver's oldest. NULL: the table is full. */
static pool_note *place_for(pool_notes *all, const gsp_hash *key, const uint8_t *from)
{
    pool_note *unused = NULL, *oldest = NULL;
    uint32_t n = 0;
    for (uint32_t i = 0; i < NOTES_MAX; i++) {
        pool_note *x = &all->note[i];
        if (!x->text) {
            unused = x;
            continue;
        }
        if (memcmp(x->from, from, sizeof x->from) != 0)
            continue;
        if (gsp_hash_equal(&x->key, key))
            return x;
        n++;
        if (!oldest || x->order < oldest->order)
            oldest = x;
    }
    return n >= PER_MEMBER ? oldest : unused;
}

static bool keep(gsp_pool *p, const gsp_hash *key, const uint8_t *from, const void *text,
                 size_t bytes)
{
    pool_notes *all = notes_of(p);
    pool_note *to = all ? place_for(all, key, from) : NULL;
    char *copy = to ? atom_strndup(text, bytes) : NULL;
    if (!copy)
        return false;
    atom_free(to->text);
    *to = (pool_note){.key = *key, .order = ++all->order, .text = copy, .bytes = bytes};
    memcpy(to->from, from, sizeof to->from);
    return true;
}

static bool tell(gsp_pool *p, const uint8_t *to, const gsp_hash *key, const pool_note *note)
{
    gsp_life m = {.kind = GSP_LIFE_NOTE, .hash = *key};
    if (note) {
        m.body = (const uint8_t *)note->text;
        m.body_bytes = note->bytes;
    }
    return life_tell(p, to, &m);
}

/* Shows a note to who asked, once. */
static void show(pool_notes *all, const char *who, const char *text, size_t bytes)
{
    gsp_hash hash;
    crypto_generichash(hash.byte, sizeof hash.byte, (const uint8_t *)text, bytes, NULL, 0);
    bool again = all->found || all->n_looked == LOOKED_MAX;
    for (uint32_t i = 0; i < all->n_looked; i++)
        again |= gsp_hash_equal(&all->looked[i], &hash);
    if (again)
        return;
    all->looked[all->n_looked++] = hash;
    all->found = all->look(all->context, who, text, bytes);
}

/* ---- words of others ---- */

void life_note_asked(gsp_pool *p, pool_link *from, const gsp_life *m)
{
    uint64_t now = atom_clock_ns();
    uint32_t said = 0;
    if (now < from->note_ns)
        return; /* who still wants it asks again */
    from->note_ns = now + SECOND_NS / 2;
    for (int own = 1; own >= 0; own--)
        for (uint32_t i = 0; p->notes && i < NOTES_MAX && said < PER_ANSWER; i++) {
            const pool_note *n = &p->notes->note[i];
            bool theirs = n->text && memcmp(n->from, from->key, sizeof n->from) == 0;
            if (!n->text || theirs || is_ours(p, n) != own || !gsp_hash_equal(&n->key, &m->hash))
                continue;
            if (!tell(p, from->key, &m->hash, n))
                return;
            said++;
        }
    (void)tell(p, from->key, &m->hash, NULL);
}

void life_note_came(gsp_pool *p, pool_link *from, const gsp_life *m)
{
    pool_notes *all = p->notes;
    bool asked = all && all->asking && gsp_hash_equal(&all->asked, &m->hash);
    if (m->body_bytes == 0) {
        from->noted_all |= asked;
        return;
    }
    if (memchr(m->body, 0, m->body_bytes)) {
        p->refusals++;
        return;
    }
    if (asked)
        show(all, from->name[0] ? from->name : "a member", (const char *)m->body, m->body_bytes);
    if (!asked)
        (void)keep(p, &m->hash, from->key, m->body, m->body_bytes);
}

void life_notes_step(gsp_pool *p)
{
    for (uint32_t i = 0; p->notes && i < GSP_NET_PEERS_MAX; i++) {
        pool_link *l = &p->link[i];
        if (!l->up || l->guest || !l->greeted || p->is_guest)
            continue;
        const pool_note *next = NULL; /* in their order, so that a full link misses none */
        for (uint32_t k = 0; k < NOTES_MAX; k++) {
            const pool_note *n = &p->notes->note[k];
            if (is_ours(p, n) && n->order > l->note_told && (!next || n->order < next->order))
                next = n;
        }
        if (next && tell(p, l->key, &next->key, next))
            l->note_told = next->order;
    }
}

void life_notes_close(gsp_pool *p)
{
    for (uint32_t i = 0; p->notes && i < NOTES_MAX; i++)
        atom_free(p->notes->note[i].text);
    atom_free(p->notes);
    p->notes = NULL;
}

/* ---- ours ---- */

static char *file_of(const gsp_pool *p, const gsp_hash *key)
{
    char name[KEY_TEXT];
    sodium_bin2hex(name, sizeof name, key->byte, sizeof key->byte);
    return atom_format("%s/notes/%s", p->directory, name);
}

void life_notes_load(gsp_pool *p)
{
    char *dir = life_path(p, "notes");
    DIR *d = dir ? opendir(dir) : NULL;
    uint32_t n = 0;
    for (struct dirent *e; d && n < PER_MEMBER && (e = readdir(d));) {
        gsp_hash key;
        size_t got;
        char *text = NULL;
        uint64_t bytes = 0;
        if (sodium_hex2bin(key.byte, sizeof key.byte, e->d_name, strlen(e->d_name), NULL, &got,
                           NULL) != 0 ||
            got != sizeof key.byte)
            continue;
        char *path = file_of(p, &key);
        if (path && atom_file_read(path, GSP_LIFE_NOTE_BYTES_MAX, &text, &bytes) == ATOM_OK &&
            bytes && !memchr(text, 0, bytes))
            n += keep(p, &key, p->identity.public_key, text, bytes);
        atom_free(text);
        atom_free(path);
    }
    if (d)
        closedir(d);
    atom_free(dir);
}

atom_status gsp_pool_note(gsp_pool *p, const gsp_hash *key, const char *text)
{
    size_t bytes = strlen(text);
    if (p->has_thread)
        return atom_fail(ATOM_E_USAGE, "notes are left before the pool starts");
    if (bytes == 0 || bytes > GSP_LIFE_NOTE_BYTES_MAX)
        return atom_fail(ATOM_E_USAGE, "a note of %zu bytes; between 1 and %d are possible", bytes,
                         GSP_LIFE_NOTE_BYTES_MAX);
    char *dir = life_path(p, "notes"), *path = file_of(p, key);
    atom_status st = dir && path ? atom_dir_make(dir) : atom_fail_memory("a path", 0);
    if (st == ATOM_OK)
        st = atom_file_write(path, text, bytes);
    if (st == ATOM_OK && !keep(p, key, p->identity.public_key, text, bytes))
        st = atom_fail_memory("a note", bytes);
    atom_free(dir);
    atom_free(path);
    return st;
}

/* Notes that are here: our own of last time, or what came by itself. */
static void look_here(gsp_pool *p, pool_notes *all)
{
    for (int own = 1; own >= 0; own--)
        for (uint32_t i = 0; i < NOTES_MAX && !all->found; i++) {
            const pool_note *n = &all->note[i];
            if (!n->text || is_ours(p, n) != own || !gsp_hash_equal(&n->key, &all->asked))
                continue;
            const pool_link *l = life_link_find(p, n->from);
            const char *who = own ? "" : l ? l->name : "a member";
            show(all, who, n->text, n->bytes);
        }
}

/* Asks who was not asked lately; true: everybody linked has answered. */
static bool ask_all(gsp_pool *p, pool_notes *all, uint64_t now)
{
    gsp_life m = {.kind = GSP_LIFE_ASK_NOTE, .hash = all->asked};
    uint32_t n = 0;
    bool done = true;
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++) {
        pool_link *l = &p->link[i];
        if (!l->up || l->guest)
            continue;
        n++;
        if (l->noted_all || l->note_asked >= ASKED_MAX)
            continue;
        done = false;
        if (now >= l->note_ask_ns && life_tell(p, l->key, &m)) {
            l->note_ask_ns = now + SECOND_NS;
            l->note_asked++;
        }
    }
    return n > 0 && done;
}

atom_status gsp_pool_ask(gsp_pool *p, const gsp_hash *key, double patience_s, gsp_pool_watch *watch,
                         void *watching, gsp_pool_look *look, void *context, bool *found)
{
    pool_notes *all = notes_of(p);
    uint64_t now = atom_clock_ns(), end = now + (uint64_t)(1e9 * patience_s);
    atom_status st = ATOM_OK;
    *found = false;
    if (p->has_thread)
        return atom_fail(ATOM_E_USAGE, "notes are asked for before the pool starts");
    if (!all)
        return atom_fail_memory("notes", sizeof *all);
    all->asked = *key;
    all->look = look;
    all->context = context;
    all->found = false;
    all->n_looked = 0;
    all->asking = true;
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++) {
        p->link[i].noted_all = false;
        p->link[i].note_asked = 0;
    }
    look_here(p, all);
    while (st == ATOM_OK && !all->found && now < end && !ask_all(p, all, now)) {
        st = life_wait(p, SECOND_NS / 50, watch, watching);
        now = atom_clock_ns();
    }
    all->asking = false;
    *found = all->found;
    return st;
}
