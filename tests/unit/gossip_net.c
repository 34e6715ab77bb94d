/* The conformance suite of net.h: every transport passes every case. */
#include "atom/base/assert.h"
#include "atom/base/mem.h"
#include "gossip/net/net_sim.h"
#include "tests/lib/gossip_pool.h"

#include <dirent.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define SECONDS(n) ((n)*1000000000ull)

typedef struct transport {
    const char *name;
    gsp_net *(*open)(unsigned member);
} transport;

static test_pool pool;

static gsp_net *open_gate(unsigned member)
{
    gsp_net *net = NULL;
    gsp_net_gate_config c = {.gate.handshake = test_member(&pool, member), .gate.n_listen = 1};
    c.gate.listen[0] = test_address("127.0.0.1:0");
    test_must(gsp_net_open_gate(&c, &net));
    return net;
}

/* nanomsg cannot say which port it chose: try until one is free. */
static gsp_net *open_plain(unsigned member)
{
    static uint16_t port;
    gsp_net *net = NULL;
    if (!port)
        port = (uint16_t)(20000 + getpid() % 20000);
    gsp_net_plain_config c = {.listen = test_loopback(0)};
    memcpy(c.key, pool.member[member].public_key, sizeof c.key);
    do {
        port = (uint16_t)(port > 60000 ? 20000 : port + 41);
        c.listen.port = port;
        c.port_last = (uint16_t)(port + 40);
    } while (gsp_net_open_plain(&c, &net) != ATOM_OK);
    return net;
}

static gsp_sim_hub *hub;

static gsp_net *open_sim(unsigned member)
{
    gsp_net *net = NULL;
    test_must(gsp_sim_net_open(hub, pool.member[member].public_key, &net));
    return net;
}

static const transport transports[] = {
    {"gate", open_gate}, {"plain", open_plain}, {"sim", open_sim}};

/* Waits for an event of this kind; frees messages in between. */
static void await(gsp_net *net, gsp_net_kind kind, gsp_net_event *event)
{
    uint64_t end = atom_clock_ns() + SECONDS(60);
    while (atom_clock_ns() < end) {
        test_must(gsp_net_next(net, SECONDS(1), event));
        if (event->kind == kind)
            return;
        gsp_net_free(net, event->data);
    }
    fail_msg("no event of kind %d", kind);
}

static void connect_two(gsp_net *a, gsp_net *b)
{
    gsp_net_event event;
    gsp_address at = test_loopback(gsp_net_port(b));
    test_must(gsp_net_dial(a, b->key, &at, 1));
    for (bool up_a = false, up_b = false; !up_a || !up_b;) {
        if (!up_a) {
            test_must(gsp_net_next(a, SECONDS(1) / 100, &event));
            assert_int_not_equal(event.kind, GSP_NET_DOWN);
            up_a = event.kind == GSP_NET_UP;
            if (up_a) {
                assert_memory_equal(event.key, b->key, GSP_NET_KEY_BYTES);
                assert_false(event.inbound);
            }
        }
        if (!up_b) {
            test_must(gsp_net_next(b, SECONDS(1) / 100, &event));
            assert_int_not_equal(event.kind, GSP_NET_DOWN);
            up_b = event.kind == GSP_NET_UP;
            if (up_b) {
                assert_memory_equal(event.key, a->key, GSP_NET_KEY_BYTES);
                assert_true(event.inbound);
            }
        }
    }
}

static void meets_and_talks(void **state)
{
    const transport *t = *state;
    gsp_net *a = t->open(0), *b = t->open(1);
    gsp_net_event event;
    connect_two(a, b);
    assert_int_equal(gsp_net_send(a, b->key, GSP_NET_CONTROL, "he", 2, "llo", 3), GSP_NET_SENT);
    await(b, GSP_NET_MESSAGE, &event);
    assert_int_equal(event.channel, GSP_NET_CONTROL);
    assert_int_equal(event.bytes, 5);
    assert_memory_equal(event.data, "hello", 5);
    assert_memory_equal(event.key, a->key, GSP_NET_KEY_BYTES);
    gsp_net_free(b, event.data);
    assert_int_equal(gsp_net_send(b, a->key, GSP_NET_BULK, NULL, 0, "x", 1), GSP_NET_SENT);
    await(a, GSP_NET_MESSAGE, &event);
    assert_int_equal(event.channel, GSP_NET_BULK);
    assert_int_equal(event.bytes, 1);
    gsp_net_free(a, event.data);
    gsp_net_stats stats;
    gsp_net_read_stats(a, &stats);
    assert_int_equal(stats.links, 1);
    assert_int_equal(stats.messages_sent, 1);
    assert_int_equal(stats.messages_received, 1);
    gsp_net_close(&a);
    gsp_net_close(&b);
    assert_null(a);
}

