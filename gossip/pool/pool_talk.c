/*
 * Owns what is done with the words of others: greetings, admissions, manifests, files. Its one
 * idea: nothing is remembered of a question; who gets no answer asks again. It refuses everything
 * but a request for admission from guests, and more than a budget of words a second from anybody.
 */
#include "gossip/pool/pool_inner.h"

#include "atom/base/clock.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"
#include "gossip/member/node_look.h"

#include <sodium.h>
#include <string.h>

static const uint64_t SECOND_NS = 1000000000u;

/* ---- greetings ---- */

void life_greet(gsp_pool *p, gsp_link *link)
{
    static const uint8_t nobody[GSP_PUBLIC_BYTES];
    const gsp_known *best[GSP_WORD_CONTACTS_MAX];
    const size_t room = GSP_WORD_HELLO_BYTES_MAX - GSP_WORD_HEAD_BYTES;
    gsp_word m = {.kind = GSP_WORD_HELLO,
                  .number = p->has_manifest ? p->manifest->number : 0,
                  .seen = link->address};
    link->hello_ns = atom_clock_ns() + 20 * SECOND_NS;
    if (p->is_guest || link->guest)
        return;
    uint8_t *body = atom_alloc(room, 1);
    if (!body)
        return; /* next time */
    memcpy(m.name, p->name, sizeof m.name);
    size_t used = 0;
    if (memcmp(p->contact.key, nobody, sizeof nobody) != 0)
        used = gsp_word_add_contact(body, used, room, &p->contact);
    m.n_contacts = used > 0;
    uint32_t n = gsp_peers_best(p->peers, best, GSP_WORD_CONTACTS_MAX - 1);
    for (uint32_t i = 0; i < n; i++) {
        size_t more = gsp_word_add_contact(body, used, room, &best[i]->contact);
        m.n_contacts += more > used;
        used = more;
    }
    m.body = body;
    m.body_bytes = used;
    if (!gsp_links_tell(&p->links, link->key, &m))
        link->hello_ns = atom_clock_ns() + SECOND_NS;
    atom_free(body);
}

void life_greet_all(gsp_pool *p)
{
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++)
        if (p->links.link[i].up)
            life_greet(p, &p->links.link[i]);
}

static void send_manifest(gsp_pool *p, const gsp_link *to)
{
    gsp_word m = {.kind = GSP_WORD_MANIFEST};
    if (!p->has_manifest)
        return;
    if (!gsp_manifest_bans(p->manifest, to->key))
        memcpy(m.psk, p->psk[0], sizeof m.psk);
    m.body = (const uint8_t *)p->manifest_text;
    m.body_bytes = strlen(p->manifest_text);
    (void)gsp_links_tell(&p->links, to->key, &m);
    sodium_memzero(m.psk, sizeof m.psk);
}

static void on_hello(gsp_pool *p, gsp_link *from, const gsp_word *m)
{
    gsp_contact *c = atom_alloc(1, sizeof *c);
    gsp_handshake_config who;
    size_t at = 0;
    uint64_t now = (uint64_t)atom_wall_seconds();
    if (!c)
        return;
    life_who(p, &who);
    from->greeted = true;
    from->number = m->number;
    memcpy(from->name, m->name, sizeof from->name);
    if (!gsp_address_same_host(&m->seen, &p->seen) && !from->inbound) {
        p->seen = m->seen;
        p->contact_changed = true;
    }
    while (gsp_word_next_contact(m, &at, c)) {
        const gsp_known *known = gsp_peers_find(p->peers, c->key);
        if (known && known->contact.sequence >= c->sequence)
            continue; /* no signature is checked twice */
        if (gsp_contact_judge(c, &who, now) == GSP_CONTACT_GOOD)
            life_known(p, c, memcmp(c->key, from->key, sizeof c->key) == 0 ? &from->address : NULL);
    }
    atom_free(c);
    sodium_memzero(&who, sizeof who);
    uint32_t mine = p->has_manifest ? p->manifest->number : 0;
    gsp_word ask = {.kind = GSP_WORD_ASK_MANIFEST};
    if (m->number > mine)
        (void)gsp_links_tell(&p->links, from->key, &ask);
    else if (m->number < mine)
        send_manifest(p, from);
}

