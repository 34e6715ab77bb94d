/*
 * The search against the paper's Algorithm 1 (ATOM III-D) on small graphs, where that can finish.
 *
 * Algorithm 1 is written out below as the paper has it, enumerating partitions one by one, with
 * these corrections:
 *   1. line 13: "len(t) >= 0" is always true; it says nothing and is left out.
 *   2. line 18: the next sub-model runs from l_e + 1, so its end starts at l_e + 1, not at l_e,
 *      which would make it empty.
 *   3. lines 19 and 22: t gets the new range only; the paper pushes (l_s, l_e) again, which the
 *      caller has pushed already.
 *   4. line 30: the two ranges that Main tries are in t before the recursion; in the paper they
 *      never get there, so a partition into two would be recorded as empty.
 *   5. line 29: l_e starts at num_nodes - 1; num_nodes is no node.
 *   6. lines 2-4: both sub-models are on the device at the same time, so it is their sum, with all
 *      rings, that must fit; and the paper's text (III-D), not its listing, multiplies computation
 *      by C and asks the same of backward.
 *   7. Ends are places where the graph may be cut (at most GRAPH_BOUNDARY_MAX tensors cross).
 *
 * Like the paper's, it tries no partition into one sub-model. What it finds is compared by the
 * objective of docs/design/engine.md#the-search: time, sub-models, bytes cut, first cuts.
 */
#include "partition/search.h"
#include "tests/lib/sanitized.h"
#include "tests/unit/part_common.h"

#include <stdio.h>

enum { POINTS_MAX = 14, SHARE = SANITIZED ? 3 : 1 }; /* of the random graphs */

typedef struct oracle {
    const part_model *m;
    part_setting setting;
    part_goal goal;
    uint64_t room_bytes;
    int32_t t[POINTS_MAX]; /* ends of the ranges so far */
    uint32_t n;
    uint64_t found;
    part_score best;
    int32_t best_t[POINTS_MAX];
    uint32_t best_n;
} oracle;

static part_times times_at(const oracle *o, const part_range *r, uint32_t micro_batches)
{
    part_setting s = o->setting;
    s.micro_batches = micro_batches;
    return part_range_times(o->m, &s, r);
}

/* ValidConstraints: both fit together, and what moves is hidden. */
static bool valid(const oracle *o, int32_t cs, int32_t ce, int32_t ls, int32_t le)
{
    bool last = le == (int32_t)o->m->g->n_nodes;
    part_range cur = part_range_make(o->m, cs, ce), next = part_range_make(o->m, ls, le);
    part_times a = times_at(o, &cur, o->setting.micro_batches);
    part_times b = times_at(o, &next, o->setting.micro_batches);
    if (part_pair_bytes(&o->setting, &cur, &next, last) > o->room_bytes)
        return false;
    if (o->goal == PART_GOAL_HIDDEN)
        return part_pair_hides(&a, &b, last);
    return true;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The objective of a whole partition, range by range. */
static part_score score_of(const oracle *o)
{
    part_score score = {.n = o->n};
    for (uint32_t k = 0; k + 1 < o->n; k++) {
        part_range cur = part_range_make(o->m, k ? o->t[k - 1] : 0, o->t[k]);
        part_range next = part_range_make(o->m, o->t[k], o->t[k + 1]);
        bool last = k + 2 == o->n;
        part_times a = times_at(o, &cur, o->setting.micro_batches);
        part_times b = times_at(o, &next, o->setting.micro_batches);
        score.cut_bytes += next.x_bytes;
        switch (o->goal) {
        case PART_GOAL_HIDDEN:
        case PART_GOAL_TIME:
            score.key += part_pair_ps(&o->setting, &a, &b, k == 0, last);
            score.key += last ? part_turn_ps(&b) : 0;
            score.key += o->setting.cut_price * (int64_t)(next.x_bytes / 1024);
            break;
        case PART_GOAL_MEMORY:
            score.key = larger(score.key, (int64_t)part_pair_bytes(&o->setting, &cur, &next, last));
            break;
        case PART_GOAL_CUT:
            score.key += (int64_t)next.x_bytes;
            break;
        }
    }
    return score;
}

static bool less(const oracle *o, const part_score *a)
{
    const part_score *b = &o->best;
    if (a->key != b->key)
        return a->key < b->key;
    if (a->n != b->n)
        return a->n < b->n;
    if (a->cut_bytes != b->cut_bytes)
        return a->cut_bytes < b->cut_bytes;
    for (uint32_t k = 0; k < o->n; k++)
        if (o->t[k] != o->best_t[k])
            return o->t[k] < o->best_t[k];
    return false;
}

/* partitions.insert(t), of which only the best is wanted. */
static void insert(oracle *o)
{
    part_score score = score_of(o);
    if (o->found++ && !less(o, &score))
        return;
    o->best = score;
    o->best_n = o->n;
    memcpy(o->best_t, o->t, sizeof o->t);
}

static void partition_model(oracle *o, int32_t cs, int32_t ce, int32_t ls, int32_t le)
{
    const part_model *m = o->m;
    if (!valid(o, cs, ce, ls, le))
        return;
    if (le == (int32_t)m->g->n_nodes) {
        insert(o);
        return;
    }
    for (uint32_t p = m->n_points; p-- > 0 && m->points[p] > le;) {
        o->t[o->n++] = m->points[p];
        partition_model(o, ls, le, le, m->points[p]);
        o->n--;
    }
}

static void algorithm_1(oracle *o)
{
    const part_model *m = o->m;
    for (uint32_t c = m->n_points - 1; c-- > 1;) {
        for (uint32_t l = m->n_points; l-- > c + 1;) {
            o->t[0] = m->points[c];
            o->t[1] = m->points[l];
            o->n = 2;
            partition_model(o, 0, m->points[c], m->points[c], m->points[l]);
        }
    }
}

/* --- random cases --- */

static uint32_t roll(uint64_t *seed, uint32_t n)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33) % n;
}

