/* LAN discovery on the loopback interface, in time that the test counts itself. */
#include "gossip/directory/lan.h"
#include "tests/lib/gossip_contact.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static const uint64_t SECOND_NS = 1000000000u;
enum { PORT = 45401 };

static gsp_lan *open_one(const test_pool *p, unsigned i)
{
    gsp_lan_config c = {.who = test_member(p, i), .interface = "lo", .port = PORT};
    gsp_lan *lan = NULL;
    atom_status st = gsp_lan_open(&c, &lan);
    if (st != ATOM_OK) {
        print_message("SKIP: %s\n", atom_fail_message());
        exit(77);
    }
    return lan;
}

static uint32_t taken(gsp_lan *lan, const test_pool *p, unsigned whose)
{
    gsp_lan_found found;
    uint32_t n = 0;
    while (gsp_lan_next(lan, &found)) {
        if (memcmp(found.contact.key, p->member[whose].public_key, 32) == 0)
            n++;
        static const uint8_t nowhere[16];
        assert_memory_not_equal(found.from.ip, nowhere, sizeof nowhere);
    }
    return n;
}

static void two_hear_each_other(void **state)
{
    (void)state;
    test_pool p;
    test_pool_make(&p, 1);
    uint64_t now = 1000 * SECOND_NS, now_s = test_now_s();
    gsp_lan *a = open_one(&p, 0), *b = open_one(&p, 1);
    gsp_contact of_a = test_contact(&p, 0, 1), of_b = test_contact(&p, 1, 1);
    gsp_lan_publish(a, &of_a);
    assert_int_equal(gsp_lan_wait_ns(a, now), 0);
    gsp_lan_step(a, now, now_s); /* says so at once */
    gsp_lan_step(b, now, now_s);
    assert_int_equal(taken(b, &p, 0), 1);
    gsp_lan_publish(b, &of_b);
    gsp_lan_step(b, now, now_s);
    gsp_lan_step(a, now, now_s);
    assert_int_equal(taken(a, &p, 1), 1);
    /* a heard somebody new: it answers within a second or so, and then keeps quiet. */
    assert_true(gsp_lan_wait_ns(a, now) <= SECOND_NS);
    gsp_lan_stats stats;
    for (int i = 0; i < 200; i++) { /* 50 seconds */
        now += SECOND_NS / 4;
        gsp_lan_step(a, now, now_s);
        gsp_lan_step(b, now, now_s);
    }
    assert_true(taken(b, &p, 0) >= 1);
    gsp_lan_read_stats(a, &stats);
    assert_in_range(stats.sent, 2, 4);
    assert_int_equal(stats.send_failed, 0);
    assert_true(stats.verdicts[GSP_CONTACT_SELF] > 0); /* it hears itself and knows it */
    /* What has expired is not said. */
    gsp_lan_step(a, now + 100 * SECOND_NS, of_a.expires_s + 1);
    uint64_t sent = stats.sent;
    gsp_lan_read_stats(a, &stats);
    assert_int_equal(stats.sent, sent);
    assert_true(gsp_lan_wait_ns(a, now + 100 * SECOND_NS) > 0);
    gsp_lan_close(&a);
    gsp_lan_close(&b);
}

/* A socket that sends what it likes to the group. */
static int open_enemy(struct sockaddr_in *group)
{
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ip_mreqn at = {.imr_ifindex = (int)if_nametoindex("lo")};
    *group = (struct sockaddr_in){.sin_family = AF_INET,
                                  .sin_port = htons(PORT),
                                  .sin_addr.s_addr = inet_addr("239.255.44.0")};
    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &at, sizeof at), 0);
    return fd;
}

