/* oneDNN's code is used wherever it has some that multiplies rightly (gemm.c tries it once): were it refused by mistake, nothing
 * but the speed would tell. */
#include "kernels/cpu/gemm.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void compiled_code_is_used(void **state)
{
    static const int64_t sizes[][2] = {{1, 1},     {1, 64},     {6, 100},   {64, 768},
                                       {33, 1025}, {100, 1700}, {256, 3072}};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int64_t m = sizes[i][0], k = sizes[i][1];
        if (!gemm_get(ATOM_F32, m, k).entry)
            fail_msg("fp32, %d x %d: plain code", (int)m, (int)k);
        if (gemm_layout_of(ATOM_BF16) == GEMM_PAIRS && !gemm_get(ATOM_BF16, m, k).entry)
            fail_msg("bf16, %d x %d: plain code", (int)m, (int)k);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(compiled_code_is_used)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
