/*
 * A member of a pool whose net only remembers what was sent (pool_talk.c, pool_admit.c without sockets), and its
 * pool's owner. Links come up, and words come, by calls. Needs --wrap of gsp_net_heard_ns,
 * gsp_net_peer_credential and gsp_net_rekey.
 */
#ifndef TESTS_LIB_TALK_NET_H
#define TESTS_LIB_TALK_NET_H

#include "gossip/pool/pool_inner.h"
#include "tests/lib/gossip_owner.h"

static const uint64_t SECOND = 1000000000u;
enum { SENT_MAX = 64 };

/* ---- a net that remembers what was sent ---- */

typedef struct sent {
    uint8_t to;
    gsp_word_kind kind;
    bool has_psk;
    uint8_t key;
} sent;

static struct {
    gsp_net net; /* first */
    sent sent[SENT_MAX];
    uint32_t n, n_dials, n_drops;
} net;

static inline gsp_net_sent on_send(gsp_net *unused, const uint8_t *key, gsp_net_channel channel,
                                   const void *head, size_t head_bytes, const void *body,
                                   size_t body_bytes)
{
    static const uint8_t none[GSP_PSK_BYTES];
    uint8_t *all = atom_alloc(head_bytes + body_bytes, 1);
    gsp_word *m = atom_alloc(1, sizeof *m);
    (void)unused;
    assert_true(all && m && net.n < SENT_MAX);
    memcpy(all, head, head_bytes);
    if (body_bytes)
        memcpy(all + head_bytes, body, body_bytes);
    assert_true(gsp_word_decode(all, head_bytes + body_bytes, m));
    assert_int_equal(gsp_word_channel(m->kind), channel);
    net.sent[net.n++] = (sent){.to = key[0],
                               .kind = m->kind,
                               .has_psk = memcmp(m->psk, none, sizeof none) != 0,
                               .key = m->key[0]};
    atom_free(m);
    atom_free(all);
    return GSP_NET_SENT;
}

static inline atom_status on_dial(gsp_net *unused, const uint8_t *key, const gsp_address *at,
                                  size_t n)
{
    (void)unused, (void)key, (void)at, (void)n;
    net.n_dials++;
    return ATOM_OK;
}

static inline void on_drop(gsp_net *unused, const uint8_t *key)
{
    (void)unused, (void)key;
    net.n_drops++;
}

static inline void on_read_stats(const gsp_net *unused, gsp_net_stats *stats)
{
    (void)unused;
    *stats = (gsp_net_stats){0};
}

static const gsp_net_ops OPS = {
    .send = on_send, .dial = on_dial, .drop = on_drop, .read_stats = on_read_stats};

uint64_t __wrap_gsp_net_heard_ns(gsp_net *unused, const uint8_t *key);
uint64_t __wrap_gsp_net_heard_ns(gsp_net *unused, const uint8_t *key)
{
    (void)unused, (void)key;
    return atom_clock_ns(); /* all are heard all the time */
}

void __wrap_gsp_net_rekey(gsp_net *unused, const uint8_t psk[][GSP_PSK_BYTES], uint32_t n_psks,
                          const void *credential, uint32_t bytes);
void __wrap_gsp_net_rekey(gsp_net *unused, const uint8_t psk[][GSP_PSK_BYTES], uint32_t n_psks,
                          const void *credential, uint32_t bytes)
{
    (void)unused, (void)psk, (void)n_psks, (void)credential, (void)bytes;
}

/* What hosts showed when their links were made, by the first byte of their keys; none: as a member, nothing. */
static struct {
    gsp_role role;
    uint32_t bytes;
    uint8_t data[GSP_CREDENTIAL_BYTES_MAX];
} shown_by[256];

bool __wrap_gsp_net_peer_credential(gsp_net *unused, const uint8_t *key, gsp_role *role,
                                    uint8_t *data, uint32_t *bytes);
bool __wrap_gsp_net_peer_credential(gsp_net *unused, const uint8_t *key, gsp_role *role,
                                    uint8_t *data, uint32_t *bytes)
{
    (void)unused;
    *role = shown_by[key[0]].bytes ? shown_by[key[0]].role : GSP_MEMBER;
    *bytes = shown_by[key[0]].bytes;
    memcpy(data, shown_by[key[0]].data, *bytes);
    return true;
}

/* How often such a word was sent to whoever has this first byte. */
static inline uint32_t told(uint8_t to, gsp_word_kind kind)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < net.n; i++)
        n += net.sent[i].to == to && net.sent[i].kind == kind;
    return n;
}

