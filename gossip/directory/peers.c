/*
 * Owns the book of known peers and its file. Its one idea: a fixed table, searched from end to end:
 * at 256 peers that is quicker than being clever. It refuses contacts that are not newer, so that
 * what an enemy recorded changes nothing, and refuses to grow.
 */
#include "gossip/directory/peers.h"

#include "atom/base/assert.h"
#include "atom/base/bytes.h"
#include "atom/base/files.h"
#include "atom/base/mem.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

struct gsp_peers {
    gsp_handshake_config who;
    uint64_t sequence; /* our own, the last one given */
    uint32_t n;
    gsp_known peer[GSP_PEERS_MAX];
};

enum { CHECK_BYTES = 16, DAY_SECONDS = 24 * 3600 };
static const char HEAD[] = "atom peers 1\n";

atom_status gsp_peers_open(const gsp_handshake_config *who, gsp_peers **out)
{
    ATOM_TRY(gsp_crypto_start());
    gsp_peers *p = atom_alloc(1, sizeof *p);
    if (!p)
        return atom_fail_memory("known peers", sizeof *p);
    p->who = *who;
    *out = p;
    return ATOM_OK;
}

void gsp_peers_close(gsp_peers **peers)
{
    if (*peers)
        explicit_bzero((*peers)->who.psk, sizeof(*peers)->who.psk);
    atom_free(*peers);
    *peers = NULL;
}

static gsp_known *find(const gsp_peers *p, const uint8_t key[GSP_PUBLIC_BYTES])
{
    for (uint32_t i = 0; i < p->n; i++)
        if (memcmp(p->peer[i].contact.key, key, GSP_PUBLIC_BYTES) == 0)
            return (gsp_known *)&p->peer[i];
    return NULL;
}

const gsp_known *gsp_peers_find(const gsp_peers *peers, const uint8_t key[GSP_PUBLIC_BYTES])
{
    return find(peers, key);
}

/* The peer whose place a new one may take: the one heard of longest ago, if it has not answered
 * for a day. */
static gsp_known *weakest(gsp_peers *p, uint64_t now_s)
{
    gsp_known *worst = NULL;
    for (uint32_t i = 0; i < p->n; i++) {
        gsp_known *peer = &p->peer[i];
        if (peer->answered_s && peer->answered_s + DAY_SECONDS > now_s)
            continue;
        if (!worst || peer->heard_s < worst->heard_s)
            worst = peer;
    }
    return worst && worst->heard_s < now_s ? worst : NULL;
}

gsp_peers_added gsp_peers_add(gsp_peers *p, const gsp_contact *contact, const gsp_address *from,
                              uint64_t now_s)
{
    gsp_known *peer = find(p, contact->key);
    if (peer) {
        if (contact->sequence <= peer->contact.sequence)
            return GSP_PEERS_REPLAY;
        peer->contact = *contact;
        peer->heard_s = now_s;
        if (from)
            peer->from = *from;
        return GSP_PEERS_NEWER;
    }
    if (p->n < GSP_PEERS_MAX)
        peer = &p->peer[p->n++];
    else if (!(peer = weakest(p, now_s)))
        return GSP_PEERS_FULL;
    *peer = (gsp_known){.contact = *contact, .heard_s = now_s};
    if (from)
        peer->from = *from;
    return GSP_PEERS_NEW;
}

void gsp_peers_answered(gsp_peers *p, const uint8_t key[GSP_PUBLIC_BYTES], const gsp_address *at,
                        uint64_t now_s)
{
    gsp_known *peer = find(p, key);
    if (!peer)
        return;
    peer->answered_s = now_s;
    peer->answered_at = *at;
    peer->failures = 0;
}

void gsp_peers_failed(gsp_peers *p, const uint8_t key[GSP_PUBLIC_BYTES])
{
    gsp_known *peer = find(p, key);
    if (peer && peer->failures < UINT32_MAX)
        peer->failures++;
}

void gsp_peers_forget(gsp_peers *p, const uint8_t key[GSP_PUBLIC_BYTES])
{
    gsp_known *peer = find(p, key);
    if (peer)
        *peer = p->peer[--p->n];
}

uint32_t gsp_peers_count(const gsp_peers *p)
{
    return p->n;
}

