/* What a pool's defaults are for a size and a link, that they follow the link, that what was said
 * stays, and that the words carry the numbers. */
#include "atom/pool/advice.h"
#include "gossip/sum/quant.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const uint64_t MBIT = 125000;

static pool_advice advise(uint64_t floats, uint64_t mbit, double tokens_per_s, pool_said said,
                          pool_settings s)
{
    pool_advice a;
    pool_facts f = {.floats = floats,
                    .step_tokens = 65536,
                    .tokens_per_s = tokens_per_s,
                    .up_bytes_per_s = mbit * MBIT,
                    .down_bytes_per_s = 10 * mbit * MBIT};
    pool_advise(&s, &said, &f, &a);
    return a;
}

static const pool_settings plain = {
    .sync_steps = 20, .fragments = 8, .codec = GSP_CODEC_INT8, .due_seconds = 600};
static const pool_said nothing = {0};

static void by_size(void **state)
{
    (void)state;
    pool_advice a = advise(124000000, 100, 20000, nothing, plain);
    assert_int_equal(a.sync_steps, 20);
    assert_int_equal(a.codec, GSP_CODEC_INT8);
    assert_true(a.hidden && !a.assumed);
    /* 124M x 1.001 bytes x 1.75 at 12.5 MB/s; 20 x 65536 / 20000. */
    assert_float_equal(a.chosen.sync_seconds, 17.38, 0.05);
    assert_float_equal(a.chosen.steps_seconds, 65.54, 0.01);
    assert_non_null(
        strstr(a.why[0], "H = 20: sending all 124M parameters once (a sync) in int8 takes 17 s at "
                         "100 Mbit/s, and 20 steps take 66 s, so the sync is hidden"));
    /* 17.4 s are a tenth of 173.8; in the other 156.4 eight members compute 25M tokens. */
    assert_non_null(strstr(a.why[1], "with a global batch of at least 25M tokens (8 members)"));
    assert_int_equal(advise(999999999, 1000, 1000, nothing, plain).sync_steps, 20);
    assert_int_equal(advise(1000000000, 1000, 1000, nothing, plain).sync_steps, 100);
}

/* The lesser of both directions counts, whichever it is. */
static void the_lesser_direction(void **state)
{
    const pool_facts way[] = {
        {.floats = 124000000, .up_bytes_per_s = 100 * MBIT, .down_bytes_per_s = 20 * MBIT},
        {.floats = 124000000, .up_bytes_per_s = 20 * MBIT, .down_bytes_per_s = 100 * MBIT},
        {.floats = 124000000, .up_bytes_per_s = 20 * MBIT},
        {.floats = 124000000, .down_bytes_per_s = 20 * MBIT}};
    (void)state;
    for (size_t i = 0; i < sizeof way / sizeof *way; i++) {
        pool_advice a;
        pool_advise(&plain, &nothing, &way[i], &a);
        assert_float_equal(a.chosen.sync_seconds, 86.9, 0.3);
    }
}

/* Numbers as they are shown, at the ends of each unit. */
static void figures(void **state)
{
    static const struct {
        double n;
        const char *seconds, *count;
    } of[] = {{9.96, "10.0 s", "10"},    {10, "10 s", "10"},        {599, "599 s", "599"},
              {600, "10 min", "600"},    {999.6, "17 min", "1.0k"}, {3660, "61 min", "3.7k"},
              {35999, "600 min", "36k"}, {36000, "10 h", "36k"},    {999600, "278 h", "1.0M"}};
    char text[POOL_FIGURE_BYTES];
    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        assert_string_equal(pool_seconds_text(of[i].n, text), of[i].seconds);
        assert_string_equal(pool_count_text(of[i].n, text), of[i].count);
    }
}

static bool says(const pool_advice *a, const char *text)
{
    for (uint32_t i = 0; i < a->n_why; i++)
        if (strstr(a->why[i], text))
            return true;
    return false;
}

