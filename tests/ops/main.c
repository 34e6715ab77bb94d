/*
 * checkop BACKEND DTYPE [real] [-v]: runs one line of the chain of checkop.h. BACKEND is ref, cpu,
 * host-ref, host-cpu or canary; DTYPE fp32, bf16 or (ref) fp64. real: the sizes of real models, with
 * the limits of a card. -v prints the largest errors seen.
 * Exit 77: this machine cannot run it.
 */
#include "kernels/cpu/cpu.h"
#include "tests/lib/sanitized.h"
#include "tests/ops/checkop.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXIT_SKIP = 77 };

static void print_worst(const report *r, const krn_table *table)
{
    static const char *const groups[GROUP_N] = {"slope", "out", "saved", "d_in", "d_param"};
    for (int op = 0; op < ATOM_OP_N; op++) {
        for (int backward = 0; backward < 2; backward++) {
            for (int g = 0; g < GROUP_N; g++) {
                double worst = r->worst[op][backward][g];
                if (worst > 0)
                    printf("%-14s %s %-8s %.2e of %.2e\n", atom_op_get((atom_op)op)->name,
                           backward ? "bwd" : "fwd", groups[g], worst,
                           g == GROUP_GIVEN ? SLOPE_LIMIT
                                            : op_limit((atom_op)op, (place_group)g, table->dtype));
            }
        }
    }
}

static int finish(const report *r)
{
    printf("%s %s: %u cases, %u failures, %u entries missing\n", r->backend,
           atom_dtype_name(r->dtype), r->checked, r->failed, r->missing);
    run_close();
    return r->failed || r->missing || r->checked == 0;
}

static int check_table(const char *backend, const krn_table *table, const krn_table *spec,
                       bool real, bool verbose)
{
    report r = {.backend = backend,
                .dtype = table->dtype,
                .brief = SANITIZED,
                .card = real,
                .real = real,
                .no_pool = real};
    if (strcmp(backend, "ref") == 0) { /* it has no blocks to cross, and is slow */
        r.work_max = 300000;
        r.brief = true;
    }
    printf("%s %s on %s\n", backend, atom_dtype_name(table->dtype), table->isa);
    for (int op = 0; op < ATOM_OP_N; op++)
        check_op(&r, table, spec, (atom_op)op);
    if (!real)
        check_round_sumsq(&r, table);
    if (table->ortho) {
        check_ortho_parts(&r, table, 150, 100);
        check_ortho_parts(&r, table, 96, 161);
    }
    if (verbose)
        print_worst(&r, table);
    return finish(&r);
}

static int check_host_table(const char *backend, const krn_host_table *table)
{
    report r = {.backend = backend};
    check_host(&r, table);
    check_muon(&r, table);
    return finish(&r);
}

static int check_cpu(atom_dtype dtype, bool real, bool verbose)
{
    const krn_table *table = krn_cpu_table(dtype);
    if (!table) {
        printf("cpu %s: this machine has no support\n", atom_dtype_name(dtype));
        return EXIT_SKIP;
    }
    return check_table("cpu", table, krn_ref_table(dtype), real, verbose);
}

/* Whether this machine lacks what the environment asks for; the same kernels would then run as without being asked. */
static bool lacks(void)
{
    const char *isa = getenv("ATOM_ISA"), *missing = NULL;
    for (krn_cpu_isa i = 0; isa && i < KRN_CPU_ISA_N; i++) {
        if (strcmp(isa, krn_cpu_isa_name(i)) == 0 && !krn_cpu_isa_can(i))
            missing = isa;
    }
    /* DNNL_MAX_CPU_ISA takes AMX away, and the rest stays. */
    if (getenv("DNNL_MAX_CPU_ISA") && !__builtin_cpu_supports("amx-tile"))
        missing = "AMX";
    if (missing)
        printf("skipped: this CPU has no %s\n", missing);
    return missing;
}

int main(int argc, char **argv)
{
    const char *backend = argc > 1 ? argv[1] : "", *name = argc > 2 ? argv[2] : "fp32";
    bool verbose = strcmp(argv[argc - 1], "-v") == 0;
    atom_dtype dtype = ATOM_F32;
    if (name[0] != '-' && atom_dtype_parse(name, &dtype) != 0) {
        fprintf(stderr, "checkop: no dtype %s\n", name);
        return 2;
    }
    if (lacks())
        return EXIT_SKIP;
    if (strcmp(backend, "canary") == 0) {
        uint32_t missed = check_canaries();
        run_close();
        return missed != 0;
    }
    if (strcmp(backend, "ref") == 0)
        return check_table("ref", krn_ref_table(dtype),
                           dtype == ATOM_F64 ? naive_table() : krn_ref_table(ATOM_F64), false,
                           verbose);
    if (strcmp(backend, "host-ref") == 0)
        return check_host_table(backend, krn_ref_host_table());
    if (strcmp(backend, "cpu") == 0)
        return check_cpu(dtype, argc > 3 && strcmp(argv[3], "real") == 0, verbose);
    if (strcmp(backend, "host-cpu") == 0)
        return check_host_table(backend, krn_cpu_host_table());
    fprintf(stderr, "checkop: no backend \"%s\"\n", backend);
    return 2;
}
