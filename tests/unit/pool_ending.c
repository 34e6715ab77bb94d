/*
 * The end of a run in a pool of parameters, without a network: two members whose live weights stand
 * still have each fragment averaged once more, and what the pool leaves is the average of their weights.
 */
#include "tests/lib/pool_side.h"

enum { SAMPLE = 16, END = 400, BOTH = 3 };

static const double LR = 0.7, MU = 0.9;

static void pair_open(side m[2])
{
    for (uint8_t i = 0; i < 2; i++) {
        side_open(&m[i], LR, MU, 0);
        m[i].key = (uint8_t)(7 + 2 * i);
        reopen(&m[i], LR, MU, 0);
        begin(&m[i]);
    }
}

static void pair_close(side m[2])
{
    side_close(&m[0]);
    side_close(&m[1]);
}

static bool stands(side *a)
{
    return a->seam.stands(a->seam.ctx);
}

static bool done(side *a)
{
    return a->seam.done(a->seam.ctx);
}

static bool hastens(side *a)
{
    return a->work.hastens(a->work.context);
}

static bool stand(side *a)
{
    bool changed;
    must(a->seam.stand(a->seam.ctx, file_vector_memory(a->live), &changed));
    return changed;
}

static pool_anchor_status status_of(side *a)
{
    pool_anchor_status s;
    pool_anchor_read_status(a->pool, false, &s);
    return s;
}

/* What a member brings: after a step of its own, or with live weights that stand still. */
static const float *bring(side *a, uint64_t version, bool steps, uint64_t *tokens,
                          uint64_t *samples)
{
    const float *x = NULL;
    const gsp_work *w = &a->work;
    gsp_freeze answer = w->freeze(w->context, version, &x, tokens, samples);
    assert_int_equal(answer, GSP_FREEZE_LATER);
    if (steps)
        step(a, (uint32_t)version + 100u * a->key);
    else
        (void)stand(a);
    for (int k = 0; k < 3 && answer == GSP_FREEZE_LATER; k++)
        answer = w->freeze(w->context, version, &x, tokens, samples);
    assert_int_equal(answer, GSP_FREEZE_READY);
    return x;
}

/* A version that both made; before the first one each is alone on its roster. total: samples. */
static void certify(gsp_certificate *c, uint64_t version, uint64_t total, uint32_t included)
{
    certificate_make(c, version, total, false);
    c->proposal.n_contributors = version == 1 ? 1 : 2;
    c->proposal.contributor[1].member = 1;
    for (int k = 0; k < PARTS; k++)
        c->proposal.part[k].included = version == 1 ? included != 0 : included;
    c->proposal.next.n = 2;
    memset(c->proposal.next.member[1].key.byte, 9, GSP_KEY_BYTES);
}

/* Both bring something, and the average is weighted by what they say of their tokens. */
static void version_of_both(side m[2], uint64_t version, bool steps, uint64_t total,
                            uint64_t tokens[2])
{
    static const gsp_hash none;
    gsp_certificate *c = atom_alloc(1, sizeof *c);
    uint64_t first, n = pool_fragment_range(N, F, (uint32_t)(version % F), &first), samples;
    float *average = atom_alloc(n, sizeof *average);
    const float *x[2];
    for (int i = 0; i < 2; i++)
        x[i] = bring(&m[i], version, steps, &tokens[i], &samples);
    double a = (double)tokens[0], b = (double)tokens[1];
    for (uint64_t k = 0; k < n; k++)
        average[k] = (float)((a * (double)x[0][k] + b * (double)x[1][k]) / (a + b));
    certify(c, version, total, BOTH);
    for (int i = 0; i < 2; i++) {
        give_parts(&m[i], version, average);
        must(m[i].work.apply(m[i].work.context, c, &none));
    }
    atom_free(average);
    atom_free(c);
}

/* A few rounds, with momentum, and then a version that ends the run while both are in a step. The second
 * member makes twice as many steps. Returns the newest version. */
static uint64_t run_to_the_end(side m[2])
{
    uint64_t v = 1, tokens[2];
    for (; v <= 2 * F + 1; v++) {
        version_of_both(m, v, true, 8 * v, tokens);
        step(&m[1], (uint32_t)v);
        assert_false(stands(&m[0]) || hastens(&m[0]) || done(&m[0]));
    }
    version_of_both(m, v, true, END, tokens);
    return v;
}

/* What the anchor of a version's fragment is: of both members the same. */
static uint64_t anchor_of(side m[2], uint64_t version, float *anchor, float *other, uint64_t *first)
{
    uint32_t f = (uint32_t)(version % F);
    uint64_t n = pool_fragment_range(N, F, f, first);
    must(m[0].work.state_read(m[0].work.context, f, 0, n, anchor));
    must(m[1].work.state_read(m[1].work.context, f, 0, n, other));
    assert_memory_equal(anchor, other, n * sizeof *anchor);
    return n;
}

