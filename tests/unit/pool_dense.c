/*
 * Steps of summed gradients first, then averages of what members' own steps change (dense_samples): one
 * member without a network, whose trainer is a few loops. When the switch is, what the trainer begins
 * its own steps with, what stays of moments, sum and momentum, and the same for members that join or
 * come back before and after it.
 */
#include "atom/pool/anchor.h"
#include "atom/pool/dense.h"
#include "atom/pool/ranges.h"
#include "gossip/trust/seals.h"
#include "tests/scratch.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum {
    N = 128 * 10,
    MICRO = 2,
    C = 2,
    TOGETHER = C * MICRO,
    STEPS = 3,
    BATCH = 2,
    T = 16,
    PARTS = 4
};
enum { DENSE = STEPS * TOGETHER };

typedef struct side {
    scratch s;
    pool_anchor *pool;
    train_seam seam;
    gsp_work work;
    atom_threads *threads;
    float live[N], m[N], v[N];
    uint64_t samples, steps, certified, version;
    bool own, pair; /* pair: another member is on the roster from the next version on */
    uint8_t from;   /* who contributes: 0 me, 1 another one */
    double rate;    /* of the newest common step */
} side;

static void must(atom_status st)
{
    if (st != ATOM_OK)
        fail_msg("%s", atom_fail_message());
}

static float noise(uint64_t k, uint64_t salt)
{
    uint32_t x = (uint32_t)k * 2654435761u + (uint32_t)salt * 40503u + 77;
    x ^= x >> 15;
    x *= 2246822519u;
    return (float)(x >> 8) * 0x1p-24f - 0.5f;
}

static const train_schedule SCHEDULE = {
    .kind = TRAIN_LINEAR, .peak = 1e-2, .end = 0, .warmup_steps = 2, .max_steps = 50};

static void reopen(side *a)
{
    static const swap_param param = {.elements = N, .decay = 1};
    const pool_update update = {.schedule = SCHEDULE,
                                .beta1 = 0.9,
                                .beta2 = 0.95,
                                .epsilon = 1e-8,
                                .weight_decay = 0.1,
                                .max_grad_norm = 1,
                                .micro_batches = C,
                                .micro_batch = MICRO,
                                .schedule_batch = BATCH,
                                .params = &param,
                                .n_params = 1,
                                .host = krn_ref_host_table(),
                                .threads = a->threads};
    pool_anchor_config c = {.directory = a->s.dir,
                            .n_floats = N,
                            .n_fragments = 1,
                            .outer_learning_rate = 0.5,
                            .outer_momentum = 0.8,
                            .batch = BATCH,
                            .max_samples = 50 * BATCH,
                            .tokens_per_sample = T,
                            .rewarm_steps = 10,
                            .update = &update,
                            .dense_samples = DENSE};
    memset(c.self.byte, 7, sizeof c.self.byte);
    pool_anchor_close(&a->pool);
    must(pool_anchor_open(&c, &a->pool));
    a->seam = pool_anchor_seam(a->pool);
    pool_anchor_work(a->pool, &a->work);
}

static side *side_open(void)
{
    side *a = atom_alloc(1, sizeof *a);
    scratch_open(&a->s);
    must(atom_threads_open(1, &a->threads));
    for (uint64_t i = 0; i < N; i++)
        a->live[i] = noise(i, 1);
    reopen(a);
    return a;
}

static void side_close(side *a)
{
    pool_anchor_close(&a->pool);
    atom_threads_close(&a->threads);
    scratch_close(&a->s);
    atom_free(a);
}

static void attach(side *a, const char *marks)
{
    must(pool_anchor_attach(a->pool, file_vector_memory(a->live), marks, a->samples,
                            a->samples * T));
    pool_anchor_running(a->pool, true);
}

static side *founder(void)
{
    side *a = side_open();
    must(pool_anchor_begin(a->pool, file_vector_memory(a->live)));
    attach(a, NULL);
    return a;
}