/* A chain of random operators with random residual connections, a tied or an own head. */
static graph *random_graph(uint64_t *seed)
{
    graph *g = NULL;
    const int64_t B = 1 + roll(seed, 3), T = 8, C = 8 + 8 * roll(seed, 4), V = 50 + roll(seed, 200);
    int32_t wte, wpe, x, earlier, logits, loss, head;
    assert_int_equal(graph_open("random", roll(seed, 2) ? ATOM_BF16 : ATOM_F32, B, T, &g), ATOM_OK);
    assert_int_equal(graph_add_input(g, "tokens", GRAPH_I32, 2, (int64_t[]){B, T}, &g->tokens),
                     ATOM_OK);
    assert_int_equal(graph_add_input(g, "targets", GRAPH_I32, 2, (int64_t[]){B, T}, &g->targets),
                     ATOM_OK);
    assert_int_equal(
        graph_add_param(g, "wte", 2, (int64_t[]){V, C}, GRAPH_INIT_NORMAL, 0.02f, &wte), ATOM_OK);
    assert_int_equal(
        graph_add_param(g, "wpe", 2, (int64_t[]){T, C}, GRAPH_INIT_NORMAL, 0.02f, &wpe), ATOM_OK);
    graph_node embed = {.op = ATOM_OP_embed,
                        .name = "embed",
                        .in = {g->tokens},
                        .params = {wte, wpe},
                        .n_params = 2};
    assert_int_equal(graph_add_node(g, &embed, &x), ATOM_OK);
    earlier = x;
    uint32_t n = 3 + roll(seed, 8);
    for (uint32_t i = 0; i < n; i++) {
        graph_node node = {.in = {x}};
        char name[32];
        snprintf(node.name, sizeof node.name, "n.%u", i);
        switch (roll(seed, 4)) {
        case 0:
            node.op = ATOM_OP_linear;
            node.n_params = 1;
            snprintf(name, sizeof name, "n.%u.weight", i);
            assert_int_equal(graph_add_param(g, name, 2, (int64_t[]){C, C}, GRAPH_INIT_NORMAL,
                                             0.02f, &node.params[0]),
                             ATOM_OK);
            break;
        case 1:
            node.op = ATOM_OP_gelu;
            break;
        case 2:
            node.op = ATOM_OP_layernorm;
            node.eps = 1e-5f;
            node.n_params = 2;
            snprintf(name, sizeof name, "n.%u.w", i);
            assert_int_equal(graph_add_param(g, name, 1, &C, GRAPH_INIT_ONE, 0, &node.params[0]),
                             ATOM_OK);
            snprintf(name, sizeof name, "n.%u.b", i);
            assert_int_equal(graph_add_param(g, name, 1, &C, GRAPH_INIT_ZERO, 0, &node.params[1]),
                             ATOM_OK);
            break;
        default:
            if (earlier == x) {
                node.op = ATOM_OP_gelu;
            } else {
                node.op = ATOM_OP_add;
                node.in[1] = earlier;
            }
        }
        int32_t before = x;
        assert_int_equal(graph_add_node(g, &node, &x), ATOM_OK);
        if (roll(seed, 3) == 0)
            earlier = before;
    }
    head = wte;
    if (roll(seed, 2))
        assert_int_equal(
            graph_add_param(g, "head", 2, (int64_t[]){V, C}, GRAPH_INIT_NORMAL, 0.02f, &head),
            ATOM_OK);
    graph_node out = {
        .op = ATOM_OP_linear, .name = "lm_head", .in = {x}, .params = {head}, .n_params = 1};
    assert_int_equal(graph_add_node(g, &out, &logits), ATOM_OK);
    graph_node last = {.op = ATOM_OP_cross_entropy, .name = "loss", .in = {logits, g->targets}};
    assert_int_equal(graph_add_node(g, &last, &loss), ATOM_OK);
    assert_int_equal(graph_seal(g), ATOM_OK);
    return g;
}

