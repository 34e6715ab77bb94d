/*
 * Owns what is done with the words of others, but those about admissions (pool_admit.c), and with the net's
 * events. Its one idea: nothing is remembered of a question; whoever gets no answer asks again. It refuses
 * everything but a request for admission from guests, and more than a budget of words a second from anybody.
 */
#include "gossip/pool/pool_inner.h"

#include "atom/base/clock.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"
#include "gossip/member/node_look.h"

#include <sodium.h>
#include <string.h>

static const uint64_t SECOND_NS = 1000000000u, OLD_KEY_NS = 3000000000u, PRESENT_NS = 3000000000u,
                      TWIN_NS = 10000000000u;

/* ---- greetings ---- */

static void send_manifest(gsp_pool *p, const gsp_link *to)
{
    gsp_word m = {.kind = GSP_WORD_MANIFEST};
    uint64_t now = atom_clock_ns();
    const bool is_void = gsp_pool_is_void(p, to);
    if (!gsp_door_knows_key(&p->door))
        return; /* without its key it is of use to nobody */
    if (is_void && !gsp_door_is_owner(&p->door))
        return; /* the owner may have admitted it again, and is about to tell it */
    m.body_bytes = strlen(p->door.manifest_text);
    uint64_t most = gsp_manifest_gives(p->door.manifest);
    if (!to->guest && !gsp_links_may_give(&p->links, to->key, m.body_bytes, most, now))
        return;
    if (!gsp_manifest_bans(p->door.manifest, to->key) && !is_void)
        memcpy(m.psk, p->door.psk[0], sizeof m.psk);
    m.body = (const uint8_t *)p->door.manifest_text;
    if (gsp_links_tell(&p->links, to->key, &m) && !to->guest)
        gsp_links_give(&p->links, to->key, m.body_bytes, most, now);
    sodium_memzero(m.psk, sizeof m.psk);
}

/* Two processes with one key tear down each other's links, and what they sign contradicts itself.
 * at: where the other one is; "": not known. */
static void end_as_twin(gsp_pool *p, const char *at)
{
    gsp_event_log_add(&p->diary, "\"event\":\"twin\",\"address\":\"%s\"", at);
    gsp_headline_refuse(&p->headline, GSP_POOL_DEAD,
                        "another process%s%s takes part with the same key, probably from a copy of "
                        "this directory; this one stops. Run only one of them: a further host "
                        "joins with a ticket, into a directory of its own",
                        *at ? " at " : "", at);
}

static void end_beside(gsp_pool *p, const gsp_contact *twin)
{
    char at[GSP_ADDRESS_TEXT_BYTES] = "";
    if (twin->n_addresses > 0 && !gsp_address_is_any(&twin->address[0]))
        gsp_address_text(&twin->address[0], at);
    end_as_twin(p, at);
}

/* A member hears another process with our key. It would soon miss one that was killed, so if nobody
 * lets us in for a while, that process lives. */
static void refused_as_twin(gsp_pool *p, uint64_t now)
{
    if (p->twin_ns == 0)
        p->twin_ns = now;
    else if (!gsp_links_member(&p->links) && now - p->twin_ns > TWIN_NS)
        end_as_twin(p, "");
}

void gsp_pool_show_present(gsp_pool *p)
{
    gsp_present here[GSP_PRESENT_MAX];
    uint32_t n = 0;
    if (p->door.plain)
        return;
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX && n < GSP_PRESENT_MAX; i++) {
        const gsp_link *l = &p->links.link[i];
        if (!l->up || !l->boot || l->doomed_ns)
            continue;
        here[n] = (gsp_present){.boot = l->boot,
                                .until_ns = gsp_net_heard_ns(p->net, l->key) + PRESENT_NS};
        memcpy(here[n++].key, l->key, sizeof l->key);
    }
    gsp_door_show_present(&p->door, here, n);
}

/* Only those that this host dialled see the address at which it leaves its network. */
static void hear_where_we_are(gsp_pool *p)
{
    gsp_address said[GSP_NET_PEERS_MAX];
    uint32_t n = 0;
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++)
        if (p->links.link[i].up && !p->links.link[i].inbound)
            said[n++] = p->links.link[i].seen;
    p->book.own_changed |= gsp_reach_hear(&p->reach, said, n);
}

