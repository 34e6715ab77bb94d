/*
 * Owns the table of links and the list of keys that are dialled. Its one idea: a wish outlives its
 * link, so whoever goes away is dialled again until somebody else needs the place. It refuses to
 * dial more than GSP_WANTED_MAX at once, and to listen to more than a budget of words a second.
 */
#include "gossip/pool/links.h"

#include "atom/base/clock.h"

#include <stdio.h>
#include <string.h>

enum {
    WORDS_PER_SECOND = 400,
    GUEST_WORDS_PER_SECOND = 5,
    WORDS_PER_MINUTE = 12000,
    GUEST_WORDS_PER_MINUTE = 60, /* of one address */
    CONTACTS_PER_MINUTE = 12 * GSP_WORD_CONTACTS_MAX,
    NOTES_PER_MINUTE = 20, /* questions */
    MANIFESTS_PER_MINUTE = 20,
};
static const uint64_t SECOND_NS = 1000000000u, STUBBORN_NS = 120u * 1000000000ull,
                      SHUNNED_NS = 600u * 1000000000ull;

static bool is(const uint8_t *a, const uint8_t *b)
{
    return memcmp(a, b, GSP_PUBLIC_BYTES) == 0;
}

/* ---- links ---- */

const char *gsp_member_text(const char *name, const uint8_t *key, char text[GSP_MEMBER_TEXT_BYTES])
{
    char all[GSP_PUBLIC_TEXT_BYTES];
    gsp_public_text(key, all);
    if (name[0])
        snprintf(text, GSP_MEMBER_TEXT_BYTES, "%s (%.8s)", name, all);
    else
        snprintf(text, GSP_MEMBER_TEXT_BYTES, "member %.8s", all);
    return text;
}

gsp_link *gsp_links_find(gsp_links *links, const uint8_t *key)
{
    for (uint32_t i = 0; i < GSP_NET_LINKS_MAX; i++)
        if (links->link[i].up && is(links->link[i].key, key))
            return &links->link[i];
    return NULL;
}

gsp_link *gsp_links_member(gsp_links *links)
{
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++)
        if (links->link[i].up)
            return &links->link[i];
    return NULL;
}

gsp_link *gsp_links_add(gsp_links *links, const gsp_net_event *up)
{
    const uint32_t first = up->guest ? GSP_NET_PEERS_MAX : 0;
    const uint32_t end = up->guest ? GSP_NET_LINKS_MAX : GSP_NET_PEERS_MAX;
    gsp_link *l = gsp_links_find(links, up->key);
    if (l && l->guest != up->guest) {
        l->up = false;
        l = NULL;
    }
    for (uint32_t i = first; !l && i < end; i++)
        l = links->link[i].up ? NULL : &links->link[i];
    if (!l)
        return NULL;
    *l = (gsp_link){.up = true,
                    .guest = up->guest,
                    .old_key = up->old_key,
                    .inbound = up->inbound,
                    .address = up->address,
                    .born = ++links->n_born,
                    .boot = up->boot};
    memcpy(l->key, up->key, sizeof l->key);
    for (uint32_t i = 0; i < GSP_SHUNNED_MAX; i++)
        if (is(links->shunned[i].key, l->key) && atom_clock_ns() < links->shunned[i].until_ns)
            l->doomed_ns = links->shunned[i].until_ns - SHUNNED_NS;
    return l;
}

static void unwant(gsp_links *links, const uint8_t *key)
{
    for (uint32_t k = 0; k < GSP_WANTED_MAX; k++)
        if (links->wanted[k].used && is(links->wanted[k].key, key))
            links->wanted[k].used = false;
}

void gsp_links_end(gsp_links *links, gsp_link *l)
{
    unwant(links, l->key);
    gsp_net_drop(links->net, l->key);
    l->up = false;
}

/* ---- words ---- */

bool gsp_links_tell(gsp_links *links, const uint8_t *key, const gsp_word *m)
{
    uint8_t head[GSP_WORD_HEAD_BYTES];
    size_t bytes = gsp_word_encode(m, head);
    return gsp_net_send(links->net, key, gsp_word_channel(m->kind), head, bytes, m->body,
                        m->body_bytes) == GSP_NET_SENT;
}

static bool minute_lets(gsp_links *links, const gsp_link *l, uint64_t now)
{
    uint8_t from[GSP_TALLY_KEY_BYTES];
    gsp_tally *t = l->guest ? &links->guests_words : &links->words;
    t->window_ns = 60 * SECOND_NS;
    t->each_max = l->guest ? GUEST_WORDS_PER_MINUTE : WORDS_PER_MINUTE;
    t->all_max =
        l->guest ? GSP_TALLY_KEYS * GUEST_WORDS_PER_MINUTE : GSP_NET_PEERS_MAX * WORDS_PER_MINUTE;
    if (!l->guest)
        return gsp_tally_take(t, l->key, 1, now);
    gsp_tally_address(&l->address, from);
    return gsp_tally_take(t, from, 1, now);
}

bool gsp_links_may_speak(gsp_links *links, gsp_link *l, uint64_t now)
{
    if (now / SECOND_NS != l->second) {
        l->second = now / SECOND_NS;
        l->said = 0;
    }
    return ++l->said <= (l->guest ? GUEST_WORDS_PER_SECOND : WORDS_PER_SECOND) &&
           minute_lets(links, l, now);
}

