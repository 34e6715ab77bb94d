/*
 * The description of a pool: what it says is what is read, the network follows from it, and each
 * kind of mistake is one line that says where and what.
 */
#include "atom/plan/pool_net.h"

#include "atom/base/mem.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const plan_pool_change AS_IT_IS = {.more = -1, .faster = 1};

static plan_pool_file *parse(const char *text)
{
    plan_pool_file *f = NULL;
    if (plan_pool_file_parse("p.yml", text, strlen(text), &f) != ATOM_OK)
        fail_msg("%s", atom_fail_message());
    return f;
}

static const char EXAMPLE[] = "step_tokens: 65536\n"
                              "codec: bf16\n"
                              "hosts:\n"
                              "  - {name: box, device: rtx-4090, host_memory: 64GiB, link: "
                              "home-100-20, region: eu, count: 2}\n"
                              "  - {device: h100, disk: 1TB, link: mine, region: us}\n"
                              "links:\n"
                              "  - {name: mine, down_mbit: 16, up_mbit: 8, delay_ms: 30}\n"
                              "regions:\n"
                              "  - between: [us, eu]\n"
                              "    delay_ms: 45\n";

static void near(double a, double b)
{
    assert_true(fabs(a - b) <= 1e-9 * fabs(b));
}

static void reads_what_it_says(void **state)
{
    (void)state;
    plan_pool_file *f = parse(EXAMPLE);
    plan_pool_net *net = NULL;
    assert_int_equal(f->step_tokens, 65536);
    assert_string_equal(plan_pool_codec_name(f->codec), "bf16");
    assert_int_equal(plan_pool_hosts(f), 3);
    assert_int_equal(f->entries[0].host_memory, (uint64_t)64 << 30);
    assert_int_equal(f->entries[1].disk, 1000000000000ull);
    assert_int_equal(f->entries[1].line, 5);
    assert_int_equal(plan_pool_net_open(f, &AS_IT_IS, &net), ATOM_OK);
    assert_string_equal(net->name[0], "box-1");
    assert_string_equal(net->name[2], "h100");
    near(net->up[0], 20e6 / 8);
    near(net->down[0], 100e6 / 8);
    near(net->rate[0 * 3 + 2], 16e6 / 8); /* box's 20 up, 16 down */
    near(net->rate[2 * 3 + 0], 8e6 / 8);
    near(net->delay[0 * 3 + 2], 0.008 + 0.030 + 0.045);
    near(net->delay[2 * 3 + 0], 0.008 + 0.030 + 0.045);
    near(net->delay[0 * 3 + 1], 0.008 + 0.008);
    plan_pool_net_close(&net);
    const plan_pool_change change = {.more = 0, .link = "mine", .faster = 2};
    assert_int_equal(plan_pool_net_open(f, &change, &net), ATOM_OK);
    assert_int_equal(net->n, 4);
    assert_string_equal(net->name[2], "box-3");
    near(net->up[3], 16e6 / 8);
    near(net->up[0], 20e6 / 8);
    plan_pool_net_close(&net);
    plan_pool_file_close(&f);
}

static void hosts_without_a_name_get_one_each(void **state)
{
    (void)state;
    plan_pool_file *f = parse("hosts:\n"
                              "  - {device: rtx-4090, link: lan}\n"
                              "  - {device: rtx-4090, host_memory: 32GiB, link: lan, count: 2}\n"
                              "  - {device: dir/box.json, link: lan}\n");
    assert_string_equal(f->entries[0].name, "rtx-4090");
    assert_string_equal(f->entries[1].name, "rtx-4090.2");
    assert_string_equal(f->entries[2].name, "box");
    plan_pool_file_close(&f);
}

static void refused(const char *text, const char *says)
{
    plan_pool_file *f = NULL;
    plan_pool_net *net = NULL;
    atom_status st = plan_pool_file_parse("p.yml", text, strlen(text), &f);
    if (st == ATOM_OK)
        st = plan_pool_net_open(f, &AS_IT_IS, &net);
    if (st != ATOM_E_USAGE || !strstr(atom_fail_message(), says) ||
        strchr(atom_fail_message(), '\n'))
        fail_msg("%s\n gave %d: %s", text, st, st ? atom_fail_message() : "");
    plan_pool_net_close(&net);
    plan_pool_file_close(&f);
}

#define BOX "{name: box, device: rtx-4090, link: lan}"