static void says_down_and_comes_back(void **state)
{
    const transport *t = *state;
    gsp_net *a = t->open(0), *b = t->open(1);
    gsp_net_event event;
    connect_two(a, b);
    gsp_address at = test_loopback(gsp_net_port(b));
    gsp_net_close(&b);
    await(a, GSP_NET_DOWN, &event);
    assert_true(event.why[0]);
    assert_int_equal(gsp_net_send(a, event.key, GSP_NET_CONTROL, "x", 1, NULL, 0), GSP_NET_GONE);
    b = t->open(1); /* another port: the caller learns it and says so */
    at = test_loopback(gsp_net_port(b));
    test_must(gsp_net_dial(a, b->key, &at, 1));
    gsp_net_event other;
    for (bool up_a = false, up_b = false; !up_a || !up_b;) {
        test_must(gsp_net_next(a, SECONDS(1) / 200, &event));
        up_a |= event.kind == GSP_NET_UP;
        test_must(gsp_net_next(b, SECONDS(1) / 200, &other));
        up_b |= other.kind == GSP_NET_UP;
    }
    gsp_net_close(&a);
    gsp_net_close(&b);
}

static void waits_and_wakes(void **state)
{
    const transport *t = *state;
    gsp_net *a = t->open(0);
    gsp_net_event event;
    test_must(gsp_net_next(a, 0, &event));
    assert_int_equal(event.kind, GSP_NET_NOTHING);
    gsp_net_wake(a);
    test_must(gsp_net_next(a, SECONDS(600), &event)); /* returns at once, or the test times out */
    assert_int_equal(event.kind, GSP_NET_NOTHING);
    uint8_t unknown[GSP_NET_KEY_BYTES] = {9};
    assert_int_equal(gsp_net_send(a, unknown, GSP_NET_CONTROL, "x", 1, NULL, 0), GSP_NET_GONE);
    gsp_net_drop(a, unknown);
    assert_int_equal(gsp_net_dial(a, unknown, NULL, 0), ATOM_E_USAGE);
    gsp_address at = test_loopback(1);
    assert_int_equal(gsp_net_dial(a, a->key, &at, 1), ATOM_E_USAGE);
    gsp_net_close(&a);
}

typedef struct flood {
    gsp_net *from;
    uint8_t to[GSP_NET_KEY_BYTES];
    gsp_net_channel channel;
    uint32_t n;
    size_t bytes;
    uint32_t busy;
} flood;

/* Sends n numbered messages, minding BUSY and ROOM. */
static void *send_flood(void *arg)
{
    flood *f = arg;
    uint8_t *body = atom_alloc(1, f->bytes);
    gsp_net_event event;
    ATOM_ASSERT(body);
    for (uint32_t i = 0; i < f->n; i++) {
        if (i % 16 == 0) /* nothing depends on how fast it goes */
            gsp_net_pace(f->from, f->to, i % 32 == 0 ? 400000000 : 0);
        memset(body, (int)(i & 0xff), f->bytes);
        gsp_net_sent sent;
        while ((sent = gsp_net_send(f->from, f->to, f->channel, &i, sizeof i, body, f->bytes)) ==
               GSP_NET_BUSY) {
            f->busy++;
            do {
                test_must(gsp_net_next(f->from, SECONDS(10), &event));
                ATOM_ASSERT(event.kind != GSP_NET_DOWN);
            } while (event.kind != GSP_NET_ROOM);
        }
        ATOM_ASSERT(sent == GSP_NET_SENT);
    }
    atom_free(body);
    return NULL;
}

