/*
 * Owns whom this host knows and dials, and what it says of itself. Its one idea: contacts come from
 * everywhere (greetings, LAN, directory, the book on disk), are judged once and kept in one book;
 * who is in the book is dialled until the link is up. It refuses to dial more than
 * GSP_WANTED_MAX at once: who does not answer makes room for the next.
 */
#include "gossip/pool/pool_inner.h"

#include "atom/base/clock.h"
#include "atom/base/files.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"
#include "gossip/member/node_look.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sodium.h>
#include <string.h>

static const uint64_t SECOND_NS = 1000000000u, RENEW_NS = 240u * 1000000000ull;
enum { CONTACT_SECONDS = 1800 };

/* ---- addresses ---- */

static bool is_any(const gsp_address *a)
{
    static const uint8_t zeros[16], mapped[16] = {[10] = 0xff, [11] = 0xff};
    return memcmp(a->ip, zeros, 16) == 0 || memcmp(a->ip, mapped, 16) == 0;
}

static bool is_loopback(const gsp_address *a)
{
    static const uint8_t one[16] = {[15] = 1}, mapped[12] = {[10] = 0xff, [11] = 0xff};
    return memcmp(a->ip, one, 16) == 0 || (memcmp(a->ip, mapped, 12) == 0 && a->ip[12] == 127);
}

static uint32_t add(gsp_address *out, uint32_t n, uint32_t n_max, gsp_address a, uint16_t port)
{
    a.port = port;
    for (uint32_t i = 0; i < n; i++)
        if (gsp_address_equal(&out[i], &a))
            return n;
    if (n < n_max)
        out[n++] = a;
    return n;
}

/* Those of the interfaces; loopback only where there is nothing else. */
static uint32_t add_interfaces(gsp_address *out, uint32_t n, uint32_t n_max, uint16_t port)
{
    struct ifaddrs *list = NULL;
    uint32_t before = n;
    gsp_address loopback = {0};
    if (getifaddrs(&list) != 0)
        return n;
    for (const struct ifaddrs *i = list; i; i = i->ifa_next) {
        struct sockaddr_storage s = {0};
        gsp_address a;
        int family = i->ifa_addr ? i->ifa_addr->sa_family : AF_UNSPEC;
        if (!(i->ifa_flags & IFF_UP) || (family != AF_INET && family != AF_INET6))
            continue;
        memcpy(&s, i->ifa_addr,
               family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6));
        if (!gsp_address_from_socket(&s, &a) || a.scope)
            continue; /* link-local: means nothing elsewhere */
        if (is_loopback(&a))
            loopback = a;
        else
            n = add(out, n, n_max, a, port);
    }
    freeifaddrs(list);
    if (n == before && !is_any(&loopback))
        n = add(out, n, n_max, loopback, port);
    return n;
}

uint32_t life_own_addresses(const gsp_pool *p, gsp_address *out, uint32_t n_max)
{
    uint32_t n = 0;
    if (!p->port)
        return 0;
    for (uint32_t i = 0; i < p->n_announced; i++)
        n = add(out, n, n_max, p->announced[i], p->announced[i].port);
    if (!is_any(&p->outside))
        n = add(out, n, n_max, p->outside, p->outside.port);
    for (uint32_t i = 0; i < p->host.n_listen && !p->n_announced; i++) {
        const gsp_address *l = &p->host.listen[i];
        if (!is_any(l)) {
            n = add(out, n, n_max, *l, l->port ? l->port : p->port);
            continue;
        }
        if (!is_any(&p->seen) && !is_loopback(&p->seen))
            n = add(out, n, n_max, p->seen, p->port);
        n = add_interfaces(out, n, n_max, p->port);
    }
    return n;
}

/* ---- our own contact ---- */

