/*
 * The files of a box with several pools: what pools.yml says is what is read, each kind of mistake is
 * one line that says where and what, and the ledger comes back as it was written or is refused.
 */
#include "atom/base/clock.h"
#include "atom/base/mem.h"
#include "atom/host/host.h"
#include "atom/host/ledger.h"
#include "gossip/trust/ticket.h"
#include "tests/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static host_pools *parse(const char *text)
{
    host_pools *f = NULL;
    if (host_pools_parse("box/pools.yml", text, strlen(text), &f) != ATOM_OK)
        fail_msg("%s", atom_fail_message());
    return f;
}

static void test_what_it_says(void **state)
{
    (void)state;
    host_pools *f = parse("slice_seconds: 90\n"
                          "hours: 22:00-07:00\n"
                          "pools:\n"
                          "  - dir: friends/\n"
                          "    share: 2.5\n"
                          "  - dir: /var/cats\n"
                          "    ticket: cats.txt\n"
                          "    name: meow\n"
                          "    hours: 00:00-06:00,12:00-13:00\n"
                          "    devices: 2\n");
    assert_true(f->slice_seconds == 90);
    assert_string_equal(f->hours, "22:00-07:00");
    assert_int_equal(f->n, 2);
    assert_string_equal(f->pool[0].dir, "box/friends/");
    assert_string_equal(f->pool[0].name, "friends");
    assert_true(f->pool[0].share == 2.5 && !f->pool[0].ticket && !f->pool[0].hours);
    assert_string_equal(f->pool[1].dir, "/var/cats");
    assert_string_equal(f->pool[1].ticket, "box/cats.txt");
    assert_string_equal(f->pool[1].name, "meow");
    assert_true(f->pool[1].share == 1);
    assert_int_equal(f->pool[0].devices, -1);
    assert_int_equal(f->pool[1].devices, 2);
    assert_int_equal(f->pool[1].line, 6);
    host_pools_close(&f);

    f = parse("pools:\n- dir: a\n  name: a23456789012345678901234567890123456789012345678\n");
    assert_int_equal(strlen(f->pool[0].name), 48);
    host_pools_close(&f);
    f = parse("pools:\n- dir: a\n");
    assert_true(f->slice_seconds == -1 && !f->hours);
    host_pools_close(&f);
}

static void refused(const char *text, const char *says)
{
    host_pools *f = NULL;
    assert_int_equal(host_pools_parse("p.yml", text, strlen(text), &f), ATOM_E_USAGE);
    assert_null(f);
    if (!strstr(atom_fail_message(), says))
        fail_msg("'%s' does not say '%s'", atom_fail_message(), says);
    if (strncmp(atom_fail_message(), "p.yml", 5) != 0)
        fail_msg("'%s' does not begin with the file", atom_fail_message());
}

static void test_mistakes(void **state)
{
    (void)state;
    refused("", "there are no pools in it");
    refused("# nothing\n", "there are no pools in it");
    refused("pools: []\n", "there are no pools in it");
    refused("hours: 22:00-07:00\n", "there are no pools in it");
    refused("pools:\n  - dir: a\n    shares: 2\n",
            "p.yml:3:5: unknown key 'shares' in pools (did you mean 'share'?)");
    refused("pool:\n  - dir: a\n", "1:1: unknown key 'pool' in the pools of a box (did you mean "
                                   "'pools'?)");
    refused("pools:\n  - dir: a\n    share: 0\n", "3:12: share");
    refused("pools:\n  - dir: a\n    share: -1\n", "3:12: share");
    refused("pools:\n  - dir: a\n    share: many\n", "3:12: share");
    refused("pools:\n  - dir: a\n    share:\n", "'share' has no value");
    refused("pools:\n  - dir: a\n    devices: 0\n", "3:14: devices");
    refused("pools:\n  - dir: a\n    devices: 9\n", "3:14: devices");
    refused("slice_seconds: 1e-30\npools:\n  - dir: a\n", "1:16: slice_seconds");
    refused("slice_seconds: 0\npools:\n  - dir: a\n", "1:16: slice_seconds");
    refused("pools:\n  - share: 1\n", "needs 'dir'");
    refused("pools:\n  - a\n", "must have `key: value` lines");
    refused("pools: a\n", "must be a list");
    refused("pools:\n  - dir: [a]\n", "must be a plain value");
    refused("pools:\n  - dir: a\n    dir: b\n", "'dir' was already set");
    refused("pools:\n  - dir: a\npools:\n  - dir: b\n", "'pools' was already set");
    refused("pools:\n  - dir: a\n  - dir: a\n", "p.yml:3: a is also the directory of the pool in "
                                                "line 2");
    refused("pools:\n  - dir: a/x\n  - dir: b/x\n", "the pool in line 2 is also called 'x'");
    refused("pools:\n  - dir: a\n    name: a b\n", "cannot be the name of a pool");
    refused("pools:\n  - dir: a\n    name: .a\n", "cannot be the name of a pool");
    refused("pools:\n  - dir: a\n    name: a234567890123456789012345678901234567890123456789\n",
            "cannot be the name of a pool");
    refused("pools:\n  - dir: a\n    hours: late\n", "p.yml:2: hours 'late'");
    refused("hours: 25:00-26:00\npools:\n  - dir: a\n", "hours '25:00-26:00'");
    refused("pools:\n  - dir: a\n    hours: 22:00-22:00\n", "p.yml:2: hours '22:00-22:00'");
    refused("pools:\n  - dir: ~/friends\n", "p.yml:2:10: dir: '~/friends': ~ means");
    refused("pools:\n  - dir: a\n    ticket: ~/t.txt\n", "ticket: '~/t.txt': ~ means");
    refused("pools:\n  - &x\n    dir: a\n  - *x\n", "aliases");
    refused("pools:\n  - dir: !!int 3\n", "tags");
    refused("pools:\n  - dir: a\n---\npools:\n  - dir: b\n", "a second YAML document");
    refused("pools:\n  - dir: a\n   share: 2\n", "not YAML");
    refused("pools: \x01\n", "p.yml");
    host_pools *f = NULL;
    assert_int_equal(host_pools_read("nowhere/pools.yml", &f), ATOM_E_USAGE);
    assert_non_null(strstr(atom_fail_message(), "there is no nowhere/pools.yml"));
}

