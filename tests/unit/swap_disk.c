/* Generations of a state on disk: pieces across blocks, what a reopened disk stands at, and a
 * snapshot that is read by one thread while others write the next generations. */
#include "swap/disk.h"

#include "atom/base/mem.h"
#include "swap/store_engine.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { EACH = STORE_ALIGN / 4, EXTENT = 5 * EACH + 300 };
static const swap_blocks BLOCKS = {.extent = EXTENT, .each = EACH, .moments = ATOM_F32};
static char path[64];

static int make(void **state)
{
    (void)state;
    strcpy(path, "/var/tmp/atom-disk-XXXXXX");
    int fd = mkstemp(path);
    if (fd < 0)
        return -1;
    close(fd);
    return unlink(path);
}

static int clean(void **state)
{
    (void)state;
    return unlink(path);
}

/* An engine whose power goes at the n-th write: of that one some sectors get there, of what comes
 * later nothing. */
static struct {
    uint64_t seed, writes_left;
    bool dead;
} power;

static uint32_t draw(uint32_t n)
{
    power.seed = power.seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(power.seed >> 33) % n;
}

/* What a torn request leaves: each of its sectors is new, or as it was. */
static void tear(store_queue *q, store_io *io)
{
    enum { SECTOR = 512 };
    char *old = atom_pages_take(io->bytes);
    store_io back = *io, *done;
    uint32_t n = 0;
    back.buffer = old;
    back.write = false;
    store_engine_threads.submit(q, &back);
    assert_int_equal(store_engine_threads.reap(q, &done, 1, &n), ATOM_OK);
    assert_int_equal(back.result, io->bytes);
    for (uint32_t at = 0; at < io->bytes; at += SECTOR) {
        if (draw(2))
            memcpy(old + at, io->buffer + at, SECTOR);
    }
    back.write = true;
    store_engine_threads.submit(q, &back);
    assert_int_equal(store_engine_threads.reap(q, &done, 1, &n), ATOM_OK);
    atom_pages_give(old, io->bytes);
}

static void power_submit(store_queue *q, store_io *io)
{
    if (io->write && !power.dead && power.writes_left-- == 0) {
        power.dead = true;
        tear(q, io);
    }
    if (io->write && power.dead)
        io->write = false; /* its bytes go nowhere; the result is made a failure */
    store_engine_threads.submit(q, io);
}

static atom_status power_reap(store_queue *q, store_io **done, uint32_t max, uint32_t *n)
{
    atom_status st = store_engine_threads.reap(q, done, max, n);
    for (uint32_t i = 0; st == ATOM_OK && i < *n; i++) {
        if (power.dead)
            done[i]->result = -EIO;
    }
    return st;
}

static swap_disk *disk_open_by(uint64_t run, const store_engine *engine, atom_status expected)
{
    swap_disk *disk = NULL;
    swap_disk_config config = {
        .path = path, .create = true, .run = run, .blocks = BLOCKS, .engine = engine};
    assert_int_equal(swap_disk_open(&config, &disk), expected);
    return disk;
}

static swap_disk *disk_open(uint64_t run, atom_status expected)
{
    return disk_open_by(run, NULL, expected);
}

static float value(uint64_t step, int part, uint64_t i)
{
    return (float)(step * 1000003 % 4096) + (float)part * 0.25f + (float)(i % 977);
}

static void fill(float *x, uint64_t step, int part, uint64_t first, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        x[i] = value(step, part, first + i);
}

static void put_all(swap_disk *disk, uint64_t step)
{
    static float x[EXTENT];
    for (int part = 0; part < SWAP_STATE_N; part++) {
        fill(x, step, part, 0, EXTENT);
        assert_int_equal(swap_disk_put(disk, (swap_state)part, 0, EXTENT, x), ATOM_OK);
    }
    assert_int_equal(swap_disk_flush(disk), ATOM_OK);
}

/* As the tape does: all blocks of the next generation, then the commit. */
static atom_status try_step(swap_disk *disk, uint64_t step)
{
    atom_status st = ATOM_OK;
    float *block = atom_pages_take(swap_block_bytes(BLOCKS, 0));
    assert_non_null(block);
    for (uint64_t b = 0; b < swap_blocks_n(BLOCKS) && st == ATOM_OK; b++) {
        uint64_t at = swap_block_offset(BLOCKS, b), bytes = swap_block_bytes(BLOCKS, b);
        st = swap_disk_load(disk, at, block, bytes);
        for (int part = 0; part < SWAP_STATE_N; part++)
            fill(block + (uint64_t)part * swap_block_part(BLOCKS, b, SWAP_STATE_M), step, part,
                 b * EACH, swap_block_elements(BLOCKS, b));
        if (st == ATOM_OK)
            st = swap_disk_save(disk, at, block, bytes);
    }
    atom_pages_give(block, swap_block_bytes(BLOCKS, 0));
    return st == ATOM_OK ? swap_disk_commit(disk, step) : st;
}

