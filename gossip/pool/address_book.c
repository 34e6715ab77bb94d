/*
 * Owns whom a host knows. Its one idea: contacts come from everywhere, are judged once and kept in
 * one book, and nobody asks where one came from. It refuses to show our own contact before its
 * sequence number is on disk: a host that comes back would be taken for a replay.
 */
#include "gossip/pool/address_book.h"

#include "atom/base/clock.h"
#include "atom/base/files.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"

#include <sodium.h>
#include <string.h>

enum {
    CONTACT_SECONDS = 1800,
    FOUND_PER_STEP = 16,
    NODES_PER_CONTACT = 2,
    NODES_OF_BOOK = 4,
    TWINS_MAX = 3,
};
static const uint64_t SECOND_NS = 1000000000u, RENEW_NS = 240u * 1000000000ull;

static void save(const gsp_address_book *b)
{
    if (b->peers && b->path && gsp_peers_save(b->peers, b->path) != ATOM_OK)
        atom_log(ATOM_LOG_WARN, "%s", atom_fail_message());
}

/* ---- opening ---- */

/* Whoever is new, or moved, may know the directory. */
static void add_nodes(gsp_address_book *b, const gsp_contact *contact, const gsp_address *from)
{
    char text[GSP_ADDRESS_TEXT_BYTES];
    for (uint32_t i = 0; i < contact->n_addresses && i < NODES_PER_CONTACT; i++) {
        gsp_address node = contact->address[i];
        if (gsp_address_is_any(&node) && from)
            node = *from;
        node.port = contact->directory_port;
        if (!gsp_address_is_any(&node) &&
            gsp_directory_bootstrap(b->nodes, gsp_address_text(&node, text)) != ATOM_OK)
            atom_log(ATOM_LOG_DEBUG, "%s", atom_fail_message());
    }
}

/* Those that this host knew: OpenDHT remembers its nodes only where it was ended in order. */
static void add_known_nodes(gsp_address_book *b)
{
    const gsp_known *best[NODES_OF_BOOK];
    uint32_t n = gsp_peers_best(b->peers, best, NODES_OF_BOOK);
    for (uint32_t i = 0; i < n; i++)
        if (best[i]->contact.directory_port)
            add_nodes(b, &best[i]->contact, &best[i]->from);
}

/* At its port, or at any other where that one is taken. */
static atom_status open_directory(gsp_directory_config *c, gsp_directory **out)
{
    if (c->port && gsp_directory_open(c, out) == ATOM_OK)
        return ATOM_OK;
    c->port = 0;
    return gsp_directory_open(c, out);
}

/* What helps to find members, and is done without where it cannot be had. */
static void open_finders(gsp_address_book *b, const gsp_address_book_config *c)
{
    char *nodes = atom_path_join(c->directory, "nodes");
    gsp_lan_config lan = {.who = *c->who};
    gsp_directory_config directory = {
        .who = *c->who, .port = c->directory_port, .nodes_path = nodes};
    if (!c->no_lan && gsp_lan_open(&lan, &b->lan) != ATOM_OK)
        atom_log(ATOM_LOG_DEBUG, "no local discovery: %s", atom_fail_message());
    if (!c->no_directory && open_directory(&directory, &b->nodes) != ATOM_OK)
        atom_log(ATOM_LOG_WARN, "the pool runs without the directory: %s", atom_fail_message());
    for (uint32_t i = 0; b->nodes && i < c->n_bootstraps; i++)
        if (gsp_directory_bootstrap(b->nodes, c->bootstrap[i]) != ATOM_OK)
            atom_log(ATOM_LOG_WARN, "%s", atom_fail_message());
    if (b->nodes)
        add_known_nodes(b);
    atom_free(nodes);
}

atom_status gsp_address_book_open(gsp_address_book *b, const gsp_address_book_config *c)
{
    *b = (gsp_address_book){.path = atom_path_join(c->directory, "peers")};
    if (!b->path)
        return atom_fail_memory("a path", 0);
    ATOM_TRY(gsp_peers_open(c->who, &b->peers));
    if (gsp_peers_load(b->peers, b->path, (uint64_t)atom_wall_seconds()) != ATOM_OK)
        atom_log(ATOM_LOG_WARN, "%s; the peers in it are forgotten", atom_fail_message());
    open_finders(b, c);
    return ATOM_OK;
}

void gsp_address_book_close(gsp_address_book *b)
{
    save(b);
    gsp_lan_close(&b->lan);
    gsp_directory_close(&b->nodes);
    gsp_peers_close(&b->peers);
    atom_free(b->path);
    b->path = NULL;
}