static void flood_once(const transport *t, gsp_net_channel channel, uint32_t n, size_t bytes)
{
    gsp_net *a = t->open(0), *b = t->open(1);
    gsp_net_event event;
    pthread_t thread;
    connect_two(a, b);
    flood f = {.from = a, .channel = channel, .n = n, .bytes = bytes};
    memcpy(f.to, b->key, sizeof f.to);
    uint8_t *seen = atom_alloc(n, 1);
    pthread_create(&thread, NULL, send_flood, &f);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t number;
        await(b, GSP_NET_MESSAGE, &event);
        assert_int_equal(event.bytes, bytes + 4);
        memcpy(&number, event.data, 4);
        assert_true(number < n);
        assert_false(seen[number]); /* once */
        seen[number] = 1;
        if (channel == GSP_NET_CONTROL)
            assert_int_equal(number, i); /* in order */
        const uint8_t *body = (const uint8_t *)event.data + 4;
        for (size_t k = 0; k < bytes; k += 997)
            assert_int_equal(body[k], number & 0xff);
        assert_int_equal(body[bytes - 1], number & 0xff);
        gsp_net_free(b, event.data);
    }
    pthread_join(thread, NULL);
    atom_free(seen);
    gsp_net_close(&a);
    gsp_net_close(&b);
}

static void control_keeps_order(void **state)
{
    flood_once(*state, GSP_NET_CONTROL, 20000, 100);
}

static void bulk_arrives_once(void **state)
{
    flood_once(*state, GSP_NET_BULK, 400, 256 * 1024);
    flood_once(*state, GSP_NET_BULK, 20, GSP_NET_BULK_BYTES_MAX - 4);
}

/* A receiver that does not read stops the sender, with little on the way; control still passes. */
static void pushes_back(void **state)
{
    const transport *t = *state;
    gsp_net *a = t->open(0), *b = t->open(1);
    gsp_net_event event;
    enum { BYTES = 512 * 1024 };
    uint8_t *body = atom_alloc(1, BYTES);
    connect_two(a, b);
    uint32_t sent = 0;
    for (uint32_t quiet = 0; quiet < 20;) {
        if (gsp_net_send(a, b->key, GSP_NET_BULK, NULL, 0, body, BYTES) == GSP_NET_SENT) {
            sent++;
            quiet = 0;
            assert_in_range(sent, 1, 400); /* 200 MB: that is no back-pressure */
        } else {
            test_must(gsp_net_next(a, SECONDS(1) / 50, &event));
            if (event.kind == GSP_NET_NOTHING)
                quiet++;
        }
    }
    assert_int_equal(gsp_net_send(a, b->key, GSP_NET_CONTROL, "vote", 4, NULL, 0), GSP_NET_SENT);
    uint32_t got = 0, before_control = 0;
    bool control = false;
    while (got < sent) {
        await(b, GSP_NET_MESSAGE, &event);
        got += event.channel == GSP_NET_BULK;
        control |= event.channel == GSP_NET_CONTROL;
        before_control += !control;
        gsp_net_free(b, event.data);
    }
    if (!control)
        await(b, GSP_NET_MESSAGE, &event), gsp_net_free(b, event.data);
    assert_true(before_control < sent); /* it overtook */
    await(a, GSP_NET_ROOM, &event);
    assert_int_equal(event.channel, GSP_NET_BULK);
    atom_free(body);
    gsp_net_close(&a);
    gsp_net_close(&b);
}

/* Both dial at once, many times: one link, and it stays. */
static void crossing_dials_make_one_link(void **state)
{
    const transport *t = *state;
    for (int round = 0; round < 5; round++) {
        gsp_net *n[2] = {t->open(0), t->open(1)};
        gsp_net_event event;
        int up[2] = {0, 0};
        for (int i = 0; i < 2; i++) {
            gsp_address at = test_loopback(gsp_net_port(n[1 - i]));
            test_must(gsp_net_dial(n[i], n[1 - i]->key, &at, 1));
        }
        /* Until both have been up without a change for a while. */
        uint64_t quiet = atom_clock_ns(), end = quiet + SECONDS(60);
        while (atom_clock_ns() < quiet + SECONDS(1) / 5 || up[0] != 1 || up[1] != 1) {
            assert_true(atom_clock_ns() < end);
            for (int i = 0; i < 2; i++) {
                test_must(gsp_net_next(n[i], SECONDS(1) / 100, &event));
                if (event.kind == GSP_NET_UP || event.kind == GSP_NET_DOWN) {
                    up[i] += event.kind == GSP_NET_UP ? 1 : -1;
                    quiet = atom_clock_ns();
                }
                assert_in_range(up[i], 0, 1);
            }
        }
        assert_int_equal(gsp_net_send(n[0], n[1]->key, GSP_NET_CONTROL, "x", 1, NULL, 0),
                         GSP_NET_SENT);
        await(n[1], GSP_NET_MESSAGE, &event);
        gsp_net_free(n[1], event.data);
        gsp_net_close(&n[0]);
        gsp_net_close(&n[1]);
    }
}