/* Eight members make a hundred steps each. */
static void warns_of_short_runs(void **state)
{
    (void)state;
    pool_settings s = plain;
    s.batch = 4;
    s.steps = 800;
    s.rewarm_steps = 100;
    pool_advice a = advise(124000000, 100, 20000, nothing, s);
    assert_false(says(&a, "newcomer"));
    s.rewarm_steps = 101;
    a = advise(124000000, 100, 20000, nothing, s);
    assert_true(says(&a, "each of 8 members makes about 100 steps, and with rewarm_steps: 101"));
    s.sync = POOL_SYNC_GRADIENTS; /* whoever comes makes the steps of all */
    a = advise(124000000, 100, 20000, nothing, s);
    assert_false(says(&a, "newcomer"));
    s.sync = POOL_SYNC_SLICES;
    s.rewarm_steps = 0;
    s.sync_steps = 100;
    pool_said said = {.sync_steps = true};
    a = advise(124000000, 100, 20000, said, s);
    assert_false(says(&a, "never averaged"));
    s.sync_steps = 101;
    a = advise(124000000, 100, 20000, said, s);
    assert_true(says(&a, "with sync_steps: 101 some slices are never averaged"));
    assert_true(says(&a, "choose sync_steps of at most 100"));
    s.steps = 0; /* without an end */
    a = advise(124000000, 100, 20000, said, s);
    assert_false(says(&a, "never averaged"));
}

static void warns_of_momentum(void **state)
{
    (void)state;
    pool_settings s = plain;
    const pool_said said = {.sync_steps = true};
    s.outer_momentum = 0.8;
    pool_advice a = advise(124000000, 100, 20000, said, s);
    assert_false(says(&a, "outer momentum"));
    s.sync_steps = 19;
    a = advise(124000000, 100, 20000, said, s);
    assert_true(says(&a, "H = 19 is small for an outer momentum"));
    s.outer_momentum = 0;
    a = advise(124000000, 100, 20000, said, s);
    assert_false(says(&a, "outer momentum"));
    s.outer_momentum = 0.8;
    s.sync = POOL_SYNC_GRADIENTS;
    a = advise(124000000, 100, 20000, said, s);
    assert_false(says(&a, "outer momentum"));
    s = plain;
    s.outer_momentum = 0.8;
    pool_facts f = {.floats = 124000000, .step_tokens = 65536, .tokens_per_s = 20000, .members = 2};
    pool_advise(&s, &said, &f, &a);
    assert_true(says(&a, "two members that stepped by Muon"));
    f.members = 3;
    pool_advise(&s, &said, &f, &a);
    assert_false(says(&a, "outer momentum"));
    f.members = 2;
    s.outer_momentum = 0;
    pool_advise(&s, &said, &f, &a);
    assert_false(says(&a, "outer momentum"));
}

/* 5 x 65536 / 20000 are 16.4 s; 124M int8 numbers take 17.4 s at 100 Mbit/s and 14.5 s at 120. */
static void offers_more_averages(void **state)
{
    (void)state;
    pool_advice a = advise(124000000, 100, 20000, nothing, plain);
    assert_false(says(&a, "sync_steps: 5"));
    a = advise(124000000, 120, 20000, nothing, plain);
    assert_true(says(&a, "would hide a sync every 5 steps"));
    assert_true(says(&a, "send 4 times as much"));
    a = advise(124000000, 120, 20000, (pool_said){.sync_steps = true}, plain);
    assert_false(says(&a, "sync_steps: 5"));
    a = advise(124000000, 120, 0, nothing, plain);
    assert_false(says(&a, "sync_steps: 5"));
    pool_settings s = plain;
    s.sync = POOL_SYNC_GRADIENTS;
    a = advise(124000000, 120, 20000, nothing, s);
    assert_false(says(&a, "sync_steps: 5"));
    s.sync = POOL_SYNC_SLICES;
    a = advise(124000000, 120, 20000, nothing, s);
    assert_false(says(&a, "sync_steps: 5"));
}

