/*
 * Owns the notes that are here: ours, and a few of each member. Its one idea: it does not matter
 * which member hands a note over, so everybody keeps copies and nobody is asked in particular. It
 * refuses more than a few notes of one member, long ones, and to answer one member more than twice
 * a second.
 */
#include "gossip/pool/notes.h"

#include "atom/base/clock.h"
#include "atom/base/files.h"
#include "atom/base/mem.h"
#include "gossip/pool/dir.h"

#include <dirent.h>
#include <sodium.h>
#include <string.h>

enum {
    PER_MEMBER = 2, /* that one member may leave here; a new one takes its oldest's place */
    NOTES_MAX = PER_MEMBER * (GSP_NET_PEERS_MAX + 1), /* of as many as can be linked, and ours */
    PER_ANSWER = 4,                                   /* notes in one answer */
    KEY_TEXT = 2 * GSP_HASH_BYTES + 1,
    ASKED_MAX = 8,   /* times that a member is asked the same */
    LOOKED_MAX = 16, /* different notes that are looked at for one question */
};
static const uint64_t SECOND_NS = 1000000000u;

typedef struct note {
    gsp_hash key;
    uint8_t from[GSP_PUBLIC_BYTES]; /* who handed it over; ourselves: it is ours */
    uint64_t order;
    char *text; /* NULL: a free place */
    size_t bytes;
} note;

/* What is known of a link. */
typedef struct side {
    uint64_t born;   /* of the link that this is about */
    uint64_t ask_ns; /* we may ask it again then */
    uint32_t n_asked;
    uint32_t n_shown;   /* notes of its answers that were looked at */
    bool said_all;      /* it answered */
    uint64_t answer_ns; /* it may ask us again then */
    uint64_t told;      /* the order of our last note that it was given */
} side;

struct gsp_notes {
    const char *directory;
    const uint8_t *self;
    gsp_links *links;
    note note[NOTES_MAX];
    uint64_t order;
    side side[GSP_NET_PEERS_MAX];
    /* A question of ours. */
    bool asking, found;
    gsp_hash asked;
    gsp_notes_look *look;
    void *context;
    uint32_t n_looked;
    gsp_hash looked[LOOKED_MAX]; /* of their texts: several members may have the same note */
};

static side *side_of(gsp_notes *all, const gsp_link *link)
{
    side *s = &all->side[link - all->links->link];
    if (s->born != link->born)
        *s = (side){.born = link->born};
    return s;
}

static bool is_ours(const gsp_notes *all, const note *n)
{
    return n->text && memcmp(n->from, all->self, sizeof n->from) == 0;
}

/* Where a note goes: in the place of the same one, in a free place while its giver has few, in the
 * place of its giver's oldest, in that of the oldest of those that are not linked any more. NULL: no
 * such place. */
static note *place_for(gsp_notes *all, const gsp_hash *key, const uint8_t *from)
{
    note *unused = NULL, *oldest = NULL, *gone = NULL;
    uint32_t n = 0;
    for (uint32_t i = 0; i < NOTES_MAX; i++) {
        note *x = &all->note[i];
        if (!x->text) {
            unused = x;
            continue;
        }
        if (memcmp(x->from, from, sizeof x->from) != 0) {
            if (!is_ours(all, x) && !gsp_links_find(all->links, x->from) &&
                (!gone || x->order < gone->order))
                gone = x;
            continue;
        }
        if (gsp_hash_equal(&x->key, key))
            return x;
        n++;
        if (!oldest || x->order < oldest->order)
            oldest = x;
    }
    return n >= PER_MEMBER ? oldest : unused ? unused : gone;
}

static bool keep(gsp_notes *all, const gsp_hash *key, const uint8_t *from, const void *text,
                 size_t bytes)
{
    note *to = place_for(all, key, from);
    char *copy = to ? atom_strndup(text, bytes) : NULL;
    if (!copy)
        return false;
    atom_free(to->text);
    *to = (note){.key = *key, .order = ++all->order, .text = copy, .bytes = bytes};
    memcpy(to->from, from, sizeof to->from);
    return true;
}

