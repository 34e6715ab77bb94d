/*
 * The directory over real OpenDHT nodes on loopback: members that know one node find all others;
 * strangers are not handed on. Waiting is bounded; nothing depends on how long it takes.
 */
#include "gossip/directory/directory.h"
#include "tests/lib/gossip_contact.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { NODES = 4, PATIENCE_SECONDS = 80 };

/* OpenDHT is built without the thread sanitizer, which therefore does not see how it orders the
 * closing of its own socket. Our callbacks stay under watch. */
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
    return "race:dht::net::UdpSocket\n";
}

typedef struct node {
    gsp_directory *directory;
    bool found[TEST_MEMBERS_MAX];
    uint64_t sequence[TEST_MEMBERS_MAX];
} node;

static void open_node_at(const test_pool *p, unsigned i, uint16_t port, node *n)
{
    gsp_directory_config c = {
        .who = test_member(p, i), .port = port, .put_s = 2, .get_s = 1, .deadline_s = 5};
    *n = (node){0};
    test_must(gsp_directory_open(&c, &n->directory));
    assert_true(gsp_directory_port(n->directory) > 0);
}

static void open_node(const test_pool *p, unsigned i, node *n)
{
    open_node_at(p, i, 0, n);
}

static void meet(node *from, const node *at)
{
    char host[32];
    snprintf(host, sizeof host, "127.0.0.1:%u", gsp_directory_port(at->directory));
    test_must(gsp_directory_bootstrap(from->directory, host));
}

static void publish(const test_pool *p, node *n, unsigned i, uint64_t sequence)
{
    gsp_contact c = test_contact(p, i, sequence);
    gsp_directory_publish(n->directory, &c);
}

static void take(const test_pool *p, node *n)
{
    gsp_contact c;
    while (gsp_directory_next(n->directory, &c))
        for (unsigned i = 0; i < TEST_MEMBERS_MAX; i++)
            if (memcmp(c.key, p->member[i].public_key, sizeof c.key) == 0) {
                n->found[i] = true;
                n->sequence[i] = c.sequence > n->sequence[i] ? c.sequence : n->sequence[i];
            }
}

static void rest(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
}

static void members_find_each_other(void **state)
{
    (void)state;
    test_pool p;
    node n[NODES];
    test_pool_make(&p, 1);
    for (unsigned i = 0; i < NODES; i++)
        open_node(&p, i, &n[i]);
    for (unsigned i = 0; i < NODES; i++)
        publish(&p, &n[i], i, 1);
    for (unsigned i = 1; i < NODES; i++)
        meet(&n[i], &n[i - 1]); /* a chain: nobody knows all */
    bool all = false;
    double end = atom_clock_seconds() + PATIENCE_SECONDS;
    while (!all && atom_clock_seconds() < end) {
        rest();
        all = true;
        for (unsigned i = 0; i < NODES; i++) {
            take(&p, &n[i]);
            for (unsigned j = 0; j < NODES; j++)
                all &= n[i].found[j] || i == j;
        }
    }
    assert_true(all);
    /* Its own contact is known as its own; a newer one reaches the others. */
    publish(&p, &n[0], 0, 2);
    while (n[3].sequence[0] < 2 && atom_clock_seconds() < end) {
        rest();
        take(&p, &n[3]);
    }
    assert_int_equal(n[3].sequence[0], 2);
    gsp_directory_stats stats;
    gsp_directory_read_stats(n[0].directory, &stats);
    assert_false(n[0].found[0]);
    assert_true(stats.puts > 0 && stats.gets_done > 0);
    assert_int_equal(stats.verdicts[GSP_CONTACT_FORGED] + stats.verdicts[GSP_CONTACT_NOISE], 0);
    for (unsigned i = 0; i < NODES; i++)
        gsp_directory_close(&n[i].directory);
}

