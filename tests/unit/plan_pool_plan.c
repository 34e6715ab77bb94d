/*
 * A described pool, planned: the figures are those of placement over each host's own plan, only what
 * atom trains is recommended, a change is the same question asked again, and hosts that are too
 * small are named.
 */
#include "atom/plan/pool_plan.h"

#include "tests/unit/part_common.h"

#include <math.h>
#include <stdio.h>

static const char FRIENDS[] =
    "step_tokens: 16384\n"
    "hosts:\n"
    "  - {name: box, device: rtx-4090, host_memory: 64GiB, link: lan, count: 3}\n";

typedef struct asked {
    graph *g;
    plan_pool_file *f;
    plan_pool *p;
    atom_status st;
} asked;

static asked ask_with(const char *text, uint64_t beside)
{
    asked a = {.g = fused_preset("gpt2-124m", ATOM_BF16, 1, 512)};
    if (plan_pool_file_parse("p.yml", text, strlen(text), &a.f) != ATOM_OK)
        fail_msg("%s", atom_fail_message());
    const plan_pool_request request = {.g = a.g, .file = a.f, .beside = {beside, 0, 0}};
    a.st = plan_pool_open(&request, &a.p);
    return a;
}

static asked ask(const char *text)
{
    asked a = ask_with(text, 0);
    if (a.st != ATOM_OK)
        fail_msg("%s", atom_fail_message());
    return a;
}

static void leave(asked *a)
{
    plan_pool_close(&a->p);
    plan_pool_file_close(&a->f);
    graph_close(&a->g);
}

static void prices_by_placement(void **state)
{
    (void)state;
    asked a = ask(FRIENDS);
    const plan_pool *p = a.p;
    place_candidate again;
    assert_int_equal(p->problem.micro_batches, 32);
    assert_int_equal(p->problem.n_kinds, 1);
    for (int mode = PLACE_GRADIENTS; mode <= PLACE_PARAMETERS; mode++) {
        assert_int_equal(place_whole(&p->problem, (place_mode)mode, &again), ATOM_OK);
        assert_true(p->way[mode].possible);
        assert_true(p->way[mode].tokens_per_second == again.tokens_per_second);
    }
    assert_true(p->way[PLACE_STAGES].possible);
    assert_true(p->recommended == PLACE_GRADIENTS || p->recommended == PLACE_PARAMETERS);
    leave(&a);
}

static const plan_pool_outcome *find(const plan_pool *p, const char *words)
{
    for (uint32_t i = 0; i < p->n_changes; i++)
        if (strcmp(p->changes[i].change, words) == 0)
            return &p->changes[i];
    fail_msg("no change \"%s\"", words);
    return NULL;
}

static void a_change_is_the_same_question_again(void **state)
{
    (void)state;
    asked a = ask(FRIENDS), four = ask("step_tokens: 16384\n"
                                       "hosts:\n"
                                       "  - {name: box, device: rtx-4090, host_memory: 64GiB, "
                                       "link: lan, count: 4}\n");
    double one_more = find(a.p, "one more host like box")->tokens_per_second;
    double asked_so = four.p->way[a.p->changes_of].tokens_per_second;
    /* a host's share of the step, for which its swapping is planned, is 8 instead of 10 there */
    assert_true(fabs(one_more / asked_so - 1) < 0.1);
    assert_true(find(a.p, "lan lines twice as fast")->tokens_per_second >=
                a.p->way[a.p->changes_of].tokens_per_second);
    leave(&a);
    leave(&four);
}

static void memory_of_the_pool_counts(void **state)
{
    (void)state;
    asked a = ask_with(FRIENDS, (uint64_t)64 << 30);
    assert_false(a.p->way[PLACE_GRADIENTS].possible);
    assert_non_null(
        strstr(a.p->way[PLACE_GRADIENTS].why, "the pool alone, without training, takes"));
    assert_true(a.p->way[PLACE_PARAMETERS].possible);
    assert_int_equal(a.p->recommended, PLACE_PARAMETERS);
    leave(&a);
}

static void stages_are_never_recommended(void **state)
{
    (void)state;
    asked a = ask("step_tokens: 16384\n"
                  "hosts:\n"
                  "  - {name: box, device: rtx-4090, host_memory: 1400MiB, link: lan, count: 4}\n");
    assert_false(a.p->way[PLACE_GRADIENTS].possible);
    assert_false(a.p->way[PLACE_PARAMETERS].possible);
    assert_true(a.p->way[PLACE_STAGES].possible);
    assert_int_equal(a.p->recommended, -1);
    assert_int_equal(a.p->changes_of, PLACE_STAGES);
    assert_true(a.p->n_changes > 0);
    leave(&a);
}

static void names_hosts_that_are_too_small(void **state)
{
    (void)state;
    asked a = ask_with("hosts:\n"
                       "  - {name: box, device: rtx-4090, link: lan}\n"
                       "  - {name: watch, device: rtx-4090, host_memory: 16MiB, link: lan}\n",
                       0);
    assert_int_equal(a.st, ATOM_E_RESOURCE);
    assert_non_null(strstr(atom_fail_message(), "p.yml:3: watch is too small for any part"));
    leave(&a);
}

static void names_devices_that_nobody_described(void **state)
{
    (void)state;
    bool native;
    plan_pool_file *f = NULL;
    static const char text[] = "hosts: [{device: rtx-4091, link: lan}]";
    assert_int_equal(plan_pool_file_parse("p.yml", text, strlen(text), &f), ATOM_OK);
    assert_int_equal(plan_pool_native_bf16(f, &native), ATOM_E_USAGE);
    assert_non_null(strstr(atom_fail_message(), "did you mean \"rtx-4090\""));
    plan_pool_file_close(&f);
}

static void one_host_trains_alone(void **state)
{
    (void)state;
    asked a = ask("hosts: [{name: box, device: rtx-4090, link: home-100-20}]");
    assert_true(a.p->recommended >= 0);
    assert_int_equal(a.p->way[a.p->recommended].n_used, 1);
    assert_false(a.p->way[PLACE_STAGES].possible);
    leave(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prices_by_placement),
        cmocka_unit_test(a_change_is_the_same_question_again),
        cmocka_unit_test(memory_of_the_pool_counts),
        cmocka_unit_test(stages_are_never_recommended),
        cmocka_unit_test(names_hosts_that_are_too_small),
        cmocka_unit_test(names_devices_that_nobody_described),
        cmocka_unit_test(one_host_trains_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