static void warns_of_forks(void **state)
{
    (void)state;
    pool_settings s = plain;
    s.heartbeat_seconds = 2;
    s.fork_seconds = 8;
    pool_advice a = advise(124000000, 100, 20000, nothing, s);
    assert_false(says(&a, "fork_seconds"));
    s.fork_seconds = 5;
    a = advise(124000000, 100, 20000, nothing, s);
    assert_true(
        says(&a, "with fork_seconds: 5 members that miss 3 reports (heartbeat_seconds: 2)"));
}

/* Eight members: fifty averages of 20 steps each are 8000 steps of all. */
static void warns_of_few_averages(void **state)
{
    (void)state;
    pool_settings s = plain;
    s.batch = 4;
    s.steps = 8000;
    pool_advice a = advise(124000000, 100, 20000, nothing, s);
    assert_false(says(&a, "steps of its own"));
    s.steps = 7999;
    a = advise(124000000, 100, 20000, nothing, s);
    assert_true(says(&a, "each of 8 members makes about 1000 steps of its own"));
    assert_true(says(&a, "choose an H of at most 19, or train with sync: gradients"));
    s.steps = 2440; /* 305 each */
    a = advise(124000000, 100, 20000, nothing, s);
    assert_true(says(&a, "averaged only 15 times"));
    assert_true(says(&a, "an H of at most 6,"));
    s.steps = 399;
    a = advise(124000000, 100, 20000, nothing, s);
    assert_true(says(&a, "from each other: train with sync: gradients"));
    s.steps = 8800; /* of which a tenth is summed */
    s.dense_steps = "10%";
    s.global_batch_size = 32;
    a = advise(124000000, 100, 20000, nothing, s);
    assert_true(says(&a, "about 990 steps of its own"));
    s.sync = POOL_SYNC_GRADIENTS;
    s.dense_steps = NULL;
    a = advise(124000000, 100, 20000, nothing, s);
    assert_false(says(&a, "steps of its own"));
    s.steps = 0; /* without an end */
    s.sync = POOL_SYNC_PARAMETERS;
    a = advise(124000000, 100, 20000, nothing, s);
    assert_false(says(&a, "steps of its own"));
}

static void by_link(void **state)
{
    (void)state;
    /* 20 Mbit/s: 87 s against 66; 50 steps take 164. */
    pool_advice a = advise(124000000, 20, 20000, nothing, plain);
    assert_int_equal(a.sync_steps, 50);
    assert_true(a.hidden);
    assert_non_null(strstr(a.why[0], "(raised because of the link)"));
    /* Nothing hides it: the last rung, and what would. */
    a = advise(7000000000, 1, 100000, nothing, plain);
    assert_int_equal(a.sync_steps, 500);
    assert_false(a.hidden);
    assert_non_null(strstr(a.why[0], "is not hidden"));
    assert_non_null(strstr(a.why[1], "would hide it, but with more than 500 steps"));
    assert_true(a.chosen.waits > 0.9 && a.chosen.waits < 1);
    long long would = 0;
    assert_int_equal(sscanf(a.why[1], "H = %lld", &would), 1);
    pool_settings s = plain;
    s.sync_steps = would;
    assert_true(advise(7000000000, 1, 100000, (pool_said){.sync_steps = true}, s).hidden);
    s.sync_steps = would * 9 / 10;
    assert_false(advise(7000000000, 1, 100000, (pool_said){.sync_steps = true}, s).hidden);
    /* The lesser direction counts; an unknown link is assumed, and that is said. */
    a = advise(124000000, 0, 20000, nothing, plain);
    assert_true(a.assumed);
    assert_non_null(strstr(a.why[a.n_why - 1], "is assumed"));
    /* One that was said, and another that is not too long. */
    a = advise(124000000, 20, 20000, (pool_said){.sync_steps = true}, plain);
    assert_string_equal(a.why[1], "H = 27 would hide it");
    s.sync_steps = 2; /* 17.4 s beside 3.3 s a step */
    a = advise(124000000, 100, 20000, (pool_said){.sync_steps = true}, s);
    assert_string_equal(a.why[1], "H = 6 would hide it");
}