/* A peer that restarts at once, under the same key, is met again; nothing old arrives. */
static void a_restarted_peer_is_met_again(void **state)
{
    const transport *t = *state;
    gsp_net *b = t->open(1);
    gsp_net_event event;
    for (uint32_t life = 0; life < 5; life++) {
        gsp_net *a = t->open(0);
        gsp_address at = test_loopback(gsp_net_port(b));
        test_must(gsp_net_dial(a, b->key, &at, 1));
        bool up = false, got = false;
        for (uint64_t end = atom_clock_ns() + SECONDS(60); !got;) {
            assert_true(atom_clock_ns() < end);
            test_must(gsp_net_next(a, SECONDS(1) / 200, &event));
            if (event.kind == GSP_NET_UP)
                up = gsp_net_send(a, b->key, GSP_NET_CONTROL, &life, sizeof life, NULL, 0) ==
                     GSP_NET_SENT;
            test_must(gsp_net_next(b, SECONDS(1) / 200, &event));
            if (event.kind == GSP_NET_MESSAGE) {
                assert_true(up);
                assert_int_equal(*(uint32_t *)event.data, life);
                gsp_net_free(b, event.data);
                got = true;
            }
        }
        gsp_net_close(&a);
    }
    gsp_net_close(&b);
}

static void many_peers_talk(void **state)
{
    enum { N = 6, ROUNDS = 50 };
    const transport *t = *state;
    gsp_net *n[N];
    gsp_net_event event;
    uint32_t got[N][N] = {{0}}, sent[N][N] = {{0}}, total = 0;
    for (unsigned i = 0; i < N; i++)
        n[i] = t->open(i);
    for (unsigned i = 0; i < N; i++)
        for (unsigned j = 0; j < i; j++) {
            gsp_address at = test_loopback(gsp_net_port(n[j]));
            test_must(gsp_net_dial(n[i], n[j]->key, &at, 1));
        }
    for (uint64_t end = atom_clock_ns() + SECONDS(60); total < N * (N - 1) * ROUNDS;) {
        assert_true(atom_clock_ns() < end);
        for (unsigned i = 0; i < N; i++) {
            for (unsigned j = 0; j < N; j++)
                if (j != i && sent[i][j] < ROUNDS)
                    sent[i][j] += gsp_net_send(n[i], n[j]->key, GSP_NET_CONTROL, &sent[i][j], 4,
                                               NULL, 0) == GSP_NET_SENT;
            test_must(gsp_net_next(n[i], 0, &event));
            assert_int_not_equal(event.kind, GSP_NET_DOWN);
            for (unsigned j = 0; event.kind == GSP_NET_MESSAGE && j < N; j++)
                if (memcmp(n[j]->key, event.key, GSP_NET_KEY_BYTES) == 0) {
                    assert_int_equal(*(uint32_t *)event.data, got[i][j]);
                    got[i][j]++;
                    total++;
                }
            gsp_net_free(n[i], event.data);
        }
    }
    for (unsigned i = 0; i < N; i++)
        gsp_net_close(&n[i]);
}