/* ---- admissions ---- */

void life_ask_admission(gsp_pool *p)
{
    gsp_word ask = {.kind = GSP_WORD_ASK_ADMISSION, .credential_bytes = p->credential_bytes};
    memcpy(ask.key, p->identity.public_key, sizeof ask.key);
    memcpy(ask.credential, p->credential, p->credential_bytes);
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++)
        if (p->links.link[i].up && !p->links.link[i].guest)
            (void)gsp_links_tell(&p->links, p->links.link[i].key, &ask);
}

static void on_ask_admission(gsp_pool *p, gsp_link *from, const gsp_word *m)
{
    gsp_word answer = {.kind = GSP_WORD_ADMISSION, .refusal = GSP_WORD_AWAY};
    bool own = memcmp(m->key, from->key, sizeof m->key) == 0;
    memcpy(answer.key, m->key, sizeof answer.key);
    if (!own && from->guest)
        return;
    if (gsp_pool_is_owner(p) && p->ledger) {
        life_admit(p, m, &answer);
    } else if (own) {
        gsp_link *owner = gsp_links_find(&p->links, p->owner);
        if (owner && !owner->guest && gsp_links_tell(&p->links, owner->key, m))
            return; /* its answer is passed on */
    } else {
        return; /* one hop only */
    }
    (void)gsp_links_tell(&p->links, from->key, &answer);
}

static void take_admission(gsp_pool *p, const gsp_word *m)
{
    gsp_role role = GSP_GUEST;
    uint64_t now = (uint64_t)atom_wall_seconds();
    if (gsp_credential_check(m->credential, m->credential_bytes, p->pool, p->owner, m->key, now,
                             &role) != GSP_WELCOME ||
        role != GSP_MEMBER)
        return;
    bool was_guest = p->is_guest;
    memcpy(p->credential, m->credential, m->credential_bytes);
    p->credential_bytes = m->credential_bytes;
    p->is_guest = false;
    p->was_admitted = was_guest;
    if (life_save_admission(p) != ATOM_OK)
        atom_log(ATOM_LOG_WARN, "%s", atom_fail_message());
    gsp_diary_add(&p->diary, "\"event\":\"admitted\"");
    if (!was_guest)
        life_rekey(p);
}

static void on_admission(gsp_pool *p, gsp_link *from, const gsp_word *m)
{
    if (from->guest)
        return;
    if (memcmp(m->key, p->identity.public_key, sizeof m->key) != 0) {
        gsp_link *to = gsp_links_find(&p->links, m->key);
        if (to && memcmp(from->key, p->owner, sizeof p->owner) == 0)
            (void)gsp_links_tell(&p->links, to->key, m);
        return;
    }
    if (m->refusal == GSP_WELCOME) {
        take_admission(p, m);
    } else if (m->refusal == GSP_WORD_AWAY) {
        if (p->is_guest)
            gsp_headline_say(
                &p->headline, GSP_POOL_ASKING,
                "a member answers, but the pool's owner, who admits, is not there now; "
                "waiting");
    } else if (p->is_guest) {
        gsp_headline_refuse(&p->headline, GSP_POOL_ASKING, "not admitted: %s",
                            gsp_refusal_text(m->refusal < GSP_REFUSAL_N ? (gsp_refusal)m->refusal
                                                                        : GSP_REFUSED_CREDENTIAL));
    }
}

/* ---- manifests ---- */

/* The newest key in front; the one before is still good for a while. */
static void take_key(gsp_pool *p, const uint8_t *psk)
{
    if (memcmp(p->psk[0], psk, GSP_PSK_BYTES) == 0)
        return;
    memcpy(p->psk[1], p->psk[0], GSP_PSK_BYTES);
    memcpy(p->psk[0], psk, GSP_PSK_BYTES);
    p->n_psks = 2;
    if (!gsp_pool_is_owner(p))
        p->rotated_s = (uint64_t)atom_wall_seconds();
}

