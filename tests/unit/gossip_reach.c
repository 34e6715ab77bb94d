/* Where a host is reached, how it looks for its first member, and what its month has used. */
#include "gossip/pool/month.h"
#include "gossip/pool/reach.h"
#include "tests/lib/gossip_pool.h"
#include "tests/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <netdb.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <unistd.h>

/* The resolver: names end in 192.0.2.line, or none is known; it may take as long as the test wants. */
static atomic_int line, hangs;
/* Names that begin with c have two addresses, of which this bit comes first, or, from 2 on, only the last one. */
static atomic_int turn;

int __wrap_getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                       struct addrinfo **out);
void __wrap_freeaddrinfo(struct addrinfo *found);

int __wrap_getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                       struct addrinfo **out)
{
    (void)service, (void)hints;
    for (atomic_store(&hangs, hangs ? 2 : 0); hangs;)
        usleep(1000);
    if (line == 0)
        return EAI_NONAME;
    *out = NULL;
    const int now = turn, n = name[0] == 'c' && now < 2 ? 2 : 1;
    for (int i = 0; i < n; i++) {
        struct addrinfo *found = atom_alloc(1, sizeof *found + sizeof(struct sockaddr_in));
        struct sockaddr_in *at = (struct sockaddr_in *)(found + 1);
        at->sin_family = AF_INET;
        at->sin_addr.s_addr = htonl(0xc0000200u + (uint32_t)line + (name[0] == 'b' ? 100 : 0) +
                                    (n == 2 && i == now ? 50 : 0));
        *found = (struct addrinfo){
            .ai_addr = (struct sockaddr *)at, .ai_addrlen = sizeof *at, .ai_next = *out};
        *out = found;
    }
    return 0;
}

void __wrap_freeaddrinfo(struct addrinfo *found)
{
    while (found) {
        struct addrinfo *next = found->ai_next;
        atom_free(found);
        found = next;
    }
}

static const uint64_t SECOND = 1000000000u;

typedef struct told {
    gsp_net net;
    uint32_t n_dials;
    gsp_net_stats stats;
} told;

static atom_status dial(gsp_net *net, const uint8_t *key, const gsp_address *at, size_t n)
{
    (void)key, (void)at, (void)n;
    ((told *)net)->n_dials++;
    return ATOM_OK;
}

static void read_stats(const gsp_net *net, gsp_net_stats *out)
{
    *out = ((const told *)net)->stats;
}

static const gsp_net_ops OPS = {.dial = dial, .read_stats = read_stats};

static void addresses_best_first(void **state)
{
    (void)state;
    gsp_reach r = {.n_listen = 2};
    gsp_address out[8];
    gsp_hosts hosts;
    r.listen[0] = test_address("192.0.2.7:0");
    r.listen[1] = test_address("192.0.2.8:5000");
    assert_int_equal(gsp_reach_addresses(&r, out, 8), 0); /* it accepts nobody */
    r.port = 4400;
    assert_int_equal(gsp_reach_addresses(&r, out, 8), 2);
    assert_int_equal(out[0].port, 4400);
    assert_int_equal(out[1].port, 5000);
    /* The router's comes first; none comes twice, and no more than fit. */
    r.routed.outside = test_address("203.0.113.5:6000");
    assert_int_equal(gsp_reach_addresses(&r, out, 8), 3);
    assert_true(gsp_address_equal(&out[0], &r.routed.outside));
    assert_int_equal(gsp_reach_addresses(&r, out, 1), 1);
    r.routed.outside = test_address("192.0.2.8:5000");
    assert_int_equal(gsp_reach_addresses(&r, out, 8), 2);
    /* "*": how others see us, then the interfaces'. */
    r = (gsp_reach){.port = 4400, .n_listen = 1};
    r.listen[0] = test_address("*:4400");
    r.seen = test_address("203.0.113.9:1234");
    assert_true(gsp_reach_addresses(&r, out, 8) >= 1);
    assert_true(gsp_address_same_host(&out[0], &r.seen));
    assert_int_equal(out[0].port, 4400);
    r.seen = test_loopback(9);
    for (uint32_t n = gsp_reach_addresses(&r, out, 8), i = 0; n > 1 && i < n; i++)
        assert_false(gsp_address_same_host(&out[i], &r.seen));
    /* In a ticket, what the user announces counts alone. */
    r.n_announce = 1;
    r.announce[0] = "host.example:4400";
    test_must(gsp_reach_hosts(&r, &hosts));
    assert_int_equal(hosts.n, 1);
    assert_string_equal(hosts.host[0], "host.example:4400");
    /* In a contact it comes first. */
    r.announce[0] = "192.0.2.9:7000";
    gsp_reach_look_up(&r);
    assert_true(gsp_reach_addresses(&r, out, 8) >= 2);
    gsp_address announced = test_address("192.0.2.9:7000");
    assert_true(gsp_address_equal(&out[0], &announced));
    r.announce[0] = "host.example:4400";
    r.plain = true;
    test_must(gsp_reach_hosts(&r, &hosts));
    assert_string_equal(hosts.host[0], "plain+host.example:4400");
    char longest[GSP_TICKET_HOST_BYTES + 1];
    memset(longest, 'x', sizeof longest);
    longest[GSP_TICKET_HOST_BYTES] = 0;
    r.announce[0] = longest;
    assert_int_equal(gsp_reach_hosts(&r, &hosts), ATOM_E_USAGE);
}