void gsp_address_book_rekey(gsp_address_book *b, const uint8_t psk[][GSP_PSK_BYTES],
                            uint32_t n_psks)
{
    if (b->lan)
        gsp_lan_rekey(b->lan, psk, n_psks);
    if (b->nodes)
        gsp_directory_rekey(b->nodes, psk, n_psks);
}

/* ---- our own contact ---- */

bool gsp_address_book_is_stale(const gsp_address_book *b, uint64_t now_ns)
{
    uint64_t age = now_ns - b->renewed_ns;
    return age > RENEW_NS || (b->own_changed && age > 5 * SECOND_NS);
}

void gsp_address_book_renew(gsp_address_book *b, const gsp_contact *draft,
                            const uint8_t pool[GSP_POOL_BYTES], const gsp_identity *self)
{
    uint64_t now = (uint64_t)atom_wall_seconds();
    b->renewed_ns = atom_clock_ns();
    b->own_changed = false;
    b->own = *draft;
    memcpy(b->own.key, self->public_key, sizeof b->own.key);
    b->own.sequence = gsp_peers_next_sequence(b->peers, now);
    b->own.issued_s = now;
    b->own.expires_s = now + CONTACT_SECONDS;
    b->own.directory_port = b->nodes ? gsp_directory_port(b->nodes) : 0;
    gsp_contact_sign(&b->own, pool, self);
    save(b);
    if (b->lan)
        gsp_lan_publish(b->lan, &b->own);
    if (b->nodes)
        gsp_directory_publish(b->nodes, &b->own);
}

bool gsp_address_book_has_twin(gsp_address_book *b, const gsp_contact *contact,
                               const gsp_handshake_config *who, uint64_t now_s)
{
    gsp_handshake_config anybody = *who;
    const gsp_contact *own = &b->own;
    uint64_t sequence = contact->sequence;
    bool newer = sequence > own->sequence && sequence > b->twin_sequence;
    /* No process signs two with one number. */
    bool beside = sequence == own->sequence && sequence != b->twin_sequence &&
                  memcmp(contact->signature, own->signature, sizeof own->signature) != 0;
    anybody.self = NULL; /* so that it is judged like anybody's */
    bool twin = own->sequence != 0 && (newer || beside) &&
                gsp_contact_judge(contact, &anybody, now_s) == GSP_CONTACT_GOOD;
    sodium_memzero(&anybody, sizeof anybody);
    if (!twin)
        return false;
    gsp_peers_raise_sequence(b->peers, sequence);
    b->twin_sequence = sequence;
    b->renewed_ns = 0; /* at once: the next one to come must be newer again */
    return ++b->n_twins >= TWINS_MAX;
}

/* ---- others ---- */

gsp_peers_added gsp_address_book_add(gsp_address_book *b, const gsp_contact *contact,
                                     const gsp_address *from)
{
    const gsp_known *known = gsp_peers_find(b->peers, contact->key);
    bool moved = known && contact->sequence > known->contact.sequence &&
                 (known->contact.directory_port != contact->directory_port ||
                  memcmp(known->contact.address, contact->address, sizeof contact->address) != 0);
    gsp_peers_added added = gsp_peers_add(b->peers, contact, from, (uint64_t)atom_wall_seconds());
    b->changed |= added == GSP_PEERS_NEW || added == GSP_PEERS_NEWER;
    if ((added == GSP_PEERS_NEW || moved) && b->nodes && contact->directory_port)
        add_nodes(b, contact, from);
    return added;
}

void gsp_address_book_answered(gsp_address_book *b, const uint8_t *key, const gsp_address *at)
{
    gsp_peers_answered(b->peers, key, at, (uint64_t)atom_wall_seconds());
    b->changed = true;
}

void gsp_address_book_look(gsp_address_book *b, gsp_address_book_found *found, void *context,
                           uint64_t now)
{
    gsp_contact contact;
    gsp_lan_found heard;
    for (int i = 0; b->nodes && i < FOUND_PER_STEP && gsp_directory_next(b->nodes, &contact); i++) {
        gsp_heartbeats_add(&b->beats, &contact, (uint64_t)atom_wall_seconds());
        found(context, &contact, NULL);
    }
    if (!b->lan || now < b->lan_ns)
        return;
    b->lan_ns = now + SECOND_NS / 4;
    gsp_lan_step(b->lan, now, (uint64_t)atom_wall_seconds());
    for (int i = 0; i < FOUND_PER_STEP && gsp_lan_next(b->lan, &heard); i++)
        found(context, &heard.contact, &heard.from);
}

void gsp_address_book_step(gsp_address_book *b, uint64_t now)
{
    if (!b->changed || now - b->saved_ns <= SECOND_NS)
        return;
    b->changed = false;
    b->saved_ns = now;
    save(b);
}
