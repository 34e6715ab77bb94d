/*
 * Members for real: cells of four average floats over the simulated transport and through gates on
 * loopback, in every codec; all end with the same bits, and those are the sum that reduce.h
 * promises; one that dies in the middle of a round does not stop the others; and whoever may be killed
 * can show what it promised. What is wrapped says the linker (tests/CMakeLists.txt).
 */
#include "gossip/member/node_inner.h"
#include "gossip/member/node_look.h"
#include "gossip/sum/reduce.h"
#include "tests/lib/gossip_cell.h"
#include "tests/lib/sanitized.h"

#include <math.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static cell c;
static atomic_uint wrong;

/* What the machine counts is what the member's status says. */
static bool counts_what_it_left_unanswered(const gsp_node *node)
{
    gsp_agree *a = (gsp_agree *)(uintptr_t)gsp_node_look(node);
    gsp_node_status s;
    uint64_t before = a->stats.unanswered;
    a->stats.unanswered += 139;
    gsp_node_read_status(node, &s);
    return s.unanswered == before + 139;
}

/* What members should have got of a version with everybody in it, computed the plain way. */
static void check_exact(cell_member *m, const gsp_certificate *certificate)
{
    const gsp_proposal *p = &certificate->proposal;
    if (p->n_contributors != c.n || m->i != 0)
        return;
    wrong += !counts_what_it_left_unanswered(m->node);
    uint64_t stride = (c.n_floats + c.rules.n_parts - 1) / c.rules.n_parts;
    stride = (stride + GSP_INT8_BLOCK - 1) / GSP_INT8_BLOCK * GSP_INT8_BLOCK;
    for (uint64_t k = 0; k < c.n_floats; k++) {
        const gsp_part *part = &p->part[k / stride];
        float sum = 0, absolute = 0;
        uint64_t total = 0;
        bool first = true;
        for (uint32_t i = 0; i < p->n_contributors; i++)
            total += part->included >> i & 1 ? p->contributor[i].weight : 0;
        for (uint32_t i = 0; i < p->n_contributors; i++) {
            unsigned who = 0; /* the roster is in the order of keys */
            const gsp_member *seat = &p->next.member[p->contributor[i].member];
            while (memcmp(c.pool.member[who].public_key, seat->key.byte, GSP_KEY_BYTES) != 0)
                who++;
            if (!(part->included >> i & 1))
                continue;
            float share = (float)((double)p->contributor[i].weight / (double)total);
            float term = share * cell_value(who, p->version, k);
            sum = first ? term : sum + term;
            absolute += fabsf(term);
            first = false;
        }
        float off = fabsf(m->got[k] - sum);
        float bound = c.codec == GSP_CODEC_FP32   ? 0.0f
                      : c.codec == GSP_CODEC_BF16 ? 0x1p-7f * absolute
                                                  : 2 * 4 * 0.51f / 127 * 1.1f;
        wrong += part->included != 15 || !(off <= bound);
    }
}

/* All that applied a version applied the same. */
static void assert_equal_results(void)
{
    static const gsp_hash none;
    for (unsigned v = 0; v < CELL_VERSIONS_MAX; v++)
        for (unsigned i = 0; i < c.n; i++)
            for (unsigned j = 0; j < i; j++) {
                const gsp_hash *a = &c.member[i].result[v], *b = &c.member[j].result[v];
                if (memcmp(a, &none, sizeof none) != 0 && memcmp(b, &none, sizeof none) != 0)
                    assert_memory_equal(a, b, sizeof *a);
            }
}

static void average(bool sim, gsp_codec codec, uint64_t n_floats, uint32_t n_parts)
{
    wrong = 0;
    cell_make(&c, 4, codec, n_floats, n_parts, 3);
    c.check = check_exact;
    if (sim)
        test_must(gsp_sim_hub_open(&c.hub));
    assert_true(cell_go(&c));
    assert_equal_results();
    assert_int_equal(wrong, 0);
    for (unsigned i = 0; i < c.n; i++) {
        assert_false(c.member[i].failed);
        assert_true(c.member[i].n_whole >= 2);
        assert_int_equal(c.member[i].status.refused, 0);
    }
    cell_close(&c);
}

static void four_average_over_the_simulated_net(void **unused)
{
    (void)unused;
    for (gsp_codec codec = SANITIZED ? GSP_CODEC_INT8 : 0; codec < GSP_CODEC_N; codec++)
        average(true, codec, 100003, 8); /* the last part is empty */
}

static void four_average_through_gates(void **unused)
{
    (void)unused;
    for (gsp_codec codec = TSAN ? GSP_CODEC_INT8 : 0; codec < GSP_CODEC_N; codec++)
        average(false, codec, 100003, 8);
}

static void parts_travel_in_pieces(void **unused)
{
    (void)unused;
    if (!SANITIZED)
        average(true, GSP_CODEC_FP32, 900001, 3); /* 1.2 MB a part: three pieces */
    average(false, GSP_CODEC_FP32, 900001, 3);
}

static void one_dies(bool sim)
{
    cell_make(&c, 4, GSP_CODEC_FP32, 200000, 16, 4);
    if (sim)
        test_must(gsp_sim_hub_open(&c.hub));
    c.member[2].dies = true;
    assert_true(cell_go(&c));
    assert_true(c.member[2].died);
    assert_equal_results();
    for (unsigned i = 0; i < c.n; i++) {
        assert_false(c.member[i].failed);
        if (i != 2)
            assert_true(c.member[i].n_contributed >= 4);
    }
    cell_close(&c);
}

static void one_dies_and_the_others_go_on(void **unused)
{
    (void)unused;
    one_dies(true);
    one_dies(false);
}

