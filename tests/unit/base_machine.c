/* Sizes as people write them, near misses of words, clocks, entropy, hashes, cores and memory. */
#include "atom/base/clock.h"
#include "atom/base/entropy.h"
#include "atom/base/hash.h"
#include "atom/base/machine.h"
#include "atom/base/nearest.h"
#include "atom/base/size.h"
#include "tests/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void sizes_parse(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {
        {"0", 0},
        {"4096", 4096},
        {"512 B", 512},
        {"8GiB", 8ull << 30},
        {"8gib", 8ull << 30},
        {"8GB", 8000000000ull},
        {"1.5 GB", 1500000000ull},
        {"64KiB", 65536},
        {"64kB", 64000},
        {"3MiB", 3ull << 20},
        {"3MB", 3000000},
        {"2TiB", 2ull << 40},
        {"1e3", 1000},
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        uint64_t bytes = 1;
        assert_int_equal(atom_size_parse(good[i].text, &bytes), ATOM_OK);
        assert_int_equal(bytes, good[i].bytes);
    }
    static const char *const bad[] = {"",    " ",    "GiB",   "8 apples", "-1",         "nan",
                                      "inf", "1e40", "8GiBx", "8GiB 1",   "99999999TiB"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint64_t bytes = 77;
        assert_int_equal(atom_size_parse(bad[i], &bytes), ATOM_E_USAGE);
        assert_int_equal(bytes, 77);
    }
}

static void sizes_print(void **state)
{
    (void)state;
    char buf[24];
    assert_string_equal(atom_size_text(0, buf), "0 B");
    assert_string_equal(atom_size_text(1023, buf), "1023 B");
    assert_string_equal(atom_size_text(1024, buf), "1.0 KiB");
    assert_string_equal(atom_size_text(8ull << 30, buf), "8.0 GiB");
    assert_string_equal(atom_size_text(200ull << 20, buf), "200 MiB");
    assert_string_equal(atom_size_text(UINT64_MAX, buf), "16.0 EiB");
}

static void near_words_are_suggested(void **state)
{
    (void)state;
    static const char *const names[] = {"learning_rate", "lr_scheduler", "seed", "save_steps"};
    assert_string_equal(atom_did_you_mean("learing_rate", names, 4), "learning_rate");
    assert_string_equal(atom_did_you_mean("sead", names, 4), "seed");
    assert_string_equal(atom_did_you_mean("save_step", names, 4), "save_steps");
    assert_null(atom_did_you_mean("dropout", names, 4));
    assert_null(atom_did_you_mean("x", names, 4));
    assert_null(atom_did_you_mean("", names, 4));
    char longest[300];
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    assert_null(atom_did_you_mean(longest, names, 4));
}

static void clocks_and_entropy(void **state)
{
    (void)state;
    uint64_t a = atom_clock_ns();
    assert_true(atom_clock_ns() >= a);
    assert_true(atom_wall_seconds() > 1.6e9);
    uint8_t one[32] = {0}, two[32] = {0};
    assert_int_equal(atom_entropy(one, sizeof one), ATOM_OK);
    assert_int_equal(atom_entropy(two, sizeof two), ATOM_OK);
    assert_memory_not_equal(one, two, sizeof one);
    assert_true(atom_vm_peak_bytes() > 100000);
    assert_true(atom_host_available_bytes() > 0);
    assert_true(atom_cores() >= 1);
    char word[32] = "before";
    atom_net_setting("ipv4/tcp_congestion_control", word, sizeof word);
    assert_true(strlen(word) >= 3 && !strchr(word, '\n')); /* bbr, cubic, ... */
    atom_net_setting("no/such", word, sizeof word);
    assert_string_equal(word, "");
}

static void hashes(void **state)
{
    (void)state;
    assert_true(atom_hash(ATOM_HASH_SEED, "", 0) == ATOM_HASH_SEED);
    assert_true(atom_hash(ATOM_HASH_SEED, "a", 1) == 0xaf63dc4c8601ec8cu); /* FNV-1a's own vector */
    assert_true(atom_hash(ATOM_HASH_SEED, "foobar", 6) == 0x85944171f73967e8u);
    uint64_t halves = atom_hash(atom_hash(ATOM_HASH_SEED, "foo", 3), "bar", 3);
    assert_true(halves == 0x85944171f73967e8u);
}

/* Four cores, two last-level caches: each is counted once; the first core has one of them. */
static void caches_add_up(void **state)
{
    (void)state;
    static const struct {
        const char *dir, *level, *size, *shared;
    } caches[] = {{"cpu0/cache/index0", "1", "32K", "0"},
                  {"cpu0/cache/index1", "3", "524288K\n", "0-1"},
                  {"cpu1/cache/index0", "3", "524288K", "0-1"},
                  {"cpu1/cache/index1", "2", "1024K", "1"},
                  {"cpu2/cache/index0", "3", "524288K", "2,3"},
                  {"cpu3/cache/index0", "3", "524288K", "2,3"}};
    scratch files;
    scratch_open(&files);
    for (size_t i = 0; i < sizeof caches / sizeof *caches; i++) {
        char name[64];
        const char *texts[3] = {caches[i].level, caches[i].size, caches[i].shared};
        const char *files_of[3] = {"level", "size", "shared_cpu_list"};
        assert_int_equal(atom_dir_make(scratch_path(&files, caches[i].dir)), ATOM_OK);
        for (int f = 0; f < 3; f++) {
            snprintf(name, sizeof name, "%s/%s", caches[i].dir, files_of[f]);
            scratch_write(&files, name, texts[f], strlen(texts[f]));
        }
    }
    uint64_t said = atom_cache_bytes("/nowhere"); /* the C library's word, or 0 */
    uint64_t both = 1ull << 30;
    assert_true(atom_cache_bytes(files.dir) == (said > both ? said : both));
    assert_true(atom_last_cache_bytes(files.dir) == both / 2);
    assert_true(atom_last_cache_bytes("/nowhere") == said);
    scratch_close(&files);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(caches_add_up),      cmocka_unit_test(sizes_parse),
        cmocka_unit_test(sizes_print),        cmocka_unit_test(near_words_are_suggested),
        cmocka_unit_test(clocks_and_entropy), cmocka_unit_test(hashes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