/* Half of the devices have a cache of about the size of sub-models, where gains are large. */
static void add_gains(part_profile *p, uint64_t *seed)
{
    if (roll(seed, 2))
        return;
    p->device.cache_bytes = 5000 + roll(seed, 60000);
    for (uint32_t i = 0; i < p->n_nodes; i++) {
        p->nodes[i].fwd_gain_seconds = p->nodes[i].fwd_seconds * roll(seed, 5) / 4;
        p->nodes[i].bwd_gain_seconds = p->nodes[i].bwd_seconds * roll(seed, 5) / 4;
    }
}

/* Times and rates of the same size as each other, so that hiding is sometimes possible. */
static part_profile *random_profile(const graph *g, uint64_t *seed)
{
    part_device device = spec("rtx-4090");
    part_profile *profile = NULL;
    /* Half of the devices copy 256 bytes in a whole number of ticks:
     * ties between stalls as well. */
    double tick = roll(seed, 2) ? 256e5 : 1e6 * (1 + roll(seed, 100));
    device.h2d_bytes_per_second = device.h2d_both_bytes_per_second = tick * (1 + roll(seed, 4));
    device.d2h_bytes_per_second = device.d2h_both_bytes_per_second = tick * (1 + roll(seed, 4));
    device.copy_latency_seconds = 0;
    device.adamw_params_per_second = 1e6 * (1 + roll(seed, 100));
    assert_int_equal(part_profile_open(g, &device, &profile), ATOM_OK);
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        profile->nodes[i].fwd_seconds = 1e-5 * roll(seed, 40); /* small numbers: many ties */
        profile->nodes[i].bwd_seconds = 2e-5 * roll(seed, 40);
        if (!graph_trains(g))
            profile->nodes[i].bwd_seconds = 0;
    }
    add_gains(profile, seed);
    return profile;
}

typedef struct tally {
    uint32_t found, none;
} tally;

static part_setting random_setting(uint64_t *seed)
{
    return (part_setting){.micro_batches = 1 + roll(seed, 6),
                          .keep = roll(seed, 3) ? PART_RECOMPUTE : PART_KEEP_HOST,
                          .boundaries = roll(seed, 2) ? PART_ON_HOST : PART_ON_DEVICE,
                          .clip = roll(seed, 2),
                          .cut_price = roll(seed, 3) ? 0 : roll(seed, 1000000)};
}

