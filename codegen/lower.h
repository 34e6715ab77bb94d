/*
 * Lowering: (graph, plan) -> memory layout, call lists and tapes. Pure and reproducible: the same
 * graph, plan and workspace give the same bytes.
 *
 * Source: docs/design/engine.md#layer-major-order, #memory, #the-tape, #generated-code.
 */
#ifndef CODEGEN_LOWER_H
#define CODEGEN_LOWER_H

#include "partition/plan.h"
#include "swap/exec.h"
#include "swap/tape.h"

typedef struct gen_lowered {
    swap_program *program;
    swap_tape *tapes[SWAP_TAPE_N]; /* linked; NULL: this plan or graph has no such */
    swap_param *params;
    uint32_t n_params;
    swap_host_layout layout;
    swap_block *blocks;   /* layout.blocks.list; NULL: it has none */
    swap_region *regions; /* the memory map, both spaces, ascending */
    uint32_t n_regions;
    uint32_t n_devices;
    uint64_t device_bytes, host_bytes; /* of each arena, of the slab */
    swap_range workspace;
    uint32_t instrs_max;
    uint64_t largest_visit_bytes; /* most parameter bytes that are on the device at once */
} gen_lowered;

/* Whether this table has all kernels that the graph needs. ATOM_E_UNSUPPORTED names the first node
 * that it cannot run (gen_lower calls this; supports.c). */
ATOM_MUST atom_status gen_supports(const graph *g, const krn_table *table);

/*
 * profile: gives the costs for the tape's predictions, and the workspace if table is NULL.
 * table: its workspace function is asked; NULL for a device that is not here.
 * Errors: ATOM_E_RESOURCE not enough memory; ATOM_E_USAGE the plan does not fit the graph;
 * ATOM_E_UNSUPPORTED the table lacks a kernel that the graph needs.
 */
ATOM_MUST atom_status gen_lower(const graph *g, const part_plan *plan, const part_profile *profile,
                                const krn_table *table, gen_lowered **out);
/* The same with only the tapes that a prediction runs: those of a step that follows another one like it. Where
 * nothing is trained (graph_set_forward), there are only tapes of evaluations in both, and what is predicted is
 * an evaluation after another one. */
ATOM_MUST atom_status gen_lower_steps(const graph *g, const part_plan *plan,
                                      const part_profile *profile, const krn_table *table,
                                      gen_lowered **out);
/* The same without tapes: the memory of a plan, however long its step. */
ATOM_MUST atom_status gen_lower_memory(const graph *g, const part_plan *plan,
                                       const part_profile *profile, const krn_table *table,
                                       gen_lowered **out);
void gen_lowered_close(gen_lowered **lowered);

/* What a step of a plan with its state on disk reads of it: all blocks but those that are held in host memory
 * (tape_disk.c). All of them are written. */
uint64_t gen_disk_read_bytes(const gen_lowered *lowered, const part_plan *plan);

/* A config for swap_exec_open over this lowering (borrows from it); fill in device, threads,
 * tables. */
swap_exec_config gen_exec_config(const gen_lowered *lowered);

/*
 * Evaluates a plan by lowering it and running it on the null device
 * (docs/design/engine.md#the-tape): steady-state step time, stream busy times, exact memory.
 * A state on disk goes through its step in fewer, larger blocks than it will have, so that a plan
 * costs the same for any model; a step of more than GEN_INSTRS_MAX instructions is not run at all:
 * step_seconds is 0 then, and only the memory is said. Matches part_evaluate_fn with
 * ctx = gen_judge *.
 */
enum { GEN_INSTRS_MAX = 25000, GEN_JUDGE_BLOCKS_MAX = 512 };
typedef struct gen_judge {
    const graph *g;
    const part_profile *profile;
    const krn_table *table; /* may be NULL */
    /* More than 1: a plan that is judged is for the largest share of so many devices; what is run is
     * the step of all of them, of micro_batches, or (0) of as many shares. */
    uint32_t devices, micro_batches;
} gen_judge;
/* The plan of all devices, by that plan for a share; a shallow copy. */
part_plan gen_judge_whole(const gen_judge *judge, const part_plan *share);
ATOM_MUST atom_status gen_judge_plan(void *judge, const part_plan *plan, part_verdict *verdict);

/* The plan's memory alone, which is quick; the verdict's times are 0. */
ATOM_MUST atom_status gen_weigh_plan(void *judge, const part_plan *plan, part_verdict *verdict);

/* Is the step short enough to be run on the null device? */
bool gen_judge_runs(const graph *g, const part_plan *plan);

/* The steady step of the same plan while no gradient is clipped and updates run ahead; 0 where they
 * cannot. */
ATOM_MUST atom_status gen_judge_ahead(const gen_judge *judge, const part_plan *plan,
                                      double *seconds);

/* One line per stream of what runs when, for people: `width` columns, from a simulated steady step.
 * Free with atom_free. */
ATOM_MUST atom_status gen_timeline(const graph *g, const part_plan *plan,
                                   const part_profile *profile, const krn_table *table,
                                   uint32_t width, char **text);

#endif