static void what_was_said_stays(void **state)
{
    (void)state;
    pool_settings s = plain;
    s.sync_steps = 7;
    s.codec = GSP_CODEC_FP32;
    s.due_seconds = 60;
    pool_said said = {.sync_steps = true, .codec = true, .due_seconds = true};
    pool_advice a = advise(7000000000, 1, 100, said, s);
    assert_int_equal(a.sync_steps, 7);
    assert_int_equal(a.codec, GSP_CODEC_FP32);
    assert_float_equal(a.due_seconds, 60, 0);
    assert_non_null(strstr(a.why[0], "H = 7 (as you said)"));
    pool_advice_follow(&a, &s);
    assert_int_equal(s.sync_steps, 7);
    /* Slices have an H of their own. */
    pool_settings slices = plain;
    slices.sync = POOL_SYNC_SLICES;
    slices.sync_steps = slices.fragments = 16;
    a = advise(124000000, 20, 20000, nothing, slices);
    assert_int_equal(a.sync_steps, 16);
    assert_non_null(strstr(a.why[0], "H = 16 (a slice a step)"));
    /* T leaves room where steps are slow: 100 x 65536 / 100 / 8 s each. */
    a = advise(1000000000, 1000, 100, nothing, plain);
    assert_true(a.due_seconds >= 2 * 100 * 65536.0 / 100 / 8);
    assert_true(a.due_seconds <= 2 * 100 * 65536.0 / 100 / 8 + 60);
    pool_advice_follow(&a, &s);
    assert_int_equal(s.sync_steps, 100);
    assert_int_equal(s.codec, GSP_CODEC_INT8);
    assert_float_equal(s.due_seconds, a.due_seconds, 0);
    /* A day at most; and from half of the usual T on. */
    a = advise(1000000000, 1000, 1, nothing, plain);
    assert_float_equal(a.due_seconds, 86400, 0);
    a = advise(124000000, 1000, 409.6, nothing, plain); /* 400 s each */
    assert_float_equal(a.due_seconds, 840, 61);
    a = advise(124000000, 1000, 655.36, nothing, plain); /* 250 s each */
    assert_float_equal(a.due_seconds, 600, 0);
}

static void alternatives(void **state)
{
    (void)state;
    pool_advice a = advise(124000000, 20, 20000, nothing, plain);
    uint32_t chosen = 0;
    for (uint32_t i = 0; i < a.n_cases; i++) {
        const pool_case *c = &a.cases[i];
        chosen += c->chosen;
        assert_true(c->waits >= 0 && c->waits < 1);
        assert_int_equal(c->waits > 0, c->sync_seconds > c->steps_seconds);
        if (i && c->codec == c[-1].codec)
            assert_true(c->sync_steps > c[-1].sync_steps && c->waits <= c[-1].waits);
    }
    assert_int_equal(chosen, 1);
    assert_true(a.n_cases >= 9 && a.n_cases <= POOL_CASES_MAX);
}