static void one_line_for_each_mistake(void **state)
{
    (void)state;
    refused("", "there are no hosts in it");
    refused("hosts: []", "there are no hosts in it");
    refused("- 1", "p.yml:1:1: expected `key: value` lines");
    refused("hosts: 3", "'hosts' must be a list");
    refused("hosts: [3]", "an item of hosts must have");
    refused("host: []", "unknown key 'host' in the description of a pool (did you mean 'hosts'?)");
    refused("hosts:\n  - {devise: rtx-4090}", "p.yml:2:6: unknown key 'devise' in hosts (did you "
                                              "mean 'device'?)");
    refused("hosts:\n  - {zzz: 1}", "it may have name, device");
    refused("hosts:\n  - {device: a, device: b}", "'device' was already set");
    refused("hosts: [" BOX "]\nhosts: [" BOX "]", "'hosts' was already set");
    refused("hosts:\n  - {link: lan}", "needs 'device'");
    refused("hosts:\n  - {device: a, profile: b, link: lan}", "leave one of them out");
    refused("hosts:\n  - {device: a}", "needs 'link', such as home-100-20");
    refused("hosts:\n  - {device: a, link: lan, count: 0}", "count");
    refused(
        "hosts:\n  - {device: a, link: lan, count: 400}\n  - {device: b, link: lan, count: 400}",
        "800 hosts are too many; there may be at most 512");
    refused("hosts:\n  - {device: a, link: fiber}", "did you mean 'fibre'?");
    refused("hosts:\n  - {device: a, link: home-100-0}", "no link is called 'home-100-0'");
    refused("hosts:\n  - {device: a, link: x}\nlinks:\n  - {name: x, down_mbit: 0, up_mbit: 1, "
            "delay_ms: 1}",
            "down_mbit");
    refused("hosts: [" BOX "]\nlinks:\n  - {name: x, up_mbit: 1, delay_ms: 1}",
            "this item of links needs 'down_mbit'");
    refused("hosts:\n  - " BOX "\n  - " BOX, "'box' is also the name of a host in line 2");
    refused("hosts:\n  - {name: a-1, device: d, link: lan}\n  - {name: a, device: d, link: lan, "
            "count: 2}",
            "'a-1' is also the name of a host in line 3");
    refused("hosts:\n  - {name: a b, device: d, link: lan}", "the name 'a b' must have");
    refused(
        "hosts:\n  - {device: d, link: lan, region: eu}\n  - {device: e, link: lan, region: us}",
        "the delay between 'eu' and 'us' is missing");
    refused("hosts:\n  - {device: d, link: lan, region: eu}\n  - {device: e, link: lan}",
            "p.yml:3: this host has no 'region'");
    refused(
        "hosts:\n  - {device: d, link: lan, region: asia}\nregions:\n  - {between: [asia, asai],"
        " delay_ms: 1}",
        "no host is in the region 'asai' (did you mean 'asia'?)");
    refused("hosts: [" BOX "]\nregions:\n  - {between: [a], delay_ms: 1}", "must name two regions");
    refused("hosts: [" BOX "]\ndelays_csv: d.csv", "must be given together");
    refused("hosts: [" BOX "]\ndelays_csv: d.csv\nmbit_csv: m.csv", "leave 'link' out");
    refused("hosts: [{device: a}]\ndelays_csv: no.csv\nmbit_csv: m.csv",
            "there is no file no.csv with the matrix");
    refused("hosts:\n  - &a " BOX "\n  - *a", "aliases (*name) are not accepted here");
    refused("hosts: !x [" BOX "]", "tags (!x) are not accepted here");
    refused("hosts: [" BOX "]\n--- \nhosts: []", "a second YAML document");
    refused("hosts: [", "not YAML");
    refused("codec: int9\nhosts: [" BOX "]", "codec");
    refused("hosts:\n  - {device: , link: lan}", "'device' has no value");
}

static void matrices_must_fit(void **state)
{
    (void)state;
    double m[9];
    assert_int_equal(plan_pool_matrix_parse("m.csv", ",1, 2\r\n\n3,,4\n5,6,0\n", 3, 2, m), ATOM_OK);
    assert_true(m[1] == 2 && m[2] == 4 && m[3] == 6 && m[5] == 8 && m[7] == 12);
    static const char *const bad[][2] = {
        {"0,1\n1,0\n", "m.csv:1: 2 cells; there are 3 hosts"},
        {"0,1,2\n1,0,2\n", "m.csv: 2 rows; there are 3 hosts"},
        {"0,1,2\n1,0,2\n1,2,0\n1,2,3\n", "m.csv:4: more than 3 rows"},
        {"0,1,2,3\n", "m.csv:1: more than 3 cells"},
        {"0,x,2\n", "m.csv:1: cell 2 is not a number"},
        {"0,,2\n", "m.csv:1: cell 2 is not a number"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(plan_pool_matrix_parse("m.csv", bad[i][0], 3, 1, m), ATOM_E_USAGE);
        if (!strstr(atom_fail_message(), bad[i][1]))
            fail_msg("%s", atom_fail_message());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_it_says),
        cmocka_unit_test(hosts_without_a_name_get_one_each),
        cmocka_unit_test(one_line_for_each_mistake),
        cmocka_unit_test(matrices_must_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