/* No outer step: with it the anchor would be a hundred times as far from the average as this allows. */
static void the_model_is_the_average_of_live_weights(void **unused)
{
    (void)unused;
    static const uint64_t steps[2][F] = {{3, 2, 1},
                                         {5, 3, 1}}; /* since a fragment's last average */
    side m[2];
    pair_open(m);
    uint64_t v = run_to_the_end(m), first, tokens[2];
    float *anchor = atom_alloc(N, sizeof *anchor), *other = atom_alloc(N, sizeof *other), *was[2];
    for (int i = 0; i < 2; i++) {
        was[i] = atom_alloc(N, sizeof *anchor);
        step(&m[i], 77);
        assert_int_equal(status_of(&m[i]).left_versions, F);
    }
    for (uint32_t k = 0; k < F; k++) {
        for (int i = 0; i < 2; i++) {
            (void)stand(&m[i]); /* live takes the version before */
            memcpy(was[i], m[i].live, N * sizeof *anchor);
            assert_true(stands(&m[i]) && hastens(&m[i]) && !done(&m[i]));
        }
        version_of_both(m, v + 1 + k, false, END + 8 + 2 * k, tokens);
        uint64_t n = anchor_of(m, v + 1 + k, anchor, other, &first);
        for (int i = 0; i < 2; i++)
            assert_int_equal(tokens[i], steps[i][k] * 4 * SAMPLE / 8);
        double a = (double)tokens[0], b = (double)tokens[1];
        for (uint64_t j = 0; j < n; j++) {
            double mean = (a * (double)was[0][first + j] + b * (double)was[1][first + j]) / (a + b);
            assert_true(fabs((double)anchor[j] - mean) < 1e-6);
        }
    }
    for (int i = 0; i < 2; i++) {
        assert_true(!done(&m[i])); /* live lacks the last version */
        assert_true(stand(&m[i]));
        assert_true(done(&m[i]) && !stands(&m[i]) && !hastens(&m[i]) && status_of(&m[i]).done);
        assert_int_equal(status_of(&m[i]).own_samples, 0);
        assert_int_equal(status_of(&m[i]).lacking, 0);
        atom_free(was[i]);
    }
    for (uint64_t j = 0; j < N; j++) /* and what they save is what the pool has */
        assert_true(fabsf(m[0].live[j] - m[1].live[j]) < 1e-6f);
    atom_free(anchor);
    atom_free(other);
    pair_close(m);
}

/* Whoever learns of the end in the middle of a step brings that step, too. */
static void a_step_under_way_is_brought(void **unused)
{
    (void)unused;
    side m[2];
    uint64_t tokens, samples;
    const float *x;
    pair_open(m);
    uint64_t v = run_to_the_end(m);
    const gsp_work *w = &m[0].work;
    assert_int_equal(w->freeze(w->context, v + 1, &x, &tokens, &samples), GSP_FREEZE_LATER);
    step(&m[0], 55); /* its copy-out would be before a step whose updates are still to come */
    assert_int_equal(w->freeze(w->context, v + 1, &x, &tokens, &samples), GSP_FREEZE_LATER);
    step(&m[0], 56);
    assert_int_equal(w->freeze(w->context, v + 1, &x, &tokens, &samples), GSP_FREEZE_LATER);
    (void)stand(&m[0]);
    for (int k = 0; k < 3; k++)
        if (w->freeze(w->context, v + 1, &x, &tokens, &samples) == GSP_FREEZE_READY)
            break;
    assert_int_equal(tokens, 4 * 4 * SAMPLE / 8);
    assert_int_equal(samples, 8);
    pair_close(m);
}

/* Its own steps end the run as it sees it, until a certificate counts fewer of them. */
static void whoever_is_over_waits_for_certificates(void **unused)
{
    (void)unused;
    side a;
    static const gsp_hash none;
    gsp_certificate *c = atom_alloc(1, sizeof *c);
    uint64_t tokens, samples;
    side_open(&a, LR, MU, 0);
    begin(&a);
    while (a.samples < END) {
        assert_false(stands(&a) || done(&a));
        step(&a, (uint32_t)a.samples);
    }
    assert_true(stands(&a) && hastens(&a) && !done(&a));
    assert_false(status_of(&a).agreed || status_of(&a).done);
    assert_int_equal(status_of(&a).pool_step, status_of(&a).max_steps);
    assert_int_equal(status_of(&a).certified_step, 0); /* nobody else knows of its steps */
    pool_anchor_running(a.pool, false); /* it rests: nobody is hastened */
    assert_true(stands(&a) && !hastens(&a));
    pool_anchor_running(a.pool, true);
    give_parts(&a, 1, bring(&a, 1, false, &tokens, &samples));
    assert_int_equal(samples, END);
    certificate_make(c, 1, END - 8, true);
    must(a.work.apply(a.work.context, c, &none));
    assert_false(stands(&a) || done(&a)); /* two steps are left */
    step(&a, 1);
    assert_false(stands(&a) || done(&a));
    step(&a, 2);
    assert_true(stands(&a) && !status_of(&a).agreed);
    give_parts(&a, 2, bring(&a, 2, false, &tokens, &samples));
    certificate_make(c, 2, END, true);
    must(a.work.apply(a.work.context, c, &none));
    assert_true(status_of(&a).agreed && stands(&a) && !done(&a) && !status_of(&a).done);
    assert_int_equal(status_of(&a).left_versions, F);
    assert_int_equal(status_of(&a).certified_step, status_of(&a).max_steps);
    assert_int_equal(status_of(&a).lacking, F - 1); /* but the newest one's */
    pool_anchor_give_up(a.pool);
    assert_true(done(&a) && !stands(&a) && status_of(&a).done);
    atom_free(c);
    side_close(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_model_is_the_average_of_live_weights),
        cmocka_unit_test(a_step_under_way_is_brought),
        cmocka_unit_test(whoever_is_over_waits_for_certificates),
    };
    return both_tiers(tests, NULL, NULL);
}