void life_contact_renew(gsp_pool *p)
{
    gsp_contact *c = &p->contact;
    uint64_t now = (uint64_t)atom_wall_seconds();
    char *book = atom_path_join(p->directory, "peers");
    p->contact_ns = atom_clock_ns();
    p->contact_changed = false;
    if (p->is_guest || !p->peers || !book) {
        atom_free(book);
        return;
    }
    memset(c, 0, sizeof *c);
    memcpy(c->key, p->identity.public_key, sizeof c->key);
    c->sequence = gsp_peers_next_sequence(p->peers, now);
    c->issued_s = now;
    c->expires_s = now + CONTACT_SECONDS;
    if (p->driver) {
        const gsp_agree *a = gsp_node_look(p->driver);
        memcpy(c->lineage, a->lineage.byte, sizeof c->lineage);
        c->version = a->certified;
    }
    c->samples = atomic_load(&p->samples);
    c->directory_port = p->nodes ? gsp_directory_port(p->nodes) : 0;
    c->n_addresses = life_own_addresses(p, c->address, GSP_CONTACT_ADDRESSES_MAX);
    memcpy(c->credential, p->credential, p->credential_bytes);
    c->credential_bytes = p->credential_bytes;
    gsp_contact_sign(c, p->pool, &p->identity);
    if (gsp_peers_save(p->peers, book) != ATOM_OK) /* the sequence, before it is shown */
        atom_log(ATOM_LOG_WARN, "%s", atom_fail_message());
    atom_free(book);
    if (p->lan)
        gsp_lan_publish(p->lan, c);
    if (p->nodes)
        gsp_directory_publish(p->nodes, c);
}

/* ---- others ---- */

void life_known(gsp_pool *p, const gsp_contact *contact, const gsp_address *from)
{
    char text[GSP_ADDRESS_TEXT_BYTES];
    gsp_peers_added added = gsp_peers_add(p->peers, contact, from, (uint64_t)atom_wall_seconds());
    p->book_changed |= added == GSP_PEERS_NEW || added == GSP_PEERS_NEWER;
    if (added == GSP_PEERS_NEW)
        gsp_links_hello_by(&p->links,
                           atom_clock_ns() + SECOND_NS / 2); /* the others want to know */
    if (added == GSP_PEERS_NEWER)
        gsp_links_moved(&p->links, contact->key);
    if (added != GSP_PEERS_NEW || !p->nodes || !contact->directory_port)
        return;
    for (uint32_t i = 0; i < contact->n_addresses && i < 2; i++) {
        gsp_address node = contact->address[i];
        if (is_any(&node) && from)
            node = *from;
        node.port = contact->directory_port;
        if (!is_any(&node) &&
            gsp_directory_bootstrap(p->nodes, gsp_address_text(&node, text)) != ATOM_OK)
            atom_log(ATOM_LOG_DEBUG, "%s", atom_fail_message());
    }
}

static void find_others(gsp_pool *p, uint64_t now)
{
    gsp_contact contact;
    gsp_lan_found found;
    for (int i = 0; p->nodes && i < 16 && gsp_directory_next(p->nodes, &contact); i++)
        life_known(p, &contact, NULL);
    if (!p->lan || now < p->lan_ns)
        return;
    p->lan_ns = now + SECOND_NS / 4;
    gsp_lan_step(p->lan, now, (uint64_t)atom_wall_seconds());
    for (int i = 0; i < 16 && gsp_lan_next(p->lan, &found); i++)
        life_known(p, &found.contact, &found.from);
}

static void end_link(gsp_pool *p, gsp_link *l)
{
    gsp_links_end(&p->links, l);
    if (p->driver && !l->guest)
        gsp_node_unlink(p->driver, l->key);
}

/* As members we dial the same hosts again: the address of each link is where it accepts. */
void life_links_drop(gsp_pool *p)
{
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++) {
        gsp_link *l = &p->links.link[i];
        if (!l->up)
            continue;
        gsp_link was = *l;
        end_link(p, l);
        if (!was.inbound && !is_any(&was.address) &&
            gsp_net_dial(p->net, was.key, &was.address, 1) != ATOM_OK)
            atom_log(ATOM_LOG_WARN, "%s", atom_fail_message());
    }
}

void life_links_end(gsp_pool *p)
{
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++)
        if (p->links.link[i].up)
            end_link(p, &p->links.link[i]);
    gsp_links_rest(&p->links);
}

/* ---- admissions ---- */