static void floods_are_dropped(void **state)
{
    (void)state;
    test_pool p;
    struct sockaddr_in group;
    uint8_t data[1500];
    test_pool_make(&p, 1);
    uint64_t now = 1000 * SECOND_NS, now_s = test_now_s();
    gsp_lan *a = open_one(&p, 0);
    gsp_contact of_a = test_contact(&p, 0, 1);
    gsp_lan_publish(a, &of_a);
    int enemy = open_enemy(&group);
    const struct sockaddr *to = (const struct sockaddr *)&group;
    gsp_lan_stats before, after;
    for (uint32_t i = 0; i < 300; i++) { /* noise of all sizes */
        memset(data, (int)i, sizeof data);
        assert_true(sendto(enemy, data, i * 5, 0, to, sizeof group) >= 0);
        if (i % 50 == 49)
            gsp_lan_step(a, now, now_s);
    }
    gsp_lan_step(a, now, now_s);
    gsp_lan_read_stats(a, &before);
    assert_int_equal(before.verdicts[GSP_CONTACT_NOISE], 300);
    assert_int_equal(before.sent, 1);
    /* Somebody with the ticket, forged contacts: judged up to the rate, never answered. */
    for (uint32_t i = 0; i < 200; i++) {
        gsp_contact c = test_contact(&p, 1, i);
        c.samples++;
        size_t n = gsp_contact_seal(&c, p.psk, data);
        assert_true(sendto(enemy, data, n, 0, to, sizeof group) == (ssize_t)n);
        if (i % 50 == 49)
            gsp_lan_step(a, now, now_s);
    }
    gsp_lan_read_stats(a, &after);
    assert_int_equal(after.verdicts[GSP_CONTACT_FORGED], GSP_LAN_JUDGED_PER_SECOND);
    assert_int_equal(after.dropped - before.dropped, 200 - GSP_LAN_JUDGED_PER_SECOND);
    assert_int_equal(after.sent, before.sent);
    gsp_lan_found found;
    assert_false(gsp_lan_next(a, &found));
    /* A second later a member is heard again; many new ones still cost one packet a second. */
    for (uint32_t i = 0; i < 30; i++) {
        gsp_contact c = test_contact(&p, 1 + i, 1);
        size_t n = gsp_contact_seal(&c, p.psk, data);
        assert_true(sendto(enemy, data, n, 0, to, sizeof group) == (ssize_t)n);
    }
    for (int i = 0; i < 8; i++)
        gsp_lan_step(a, now + SECOND_NS + (uint64_t)i * SECOND_NS / 10, now_s);
    gsp_lan_read_stats(a, &after);
    assert_int_equal(after.verdicts[GSP_CONTACT_GOOD], 30);
    assert_int_equal(after.sent, 2);
    close(enemy);
    gsp_lan_close(&a);
}

static void send_contact(int enemy, const struct sockaddr_in *group, const test_pool *p, unsigned i,
                         uint64_t sequence)
{
    uint8_t data[GSP_CONTACT_SEALED_BYTES_MAX];
    gsp_contact c = test_contact(p, i, sequence);
    size_t n = gsp_contact_seal(&c, p->psk, data);
    assert_true(sendto(enemy, data, n, 0, (const struct sockaddr *)group, sizeof *group) ==
                (ssize_t)n);
}

/* Somebody without the ticket can record what a member says and send it again: that is heard once, also after a while, and
 * keeps nobody else from being heard. */
static void what_comes_again_is_not_heard_again(void **state)
{
    (void)state;
    test_pool p;
    struct sockaddr_in group;
    uint8_t data[2][GSP_CONTACT_SEALED_BYTES_MAX];
    size_t n[2];
    test_pool_make(&p, 1);
    uint64_t now = 1000 * SECOND_NS, now_s = test_now_s();
    gsp_lan *a = open_one(&p, 0);
    int enemy = open_enemy(&group);
    const gsp_contact of[2] = {test_contact(&p, 1, 1), test_contact(&p, 1, 2)};
    for (unsigned i = 0; i < 2; i++)
        n[i] = gsp_contact_seal(&of[i], p.psk, data[i]);
    for (unsigned i = 0; i < 4 * GSP_LAN_JUDGED_PER_SECOND; i++) {
        assert_true(
            sendto(enemy, data[i % 2], n[i % 2], 0, (struct sockaddr *)&group, sizeof group) > 0);
        if (i % 50 == 49)
            gsp_lan_step(a, now, now_s);
    }
    send_contact(enemy, &group, &p, 2, 1);
    gsp_lan_step(a, now, now_s);
    assert_int_equal(taken(a, &p, 2), 1);
    gsp_lan_stats stats;
    gsp_lan_read_stats(a, &stats);
    assert_int_equal(stats.verdicts[GSP_CONTACT_GOOD], 3);
    assert_int_equal(stats.dropped, 4 * GSP_LAN_JUDGED_PER_SECOND - 2);
    /* What has expired costs no signature, so however many there are, a member is heard. */
    for (unsigned i = 0; i < 2 * GSP_LAN_JUDGED_PER_SECOND; i++) {
        gsp_contact old = of[0];
        old.sequence = i;
        old.expires_s = old.issued_s - 1;
        n[0] = gsp_contact_seal(&old, p.psk, data[0]);
        assert_true(sendto(enemy, data[0], n[0], 0, (struct sockaddr *)&group, sizeof group) > 0);
        if (i % 50 == 49)
            gsp_lan_step(a, now + SECOND_NS, now_s);
    }
    send_contact(enemy, &group, &p, 3, 1);
    gsp_lan_step(a, now + SECOND_NS, now_s);
    assert_int_equal(taken(a, &p, 3), 1);
    close(enemy);
    gsp_lan_close(&a);
}

