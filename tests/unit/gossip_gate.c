/* Strangers and hostile members at a real gate: nothing they send is answered or accepted, and what
 * runs keeps running. */
#include "gossip/gate/gate_record.h"
#include "tests/lib/gossip_pool.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define MS(n) ((n)*1000000ull)

static test_pool pool;

static gsp_net *open_member(unsigned i, uint64_t handshake_ns, bool other_ticket)
{
    gsp_net *net = NULL;
    gsp_net_gate_config c = {.gate.handshake = test_member(&pool, i),
                             .gate.n_listen = 1,
                             .gate.handshake_ns = handshake_ns,
                             .gate.accepts_per_second = 5000};
    c.gate.listen[0] = test_address("127.0.0.1:0");
    if (other_ticket)
        c.gate.handshake.psk[0][5] ^= 1;
    test_must(gsp_net_open_gate(&c, &net));
    return net;
}

/* ---- caps ---- */

enum { CAP = 1 << 20, MUCH = 3 << 19, PIECE = 1 << 16 }; /* bytes per second, bytes */

static gsp_net *open_capped(unsigned i, uint64_t up, uint64_t down)
{
    gsp_net *net = NULL;
    gsp_net_gate_config c = {.gate.handshake = test_member(&pool, i),
                             .gate.n_listen = 1,
                             .gate.up_bytes_per_s = up,
                             .gate.down_bytes_per_s = down};
    c.gate.listen[0] = test_address("127.0.0.1:0");
    test_must(gsp_net_open_gate(&c, &net));
    return net;
}

/* Sends MUCH from a to b, with pings between the two meanwhile; seconds that it took. */
static double send_much(gsp_net *a, gsp_net *b, unsigned *pings)
{
    static uint8_t piece[PIECE];
    gsp_net_event event;
    gsp_address at = test_loopback(gsp_net_port(b));
    size_t sent = 0, got = 0;
    bool up = false;
    uint64_t began = 0, pinged = 0;
    test_must(gsp_net_dial(a, b->key, &at, 1));
    for (unsigned turns = 0; got < MUCH; turns++) {
        assert_true(turns < 60000);
        while (up && sent < MUCH &&
               gsp_net_send(a, b->key, GSP_NET_BULK, piece, sizeof piece, NULL, 0) == GSP_NET_SENT)
            sent += sizeof piece;
        test_must(gsp_net_next(a, MS(1), &event));
        if (event.kind == GSP_NET_UP) {
            up = true;
            began = atom_clock_ns();
        }
        if (up && atom_clock_ns() - pinged > MS(5) &&
            gsp_net_send(a, b->key, GSP_NET_CONTROL, "ping", 4, NULL, 0) == GSP_NET_SENT)
            pinged = atom_clock_ns();
        *pings += event.kind == GSP_NET_MESSAGE;
        gsp_net_free(a, event.data);
        test_must(gsp_net_next(b, MS(1), &event));
        if (event.kind == GSP_NET_MESSAGE && event.bytes == 4)
            (void)!gsp_net_send(b, a->key, GSP_NET_CONTROL, "pong", 4, NULL, 0);
        else if (event.kind == GSP_NET_MESSAGE)
            got += event.bytes;
        gsp_net_free(b, event.data);
    }
    return 1e-9 * (double)(atom_clock_ns() - began);
}

/* Time can only be longer than the cap says, less one burst and what is in memory on the way. */
static void caps_hold_and_heartbeats_pass(void **state)
{
    (void)state;
    for (int way = 0; way < 2; way++) {
        unsigned pings = 0;
        gsp_net *a = open_capped(0, way ? 0 : CAP, 0), *b = open_capped(1, 0, way ? CAP : 0);
        double s = send_much(a, b, &pings);
        print_message("%s capped: %.2f s for %.1f MiB, %u pings\n", way ? "down" : "up", s,
                      MUCH / 1048576.0, pings);
        assert_true(s > 0.8 * MUCH / CAP);
        assert_true(pings > 10);
        gsp_net_close(&a);
        gsp_net_close(&b);
    }
}

