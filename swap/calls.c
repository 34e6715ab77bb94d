/*
 * Owns the interpreter of call lists. One idea: resolve (base, offset) to pointers, fill krn_args,
 * call the table. Refuses arithmetic and synchronisation.
 */
#include "swap/calls.h"

#include "atom/base/assert.h"
#include "atom/base/mem.h"

#include <string.h>

const char *swap_base_name(swap_base base)
{
    static const char *const names[SWAP_BASE_N] = {
        "NONE", "PARAM", "GRAD", "SHARED", "TOKENS", "TARGETS", "LOSS", "X",
        "Y",    "DY",    "DX",   "KEPT",   "ACT",    "LATE",    "HELD", "SENT"};
    return base < SWAP_BASE_N ? names[base] : "?";
}

const char *swap_list_name(swap_list list)
{
    static const char *const names[SWAP_LIST_N] = {"fwd", "keep", "bwd", "late"};
    return list < SWAP_LIST_N ? names[list] : "?";
}

void swap_program_close(swap_program **program)
{
    swap_program *p = *program;
    if (!p)
        return;
    for (uint32_t k = 0; p->sub_models && k < p->n_sub_models; k++) {
        for (int l = 0; l < SWAP_LIST_N; l++)
            atom_free(p->sub_models[k].list[l].calls);
        atom_free(p->sub_models[k].symbols);
    }
    atom_free(p->sub_models);
    atom_free(p);
    *program = NULL;
}

static void run_call(krn_ctx *cx, const krn_table *table, const swap_call *call,
                     const swap_bases *bases)
{
    krn_args args = {.eps = call->eps,
                     .p = call->p,
                     .flags = call->flags,
                     .rng = call->rng,
                     .rope = call->rope,
                     .scale = call->scale,
                     .lift = call->lift,
                     .cap = call->cap};
    for (int b = 0; b < call->n_buf; b++) {
        swap_ref ref = call->buf[b];
        if (ref.base != SWAP_BASE_NONE)
            args.buf[b] = (char *)bases->at[ref.base] + ref.offset;
    }
    memcpy(args.dim, call->dim, sizeof args.dim);
    if (call->op == ATOM_OP_N) {
        table->copy(cx, args.buf[0], args.buf[1], (uint64_t)args.dim[0]);
        return;
    }
    krn_fn fn = call->backward ? table->bwd[call->op] : table->fwd[call->op];
    ATOM_ASSERT(fn);
    fn(cx, &args);
}

void swap_calls_run(krn_ctx *cx, const krn_table *table, const swap_calls *calls,
                    const swap_bases *bases)
{
    for (uint32_t i = 0; i < calls->n; i++)
        run_call(cx, table, &calls->calls[i], bases);
}
