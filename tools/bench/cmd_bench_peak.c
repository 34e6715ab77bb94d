/*
 * Owns the raw multiply-add rates of the processor: the ceilings of matmul. One idea: enough
 * independent accumulators in registers that only the arithmetic units can be the limit. Refuses
 * memory: nothing is loaded inside the loops.
 */
#include "tools/bench/bench.h"

#include <immintrin.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PEAK_LOOPS = 2000000, AMX_LOOPS = 400000, XTILEDATA = 18, REQUEST_XCOMP = 0x1023 };

__attribute__((target("avx512f"))) static double loop_avx512(uint64_t loops)
{
    __m512 a[14], x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(1e-3f);
    for (int i = 0; i < 14; i++)
        a[i] = _mm512_set1_ps((float)i);
    for (uint64_t n = 0; n < loops; n++) {
#pragma GCC unroll 14
        for (int i = 0; i < 14; i++)
            a[i] = _mm512_fmadd_ps(a[i], x, y);
    }
    for (int i = 1; i < 14; i++)
        a[0] = _mm512_add_ps(a[0], a[i]);
    return (double)_mm512_reduce_add_ps(a[0]);
}

__attribute__((target("avx2,fma"))) static double loop_avx2(uint64_t loops)
{
    __m256 a[14], x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(1e-3f);
    for (int i = 0; i < 14; i++)
        a[i] = _mm256_set1_ps((float)i);
    for (uint64_t n = 0; n < loops; n++) {
#pragma GCC unroll 14
        for (int i = 0; i < 14; i++)
            a[i] = _mm256_fmadd_ps(a[i], x, y);
    }
    float out[8];
    for (int i = 1; i < 14; i++)
        a[0] = _mm256_add_ps(a[0], a[i]);
    _mm256_storeu_ps(out, a[0]);
    return (double)out[0];
}

/* 64 bytes that configure eight tiles of 16 rows of 64 bytes. */
typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;

__attribute__((target("amx-tile,amx-bf16"))) static double loop_amx(uint64_t loops)
{
    tile_config config = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        config.row_bytes[i] = 64;
        config.rows[i] = 16;
    }
    __asm__ volatile("" : : "r"(&config) : "memory"); /* gcc 12 would drop the stores otherwise */
    _tile_loadconfig(&config);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
    _tile_zero(6);
    _tile_zero(7);
    for (uint64_t n = 0; n < loops; n++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 5, 6);
        _tile_dpbf16ps(2, 4, 7);
        _tile_dpbf16ps(3, 5, 7);
    }
    float out[256];
    _tile_stored(0, out, 64);
    _tile_release();
    return (double)out[0];
}

typedef enum peak_kind { PEAK_NONE, PEAK_AVX2, PEAK_AVX512, PEAK_AMX } peak_kind;

typedef struct peak {
    peak_kind kind;
    volatile double sink;
} peak;

static bool can_amx(void)
{
    char flags[8192];
    FILE *f = fopen("/proc/cpuinfo", "r");
    bool found = false;
    while (f && !found && fgets(flags, sizeof flags, f))
        found = strstr(flags, " amx_bf16") != NULL;
    if (f)
        fclose(f);
    return found && syscall(SYS_arch_prctl, REQUEST_XCOMP, XTILEDATA) == 0;
}

static peak_kind kind_for(atom_dtype dtype)
{
    if (dtype == ATOM_BF16)
        return can_amx() ? PEAK_AMX : PEAK_NONE;
    if (__builtin_cpu_supports("avx512f"))
        return PEAK_AVX512;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? PEAK_AVX2 : PEAK_NONE;
}

static void peak_task(void *ctx, uint32_t index, uint32_t worker)
{
    peak *p = ctx;
    (void)index;
    (void)worker;
    if (p->kind == PEAK_AVX512)
        p->sink = loop_avx512(PEAK_LOOPS);
    else if (p->kind == PEAK_AVX2)
        p->sink = loop_avx2(PEAK_LOOPS);
    else
        p->sink = loop_amx(AMX_LOOPS);
}

static double flops_of(peak_kind kind)
{
    if (kind == PEAK_AMX)
        return 4.0 * 16 * 16 * 32 * 2 * AMX_LOOPS;
    return 14.0 * (kind == PEAK_AVX512 ? 16 : 8) * 2 * PEAK_LOOPS;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

double bench_peak_flops(atom_threads *threads, atom_dtype dtype, uint32_t rounds)
{
    enum { ROUNDS_MAX = 101 };
    double times[ROUNDS_MAX];
    peak p = {.kind = kind_for(dtype)};
    uint32_t n = atom_threads_count(threads);
    if (p.kind == PEAK_NONE)
        return 0;
    rounds = rounds > ROUNDS_MAX ? ROUNDS_MAX : rounds;
    atom_parallel(threads, n, peak_task, &p); /* wake the units up */
    for (uint32_t i = 0; i < rounds; i++) {
        double begin = atom_clock_seconds();
        atom_parallel(threads, n, peak_task, &p);
        times[i] = atom_clock_seconds() - begin;
    }
    qsort(times, rounds, sizeof times[0], by_value);
    return n * flops_of(p.kind) / times[rounds / 2];
}