static void expect_algorithm_1(part_table *table, part_goal goal, const part_setting *setting,
                               uint64_t capacity, tally *count)
{
    oracle o = {.m = table->m, .goal = goal, .setting = *setting};
    part_cuts cuts = {0};
    uint64_t states = 0, fixed = part_fixed_bytes(table->m, setting);
    assert_int_equal(part_dp(table, setting, goal, capacity, false, &cuts, &states), ATOM_OK);
    o.room_bytes = capacity > fixed ? capacity - fixed : 0;
    algorithm_1(&o);
    assert_int_equal(cuts.n > 0, o.found > 0);
    if (o.found) {
        count->found++;
        assert_int_equal(cuts.score.key, o.best.key);
        if (goal != PART_GOAL_MEMORY) {
            assert_int_equal(cuts.n, o.best_n);
            assert_int_equal(cuts.score.cut_bytes, o.best.cut_bytes);
            assert_memory_equal(cuts.ends, o.best_t, cuts.n * sizeof *cuts.ends);
        }
    } else {
        count->none++;
    }
    part_cuts_close(&cuts);
}

static void compare_one(const part_model *m, uint64_t *seed, uint64_t room_bytes, part_goal goal,
                        tally *count)
{
    part_table *table = NULL;
    part_setting setting = random_setting(seed);
    if (!graph_trains(m->g))
        setting = (part_setting){.micro_batches = setting.micro_batches,
                                 .forward = true,
                                 .cut_price = setting.cut_price};
    uint64_t capacity = room_bytes + part_fixed_bytes(m, &setting);
    assert_int_equal(part_table_open(m, capacity, &table), ATOM_OK);
    expect_algorithm_1(table, goal, &setting, capacity, count);
    part_table_close(&table);
}

/* A quick search finds something where there is anything, and never what is better than the best;
 * after it the exact one finds what it would have found without. *behind grows where it was worse. */
static void expect_quick(part_table *table, part_goal goal, const part_setting *setting,
                         uint64_t capacity, uint32_t *behind)
{
    part_cuts quick = {0}, exact = {0};
    assert_int_equal(part_dp(table, setting, goal, capacity, true, &quick, NULL), ATOM_OK);
    assert_int_equal(part_dp(table, setting, goal, capacity, false, &exact, NULL), ATOM_OK);
    assert_int_equal(quick.n > 0, exact.n > 0);
    assert_true(quick.score.key >= exact.score.key);
    *behind += quick.score.key > exact.score.key;
    part_cuts_close(&quick);
    part_cuts_close(&exact);
}

/* Memory of the largest pair of the partition that needs least. */
static uint64_t least_room(const part_model *m)
{
    oracle o = {.m = m, .goal = PART_GOAL_MEMORY, .room_bytes = UINT64_MAX / 2};
    o.setting = (part_setting){.micro_batches = 1};
    algorithm_1(&o);
    return o.found ? (uint64_t)o.best.key : 0;
}

/* What one search leaves in the table for the next changes nothing that it finds, whatever was asked
 * before. */
static void one_table_answers_many(void **state)
{
    (void)state;
    tally count = {0};
    uint32_t behind = 0;
    uint64_t seed = 4711;
    for (int i = 0; i < 60 / SHARE; i++) {
        graph *g = random_graph(&seed);
        part_profile *profile = random_profile(g, &seed);
        part_model *m = NULL;
        part_table *table = NULL;
        assert_int_equal(part_model_open(g, profile, &m), ATOM_OK);
        uint64_t room = least_room(m), most = 0;
        part_setting settings[12];
        uint64_t capacities[12];
        for (int k = 0; k < 12; k++) {
            settings[k] = random_setting(&seed);
            if (k && roll(&seed, 2)) { /* as the recommended number is looked for */
                settings[k] = settings[k - 1];
                settings[k].micro_batches += roll(&seed, 2);
                settings[k].cut_price = roll(&seed, 2) ? settings[k].cut_price * 3 : 0;
            }
            uint64_t fixed = part_fixed_bytes(m, &settings[k]);
            capacities[k] = fixed + room / 10 * (9 + roll(&seed, 20));
            most = part_larger(most, capacities[k]);
        }
        assert_int_equal(part_table_open(m, most, &table), ATOM_OK);
        for (int k = 0; room && k < 12; k++) {
            part_goal goal = roll(&seed, 4) ? PART_GOAL_TIME : (part_goal)roll(&seed, 4);
            if (roll(&seed, 2))
                expect_quick(table, goal, &settings[k], capacities[k], &behind);
            expect_algorithm_1(table, goal, &settings[k], capacities[k], &count);
        }
        part_table_close(&table);
        part_model_close(&m);
        part_profile_close(&profile);
        graph_close(&g);
    }
    assert_true(count.found >= 200 / SHARE);
    assert_true(count.none >= 10 / SHARE);
    assert_true(behind >= 10 / SHARE); /* else they would not differ */
}

