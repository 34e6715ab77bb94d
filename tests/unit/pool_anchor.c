/*
 * The seam between a run and a pool, without a network: the outer step against the plain formula,
 * and merges that keep what was done meanwhile.
 */
#include "tests/lib/pool_side.h"

static void fragments_cover_the_vector(void **unused)
{
    (void)unused;
    for (uint64_t n = 1; n < 3000; n += 37)
        for (uint32_t f = 1; f <= 64; f += 7) {
            uint32_t fragments = pool_fragments(n, f);
            uint64_t at = 0, first;
            assert_true(fragments >= 1 && fragments <= f);
            for (uint32_t i = 0; i < fragments; i++) {
                uint64_t some = pool_fragment_range(n, fragments, i, &first);
                assert_int_equal(first, at);
                assert_true(some > 0);
                at += some;
            }
            assert_int_equal(at, n);
        }
}

static void the_outer_step_is_nesterovs(void **unused)
{
    (void)unused;
    side a;
    const float lr = 0.7f, mu = 0.9f;
    side_open(&a, (double)lr, (double)mu, 0);
    float *anchor = atom_alloc(N, sizeof *anchor), *momentum = atom_alloc(N, sizeof *momentum);
    float *state = atom_alloc(2 * N, sizeof *state);
    gsp_certificate *c = atom_alloc(1, sizeof *c);
    memcpy(anchor, a.live, N * sizeof *anchor);
    begin(&a);
    for (uint64_t v = 1; v <= 3 * F; v++) {
        uint64_t first, tokens, samples, n = pool_fragment_range(N, F, (uint32_t)(v % F), &first);
        const float *x = contribution(&a, v, &tokens, &samples);
        for (uint64_t i = 0; i < n; i++) {
            assert_true(x[i] == anchor[first + i] - a.live[first + i]);
            momentum[first + i] = mu * momentum[first + i] + x[i];
            anchor[first + i] -= lr * (x[i] + mu * momentum[first + i]);
        }
        give_parts(&a, v, x);
        certificate_make(c, v, a.samples, true);
        must(a.work.apply(a.work.context, c, &c->proposal.previous));
        must(a.work.state_read(a.work.context, (uint32_t)(v % F), 0, 2 * n, state));
        assert_memory_equal(state, anchor + first, n * sizeof *state);
        assert_memory_equal(state + n, momentum + first, n * sizeof *state);
        /* live takes the anchor's place for what it brought, at the next updates. */
        float before = a.live[first];
        a.seam.before_updates(a.seam.ctx, a.live, NULL);
        assert_true(a.live[first] == before + (anchor[first] - before));
    }
    pool_anchor_status s;
    pool_anchor_read_status(a.pool, true, &s);
    assert_int_equal(s.applied, 3 * F);
    assert_int_equal(s.included, 3 * F);
    assert_int_equal(s.own_samples, 0);
    gsp_hash hash;
    must(pool_anchor_hash(file_vector_memory(anchor), N, F, &hash));
    assert_memory_equal(&hash, &s.anchor, sizeof hash);
    atom_free(anchor);
    atom_free(momentum);
    atom_free(state);
    atom_free(c);
    side_close(&a);
}

/* Taken back before the certificate: the fragment stays as it was there, and others do not see it
 * change before `apply`. */
static void what_is_taken_back_never_came(void **unused)
{
    (void)unused;
    side a;
    side_open(&a, 0.7, 0.9, 0);
    uint64_t first, tokens, samples, n = pool_fragment_range(N, F, 1, &first);
    float *before = atom_alloc(2 * N, sizeof *before), *after = atom_alloc(2 * N, sizeof *after);
    gsp_certificate *c = atom_alloc(1, sizeof *c);
    const gsp_work *w = &a.work;
    begin(&a);
    const float *x = contribution(&a, 1, &tokens, &samples);
    must(w->state_read(w->context, 1, 0, 2 * n, before));
    give_parts(&a, 1, x);
    must(w->state_read(w->context, 1, 0, 2 * n, after));
    assert_memory_equal(before, after, 2 * n * sizeof *after);
    assert_true(n > GSP_INT8_BLOCK);
    w->part(w->context, 1, GSP_INT8_BLOCK, NULL, n - GSP_INT8_BLOCK);
    certificate_make(c, 1, a.samples, true);
    c->proposal.part[1].included = 0;
    must(w->apply(w->context, c, &c->proposal.previous));
    must(w->state_read(w->context, 1, 0, 2 * n, after));
    for (uint64_t i = 0; i < 2 * n; i++) {
        bool changed = i % n < GSP_INT8_BLOCK && x[i % n] != 0.0f;
        assert_int_equal(before[i] != after[i], changed);
    }
    /* The first part, of the next fragment, whose neighbour stays. */
    n = pool_fragment_range(N, F, 2, &first);
    x = contribution(&a, 2, &tokens, &samples);
    must(w->state_read(w->context, 2, 0, 2 * n, before));
    give_parts(&a, 2, x);
    w->part(w->context, 2, 0, NULL, GSP_INT8_BLOCK);
    certificate_make(c, 2, a.samples, true);
    c->proposal.part[0].included = 0;
    must(w->apply(w->context, c, &c->proposal.previous));
    must(w->state_read(w->context, 2, 0, 2 * n, after));
    for (uint64_t i = 0; i < 2 * n; i++) {
        bool changed = i % n >= GSP_INT8_BLOCK && x[i % n] != 0.0f;
        assert_int_equal(before[i] != after[i], changed);
    }
    atom_free(before);
    atom_free(after);
    atom_free(c);
    side_close(&a);
}

