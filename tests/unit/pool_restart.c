/*
 * What of a pool outlives a process: restarts from what is on disk, whole states for joiners, marks
 * of checkpoints.
 */
#include "atom/pool/pool_json.h"
#include "tests/lib/pool_side.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static void saved_make(gsp_saved *saved, const gsp_certificate *c)
{
    gsp_seals seals = gsp_seals_real(NULL);
    memset(saved, 0, sizeof *saved);
    memset(saved->genesis.founder.key.byte, 7, GSP_KEY_BYTES);
    if (c) {
        saved->has_certificate = true;
        saved->certificate = *c;
        gsp_genesis_hash(&seals, &saved->genesis, &saved->certificate.proposal.lineage);
    }
}

static void a_restart_finds_what_the_member_remembers(void **unused)
{
    (void)unused;
    side a;
    gsp_saved *saved = atom_alloc(1, sizeof *saved);
    gsp_certificate *c = atom_alloc(1, sizeof *c);
    pool_anchor_status then[8], now;
    side_open(&a, 0.7, 0.9, 0);
    saved_make(saved, NULL);
    begin(&a);
    pool_anchor_read_status(a.pool, true, &then[0]);
    for (uint64_t v = 1; v <= 7; v++) {
        round_alone(&a, v);
        pool_anchor_read_status(a.pool, true, &then[v]);
        /* What is in memory and what the disk says of version 0 do not matter: certificates of
         * this test have no lineage, which stands for any. */
        certificate_make(c, v, a.samples, true);
        saved_make(saved, c);
        reopen(&a, 0.7, 0.9, 0);
        must(pool_anchor_restore(a.pool, saved));
        pool_anchor_read_status(a.pool, true, &now);
        assert_memory_equal(&now.anchor, &then[v].anchor, sizeof now.anchor);
        assert_int_equal(now.applied, v);
        must(pool_anchor_attach(a.pool, file_vector_memory(a.live), NULL, a.samples,
                                a.samples * 16));
        pool_anchor_running(a.pool, true);
    }
    /* The version was written, the member's memory was not. */
    certificate_make(c, 6, a.samples, true);
    saved_make(saved, c);
    reopen(&a, 0.7, 0.9, 0);
    must(pool_anchor_restore(a.pool, saved));
    pool_anchor_read_status(a.pool, true, &now);
    assert_memory_equal(&now.anchor, &then[6].anchor, sizeof now.anchor);
    /* What is too old or too new is not made up. */
    certificate_make(c, 3, a.samples, true);
    saved_make(saved, c);
    reopen(&a, 0.7, 0.9, 0);
    assert_int_equal(pool_anchor_restore(a.pool, saved), ATOM_E_FORMAT);
    certificate_make(c, 8, a.samples, true);
    saved_make(saved, c);
    reopen(&a, 0.7, 0.9, 0);
    assert_int_equal(pool_anchor_restore(a.pool, saved), ATOM_E_FORMAT);
    atom_free(saved);
    atom_free(c);
    side_close(&a);
}

/* Killed while a version was made: nothing of it is there, and another one can be made. */
static void half_a_version_never_was(void **unused)
{
    (void)unused;
    side a;
    gsp_saved *saved = atom_alloc(1, sizeof *saved);
    gsp_certificate *c = atom_alloc(1, sizeof *c);
    pool_anchor_status then, now;
    float *x = atom_alloc(N, sizeof *x);
    side_open(&a, 0.7, 0.9, 0);
    begin(&a);
    for (uint64_t v = 1; v <= 2 * F; v++)
        round_alone(&a, v);
    pool_anchor_read_status(a.pool, true, &then);
    for (uint64_t i = 0; i < N; i++)
        x[i] = noise(i, 5);
    give_parts(&a, 2 * F + 1, x);
    certificate_make(c, 2 * F, a.samples, true);
    saved_make(saved, c);
    for (int again = 0; again < 2; again++) {
        reopen(&a, 0.7, 0.9, 0);
        must(pool_anchor_restore(a.pool, saved));
        pool_anchor_read_status(a.pool, true, &now);
        assert_memory_equal(&now.anchor, &then.anchor, sizeof now.anchor);
        must(pool_anchor_attach(a.pool, file_vector_memory(a.live), NULL, a.samples,
                                a.samples * 16));
        pool_anchor_running(a.pool, true);
        round_alone(&a, 2 * F + 1); /* and forgotten again */
    }
    atom_free(x);
    atom_free(saved);
    atom_free(c);
    side_close(&a);
}

/* Files of this process below dir that have no name any more: cut. */
static int cut_nameless(const char *dir)
{
    char link[64], at[512];
    int n = 0;
    for (int fd = 3; fd < 64; fd++) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t bytes = readlink(link, at, sizeof at - 1);
        if (bytes <= 0)
            continue;
        at[bytes] = 0;
        if (strncmp(at, dir, strlen(dir)) == 0 && strstr(at, "(deleted)"))
            n += ftruncate(fd, 0) == 0;
    }
    return n;
}

/* What live should have moved by cannot be read: the member ends, says so, and live is the anchor's
 * when it comes back. */