/* Who is new is answered within half a second, though never a second time within one; who was heard lately is not,
 * and is new again after three periods of silence. */
static void answers_who_is_new(void **state)
{
    (void)state;
    test_pool p;
    struct sockaddr_in group;
    test_pool_make(&p, 1);
    uint64_t now = 1000 * SECOND_NS, now_s = test_now_s();
    gsp_lan *a = open_one(&p, 0);
    gsp_contact of_a = test_contact(&p, 0, 1);
    int enemy = open_enemy(&group);
    assert_true(gsp_lan_wait_ns(a, now) == 60 * SECOND_NS); /* there is nothing to say */
    gsp_lan_publish(a, &of_a);
    gsp_lan_step(a, now, now_s);
    now += SECOND_NS / 10;
    send_contact(enemy, &group, &p, 1, 1);
    send_contact(enemy, &group, &p, 2, 1);
    gsp_lan_step(a, now, now_s);
    assert_true(gsp_lan_wait_ns(a, now) == SECOND_NS / 10 * 9); /* it spoke a tenth ago */
    for (unsigned i = 0; i < 8; i++) {
        now += gsp_lan_wait_ns(a, now);
        gsp_lan_step(a, now, now_s); /* speaks */
        now += 2 * SECOND_NS;
        const uint64_t before = gsp_lan_wait_ns(a, now);
        assert_in_range(before, 50 * SECOND_NS, 58 * SECOND_NS);
        send_contact(enemy, &group, &p, 1, 2 + i);
        send_contact(enemy, &group, &p, 2, 2 + i);
        gsp_lan_step(a, now, now_s);
        assert_true(gsp_lan_wait_ns(a, now) == before);
    }
    now += gsp_lan_wait_ns(a, now);
    gsp_lan_step(a, now, now_s);
    const uint64_t silent = now + 181 * SECOND_NS;
    while (now + gsp_lan_wait_ns(a, now) < silent) {
        now += gsp_lan_wait_ns(a, now);
        gsp_lan_step(a, now, now_s);
    }
    now += 2 * SECOND_NS;
    send_contact(enemy, &group, &p, 1, 20);
    gsp_lan_step(a, now, now_s);
    assert_true(gsp_lan_wait_ns(a, now) <= SECOND_NS / 2);
    now += gsp_lan_wait_ns(a, now);
    gsp_lan_step(a, now, now_s);
    now += gsp_lan_wait_ns(a, now) - 1000; /* what is due at once is not put off for new ones */
    for (unsigned i = 3; i < 9; i++) {
        send_contact(enemy, &group, &p, i, 1);
        gsp_lan_step(a, now, now_s);
        assert_true(gsp_lan_wait_ns(a, now) <= 1000);
    }
    close(enemy);
    gsp_lan_close(&a);
}

/* What is said stays on the link: no router passes it on. */
static void is_heard_on_the_link_only(void **state)
{
    (void)state;
    test_pool p;
    struct sockaddr_in group;
    test_pool_make(&p, 1);
    gsp_lan *a = open_one(&p, 0);
    gsp_contact of_a = test_contact(&p, 0, 1);
    struct ip_mreqn at = {.imr_ifindex = (int)if_nametoindex("lo")};
    int on = 1, fd = open_enemy(&group);
    at.imr_multiaddr = group.sin_addr;
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
    assert_int_equal(setsockopt(fd, IPPROTO_IP, IP_RECVTTL, &on, sizeof on), 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&group, sizeof group), 0);
    assert_int_equal(setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &at, sizeof at), 0);
    gsp_lan_publish(a, &of_a);
    gsp_lan_step(a, SECOND_NS, test_now_s());
    char data[2000];
    _Alignas(struct cmsghdr) char control[100];
    struct iovec into = {data, sizeof data};
    struct msghdr m = {.msg_iov = &into,
                       .msg_iovlen = 1,
                       .msg_control = control,
                       .msg_controllen = sizeof control};
    assert_true(recvmsg(fd, &m, MSG_DONTWAIT) > 100);
    const struct cmsghdr *said = CMSG_FIRSTHDR(&m);
    int ttl = 0;
    assert_true(said && said->cmsg_level == IPPROTO_IP && said->cmsg_type == IP_TTL);
    memcpy(&ttl, CMSG_DATA(said), sizeof ttl);
    assert_int_equal(ttl, 1);
    close(fd);
    gsp_lan_close(&a);
}

