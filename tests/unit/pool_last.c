/*
 * The last average of whole members in one process (lib/cell_world.h): the pool's model has what they
 * learned since its fragments were averaged, whoever dies meanwhile or ends without it.
 */
#include "tests/lib/cell_world.h"

/* The loss of weights, as a trainer sees them that learns nothing. */
static double loss_of(const world *w, const float *weights)
{
    peer *p = atom_alloc(1, sizeof *p);
    static world alone;
    alone = *w;
    alone.n = 0;
    alone.stop = false;
    p->w = &alone;
    p->i = 9; /* nobody's order of samples */
    open_trainer(p, false);
    p->config.learning_rate = 1e-12;
    p->config.max_steps = 24;
    file_vector to = trainer_weights(p->t);
    must(to.put(to.ctx, 0, trainer_floats(p->t), weights));
    must(trainer_weights_changed(p->t));
    must(trainer_run(p->t, &p->summary));
    double loss = last_loss(p, p->steps);
    trainer_close(&p->t);
    train_config_free(&p->config);
    scratch_close(&p->place);
    atom_free(p);
    return loss;
}

/* An outer step that takes half of what members learn leaves the anchor behind them. */
static void the_last_average_has_what_was_learnt(void **unused)
{
    (void)unused;
    enum { FLOATS_MAX = 1 << 20 };
    world *w = atom_alloc(1, sizeof *w);
    world_open(w, 2);
    w->steps = SANITIZED ? 60 : 120;
    w->sync_steps = 30;
    w->lr = 0.5;
    w->mu = 0;
    float *without = w->peer[0].ended = atom_alloc(FLOATS_MAX, sizeof *without);
    float *with = atom_alloc(FLOATS_MAX, sizeof *with);
    run(w);
    check_peers(w);
    assert_true(trainer_floats(w->peer[0].t) <= FLOATS_MAX);
    read_anchor(&w->peer[0], with);
    for (unsigned i = 0; i < 2; i++) {
        pool_anchor_status s;
        pool_anchor_read_status(w->peer[i].pool, false, &s);
        assert_int_equal(s.own_samples, 0);
        assert_int_equal(s.lacking, 0);
        assert_true(w->peer[i].applied >= s.applied);
    }
    double before = loss_of(w, without), after = loss_of(w, with);
    print_message("loss of the pool's model: %.3f without the last average, %.3f with it\n", before,
                  after);
    assert_true(after < before - 0.02);
    world_close(w);
    atom_free(without);
    atom_free(with);
    atom_free(w);
}

/* The one that is left is a quorum alone: what a pair does otherwise is the agreement's affair. */
static void one_dies(bool early)
{
    world *w = atom_alloc(1, sizeof *w);
    world_open(w, 2);
    w->steps = 40;
    w->early = early;
    w->rules.dead_ns = 2 * 1000000000ull;
    w->rules.round_ns = w->rules.round_min_ns = 4 * 1000000000ull;
    unsigned left =
        memcmp(w->keys.member[0].public_key, w->keys.member[1].public_key, GSP_KEY_BYTES) < 0 ? 0
                                                                                              : 1;
    w->killed[1 - left] = true;
    run(w);
    check_peers(w);
    pool_anchor_status s;
    pool_anchor_read_status(w->peer[left].pool, false, &s);
    assert_true(w->peer[1 - left].dead);
    assert_true(s.agreed && !s.stands);
    assert_int_equal(s.left_versions, 0);
    assert_int_equal(s.lacking, 0);
    world_close(w);
    atom_free(w);
}

static void one_dies_meanwhile(void **unused)
{
    (void)unused;
    one_dies(false);
}

static void one_died_before(void **unused)
{
    (void)unused;
    if (TSAN) /* the threads of the test before */
        skip();
    one_dies(true);
}

/* It votes and brings nothing any more, and its anchor stays that of the other. */
static void one_of_an_older_build(void **unused)
{
    (void)unused;
    if (TSAN) /* likewise */
        skip();
    world *w = atom_alloc(1, sizeof *w);
    world_open(w, 2);
    w->steps = 40;
    w->older[1] = true;
    run(w);
    check_peers(w);
    pool_anchor_status s;
    pool_anchor_read_status(w->peer[0].pool, false, &s);
    assert_int_equal(s.left_versions, 0);
    assert_int_equal(s.lacking, 0);
    assert_true(w->peer[1].applied + 1 >= s.applied);
    world_close(w);
    atom_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_average_has_what_was_learnt),
        cmocka_unit_test(one_dies_meanwhile),
        cmocka_unit_test(one_died_before),
        cmocka_unit_test(one_of_an_older_build),
    };
    return cmocka_run_group_tests(tests, set_cache, drop_cache);
}