static void a_disk_that_fails_ends_the_member(void **unused)
{
    (void)unused;
    if (!anchors_on_disk)
        skip();
    side a;
    gsp_saved *saved = atom_alloc(1, sizeof *saved);
    gsp_certificate *c = atom_alloc(1, sizeof *c);
    float *x = atom_alloc(N, sizeof *x), *state = atom_alloc(N, sizeof *state);
    side_open(&a, 0.7, 0.9, 0);
    begin(&a);
    round_alone(&a, 1);
    assert_true(cut_nameless(a.s.dir) > 0);
    step(&a, 3);
    give_parts(&a, 2, x);
    certificate_make(c, 2, a.samples, false);
    assert_int_equal(a.work.apply(a.work.context, c, &c->proposal.previous), ATOM_E_RUNTIME);
    assert_non_null(strstr(atom_fail_message(), "on disk"));
    char *marks = pool_anchor_marks(a.pool);
    certificate_make(c, 1, a.samples, true);
    saved_make(saved, c);
    reopen(&a, 0.7, 0.9, 0);
    must(pool_anchor_restore(a.pool, saved));
    must(pool_anchor_attach(a.pool, file_vector_memory(a.live), marks, a.samples, a.samples * 16));
    uint64_t first, n = pool_fragment_range(N, F, 1, &first);
    must(a.work.state_read(a.work.context, 1, 0, n, state));
    assert_memory_equal(a.live + first, state, n * sizeof *state);
    atom_free(marks);
    atom_free(x);
    atom_free(state);
    atom_free(saved);
    atom_free(c);
    side_close(&a);
}

/* The directory is gone: no version is made, and the old one is still told. */
static void a_version_without_a_place_fails(void **unused)
{
    (void)unused;
    side a;
    gsp_certificate *c = atom_alloc(1, sizeof *c);
    float *x = atom_alloc(N, sizeof *x), *state = atom_alloc(N, sizeof *state);
    side_open(&a, 0.7, 0.9, 0);
    begin(&a);
    uint64_t first, n = pool_fragment_range(N, F, 1, &first);
    char *away = atom_format("%s-away", a.s.dir);
    assert_int_equal(rename(a.s.dir, away), 0);
    give_parts(&a, 1, x);
    certificate_make(c, 1, a.samples, false);
    assert_int_equal(a.work.apply(a.work.context, c, &c->proposal.previous), ATOM_E_RUNTIME);
    assert_non_null(strstr(atom_fail_message(), a.s.dir));
    must(a.work.state_read(a.work.context, 1, 0, n, state));
    assert_memory_equal(a.live + first, state, n * sizeof *state);
    assert_int_equal(rename(away, a.s.dir), 0);
    atom_free(away);
    atom_free(x);
    atom_free(state);
    atom_free(c);
    side_close(&a);
}

static void a_damaged_fragment_is_noticed(void **unused)
{
    (void)unused;
    side a;
    gsp_saved *saved = atom_alloc(1, sizeof *saved);
    gsp_certificate *c = atom_alloc(1, sizeof *c);
    side_open(&a, 0.7, 0.9, 0);
    begin(&a);
    round_alone(&a, 1);
    certificate_make(c, 1, a.samples, true);
    saved_make(saved, c);
    int fd = open(scratch_path(&a.s, "fragment-1.1"), O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, "x", 1, 4096 + 1000), 1);
    close(fd);
    reopen(&a, 0.7, 0.9, 0);
    assert_int_equal(pool_anchor_restore(a.pool, saved), ATOM_E_FORMAT);
    assert_non_null(strstr(atom_fail_message(), "fragment-1.1"));
    atom_free(saved);
    atom_free(c);
    side_close(&a);
}

static void give_state(side *from, side *to, const uint64_t *version, const gsp_saved *saved)
{
    float band[1000];
    for (uint32_t f = 0; f < F; f++)
        for (uint64_t at = 0, some; at < from->work.n_state[f]; at += some) {
            some = from->work.n_state[f] - at < 1000 ? from->work.n_state[f] - at : 1000;
            must(from->work.state_read(from->work.context, f, at, some, band));
            must(to->work.state_write(to->work.context, f, version[f], at, some, band));
        }
    if (saved)
        must(to->work.state_adopt(to->work.context, saved));
}