/* A node that was not there when it was named: who knows other nodes still comes back to it. */
static void halves_grow_together(void **state)
{
    (void)state;
    test_pool p;
    node n[3];
    test_pool_make(&p, 1);
    open_node(&p, 0, &n[0]);
    uint16_t port = gsp_directory_port(n[0].directory);
    gsp_directory_close(&n[0].directory);
    open_node(&p, 1, &n[1]);
    open_node(&p, 2, &n[2]);
    publish(&p, &n[2], 2, 1);
    meet(&n[1], &n[2]);
    char host[32];
    snprintf(host, sizeof host, "127.0.0.1:%u", port);
    test_must(gsp_directory_bootstrap(n[1].directory, host));
    double end = atom_clock_seconds() + PATIENCE_SECONDS;
    while (!n[1].found[2] && atom_clock_seconds() < end) {
        rest();
        take(&p, &n[1]);
    }
    assert_true(n[1].found[2]);
    open_node_at(&p, 0, port, &n[0]); /* knows nobody, waits to be found */
    publish(&p, &n[0], 0, 1);
    while (!(n[1].found[0] && n[0].found[2]) && atom_clock_seconds() < end) {
        rest();
        take(&p, &n[0]);
        take(&p, &n[1]);
    }
    assert_true(n[1].found[0]);
    assert_true(n[0].found[2]);
    for (unsigned i = 0; i < 3; i++)
        gsp_directory_close(&n[i].directory);
}

/* Takes a datagram that came. */
static bool hears(int fd)
{
    char data[2048];
    return recv(fd, data, sizeof data, MSG_DONTWAIT) > 0;
}

/* A bootstrap node that says nothing is asked again, also by who found another one since. */
static void the_silent_are_asked_again(void **state)
{
    (void)state;
    test_pool p;
    node n[2];
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    char host[32];
    test_pool_make(&p, 1);
    int silent = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(silent, (struct sockaddr *)&at, bytes), 0);
    assert_int_equal(getsockname(silent, (struct sockaddr *)&at, &bytes), 0);
    open_node(&p, 0, &n[0]);
    open_node(&p, 1, &n[1]);
    publish(&p, &n[1], 1, 1);
    snprintf(host, sizeof host, "127.0.0.1:%u", ntohs(at.sin_port));
    test_must(gsp_directory_bootstrap(n[0].directory, host));
    meet(&n[0], &n[1]);
    double end = atom_clock_seconds() + PATIENCE_SECONDS;
    while (!n[0].found[1] && atom_clock_seconds() < end) {
        rest();
        take(&p, &n[0]);
    }
    assert_true(n[0].found[1]);
    /* OpenDHT itself asks a few times at first, and then no more. */
    unsigned heard = 0;
    for (; heard < 8 && atom_clock_seconds() < end; heard += hears(silent))
        rest();
    assert_int_equal(heard, 8);
    close(silent);
    gsp_directory_close(&n[0].directory);
    gsp_directory_close(&n[1].directory);
}

static void strangers_are_not_handed_on(void **state)
{
    (void)state;
    test_pool p, q;
    node member[2], thief, other;
    gsp_directory_stats stats = {0};
    test_pool_make(&p, 1);
    test_pool_make(&q, 1);
    q.psk[0] ^= 1; /* the same pool, another ticket */
    open_node(&p, 0, &member[0]);
    open_node(&p, 1, &member[1]);
    open_node(&p, 2, &thief);
    open_node(&q, 3, &other);
    meet(&member[1], &member[0]);
    meet(&thief, &member[0]);
    meet(&other, &member[0]);
    publish(&p, &member[0], 0, 1);
    publish(&p, &member[1], 1, 1);
    publish(&q, &other, 3, 1);
    gsp_contact c = test_contact(&p, 2, 1); /* holds the ticket, was never admitted */
    c.credential_bytes = 0;
    memset(c.credential, 0, sizeof c.credential);
    gsp_contact_sign(&c, p.pool, &p.member[2]);
    gsp_directory_publish(thief.directory, &c);
    double end = atom_clock_seconds() + PATIENCE_SECONDS;
    while ((!member[0].found[1] || !thief.found[0] || stats.verdicts[GSP_CONTACT_STRANGER] == 0) &&
           atom_clock_seconds() < end) {
        rest();
        take(&p, &member[0]);
        take(&p, &thief);
        take(&p, &other);
        gsp_directory_read_stats(member[0].directory, &stats);
    }
    assert_true(member[0].found[1]);
    assert_true(stats.verdicts[GSP_CONTACT_STRANGER] > 0);
    assert_false(member[0].found[2]);
    assert_false(member[0].found[3]); /* lies elsewhere */
    assert_false(other.found[0] || other.found[1]);
    gsp_directory_close(&member[0].directory);
    gsp_directory_close(&member[1].directory);
    gsp_directory_close(&thief.directory);
    gsp_directory_close(&other.directory);
}