/* Which directories there are, and that no two pools are one. */
static void test_directories(void **state)
{
    static const char text[] = "pools:\n  - dir: a\n  - dir: b\n    ticket: t\n";
    char ticket[GSP_TICKET_TEXT_BYTES];
    scratch s;
    (void)state;
    scratch_open(&s);
    host_pools *f = NULL;
    assert_int_equal(host_pools_parse(scratch_path(&s, "pools.yml"), text, strlen(text), &f),
                     ATOM_OK);
    assert_int_equal(host_pools_check(f), ATOM_E_USAGE);
    assert_non_null(strstr(atom_fail_message(), "pools.yml:2: "));
    assert_non_null(
        strstr(atom_fail_message(), "holds no membership in a pool; join the pool once"));
    assert_int_equal(mkdir(scratch_path(&s, "a"), 0700), 0);
    assert_int_equal(host_pools_check(f), ATOM_E_USAGE); /* empty */
    assert_int_equal(mkdir(scratch_path(&s, "a/pool"), 0700), 0);
    scratch_write(&s, "a/pool/keys", "x", 1);
    assert_int_equal(host_pools_check(f), ATOM_E_USAGE); /* a join that was cut off */
    assert_non_null(strstr(atom_fail_message(), "holds no membership in a pool"));
    scratch_write(&s, "a/pool/manifest.json", "x", 1);
    assert_int_equal(host_pools_check(f), ATOM_E_USAGE);
    assert_non_null(strstr(atom_fail_message(), "with a ticket"));
    scratch_write(&s, "t", "x", 1);
    assert_int_equal(host_pools_check(f), ATOM_E_USAGE);
    assert_non_null(strstr(atom_fail_message(), "pools.yml:3: "));
    assert_non_null(strstr(atom_fail_message(), "/t: there is no ticket in it"));
    scratch_write(&s, "t", "atom1-AAAA", 10);
    assert_int_equal(host_pools_check(f), ATOM_E_USAGE);
    assert_non_null(strstr(atom_fail_message(), "/t: ticket: "));
    assert_int_equal(gsp_ticket_text(&(gsp_ticket){.manifest = 1}, ticket), ATOM_OK);
    scratch_write(&s, "t", ticket, strlen(ticket));
    assert_int_equal(host_pools_check(f), ATOM_OK);
    assert_int_equal(symlink("a", scratch_path(&s, "b")), 0); /* another name for the same place */
    assert_int_equal(host_pools_check(f), ATOM_E_USAGE);
    assert_non_null(strstr(atom_fail_message(), "is also the directory of the pool in line 2"));
    host_pools_close(&f);
    assert_int_equal(unlink(scratch_path(&s, "b")), 0);
    scratch_close(&s);
}