/* What ranges compute at least, each cut at every point, is never more than what any range that they make up
 * takes; and the table's bounds are made of that. Counts ranges that are warm in part. */
static void expect_least(part_table *t, const part_setting *s, uint32_t *in_between)
{
    const part_model *m = t->m;
    assert_int_equal(part_table_time(t, s), ATOM_OK);
    for (uint32_t i = 0; i + 1 < m->n_points; i++) {
        part_times sum = {0};
        for (uint32_t j = i + 1; j < m->n_points; j++) {
            part_range one = part_range_make(m, m->points[j - 1], m->points[j]);
            part_range all = part_range_make(m, m->points[i], m->points[j]);
            part_times least = part_range_least(m, s, &one), a = part_range_times(m, s, &all);
            sum.fwd += least.fwd;
            sum.bwd += least.bwd;
            assert_true(sum.fwd <= a.fwd && sum.bwd <= a.bwd && sum.bwd <= a.turn);
            if (t->row[i] + (j - i) <= t->row[i + 1] && t->row[j - 1] < t->row[j])
                assert_true(t->compute[j] - t->compute[i] <= a.fwd + a.bwd);
            least = part_range_least(m, s, &all);
            *in_between += least.fwd < a.fwd && a.fwd < s->micro_batches * all.fwd_ps;
        }
    }
}

static void bounds_hold_for_warm_ranges(void **state)
{
    (void)state;
    uint64_t seed = 5;
    uint32_t in_between = 0;
    for (int i = 0; i < 60 / SHARE; i++) {
        graph *g = random_graph(&seed);
        part_profile *profile = random_profile(g, &seed);
        part_model *m = NULL;
        part_table *table = NULL;
        assert_int_equal(part_model_open(g, profile, &m), ATOM_OK);
        assert_int_equal(part_table_open(m, UINT64_MAX / 2, &table), ATOM_OK);
        for (int k = 0; k < 4; k++) {
            const part_setting setting = random_setting(&seed);
            expect_least(table, &setting, &in_between);
        }
        part_table_close(&table);
        part_model_close(&m);
        part_profile_close(&profile);
        graph_close(&g);
    }
    assert_true(in_between >= 100 / SHARE);
}

static void equals_algorithm_1(void **state)
{
    (void)state;
    tally tallies[PART_GOAL_CUT + 1] = {0};
    uint64_t seed = 42;
    for (int i = 0; i < 120 / SHARE; i++) {
        graph *g = i % 6 ? random_graph(&seed) : tiny_gpt2(1);
        part_profile *profile = random_profile(g, &seed);
        part_model *m = NULL;
        assert_int_equal(part_model_open(g, profile, &m), ATOM_OK);
        assert_true(m->n_points <= POINTS_MAX);
        uint64_t room = least_room(m);
        for (int goal = 0; room && goal <= PART_GOAL_CUT; goal++) {
            uint64_t more = room / 10 * (9 + roll(&seed, 20));
            compare_one(m, &seed, more, (part_goal)goal, &tallies[goal]);
        }
        part_model_close(&m);
        part_profile_close(&profile);
        graph_close(&g);
    }
    for (int goal = 0; goal <= PART_GOAL_CUT; goal++) {
        /* The test would mean little if most cases had no partition, or none were infeasible. */
        assert_true(tallies[goal].found >= 20 / SHARE);
        assert_true(tallies[goal].none >= 3 / SHARE);
    }
}