static void on_hello(gsp_pool *p, gsp_link *from, const gsp_word *m)
{
    gsp_contact *c = atom_alloc(1, sizeof *c);
    gsp_handshake_config who;
    size_t at = 0;
    uint64_t now = (uint64_t)atom_wall_seconds();
    if (!c)
        return;
    gsp_door_who(&p->door, &who);
    from->greeted = true;
    from->number = m->number;
    memcpy(from->name, m->name, sizeof from->name);
    from->seen = m->seen;
    hear_where_we_are(p);
    while (gsp_word_next_contact(m, &at, c)) {
        const gsp_known *known = gsp_peers_find(p->book.peers, c->key);
        if (known && known->contact.sequence >= c->sequence)
            continue; /* no signature is checked twice */
        if (!gsp_links_may_bring(&p->links, from->key, atom_clock_ns()))
            break;
        gsp_contact_verdict verdict = gsp_contact_judge(c, &who, now);
        if (verdict == GSP_CONTACT_GOOD)
            gsp_pool_found(p, c,
                           memcmp(c->key, from->key, sizeof c->key) == 0 ? &from->address : NULL);
        if (verdict == GSP_CONTACT_SELF && gsp_address_book_has_twin(&p->book, c, &who, now))
            end_beside(p, c);
    }
    atom_free(c);
    sodium_memzero(&who, sizeof who);
    uint32_t mine = gsp_door_number(&p->door);
    gsp_word ask = {.kind = GSP_WORD_ASK_MANIFEST};
    if (m->number > mine)
        (void)gsp_links_tell(&p->links, from->key, &ask);
    else if (m->number < mine)
        send_manifest(p, from);
    gsp_pool_remind_delegate(p, from);
}

/* ---- manifests ---- */

static void say_banned(gsp_pool *p, bool is_void)
{
    gsp_headline_refuse(&p->headline, GSP_POOL_DEAD,
                        is_void ? GSP_DOOR_VOID : "the pool's owner has banned this host");
}

static bool is_shut_out(gsp_pool *p, const gsp_link *l)
{
    return p->door.has_manifest &&
           (gsp_manifest_bans(p->door.manifest, l->key) || gsp_pool_is_void(p, l));
}

/* Who is banned, those that it let in as a delegate, and guests, whose ticket has the key before. */
static void doom_unwelcome(gsp_pool *p)
{
    for (uint32_t i = 0; i < GSP_NET_LINKS_MAX; i++) {
        gsp_link *l = &p->links.link[i];
        bool banned = is_shut_out(p, l);
        if (!l->up || l->doomed_ns || !(banned || l->guest))
            continue;
        if (!l->guest || l->old_key)
            send_manifest(p, l); /* so that it knows why */
        gsp_link_doom(l, SECOND_NS);
    }
    for (uint32_t i = 0; i < p->door.manifest->n_banned; i++)
        gsp_peers_forget(p->book.peers, p->door.manifest->banned[i]);
}

void gsp_pool_tell_manifest(gsp_pool *p)
{
    const gsp_manifest *m = p->door.manifest;
    gsp_event_log_add(&p->diary, "\"event\":\"manifest\",\"number\":%u,\"banned\":%u", m->number,
                      m->n_banned);
    if (gsp_door_bans_us(&p->door) || !gsp_door_knows_key(&p->door))
        say_banned(p, !gsp_door_bans_us(&p->door));
    p->renew_ns = 0; /* our admission may be void, and yet the owner have given us the key */
    gsp_pool_rekey(p);
    p->ticket_is_old = !gsp_door_is_owner(&p->door);
    doom_unwelcome(p);
    gsp_pool_greet_all(p);
}