/* Outer rate 1 without momentum: the anchor becomes what was live, and live stays. To the last bit
 * where delta is exact (Sterbenz: live within a factor 2 of the anchor); elsewhere to the rounding
 * of a subtraction at the larger of the two. */
static void alone_with_rate_one_training_is_plain(void **unused)
{
    (void)unused;
    side a, plain;
    side_open(&a, 1, 0, 0);
    side_open(&plain, 1, 0, 0);
    float *start = atom_alloc(N, sizeof *start);
    memcpy(start, a.live, N * sizeof *start);
    begin(&a);
    for (uint64_t v = 1; v <= 2 * F; v++) {
        round_alone(&a, v);
        step(&plain, (uint32_t)v); /* its seam has nothing to do */
        step(&a, 100 + (uint32_t)v);
        step(&plain, 100 + (uint32_t)v);
    }
    a.seam.before_updates(a.seam.ctx, a.live, NULL);
    uint64_t exact = 0;
    for (uint64_t i = 0; i < N; i++) {
        float larger = fmaxf(fabsf(start[i]), fabsf(plain.live[i]));
        assert_true(fabsf(a.live[i] - plain.live[i]) <= 6 * larger * 0x1p-23f);
        if (fabsf(start[i]) > 0.25f) /* moved by less than 0.1: within the factor */
            assert_true(a.live[i] == plain.live[i]);
        exact += a.live[i] == plain.live[i];
    }
    assert_true(exact > N * 9 / 10);
    atom_free(start);
    side_close(&plain);
    side_close(&a);
}

static void what_is_not_included_is_kept_and_brought_again(void **unused)
{
    (void)unused;
    side a;
    side_open(&a, 0.7, 0.9, 0);
    a.pool_samples = 4000; /* the run must not end here (pool_ending.c) */
    reopen(&a, 0.7, 0.9, 0);
    begin(&a);
    gsp_certificate *c = atom_alloc(1, sizeof *c);
    uint64_t first, tokens, samples, n = pool_fragment_range(N, F, 1, &first);
    float *others = atom_alloc(n, sizeof *others), *live = atom_alloc(n, sizeof *live);
    float *state = atom_alloc(2 * n, sizeof *state), *old = atom_alloc(n, sizeof *old);
    memcpy(old, a.live + first, n * sizeof *old);
    (void)contribution(&a, 1, &tokens, &samples);
    assert_int_equal(tokens, 64);
    for (uint64_t i = 0; i < n; i++)
        others[i] = 0.01f * noise(i, 9);
    give_parts(&a, 1, others);
    certificate_make(c, 1, 1000, false);
    must(a.work.apply(a.work.context, c, &c->proposal.previous));
    memcpy(live, a.live + first, n * sizeof *live);
    a.seam.before_updates(a.seam.ctx, a.live, NULL);
    must(a.work.state_read(a.work.context, 1, 0, 2 * n, state));
    for (uint64_t i = 0; i < n; i++) /* it moved as the anchor did */
        assert_true(a.live[first + i] == live[i] + (state[i] - old[i]));
    pool_anchor_status s;
    pool_anchor_read_status(a.pool, false, &s);
    assert_int_equal(s.included, 0);
    assert_int_equal(s.own_samples, 4);
    assert_int_equal(s.certified_samples + s.own_samples, 1004);
    assert_int_equal(s.pool_step, 1004 / 4);
    /* Its tokens count again in the fragment's next version, and once in the schedule. */
    round_alone(&a, 2);
    round_alone(&a, 3);
    (void)contribution(&a, 4, &tokens, &samples);
    assert_int_equal(tokens, 4 * 64);
    assert_int_equal(samples, 4);
    /* Samples say where the schedule stands; tokens are weights, and count once per fragment. */
    give_parts(&a, 4, others);
    certificate_make(c, 4, 2000, true);
    c->proposal.tokens = 16 * F * 3000;
    must(a.work.apply(a.work.context, c, &c->proposal.previous));
    pool_anchor_read_status(a.pool, false, &s);
    assert_int_equal(s.certified_samples, 2000);
    atom_free(others);
    atom_free(live);
    atom_free(state);
    atom_free(old);
    atom_free(c);
    side_close(&a);
}

