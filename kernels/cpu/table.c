/*
 * Owns the CPU backend's tables and the choice of the instruction set. One idea: the choice is made
 * once per process, so that every kernel of a run gives the same bits. Refuses other dtypes.
 */
#include "kernels/cpu/cpu.h"

#include "atom/base/log.h"
#include "kernels/cpu/matmul.h"
#include "kernels/fix_dtype.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

const char *krn_cpu_isa_name(krn_cpu_isa isa)
{
    static const char *const names[KRN_CPU_ISA_N] = {"base", "avx2", "avx512"};
    return names[isa];
}

int krn_cpu_isa_can(krn_cpu_isa isa)
{
    __builtin_cpu_init();
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    return isa == KRN_CPU_BASE || (isa == KRN_CPU_AVX2 && avx2) ||
           (isa == KRN_CPU_AVX512 && avx512);
}

static krn_cpu_isa choose(void)
{
    krn_cpu_isa best = KRN_CPU_BASE;
    for (krn_cpu_isa i = 0; i < KRN_CPU_ISA_N; i++) {
        if (krn_cpu_isa_can(i))
            best = i;
    }
    const char *asked = getenv("ATOM_ISA");
    if (!asked || !*asked)
        return best;
    for (krn_cpu_isa i = 0; i < KRN_CPU_ISA_N; i++) {
        if (strcmp(asked, krn_cpu_isa_name(i)) == 0 && krn_cpu_isa_can(i))
            return i;
    }
    atom_log(ATOM_LOG_WARN,
             "ATOM_ISA=%s is not one of base, avx2, avx512, or this machine does not have it; "
             "using %s",
             asked, krn_cpu_isa_name(best));
    return best;
}

/* Filled once, then read only. */
static struct {
    pthread_once_t once;
    krn_cpu_isa isa;
    krn_table table[2];
    krn_host_table host;
} chosen = {.once = PTHREAD_ONCE_INIT};

static void fill_all(void)
{
    chosen.isa = choose();
    krn_cpu_table_fill(&chosen.table[ATOM_F32], ATOM_F32, chosen.isa);
    krn_cpu_table_fill(&chosen.table[ATOM_BF16], ATOM_BF16, chosen.isa);
    const krn_cpu_vec *vec = krn_cpu_vec_get(chosen.isa);
    chosen.host.adamw = vec->adamw;
    chosen.host.muon = vec->muon;
    chosen.host.muon_begin = vec->muon_begin;
    chosen.host.muon_end = vec->muon_end;
    memcpy(chosen.host.round, vec->round, sizeof vec->round);
    memcpy(chosen.host.sumsq, vec->sumsq, sizeof vec->sumsq);
}

krn_cpu_isa krn_cpu_isa_best(void)
{
    pthread_once(&chosen.once, fill_all);
    return chosen.isa;
}

const krn_cpu_vec *krn_cpu_vec_get(krn_cpu_isa isa)
{
    static const krn_cpu_vec *const all[KRN_CPU_ISA_N] = {&krn_cpu_vec_base, &krn_cpu_vec_avx2,
                                                          &krn_cpu_vec_avx512};
    return all[isa];
}

uint64_t krn_cpu_vec_workspace(atom_op op, int backward, const int64_t dim[KRN_DIM_MAX])
{
    int64_t rows = krn_norm_block_rows(dim[0]), blocks = (dim[0] + rows - 1) / rows;
    if (op == ATOM_OP_rope) /* sines and cosines of the places */
        return (uint64_t)(krn_rope_places(dim[1]) * dim[3]) * sizeof(float);
    if (op == ATOM_OP_lora) /* b turned */
        return (uint64_t)(dim[2] * dim[3]) * sizeof(float);
    if (op == ATOM_OP_dora) /* m / n and 1 / n */
        return (uint64_t)(2 * dim[2]) * sizeof(float);
    if (op == ATOM_OP_layernorm && backward)
        return (uint64_t)(blocks * 2 * dim[1]) * sizeof(float);
    if (op == ATOM_OP_rmsnorm && backward)
        return (uint64_t)(blocks * dim[1]) * sizeof(float);
    if (op == ATOM_OP_headnorm && backward)
        return (uint64_t)(blocks * 2 * dim[2]) * sizeof(float);
    return 0;
}

static uint64_t workspace(atom_op op, int backward, const int64_t dim[KRN_DIM_MAX],
                          atom_dtype dtype)
{
    uint64_t vec = krn_cpu_vec_workspace(op, backward, dim);
    uint64_t matmul = krn_cpu_matmul_workspace(dtype, op, backward, dim);
    return vec > matmul ? vec : matmul;
}
KRN_FIX_WORKSPACE(workspace, f32, ATOM_F32)
KRN_FIX_WORKSPACE(workspace, bf16, ATOM_BF16)

static void update(krn_ctx *cx, const krn_adamw_step *step, atom_dtype dtype, void *wire,
                   const void *grad, float *master, void *m, void *v, uint64_t n)
{
    if (wire != grad)
        krn_copy_host(cx, wire, grad, n * atom_dtype_bytes(dtype));
    chosen.host.adamw(cx->threads, step, dtype, wire, master, m, v, n);
}
KRN_FIX_UPDATE(update, f32, ATOM_F32)
KRN_FIX_UPDATE(update, bf16, ATOM_BF16)

void krn_cpu_table_fill(krn_table *table, atom_dtype dtype, krn_cpu_isa isa)
{
    const krn_cpu_vec *vec = krn_cpu_vec_get(isa);
    *table = (krn_table){
        .backend = "cpu",
        .copy = krn_copy_host,
        .dtype = dtype,
        .isa = isa == KRN_CPU_AVX512 && krn_amx_usable() ? "avx512+amx" : krn_cpu_isa_name(isa),
        .round = vec->round[dtype],
        .sumsq = vec->sumsq[dtype],
        .settle = vec->settle[dtype],
        .workspace = dtype == ATOM_F32 ? workspace_f32 : workspace_bf16,
        .can = KRN_CAN_GROUPED | KRN_CAN_NO_PLACES | KRN_CAN_WINDOW | KRN_CAN_APART,
        .update = dtype == ATOM_F32 ? update_f32 : update_bf16};
    memcpy(table->fwd, vec->fwd[dtype], sizeof table->fwd);
    memcpy(table->bwd, vec->bwd[dtype], sizeof table->bwd);
    krn_cpu_matmul_entries(table, isa);
}

const krn_table *krn_cpu_table(atom_dtype dtype)
{
    if (dtype != ATOM_F32 && dtype != ATOM_BF16)
        return NULL;
    pthread_once(&chosen.once, fill_all);
    return &chosen.table[dtype];
}

const krn_host_table *krn_cpu_host_table(void)
{
    pthread_once(&chosen.once, fill_all);
    return &chosen.host;
}
