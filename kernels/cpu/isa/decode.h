/*
 * attend of one instruction set (isa/attend.c), for the table in isa/row.c.
 */
#ifndef KERNELS_CPU_ISA_DECODE_H
#define KERNELS_CPU_ISA_DECODE_H

#include "kernels/cpu/decode.h"
#include "kernels/cpu/isa/vec.h"

void KRN_ISA(krn_cpu_attend_f32)(krn_ctx *cx, const krn_attend *args);
void KRN_ISA(krn_cpu_attend_bf16)(krn_ctx *cx, const krn_attend *args);

#endif