/* The trainer's turn; an own step moves everything a little. Returns micro-batches that it computed. */
static uint32_t turn(side *a, bool *moved)
{
    const file_vector state[3] = {file_vector_memory(a->live), file_vector_memory(a->m),
                                  file_vector_memory(a->v)};
    train_lease l;
    *moved = false;
    a->own = a->seam.own(a->seam.ctx, a->samples, a->samples * T);
    if (a->own) {
        a->seam.before_updates(a->seam.ctx, a->live, NULL);
        for (uint64_t i = 0; i < N; i++)
            a->live[i] += 0x1p-7f * noise(i, a->samples);
        a->samples += BATCH;
        a->seam.stepped(a->seam.ctx, a->samples, a->samples * T);
        a->seam.after_updates(a->seam.ctx, a->live);
        return 0;
    }
    must(a->seam.take(a->seam.ctx, state, NULL, &l));
    *moved = l.moved;
    if (l.moved) {
        a->steps = l.steps;
        a->samples = l.samples;
        a->rate = l.rate;
    }
    for (uint32_t k = 0; k < l.n; k++)
        for (uint64_t i = 0; i < N; i++)
            l.sum[i] += noise(i, l.first_sample + l.micro_batch[k]);
    if (l.n)
        a->seam.bring(a->seam.ctx, &l, (uint64_t)l.n * MICRO * T);
    return l.n;
}

/* Certificate of a version of which I am the only contributor, with so many samples in all. */
static void certify(gsp_certificate *c, uint64_t version, uint64_t brought, uint64_t samples)
{
    memset(c, 0, sizeof *c);
    gsp_proposal *p = &c->proposal;
    p->version = version;
    p->samples = samples;
    p->n_parts = PARTS;
    p->n_contributors = 1;
    p->contributor[0].samples = brought;
    p->contributor[0].tokens = p->contributor[0].weight = brought * T;
    for (int k = 0; k < PARTS; k++) {
        p->part[k].included = 1;
        p->part[k].weight = brought * T;
    }
    p->next.n = 1;
    memset(p->next.member[0].key.byte, 7, GSP_KEY_BYTES);
}

/* One version. torn: the first part came from nobody. */
static void apply_version(side *a, const float *x, uint64_t samples, bool torn)
{
    static const gsp_hash none;
    gsp_certificate *c = atom_alloc(1, sizeof *c);
    a->version++;
    a->certified += samples;
    certify(c, a->version, samples, a->certified);
    uint64_t stride = pool_part_stride(&c->proposal, N);
    if (torn)
        c->proposal.part[0].included = 0;
    c->proposal.contributor[0].member = a->from;
    c->proposal.next.n = a->pair ? 2 : 1;
    memset(c->proposal.next.member[1].key.byte, 9, GSP_KEY_BYTES);
    for (uint64_t at = torn ? stride : 0; at < N; at += stride)
        a->work.part(a->work.context, a->version, at, x + at, N - at < stride ? N - at : stride);
    must(a->work.apply(a->work.context, c, &none));
    atom_free(c);
}

static const float *contribution(side *a, uint64_t *samples)
{
    const float *x = NULL;
    uint64_t tokens;
    gsp_freeze answer = GSP_FREEZE_LATER;
    for (int k = 0; k < 3 && answer != GSP_FREEZE_READY; k++) {
        bool moved;
        answer = a->work.freeze(a->work.context, a->version + 1, &x, &tokens, samples);
        if (answer != GSP_FREEZE_READY)
            turn(a, &moved);
    }
    assert_int_equal(answer, GSP_FREEZE_READY);
    assert_int_equal(tokens, *samples * T);
    return x;
}

static void round_alone(side *a)
{
    uint64_t samples;
    const float *x = contribution(a, &samples);
    apply_version(a, x, samples, false);
}

static void state_of(const side *a, float *state)
{
    must(a->work.state_read(a->work.context, 0, 0, (uint64_t)4 * N, state));
}

/* Until the switch, whose version is the last of the common steps. */
static side *dense_done(void)
{
    side *a = founder();
    for (int k = 0; k < STEPS; k++) {
        assert_true(a->work.lease(a->work.context, a->version + 1, 1, 0) == TOGETHER);
        round_alone(a);
        assert_false(a->own);
    }
    assert_int_equal(a->certified, DENSE);
    return a;
}