static void sums(void **state)
{
    (void)state;
    pool_settings s = plain;
    s.sync = POOL_SYNC_GRADIENTS;
    s.codec = GSP_CODEC_FP32;
    s.fragments = 1;
    pool_advice a = advise(124000000, 100, 20000, nothing, s);
    assert_int_equal(a.sync_steps, 1);
    assert_int_equal(a.codec, GSP_CODEC_FP32);
    assert_non_null(strstr(a.why[0], "of the time it waits for the link"));
    /* 69 s of moving beside 3.3 of computing. */
    assert_float_equal(a.chosen.waits, 0.955, 0.01);
    assert_false(a.hidden);
    assert_non_null(strstr(a.why[1], "would wait 10 % of the time"));
    /* Followed, a pool of gradients keeps its codec and H. */
    pool_settings followed = s;
    pool_advice_follow(&a, &followed);
    assert_int_equal(followed.sync_steps, s.sync_steps);
    /* A quarter of the time is too much, a twentieth is not, and asks for no larger batch. */
    a = advise(124000000, 20000, 20000, nothing, s);
    assert_true(a.hidden && a.chosen.waits < 0.1);
    for (uint32_t i = 0; i < a.n_why; i++)
        assert_null(strstr(a.why[i], "would wait 10 % of the time"));
    a = advise(124000000, 5000, 20000, nothing, s);
    assert_true(!a.hidden && a.chosen.waits > 0.1 && a.chosen.waits < 0.5);
    /* Nothing known of the speed: no claim about hiding. */
    a = advise(124000000, 100, 0, nothing, plain);
    assert_non_null(strstr(a.why[0], "not known"));
}

/* Both ways are priced for as many hosts as are reckoned with, and the line decides between them. */
static void ways(void **state)
{
    (void)state;
    const pool_facts f = {.floats = 124000000,
                          .step_tokens = 65536,
                          .tokens_per_s = 20000,
                          .up_bytes_per_s = 100 * MBIT,
                          .down_bytes_per_s = 1000 * MBIT};
    /* 16 micro-batches of 4096 tokens in 3.2768 s, of which the update takes 0.0768; made of summed
     * gradients it takes 0.1768. */
    const pool_pace pace = {.micro_tokens = 4096,
                            .micro_seconds = 0.2,
                            .update_seconds = 0.0768,
                            .apart_seconds = 0.1768};
    pool_advice a;
    pool_advise(&plain, &nothing, &f, &a);
    uint32_t before = a.n_why;
    assert_int_equal(pool_advise_ways(&plain, &f, &pace, &a), ATOM_OK);
    assert_true(a.ways.known);
    assert_int_equal(a.ways.members, 8);
    assert_float_equal(a.ways.alone, 20000, 1);
    assert_float_equal(a.ways.weights.tokens_per_s, 160000, 8);
    assert_int_equal(a.ways.weights.bound, PLACE_BOUND_COMPUTE);
    /* 8 x 65536 tokens in 3.2 / 0.95 + 0.1768 s, and the 17.36 / 0.92 + 0.16 that moving 124M in int8
     * takes. */
    assert_float_equal(a.ways.gradients.tokens_per_s, 8 * 65536 / 22.59f, 50);
    assert_int_equal(a.ways.gradients.bound, PLACE_BOUND_SYNC);
    assert_int_equal(a.ways.recommended, PLACE_PARAMETERS);
    assert_int_equal(a.n_why, before + 1);
    assert_non_null(strstr(
        a.why[before], "8 hosts like this one should reach 160k tokens/s by averaging "
                       "weights (limited by computing), and 23k by summing gradients in "
                       "int8, 524k tokens a step (limited by the connection); recommended is sync: "
                       "parameters;"));
    /* A line that carries them; one that is worth less than nobody's; and a pool of two. */
    pool_facts g = f;
    pool_pace alike = pace;
    alike.apart_seconds = alike.update_seconds;
    g.up_bytes_per_s = g.down_bytes_per_s = 100000 * MBIT;
    assert_int_equal(pool_advise_ways(&plain, &g, &alike, &a), ATOM_OK);
    assert_int_equal(a.ways.recommended, PLACE_GRADIENTS);
    g.up_bytes_per_s = 10 * MBIT;
    assert_int_equal(pool_advise_ways(&plain, &g, &pace, &a), ATOM_OK);
    assert_true(a.ways.gradients.tokens_per_s < a.ways.alone);
    assert_non_null(strstr(a.why[before + 2], "less than one of them alone"));
    g.members = 2;
    assert_int_equal(pool_advise_ways(&plain, &g, &pace, &a), ATOM_OK);
    assert_float_equal(a.ways.weights.tokens_per_s, 40000, 2);
}