static void step_to(swap_disk *disk, uint64_t step)
{
    assert_int_equal(try_step(disk, step), ATOM_OK);
}

static void expect_all(swap_disk *disk, uint64_t step)
{
    static float x[EXTENT];
    for (int part = 0; part < SWAP_STATE_N; part++) {
        assert_int_equal(swap_disk_get(disk, (swap_state)part, 0, EXTENT, x), ATOM_OK);
        for (uint64_t i = 0; i < EXTENT; i++)
            assert_true(x[i] == value(step, part, i));
    }
}

static void pieces_cross_blocks(void **state)
{
    (void)state;
    swap_disk *disk = disk_open(7, ATOM_OK);
    float x[100];
    put_all(disk, 0);
    fill(x, 5, 1, EACH - 40, 100);
    assert_int_equal(swap_disk_put(disk, SWAP_STATE_M, EACH - 40, 100, x), ATOM_OK);
    memset(x, 0, sizeof x);
    assert_int_equal(swap_disk_get(disk, SWAP_STATE_M, EACH - 40, 100, x), ATOM_OK);
    for (uint64_t i = 0; i < 100; i++)
        assert_true(x[i] == value(5, 1, EACH - 40 + i));
    assert_int_equal(swap_disk_get(disk, SWAP_STATE_MASTER, EACH - 1, 1, x), ATOM_OK);
    assert_true(x[0] == value(0, 0, EACH - 1));
    swap_disk_close(&disk);
}

static void it_stands_where_it_was_committed(void **state)
{
    (void)state;
    swap_disk *disk = disk_open(7, ATOM_OK);
    put_all(disk, 0);
    assert_int_equal(swap_disk_about(disk).step, 0);
    for (uint64_t step = 1; step <= 7; step++) {
        step_to(disk, step);
        expect_all(disk, step);
        swap_disk_close(&disk);
        disk = disk_open(7, ATOM_OK);
        assert_int_equal(swap_disk_about(disk).step, step);
        assert_int_not_equal(swap_disk_about(disk).generation, swap_disk_about(disk).next);
        expect_all(disk, step);
    }
    assert_int_equal(swap_disk_forget(disk), ATOM_OK);
    swap_disk_close(&disk);
    disk = disk_open(7, ATOM_OK);
    assert_int_equal(swap_disk_about(disk).step, 0);
    swap_disk_close(&disk);
    assert_null(disk_open(8, ATOM_E_FORMAT)); /* of another run */
}

/* At any write: what is found again is the last step that was committed, whole. */
static void power_that_goes_leaves_a_whole_step(void **state)
{
    (void)state;
    store_engine failing = store_engine_threads;
    failing.submit = power_submit;
    failing.reap = power_reap;
    power.seed = 3;
    for (uint64_t step = 0, round = 0; round < 40; round++) {
        power.dead = false;
        power.writes_left = UINT64_MAX;
        swap_disk *disk = disk_open_by(7, &failing, ATOM_OK);
        assert_int_equal(swap_disk_about(disk).step, step);
        if (step > 0) {
            expect_all(disk, step);
        } else {
            put_all(disk, 0);
        }
        power.writes_left = draw(30); /* a step is seven writes */
        while (try_step(disk, step + 1) == ATOM_OK)
            step++;
        assert_true(power.dead);
        swap_disk_close(&disk);
    }
}

typedef struct reader {
    swap_snapshot *snapshot;
    uint64_t step;
    bool wrong;
} reader;

static void *read_snapshot(void *arg)
{
    reader *r = arg;
    float x[256];
    for (int round = 0; round < 3; round++) {
        for (uint64_t at = 0; at + 256 <= EXTENT; at += 256) {
            for (int part = 0; part < SWAP_STATE_N; part++) {
                if (swap_snapshot_get(r->snapshot, (swap_state)part, at, 256, x) != ATOM_OK)
                    r->wrong = true;
                for (uint64_t i = 0; i < 256; i++)
                    r->wrong |= x[i] != value(r->step, part, at + i);
            }
        }
    }
    return NULL;
}