static void equals_algorithm_1_where_nothing_is_trained(void **state)
{
    (void)state;
    tally count = {0};
    uint64_t seed = 77;
    for (int i = 0; i < 60 / SHARE; i++) {
        graph *g = random_graph(&seed);
        graph_set_forward(g);
        part_profile *profile = random_profile(g, &seed);
        part_model *m = NULL;
        assert_int_equal(part_model_open(g, profile, &m), ATOM_OK);
        uint64_t room = least_room(m);
        for (int goal = 0; room && goal <= PART_GOAL_CUT; goal++)
            compare_one(m, &seed, room / 10 * (6 + roll(&seed, 20)), (part_goal)goal, &count);
        part_model_close(&m);
        part_profile_close(&profile);
        graph_close(&g);
    }
    assert_true(count.found >= 80 / SHARE && count.none >= 10 / SHARE);
}

/* Everything takes a few whole ticks, so that many partitions have the same score for different
 * reasons: one computes longer, another stalls. The first cuts decide then. */
static void cuts_of_equal_score_go_to_the_first(void **state)
{
    (void)state;
    tally count = {0};
    uint64_t seed = 11556328826366622581u; /* the first case finds what few others do */
    for (int i = 0; i < 300 / SHARE; i++) {
        graph *g = random_graph(&seed);
        part_device device = spec("rtx-4090");
        part_profile *profile = NULL;
        part_model *m = NULL;
        device.h2d_bytes_per_second = device.h2d_both_bytes_per_second = 512e5;
        device.d2h_bytes_per_second = device.d2h_both_bytes_per_second = 512e5;
        device.copy_latency_seconds = 0;
        device.adamw_params_per_second = 128e5;
        assert_int_equal(part_profile_open(g, &device, &profile), ATOM_OK);
        for (uint32_t n = 0; n < g->n_nodes; n++) {
            profile->nodes[n].fwd_seconds = 1e-5 * roll(&seed, 3);
            profile->nodes[n].bwd_seconds = 1e-5 * roll(&seed, 3);
        }
        assert_int_equal(part_model_open(g, profile, &m), ATOM_OK);
        compare_one(m, &seed, least_room(m) * (1 + roll(&seed, 3)), PART_GOAL_TIME, &count);
        part_model_close(&m);
        part_profile_close(&profile);
        graph_close(&g);
    }
    assert_true(count.found > 100 / SHARE);
}

/* The whole search on the same graphs: what it finds is legal and fits. */
static void plans_random_graphs(void **state)
{
    (void)state;
    uint64_t seed = 7;
    uint32_t found = 0, refused = 0;
    for (int i = 0; i < 150 / SHARE; i++) {
        graph *g = random_graph(&seed);
        part_profile *profile = random_profile(g, &seed);
        part_request request = {.device_budget_bytes = 20000 + roll(&seed, 200000),
                                .host_budget_bytes = 200000 + roll(&seed, 4000000),
                                .micro_batches = roll(&seed, 5),
                                .clip = roll(&seed, 2),
                                .recompute = (int)roll(&seed, 3) - 1};
        part_plan *plan = NULL;
        atom_status st = part_search(g, profile, &request, &plan, NULL);
        if (st == ATOM_OK) {
            found++;
            assert_int_equal(part_plan_check(plan, g), ATOM_OK);
            assert_true(plan->device_peak_bytes <= request.device_budget_bytes);
            assert_true(plan->host_peak_bytes <= request.host_budget_bytes);
            if (request.micro_batches)
                assert_int_equal(plan->micro_batches, request.micro_batches);
        } else {
            refused++;
            assert_int_equal(st, ATOM_E_RESOURCE);
            assert_null(plan);
        }
        part_plan_close(&plan);
        part_profile_close(&profile);
        graph_close(&g);
    }
    assert_true(found > 40 / SHARE && refused > 20 / SHARE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bounds_hold_for_warm_ranges),
        cmocka_unit_test(equals_algorithm_1),
        cmocka_unit_test(equals_algorithm_1_where_nothing_is_trained),
        cmocka_unit_test(one_table_answers_many),
        cmocka_unit_test(cuts_of_equal_score_go_to_the_first),
        cmocka_unit_test(plans_random_graphs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