/* What most say of where this host is counts, first of what means something everywhere. */
static void is_where_most_see_it(void **state)
{
    (void)state;
    static const char *const local[] = {"10.1.2.3:1",   "192.168.1.5:1", "172.31.0.1:1",
                                        "100.64.3.4:1", "169.254.1.1:1", "127.0.0.1:1",
                                        "[fd00::1]:1",  "[::1]:1"};
    gsp_reach r = {0};
    gsp_address said[4] = {0}, here = test_address("203.0.113.9:1"),
                there = test_address("[2001:db8::7]:1");
    assert_false(gsp_reach_hear(&r, said, 0));
    assert_false(gsp_reach_hear(&r, said, 4)); /* nobody has said anything yet */
    for (unsigned i = 0; i < sizeof local / sizeof *local; i++) {
        r = (gsp_reach){0};
        said[0] = test_address(local[i]);
        assert_true(gsp_reach_hear(&r, said, 1)); /* better than nothing */
        assert_true(gsp_address_same_host(&r.seen, &said[0]));
        said[1] = said[0];
        said[2] = here;
        assert_true(gsp_reach_hear(&r, said, 4)); /* two neighbours do not outvote one outside */
        assert_true(gsp_address_same_host(&r.seen, &here));
        said[2].port = 99; /* of a link, and no news */
        assert_false(gsp_reach_hear(&r, said, 4));
    }
    said[0] = there; /* one against one: what counted before stays, whoever says it first */
    said[1] = here;
    assert_false(gsp_reach_hear(&r, said, 2));
    said[0] = here;
    said[1] = there;
    assert_false(gsp_reach_hear(&r, said, 2));
    said[2] = there;
    assert_true(gsp_reach_hear(&r, said, 3));
    assert_true(gsp_address_same_host(&r.seen, &there));
    assert_false(gsp_reach_hear(&r, said, 0)); /* nobody is linked: it is not forgotten */
    assert_true(gsp_address_same_host(&r.seen, &there));
}

static void names_are_looked_up_again(void **state)
{
    (void)state;
    static const char *const announced[] = {"a.example:7000", "192.0.2.250:7001", "b.example:7002"};
    gsp_meant each[3] = {0}, all;
    gsp_names *names = NULL;
    line = 1;
    gsp_names_look(announced, 3, each);
    test_must(gsp_names_open(announced + 1, 1, each + 1, 0.002, &names));
    assert_null(names); /* an address means the same for ever */
    test_must(gsp_names_open(announced, 3, each, 0.002, &names));
    usleep(20000);
    assert_false(gsp_names_changed(names, &all));
    line = 0; /* the resolver is not there for a while: what was known stays */
    usleep(20000);
    assert_false(gsp_names_changed(names, &all));
    line = 2;
    for (all.n = 0; all.n != 3 || all.at[0].ip[15] != 2 || all.at[2].ip[15] != 102; usleep(1000))
        (void)gsp_names_changed(names, &all); /* one look may have been half done */
    const gsp_address right[] = {test_address("192.0.2.2:7000"), test_address("192.0.2.250:7001"),
                                 test_address("192.0.2.102:7002")};
    for (int i = 0; i < 3; i++)
        assert_true(gsp_address_equal(&all.at[i], &right[i]));
    usleep(20000);
    assert_false(gsp_names_changed(names, &all)); /* it is told once */
    gsp_names_close(&names);
    assert_null(names);
    gsp_names_close(&names);
    /* Nobody waits for a resolver that hangs, and nothing is leaked with it. */
    test_must(gsp_names_open(announced, 3, each, 0.001, &names));
    hangs = 1;
    while (hangs != 2)
        usleep(1000);
    gsp_names_close(&names);
    hangs = 0;
    usleep(50000);
}

/* The same addresses in another order are no news; one fewer is. */
static void addresses_in_another_order(void **state)
{
    (void)state;
    static const char *const announced[] = {"c.example:7000"};
    gsp_meant each[1] = {0}, all = {0};
    gsp_names *names = NULL;
    line = 1;
    turn = 0;
    gsp_names_look(announced, 1, each);
    assert_int_equal(each[0].n, 2);
    test_must(gsp_names_open(announced, 1, each, 0.002, &names));
    turn = 1;
    usleep(20000);
    assert_false(gsp_names_changed(names, &all));
    turn = 2;
    while (!gsp_names_changed(names, &all))
        usleep(1000);
    assert_int_equal(all.n, 1);
    gsp_names_close(&names);
    turn = 0;
}

