/*
 * A member whose masters and moments are on disk is, to the bit, the member that has them in memory:
 * the same trainer, the same rounds at the same steps, and everything that comes of it is compared.
 * And what comes while masters pass by: versions, other states, questions that are taken back.
 */
#include "tests/lib/little_gpt2.h"
#include "tests/lib/pool_side.h"
#include "tests/lib/sanitized.h"

#include <stdio.h>

enum { T = 32, TOKENS = 4000, STEPS = 30, PIECES = 4 };

/* ---- two sides with the same past: one has its masters whole, one in blocks ---- */

/* b has its anchor on disk where this is tested, a never. */
static void pair_open(side *a, side *b, double mix)
{
    side_open(b, 0.7, 0.9, mix);
    bool on_disk = anchors_on_disk;
    anchors_on_disk = false;
    side_open(a, 0.7, 0.9, mix);
    anchors_on_disk = on_disk;
    begin(a);
    begin(b);
}

/* Updates of a side whose masters come by in blocks; `between` happens when half of them have. */
static void step_in_blocks(side *a, uint32_t salt, void (*between)(side *a, void *ctx), void *ctx)
{
    uint64_t each = (N + PIECES - 1) / PIECES;
    a->seam.before_updates(a->seam.ctx, NULL, NULL);
    for (uint64_t k = 0, at = 0; at < N; k++, at += each) {
        uint64_t n = N - at < each ? N - at : each;
        a->seam.block(a->seam.ctx, at, n, a->live + at, true);
        for (uint64_t i = at; i < at + n; i++)
            a->live[i] += 0x1p-7f * noise(i, salt);
        a->seam.block(a->seam.ctx, at, n, a->live + at, false);
        if (between && k == PIECES / 2 - 1)
            between(a, ctx);
    }
    a->samples += 4;
    a->seam.stepped(a->seam.ctx, a->samples, a->samples * 16);
    a->seam.after_updates(a->seam.ctx, NULL);
}

static gsp_freeze ask(side *a, uint64_t version, const float **x)
{
    uint64_t tokens, samples;
    return a->work.freeze(a->work.context, version, x, &tokens, &samples);
}

/* A version that others made, with or without this member. */
typedef struct brought {
    uint64_t version;
    bool mine;
    const float *average;
} brought;

static void bring(side *a, void *ctx)
{
    static const gsp_hash none;
    const brought *b = ctx;
    gsp_certificate *c = atom_alloc(1, sizeof *c);
    give_parts(a, b->version, b->average);
    certificate_make(c, b->version, a->samples, true);
    if (!b->mine)
        c->proposal.contributor[0].member = 9; /* of nobody here */
    must(a->work.apply(a->work.context, c, &none));
    atom_free(c);
}

/* After any number of versions, as often as they come between two steps. */
static void blocks_are_the_whole(void **unused)
{
    (void)unused;
    side a, b;
    const float *x, *y;
    float *average = atom_alloc(N, sizeof *average);
    pair_open(&a, &b, 0.25);
    for (uint64_t v = 1; v <= 5 * F; v++) {
        uint64_t first, n = pool_fragment_range(N, F, (uint32_t)(v % F), &first);
        brought round = {v, v % 4 != 0, average};
        assert_int_equal(ask(&a, v, &x), GSP_FREEZE_LATER);
        assert_int_equal(ask(&b, v, &y), GSP_FREEZE_LATER);
        step(&a, (uint32_t)v);
        step_in_blocks(&b, (uint32_t)v, NULL, NULL);
        assert_int_equal(ask(&a, v, &x), GSP_FREEZE_READY);
        assert_int_equal(ask(&b, v, &y), GSP_FREEZE_READY);
        assert_memory_equal(x, y, n * sizeof *x);
        for (uint64_t i = 0; i < n; i++)
            average[i] = 0.5f * x[i] + 0x1p-8f * noise(i, 99 + (uint32_t)v);
        if (v % 3 == 0) { /* some steps, or none, before it is there */
            step(&a, 1000);
            step_in_blocks(&b, 1000, NULL, NULL);
        }
        bring(&a, &round);
        bring(&b, &round);
        assert_memory_equal(a.live, b.live, N * sizeof *a.live);
    }
    pool_anchor_status s, t;
    pool_anchor_read_status(a.pool, true, &s);
    pool_anchor_read_status(b.pool, true, &t);
    assert_memory_equal(&s.anchor, &t.anchor, sizeof s.anchor);
    assert_int_equal(s.merged, t.merged);
    assert_true(s.delta_norm == t.delta_norm);
    atom_free(average);
    side_close(&a);
    side_close(&b);
}