static void doom_banned(gsp_pool *p)
{
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++) {
        gsp_link *l = &p->links.link[i];
        if (!l->up || l->doomed_ns || !gsp_manifest_bans(p->manifest, l->key))
            continue;
        send_manifest(p, l); /* so that it knows why */
        l->doomed_ns = atom_clock_ns() + SECOND_NS;
    }
    for (uint32_t i = 0; i < p->manifest->n_banned; i++)
        gsp_peers_forget(p->peers, p->manifest->banned[i]);
}

atom_status life_adopt(gsp_pool *p, const gsp_manifest *next, const char *text, const uint8_t *psk)
{
    gsp_hash hash;
    const char *bad = p->has_manifest ? gsp_manifest_follows(p->manifest, next) : NULL;
    bool banned = gsp_manifest_bans(next, p->identity.public_key);
    if (bad)
        return atom_fail(ATOM_E_FORMAT, "a manifest was refused: %s", bad);
    gsp_manifest_key_hash(psk, &hash);
    bool key_fits = gsp_hash_equal(&hash, &next->key);
    if (!key_fits && !banned)
        return atom_fail(ATOM_E_FORMAT, "a manifest came without its key");
    char *copy = atom_strdup(text);
    if (!copy)
        return atom_fail_memory("a manifest", strlen(text));
    pthread_mutex_lock(&p->lock);
    *p->manifest = *next;
    p->has_manifest = true;
    pthread_mutex_unlock(&p->lock);
    atom_free(p->manifest_text);
    p->manifest_text = copy;
    if (key_fits)
        take_key(p, psk);
    gsp_diary_add(&p->diary, "\"event\":\"manifest\",\"number\":%u,\"banned\":%u", next->number,
                  next->n_banned);
    if (banned) {
        gsp_headline_refuse(&p->headline, GSP_POOL_DEAD, "the pool's owner has banned this host");
    }
    atom_status st = life_save_keys(p);
    if (st == ATOM_OK)
        st = life_save_manifest(p);
    life_rekey(p);
    doom_banned(p);
    life_greet_all(p);
    return st;
}

static void on_manifest(gsp_pool *p, const gsp_word *m)
{
    gsp_manifest *next = atom_alloc(1, sizeof *next);
    char *text = atom_strndup((const char *)m->body, m->body_bytes);
    atom_status st = next && text ? gsp_manifest_parse(text, m->body_bytes, next)
                                  : atom_fail_memory("a manifest", sizeof *next);
    bool ours = st == ATOM_OK && memcmp(next->pool, p->pool, sizeof p->pool) == 0 &&
                memcmp(next->owner, p->owner, sizeof p->owner) == 0;
    if (ours && (!p->has_manifest || next->number > p->manifest->number))
        st = life_adopt(p, next, text, m->psk);
    if (st != ATOM_OK)
        atom_log(ATOM_LOG_WARN, "%s", atom_fail_message());
    atom_free(next);
    atom_free(text);
}

/* ---- events of the net ---- */

static void on_word(gsp_pool *p, gsp_link *from, const gsp_word *m)
{
    if ((from->guest && m->kind != GSP_WORD_ASK_ADMISSION) ||
        (p->is_guest && m->kind != GSP_WORD_ADMISSION)) {
        p->refusals++;
        return;
    }
    switch (m->kind) {
    case GSP_WORD_HELLO:
        on_hello(p, from, m);
        break;
    case GSP_WORD_ASK_ADMISSION:
        on_ask_admission(p, from, m);
        break;
    case GSP_WORD_ADMISSION:
        on_admission(p, from, m);
        break;
    case GSP_WORD_ASK_MANIFEST:
        send_manifest(p, from);
        break;
    case GSP_WORD_MANIFEST:
        on_manifest(p, m);
        break;
    case GSP_WORD_ASK_FILE:
        life_file_asked(p, from, m);
        break;
    case GSP_WORD_FILE:
        life_file_came(p, from, m);
        break;
    case GSP_WORD_ASK_NOTE:
        gsp_notes_asked(p->notes, from, m);
        break;
    case GSP_WORD_NOTE:
        p->refusals += !gsp_notes_came(p->notes, from, m);
        break;
    case GSP_WORD_ASK_PIECES:
        life_pieces_asked(p, from, m);
        break;
    case GSP_WORD_PIECE:
    case GSP_WORD_NO_PIECE:
        life_piece_came(p, from, m);
        break;
    case GSP_WORD_N:
        break;
    }
}

