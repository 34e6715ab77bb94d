/* The measurements count the bytes they move and give back what they take.
 * No times are asserted. */
#include "atom/base/mem.h"
#include "kernels/bench.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static atom_threads *pool_open(void)
{
    atom_threads *threads = NULL;
    assert_int_equal(atom_threads_open(2, &threads), ATOM_OK);
    return threads;
}

static void expect(krn_bench b, uint64_t bytes)
{
    assert_int_equal(b.bytes, bytes);
    assert_true(b.seconds > 0 && b.bytes_per_second > 0);
}

static void bytes_are_what_moves(void **state)
{
    (void)state;
    enum { N = 100003 };
    atom_threads *threads = pool_open();
    krn_bench adamw, triad;
    const krn_adamw_kinds wide = {ATOM_F32, ATOM_F32}, mixed = {ATOM_BF16, ATOM_F32};
    const krn_adamw_kinds narrow = {ATOM_BF16, ATOM_BF16};
    assert_int_equal(krn_bench_adamw(threads, krn_cpu_host_table(), wide, N, 3, &adamw, &triad),
                     ATOM_OK);
    expect(adamw, N * 32);
    expect(triad, N * 12);
    assert_int_equal(krn_bench_adamw(threads, krn_cpu_host_table(), mixed, N, 3, &adamw, &triad),
                     ATOM_OK);
    expect(adamw, N * 28);
    assert_int_equal(krn_bench_adamw(threads, krn_cpu_host_table(), narrow, N, 3, &adamw, &triad),
                     ATOM_OK);
    expect(adamw, N * 20);
    assert_int_equal(dev_bench_triad(threads, N * 12, 3, &triad), ATOM_OK);
    expect(triad, N * 12);
    atom_threads_close(&threads);
}

static void copies_leave_nothing_behind(void **state)
{
    (void)state;
    atom_threads *threads = pool_open();
    for (uint64_t n = 0; n < 30; n++) {
        dev *d = NULL;
        dev_copy_bench copies;
        assert_int_equal(dev_cpu_open(&(dev_cpu_config){0}, threads, &d), ATOM_OK);
        uint64_t before = atom_mem_read().live_bytes;
        atom_mem_fail_after(n);
        atom_status st = dev_bench_copy(d, threads, 100000, 3, &copies);
        atom_mem_fail_after(0);
        assert_true(n == 0 ? st == ATOM_OK : st == ATOM_OK || st == ATOM_E_RESOURCE);
        if (st == ATOM_OK) {
            expect(copies.h2d, 100000);
            expect(copies.d2h_both, 100000);
            expect(copies.memory, 100000);
            assert_true(copies.latency_seconds > 0);
        }
        assert_int_equal(d->used_bytes + d->host_bytes, 0);
        /* closed streams keep their small struct until the device closes */
        assert_true(atom_mem_read().live_bytes < before + 4096);
        dev_close(&d);
    }
    atom_threads_close(&threads);
}

static void adamw_survives_want_of_memory(void **state)
{
    (void)state;
    atom_threads *threads = pool_open();
    uint64_t before = atom_mem_read().live_blocks;
    for (uint64_t n = 1; n < 6; n++) {
        krn_bench adamw, triad;
        atom_mem_fail_after(n);
        atom_status st = krn_bench_adamw(threads, krn_cpu_host_table(), (krn_adamw_kinds){0}, 1000,
                                         3, &adamw, &triad);
        atom_mem_fail_after(0);
        assert_int_equal(st, ATOM_E_RESOURCE);
        assert_int_equal(atom_mem_read().live_blocks, before);
    }
    atom_threads_close(&threads);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_what_moves),
        cmocka_unit_test(copies_leave_nothing_behind),
        cmocka_unit_test(adamw_survives_want_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