static void say_unreadable(gsp_pool *p, const gsp_link *from, const char *why)
{
    char who[GSP_MEMBER_TEXT_BYTES];
    uint64_t now = atom_clock_ns();
    if (!gsp_manifest_ask_failed(&p->manifest_ask, why, now))
        return;
    atom_log(ATOM_LOG_WARN,
             "the manifest that %s sent was refused: %s. It is asked for again, at most once a "
             "minute",
             gsp_member_text(from->name, from->key, who), why);
    if (!p->door.has_manifest)
        gsp_headline_say(
            &p->headline, GSP_POOL_READING,
            "the manifest that was received cannot be used (%s); asking again, less and less "
            "often",
            why);
}

static void on_manifest(gsp_pool *p, const gsp_link *from, const gsp_word *m)
{
    gsp_door *d = &p->door;
    uint32_t number = gsp_door_number(d);
    gsp_manifest *next = atom_alloc(1, sizeof *next);
    char *text = atom_strndup((const char *)m->body, m->body_bytes);
    atom_status st = next && text ? gsp_manifest_parse(text, m->body_bytes, next)
                                  : atom_fail_memory("a manifest", sizeof *next);
    if (st == ATOM_OK && memcmp(next->pool, d->pool, sizeof d->pool) == 0 &&
        memcmp(next->owner, d->owner, sizeof d->owner) == 0 && next->number > number) {
        st = gsp_door_adopt(d, next, text, m->psk);
        if (gsp_door_number(d) != number)
            gsp_pool_tell_manifest(p);
    }
    if (st != ATOM_OK)
        say_unreadable(p, from, atom_fail_message());
    atom_free(next);
    atom_free(text);
}

/* ---- events of the net ---- */

/* Guests may ask to be admitted; who knows only the key before, for the manifest that has the new. */
static bool may_say(const gsp_link *from, gsp_word_kind kind)
{
    return !from->guest || kind == (from->old_key ? GSP_WORD_ASK_MANIFEST : GSP_WORD_ASK_ADMISSION);
}

