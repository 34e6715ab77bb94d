/*
 * Owns what this host says of itself: HELLO on each link, its contact everywhere, its keys. Its one
 * idea: whatever changes is said again as a whole, so nobody has to be told what is new. It refuses
 * to say anything as a guest.
 */
#include "atom/base/clock.h"
#include "atom/base/mem.h"
#include "gossip/member/node_look.h"
#include "gossip/pool/pool_inner.h"

#include <sodium.h>
#include <string.h>

static const uint64_t SECOND_NS = 1000000000u;

void gsp_pool_renew_contact(gsp_pool *p)
{
    gsp_contact c = {0};
    p->book.renewed_ns = atom_clock_ns();
    p->book.own_changed = false;
    if (p->door.is_guest || !p->book.peers)
        return;
    if (p->door.has_manifest) /* in all, over restarts */
        c.samples = gsp_pool_own_tokens(p) / p->door.manifest->tokens_per_sample;
    if (p->node) {
        const gsp_agree *a = gsp_node_look(p->node);
        memcpy(c.lineage, a->lineage.byte, sizeof c.lineage);
        c.version = a->certified;
    }
    c.n_addresses = gsp_reach_addresses(&p->reach, c.address, GSP_CONTACT_ADDRESSES_MAX);
    c.credential_bytes = gsp_door_shows(&p->door, (uint64_t)atom_wall_seconds(), c.credential);
    gsp_address_book_renew(&p->book, &c, p->door.pool, &p->door.identity);
}

void gsp_pool_rekey(gsp_pool *p)
{
    const gsp_door *d = &p->door;
    uint8_t shown[GSP_CREDENTIAL_BYTES_MAX];
    p->shown_bytes = gsp_door_shows(d, (uint64_t)atom_wall_seconds(), shown);
    if (!d->plain)
        gsp_net_rekey(p->net, d->psk, d->n_psks, shown, p->shown_bytes);
    gsp_address_book_rekey(&p->book, d->psk, d->n_psks);
    gsp_pool_renew_contact(p);
}

void gsp_pool_greet(gsp_pool *p, gsp_link *link)
{
    static const uint8_t nobody[GSP_PUBLIC_BYTES];
    const gsp_known *best[GSP_WORD_CONTACTS_MAX];
    const size_t room = GSP_WORD_HELLO_BYTES_MAX - GSP_WORD_HEAD_BYTES;
    gsp_word m = {
        .kind = GSP_WORD_HELLO, .number = gsp_door_number(&p->door), .seen = link->address};
    link->hello_ns = atom_clock_ns() + 20 * SECOND_NS;
    if (p->door.is_guest || link->guest)
        return;
    uint8_t *body = atom_alloc(room, 1);
    if (!body)
        return; /* next time */
    memcpy(m.name, p->name, sizeof m.name);
    size_t used = 0;
    if (memcmp(p->book.own.key, nobody, sizeof nobody) != 0)
        used = gsp_word_add_contact(body, used, room, &p->book.own);
    m.n_contacts = used > 0;
    uint32_t n = gsp_peers_best(p->book.peers, best, GSP_WORD_CONTACTS_MAX - 1);
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

void gsp_pool_greet_all(gsp_pool *p)
{
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++)
        if (p->links.link[i].up)
            gsp_pool_greet(p, &p->links.link[i]);
}

void gsp_pool_found(void *pool, const gsp_contact *contact, const gsp_address *from)
{
    gsp_pool *p = pool;
    gsp_peers_added added = gsp_address_book_add(&p->book, contact, from);
    if (added == GSP_PEERS_NEW) /* the others want to know */
        gsp_links_hello_by(&p->links, atom_clock_ns() + SECOND_NS / 2);
    if (added == GSP_PEERS_NEWER)
        gsp_links_moved(&p->links, contact->key);
}
