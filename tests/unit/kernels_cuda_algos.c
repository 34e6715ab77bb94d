/* The file of matrix-product algorithms: kept, first line wins,
 * damage costs nothing but the line. */
#include "kernels/cuda/algos.h"

#include "atom/base/files.h"
#include "atom/base/mem.h"

/* It belongs to the CUDA module, but is plain C. */
#include "kernels/cuda/algos.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

static krn_algo algo(const char *key, uint64_t word)
{
    krn_algo a = {.left = 2, .workspace_bytes = 77, .seconds = 0.25};
    snprintf(a.key, sizeof a.key, "%s", key);
    for (int i = 0; i < KRN_ALGO_WORDS; i++)
        a.word[i] = word + (uint64_t)i;
    return a;
}

static void test_kept(void **state)
{
    char dir[] = "/tmp/atom-algos-XXXXXX";
    krn_algos *one = NULL, *two = NULL;
    (void)state;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(krn_algos_open(dir, "a card", &one), ATOM_OK);
    assert_int_equal(krn_algos_open(dir, "a card", &two), ATOM_OK);
    assert_true(krn_algos_kept(one));
    krn_algo a = algo("3x5x7 @16", UINT64_MAX - 100), b = algo("3x5x7 @16", 1);
    krn_algos_lock(one);
    assert_null(krn_algos_find(one, a.key));
    assert_int_equal(krn_algos_add(one, &a), ATOM_OK);
    krn_algos_unlock(one);
    /* another process sees it under its lock, and cannot replace it */
    krn_algos_lock(two);
    const krn_algo *seen = krn_algos_find(two, a.key);
    assert_non_null(seen);
    assert_memory_equal(seen->word, a.word, sizeof a.word);
    assert_int_equal(seen->left, 2);
    assert_int_equal(seen->workspace_bytes, 77);
    assert_int_equal(krn_algos_add(two, &b), ATOM_OK);
    krn_algos_unlock(two);
    krn_algos_close(&two);
    assert_int_equal(krn_algos_open(dir, "a card", &two), ATOM_OK);
    assert_memory_equal(krn_algos_find(two, a.key)->word, a.word, sizeof a.word);
    assert_int_equal(two->n, one->n);
    krn_algos_close(&two);
    assert_int_equal(krn_algos_open(dir, "another card", &two), ATOM_OK);
    assert_null(krn_algos_find(two, a.key));
    krn_algos_close(&one);
    krn_algos_close(&two);
    assert_int_equal(atom_dir_remove(dir), ATOM_OK);
}

/* What could not be measured stands in until somebody can; what was measured stays, and what is plain. */
static void test_measured_later(void **state)
{
    char dir[] = "/tmp/atom-algos-XXXXXX";
    krn_algos *one = NULL, *two = NULL;
    (void)state;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(krn_algos_open(dir, "a card", &one), ATOM_OK);
    krn_algo guessed = algo("a", 1), other = algo("a", 2), first = algo("a", 3),
             late = algo("a", 4);
    krn_algo plain = algo("b", 5), of_b = algo("b", 6);
    guessed.seconds = other.seconds = plain.seconds = 0;
    plain.plain = true;
    const krn_algo *const all[] = {&guessed, &other, &first, &late, &guessed, &plain, &of_b};
    const uint64_t wins[] = {1, 1, 3, 3, 3, 5, 5};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        krn_algos_lock(one);
        assert_int_equal(krn_algos_add(one, all[i]), ATOM_OK);
        krn_algos_unlock(one);
        assert_int_equal(krn_algos_find(one, all[i]->key)->word[0], wins[i]);
    }
    assert_int_equal(one->n, 2);
    assert_int_equal(krn_algos_open(dir, "a card", &two), ATOM_OK);
    assert_int_equal(two->n, 2);
    assert_int_equal(krn_algos_find(two, "a")->word[0], 3);
    assert_int_equal(krn_algos_find(two, "b")->word[0], 5);
    krn_algos_close(&one);
    krn_algos_close(&two);
    assert_int_equal(atom_dir_remove(dir), ATOM_OK);
}

static void test_damage(void **state)
{
    char dir[] = "/tmp/atom-algos-XXXXXX";
    static const char *const lines = "no bar at all\n|1 0 0 0\nkey|1 0 zz\n"
                                     "good|1 1 5 0.5 1 2 3 4 5 6 7 8\ncut|1 0 5 0.5 1 2 3";
    krn_algos *algos = NULL;
    (void)state;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(krn_algos_open(dir, "a card", &algos), ATOM_OK);
    char *path = atom_strdup(algos->path);
    krn_algos_close(&algos);
    assert_int_equal(atom_file_write(path, lines, strlen(lines)), ATOM_OK);
    atom_free(path);
    assert_int_equal(krn_algos_open(dir, "a card", &algos), ATOM_OK);
    assert_int_equal(algos->n, 1);
    assert_true(krn_algos_find(algos, "good")->plain);
    krn_algos_close(&algos);
    assert_int_equal(krn_algos_open(NULL, "a card", &algos), ATOM_OK);
    assert_false(krn_algos_kept(algos));
    krn_algo a = algo("k", 1);
    assert_int_equal(krn_algos_add(algos, &a), ATOM_OK);
    assert_non_null(krn_algos_find(algos, "k"));
    krn_algos_close(&algos);
    assert_int_equal(atom_dir_remove(dir), ATOM_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kept),
        cmocka_unit_test(test_measured_later),
        cmocka_unit_test(test_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