static int descending(uint64_t a, uint64_t b)
{
    return a > b ? -1 : a < b;
}

static int by_hope(const void *a, const void *b)
{
    const gsp_known *x = *(const gsp_known *const *)a, *y = *(const gsp_known *const *)b;
    int order = descending(y->failures, x->failures);
    if (!order)
        order = descending(x->answered_s, y->answered_s);
    if (!order)
        order = descending(x->heard_s, y->heard_s);
    return order ? order : memcmp(x->contact.key, y->contact.key, sizeof x->contact.key);
}

uint32_t gsp_peers_best(const gsp_peers *p, const gsp_known **out, uint32_t n_max)
{
    const gsp_known *all[GSP_PEERS_MAX];
    uint32_t n = p->n < n_max ? p->n : n_max;
    for (uint32_t i = 0; i < p->n; i++)
        all[i] = &p->peer[i];
    qsort(all, p->n, sizeof *all, by_hope);
    memcpy(out, all, n * sizeof *out);
    return n;
}

static bool nowhere(const gsp_address *a)
{
    static const uint8_t zero[16];
    return a->port == 0 || memcmp(a->ip, zero, sizeof zero) == 0;
}

uint32_t gsp_known_addresses(const gsp_known *peer, gsp_address out[GSP_CONTACT_ADDRESSES_MAX + 1])
{
    uint32_t n = 0;
    if (peer->answered_s && !nowhere(&peer->answered_at))
        out[n++] = peer->answered_at;
    for (uint32_t i = 0; i < peer->contact.n_addresses; i++) {
        gsp_address a = peer->contact.address[i];
        if (nowhere(&a)) { /* the peer knows its port; its host is where it was heard from */
            uint16_t port = a.port;
            a = peer->from;
            a.port = port;
        }
        bool skip = nowhere(&a);
        for (uint32_t j = 0; j < n; j++)
            skip |= gsp_address_equal(&a, &out[j]);
        if (!skip)
            out[n++] = a;
    }
    return n;
}

uint64_t gsp_peers_next_sequence(gsp_peers *p, uint64_t now_s)
{
    p->sequence = p->sequence < now_s ? now_s : p->sequence + 1;
    return p->sequence;
}

void gsp_peers_raise_sequence(gsp_peers *p, uint64_t sequence)
{
    if (p->sequence < sequence)
        p->sequence = sequence;
}

/* A keyed hash with a public key is a checksum that nobody's bad disk guesses. */
static void checksum(const uint8_t *data, size_t bytes, uint8_t out[CHECK_BYTES])
{
    crypto_generichash(out, CHECK_BYTES, data, bytes, (const uint8_t *)HEAD, sizeof HEAD - 1);
}

static void read_address(atom_reader *r, gsp_address *a)
{
    atom_read_bytes(r, a->ip, sizeof a->ip);
    a->port = atom_read_u16(r);
    a->scope = atom_read_u32(r);
}

static void write_address(atom_writer *w, const gsp_address *a)
{
    atom_write_bytes(w, a->ip, sizeof a->ip);
    atom_write_uint(w, a->port, 2);
    atom_write_uint(w, a->scope, 4);
}

static bool read_peer(atom_reader *r, gsp_known *peer)
{
    *peer = (gsp_known){0};
    peer->heard_s = atom_read_u64(r);
    peer->answered_s = atom_read_u64(r);
    read_address(r, &peer->answered_at);
    read_address(r, &peer->from);
    peer->failures = atom_read_u32(r);
    uint16_t bytes = atom_read_u16(r);
    if (!atom_reader_ok(r) || bytes > atom_reader_left(r) ||
        !gsp_contact_decode(r->at, bytes, &peer->contact))
        return false;
    r->at += bytes;
    return true;
}

/* Its contact may be past its time: an address that was good yesterday is worth a dial. Signature
 * and admission must hold. */
