/*
 * check_shim fp32|bf16 [OP..]: the kernels of kernels/cuda, under the shim, against ref.
 * check_shim host: AdamW, round and sumsq bit for bit; the matrix primitives against plain loops.
 * check_shim skips: what a window or a document's start hides is not touched.
 * check_shim twisted NAME: a kernel that is wrong; the shim or the sanitizer must stop the program.
 */
#include "tests/ops/checkop.h"
#include "tests/shim/shim.h"
#include "tests/shim/skips.h"

#include <stdio.h>
#include <string.h>

static int finish(const report *r)
{
    printf("%s %s: %u cases, %u failures, %u entries missing\n", r->backend,
           atom_dtype_name(r->dtype), r->checked, r->failed, r->missing);
    run_close();
    return r->failed || r->missing || r->checked == 0;
}

static bool wanted(const char *name, int argc, char **argv)
{
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], name) == 0)
            return true;
    }
    return argc <= 2;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "twisted") == 0 && argc > 2) {
        if (!shim_run_twisted(argv[2]))
            fprintf(stderr, "check_shim: no twisted kernel %s\n", argv[2]);
        printf("nothing noticed %s\n", argv[2]);
        return 1;
    }
    if (strcmp(what, "host") == 0) {
        report r = {.backend = "cuda-shim"};
        check_host(&r, shim_host_table());
        int wrong = shim_check_matrices();
        if (wrong)
            report_fail(&r, NULL, false, "matrix primitives: %d elements are wrong", wrong);
        return finish(&r);
    }
    if (strcmp(what, "skips") == 0) {
        int wrong =
            shim_check_skips(shim_table(ATOM_BF16)) + shim_check_skips(shim_table(ATOM_F32));
        printf("%d numbers come from rows that nobody sees\n", wrong);
        return wrong != 0;
    }
    atom_dtype dtype;
    if (atom_dtype_parse(what, &dtype) != 0 || (dtype != ATOM_F32 && dtype != ATOM_BF16)) {
        fprintf(stderr, "check_shim: fp32, bf16, host or twisted, not \"%s\"\n", what);
        return 2;
    }
    const krn_table *table = shim_table(dtype);
    report r = {.backend = table->backend, .dtype = dtype, .no_pool = true, .brief = true};
    for (int op = 0; op < ATOM_OP_N; op++) {
        if (wanted(atom_op_get((atom_op)op)->name, argc, argv))
            check_op(&r, table, krn_ref_table(dtype), (atom_op)op);
    }
    if (wanted("sums", argc, argv))
        check_round_sumsq(&r, table);
    if (wanted("ortho", argc, argv))
        check_ortho(&r, table);
    return finish(&r);
}