static void a_snapshot_stays_as_it_was(void **state)
{
    (void)state;
    swap_disk *disk = disk_open(7, ATOM_OK);
    put_all(disk, 0);
    step_to(disk, 1);
    for (uint64_t step = 1; step < 8; step += 3) {
        reader r = {.step = step};
        pthread_t thread;
        assert_int_equal(swap_snapshot_open(disk, &r.snapshot), ATOM_OK);
        assert_int_equal(pthread_create(&thread, NULL, read_snapshot, &r), 0);
        for (uint64_t next = step + 1; next <= step + 3; next++)
            step_to(disk, next);
        pthread_join(thread, NULL);
        assert_false(r.wrong);
        swap_snapshot_close(&r.snapshot);
        expect_all(disk, step + 3);
    }
    swap_disk_close(&disk);
}

/* A state that comes from outside, again and again, with its parts one after the other in pieces that
 * cross blocks: the snapshot keeps the one it was opened on, and nothing is a step. */
static void a_state_put_anew_leaves_a_snapshot_alone(void **state)
{
    static float x[EXTENT];
    (void)state;
    swap_disk *disk = disk_open(7, ATOM_OK);
    put_all(disk, 1);
    reader r = {.step = 1};
    assert_int_equal(swap_snapshot_open(disk, &r.snapshot), ATOM_OK);
    for (uint64_t step = 2; step < 6; step++) {
        swap_disk_renew(disk);
        expect_all(disk, step - 1); /* until something is put */
        for (int part = 0; part < SWAP_STATE_N; part++)
            for (uint64_t at = 0, some; at < EXTENT; at += some) {
                some = EXTENT - at < EACH - 7 ? EXTENT - at : EACH - 7;
                fill(x, step, part, at, some);
                assert_int_equal(swap_disk_put(disk, (swap_state)part, at, some, x), ATOM_OK);
            }
        assert_int_equal(swap_disk_flush(disk), ATOM_OK);
        expect_all(disk, step);
        (void)read_snapshot(&r);
        assert_false(r.wrong);
    }
    swap_snapshot_close(&r.snapshot);
    assert_int_equal(swap_disk_about(disk).step, 0);
    swap_disk_close(&disk);
}

/* An engine that counts what is read. */
static _Atomic uint64_t bytes_read;
static void count_submit(store_queue *q, store_io *io)
{
    if (!io->write)
        bytes_read += io->bytes;
    store_engine_threads.submit(q, io);
}

/* A checkpoint is written part by part: in all it reads the state once. */
static void who_reads_a_part_reads_no_other(void **state)
{
    (void)state;
    store_engine counting = store_engine_threads;
    counting.submit = count_submit;
    swap_disk *disk = disk_open_by(7, &counting, ATOM_OK);
    swap_snapshot *snapshot = NULL;
    put_all(disk, 0);
    step_to(disk, 1);
    bytes_read = 0;
    expect_all(disk, 1);
    assert_int_equal(bytes_read, swap_blocks_bytes(BLOCKS));
    assert_int_equal(swap_snapshot_open(disk, &snapshot), ATOM_OK);
    bytes_read = 0;
    static float x[EXTENT];
    for (int part = 0; part < SWAP_STATE_N; part++)
        assert_int_equal(swap_snapshot_get(snapshot, (swap_state)part, 0, EXTENT, x), ATOM_OK);
    assert_int_equal(bytes_read, swap_blocks_bytes(BLOCKS));
    swap_snapshot_close(&snapshot);
    swap_disk_close(&disk);
}

/* Puts to different parts of a block, with gets between them, before anything is flushed. */
static void parts_of_a_block_are_kept_apart(void **state)
{
    (void)state;
    swap_disk *disk = disk_open(7, ATOM_OK);
    float x[50];
    put_all(disk, 0);
    for (int part = 0; part < SWAP_STATE_N; part += 2) {
        fill(x, 9, part, 200, 50);
        assert_int_equal(swap_disk_put(disk, (swap_state)part, 200, 50, x), ATOM_OK);
    }
    assert_int_equal(swap_disk_get(disk, SWAP_STATE_M, 200, 50, x), ATOM_OK);
    for (uint64_t i = 0; i < 50; i++)
        assert_true(x[i] == value(0, 1, 200 + i));
    assert_int_equal(swap_disk_get(disk, SWAP_STATE_M, 3 * EACH, 50, x), ATOM_OK);
    for (int part = 0; part < SWAP_STATE_N; part++) {
        assert_int_equal(swap_disk_get(disk, (swap_state)part, 200, 50, x), ATOM_OK);
        for (uint64_t i = 0; i < 50; i++)
            assert_true(x[i] == value(part == 1 ? 0 : 9, part, 200 + i));
    }
    swap_disk_close(&disk);
}