static void on_up(gsp_pool *p, const gsp_net_event *e)
{
    gsp_link *l = gsp_links_add(&p->links, e);
    char who[GSP_PUBLIC_TEXT_BYTES], at[GSP_ADDRESS_TEXT_BYTES];
    if (!l)
        return;
    gsp_diary_add(&p->diary, "\"event\":\"up\",\"key\":\"%s\",\"address\":\"%s\",\"guest\":%s",
                  gsp_public_text(e->key, who), gsp_address_text(&e->address, at),
                  e->guest ? "true" : "false");
    /* A link to whoever answered at a host's address: from now on it is this one that we want. */
    if (!e->inbound && e->address.port && gsp_net_dial(p->net, e->key, &e->address, 1) != ATOM_OK)
        atom_log(ATOM_LOG_WARN, "%s", atom_fail_message());
    if (p->is_guest) {
        p->ask_ns = 0; /* at once */
        return;
    }
    if (!e->guest) {
        gsp_peers_answered(p->peers, e->key, &e->address, (uint64_t)atom_wall_seconds());
        p->book_changed = true;
    }
    life_greet(p, l);
}

static void on_down(gsp_pool *p, const gsp_net_event *e)
{
    gsp_link *l = gsp_links_find(&p->links, e->key);
    char who[GSP_PUBLIC_TEXT_BYTES];
    if (!l)
        return;
    l->up = false;
    gsp_diary_add(&p->diary, "\"event\":\"down\",\"key\":\"%s\"", gsp_public_text(e->key, who));
}

static bool on_message(gsp_pool *p, const gsp_net_event *e)
{
    gsp_word *m;
    gsp_link *from = gsp_links_find(&p->links, e->key);
    const uint8_t *first = e->data;
    if (e->bytes == 0 || first[0] != GSP_WORD_MARK)
        return false;
    /* What was asked for comes as fast as the line. */
    bool wanted = from && !from->guest && p->haul && e->channel == GSP_NET_BULK;
    m = from && (wanted || gsp_link_may_speak(from, atom_clock_ns())) ? atom_alloc(1, sizeof *m)
                                                                      : NULL;
    if (m && gsp_word_decode(e->data, e->bytes, m) && gsp_word_channel(m->kind) == e->channel)
        on_word(p, from, m);
    else
        p->refusals++;
    atom_free(m);
    return true;
}

bool life_take(gsp_pool *p, const gsp_net_event *e)
{
    if (gsp_probe_server_take(p->probe, e))
        return e->kind == GSP_NET_MESSAGE;
    switch (e->kind) {
    case GSP_NET_UP:
        on_up(p, e);
        break;
    case GSP_NET_DOWN:
        on_down(p, e);
        break;
    case GSP_NET_MESSAGE:
        return on_message(p, e);
    case GSP_NET_REFUSED:
        /* The owner's own word; anybody else's would end nobody. */
        if (memcmp(e->key, p->owner, sizeof p->owner) == 0 &&
            strstr(e->why, gsp_refusal_text(GSP_REFUSED_BANNED))) {
            gsp_headline_refuse(&p->headline, GSP_POOL_DEAD,
                                "the pool's owner has banned this host");
            break;
        }
        life_seek_refused(p, e);
        break;
    case GSP_NET_ROOM:
        if (e->channel == GSP_NET_BULK && gsp_links_find(&p->links, e->key))
            gsp_links_find(&p->links, e->key)->full = false;
        break;
    case GSP_NET_NOTHING:
        break;
    }
    return false;
}
