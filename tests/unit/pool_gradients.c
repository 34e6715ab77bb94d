/*
 * Gradients mode with whole members in one process: trainers of a tiny GPT-2, each with its seam
 * and its member, over the simulated transport. 1, 2, 4 and 8 of them make the steps that one
 * trainer makes of the same batches: equal to the bit among themselves after every version, and the
 * same as the one up to rounding, also when one of them dies on the way.
 */
#include "kernels/bench.h"
#include "tests/lib/gradients_world.h"

/* How quickly this machine multiplies for Muon is not what is asked here, and a busy machine would have every trainer measure it
 * anew, for minutes under a sanitizer. */
atom_status __wrap_krn_bench_muon(atom_threads *threads, const krn_host_table *table,
                                  atom_dtype wire, int64_t rows, int64_t cols, uint32_t rounds,
                                  krn_bench *out);
atom_status __wrap_krn_bench_muon(atom_threads *threads, const krn_host_table *table,
                                  atom_dtype wire, int64_t rows, int64_t cols, uint32_t rounds,
                                  krn_bench *out)
{
    (void)threads, (void)table, (void)wire, (void)rows, (void)cols, (void)rounds;
    *out = (krn_bench){.seconds = 0.01, .fastest_seconds = 0.01};
    return ATOM_OK;
}

static void train_as_one(unsigned n, unsigned n_dies, gsp_codec codec, double limit)
{
    const world plain = {.muon = false};
    train_by(&plain, n, n_dies, codec, limit);
}

static void one_member_is_one_trainer(void **unused)
{
    (void)unused;
    if (SANITIZED)
        skip();
    train_as_one(1, 0, GSP_CODEC_FP32, 1e-5);
}

static void two_are_too(void **unused)
{
    (void)unused;
    train_as_one(2, 0, GSP_CODEC_FP32, 1e-5);
}

static void four_are_too(void **unused)
{
    (void)unused;
    if (SANITIZED)
        skip();
    train_as_one(4, 0, GSP_CODEC_FP32, 1e-5);
}

static void eight_are_too(void **unused)
{
    (void)unused;
    if (SANITIZED)
        skip();
    train_as_one(8, 0, GSP_CODEC_FP32, 1e-5);
}

/* What it had leased is summed a version later, by the others. */
static void a_death_changes_nothing(void **unused)
{
    (void)unused;
    train_as_one(4, 1, GSP_CODEC_FP32, 1e-5);
}

/* Not the same sums, but the same for all. */
static void with_int8_they_are_equal_among_themselves(void **unused)
{
    (void)unused;
    train_as_one(3, 0, GSP_CODEC_INT8, 0.05);
}

/* Every member orthogonalises for itself, and all find the same bits. A last bit of a sum may round
 * an operand of the products otherwise, to 8 bits: hence the wider limit. */
static void with_muon_they_are_one_too(void **unused)
{
    (void)unused;
    const world muon = {.muon = true};
    train_by(&muon, 3, 1, GSP_CODEC_FP32, 2e-3);
}

/* Two of four have masters, moments and anchor on disk: with the bits of the others. */
static void the_disk_changes_no_bit(void **unused)
{
    (void)unused;
    const world disk = {.on_disk = 2};
    train_by(&disk, 4, 0, GSP_CODEC_FP32, 1e-5);
}

/* A lease that died makes versions that are no step, whose vectors are all kept as they were. */
static void nor_where_one_dies(void **unused)
{
    (void)unused;
    const world disk = {.on_disk = 1};
    train_by(&disk, 3, 1, GSP_CODEC_INT8, 0.05);
}

/* Matrices are made whole, whatever pieces are. */
static void nor_with_muon(void **unused)
{
    (void)unused;
    const world disk = {.on_disk = 1, .muon = true};
    train_by(&disk, 3, 1, GSP_CODEC_FP32, 2e-3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_member_is_one_trainer),
        cmocka_unit_test(two_are_too),
        cmocka_unit_test(four_are_too),
        cmocka_unit_test(eight_are_too),
        cmocka_unit_test(a_death_changes_nothing),
        cmocka_unit_test(with_int8_they_are_equal_among_themselves),
        cmocka_unit_test(with_muon_they_are_one_too),
        cmocka_unit_test(the_disk_changes_no_bit),
        cmocka_unit_test(nor_where_one_dies),
        cmocka_unit_test(nor_with_muon),
    };
    return cmocka_run_group_tests(tests, set_cache, drop_cache);
}