/* n NULL: there are no more. */
static bool tell(gsp_notes *all, const uint8_t *to, const gsp_hash *key, const note *n)
{
    gsp_word m = {.kind = GSP_WORD_NOTE, .hash = *key};
    if (n) {
        m.body = (const uint8_t *)n->text;
        m.body_bytes = n->bytes;
    }
    return gsp_links_tell(all->links, to, &m);
}

/* Shows a note to our caller, once. False: it was shown before, or there is no need for it. */
static bool show(gsp_notes *all, const char *who, const char *text, size_t bytes)
{
    gsp_hash hash;
    crypto_generichash(hash.byte, sizeof hash.byte, (const uint8_t *)text, bytes, NULL, 0);
    bool again = all->found || all->n_looked == LOOKED_MAX;
    for (uint32_t i = 0; i < all->n_looked; i++)
        again |= gsp_hash_equal(&all->looked[i], &hash);
    if (again)
        return false;
    all->looked[all->n_looked++] = hash;
    all->found = all->look(all->context, who, text, bytes);
    return true;
}

/* ---- words of others ---- */

void gsp_notes_asked(gsp_notes *all, const gsp_link *from, const gsp_word *m)
{
    side *s = side_of(all, from);
    uint64_t now = atom_clock_ns();
    uint32_t said = 0;
    if (now < s->answer_ns || !gsp_links_may_ask_notes(all->links, from->key, now))
        return; /* it asks again if it still wants to know */
    s->answer_ns = now + SECOND_NS / 2;
    for (int own = 1; own >= 0; own--)
        for (uint32_t i = 0; i < NOTES_MAX && said < PER_ANSWER; i++) {
            const note *n = &all->note[i];
            bool theirs = n->text && memcmp(n->from, from->key, sizeof n->from) == 0;
            if (!n->text || theirs || is_ours(all, n) != own || !gsp_hash_equal(&n->key, &m->hash))
                continue;
            if (!tell(all, from->key, &m->hash, n))
                return;
            said++;
        }
    (void)tell(all, from->key, &m->hash, NULL);
}

bool gsp_notes_came(gsp_notes *all, const gsp_link *from, const gsp_word *m)
{
    bool asked = all->asking && gsp_hash_equal(&all->asked, &m->hash);
    char who[GSP_MEMBER_TEXT_BYTES];
    if (m->body_bytes == 0) {
        side_of(all, from)->said_all |= asked;
        return true;
    }
    if (memchr(m->body, 0, m->body_bytes))
        return false;
    side *s = side_of(all, from);
    if (asked && s->n_shown < PER_ANSWER) /* one member does not use up what is looked at */
        s->n_shown += show(all, gsp_member_text(from->name, from->key, who), (const char *)m->body,
                           m->body_bytes);
    else if (!asked)
        (void)keep(all, &m->hash, from->key, m->body, m->body_bytes);
    return true;
}

void gsp_notes_step(gsp_notes *all)
{
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++) {
        const gsp_link *l = &all->links->link[i];
        if (!l->up || l->guest || !l->greeted)
            continue;
        side *s = side_of(all, l);
        const note *next = NULL; /* in their order, so that a full link misses none */
        for (uint32_t k = 0; k < NOTES_MAX; k++) {
            const note *n = &all->note[k];
            if (is_ours(all, n) && n->order > s->told && (!next || n->order < next->order))
                next = n;
        }
        if (next && tell(all, l->key, &next->key, next))
            s->told = next->order;
    }
}

/* ---- ours ---- */