/* ---- what a member can show that is killed ---- */

__typeof__(gsp_agree_step) __real_gsp_agree_step, __wrap_gsp_agree_step;
static atomic_bool watched;
static atomic_uint promised, lost;

/* Whether a member that begins anew in this directory has all parts of it. */
static bool shows_all(const gsp_node *n, uint64_t version, const gsp_hash *root)
{
    gsp_own_inputs *kept = atom_alloc(1, sizeof *kept);
    gsp_exhibit e;
    bool all = gsp_own_inputs_open(kept, &n->terms, n->directory) == ATOM_OK;
    for (uint32_t p = 0; all && p < n->terms.n_parts; p++)
        all = gsp_own_inputs_exhibit(kept, version, root, p, &e);
    gsp_own_inputs_close(kept);
    atom_free(kept);
    return all;
}

/* From this event on others may hear of it. */
void __wrap_gsp_agree_step(gsp_agree *agree, const gsp_event *event, gsp_sink *sink, void *context)
{
    const gsp_node *n = context;
    if (watched && event->kind == GSP_ON_FROZEN && !gsp_hash_none(&event->contribution.root)) {
        promised++;
        lost += !shows_all(n, event->version, &event->contribution.root);
    }
    __real_gsp_agree_step(agree, event, sink, context);
}

static void whoever_is_killed_can_show_what_it_promised(void **unused)
{
    (void)unused;
    watched = true;
    for (gsp_codec codec = TSAN ? GSP_CODEC_INT8 : 0; codec < GSP_CODEC_N; codec++) {
        promised = lost = 0;
        cell_make(&c, 3, codec, 60000, 14, 2);
        test_must(gsp_sim_hub_open(&c.hub));
        assert_true(cell_go(&c));
        for (unsigned i = 0; i < c.n; i++)
            assert_false(c.member[i].failed);
        assert_true(promised >= 2);
        assert_int_equal(lost, 0);
        cell_close(&c);
    }
    watched = false;
}

/* ---- a member that pulls backwards, a hundred times as hard ---- */

enum { LIARS_AT = 5, LEANS = 2 };
static atomic_uint muted;

static float one_pulls_back(unsigned i, uint64_t version, uint64_t k)
{
    float truth = cell_value(0, version, k), own = cell_value(i + 7, version, k) / (float)(i + 8);
    return i == LIARS_AT ? -100 * truth : truth + own;
}

/* Nobody can say the exact result here; but it goes forward, and is no larger than honest ones. */
static void check_robust(cell_member *m, const gsp_certificate *certificate)
{
    const gsp_proposal *p = &certificate->proposal;
    double along = 0, length = 0, truth = 0;
    if (p->n_contributors != c.n || m->i != 0)
        return;
    for (uint64_t k = 0; k < c.n_floats; k++) {
        float t = cell_value(0, p->version, k);
        along += (double)t * (double)m->got[k];
        length += (double)m->got[k] * (double)m->got[k];
        truth += (double)t * (double)t;
    }
    wrong += !(along > 0.5 * sqrt(truth * length)) || length > 2 * truth;
    for (uint32_t i = 0; i < p->n_contributors; i++) {
        const gsp_member *seat = &p->next.member[p->contributor[i].member];
        bool liar = memcmp(c.pool.member[LIARS_AT].public_key, seat->key.byte, GSP_KEY_BYTES) == 0;
        wrong += p->contributor[i].weight == 0 && !liar;
        muted += p->contributor[i].weight == 0;
        for (uint32_t part = 0; part < p->n_parts; part++)
            wrong += !liar && p->part[part].lean[i] <= 0 && p->part[part].included >> i & 1;
    }
}

/* Six members, one of whom brings other values than the truth; whether it was ever muted. */
static bool a_liar_is_muted(float (*value)(unsigned, uint64_t, uint64_t), unsigned versions,
                            bool drifts)
{
    wrong = muted = 0;
    cell_make(&c, 6, GSP_CODEC_INT8, 50000, 4, versions);
    c.robust = true;
    c.drifts = drifts;
    c.rules.against_rounds = LEANS;
    c.value = value;
    c.check = check_robust;
    test_must(gsp_sim_hub_open(&c.hub));
    assert_true(cell_go(&c));
    assert_equal_results();
    assert_int_equal(wrong, 0);
    cell_close(&c);
    return muted > 0;
}

static void who_pulls_back_is_muted(void **unused)
{
    (void)unused;
    assert_true(a_liar_is_muted(one_pulls_back, 3 + LEANS, false));
}

/* Mostly noise, which leans forward a little, and never backwards. */
static float one_is_noise(unsigned i, uint64_t version, uint64_t k)
{
    float honest = one_pulls_back(0, version, k);
    return i == LIARS_AT ? cell_value(99, version, k) + honest / 4 : one_pulls_back(i, version, k);
}

static void who_is_noise_is_muted_where_drifts_count(void **unused)
{
    (void)unused;
    if (TSAN) /* the threads of the test before */
        skip();
    assert_false(a_liar_is_muted(one_is_noise, 7, false));
    assert_true(a_liar_is_muted(one_is_noise, 7, true));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(four_average_over_the_simulated_net),
        cmocka_unit_test(four_average_through_gates),
        cmocka_unit_test(parts_travel_in_pieces),
        cmocka_unit_test(one_dies_and_the_others_go_on),
        cmocka_unit_test(whoever_is_killed_can_show_what_it_promised),
        cmocka_unit_test(who_pulls_back_is_muted),
        cmocka_unit_test(who_is_noise_is_muted_where_drifts_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
