/*
 * What a member does with the words of others (pool_talk.c): guests are heard only when they ask to come in, what is
 * passed on is passed on once, and no single member's word ends, moves or empties a host. The net only remembers.
 */
#include "gossip/pool/pool_inner.h"
#include "tests/lib/gossip_owner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

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

static gsp_net_sent on_send(gsp_net *unused, const uint8_t *key, gsp_net_channel channel,
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

static atom_status on_dial(gsp_net *unused, const uint8_t *key, const gsp_address *at, size_t n)
{
    (void)unused, (void)key, (void)at, (void)n;
    net.n_dials++;
    return ATOM_OK;
}

static void on_drop(gsp_net *unused, const uint8_t *key)
{
    (void)unused, (void)key;
    net.n_drops++;
}

static void on_read_stats(const gsp_net *unused, gsp_net_stats *stats)
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

/* How often such a word was sent to whoever has this first byte. */
static uint32_t told(uint8_t to, gsp_word_kind kind)
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

static int setup(void **state)
{
    gsp_handshake_config who;
    gsp_word ask = {.kind = GSP_WORD_ASK_ADMISSION}, answer;
    (void)state;
    memset(&net, 0, sizeof net);
    net.net.ops = &OPS;
    owner_open(&o, 4);
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

static int teardown(void **state)
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

static void set_key(uint8_t key[GSP_PUBLIC_BYTES], uint8_t first)
{
    memset(key, first, GSP_PUBLIC_BYTES);
    if (first == OWNER)
        memcpy(key, o.door.owner, GSP_PUBLIC_BYTES);
}

/* A link to whoever has a key of this byte; OWNER: to the owner. */
static gsp_link *link_up(uint8_t first, gsp_net_event e)
{
    e.kind = GSP_NET_UP;
    set_key(e.key, first);
    e.address = test_address("192.0.2.7:4400");
    e.boot = first;
    assert_false(gsp_pool_take(p, &e));
    return gsp_links_find(&p->links, e.key);
}

static void say_on(uint8_t first, const gsp_word *m, gsp_net_channel channel)
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

static void say(uint8_t first, const gsp_word *m)
{
    say_on(first, m, gsp_word_channel(m->kind));
}

static gsp_word manifest_of(const gsp_door *d)
{
    gsp_word m = {.kind = GSP_WORD_MANIFEST, .body = (const uint8_t *)d->manifest_text};
    m.body_bytes = strlen(d->manifest_text);
    memcpy(m.psk, d->psk[0], sizeof m.psk);
    return m;
}

/* ---- tests ---- */

static void guests_only_ask_to_come_in(void **state)
{
    (void)state;
    const gsp_word words[] = {
        {.kind = GSP_WORD_HELLO, .number = 9},
        {.kind = GSP_WORD_ADMISSION, .refusal = GSP_REFUSED_BANNED},
        manifest_of(&o.door),
        {.kind = GSP_WORD_ASK_FILE, .bytes = 1},
        {.kind = GSP_WORD_NOTE, .hash = {{7}}, .body = (const uint8_t *)"x", .body_bytes = 1},
        {.kind = GSP_WORD_ASK_NOTE, .hash = {{7}}}};
    const uint32_t n = sizeof words / sizeof *words;
    gsp_link *guest = link_up(1, (gsp_net_event){.guest = true, .inbound = true});
    assert_non_null(guest);
    for (uint32_t i = 0; i < n; i++) {
        guest->said = 0;
        say(1, &words[i]);
        assert_int_equal(p->refusals, i + 1);
    }
    guest->said = 0;
    say(1,
        &(gsp_word){
            .kind = GSP_WORD_ASK_MANIFEST}); /* as one asks that does not know which key it has */
    assert_int_equal(p->refusals, n);
    assert_int_equal(net.n, 0);
    assert_int_equal(guest->doomed_ns, 0);
    /* One that knows only the key before is told the new one and nothing else, and then goes. */
    gsp_link *late = link_up(2, (gsp_net_event){.guest = true, .old_key = true, .inbound = true});
    assert_int_equal(told(2, GSP_WORD_MANIFEST), 1);
    assert_true(net.sent[0].has_psk && late->doomed_ns);
    say(2, &(gsp_word){.kind = GSP_WORD_ASK_MANIFEST});
    assert_int_equal(told(2, GSP_WORD_MANIFEST), 2);
    say(2, &(gsp_word){.kind = GSP_WORD_ASK_ADMISSION});
    say(2, &words[0]);
    assert_int_equal(p->refusals, n + 2);
    assert_int_equal(net.n, 2);
}

/* What belongs on one channel is not taken on the other, and what is not a word is somebody else's. */
static void words_have_their_channel(void **state)
{
    (void)state;
    link_up(1, (gsp_net_event){.inbound = true});
    say_on(1, &(gsp_word){.kind = GSP_WORD_ASK_MANIFEST}, GSP_NET_BULK);
    assert_int_equal(p->refusals, 1);
    assert_int_equal(told(1, GSP_WORD_MANIFEST), 0);
    say(3, &(gsp_word){.kind = GSP_WORD_ASK_MANIFEST}); /* nobody has this link */
    assert_int_equal(p->refusals, 2);
    uint8_t other[4] = {GSP_WORD_MARK ^ 1};
    gsp_net_event e = {.kind = GSP_NET_MESSAGE, .data = other, .bytes = sizeof other};
    set_key(e.key, 1);
    assert_false(gsp_pool_take(p, &e));
    e.bytes = 0;
    assert_false(gsp_pool_take(p, &e));
}

static void the_newer_manifest_goes_round(void **state)
{
    (void)state;
    link_up(1, (gsp_net_event){.inbound = true});
    link_up(2, (gsp_net_event){.inbound = true});
    assert_int_equal(told(1, GSP_WORD_HELLO), 1);
    say(1, &(gsp_word){.kind = GSP_WORD_HELLO, .number = 1});
    assert_int_equal(net.n, 2);
    say(1, &(gsp_word){.kind = GSP_WORD_HELLO, .number = 2});
    assert_int_equal(told(1, GSP_WORD_ASK_MANIFEST), 1);
    say(1, &(gsp_word){.kind = GSP_WORD_HELLO});
    assert_int_equal(told(1, GSP_WORD_MANIFEST), 1);
    const gsp_link *guest = link_up(3, (gsp_net_event){.inbound = true, .guest = true});
    uint8_t banned[GSP_PUBLIC_BYTES];
    gsp_contact known = {.sequence = 1};
    set_key(known.key, 2);
    assert_int_equal(gsp_peers_add(p->book.peers, &known, NULL, test_now_s()), GSP_PEERS_NEW);
    p->book.renewed_ns = 1;
    const gsp_word before = manifest_of(&p->door);
    char *text = atom_strdup(p->door.manifest_text);
    set_key(banned, 2);
    test_must(gsp_door_rotate(&o.door, banned));
    gsp_word next = manifest_of(&o.door), cut = next, first = before;
    first.body = (const uint8_t *)text;
    memset(cut.psk, 0, sizeof cut.psk);
    say(1, &cut); /* without its key */
    assert_int_equal(gsp_door_number(&p->door), 1);
    net.n = 0;
    say(1, &next);
    assert_int_equal(gsp_door_number(&p->door), 2);
    assert_memory_equal(p->door.psk[0], o.door.psk[0], GSP_PSK_BYTES);
    /* All hear of it; the banned one hears why, without the new key, and goes. */
    assert_int_equal(told(1, GSP_WORD_HELLO), 1);
    assert_int_equal(told(2, GSP_WORD_MANIFEST), 1);
    assert_int_equal(net.sent[0].to, 2);
    assert_false(net.sent[0].has_psk);
    assert_true(gsp_links_find(&p->links, banned)->doomed_ns);
    assert_true(guest->doomed_ns); /* its ticket has the key before */
    assert_null(gsp_peers_find(p->book.peers, banned));
    assert_true(p->book.renewed_ns > 1); /* sealed with the new key from now on */
    uint8_t stays[GSP_PUBLIC_BYTES];
    set_key(stays, 1);
    assert_int_equal(gsp_links_find(&p->links, stays)->doomed_ns, 0);
    say(1, &first); /* an older one again */
    assert_int_equal(gsp_door_number(&p->door), 2);
    assert_true(gsp_headline_check(&p->headline) == ATOM_OK);
    /* Nor is one told it for ever. */
    const uint64_t most = gsp_manifest_gives(p->door.manifest), now = atom_clock_ns();
    say(1, &(gsp_word){.kind = GSP_WORD_ASK_MANIFEST});
    const uint64_t left = gsp_tally_left(&p->links.given, stays, now);
    assert_true(told(1, GSP_WORD_MANIFEST) == 1 && left < most);
    gsp_links_give(&p->links, stays, left, most, now);
    say(1, &(gsp_word){.kind = GSP_WORD_ASK_MANIFEST});
    assert_int_equal(told(1, GSP_WORD_MANIFEST), 1);
    /* A member that sends manifest after manifest costs little. */
    net.n = 0;
    for (uint32_t i = 0; i < 60; i++)
        say(1, &next);
    assert_in_range(p->refusals, 20, 43); /* a minute may have ended meanwhile */
    assert_int_equal(net.n, 0);
    atom_free(text);
}

static void admissions_are_passed_on_once(void **state)
{
    (void)state;
    gsp_word ask = {.kind = GSP_WORD_ASK_ADMISSION}, answer = {.kind = GSP_WORD_ADMISSION};
    gsp_link *guest = link_up(1, (gsp_net_event){.guest = true, .inbound = true});
    link_up(2, (gsp_net_event){.inbound = true});
    set_key(ask.key, 1);
    say(1, &ask); /* the owner is not here: it says so, and the guest may stay for its time */
    assert_int_equal(told(1, GSP_WORD_ADMISSION), 1);
    assert_int_equal(guest->doomed_ns, 0);
    link_up(OWNER, (gsp_net_event){.inbound = true});
    net.n = 0;
    say(1, &ask);
    assert_int_equal(told(OWNER, GSP_WORD_ASK_ADMISSION), 1);
    say(2, &ask); /* for another: it has come one hop already */
    set_key(ask.key, 9);
    say(1, &ask); /* a guest asks for itself */
    assert_int_equal(net.n, 1);
    set_key(answer.key, 1);
    say(2, &answer); /* not the owner's word */
    assert_int_equal(told(1, GSP_WORD_ADMISSION), 0);
    say(OWNER, &answer);
    assert_int_equal(told(1, GSP_WORD_ADMISSION), 1);
    assert_true(guest->answered && guest->doomed_ns);
    set_key(ask.key, 1);
    net.n = 0;
    say(1, &ask); /* it had its answer */
    assert_int_equal(net.n, 0);
}

/* Anybody has seen our admission, and may send it to us as often as it likes: nothing is written or said for it. */
static void our_own_admission_is_no_news(void **state)
{
    (void)state;
    gsp_word own = {.kind = GSP_WORD_ADMISSION, .credential_bytes = p->door.credential_bytes};
    memcpy(own.key, p->door.identity.public_key, sizeof own.key);
    memcpy(own.credential, p->door.credential, p->door.credential_bytes);
    link_up(1, (gsp_net_event){.inbound = true});
    p->book.renewed_ns = 1;
    say(1, &own);
    assert_int_equal(p->book.renewed_ns, 1);
    assert_false(p->was_admitted || p->door.is_guest);
    own.credential_bytes = 0;
    own.refusal = GSP_REFUSED_BANNED; /* a member is not put out by a word */
    say(1, &own);
    assert_true(gsp_headline_check(&p->headline) == ATOM_OK);
    assert_false(p->door.is_guest);
}

static void only_those_that_we_dialled_see_us(void **state)
{
    (void)state;
    gsp_word hello = {.kind = GSP_WORD_HELLO, .number = 1, .seen = test_address("203.0.113.9:1")};
    const gsp_address here = hello.seen;
    link_up(1, (gsp_net_event){.inbound = true});
    link_up(2, (gsp_net_event){0});
    assert_int_equal(net.n_dials, 1); /* from now on it is that one that is wanted */
    p->book.own_changed = false;
    say(1, &hello);
    assert_true(gsp_address_is_any(&p->reach.seen) && !p->book.own_changed);
    say(2, &hello);
    assert_true(gsp_address_same_host(&p->reach.seen, &here) && p->book.own_changed);
    /* A neighbour that sees the local address changes nothing to and fro. */
    link_up(3, (gsp_net_event){0});
    p->book.own_changed = false;
    for (int i = 0; i < 4; i++) {
        hello.seen = i % 2 ? here : test_address("192.168.1.5:1");
        say(i % 2 ? 2 : 3, &hello);
        assert_true(gsp_address_same_host(&p->reach.seen, &here) && !p->book.own_changed);
    }
}

static void refuse(uint8_t by, int refusal)
{
    gsp_net_event e = {.kind = GSP_NET_REFUSED, .refusal = refusal};
    if (by)
        set_key(e.key, by);
    e.address = test_address("192.0.2.7:4400");
    assert_false(gsp_pool_take(p, &e));
}

static void a_refusal_ends_little(void **state)
{
    (void)state;
    p->seek.hosts = &p->door.hosts;
    refuse(0, GSP_REFUSED_TWIN); /* nobody proved to have said it */
    assert_int_equal(p->twin_ns, 0);
    refuse(1, GSP_REFUSED_TWIN);
    assert_true(p->twin_ns != 0);
    p->twin_ns = atom_clock_ns() - 9 * SECOND;
    refuse(1, GSP_REFUSED_TWIN);
    assert_true(gsp_headline_check(&p->headline) == ATOM_OK);
    p->twin_ns = atom_clock_ns() - 11 * SECOND;
    uint8_t key[GSP_PUBLIC_BYTES];
    link_up(2, (gsp_net_event){.inbound = true}); /* somebody lets us in */
    assert_int_equal(p->twin_ns, 0);
    p->twin_ns = atom_clock_ns() - 11 * SECOND;
    refuse(1, GSP_REFUSED_TWIN);
    assert_true(gsp_headline_check(&p->headline) == ATOM_OK);
    refuse(1, GSP_REFUSED_BANNED); /* not the owner */
    assert_true(gsp_headline_check(&p->headline) == ATOM_OK);
    set_key(key, 2);
    gsp_net_event down = {.kind = GSP_NET_DOWN};
    memcpy(down.key, key, sizeof key);
    assert_false(gsp_pool_take(p, &down));
    assert_null(gsp_links_find(&p->links, key));
    refuse(1, GSP_REFUSED_TWIN);
    assert_true(gsp_headline_check(&p->headline) != ATOM_OK);
    p->headline.refused = false;
    refuse(OWNER, GSP_REFUSED_BANNED);
    assert_true(gsp_headline_check(&p->headline) != ATOM_OK);
    assert_non_null(strstr(atom_fail_message(), "banned"));
}

/* Everything that is due is done at once, whenever it was done last. */
static void step(void)
{
    p->step_ns = 0;
    gsp_pool_step(p);
}

/* An admission of the pool's member that began so long ago, for thirty days. */
static void admitted_days_ago(unsigned days)
{
    gsp_admission a = {.manifest = 1, .issued_s = test_now_s() - days * 86400};
    a.expires_s = a.issued_s + 30 * 86400;
    memcpy(a.pool, p->door.pool, sizeof a.pool);
    memcpy(a.member, p->door.identity.public_key, sizeof a.member);
    gsp_admission_sign(&a, &o.door.identity);
    gsp_admission_encode(&a, p->door.credential);
    p->door.credential_bytes = GSP_ADMISSION_BYTES;
}

/* While it is a guest itself it hears of nothing but its admission, and the owner alone can refuse it. */
static void a_guest_hears_of_its_admission_alone(void **state)
{
    (void)state;
    gsp_word no = {.kind = GSP_WORD_ADMISSION, .refusal = GSP_REFUSED_EXPIRED};
    memcpy(no.key, p->door.identity.public_key, sizeof no.key);
    p->door.is_guest = true;
    link_up(1, (gsp_net_event){0});
    link_up(OWNER, (gsp_net_event){0});
    say(1, &(gsp_word){.kind = GSP_WORD_HELLO, .number = 9, .seen = test_address("203.0.113.9:1")});
    say(1, &(gsp_word){.kind = GSP_WORD_ASK_MANIFEST});
    assert_int_equal(p->refusals, 2);
    assert_int_equal(net.n, 0);
    assert_true(gsp_address_is_any(&p->reach.seen));
    say(1, &no);
    assert_true(gsp_headline_check(&p->headline) == ATOM_OK);
    assert_int_equal(p->denials.n, 1);
    refuse(1, GSP_REFUSED_EXPIRED);
    assert_true(gsp_headline_check(&p->headline) == ATOM_OK);
    say(OWNER, &no);
    assert_true(gsp_headline_check(&p->headline) != ATOM_OK);
    assert_non_null(strstr(atom_fail_message(), "owner says"));
}

/* A manifest that bans this host ends it; who was sent away is not greeted when it comes back. */
/* The gate looked at the manifest of before: a key that the new one bans is told so and goes. */
static void whoever_slipped_in_goes(void **state)
{
    (void)state;
    set_key(p->door.manifest->banned[0], 1);
    p->door.manifest->n_banned = 1;
    const gsp_link *l = link_up(1, (gsp_net_event){.inbound = true});
    assert_true(l->doomed_ns);
    assert_int_equal(told(1, GSP_WORD_MANIFEST), 1);
    assert_false(net.sent[0].has_psk);
    assert_int_equal(told(1, GSP_WORD_HELLO), 0);
    l = link_up(2, (gsp_net_event){.inbound = true});
    assert_false(l->doomed_ns);
}

static void who_is_sent_away(void **state)
{
    (void)state;
    gsp_link *l = link_up(1, (gsp_net_event){.inbound = true});
    gsp_net_event down = {.kind = GSP_NET_DOWN};
    set_key(down.key, 1);
    gsp_links_shun(&p->links, l, atom_clock_ns());
    assert_false(gsp_pool_take(p, &down));
    net.n = 0;
    l = link_up(1, (gsp_net_event){.inbound = true});
    assert_true(l->doomed_ns && net.n == 0);
    test_must(gsp_door_rotate(&o.door, p->door.identity.public_key));
    gsp_word m = manifest_of(&o.door);
    memset(m.psk, 0, sizeof m.psk);
    link_up(2, (gsp_net_event){.inbound = true});
    say(2, &m);
    assert_true(gsp_headline_check(&p->headline) != ATOM_OK);
    assert_non_null(strstr(atom_fail_message(), "banned this host"));
}

static void does_what_is_due(void **state)
{
    (void)state;
    gsp_control_orders_open(&p->errands);
    p->data = (gsp_data){.directory = place.dir, .manifest = p->door.manifest, .links = &p->links};
    p->status = atom_alloc(1, sizeof *p->status);
    p->seek = (gsp_seek){.net = &net.net, .hosts = &p->door.hosts};
    assert_non_null(p->status);
    gsp_link *ours = link_up(1, (gsp_net_event){0}),
             *theirs = link_up(2, (gsp_net_event){.inbound = true});
    gsp_link *guest = link_up(3, (gsp_net_event){.inbound = true, .guest = true});
    step();
    assert_true(ours->up && theirs->up && guest->up);
    assert_int_equal(told(1, GSP_WORD_ASK_ADMISSION), 0); /* it is new */
    /* Who is to go goes when it is time, and not before. */
    theirs->doomed_ns = atom_clock_ns() + 60 * SECOND;
    step();
    assert_true(theirs->up);
    theirs->doomed_ns = 1;
    step();
    assert_true(!theirs->up && ours->up);
    assert_int_equal(net.n_drops, 1);
    /* HELLO again in its time; nothing more often than ten times a second. */
    net.n = 0;
    step();
    assert_int_equal(told(1, GSP_WORD_HELLO), 0);
    ours->hello_ns = 0;
    gsp_pool_step(p);
    assert_int_equal(told(1, GSP_WORD_HELLO), 0);
    step();
    assert_int_equal(told(1, GSP_WORD_HELLO), 1);
    assert_int_equal(told(3, GSP_WORD_HELLO), 0);
    /* From the middle of its admission on it asks for the next one, once a minute. */
    admitted_days_ago(16);
    p->renew_ns = 0;
    step();
    step();
    assert_int_equal(told(1, GSP_WORD_ASK_ADMISSION), 1);
    assert_int_equal(told(3, GSP_WORD_ASK_ADMISSION), 0); /* not of a guest */
    assert_int_equal(p->warn_ns, 0);
    admitted_days_ago(25); /* and warns, once the owner had time to answer */
    for (int i = 0; i < 3; i++) {
        p->renew_ns = 0;
        step();
        assert_true(p->warn_ns > atom_clock_ns() + 500 * SECOND &&
                    p->warn_ns < atom_clock_ns() + 700 * SECOND);
    }
    admitted_days_ago(1);
    p->renew_ns = 0;
    step();
    assert_int_equal(p->warn_ns, 0);
    /* Who was a guest asks every two seconds, and makes its links anew once it is admitted: those that it dialled. */
    gsp_link *back = link_up(2, (gsp_net_event){.inbound = true});
    p->door.is_guest = true;
    net.n = 0;
    step();
    step();
    assert_int_equal(told(1, GSP_WORD_ASK_ADMISSION), 1);
    p->ask_ns = 0;
    step();
    assert_int_equal(told(1, GSP_WORD_ASK_ADMISSION), 2);
    p->door.is_guest = false;
    p->was_admitted = true;
    net.n_dials = 0;
    step();
    assert_false(ours->up || back->up || p->was_admitted);
    assert_int_equal(net.n_dials, 1);
    gsp_control_orders_close(&p->errands);
    atom_free(p->status);
    p->status = NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(guests_only_ask_to_come_in, setup, teardown),
        cmocka_unit_test_setup_teardown(words_have_their_channel, setup, teardown),
        cmocka_unit_test_setup_teardown(the_newer_manifest_goes_round, setup, teardown),
        cmocka_unit_test_setup_teardown(admissions_are_passed_on_once, setup, teardown),
        cmocka_unit_test_setup_teardown(our_own_admission_is_no_news, setup, teardown),
        cmocka_unit_test_setup_teardown(only_those_that_we_dialled_see_us, setup, teardown),
        cmocka_unit_test_setup_teardown(a_refusal_ends_little, setup, teardown),
        cmocka_unit_test_setup_teardown(a_guest_hears_of_its_admission_alone, setup, teardown),
        cmocka_unit_test_setup_teardown(whoever_slipped_in_goes, setup, teardown),
        cmocka_unit_test_setup_teardown(who_is_sent_away, setup, teardown),
        cmocka_unit_test_setup_teardown(does_what_is_due, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