/* A version of others alone; the trainer takes nothing. */
static void version_of_others(side *a, uint64_t version, uint32_t salt)
{
    gsp_certificate *c = atom_alloc(1, sizeof *c);
    uint64_t first, n = pool_fragment_range(N, F, (uint32_t)(version % F), &first);
    float *others = atom_alloc(n, sizeof *others);
    for (uint64_t i = 0; i < n; i++)
        others[i] = 0.01f * noise(i, salt);
    give_parts(a, version, others);
    certificate_make(c, version, 1000 * version, false);
    must(a->work.apply(a->work.context, c, &c->proposal.previous));
    atom_free(others);
    atom_free(c);
}

/* Between two steps of the trainer, a fragment's turn comes twice: live moves by both. */
static void two_versions_of_a_fragment_are_both_merged(void **unused)
{
    (void)unused;
    side a;
    side_open(&a, 0.7, 0.9, 0);
    begin(&a);
    uint64_t first, n = pool_fragment_range(N, F, 1, &first);
    float *anchor[3], *live = atom_alloc(n, sizeof *live);
    for (int k = 0; k < 3; k++)
        anchor[k] = atom_alloc(n, sizeof *live);
    step(&a, 3);
    memcpy(live, a.live + first, n * sizeof *live);
    must(a.work.state_read(a.work.context, 1, 0, n, anchor[0]));
    for (uint64_t v = 1; v <= 1 + F; v++) {
        version_of_others(&a, v, (uint32_t)v);
        if (v % F == 1)
            must(a.work.state_read(a.work.context, 1, 0, n, anchor[v == 1 ? 1 : 2]));
    }
    a.seam.before_updates(a.seam.ctx, a.live, NULL);
    for (uint64_t i = 0; i < n; i++) {
        float by = (anchor[1][i] - anchor[0][i]) + (anchor[2][i] - anchor[1][i]);
        assert_true(a.live[first + i] == live[i] + by);
    }
    pool_anchor_status s;
    pool_anchor_read_status(a.pool, false, &s);
    assert_int_equal(s.merged, F); /* one for each fragment, not one for each version */
    for (int k = 0; k < 3; k++)
        atom_free(anchor[k]);
    atom_free(live);
    side_close(&a);
}

static void mix_keeps_a_part_of_live(void **unused)
{
    (void)unused;
    side a;
    side_open(&a, 0.7, 0, 0.25);
    begin(&a);
    uint64_t first, n = pool_fragment_range(N, F, 1, &first);
    float *state = atom_alloc(n, sizeof *state);
    round_alone(&a, 1);
    float live = a.live[first + 5];
    a.seam.before_updates(a.seam.ctx, a.live, NULL);
    must(a.work.state_read(a.work.context, 1, 0, n, state));
    assert_true(a.live[first + 5] == live + 0.75f * (state[5] - live));
    atom_free(state);
    side_close(&a);
}

/* Somebody who reads the weights: what was asked of it, and what comes meanwhile. */
typedef struct watcher {
    side *a;
    uint64_t first, n;
    float before; /* the first of them: unchanged when it is asked */
    unsigned asked;
} watcher;

static void leave(void *ctx, uint64_t first, uint64_t n)
{
    watcher *w = ctx;
    pool_anchor_status s;
    pool_anchor_read_status(w->a->pool, false, &s); /* stands still if a lock is held */
    assert_true(w->a->live[first] == w->before);
    w->first = first;
    w->n = n;
    w->asked++;
}

/* Who reads is asked once, for the fragment that changes, before it does. */
static void readers_leave_what_changes(void **unused)
{
    (void)unused;
    side a;
    side_open(&a, 0.7, 0.9, 0);
    begin(&a);
    for (uint64_t v = 1; v <= 2 * F; v++) {
        uint64_t first, n = pool_fragment_range(N, F, (uint32_t)(v % F), &first);
        round_alone(&a, v);
        watcher w = {.a = &a, .before = a.live[first]};
        train_reader reader = {&w, leave};
        a.seam.before_updates(a.seam.ctx, a.live, &reader);
        assert_int_equal(w.asked, 1);
        assert_int_equal(w.first, first);
        assert_int_equal(w.n, n);
        assert_true(a.live[first] != w.before);
        a.seam.before_updates(a.seam.ctx, a.live, &reader);
        assert_int_equal(w.asked, 1); /* there is nothing to change */
    }
    side_close(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fragments_cover_the_vector),
        cmocka_unit_test(the_outer_step_is_nesterovs),
        cmocka_unit_test(what_is_taken_back_never_came),
        cmocka_unit_test(alone_with_rate_one_training_is_plain),
        cmocka_unit_test(what_is_not_included_is_kept_and_brought_again),
        cmocka_unit_test(two_versions_of_a_fragment_are_both_merged),
        cmocka_unit_test(mix_keeps_a_part_of_live),
        cmocka_unit_test(readers_leave_what_changes),
    };
    return both_tiers(tests, NULL, NULL);
}
