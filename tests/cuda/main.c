/*
 * check_cuda fp32|bf16 [small|real] [OP..]: the CUDA kernels on a card, against ref, by the cases of
 * tests/ops; OP may also be sums or ortho. small: few and small shapes, for compute-sanitizer. real:
 * the sizes of real models.
 * check_cuda host: AdamW, round and sumsq, bit for bit.
 * Exit 77: no card here, or the card has no such dtype, or none of the OPs a kernel or such a size.
 */
#include "tests/cuda/card.h"
#include "tests/ops/checkop.h"

#include <stdio.h>
#include <string.h>

enum { EXIT_SKIP = 77 };

static int finish(const report *r)
{
    printf("cuda %s: %u cases, %u failures, %u entries missing\n", atom_dtype_name(r->dtype),
           r->checked, r->failed, r->missing);
    run_close();
    if ((r->missing || r->real) && r->checked == 0 && !r->failed)
        return EXIT_SKIP;
    return r->failed || r->checked == 0;
}

static bool wanted(const char *name, int argc, char **argv)
{
    bool any = true;
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "small") == 0 || strcmp(argv[i], "real") == 0)
            continue;
        any = false;
        if (strcmp(argv[i], name) == 0)
            return true;
    }
    return any;
}

/* Ops without a kernel are counted and named, not failed: the models that need them are refused. */
static void check_entry(report *r, const krn_table *table, atom_op op)
{
    if (table->fwd[op] && table->bwd[op])
        check_op(r, table, krn_ref_table(r->dtype), op);
    else {
        printf("no kernel: %s\n", atom_op_get(op)->name);
        r->missing++;
    }
}

/* Real: large enough for large tiles on any card, and not whole tiles. */
static void check_ortho_on_card(report *r, const krn_table *table)
{
    if (r->real)
        check_ortho_parts(r, table, 4096, 4104);
    else
        check_ortho(r, table);
}

static int check(const char *what, int argc, char **argv)
{
    report r = {.backend = "cuda", .no_pool = true, .card = true};
    if (strcmp(what, "host") == 0) {
        check_host(&r, card_host_table());
        return finish(&r);
    }
    if (atom_dtype_parse(what, &r.dtype) != 0 || (r.dtype != ATOM_F32 && r.dtype != ATOM_BF16)) {
        fprintf(stderr, "check_cuda: fp32, bf16 or host, not \"%s\"\n", what);
        return 2;
    }
    const krn_table *table = card_table(r.dtype);
    if (!table) {
        printf("skipped: this card has no %s\n", atom_dtype_name(r.dtype));
        return EXIT_SKIP;
    }
    if (argc > 2 && strcmp(argv[2], "small") == 0) {
        r.work_max = 40000;
        r.shapes_max = 3;
    }
    r.real = argc > 2 && strcmp(argv[2], "real") == 0;
    for (int op = 0; op < ATOM_OP_N; op++) {
        if (wanted(atom_op_get((atom_op)op)->name, argc, argv))
            check_entry(&r, table, (atom_op)op);
        fflush(stdout);
    }
    if (!r.real && wanted("sums", argc, argv))
        check_round_sumsq(&r, table);
    if (wanted("ortho", argc, argv))
        check_ortho_on_card(&r, table);
    return finish(&r);
}

int main(int argc, char **argv)
{
    int opened = card_open();
    if (opened != 0)
        return opened;
    int wrong = check(argc > 1 ? argv[1] : "", argc, argv);
    return card_close() || wrong ? (wrong ? wrong : 1) : 0;
}