/* Two members that talk all the time while a test attacks the second one's gate. */
typedef struct running {
    gsp_net *a, *b;
    pthread_t thread;
    atomic_bool stop;
    atomic_uint rounds, downs;
} running;

static void *talk(void *arg)
{
    running *r = arg;
    gsp_net_event event;
    gsp_address at = test_loopback(gsp_net_port(r->b));
    test_must(gsp_net_dial(r->a, r->b->key, &at, 1));
    while (!r->stop) {
        test_must(gsp_net_next(r->a, MS(2), &event));
        r->downs += event.kind == GSP_NET_DOWN;
        if (event.kind == GSP_NET_UP || event.kind == GSP_NET_MESSAGE)
            (void)!gsp_net_send(r->a, r->b->key, GSP_NET_CONTROL, "ping", 4, NULL, 0);
        r->rounds += event.kind == GSP_NET_MESSAGE;
        gsp_net_free(r->a, event.data);
        test_must(gsp_net_next(r->b, MS(2), &event));
        r->downs += event.kind == GSP_NET_DOWN && memcmp(event.key, r->a->key, 32) == 0;
        if (event.kind == GSP_NET_MESSAGE && memcmp(event.key, r->a->key, 32) == 0)
            (void)!gsp_net_send(r->b, event.key, GSP_NET_CONTROL, "pong", 4, NULL, 0);
        gsp_net_free(r->b, event.data);
    }
    return NULL;
}

static void running_begin(running *r, uint64_t handshake_ns)
{
    memset(r, 0, sizeof *r);
    r->a = open_member(0, handshake_ns, false);
    r->b = open_member(1, handshake_ns, false);
    pthread_create(&r->thread, NULL, talk, r);
    for (unsigned i = 0; r->rounds < 5; i++) {
        assert_true(i < 30000);
        usleep(1000);
    }
}

/* It went on, without a break, after the attack too. */
static void running_end(running *r)
{
    unsigned before = r->rounds;
    for (unsigned i = 0; r->rounds < before + 5; i++) {
        assert_true(i < 30000);
        usleep(1000);
    }
    r->stop = true;
    pthread_join(r->thread, NULL);
    assert_int_equal(r->downs, 0);
    gsp_net_close(&r->a);
    gsp_net_close(&r->b);
}

static int connect_raw(uint16_t port)
{
    struct sockaddr_storage to;
    gsp_address at = test_loopback(port);
    socklen_t bytes = gsp_address_to_socket(&at, &to);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, bytes), 0);
    return fd;
}

static bool send_raw(int fd, const void *data, size_t bytes)
{
    return send(fd, data, bytes, MSG_NOSIGNAL) == (ssize_t)bytes;
}

/* Reads exactly n bytes; false at the end of the stream. */
static bool read_raw(int fd, void *data, size_t n)
{
    for (size_t at = 0; at < n;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        ssize_t got = poll(&p, 1, 20000) > 0 ? recv(fd, (char *)data + at, n - at, 0) : -1;
        if (got <= 0)
            return false;
        at += (size_t)got;
    }
    return true;
}

/* Waits for the end of the stream; how many bytes came before it. */
static size_t drain_raw(int fd)
{
    char byte;
    size_t n = 0;
    while (read_raw(fd, &byte, 1))
        n++;
    close(fd);
    return n;
}

static gsp_gate_stats gate_stats(running *r)
{
    gsp_gate_stats stats;
    assert_true(gsp_net_read_gate_stats(r->b, &stats));
    return stats;
}

static void garbage_gets_no_answer(void **state)
{
    (void)state;
    running r;
    uint8_t junk[2000];
    running_begin(&r, MS(2000));
    uint16_t port = gsp_net_port(r.b);
    for (unsigned i = 0; i < 1500; i++) {
        int fd = connect_raw(port);
        size_t n =
            GSP_SEALED_FIRST_BYTES + randombytes_uniform(sizeof junk - GSP_SEALED_FIRST_BYTES);
        randombytes_buf(junk, n);
        (void)send_raw(fd, junk, n);
        assert_int_equal(drain_raw(fd), 0);
    }
    assert_int_equal(gate_stats(&r).streams_opened, 3); /* one link, no more */
    assert_in_range(gate_stats(&r).strangers, 1500, 1500);
    running_end(&r);
}