/* A member without a micro-batch does nothing, in every step. */
static void says_who_is_idle(void **state)
{
    (void)state;
    pool_settings s = plain;
    s.sync = POOL_SYNC_GRADIENTS;
    pool_facts f = {.floats = 124000000,
                    .step_tokens = 4096 / 8,
                    .tokens_per_s = 20000,
                    .up_bytes_per_s = 100 * MBIT};
    const pool_pace pace = {.micro_tokens = 4096, .micro_seconds = 0.2};
    pool_advice a;
    pool_advise(&s, &nothing, &f, &a);
    assert_int_equal(pool_advise_ways(&s, &f, &pace, &a), ATOM_OK);
    assert_true(
        says(&a, "a step has 1 micro-batch, so no more than 1 of 8 members can work on it"));
    assert_true(says(&a, "at least 8 times micro_batch_size"));
    f.step_tokens = 4096;
    pool_advise(&s, &nothing, &f, &a);
    assert_int_equal(pool_advise_ways(&s, &f, &pace, &a), ATOM_OK);
    assert_false(says(&a, "can work on it"));
    f.step_tokens = 4096 / 8;
    pool_advise(&plain, &nothing, &f, &a);
    assert_int_equal(pool_advise_ways(&plain, &f, &pace, &a), ATOM_OK);
    assert_false(says(&a, "can work on it"));
}

/* The pool's own way travels as it was chosen; where this host's speed is not known nothing is said. */
static void ways_and_codecs(void **state)
{
    (void)state;
    pool_settings s = plain;
    s.sync = POOL_SYNC_GRADIENTS;
    s.codec = GSP_CODEC_FP32;
    const pool_facts f = {.floats = 124000000,
                          .step_tokens = 65536,
                          .tokens_per_s = 20000,
                          .up_bytes_per_s = 100 * MBIT};
    const pool_pace pace = {.micro_tokens = 4096, .micro_seconds = 0.2}, unknown = {0};
    pool_advice a;
    pool_advise(&s, &nothing, &f, &a);
    assert_int_equal(pool_advise_ways(&s, &f, &pace, &a), ATOM_OK);
    assert_int_equal(a.ways.gradients_codec, GSP_CODEC_FP32);
    /* 4 bytes each instead of 1. */
    assert_float_equal(a.ways.gradients.tokens_per_s, 8 * 65536 / 79.01f, 50);
    assert_null(strstr(a.why[a.n_why - 1], "delayed_updates")); /* 3.4 s beside 75.6: a twentieth */
    pool_advise(&s, &nothing, &f, &a);
    uint32_t before = a.n_why;
    assert_int_equal(pool_advise_ways(&s, &f, &unknown, &a), ATOM_OK);
    assert_false(a.ways.known);
    assert_int_equal(a.n_why, before);
}

/* Where computing takes about as long as moving, one hides the other; then that is what is priced. */
static void delays(void **state)
{
    (void)state;
    pool_settings s = plain;
    s.sync = POOL_SYNC_GRADIENTS;
    s.codec = GSP_CODEC_INT8;
    pool_facts f = {.floats = 124000000,
                    .step_tokens = 4 * 65536,
                    .tokens_per_s = 20000,
                    .up_bytes_per_s = 100 * MBIT};
    const pool_pace pace = {.micro_tokens = 4096, .micro_seconds = 0.2};
    pool_advice a;
    pool_advise(&s, &nothing, &f, &a);
    double waits = a.chosen.waits;
    assert_int_equal(pool_advise_ways(&s, &f, &pace, &a), ATOM_OK);
    assert_non_null(
        strstr(a.why[a.n_why - 1], "delayed_updates: true would be worth it: a step takes 19 s"));
    double one = a.ways.gradients.tokens_per_s, gain = a.ways.sums_seconds / a.ways.delayed_seconds;
    assert_true(gain > 1.5 && gain < 2);
    s.delayed_updates = true;
    pool_advise(&s, &nothing, &f, &a);
    assert_true(a.chosen.waits < waits / 2); /* 17 s of moving behind 13 of computing */
    assert_non_null(
        strstr(a.why[1], "a global batch 1.2 times as large would wait 10 % of the time"));
    assert_int_equal(pool_advise_ways(&s, &f, &pace, &a), ATOM_OK);
    assert_non_null(strstr(a.why[a.n_why - 1], "delayed_updates: a step takes 19 s"));
    assert_float_equal(a.ways.gradients.tokens_per_s, (float)(gain * one), 1);
    assert_int_equal(a.ways.gradients.bound, PLACE_BOUND_SYNC);
    pool_advise_loss(&s, &f, &(pool_learner){0}, &a);
    assert_non_null(strstr(a.why[a.n_why - 1], "with weights one step old"));
}