static void a_joiner_takes_the_state_over(void **unused)
{
    (void)unused;
    side a, b;
    const uint64_t version[F] = {3, 4, 2};
    gsp_saved *saved = atom_alloc(1, sizeof *saved);
    gsp_certificate *c = atom_alloc(1, sizeof *c);
    pool_anchor_status one, two;
    side_open(&a, 0.7, 0.9, 0);
    side_open(&b, 0.7, 0.9, 0);
    begin(&a);
    for (uint64_t v = 1; v <= 4; v++)
        round_alone(&a, v);
    certificate_make(c, 4, a.samples, true);
    saved_make(saved, c);
    assert_false(pool_anchor_ready(b.pool));
    give_state(&a, &b, version, NULL); /* it dies before the end, and begins again */
    reopen(&b, 0.7, 0.9, 0);
    assert_false(pool_anchor_ready(b.pool));
    give_state(&a, &b, version, saved);
    assert_true(pool_anchor_ready(b.pool));
    pool_anchor_read_status(a.pool, true, &one);
    pool_anchor_read_status(b.pool, true, &two);
    assert_memory_equal(&one.anchor, &two.anchor, sizeof one.anchor);
    memset(b.live, 0, N * sizeof *b.live);
    must(pool_anchor_attach(b.pool, file_vector_memory(b.live), NULL, 0, 0));
    gsp_hash hash;
    must(pool_anchor_hash(file_vector_memory(b.live), N, F, &hash));
    assert_memory_equal(&hash, &one.anchor, sizeof hash);
    /* Its moments start at zero: the rate grows again. */
    train_schedule flat = {.kind = TRAIN_CONSTANT, .peak = 1, .max_steps = 100};
    assert_true(fabs(b.seam.rate(b.seam.ctx, &flat) - 0.1) < 1e-9);
    assert_true(a.seam.rate(a.seam.ctx, &flat) == 1);
    /* And restarts from there. */
    pool_anchor_running(b.pool, true);
    reopen(&b, 0.7, 0.9, 0);
    must(pool_anchor_restore(b.pool, saved));
    pool_anchor_read_status(b.pool, true, &two);
    assert_memory_equal(&one.anchor, &two.anchor, sizeof one.anchor);
    /* Away for long, with steps of its own: once it has the pool's state, its rate is that of the pool's step. */
    const train_schedule falls = {.kind = TRAIN_LINEAR, .peak = 1, .max_steps = 1000};
    const uint64_t newer[F] = {6, 7, 5};
    char *marks = pool_anchor_marks(b.pool);
    must(pool_anchor_attach(b.pool, file_vector_memory(b.live), marks, 40, 640));
    b.samples = 40;
    step(&b, 1);
    assert_true(
        b.seam.rate(b.seam.ctx, &falls) ==
        train_schedule_rate(&falls, (int64_t)(saved->certificate.proposal.samples + 4) / 4 + 1));
    for (uint64_t v = 5; v <= 7; v++)
        round_alone(&a, v);
    certificate_make(c, 7, 2000, true);
    saved_make(saved, c);
    give_state(&a, &b, newer, saved);
    assert_true(b.seam.rate(b.seam.ctx, &falls) == train_schedule_rate(&falls, 2000 / 4 + 1));
    step(&b, 2);
    assert_true(b.seam.rate(b.seam.ctx, &falls) == train_schedule_rate(&falls, 2004 / 4 + 1));
    atom_free(marks);
    atom_free(saved);
    atom_free(c);
    side_close(&b);
    side_close(&a);
}

static void marks_say_what_of_live_is_kept(void **unused)
{
    (void)unused;
    side a;
    pool_mark marks;
    gsp_saved *saved = atom_alloc(1, sizeof *saved);
    gsp_certificate *c = atom_alloc(1, sizeof *c);
    side_open(&a, 0.7, 0.9, 0);
    begin(&a);
    round_alone(&a, 1);
    step(&a, 50);
    char *text = pool_anchor_marks(a.pool);
    must(pool_json_parse("pool.json", text, strlen(text), &marks));
    assert_int_equal(marks.n_fragments, F);
    assert_int_equal(marks.applied, 1);
    assert_int_equal(marks.version[1], 1);
    float *checkpoint = atom_alloc(N, sizeof *checkpoint);
    memcpy(checkpoint, a.live, N * sizeof *checkpoint);
    round_alone(&a, 2); /* fragment 2 moves on after the checkpoint */
    certificate_make(c, 2, a.samples, true);
    saved_make(saved, c);
    reopen(&a, 0.7, 0.9, 0);
    must(pool_anchor_restore(a.pool, saved));
    memcpy(a.live, checkpoint, N * sizeof *checkpoint);
    must(pool_anchor_attach(a.pool, file_vector_memory(a.live), text, 8, 128));
    uint64_t first, n = pool_fragment_range(N, F, 2, &first);
    float *state = atom_alloc(2 * n, sizeof *state);
    must(a.work.state_read(a.work.context, 2, 0, 2 * n, state));
    assert_memory_equal(a.live, checkpoint, first * sizeof *checkpoint);
    assert_memory_equal(a.live + first, state, n * sizeof *state);
    assert_int_equal(pool_json_parse("x", "{}", 2, &marks), ATOM_E_FORMAT);
    assert_int_equal(pool_json_parse("x", text, strlen(text) - 3, &marks), ATOM_E_FORMAT);
    atom_free(text);
    atom_free(checkpoint);
    atom_free(state);
    atom_free(saved);
    atom_free(c);
    side_close(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_restart_finds_what_the_member_remembers),
        cmocka_unit_test(half_a_version_never_was),
        cmocka_unit_test(a_disk_that_fails_ends_the_member),
        cmocka_unit_test(a_version_without_a_place_fails),
        cmocka_unit_test(a_damaged_fragment_is_noticed),
        cmocka_unit_test(a_joiner_takes_the_state_over),
        cmocka_unit_test(marks_say_what_of_live_is_kept),
    };
    return both_tiers(tests, NULL, NULL);
}