/* ---- a member and its pool's owner ---- */

static owner o;
static scratch place;
static gsp_pool *p;
static uint8_t OWNER; /* the first byte of its key */

static inline int setup(void **state)
{
    gsp_handshake_config who;
    gsp_word ask = {.kind = GSP_WORD_ASK_ADMISSION}, answer;
    (void)state;
    memset(&net, 0, sizeof net);
    memset(shown_by, 0, sizeof shown_by);
    net.net.ops = &OPS;
    owner_open(&o, 4);
    while (o.door.owner[0] < 200) { /* others are told apart by small numbers */
        owner_close(&o);
        owner_open(&o, 4);
    }
    OWNER = o.door.owner[0];
    p = atom_alloc(1, sizeof *p);
    guest_open(&p->door, &place, o.door.ticket);
    memcpy(ask.key, p->door.identity.public_key, sizeof ask.key);
    ask.credential_bytes = p->door.credential_bytes;
    memcpy(ask.credential, p->door.credential, p->door.credential_bytes);
    assert_true(gsp_door_admit(&o.door, &ask, &answer));
    assert_true(gsp_door_take_admission(&p->door, answer.credential, answer.credential_bytes,
                                        test_now_s()));
    test_must(gsp_door_adopt(&p->door, o.door.manifest, o.door.manifest_text, o.door.psk[0]));
    gsp_door_who(&p->door, &who);
    p->door.plain = true; /* there is no gate behind this net */
    p->net = p->links.net = &net.net;
    p->directory = place.dir;
    p->diary.directory = place.dir;
    p->book.path = scratch_path(&place, "peers") ? atom_path_join(place.dir, "peers") : NULL;
    test_must(gsp_peers_open(&who, &p->book.peers));
    test_must(gsp_probe_server_open(&net.net, 0, &p->probe));
    p->notes = gsp_notes_open(place.dir, p->door.identity.public_key, &p->links);
    p->files = gsp_files_open(place.dir, p->door.manifest, &p->links, &p->diary);
    gsp_headline_open(&p->headline);
    return p->notes && p->files ? 0 : -1;
}

static inline int teardown(void **state)
{
    (void)state;
    gsp_notes_close(&p->notes);
    gsp_files_close(&p->files);
    gsp_probe_server_close(&p->probe);
    gsp_peers_close(&p->book.peers);
    atom_free(p->book.path);
    gsp_headline_close(&p->headline);
    gsp_event_log_close(&p->diary);
    guest_close(&p->door, &place);
    owner_close(&o);
    atom_free(p);
    return 0;
}

static inline void set_key(uint8_t key[GSP_PUBLIC_BYTES], uint8_t first)
{
    memset(key, first, GSP_PUBLIC_BYTES);
    if (first == OWNER)
        memcpy(key, o.door.owner, GSP_PUBLIC_BYTES);
}

/* A link to whoever has a key of this byte; OWNER: to the owner. */
static inline gsp_link *link_up(uint8_t first, gsp_net_event e)
{
    e.kind = GSP_NET_UP;
    set_key(e.key, first);
    e.address = test_address("192.0.2.7:4400");
    e.boot = first;
    assert_false(gsp_pool_take(p, &e));
    return gsp_links_find(&p->links, e.key);
}

static inline void say_on(uint8_t first, const gsp_word *m, gsp_net_channel channel)
{
    gsp_net_event e = {.kind = GSP_NET_MESSAGE, .channel = channel};
    uint8_t head[GSP_WORD_HEAD_BYTES];
    size_t n = gsp_word_encode(m, head);
    uint8_t *all = atom_alloc(n + m->body_bytes, 1);
    assert_non_null(all);
    memcpy(all, head, n);
    if (m->body_bytes)
        memcpy(all + n, m->body, m->body_bytes);
    set_key(e.key, first);
    e.data = all;
    e.bytes = n + m->body_bytes;
    assert_true(gsp_pool_take(p, &e));
    atom_free(all);
}

static inline void say(uint8_t first, const gsp_word *m)
{
    say_on(first, m, gsp_word_channel(m->kind));
}

static inline gsp_word manifest_of(const gsp_door *d)
{
    gsp_word m = {.kind = GSP_WORD_MANIFEST, .body = (const uint8_t *)d->manifest_text};
    m.body_bytes = strlen(d->manifest_text);
    memcpy(m.psk, d->psk[0], sizeof m.psk);
    return m;
}

#endif