/* Descriptors that are open in this process. */
static unsigned count_files(void)
{
    unsigned n = 0;
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

static void nothing_leaks(void **state)
{
    const transport *t = *state;
    uint64_t blocks = 0;
    unsigned files = 0;
    for (int i = 0; i < 8; i++) {
        meets_and_talks((void **)&t);
        if (i == 1) {
            blocks = atom_mem_read().live_blocks;
            files = count_files();
        }
    }
    assert_int_equal(atom_mem_read().live_blocks, blocks);
    assert_int_equal(count_files(), files);
}

/* Links that come and go under one endpoint leave nothing behind either. */
static void links_leave_nothing_behind(void **state)
{
    const transport *t = *state;
    gsp_net *a = t->open(0), *b = t->open(1);
    gsp_net_event event;
    uint64_t blocks = 0;
    unsigned files = 0;
    for (int i = 0; i < 12; i++) {
        connect_two(a, b);
        gsp_net_drop(a, b->key);
        await(b, GSP_NET_DOWN, &event);
        test_must(gsp_net_next(a, SECONDS(1) / 10, &event));
        assert_int_equal(event.kind, GSP_NET_NOTHING); /* who drops is not told */
        if (i == 3) {
            blocks = atom_mem_read().live_blocks;
            files = count_files();
        }
    }
    assert_true(atom_mem_read().live_blocks <= blocks + 2);
    assert_true(count_files() <= files + 2);
    gsp_net_close(&a);
    gsp_net_close(&b);
}

/* Whatever allocation fails, opening says so and leaves nothing; from some number on it works. */
static void opens_or_says_no_memory(void **state)
{
    const transport *t = *state;
    gsp_net *net = NULL;
    if (t->open != open_gate)
        return;
    gsp_net_gate_config c = {.gate.handshake = test_member(&pool, 0), .gate.n_listen = 1};
    c.gate.listen[0] = test_address("127.0.0.1:0");
    uint64_t blocks = atom_mem_read().live_blocks;
    for (uint64_t n = 1; !net; n++) {
        assert_true(n < 100);
        atom_mem_fail_after(n);
        atom_status st = gsp_net_open_gate(&c, &net);
        atom_mem_fail_after(0);
        if (st != ATOM_OK) {
            assert_null(net);
            assert_int_equal(st, ATOM_E_RESOURCE);
            assert_int_equal(atom_mem_read().live_blocks, blocks);
        }
    }
    gsp_net_close(&net);
    assert_int_equal(atom_mem_read().live_blocks, blocks);
}

static uint32_t count_names(const char *path)
{
    DIR *list = opendir(path);
    uint32_t n = 0;
    assert_non_null(list);
    for (const struct dirent *at; (at = readdir(list)) != NULL;)
        n += at->d_name[0] != '.';
    closedir(list);
    return n;
}

/* A process that opens an endpoint and then stands still. */
static pid_t stands_still(void)
{
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves no process */
        (void)open_gate(1);
        (void)!write(ready[1], "", 1);
        for (;;)
            pause();
    }
    assert_true(child > 0);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    return child;
}

static void end(pid_t child)
{
    int status;
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
}

/* The directory of a killed process is removed by the next endpoint; one in use stays, and
 * so does one that holds anything but sockets. */
static void a_kill_leaves_no_directory(void **state)
{
    (void)state;
    char place[] = "/tmp/atom-unit-XXXXXX", other[64], file[64];
    assert_non_null(mkdtemp(place));
    assert_int_equal(setenv("TMPDIR", place, 1), 0);
    end(stands_still());
    assert_int_equal(count_names(place), 1);
    pid_t lives = stands_still(); /* it removes the first one's */
    assert_int_equal(count_names(place), 1);

    snprintf(other, sizeof other, "%s/atom-net-others", place);
    assert_int_equal(mkdir(other, 0700), 0);
    snprintf(file, sizeof file, "%s/atom-net-others/file", place);
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    fclose(f);
    gsp_net *net = open_gate(0);
    assert_int_equal(count_names(place), 3);
    gsp_net_close(&net);
    assert_int_equal(count_names(place), 2);
    end(lives);
    net = open_gate(0);
    gsp_net_close(&net);
    assert_int_equal(count_names(place), 1); /* the other one, which holds a file */
    unlink(file);
    rmdir(other);
    assert_int_equal(rmdir(place), 0);
    unsetenv("TMPDIR");
}

int main(void)
{
    test_pool_make(&pool, 7);
    test_must(gsp_sim_hub_open(&hub));
    int failed = 0;
    for (size_t i = 0; i < sizeof transports / sizeof *transports; i++) {
        void *t = (void *)&transports[i];
        const struct CMUnitTest tests[] = {
            cmocka_unit_test_prestate(meets_and_talks, t),
            cmocka_unit_test_prestate(says_down_and_comes_back, t),
            cmocka_unit_test_prestate(waits_and_wakes, t),
            cmocka_unit_test_prestate(control_keeps_order, t),
            cmocka_unit_test_prestate(bulk_arrives_once, t),
            cmocka_unit_test_prestate(pushes_back, t),
            cmocka_unit_test_prestate(crossing_dials_make_one_link, t),
            cmocka_unit_test_prestate(a_restarted_peer_is_met_again, t),
            cmocka_unit_test_prestate(many_peers_talk, t),
            cmocka_unit_test_prestate(nothing_leaks, t),
            cmocka_unit_test_prestate(links_leave_nothing_behind, t),
            cmocka_unit_test_prestate(opens_or_says_no_memory, t),
        };
        failed += cmocka_run_group_tests_name(transports[i].name, tests, NULL, NULL);
    }
    const struct CMUnitTest places[] = {cmocka_unit_test(a_kill_leaves_no_directory)};
    failed += cmocka_run_group_tests_name("places", places, NULL, NULL);
    gsp_sim_hub_close(&hub);
    return failed;
}
