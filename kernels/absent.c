/*
 * Owns the launchers that kernels/cuda does not have yet, so that tables made from ops.def link.
 * One idea: whoever makes a CUDA table leaves their entries NULL (krn_cuda_absent says which), and
 * the run is refused by name before it starts; a call that comes through all the same ends the
 * program. A launcher that is written moves out of here.
 */
#include "kernels/absent.h"

#include "atom/base/assert.h"

#define ABSENT(name)                                                                               \
    void krn_cuda_##name##_fwd(krn_ctx *cx, const krn_args *args, atom_dtype act);                 \
    void krn_cuda_##name##_bwd(krn_ctx *cx, const krn_args *args, atom_dtype act);                 \
    void krn_cuda_##name##_fwd(krn_ctx *cx, const krn_args *args, atom_dtype act)                  \
    {                                                                                              \
        (void)cx, (void)args, (void)act;                                                           \
        ATOM_ASSERT(!#name " is not on CUDA yet");                                                 \
    }                                                                                              \
    void krn_cuda_##name##_bwd(krn_ctx *cx, const krn_args *args, atom_dtype act)                  \
    {                                                                                              \
        krn_cuda_##name##_fwd(cx, args, act);                                                      \
    }
ABSENT(rmsnorm)
ABSENT(headnorm)
ABSENT(rope)
ABSENT(swiglu)
#undef ABSENT

bool krn_cuda_absent(atom_op op)
{
    return op == ATOM_OP_rmsnorm || op == ATOM_OP_headnorm || op == ATOM_OP_rope ||
           op == ATOM_OP_swiglu;
}
