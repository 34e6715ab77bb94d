/*
 * Whole members in one process (lib/cell_world.h). Their anchors are equal to the bit after every version,
 * what they learn together is what one trainer learns from as much data, and one who trains alone in a
 * pool learns what it learns without one.
 */
#include "tests/lib/cell_world.h"

static void four_train_together(gsp_codec codec)
{
    world *w = atom_alloc(1, sizeof *w);
    world_open(w, MEMBERS);
    w->codec = codec;
    double plain = train_plain(w, BATCH * MEMBERS, NULL, NULL), mean = 0;
    run(w);
    check_peers(w);
    for (unsigned i = 0; i < w->n; i++) {
        pool_anchor_status s;
        const peer *p = &w->peer[i];
        pool_anchor_read_status(p->pool, false, &s);
        mean += last_loss(p, 10) / w->n;
        print_message("member %u: %u steps, loss %.3f to %.3f, %llu versions, %llu included, %llu "
                      "merges, seam %.2f ms each, longest %.2f ms\n",
                      i, p->steps, p->loss[0], last_loss(p, 10), (unsigned long long)s.applied,
                      (unsigned long long)s.included, (unsigned long long)s.merged,
                      1e3 * s.seam_seconds / (double)(s.merged + s.copied + 1),
                      1e-6 * (double)s.wait_longest_ns);
        assert_true(s.included >= (SANITIZED ? 2 : 4));
        assert_true(p->steps > w->steps / MEMBERS / 2 && p->steps < w->steps * 2 / MEMBERS);
    }
    print_message("one trainer %.3f, four members %.3f\n", plain, mean);
    if (!SANITIZED) /* there they learn for too few steps */
        assert_true(mean < plain * 1.1);
    world_close(w);
    atom_free(w);
}

static void four_learn_what_one_learns(void **unused)
{
    (void)unused;
    if (SANITIZED)
        skip();
    four_train_together(GSP_CODEC_FP32);
}

static void with_an_int8_codec_too(void **unused)
{
    (void)unused;
    four_train_together(GSP_CODEC_INT8);
}

/* Outer rate 1, no momentum: the anchor becomes what was live, live stays, but for the rounding of
 * anchor - (anchor - live) where the two differ by more than a factor 2. */
static void one_alone_trains_as_without_a_pool(void **unused)
{
    (void)unused;
    if (TSAN) /* four have the same threads, and each other's */
        skip();
    world *w = atom_alloc(1, sizeof *w);
    static double loss[STEPS_MAX];
    unsigned steps = 0;
    world_open(w, 1);
    w->steps = SANITIZED ? 60 : 120;
    w->lr = 1;
    w->mu = 0;
    (void)train_plain(w, BATCH, &steps, loss);
    run(w);
    check_peers(w);
    const peer *p = &w->peer[0];
    pool_anchor_status s;
    pool_anchor_read_status(p->pool, false, &s);
    assert_true(s.included >= (SANITIZED ? 4 : 10));
    assert_int_equal(p->steps, steps);
    double worst = 0;
    unsigned equal = 0;
    for (unsigned i = 0; i < steps; i++) {
        worst = fmax(worst, fabs(p->loss[i] - loss[i]) / loss[i]);
        equal += p->loss[i] == loss[i];
    }
    print_message("alone: %u of %u losses equal to the bit, worst difference %.2g\n", equal, steps,
                  worst);
    assert_true(equal >= 4); /* before the first version nothing can differ */
    assert_true(worst < 1e-4);
    world_close(w);
    atom_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_alone_trains_as_without_a_pool),
        cmocka_unit_test(four_learn_what_one_learns),
        cmocka_unit_test(with_an_int8_codec_too),
    };
    return cmocka_run_group_tests(tests, set_cache, drop_cache);
}