static gsp_tally *given(gsp_links *links, uint64_t most)
{
    links->given.window_ns = GSP_GIVEN_SECONDS * SECOND_NS;
    links->given.each_max = most;
    links->given.all_max = UINT64_MAX;
    return &links->given;
}

bool gsp_links_may_give(gsp_links *links, const uint8_t *key, uint64_t bytes, uint64_t most,
                        uint64_t now)
{
    return bytes <= gsp_tally_left(given(links, most), key, now);
}

void gsp_links_give(gsp_links *links, const uint8_t *key, uint64_t bytes, uint64_t most,
                    uint64_t now)
{
    (void)gsp_tally_take(given(links, most), key, bytes, now);
}

static bool minute_takes(gsp_tally *t, const uint8_t *key, uint64_t most, uint64_t now)
{
    t->window_ns = 60 * SECOND_NS;
    t->each_max = most;
    t->all_max = GSP_NET_PEERS_MAX * most;
    return gsp_tally_take(t, key, 1, now);
}

bool gsp_links_may_bring(gsp_links *links, const uint8_t *key, uint64_t now)
{
    return minute_takes(&links->judged, key, CONTACTS_PER_MINUTE, now);
}

bool gsp_links_may_ask_notes(gsp_links *links, const uint8_t *key, uint64_t now)
{
    return minute_takes(&links->notes, key, NOTES_PER_MINUTE, now);
}

bool gsp_links_may_send_manifest(gsp_links *links, const uint8_t *key, uint64_t now)
{
    return minute_takes(&links->manifests, key, MANIFESTS_PER_MINUTE, now);
}

void gsp_links_shun(gsp_links *links, gsp_link *l, uint64_t now)
{
    uint32_t i = links->n_shunned++ % GSP_SHUNNED_MAX;
    memcpy(links->shunned[i].key, l->key, sizeof l->key);
    links->shunned[i].until_ns = now + SHUNNED_NS;
    l->doomed_ns = now;
}

void gsp_links_hello_by(gsp_links *links, uint64_t ns)
{
    for (uint32_t i = 0; i < GSP_NET_LINKS_MAX; i++)
        if (links->link[i].hello_ns > ns)
            links->link[i].hello_ns = ns;
}

/* ---- whom to dial ---- */

static const char IN_VAIN[] = "127.0.0.1:9"; /* discard: nobody listens there */

bool gsp_links_in_vain(const gsp_address *at)
{
    gsp_address in_vain;
    return gsp_address_parse(IN_VAIN, &in_vain) == ATOM_OK && gsp_address_equal(at, &in_vain);
}

static bool dial_known(gsp_links *links, const gsp_known *k, bool accepts)
{
    gsp_address at[GSP_CONTACT_ADDRESSES_MAX + 1];
    uint32_t n = gsp_known_addresses(k, at);
    if (n > GSP_NET_ADDRESSES_MAX)
        n = GSP_NET_ADDRESSES_MAX;
    /* It accepts nowhere: it dials us. If we accept nowhere either, a third relays; the transport
     * asks for one after all addresses were tried in vain, so it gets one that is in vain. */
    if (n == 0 && !accepts && gsp_address_parse(IN_VAIN, &at[0]) == ATOM_OK)
        n = 1;
    return n > 0 && gsp_net_dial(links->net, k->contact.key, at, n) == ATOM_OK;
}

/* Where all places are taken, a key that was dialled in vain for long gives its own up. */
static void make_room(gsp_links *links, gsp_peers *peers, uint64_t now)
{
    for (uint32_t i = 0; i < GSP_WANTED_MAX; i++) {
        if (!links->wanted[i].used)
            return;
        if (gsp_links_find(links, links->wanted[i].key))
            links->wanted[i].since_ns = now;
    }
    for (uint32_t i = 0; i < GSP_WANTED_MAX; i++) {
        gsp_wanted *w = &links->wanted[i];
        if (now - w->since_ns < STUBBORN_NS)
            continue;
        gsp_net_drop(links->net, w->key);
        gsp_peers_failed(peers, w->key);
        w->used = false;
        return;
    }
}

void gsp_links_dial(gsp_links *links, gsp_peers *peers, bool accepts, uint64_t now)
{
    const gsp_known *best[GSP_PEERS_MAX];
    make_room(links, peers, now);
    uint32_t n = gsp_peers_best(peers, best, GSP_PEERS_MAX), slot = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint8_t *key = best[i]->contact.key;
        bool wanted = false;
        for (uint32_t k = 0; k < GSP_WANTED_MAX; k++)
            wanted |= links->wanted[k].used && is(links->wanted[k].key, key);
        while (slot < GSP_WANTED_MAX && links->wanted[slot].used)
            slot++;
        if (wanted || slot == GSP_WANTED_MAX || !dial_known(links, best[i], accepts))
            continue;
        links->wanted[slot] = (gsp_wanted){.used = true, .since_ns = now};
        memcpy(links->wanted[slot].key, key, GSP_PUBLIC_BYTES);
    }
}

void gsp_links_moved(gsp_links *links, const uint8_t *key)
{
    if (!gsp_links_find(links, key))
        unwant(links, key);
}

void gsp_links_rest(gsp_links *links)
{
    for (uint32_t k = 0; k < GSP_WANTED_MAX; k++) {
        if (links->wanted[k].used)
            gsp_net_drop(links->net, links->wanted[k].key);
        links->wanted[k].used = false;
    }
}