static void test_ledger(void **state)
{
    scratch s;
    (void)state;
    scratch_open(&s);
    const char *path = scratch_path(&s, "ledger.json");
    host_pools *f = parse("pools:\n  - dir: a\n    share: 3\n  - dir: b\n");
    host_turn turns[HOST_POOLS_MAX];
    host_process process, me;
    double passed;
    assert_int_equal(host_ledger_read(path, f, turns, &process, &passed), ATOM_OK);
    assert_true(turns[0].level == -1 && turns[0].share == 3 && process.pid == 0 && passed == 0);
    host_process_read(getpid(), &me);
    turns[0].level = 1.0 / 3;
    turns[0].computed_s = 77;
    turns[0].switch_s = 4.5;
    turns[1].level = 12;
    assert_int_equal(host_ledger_save(path, f, turns, &me), ATOM_OK);
    host_pools_close(&f);

    f = parse("pools:\n  - dir: c\n  - dir: b\n  - dir: a\n    share: 5\n"); /* another order */
    assert_int_equal(host_ledger_read(path, f, turns, &process, &passed), ATOM_OK);
    assert_true(turns[0].level == -1 && turns[1].level == 12 && turns[2].level == 1.0 / 3);
    assert_true(turns[2].computed_s == 77 && turns[2].switch_s == 4.5 && turns[2].share == 5);
    assert_true(process.pid == getpid() && host_process_lives(&process));
    assert_true(passed >= 0 && passed < 60);
    host_pools_close(&f);
    scratch_close(&s);
}

static void test_broken_ledgers(void **state)
{
    (void)state;
    static const char *const broken[] = {
        "",
        "{}",
        "[]",
        "{\"saved_s\": 1}",
        "{\"pools\": []}",
        "{\"saved_s\": 1, \"pools\": [{\"name\": \"a\", \"computed_s\": 1e13}]}",
        "{\"saved_s\": 1, \"pools\": [], \"process\": {\"pid\": 1, \"start\": 1, \"boot\": "
        "\"0123456789012345678901234567890123456789012345678901234567890123456789\"}}",
        "{\"saved_s\": -1, \"pools\": []}",
        "{\"saved_s\": 1, \"pools\": {}}",
        "{\"saved_s\": 1, \"pools\": [{\"name\": \"a\", \"level\": -4}]}",
        "{\"saved_s\": 1, \"pools\": [{\"name\": \"a\", \"level\": \"x\"}]}",
        "{\"saved_s\": 1, \"pools\": [], \"process\": 7}",
        "{\"saved_s\": 1, \"pools\": [], \"process\": {\"pid\": -1, \"start\": 1, \"boot\": \"\"}}",
    };
    host_pools *f = parse("pools:\n  - dir: a\n");
    host_turn turns[HOST_POOLS_MAX];
    host_process process;
    double passed;
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        if (host_ledger_parse("l", broken[i], strlen(broken[i]), 9, f, turns, &process, &passed) !=
            ATOM_E_FORMAT)
            fail_msg("taken: %s", broken[i]);
        assert_non_null(strstr(atom_fail_message(), "remove it"));
    }
    static const char later[] = "{\"saved_s\": 100, \"pools\": []}";
    assert_int_equal(host_ledger_parse("l", later, strlen(later), 40, f, turns, &process, &passed),
                     ATOM_OK);
    assert_true(passed == 0); /* the clock was set back */
    assert_int_equal(host_ledger_parse("l", later, strlen(later), 140, f, turns, &process, &passed),
                     ATOM_OK);
    assert_true(passed == 40);
    static const char alike[] = "{\"saved_s\": 1, \"pools\": [{\"name\": \"ab\", \"level\": 3}]}";
    assert_int_equal(host_ledger_parse("l", alike, strlen(alike), 9, f, turns, &process, &passed),
                     ATOM_OK);
    assert_true(turns[0].level == -1); /* that is another pool */
    host_pools_close(&f);
}

/* A process is its number, its start and its boot; one that has ended is none. */
static void test_processes(void **state)
{
    host_process me, other;
    (void)state;
    host_process_read(getpid(), &me);
    assert_int_equal(me.pid, getpid());
    assert_true(host_process_lives(&me));
    other = me;
    other.start++;
    assert_false(host_process_lives(&other));
    other = me;
    other.boot[0] ^= 1;
    assert_false(host_process_lives(&other));
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    siginfo_t how;
    assert_int_equal(waitid(P_PID, (id_t)pid, &how, WEXITED | WNOWAIT), 0);
    host_process_read(pid, &other); /* a zombie */
    assert_int_equal(other.pid, 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    host_process_read(pid, &other);
    assert_int_equal(other.pid, 0);
    assert_false(host_process_lives(&(host_process){0}));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_it_says),   cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_directories),    cmocka_unit_test(test_ledger),
        cmocka_unit_test(test_broken_ledgers), cmocka_unit_test(test_processes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