static void the_switch_is_a_version(void **unused)
{
    (void)unused;
    side *a = dense_done();
    float *state = atom_alloc((uint64_t)4 * N, sizeof *state);
    float *after = atom_alloc((uint64_t)4 * N, sizeof *after);
    uint64_t samples;
    bool moved;
    assert_true(a->work.lease(a->work.context, a->version + 1, 1, 0) == UINT64_MAX);
    assert_int_equal(a->work.summed_samples, DENSE);
    state_of(a, state);
    /* The trainer has the weights of the step before: it takes the newest first. */
    assert_int_equal(turn(a, &moved), 0);
    assert_true(moved && !a->own);
    assert_int_equal(a->steps, STEPS);
    assert_int_equal(a->samples, DENSE);
    assert_memory_equal(a->live, state, sizeof a->live);
    assert_memory_equal(a->m, state + N, sizeof a->m);
    assert_memory_equal(a->v, state + 2 * N, sizeof a->v);
    assert_true(a->m[5] != 0 && a->v[5] > 0);
    /* The schedule counts samples: the third common step begins at sample 8, which is step 5 of 2. */
    assert_true(a->rate == train_schedule_rate(&SCHEDULE, 2 * TOGETHER / BATCH + 1));
    for (uint64_t i = 0; i < N; i++)
        assert_true(state[3 * N + i] == 0); /* of the sum nothing is left; here momentum begins */
    turn(a, &moved);
    assert_true(a->own);
    /* An outer step from zero momentum; moments stay as the last common step left them. */
    const float *x = contribution(a, &samples);
    assert_int_equal(samples, a->samples - DENSE);
    for (uint64_t i = 0; i < N; i++)
        assert_true(x[i] == state[i] - a->live[i]);
    float *delta = atom_alloc(N, sizeof *delta);
    memcpy(delta, x, N * sizeof *delta);
    apply_version(a, x, samples, false);
    state_of(a, after);
    for (uint64_t i = 0; i < N; i++) {
        assert_true(after[3 * N + i] == delta[i]);
        assert_true(after[i] == state[i] - 0.5f * (delta[i] + 0.8f * delta[i]));
    }
    assert_memory_equal(after + N, state + N, 2 * N * sizeof *state);
    pool_anchor_status s;
    pool_anchor_read_status(a->pool, true, &s);
    assert_int_equal(s.certified_samples, a->certified);
    assert_int_equal(s.included, STEPS + 1);
    assert_int_equal(s.max_steps, 50);
    atom_free(delta);
    atom_free(state);
    atom_free(after);
    side_close(a);
}

static gsp_saved *saved_of(const side *a)
{
    gsp_seals seals = gsp_seals_real(NULL);
    gsp_saved *saved = atom_alloc(1, sizeof *saved);
    memset(saved->genesis.founder.key.byte, 7, GSP_KEY_BYTES);
    saved->has_certificate = true;
    certify(&saved->certificate, a->version, BATCH, a->certified);
    gsp_genesis_hash(&seals, &saved->genesis, &saved->certificate.proposal.lineage);
    return saved;
}

static void move_state(const side *from, side *to)
{
    uint64_t n = from->work.n_state[0];
    float *state = atom_alloc(n, sizeof *state);
    gsp_saved *saved = saved_of(from);
    assert_int_equal(n, to->work.n_state[0]);
    must(from->work.state_read(from->work.context, 0, 0, n, state));
    must(to->work.state_write(to->work.context, 0, from->version, 0, n, state));
    must(to->work.state_adopt(to->work.context, saved));
    to->version = from->version;
    to->certified = from->certified;
    atom_free(saved);
    atom_free(state);
}

static void same_anchor(side *a, side *b)
{
    pool_anchor_status sa, sb;
    pool_anchor_read_status(a->pool, true, &sa);
    pool_anchor_read_status(b->pool, true, &sb);
    assert_memory_equal(&sa.anchor, &sb.anchor, sizeof sa.anchor);
}

/* It begins as the others began at the switch, from what is agreed now. */
static void a_joiner_after_it(void **unused)
{
    (void)unused;
    side *a = dense_done(), *b = side_open();
    float *state = atom_alloc((uint64_t)4 * N, sizeof *state);
    uint64_t samples;
    bool moved;
    round_alone(a);
    round_alone(a);
    move_state(a, b);
    attach(b, NULL);
    same_anchor(a, b);
    const float *late = contribution(a, &samples); /* a version more before its trainer looks */
    apply_version(b, late, samples, false);
    apply_version(a, late, samples, false);
    same_anchor(a, b);
    state_of(a, state);
    turn(b, &moved);
    assert_true(moved && !b->own);
    assert_int_equal(b->steps, STEPS);
    assert_memory_equal(b->live, state, sizeof b->live);
    assert_memory_equal(b->m, state + N, sizeof b->m);
    assert_memory_equal(b->v, state + 2 * N, sizeof b->v);
    const float *x = contribution(b, &samples);
    assert_true(b->own);
    assert_int_equal(samples, b->samples - DENSE); /* and not those of the others */
    assert_true(samples <= 2 * BATCH);
    for (uint64_t i = 0; i < N; i++) /* and its own steps alone are in what it brings */
        assert_true(fabsf(x[i]) <= 0x1p-7f);
    apply_version(b, x, samples, false);
    apply_version(a, x, samples, false);
    same_anchor(a, b);
    round_alone(b);
    atom_free(state);
    side_close(a);
    side_close(b);
}