static void slow_ones_are_closed_and_do_not_lock_out(void **state)
{
    (void)state;
    enum { N = 300 };
    running r;
    int fd[N];
    running_begin(&r, MS(3000));
    uint16_t port = gsp_net_port(r.b);
    for (unsigned i = 0; i < N; i++) {
        fd[i] = connect_raw(port);
        (void)send_raw(fd[i], "x", 1);
    }
    /* A member comes in while they sit there. */
    gsp_net *c = open_member(2, MS(3000), false);
    gsp_address at = test_loopback(port);
    gsp_net_event event;
    test_must(gsp_net_dial(c, r.b->key, &at, 1));
    do
        test_must(gsp_net_next(c, MS(30000), &event));
    while (event.kind == GSP_NET_REFUSED);
    assert_int_equal(event.kind, GSP_NET_UP);
    gsp_net_close(&c);
    for (unsigned i = 0; i < N; i++)
        assert_int_equal(drain_raw(fd[i]), 0);
    running_end(&r);
}

static void another_ticket_is_refused(void **state)
{
    (void)state;
    running r;
    gsp_net_event event;
    running_begin(&r, MS(2000));
    gsp_net *c = open_member(2, MS(2000), true);
    gsp_address at = test_loopback(gsp_net_port(r.b));
    test_must(gsp_net_dial(c, r.b->key, &at, 1));
    do
        test_must(gsp_net_next(c, MS(30000), &event));
    while (event.kind == GSP_NET_NOTHING);
    assert_int_equal(event.kind, GSP_NET_REFUSED);
    assert_true(event.why[0]);
    gsp_net_close(&c);
    running_end(&r);
}

/* A member that speaks through its own code: brings a raw socket through the handshake. */
static int enter(running *r, const gsp_handshake_config *c, uint16_t stream, uint64_t link,
                 gsp_record_key *seal)
{
    static gsp_handshake h;
    gsp_hello hello = {.stream = stream, .n_streams = 2, .boot = 77, .link = link};
    uint8_t data[GSP_HANDSHAKE_BYTES_MAX];
    size_t used;
    int fd = connect_raw(gsp_net_port(r->b));
    test_must(gsp_handshake_dial(&h, c, &hello, NULL, test_now_s()));
    while (h.state == GSP_HANDSHAKE_GOES_ON) {
        assert_true(send_raw(fd, h.out, h.out_bytes));
        gsp_handshake_sent(&h);
        while (h.out_bytes == 0 && h.state == GSP_HANDSHAKE_GOES_ON) {
            size_t n = gsp_handshake_wants(&h);
            assert_true(read_raw(fd, data, n));
            (void)!gsp_handshake_feed(&h, data, n, &used);
        }
    }
    assert_int_equal(h.state, GSP_HANDSHAKE_DONE);
    *seal = (gsp_record_key){.count = 0};
    memcpy(seal->key, h.key_send, 32);
    return fd;
}

static size_t seal_into(gsp_record_key *seal, uint8_t *record, const void *data, size_t n)
{
    memcpy(record + GSP_RECORD_HEAD_BYTES, data, n);
    return gsp_record_seal(seal, record, n);
}

/* Holds the ticket and an admission, and sends damaged records: each ends its stream. */
static void damaged_records_end_their_stream(void **state)
{
    (void)state;
    running r;
    gsp_handshake_config c = test_member(&pool, 3);
    gsp_record_key seal;
    uint8_t record[200];
    running_begin(&r, MS(2000));
    for (unsigned i = 0; i < 200; i++) {
        int fd = enter(&r, &c, 0, i, &seal);
        size_t n = seal_into(&seal, record, "\1", 1);
        if (i % 2 == 0) { /* the first record, or the one after a good one */
            assert_true(send_raw(fd, record, n));
            n = seal_into(&seal, record, record + 100, 80);
        }
        record[randombytes_uniform(4) ? randombytes_uniform((uint32_t)n) : 0] ^=
            (uint8_t)(1 + randombytes_uniform(255));
        memset(record + n, 0, sizeof record - n);
        (void)send_raw(fd, record, sizeof record);
        shutdown(fd, SHUT_WR);
        drain_raw(fd);
    }
    assert_int_equal(gate_stats(&r).streams_opened, 203);
    running_end(&r);
}