static void on_word(gsp_pool *p, gsp_link *from, const gsp_word *m)
{
    if (!may_say(from, m->kind) || (p->door.is_guest && m->kind != GSP_WORD_ADMISSION)) {
        /* A guest cannot tell whether its key is the one before, so it asks for the manifest in any case. */
        p->refusals += !(from->guest && m->kind == GSP_WORD_ASK_MANIFEST);
        return;
    }
    switch (m->kind) {
    case GSP_WORD_HELLO:
        on_hello(p, from, m);
        break;
    case GSP_WORD_ASK_ADMISSION:
        gsp_pool_asked_in(p, from, m);
        break;
    case GSP_WORD_ADMISSION:
        gsp_pool_answered_in(p, from, m);
        break;
    case GSP_WORD_ASK_MANIFEST:
        send_manifest(p, from);
        break;
    case GSP_WORD_MANIFEST:
        if (gsp_links_may_send_manifest(&p->links, from->key, atom_clock_ns()))
            on_manifest(p, from, m);
        else
            p->refusals++;
        break;
    case GSP_WORD_ASK_FILE:
        gsp_files_asked(p->files, from, m);
        break;
    case GSP_WORD_FILE:
        gsp_files_came(p->files, from, m);
        break;
    case GSP_WORD_ASK_NOTE:
        gsp_notes_asked(p->notes, from, m);
        break;
    case GSP_WORD_NOTE:
        p->refusals += !gsp_notes_came(p->notes, from, m);
        break;
    case GSP_WORD_ASK_PIECES:
        gsp_data_asked(&p->data, from, m);
        break;
    case GSP_WORD_PIECE:
    case GSP_WORD_NO_PIECE:
        gsp_data_came(&p->data, from, m);
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
    if (l->doomed_ns)
        return;     /* it is shunned */
    if (e->guest) { /* nothing is written for those that come with keys made on the spot */
        if (e->old_key) {
            send_manifest(p, l);
            gsp_link_doom(l, OLD_KEY_NS);
        }
        return;
    }
    if (is_shut_out(p, l)) { /* the gate let it in just before */
        send_manifest(p, l);
        gsp_link_doom(l, SECOND_NS);
        return;
    }
    gsp_event_log_add(&p->diary, "\"event\":\"up\",\"key\":\"%s\",\"address\":\"%s\"",
                      gsp_public_text(e->key, who), gsp_address_text(&e->address, at));
    /* A link to whoever answered at a host's address: from now on it is this one that we want. */
    if (!e->inbound && e->address.port && gsp_net_dial(p->net, e->key, &e->address, 1) != ATOM_OK)
        atom_log(ATOM_LOG_WARN, "%s", atom_fail_message());
    p->twin_ns = 0;
    if (p->door.is_guest) {
        p->ask_ns = 0; /* at once */
        return;
    }
    if (memcmp(l->key, p->door.owner, sizeof l->key) == 0)
        p->renew_ns = 0; /* it may be here for a short time only */
    gsp_address_book_answered(&p->book, e->key, &e->address);
    gsp_pool_greet(p, l);
    (void)gsp_pool_tell_delegation(p, l->key); /* if it is one of ours */
}

static void on_down(gsp_pool *p, const gsp_net_event *e)
{
    gsp_link *l = gsp_links_find(&p->links, e->key);
    char who[GSP_PUBLIC_TEXT_BYTES];
    if (!l)
        return;
    l->up = false;
    gsp_pool_show_present(p); /* it may be back at once, as another process */
    if (!l->guest)
        gsp_event_log_add(&p->diary, "\"event\":\"down\",\"key\":\"%s\"",
                          gsp_public_text(e->key, who));
}

static bool on_message(gsp_pool *p, const gsp_net_event *e)
{
    gsp_word *m;
    gsp_link *from = gsp_links_find(&p->links, e->key);
    const uint8_t *first = e->data;
    if (e->bytes == 0 || first[0] != GSP_WORD_MARK)
        return false;
    /* What was asked for comes as fast as the line. */
    bool wanted = from && !from->guest && p->data.haul && e->channel == GSP_NET_BULK;
    m = from && (wanted || gsp_links_may_speak(&p->links, from, atom_clock_ns()))
            ? atom_alloc(1, sizeof *m)
            : NULL;
    if (m && gsp_word_decode(e->data, e->bytes, m) && gsp_word_channel(m->kind) == e->channel)
        on_word(p, from, m);
    else
        p->refusals++;
    atom_free(m);
    return true;
}

/* A dial came to nothing. The owner's own word is final; anybody else's ends nobody. */
static void on_refused(gsp_pool *p, const gsp_net_event *e)
{
    bool owners = memcmp(e->key, p->door.owner, sizeof p->door.owner) == 0;
    static const uint8_t nobody[GSP_PUBLIC_BYTES];
    if (e->refusal == GSP_REFUSED_TWIN && memcmp(e->key, nobody, sizeof nobody) != 0)
        refused_as_twin(p, atom_clock_ns()); /* a member says so, and not somebody on the way */
    if (e->refusal == GSP_REFUSED_CREDENTIAL && gsp_door_awaits_manifest(&p->door)) {
        gsp_door_show_invite(&p->door); /* the ticket that it has is good for that */
        p->was_admitted = true;
        return;
    }
    bool is_void = owners && e->refusal == GSP_REFUSED_CREDENTIAL && !p->door.plain &&
                   gsp_door_leans_on_delegate(&p->door);
    if (is_void || (owners && e->refusal == GSP_REFUSED_BANNED))
        say_banned(p, is_void);
    else if (p->door.is_guest && gsp_refusal_is_final(e->refusal))
        gsp_pool_refused_in(p, e->key, &e->address, owners, (gsp_refusal)e->refusal);
    else if (!gsp_links_in_vain(&e->address))
        gsp_seek_refused(&p->seek, e);
}

bool gsp_pool_take(gsp_pool *p, const gsp_net_event *e)
{
    const gsp_link *from = gsp_links_find(&p->links, e->key);
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
        on_refused(p, e);
        break;
    case GSP_NET_ROOM:
        if (e->channel == GSP_NET_BULK && from)
            gsp_data_room(&p->data, from);
        break;
    case GSP_NET_NOTHING:
        break;
    }
    return false;
}