/* When an admission of `bytes` was given and ends; its layout is admission.h's. */
static bool span(const uint8_t *credential, uint32_t bytes, uint64_t *from, uint64_t *until)
{
    enum { AT = GSP_ADMISSION_BYTES - GSP_SIGNATURE_BYTES - 16 };
    *from = *until = 0;
    if (bytes < GSP_ADMISSION_BYTES)
        return false;
    for (unsigned i = 0; i < 8; i++) {
        *from |= (uint64_t)credential[AT + i] << 8 * i;
        *until |= (uint64_t)credential[AT + 8 + i] << 8 * i;
    }
    return true;
}

static void ask_again(gsp_pool *p, uint64_t now)
{
    uint64_t from, until, now_s = (uint64_t)atom_wall_seconds();
    if (p->is_guest) {
        if (now >= p->ask_ns) {
            p->ask_ns = now + 2 * SECOND_NS;
            life_ask_admission(p);
        }
        return;
    }
    if (now < p->renew_ns || !span(p->credential, p->credential_bytes, &from, &until))
        return;
    p->renew_ns = now + 60 * SECOND_NS;
    if (now_s > from + (until - from) / 2)
        life_ask_admission(p);
}

/* Whose admission ran out while its link was up, and who did not get another. */
static bool expired(gsp_pool *p, const gsp_link *l, uint64_t now_s)
{
    gsp_role role;
    uint8_t shown[GSP_CREDENTIAL_BYTES_MAX];
    uint32_t bytes = 0;
    uint64_t from, until;
    const gsp_known *k = gsp_peers_find(p->peers, l->key);
    if (p->plain || l->guest || !gsp_net_peer_credential(p->net, l->key, &role, shown, &bytes) ||
        !span(shown, bytes, &from, &until) || now_s <= until + GSP_SKEW_SECONDS)
        return false;
    return !k || !span(k->contact.credential, k->contact.credential_bytes, &from, &until) ||
           now_s > until + GSP_SKEW_SECONDS;
}

static void look_at_links(gsp_pool *p, uint64_t now)
{
    uint64_t now_s = (uint64_t)atom_wall_seconds();
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++) {
        gsp_link *l = &p->links.link[i];
        if (!l->up)
            continue;
        if ((l->doomed_ns && now >= l->doomed_ns) || expired(p, l, now_s))
            end_link(p, l);
        else if (now >= l->hello_ns)
            life_greet(p, l);
    }
}

static void forget_old_key(gsp_pool *p)
{
    if (p->n_psks < 2 || (uint64_t)atom_wall_seconds() < p->rotated_s + POOL_OLD_KEY_SECONDS)
        return;
    sodium_memzero(p->psk[1], GSP_PSK_BYTES);
    p->n_psks = 1;
    life_rekey(p);
    if (life_save_keys(p) != ATOM_OK)
        atom_log(ATOM_LOG_WARN, "%s", atom_fail_message());
}

static void save_book(gsp_pool *p, uint64_t now)
{
    char *book = p->book_changed && now - p->saved_ns > SECOND_NS
                     ? atom_path_join(p->directory, "peers")
                     : NULL;
    if (!book)
        return;
    p->book_changed = false;
    p->saved_ns = now;
    if (gsp_peers_save(p->peers, book) != ATOM_OK)
        atom_log(ATOM_LOG_WARN, "%s", atom_fail_message());
    atom_free(book);
}

void life_links_step(gsp_pool *p, uint64_t now)
{
    if (p->was_admitted) {
        p->was_admitted = false;
        life_rekey(p);
        life_links_drop(p);
    }
    find_others(p, now);
    ask_again(p, now);
    look_at_links(p, now);
    gsp_links_dial(&p->links, p->peers, p->port != 0, now);
    life_seek_step(p, now);
    life_router_step(p, now);
    save_book(p, now);
    if (!p->is_guest && (now - p->contact_ns > RENEW_NS ||
                         (p->contact_changed && now - p->contact_ns > 5 * SECOND_NS)))
        life_contact_renew(p);
    if (now >= p->book_ns) {
        p->book_ns = now + 60 * SECOND_NS;
        forget_old_key(p);
    }
}