/* Whatever bytes a hostile member sends towards nanomsg, only its own link suffers. */
static void hostile_bytes_behind_the_gate(void **state)
{
    (void)state;
    static const uint8_t heads[][8] = {
        {0, 'S', 'P', 0, 0, 16, 0, 0}, /* PAIR: right */
        {0, 'S', 'P', 0, 0, 16, 0, 0},   {0, 'S', 'P', 0, 0, 33, 0, 0},
        {0, 'S', 'P', 1, 0, 16, 0, 0},   {9, 9, 9, 9, 9, 9, 9, 9},
        {0, 'S', 'P', 0, 0, 16, 0xff, 1}};
    running r;
    gsp_handshake_config c = test_member(&pool, 3);
    gsp_record_key seal[2];
    static uint8_t record[3000];
    running_begin(&r, MS(2000));
    for (unsigned i = 0; i < 120; i++) {
        int fd[2];
        for (uint16_t s = 0; s < 2; s++) {
            uint8_t junk[2000];
            fd[s] = enter(&r, &c, s, 1000 + i, &seal[s]);
            (void)send_raw(fd[s], record, seal_into(&seal[s], record, "\1", 1));
            (void)send_raw(fd[s], record,
                           seal_into(&seal[s], record, heads[i % (sizeof heads / 8)], 8));
            randombytes_buf(junk, sizeof junk);
            if (i % 3) { /* nanomsg's frame of ipc: a kind, a length */
                memset(junk, 0, 9);
                junk[0] = (uint8_t)(i % 5);
                memset(junk + 1 + i % 8, (int)(i * 37), i % 4);
            }
            (void)send_raw(fd[s], record, seal_into(&seal[s], record, junk, sizeof junk));
        }
        usleep(20000);
        for (int s = 0; s < 2; s++)
            close(fd[s]);
    }
    running_end(&r);
}

typedef struct attack {
    uint16_t port;
    atomic_bool stop;
    atomic_uint n;
} attack;

static void *flood(void *arg)
{
    attack *a = arg;
    uint8_t junk[GSP_SEALED_FIRST_BYTES];
    while (!a->stop) {
        int fd = connect_raw(a->port);
        randombytes_buf(junk, sizeof junk);
        (void)send_raw(fd, junk, 1 + randombytes_uniform(sizeof junk));
        close(fd);
        a->n++;
    }
    return NULL;
}

static void a_flood_does_not_stop_what_runs(void **state)
{
    (void)state;
    running r;
    pthread_t thread;
    running_begin(&r, MS(2000));
    attack a = {.port = gsp_net_port(r.b)};
    pthread_create(&thread, NULL, flood, &a);
    unsigned before = r.rounds;
    for (unsigned i = 0; a.n < 1000 || r.rounds < before + 100; i++) {
        assert_true(i < 60000);
        usleep(1000);
    }
    a.stop = true;
    pthread_join(thread, NULL);
    assert_int_equal(gate_stats(&r).streams_opened, 3);
    running_end(&r);
}

