/* Which value maxout takes of several that are equal, or that are no numbers, in ref and on the CPU. */
#include "kernels/kernels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void check(const krn_table *table)
{
    float x[8] = {1, 2, 2, 0, 3, NAN, NAN, 4}, y[2], dy[2] = {5, 7}, dx[8];
    const float want[8] = {0, 5, 0, 0, 0, 7, 0, 0};
    krn_ctx cx = {0};
    krn_args args = {.buf = {x, y}, .dim = {1, 2, 4}};
    table->fwd[ATOM_OP_maxout](&cx, &args);
    assert_true(y[0] == 2);
    assert_true(isnan(y[1]));
    args = (krn_args){.buf = {x, NULL, dy, dx}, .dim = {1, 2, 4}};
    table->bwd[ATOM_OP_maxout](&cx, &args);
    assert_memory_equal(dx, want, sizeof dx);
    args.flags = KRN_ADD_D_IN0;
    table->bwd[ATOM_OP_maxout](&cx, &args);
    for (int i = 0; i < 8; i++)
        assert_true(dx[i] == 2 * want[i]);
}

static void the_first_wins(void **state)
{
    (void)state;
    check(krn_ref_table(ATOM_F32));
    check(krn_cpu_table(ATOM_F32));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_first_wins)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