/* A version comes while masters pass by: as if it had come behind them. */
static void a_version_in_the_middle_waits(void **unused)
{
    (void)unused;
    side a, b;
    const float *x, *y;
    float *average = atom_alloc(N, sizeof *average);
    pair_open(&a, &b, 0);
    for (uint64_t v = 1; v <= 4 * F; v++) {
        brought round = {v, v % 2 == 0, average};
        for (uint64_t i = 0; i < N; i++)
            average[i] = 0x1p-6f * noise(i, 7 * (uint32_t)v);
        if (round.mine) {
            (void)ask(&a, v, &x);
            (void)ask(&b, v, &y);
            step(&a, 500);
            step_in_blocks(&b, 500, NULL, NULL);
            assert_int_equal(ask(&a, v, &x), GSP_FREEZE_READY);
            assert_int_equal(ask(&b, v, &y), GSP_FREEZE_READY);
        }
        step(&a, (uint32_t)v);
        bring(&a, &round);
        step_in_blocks(&b, (uint32_t)v, bring, &round);
        step(&a, 2000);
        step_in_blocks(&b, 2000, NULL, NULL);
        assert_memory_equal(a.live, b.live, N * sizeof *a.live);
    }
    atom_free(average);
    side_close(&a);
    side_close(&b);
}

/* F versions one after the other, with a contribution that this member does not remember. */
static void bring_all(side *a, void *ctx)
{
    brought round = *(brought *)ctx;
    for (uint64_t k = 0; k < F; k++, round.version++)
        bring(a, &round);
}

/* Live is being replaced by an anchor, and another comes: in the end it is the newer one's. */
static void an_anchor_that_turns_is_taken_again(void **unused)
{
    (void)unused;
    side a, b;
    float *average = atom_alloc(N, sizeof *average);
    brought first = {1, true, average}, second = {1 + F, true, average};
    for (uint64_t i = 0; i < N; i++)
        average[i] = 0x1p-6f * noise(i, 3);
    pair_open(&a, &b, 0);
    bring_all(&a, &first);
    bring_all(&b, &first);
    step(&a, 1);
    bring_all(&a, &second);
    step_in_blocks(&b, 1, bring_all, &second);
    step(&a, 2);
    step_in_blocks(&b, 2, NULL, NULL);
    assert_memory_equal(a.live, b.live, N * sizeof *a.live);
    atom_free(average);
    side_close(&a);
    side_close(&b);
}

/* ... and the member asks for the next one at once. */
static void bring_and_ask(side *a, void *ctx)
{
    const float *x;
    bring(a, ctx);
    assert_int_equal(ask(a, 2, &x), GSP_FREEZE_LATER);
}

/* What is being copied out belongs to a version that others made meanwhile: it is not brought. */
static void a_copy_of_two_versions_is_no_contribution(void **unused)
{
    (void)unused;
    side a;
    const float *x;
    float *average = atom_alloc(N, sizeof *average);
    brought round = {1, false, average};
    side_open(&a, 0.7, 0.9, 0);
    begin(&a);
    assert_int_equal(ask(&a, 1, &x), GSP_FREEZE_LATER);
    step_in_blocks(&a, 1, bring_and_ask, &round);
    assert_int_equal(ask(&a, 2, &x), GSP_FREEZE_LATER);
    step_in_blocks(&a, 2, NULL, NULL);
    assert_int_equal(ask(&a, 2, &x), GSP_FREEZE_READY);
    pool_anchor_status s;
    pool_anchor_read_status(a.pool, false, &s);
    assert_int_equal(s.copied, 1);
    atom_free(average);
    side_close(&a);
}

/* ---- copies that nobody may bring ---- */

static void ask_first(side *a, void *ctx)
{
    const float *x;
    assert_int_equal(ask(a, *(const uint64_t *)ctx, &x), GSP_FREEZE_LATER);
}

/* Asked for while masters pass by: half of them have, and those are not what is brought. */
static void half_a_copy_is_no_contribution(void **unused)
{
    (void)unused;
    side a;
    const float *x;
    float *before = atom_alloc(N, sizeof *before), *average = atom_alloc(N, sizeof *average);
    side_open(&a, 0.7, 0.9, 0);
    memcpy(before, a.live, N * sizeof *before);
    begin(&a);
    for (uint64_t v = 1; v <= 2; v++) {
        uint64_t first, n = pool_fragment_range(N, F, (uint32_t)(v % F), &first);
        brought round = {v, true, average};
        step_in_blocks(&a, (uint32_t)(10 * v), ask_first, &v);
        assert_int_equal(ask(&a, v, &x), GSP_FREEZE_LATER);
        step_in_blocks(&a, (uint32_t)(10 * v + 1), NULL, NULL);
        assert_int_equal(ask(&a, v, &x), GSP_FREEZE_READY);
        for (uint64_t i = 0; i < n; i++)
            assert_true(x[i] == before[first + i] - a.live[first + i]);
        bring(&a, &round);
    }
    atom_free(before);
    atom_free(average);
    side_close(&a);
}