static void load(gsp_notes *all)
{
    char *dir = atom_path_join(all->directory, "notes");
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
        char *path = atom_path_join(dir, e->d_name);
        if (path && atom_file_read(path, GSP_WORD_NOTE_BYTES_MAX, &text, &bytes) == ATOM_OK &&
            bytes && !memchr(text, 0, bytes))
            n += keep(all, &key, all->self, text, bytes);
        atom_free(text);
        atom_free(path);
    }
    if (d)
        closedir(d);
    atom_free(dir);
}

gsp_notes *gsp_notes_open(const char *directory, const uint8_t *self, gsp_links *links)
{
    gsp_notes *all = atom_alloc(1, sizeof *all);
    if (!all)
        return NULL;
    all->directory = directory;
    all->self = self;
    all->links = links;
    load(all);
    return all;
}

void gsp_notes_close(gsp_notes **notes)
{
    for (uint32_t i = 0; *notes && i < NOTES_MAX; i++)
        atom_free((*notes)->note[i].text);
    atom_free(*notes);
    *notes = NULL;
}

atom_status gsp_notes_leave(gsp_notes *all, const gsp_hash *key, const char *text)
{
    size_t bytes = strlen(text);
    char name[KEY_TEXT];
    if (bytes == 0 || bytes > GSP_WORD_NOTE_BYTES_MAX)
        return atom_fail(ATOM_E_USAGE, "a note of %zu bytes; between 1 and %d are possible", bytes,
                         GSP_WORD_NOTE_BYTES_MAX);
    ATOM_TRY(gsp_dir_make(all->directory, "notes"));
    sodium_bin2hex(name, sizeof name, key->byte, sizeof key->byte);
    char *path = atom_format("%s/notes/%s", all->directory, name);
    atom_status st = path ? atom_file_write(path, text, bytes) : atom_fail_memory("a path", 0);
    atom_free(path);
    if (st == ATOM_OK && !keep(all, key, all->self, text, bytes))
        st = atom_fail_memory("a note", bytes);
    return st;
}

/* ---- a question of ours ---- */

/* Notes that are here: our own of last time, or what came by itself. */
static void look_here(gsp_notes *all)
{
    for (int own = 1; own >= 0; own--)
        for (uint32_t i = 0; i < NOTES_MAX && !all->found; i++) {
            const note *n = &all->note[i];
            if (!n->text || is_ours(all, n) != own || !gsp_hash_equal(&n->key, &all->asked))
                continue;
            const gsp_link *l = gsp_links_find(all->links, n->from);
            char who[GSP_MEMBER_TEXT_BYTES];
            gsp_member_text(l ? l->name : "", n->from, who);
            (void)show(all, own ? "" : who, n->text, n->bytes);
        }
}

void gsp_notes_ask_begin(gsp_notes *all, const gsp_hash *key, gsp_notes_look *look, void *context)
{
    all->asked = *key;
    all->look = look;
    all->context = context;
    all->found = false;
    all->n_looked = 0;
    all->asking = true;
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++) {
        all->side[i].said_all = false;
        all->side[i].n_asked = all->side[i].n_shown = 0;
    }
    look_here(all);
}

bool gsp_notes_ask_step(gsp_notes *all, uint64_t now)
{
    gsp_word m = {.kind = GSP_WORD_ASK_NOTE, .hash = all->asked};
    uint32_t n = 0;
    bool done = true;
    for (uint32_t i = 0; !all->found && i < GSP_NET_PEERS_MAX; i++) {
        const gsp_link *l = &all->links->link[i];
        if (!l->up || l->guest)
            continue;
        n++;
        side *s = side_of(all, l);
        if (s->said_all || s->n_asked >= ASKED_MAX)
            continue;
        done = false;
        if (now >= s->ask_ns && gsp_links_tell(all->links, l->key, &m)) {
            s->ask_ns = now + SECOND_NS;
            s->n_asked++;
        }
    }
    return all->found || (n > 0 && done);
}

bool gsp_notes_ask_end(gsp_notes *all)
{
    all->asking = false;
    return all->found;
}