/* As after a kill: what is on disk, and live weights of a checkpoint. */
static void come_back(side *a, const char *marks)
{
    gsp_saved *saved = saved_of(a);
    reopen(a);
    must(pool_anchor_restore(a->pool, saved));
    attach(a, marks);
    atom_free(saved);
}

static void it_comes_back_before_and_after_it(void **unused)
{
    (void)unused;
    side *a = founder();
    bool moved;
    round_alone(a);
    round_alone(a);
    char *before = pool_anchor_marks(a->pool);
    come_back(a, before); /* in between two common steps */
    assert_int_equal(turn(a, &moved), C);
    assert_true(moved && !a->own);
    assert_int_equal(a->steps, 2);
    round_alone(a);
    come_back(a, before); /* right behind the switch, with a checkpoint from before it */
    turn(a, &moved);
    assert_true(moved && !a->own);
    assert_int_equal(a->steps, STEPS);
    round_alone(a);
    assert_true(a->own);
    turn(a, &moved);
    char *after = pool_anchor_marks(a->pool);
    float *live = atom_alloc(N, sizeof *live);
    memcpy(live, a->live, sizeof a->live);
    a->m[3] = 42;
    come_back(a, after); /* with own steps of its own in live, and moments of its own */
    assert_memory_equal(live, a->live, sizeof a->live);
    turn(a, &moved);
    assert_true(a->own && !moved);
    assert_true(a->m[3] == 42);
    round_alone(a);
    come_back(a, before); /* long after it, with an old checkpoint, and the pool goes on */
    for (uint64_t i = 0; i < N; i++)
        live[i] = noise(i, 99);
    a->from = 1;
    apply_version(a, live, BATCH, false);
    a->from = 0;
    turn(a, &moved);
    assert_true(moved && !a->own && a->m[3] != 42);
    uint64_t samples;
    const float *x = contribution(a, &samples);
    for (uint64_t i = 0; i < N; i++)
        assert_true(fabsf(x[i]) <= 0x1p-7f); /* its own steps: live had the newest once */
    apply_version(a, x, samples, false);
    atom_free(live);
    atom_free(before);
    atom_free(after);
    side_close(a);
}

/* What a torn version left open is no step; the certificates say when the common steps are over. */
static void a_batch_that_is_not_whole_is_dropped(void **unused)
{
    (void)unused;
    side *a = founder();
    float *state = atom_alloc((uint64_t)4 * N, sizeof *state);
    uint64_t samples;
    bool moved;
    round_alone(a);
    a->pair = true;
    round_alone(a);
    const float *x = contribution(a, &samples); /* half of the batch: the rest is the other's */
    assert_int_equal(samples, MICRO);
    apply_version(a, x, samples, false);
    state_of(a, state);
    assert_true(state[3 * N + 1] != 0);
    apply_version(a, x, MICRO, true);
    state_of(a, state);
    for (uint64_t i = 0; i < N; i++)
        assert_true(state[3 * N + i] == 0);
    turn(a, &moved);
    assert_int_equal(a->steps, 2);
    round_alone(a);
    assert_true(a->own);
    atom_free(state);
    side_close(a);
}

/* Another lineage won that has not come so far. */
static void it_may_go_back(void **unused)
{
    (void)unused;
    side *a = dense_done(), *b = founder();
    bool moved;
    round_alone(a);
    assert_true(a->own);
    round_alone(b);
    move_state(b, a);
    assert_int_equal(turn(a, &moved), C);
    assert_true(moved && !a->own);
    assert_int_equal(a->steps, 1);
    same_anchor(a, b);
    for (int k = 1; k < STEPS; k++)
        round_alone(a);
    assert_false(a->own);
    round_alone(a);
    assert_true(a->own);
    side_close(a);
    side_close(b);
}

/* The trainer of one that has no step of its own, in a run whose steps are made. */
static void turn_at_the_end(side *a)
{
    bool moved, changed;
    assert_false(a->seam.done(a->seam.ctx));
    if (a->seam.stands(a->seam.ctx))
        must(a->seam.stand(a->seam.ctx, file_vector_memory(a->live), &changed));
    else
        (void)turn(a, &moved);
    assert_false(a->own);
}