/* A run that stands, or was asked for nothing, copies nothing, and waits to be asked again. */
static void nobody_copies_unasked(void **unused)
{
    (void)unused;
    side a;
    const float *x;
    pool_anchor_status s;
    side_open(&a, 0.7, 0.9, 0);
    begin(&a);
    for (int blocks = 0; blocks < 2; blocks++) {
        assert_int_equal(ask(&a, 1, &x), GSP_FREEZE_LATER);
        pool_anchor_running(a.pool, false);
        if (blocks)
            step_in_blocks(&a, 1, NULL, NULL);
        else
            step(&a, 1);
        pool_anchor_running(a.pool, true);
        assert_int_equal(ask(&a, 1, &x), GSP_FREEZE_LATER);
        pool_anchor_running(a.pool, false);
        assert_int_equal(ask(&a, 1, &x), GSP_FREEZE_NOTHING);
        pool_anchor_running(a.pool, true);
        if (blocks)
            step_in_blocks(&a, 2, NULL, NULL);
        else
            step(&a, 2);
        pool_anchor_read_status(a.pool, false, &s);
        assert_int_equal(s.copied, 0);
        assert_int_equal(ask(&a, 1, &x), GSP_FREEZE_LATER); /* nothing was there to be given */
        pool_anchor_running(a.pool, false);
        assert_int_equal(ask(&a, 1, &x), GSP_FREEZE_NOTHING);
        pool_anchor_running(a.pool, true);
    }
    side_close(&a);
}

/* ---- trainers ---- */

typedef struct member {
    scratch place;
    train_config config;
    train_hooks hooks;
    train_seam seam;
    trainer *t;
    pool_anchor *pool;
    gsp_work work;
    uint64_t version, samples;
    float *average;
    train_summary summary;
} member;

static void write_world(scratch *s)
{
    static uint32_t ids[TOKENS];
    for (uint32_t i = 0, x = 1; i < TOKENS; i++, x = x * 1664525u + 1013904223u)
        ids[i] = x >> 26;
    must(little_gpt2_write(scratch_path(s, "config.json"), 320, 64, 0));
    must(little_shards_write(s->dir, "train", 257, ids, TOKENS));
}

/* Behind every step, and while live weights stand still at the end, what a member would do: the rounds
 * fall on the same steps in every run. */
static bool be_member(void *context)
{
    member *m = context;
    static const gsp_hash none;
    const float *x = NULL;
    uint64_t tokens, samples = 0, first;
    gsp_freeze answer = m->work.freeze(m->work.context, m->version, &x, &tokens, &samples);
    if (answer == GSP_FREEZE_LATER)
        return false;
    uint64_t n = pool_fragment_range(trainer_floats(m->t), F, (uint32_t)(m->version % F), &first);
    for (uint64_t i = 0; x && i < n; i++)
        m->average[i] = 0.5f * x[i] + 0x1p-10f * noise(i, (uint32_t)m->version);
    if (x)
        m->work.part(m->work.context, m->version, 0, m->average, n);
    gsp_certificate *c = atom_alloc(1, sizeof *c);
    bool others = m->version % 3 == 0;
    certificate_make(c, m->version, m->samples += others ? 0 : samples, x != NULL);
    c->proposal.n_parts = 1;
    if (others)
        c->proposal.contributor[0].member = 9;
    must(m->work.apply(m->work.context, c, &none));
    atom_free(c);
    m->version++;
    return false;
}

static void configure(member *m, scratch *world, bool disk, double clip)
{
    train_config *c = &m->config;
    memset(m, 0, sizeof *m);
    m->version = 1;
    scratch_open(&m->place);
    must(train_config_defaults(c));
    atom_free(c->model);
    c->model = atom_strdup(scratch_path(world, "config.json"));
    c->data = atom_strdup(world->dir);
    c->output_dir = atom_strdup(scratch_path(&m->place, "out"));
    c->micro_batch_size = 2;
    c->gradient_accumulation_steps = 2;
    c->sequence_len = T;
    c->max_steps = STEPS;
    c->learning_rate = 2e-3;
    c->max_grad_norm = clip;
    c->dtype = PLAN_DTYPE_FP32;
    c->execute = TRAIN_EXECUTE_INTERPRETED;
    c->threads = 1;
    c->eval_steps = 0;
    c->save_steps = 7;
    c->optimizer_state = disk ? PLAN_STATE_ON_DISK : PLAN_STATE_IN_MEMORY;
    atom_free(c->device);
    c->device = atom_strdup("cpu");
}

