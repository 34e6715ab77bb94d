/*
 * Which device computes: the words of --device, and opening what they mean. Inner header of
 * atom/train.
 *
 * Errors: ATOM_E_USAGE for a word that is not a device, ATOM_E_UNSUPPORTED with the reason if CUDA
 * was asked for and is not available. `auto` falls back to the CPU silently. Thread: one caller.
 */
#ifndef ATOM_PLAN_DEVICE_H
#define ATOM_PLAN_DEVICE_H

#include "atom/plan/workbench.h"
#include "kernels/device.h"

/* The card of "cuda[:N]", -1 for the CPU. NULL is the CPU. */
ATOM_MUST atom_status plan_device_choose(const char *device, int *card);

/* Are there n of them, from `card` on, and all of one kind? The CPU is as many as one likes. */
ATOM_MUST atom_status plan_device_several(int card, int64_t n);

/* bf16 where the device has it natively, unless the caller says otherwise (plan_dtype). */
atom_dtype plan_device_dtype(int card, int32_t dtype);

/* The kernels of the device. */
ATOM_MUST atom_status plan_device_table(int card, atom_dtype dtype, const krn_table **out);

/* The workbench's device, or that many behind it, with a budget (0: none); link_bandwidth as
 * configured. */
ATOM_MUST atom_status plan_device_open(const plan_workbench *bench, uint32_t number,
                                       uint64_t budget_bytes, dev **out);

/* "cpu: AMD EPYC, 2 threads", or the card's name: what a profile is measured on. */
void plan_device_name(const plan_workbench *bench, char *out, size_t bytes);
/* Host memory that is free now, counting what the CUDA module has and would give back. */
uint64_t plan_host_bytes(void);
/* Memory of the card that a plan may use; 0 on the CPU. */
uint64_t plan_device_bytes(const plan_workbench *bench);

/* Where other programs use so much of one of n cards that less than `has` is left: what is left.
 * 0: there is enough, or it is not known. */
uint64_t plan_device_left(const plan_workbench *bench, uint32_t n, uint64_t has);

/* The limit of a plan for n cards: `asked` where the user set one, else what other programs leave of
 * the `has` bytes that a plan may use, with a warning that says for what (`purpose`) it is less; 0: all
 * of them. */
uint64_t plan_device_limit(const plan_workbench *bench, uint32_t n, uint64_t asked, uint64_t has,
                           const char *purpose);

/* What is known of the device without measuring: kind, memory, cores, instructions, the rate of a link
 * that is slowed down; its other rates are anybody's. Good for laying a plan out, which needs no rates,
 * not for choosing one. */
part_device plan_device_guess(const plan_workbench *bench);

/* The model of what computes, for people and for telling devices apart: a card's name and memory,
 * or the processor's line of /proc/cpuinfo. Machines of one model have one name. */
void plan_device_model(const plan_workbench *bench, char *out, size_t bytes);

/* The first line of /proc/cpuinfo that names the processor's model; false: there is none. */
bool plan_cpu_line(char *line, size_t bytes);

#endif