/* A guest comes with an invite, is admitted by the owner, and comes back as a member. */
static void a_guest_becomes_a_member(void **state)
{
    (void)state;
    gsp_net *owner = NULL, *guest = NULL;
    gsp_net_event event;
    gsp_role role = GSP_OWNER;
    uint8_t credential[GSP_CREDENTIAL_BYTES_MAX];
    uint32_t bytes = 0;
    uint64_t now = test_now_s();
    gsp_net_gate_config c = {.gate.handshake = test_member(&pool, 0), .gate.n_listen = 1};
    c.gate.listen[0] = test_address("127.0.0.1:0");
    c.gate.handshake.self = &pool.owner;
    c.gate.handshake.credential_bytes = 0;
    test_must(gsp_net_open_gate(&c, &owner));
    gsp_invite invite = {.id = {1}, .count = 1, .issued_s = now, .expires_s = now + 60};
    memcpy(invite.pool, pool.pool, sizeof invite.pool);
    gsp_invite_sign(&invite, &pool.owner);
    c.gate.n_listen = 0;
    c.gate.handshake.self = &pool.member[20];
    c.gate.handshake.credential_bytes = GSP_INVITE_BYTES;
    gsp_invite_encode(&invite, c.gate.handshake.credential);
    test_must(gsp_net_open_gate(&c, &guest));
    assert_int_equal(gsp_net_port(guest), 0);
    gsp_address at = test_loopback(gsp_net_port(owner));
    static const uint8_t anybody[GSP_NET_KEY_BYTES];
    test_must(gsp_net_dial(guest, anybody, &at, 1));
    for (bool as_guest = true;; as_guest = false) {
        do {
            test_must(gsp_net_next(guest, MS(5), &event));
            test_must(gsp_net_next(owner, MS(5), &event));
        } while (event.kind != GSP_NET_UP);
        assert_int_equal(event.guest, as_guest);
        assert_int_equal(event.address.port, 0);
        assert_true(gsp_net_peer_credential(owner, event.key, &role, credential, &bytes));
        assert_int_equal(role, as_guest ? GSP_GUEST : GSP_MEMBER);
        if (!as_guest)
            break;
        gsp_admission a = {.issued_s = now, .expires_s = now + 600};
        memcpy(a.pool, pool.pool, sizeof a.pool);
        memcpy(a.member, event.key, sizeof a.member);
        gsp_admission_sign(&a, &pool.owner);
        gsp_admission_encode(&a, credential);
        gsp_net_rekey(guest, (const uint8_t(*)[GSP_PSK_BYTES])c.gate.handshake.psk, 1, credential,
                      GSP_ADMISSION_BYTES);
        gsp_net_drop(guest, owner->key);
        test_must(gsp_net_dial(guest, owner->key, &at, 1));
    }
    gsp_net_close(&guest);
    gsp_net_close(&owner);
}

/* A member that knows only the key before is a guest to others, until it comes with the new one. */
static void who_has_the_key_before_is_a_guest(void **state)
{
    (void)state;
    gsp_net *here = NULL, *late = NULL;
    gsp_net_event event;
    gsp_net_gate_config c = {.gate.handshake = test_member(&pool, 21), .gate.n_listen = 1};
    gsp_handshake_config *h = &c.gate.handshake;
    uint8_t old[GSP_PSK_BYTES];
    memcpy(old, h->psk[0], sizeof old);
    memcpy(h->psk[1], old, sizeof old);
    h->psk[0][5] ^= 1;
    h->n_psks = 2;
    c.gate.listen[0] = test_address("127.0.0.1:0");
    test_must(gsp_net_open_gate(&c, &here));
    uint8_t fresh[1][GSP_PSK_BYTES];
    memcpy(fresh[0], h->psk[0], sizeof old);
    c.gate.n_listen = 0;
    *h = test_member(&pool, 22);
    test_must(gsp_net_open_gate(&c, &late));
    gsp_address at = test_loopback(gsp_net_port(here));
    for (bool is_old = true;; is_old = false) {
        test_must(gsp_net_dial(late, here->key, &at, 1));
        do {
            test_must(gsp_net_next(late, MS(5), &event));
            test_must(gsp_net_next(here, MS(5), &event));
        } while (event.kind != GSP_NET_UP);
        assert_int_equal(event.old_key, is_old);
        assert_int_equal(event.guest, is_old);
        if (!is_old)
            break;
        gsp_net_rekey(late, (const uint8_t(*)[GSP_PSK_BYTES])fresh, 1, h->credential,
                      h->credential_bytes);
        gsp_net_drop(late, here->key);
    }
    gsp_net_close(&late);
    gsp_net_close(&here);
}