static void member_run(member *m, scratch *world, bool disk, bool anchor_on_disk, double clip,
                       bool slices)
{
    configure(m, world, disk, clip);
    m->seam.host_bytes_per_float = 12;
    m->hooks = (train_hooks){.stop = be_member, .seam = &m->seam, .ctx = m};
    must(trainer_open(&m->config, &m->hooks, &m->t));
    assert_int_equal(trainer_plan(m->t)->disk, disk);
    pool_anchor_config c = {.directory = scratch_path(&m->place, "anchor"),
                            .n_floats = trainer_floats(m->t),
                            .n_fragments = F,
                            .outer_learning_rate = 0.7,
                            .outer_momentum = 0.9,
                            .batch = 4,
                            .max_samples = 4 * STEPS,
                            .slices = slices,
                            .on_disk = anchor_on_disk,
                            .piece_floats = PIECE};
    memset(c.self.byte, 7, sizeof c.self.byte);
    m->average = atom_alloc(c.n_floats, sizeof *m->average);
    must(pool_anchor_open(&c, &m->pool));
    m->seam = pool_anchor_seam(m->pool);
    pool_anchor_work(m->pool, &m->work);
    must(pool_anchor_begin(m->pool, trainer_weights(m->t)));
    must(pool_anchor_attach(m->pool, trainer_weights(m->t), NULL, 0, 0));
    must(trainer_weights_changed(m->t));
    pool_anchor_running(m->pool, true);
    must(trainer_run(m->t, &m->summary));
}

static void member_close(member *m)
{
    trainer_close(&m->t);
    pool_anchor_close(&m->pool);
    train_config_free(&m->config);
    atom_free(m->average);
    scratch_close(&m->place);
}

static void same_file(const member *a, const member *b, const char *checkpoint, const char *name)
{
    char *p = atom_format("%s/out/%s/%s", a->place.dir, checkpoint, name), *x = NULL, *y = NULL;
    char *q = atom_format("%s/out/%s/%s", b->place.dir, checkpoint, name);
    uint64_t n, k;
    must(atom_file_read(p, 1 << 26, &x, &n));
    must(atom_file_read(q, 1 << 26, &y, &k));
    assert_int_equal(n, k);
    assert_memory_equal(x, y, n);
    atom_free(p);
    atom_free(q);
    atom_free(x);
    atom_free(y);
}

static void same_run(bool disk, double clip, bool slices)
{
    static const char *const checkpoints[] = {"checkpoint-28", "checkpoint-30"};
    scratch world;
    member a, b;
    pool_anchor_status s, t;
    scratch_open(&world);
    write_world(&world);
    member_run(&a, &world, false, false, clip, slices);
    member_run(&b, &world, disk, anchors_on_disk, clip, slices);
    pool_anchor_read_status(a.pool, true, &s);
    pool_anchor_read_status(b.pool, true, &t);
    assert_true(a.version > 3 * F && a.version == b.version);
    assert_true(s.agreed && s.left_versions == 0 && a.summary.steps == STEPS);
    assert_true(s.merged > 0 && s.merged == t.merged);
    assert_memory_equal(&s.anchor, &t.anchor, sizeof s.anchor);
    assert_true(a.summary.final_loss == b.summary.final_loss);
    for (int i = 0; i < 2; i++) {
        same_file(&a, &b, checkpoints[i], "model.safetensors");
        same_file(&a, &b, checkpoints[i], "optimizer.safetensors");
        same_file(&a, &b, checkpoints[i], "pool.json");
    }
    member_close(&a);
    member_close(&b);
    scratch_close(&world);
}

static void the_disk_changes_no_bit(void **unused)
{
    (void)unused;
    same_run(true, 1, false);
}

static void nor_where_nothing_is_clipped(void **unused)
{
    (void)unused;
    if (SANITIZED && !anchors_on_disk) /* what the test before runs */
        skip();
    same_run(true, 0, false);
}

static void nor_with_slices(void **unused)
{
    (void)unused;
    same_run(true, 1, true);
}

/* The anchor alone on disk: masters stay in memory. */
static void nor_with_masters_in_memory(void **unused)
{
    (void)unused;
    if (SANITIZED && !anchors_on_disk) /* nothing is on disk then */
        skip();
    same_run(false, 1, false);
    same_run(false, 1, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_the_whole),
        cmocka_unit_test(a_version_in_the_middle_waits),
        cmocka_unit_test(an_anchor_that_turns_is_taken_again),
        cmocka_unit_test(a_copy_of_two_versions_is_no_contribution),
        cmocka_unit_test(half_a_copy_is_no_contribution),
        cmocka_unit_test(nobody_copies_unasked),
        cmocka_unit_test(the_disk_changes_no_bit),
        cmocka_unit_test(nor_where_nothing_is_clipped),
        cmocka_unit_test(nor_with_slices),
        cmocka_unit_test(nor_with_masters_in_memory),
    };
    return both_tiers(tests, NULL, NULL);
}