/* One joins, and one has done nothing since before the switch: both end with the model of the pool. */
static void they_end_with_what_the_pool_leaves(void **unused)
{
    (void)unused;
    side *a = dense_done(), *paused = dense_done(), *late = side_open();
    side *both[2] = {paused, late};
    float *state = atom_alloc((uint64_t)4 * N, sizeof *state);
    uint64_t samples;
    const float *x = contribution(a, &samples);
    paused->pair = true;
    apply_version(paused, x, 50 * BATCH - DENSE, false);
    apply_version(a, x, 50 * BATCH - DENSE, false);
    move_state(a, late);
    attach(late, NULL);
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < 4; k++)
            turn_at_the_end(both[i]);
        state_of(a, state);
        assert_memory_equal(both[i]->live, state, sizeof both[i]->live);
        assert_memory_equal(both[i]->m, state + N, sizeof both[i]->m);
        assert_true(both[i]->seam.stands(both[i]->seam.ctx)); /* for the last average */
    }
    float *one = atom_alloc(N, sizeof *one);
    for (uint64_t i = 0; i < N; i++)
        one[i] = noise(i, 99);
    paused->from = 1;
    apply_version(a, one, 1, false);
    state_of(a, state);
    for (int i = 0; i < 2; i++) {
        pool_anchor_status s;
        apply_version(both[i], one, 1, false);
        same_anchor(a, both[i]);
        turn_at_the_end(both[i]);
        assert_true(both[i]->seam.done(both[i]->seam.ctx));
        assert_memory_equal(both[i]->live, state, sizeof both[i]->live);
        pool_anchor_read_status(both[i]->pool, false, &s);
        assert_true(s.done && !s.stands && s.lacking == 0 && s.own_samples == 0);
        side_close(both[i]);
    }
    atom_free(one);
    atom_free(state);
    side_close(a);
}

/* Its trainer stands until two are there. From then on a sum waits for it, though the trainer looks later. */
static void whoever_begins_with_others_is_waited_for(void **unused)
{
    (void)unused;
    side *a = founder();
    const gsp_work *w = &a->work;
    pool_anchor_running(a->pool, false);
    pool_anchor_awaits(a->pool, 2);
    assert_true(w->rests(w->context));
    assert_int_equal(w->ready(w->context, 1), 1);
    pool_anchor_running(a->pool, true);
    a->pair = true;
    round_alone(a);
    pool_anchor_running(a->pool, false);
    assert_true(w->rests(w->context));
    pool_anchor_awaits(a->pool, 2);
    assert_false(w->rests(w->context));
    assert_int_equal(w->ready(w->context, 2), 0);
    pool_anchor_awaits(a->pool, 0); /* it is paused */
    assert_true(w->rests(w->context));
    assert_int_equal(w->ready(w->context, 2), 1);
    side_close(a);
}

static void a_share_or_a_number(void **unused)
{
    static const char *const wrong[] = {"",     "0",    "0%",   "-1",  "-1%",  "100%", "101%",
                                        "x",    "1x",   "10%%", "1.5", "inf",  "nan",  "0x10",
                                        "1000", "1001", " 5",   "5 %", "1e400"};
    static const struct {
        const char *text;
        int64_t steps;
    } right[] = {{"10%", 100}, {"0.01%", 1}, {"1", 1}, {"999", 999}, {"33.31%", 334}};
    int64_t steps = -1;
    (void)unused;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(pool_dense_read(wrong[i], 1000, &steps), ATOM_E_USAGE);
    assert_int_equal(steps, -1);
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        must(pool_dense_read(right[i].text, 1000, &steps));
        assert_int_equal(steps, right[i].steps);
    }
    assert_int_equal(pool_dense_samples(10, 4, 32), 64);
    assert_int_equal(pool_dense_samples(16, 4, 32), 64);
    assert_int_equal(pool_dense_samples(1, 4, 32), 32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_switch_is_a_version),
        cmocka_unit_test(a_joiner_after_it),
        cmocka_unit_test(it_comes_back_before_and_after_it),
        cmocka_unit_test(a_batch_that_is_not_whole_is_dropped),
        cmocka_unit_test(it_may_go_back),
        cmocka_unit_test(they_end_with_what_the_pool_leaves),
        cmocka_unit_test(whoever_begins_with_others_is_waited_for),
        cmocka_unit_test(a_share_or_a_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