/* Moments in bf16: a third less on disk, blocks whose parts differ in size, and the same pieces. */
static void bf16_moments_take_half(void **state)
{
    (void)state;
    const swap_blocks blocks = {.extent = EXTENT, .each = 2 * EACH, .moments = ATOM_BF16};
    const uint64_t part = swap_block_part(blocks, 0, SWAP_STATE_M);
    static float x[EXTENT], y[EXTENT];
    swap_disk *disk = NULL;
    swap_disk_config config = {.path = path, .create = true, .run = 7, .blocks = blocks};
    assert_int_equal(swap_block_bytes(blocks, 0), 2 * EACH * 8);
    assert_int_equal(swap_disk_open(&config, &disk), ATOM_OK);
    for (int p = 0; p < SWAP_STATE_N; p++) {
        for (uint64_t i = 0; i < EXTENT; i++)
            x[i] = (float)((i * 7 + (uint64_t)p * 31) % 251) + (p ? 0 : 0x1p-12f);
        assert_int_equal(swap_disk_put(disk, (swap_state)p, 0, EXTENT, x), ATOM_OK);
    }
    assert_int_equal(swap_disk_flush(disk), ATOM_OK);
    for (uint64_t at = 0, n = 777; at < EXTENT; at += n) { /* pieces that cross blocks */
        n = n < EXTENT - at ? n : EXTENT - at;
        for (int p = 0; p < SWAP_STATE_N; p++) {
            assert_int_equal(swap_disk_get(disk, (swap_state)p, at, n, y), ATOM_OK);
            for (uint64_t i = 0; i < n; i++)
                assert_true(y[i] ==
                            (float)(((at + i) * 7 + (uint64_t)p * 31) % 251) + (p ? 0 : 0x1p-12f));
        }
    }
    /* As the tape sees a block: what put() wrote is where AdamW looks for it. */
    char *block = atom_pages_take(swap_block_bytes(blocks, 0));
    assert_int_equal(
        swap_disk_load(disk, swap_block_offset(blocks, 1), block, swap_block_bytes(blocks, 1)),
        ATOM_OK);
    const float *master = (const float *)(const void *)block;
    const atom_bf16 *m = (const atom_bf16 *)(const void *)(block + 4 * part), *v = m + part;
    for (uint64_t i = 0; i < swap_block_elements(blocks, 1); i++) {
        uint64_t e = (2 * EACH + i) * 7;
        assert_true(master[i] == (float)(e % 251) + 0x1p-12f);
        assert_true(atom_bf16_to_f32(m[i]) == (float)((e + 31) % 251));
        assert_true(atom_bf16_to_f32(v[i]) == (float)((e + 62) % 251));
    }
    atom_pages_give(block, swap_block_bytes(blocks, 0));
    x[0] = 1.00390625f; /* between two bf16: to the nearest, here the even one */
    assert_int_equal(swap_disk_put(disk, SWAP_STATE_M, 3, 1, x), ATOM_OK);
    assert_int_equal(swap_disk_get(disk, SWAP_STATE_M, 3, 1, y), ATOM_OK);
    assert_true(y[0] == 1.0f);
    swap_disk_close(&disk);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(pieces_cross_blocks, make, clean),
        cmocka_unit_test_setup_teardown(it_stands_where_it_was_committed, make, clean),
        cmocka_unit_test_setup_teardown(power_that_goes_leaves_a_whole_step, make, clean),
        cmocka_unit_test_setup_teardown(a_snapshot_stays_as_it_was, make, clean),
        cmocka_unit_test_setup_teardown(a_state_put_anew_leaves_a_snapshot_alone, make, clean),
        cmocka_unit_test_setup_teardown(who_reads_a_part_reads_no_other, make, clean),
        cmocka_unit_test_setup_teardown(parts_of_a_block_are_kept_apart, make, clean),
        cmocka_unit_test_setup_teardown(bf16_moments_take_half, make, clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