/* A loss that was measured near here, one that is one trainer's, and those that nobody knows. */
static void loss_to_expect(void **state)
{
    (void)state;
    pool_settings s = plain;
    pool_facts f = {.floats = 124000000, .step_tokens = 65536, .up_bytes_per_s = 100 * MBIT};
    pool_learner adamw = {0}, muon = {.muon = true}, adapters = {.adapters = true};
    s.batch = 4;
    s.steps = 1000;
    s.global_batch_size = 32;
    pool_advice a = advise(f.floats, 100, 0, nothing, s);
    pool_advise_loss(&s, &f, &adamw, &a);
    assert_true(a.expects.known && a.expects.behind > 0.01 && a.expects.behind < 0.05);
    assert_non_null(strstr(a.why[a.n_why - 1], "higher than with one AdamW trainer"));
    double shown[3] = {0};
    assert_int_equal(sscanf(a.why[a.n_why - 1], "loss: about %lf %% (%lf to %lf %%)", &shown[0],
                            &shown[1], &shown[2]),
                     3);
    assert_true(shown[1] < shown[0] && shown[0] < shown[2]);
    double eight = a.expects.behind;
    f.members = 2;
    pool_advise_loss(&s, &f, &adamw, &a);
    assert_true(a.expects.behind < eight / 2);
    f.members = 0; /* eight */
    s.dense_steps = "10%";
    s.global_batch_size = 32;
    pool_advise_loss(&s, &f, &adamw, &a);
    assert_true(a.expects.known && a.expects.behind < eight);
    s.dense_steps = NULL;
    a.n_why = 0;
    pool_advise_loss(&s, &f, &muon, &a);
    assert_false(a.expects.known);
    assert_non_null(strstr(a.why[0], "Muon trainer: averaged weights with Muon"));
    pool_advise_loss(&s, &f, &adapters, &a);
    assert_non_null(strstr(a.why[1], "adapters"));
    s.sync = POOL_SYNC_SLICES;
    pool_advise_loss(&s, &f, &adamw, &a);
    assert_non_null(strstr(a.why[2], "slices"));
    s.sync = POOL_SYNC_GRADIENTS;
    pool_advise_loss(&s, &f, &muon, &a);
    assert_non_null(strstr(a.why[3], "as with one Muon trainer"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(says_who_is_idle),
        cmocka_unit_test(by_size),
        cmocka_unit_test(figures),
        cmocka_unit_test(the_lesser_direction),
        cmocka_unit_test(warns_of_few_averages),
        cmocka_unit_test(warns_of_short_runs),
        cmocka_unit_test(warns_of_momentum),
        cmocka_unit_test(offers_more_averages),
        cmocka_unit_test(warns_of_forks),
        cmocka_unit_test(by_link),
        cmocka_unit_test(what_was_said_stays),
        cmocka_unit_test(alternatives),
        cmocka_unit_test(sums),
        cmocka_unit_test(ways),
        cmocka_unit_test(ways_and_codecs),
        cmocka_unit_test(delays),
        cmocka_unit_test(loss_to_expect),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