static gsp_net *open_behind_nat(unsigned i)
{
    gsp_net *net = NULL;
    gsp_net_gate_config c = {.gate.handshake = test_member(&pool, i)};
    test_must(gsp_net_open_gate(&c, &net));
    return net;
}

/* Neither a nor b accepts connections; r does, and brings them together. */
static void a_member_relays(void **state)
{
    (void)state;
    enum { N = 60, BYTES = 300 * 1024 };
    gsp_net *net[3] = {open_behind_nat(0), open_behind_nat(1), open_member(2, MS(3000), false)};
    gsp_net *a = net[0], *b = net[1], *r = net[2];
    gsp_address at = test_loopback(gsp_net_port(r)), nowhere = test_loopback(1);
    gsp_net_event event;
    static uint8_t body[BYTES];
    test_must(gsp_net_dial(a, r->key, &at, 1));
    test_must(gsp_net_dial(b, r->key, &at, 1));
    test_must(gsp_net_dial(a, b->key, &nowhere, 1));
    uint32_t sent = 0, got = 0, control = 0, downs = 0;
    bool up_a = false, up_b = false;
    for (unsigned i = 0; got < N || !control; i++) {
        assert_true(i < 60000);
        for (int k = 0; k < 3; k++) {
            test_must(gsp_net_next(net[k], MS(1), &event));
            const uint8_t *other = net[k] == a ? b->key : a->key;
            bool of_link = net[k] != r && memcmp(event.key, other, 32) == 0;
            if (event.kind == GSP_NET_UP && of_link) {
                up_a |= net[k] == a;
                up_b |= net[k] == b;
                static const uint8_t zero[16];
                assert_memory_equal(event.address.ip, zero, sizeof zero); /* says: relayed */
                assert_int_equal(event.inbound, net[k] == b);
            }
            assert_int_not_equal(event.kind, GSP_NET_DOWN);
            if (event.kind == GSP_NET_MESSAGE) {
                assert_true(net[k] == b && of_link); /* nothing for r */
                got += event.channel == GSP_NET_BULK;
                control += event.channel == GSP_NET_CONTROL;
                for (size_t j = 4; j < event.bytes; j += 1001)
                    assert_int_equal(((uint8_t *)event.data)[j], ((uint8_t *)event.data)[4]);
                gsp_net_free(net[k], event.data);
            }
        }
        memset(body, (int)sent, sizeof body);
        while (up_a && sent < N &&
               gsp_net_send(a, b->key, GSP_NET_BULK, &sent, 4, body, sizeof body) == GSP_NET_SENT)
            memset(body, (int)++sent, sizeof body);
        if (sent == N && !control)
            (void)!gsp_net_send(a, b->key, GSP_NET_CONTROL, "done", 4, NULL, 0);
    }
    assert_true(up_a && up_b);
    gsp_net_close(&r); /* both lose both */
    for (unsigned i = 0; downs < 4; i++) {
        assert_true(i < 60000);
        for (int k = 0; k < 2; k++) {
            test_must(gsp_net_next(net[k], MS(1), &event));
            downs += event.kind == GSP_NET_DOWN;
            gsp_net_free(net[k], event.data);
        }
    }
    gsp_net_close(&a);
    gsp_net_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(caps_hold_and_heartbeats_pass),
        cmocka_unit_test(garbage_gets_no_answer),
        cmocka_unit_test(slow_ones_are_closed_and_do_not_lock_out),
        cmocka_unit_test(another_ticket_is_refused),
        cmocka_unit_test(damaged_records_end_their_stream),
        cmocka_unit_test(hostile_bytes_behind_the_gate),
        cmocka_unit_test(a_flood_does_not_stop_what_runs),
        cmocka_unit_test(a_guest_becomes_a_member),
        cmocka_unit_test(who_has_the_key_before_is_a_guest),
        cmocka_unit_test(a_member_relays),
    };
    test_pool_make(&pool, 9);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