static void says_where_it_moved(void **state)
{
    (void)state;
    gsp_reach r = {.port = 4400, .n_announce = 1, .announce = {"a.example:7000"}};
    gsp_address out[2], at = test_address("192.0.2.3:7000");
    char text[200];
    line = 0;
    gsp_reach_look_up(&r);
    assert_false(gsp_reach_moved(&r, text, sizeof text)); /* nobody looks again */
    test_must(gsp_names_open(r.announce, 1, r.named, 0.002, &r.names));
    line = 3;
    while (!gsp_reach_moved(&r, text, sizeof text))
        usleep(1000);
    assert_string_equal(text,
                        "what this host announces is at 192.0.2.3:7000 now, no longer at nothing");
    assert_int_equal(gsp_reach_addresses(&r, out, 2), 1);
    assert_true(gsp_address_equal(&out[0], &at));
    line = 4;
    while (!gsp_reach_moved(&r, text, sizeof text))
        usleep(1000);
    assert_string_equal(
        text, "what this host announces is at 192.0.2.4:7000 now, no longer at 192.0.2.3:7000");
    gsp_reach_close(&r);
    assert_null(r.names);
}

static void looks_again_while_nobody_is_linked(void **state)
{
    (void)state;
    told t = {.net.ops = &OPS};
    const gsp_hosts hosts = {.n = 2, .host = {"192.0.2.7:4400", "plain+192.0.2.8:4400"}};
    gsp_seek s = {.net = &t.net, .hosts = &hosts};
    char text[256];
    gsp_seek_dial(&s);
    assert_int_equal(t.n_dials, 2);
    assert_string_equal(gsp_seek_text(&s, text, sizeof text), "looking for a member");
    uint64_t now = atom_clock_ns();
    gsp_seek_step(&s, false, now);
    gsp_seek_step(&s, false, now + 9 * SECOND);
    assert_int_equal(t.n_dials, 2);
    gsp_seek_step(&s, false, now + 11 * SECOND);
    assert_int_equal(t.n_dials, 4);
    assert_true(s.look_ns > atom_clock_ns() + 15 * SECOND); /* longer pauses */
    /* What refused us is shown, by the ticket's name for it; of others the last one. */
    gsp_net_event e = {.kind = GSP_NET_REFUSED, .why = "no"};
    e.address = test_address("192.0.2.8:4400");
    gsp_seek_refused(&s, &e);
    assert_true(s.news);
    e.address = test_address("192.0.2.9:1");
    gsp_seek_refused(&s, &e);
    assert_string_equal(gsp_seek_text(&s, text, sizeof text),
                        "looking for a member; none answers: they may be off, or the run may have "
                        "ended; tried 192.0.2.8:4400 (no), 192.0.2.9:1 (no)");
    assert_string_equal(gsp_seek_text(&s, text, 30), "looking for a member; none an");
    gsp_seek_step(&s, true, now + 12 * SECOND);
    assert_string_equal(gsp_seek_text(&s, text, sizeof text), "looking for a member");
    gsp_seek_step(&s, true, now + 900 * SECOND);
    assert_int_equal(t.n_dials, 4);
}

static void month_counts_what_is_new(void **state)
{
    (void)state;
    scratch place;
    gsp_month m;
    told t = {.net.ops = &OPS, .stats = {.wire_bytes_sent = 700, .wire_bytes_received = 90}};
    gsp_month_open(&m, scratch_open(&place)->dir, 1000, 0);
    assert_false(gsp_month_step(&m, &t.net));
    m.count_ns = 0; /* nothing passed since */
    assert_false(gsp_month_step(&m, &t.net));
    assert_int_equal(m.quota.up, 700);
    t.stats.wire_bytes_sent = 900;
    gsp_month_close(&m, &t.net);
    /* Another run: the transport begins at zero, the month does not. */
    t.stats.wire_bytes_sent = 99;
    gsp_month_open(&m, place.dir, 1000, 0);
    assert_int_equal(m.quota.up, 900);
    assert_false(gsp_month_step(&m, &t.net));
    t.stats.wire_bytes_sent = 100;
    m.count_ns = 0;
    assert_true(gsp_month_step(&m, &t.net));
    gsp_month_close(&m, NULL);
    scratch_close(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_best_first),
        cmocka_unit_test(is_where_most_see_it),
        cmocka_unit_test(names_are_looked_up_again),
        cmocka_unit_test(addresses_in_another_order),
        cmocka_unit_test(says_where_it_moved),
        cmocka_unit_test(looks_again_while_nobody_is_linked),
        cmocka_unit_test(month_counts_what_is_new),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