static bool fake_interfaces;
static struct ifaddrs *interfaces;
int __real_getifaddrs(struct ifaddrs **out);
int __wrap_getifaddrs(struct ifaddrs **out);
int __wrap_getifaddrs(struct ifaddrs **out)
{
    *out = interfaces;
    return fake_interfaces ? 0 : __real_getifaddrs(out);
}

void __real_freeifaddrs(struct ifaddrs *list);
void __wrap_freeifaddrs(struct ifaddrs *list);
void __wrap_freeifaddrs(struct ifaddrs *list)
{
    if (!fake_interfaces)
        __real_freeifaddrs(list);
}

/* A host that is started before its network comes is heard as soon as that is there. */
static void a_network_may_come_later(void **state)
{
    (void)state;
    test_pool p;
    struct sockaddr_in at = {.sin_family = AF_INET};
    struct ifaddrs one = {.ifa_name = (char *)"lo", .ifa_addr = (struct sockaddr *)&at};
    const unsigned up = IFF_UP | IFF_RUNNING | IFF_MULTICAST;
    gsp_lan *a = NULL;
    gsp_lan_stats stats;
    test_pool_make(&p, 1);
    const gsp_lan_config c = {.who = test_member(&p, 0), .port = PORT};
    const gsp_contact of_a = test_contact(&p, 0, 1);
    uint64_t now = 1000 * SECOND_NS, now_s = test_now_s();
    fake_interfaces = true;
    test_must(gsp_lan_open(&c, &a));
    gsp_lan *b = open_one(&p, 1);
    gsp_lan_publish(a, &of_a);
    gsp_lan_step(a, now, now_s);
    interfaces = &one; /* it is there, but not up */
    gsp_lan_step(a, now + 11 * SECOND_NS, now_s);
    gsp_lan_read_stats(a, &stats);
    assert_int_equal(stats.interfaces + stats.sent, 0);
    one.ifa_flags = up;
    gsp_lan_step(a, now + 20 * SECOND_NS, now_s); /* it looks every ten seconds */
    assert_int_equal(gsp_lan_wait_ns(a, now + 20 * SECOND_NS) > 0, true);
    gsp_lan_step(a, now + 22 * SECOND_NS, now_s);
    gsp_lan_read_stats(a, &stats);
    assert_int_equal(stats.interfaces, 1);
    assert_int_equal(stats.sent, 1);
    gsp_lan_step(b, now, now_s);
    assert_int_equal(taken(b, &p, 0), 1);
    gsp_lan_step(a, now + 33 * SECOND_NS, now_s); /* the same one is nothing new */
    gsp_lan_read_stats(a, &stats);
    assert_int_equal(stats.sent, 1);
    fake_interfaces = false;
    gsp_lan_close(&a);
    gsp_lan_close(&b);
}

static void says_what_is_wrong(void **state)
{
    (void)state;
    test_pool p;
    test_pool_make(&p, 1);
    gsp_lan *lan = NULL;
    gsp_lan_config c = {.who = test_member(&p, 0), .interface = "nosuchdevice0"};
    assert_int_equal(gsp_lan_open(&c, &lan), ATOM_E_USAGE);
    assert_non_null(strstr(atom_fail_message(), "nosuchdevice0"));
    c.interface = NULL;
    test_must(gsp_lan_open(&c, &lan)); /* as this host's interfaces are */
    gsp_lan_close(&lan);
    gsp_lan_close(&lan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_hear_each_other),
        cmocka_unit_test(floods_are_dropped),
        cmocka_unit_test(what_comes_again_is_not_heard_again),
        cmocka_unit_test(answers_who_is_new),
        cmocka_unit_test(is_heard_on_the_link_only),
        cmocka_unit_test(a_network_may_come_later),
        cmocka_unit_test(says_what_is_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