static bool worth_keeping(const gsp_peers *p, const gsp_known *peer, uint64_t now_s)
{
    if (peer->heard_s > now_s + GSP_SKEW_SECONDS || peer->answered_s > now_s + GSP_SKEW_SECONDS ||
        peer->heard_s + (uint64_t)GSP_PEERS_DAYS_MAX * DAY_SECONDS < now_s)
        return false;
    /* Age is judged above; the rest as at the time when it was heard, the admission as of now. */
    gsp_role role;
    return gsp_contact_judge(&peer->contact, &p->who, peer->heard_s) == GSP_CONTACT_GOOD &&
           gsp_credential_check(peer->contact.credential, peer->contact.credential_bytes,
                                p->who.pool, p->who.owner, peer->contact.key, now_s,
                                &role) == GSP_WELCOME;
}

atom_status gsp_peers_read(gsp_peers *p, const void *data, size_t bytes, uint64_t now_s)
{
    const size_t head = sizeof HEAD - 1;
    uint8_t check[CHECK_BYTES];
    gsp_known peer;
    ATOM_ASSERT(p->n == 0);
    if (bytes < head + 12 + CHECK_BYTES || memcmp(data, HEAD, head) != 0)
        return atom_fail(ATOM_E_FORMAT, "not a file of peers, or cut off");
    checksum(data, bytes - CHECK_BYTES, check);
    if (memcmp(check, (const uint8_t *)data + bytes - CHECK_BYTES, CHECK_BYTES) != 0)
        return atom_fail(ATOM_E_FORMAT, "the checksum is wrong");
    atom_reader r = atom_reader_make((const uint8_t *)data + head, bytes - head - CHECK_BYTES);
    uint64_t sequence = atom_read_u64(&r);
    uint32_t n = atom_read_u32(&r);
    bool right = n <= GSP_PEERS_MAX;
    for (uint32_t i = 0; i < n && right; i++) {
        right = read_peer(&r, &peer);
        if (right && worth_keeping(p, &peer, now_s) && !find(p, peer.contact.key))
            p->peer[p->n++] = peer;
    }
    if (!right || !atom_reader_ok(&r) || atom_reader_left(&r) != 0) {
        p->n = 0;
        return atom_fail(ATOM_E_FORMAT, "it contains something that this version of atom does "
                                        "not know");
    }
    if (p->sequence < sequence)
        p->sequence = sequence;
    return ATOM_OK;
}

atom_status gsp_peers_load(gsp_peers *p, const char *path, uint64_t now_s)
{
    char *data = NULL;
    uint64_t bytes = 0;
    if (!atom_path_exists(path))
        return ATOM_OK;
    atom_status st = ATOM_OK;
    ATOM_TRY(atom_file_read(path, GSP_PEERS_FILE_BYTES_MAX, &data, &bytes));
    st = gsp_peers_read(p, data, bytes, now_s);
    atom_free(data);
    return st == ATOM_OK
               ? st
               : atom_fail_in(st, "%s: the known peers cannot be read; remove the file: ", path);
}

static void write_peer(atom_writer *w, const gsp_known *peer)
{
    uint8_t body[GSP_CONTACT_BODY_BYTES_MAX];
    size_t bytes = gsp_contact_encode(&peer->contact, body);
    atom_write_uint(w, peer->heard_s, 8);
    atom_write_uint(w, peer->answered_s, 8);
    write_address(w, &peer->answered_at);
    write_address(w, &peer->from);
    atom_write_uint(w, peer->failures, 4);
    atom_write_uint(w, bytes, 2);
    atom_write_bytes(w, body, bytes);
}

atom_status gsp_peers_save(const gsp_peers *p, const char *path)
{
    uint8_t *data = atom_alloc(GSP_PEERS_FILE_BYTES_MAX, 1);
    if (!data)
        return atom_fail_memory("the file of known peers", GSP_PEERS_FILE_BYTES_MAX);
    atom_writer w = atom_writer_make(data, GSP_PEERS_FILE_BYTES_MAX - CHECK_BYTES);
    atom_write_bytes(&w, HEAD, sizeof HEAD - 1);
    atom_write_uint(&w, p->sequence, 8);
    atom_write_uint(&w, p->n, 4);
    for (uint32_t i = 0; i < p->n; i++)
        write_peer(&w, &p->peer[i]);
    ATOM_ASSERT(!w.bad);
    size_t bytes = (size_t)(w.at - data);
    checksum(data, bytes, data + bytes);
    atom_status st = atom_file_write(path, data, bytes + CHECK_BYTES);
    atom_free(data);
    return st;
}