static void says_what_is_wrong(void **state)
{
    (void)state;
    test_pool p;
    node n;
    gsp_directory *second = NULL;
    static const char *const bad[] = {
        "",       ":1",      "host",  "host:",  "host:0", "h:99999",
        "::1:80", "[::1:80", "[]:80", "a b:80", "h:8x",   "h:123456789012345678901234567890"};
    test_pool_make(&p, 1);
    open_node(&p, 0, &n);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(gsp_directory_bootstrap(n.directory, bad[i]), ATOM_E_USAGE);
    gsp_directory_config c = {.who = test_member(&p, 1), .port = gsp_directory_port(n.directory)};
    assert_int_equal(gsp_directory_open(&c, &second), ATOM_E_RUNTIME);
    assert_null(second);
    /* Nobody there: nothing blocks, closing is quick, a dead name is survived. */
    test_must(gsp_directory_bootstrap(n.directory, "127.0.0.1:1"));
    test_must(gsp_directory_bootstrap(n.directory, "[::1]:1"));
    publish(&p, &n, 0, 1);
    gsp_directory_look(n.directory);
    gsp_directory_rekey(n.directory, (const uint8_t(*)[GSP_PSK_BYTES])p.psk, 1);
    gsp_contact found;
    assert_false(gsp_directory_next(n.directory, &found));
    gsp_directory_close(&n.directory);
    assert_null(n.directory);
    gsp_directory_close(&n.directory);
}

/* Known answers: members of different versions look under the same key, in the same network. Made by Python:
 * hashlib.blake2b(b"atom directory\0\0" + bucket.to_bytes(8, "little"), digest_size=20, key=bytes(range(32))), and
 * hashlib.blake2b(b"atom directory network\0", digest_size=32, key=bytes(range(32))), of which the first four bytes. */
static void keys_stay_as_they_are(void **state)
{
    static const uint8_t wanted[GSP_DIRECTORY_KEY_BYTES] = {
        0xe7, 0xd0, 0x11, 0x38, 0x51, 0x4a, 0x26, 0x04, 0x48, 0xf8,
        0xb8, 0x20, 0xdf, 0x93, 0xbb, 0xc8, 0x15, 0xf6, 0xa6, 0x16};
    uint8_t psk[GSP_PSK_BYTES], got[GSP_DIRECTORY_KEY_BYTES];
    (void)state;
    for (uint32_t i = 0; i < sizeof psk; i++)
        psk[i] = (uint8_t)i;
    gsp_directory_key(psk, 0x0102030405060708u, got);
    assert_memory_equal(got, wanted, sizeof got);
    assert_int_equal(gsp_directory_network(psk), 0xd0ebd578u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_stay_as_they_are),       cmocka_unit_test(members_find_each_other),
        cmocka_unit_test(halves_grow_together),        cmocka_unit_test(the_silent_are_asked_again),
        cmocka_unit_test(strangers_are_not_handed_on), cmocka_unit_test(says_what_is_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
