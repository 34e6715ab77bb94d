/*
 * checkop: every op x backend x dtype x shape against the specification.
 *
 * The chain of trust, each link checked here:
 *   naive formulas (naive.c, f64)  ->  ref in f64: forward equal, backward by finite differences
 *   ref in f64                     ->  ref in fp32 and bf16 (same code, rounding where stored)
 *   ref of a dtype                 ->  every other backend of that dtype
 * Everything is driven by ops.def: an op without shapes or limits fails.
 *
 * To add an op: its row in ops.def, its tensors and shapes in cases.c, its formula in naive.c, its
 * limits in limits.c.
 */
#ifndef TESTS_OPS_CHECKOP_H
#define TESTS_OPS_CHECKOP_H

#include "atom/base/rng.h"
#include "kernels/kernels.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What stands in one place of krn_args.buf. */
typedef enum place_kind { KIND_NONE, KIND_ACT, KIND_STAT, KIND_TOKEN, KIND_TARGET } place_kind;
typedef enum place_use { USE_READ, USE_WRITE, USE_ADD } place_use;
typedef enum place_group {
    GROUP_GIVEN,
    GROUP_OUT,
    GROUP_SAVED,
    GROUP_D_IN,
    GROUP_D_PARAM,
    GROUP_N
} place_group;

typedef struct place {
    const char *name;
    place_kind kind;
    place_use use;
    place_group group;
    int64_t n;
    int from; /* backward: the place in forward that holds the same tensor; -1: its own */
} place;

typedef struct op_case {
    atom_op op;
    int64_t dim[KRN_DIM_MAX];
    uint32_t variant; /* 0 .. VARIANT_N-1: bias, dropout, add flags, targets, documents' lengths */
    bool apart;       /* with krn_step.starts */
} op_case;

enum { VARIANT_N = 4 };

/* cases.c */
typedef struct op_shape {
    atom_op op;
    int64_t dim[KRN_DIM_MAX + 1]; /* the last one: 1 with krn_step.starts */
} op_shape;
const op_shape *op_shapes(size_t *n);
/* Sizes of real models, where a sum, a grid or a chunk is long: for a card, few and not for all ops. */
const op_shape *op_shapes_real(size_t *n);
/* The product of a shape's dimensions. */
int64_t op_work(const int64_t dim[KRN_DIM_MAX]);
/* Fills KRN_BUF_MAX places in the order of kernels.h. */
void op_places(const op_case *c, bool backward, place places[KRN_BUF_MAX]);
/* Scalars of a case: eps, p, flags, rng. Buffers are not set. */
krn_args op_args(const op_case *c);
krn_step op_step(const op_case *c);
/* "linear 33x67x129 v1" */
const char *op_case_name(const op_case *c, char *text, size_t bytes);

/* limits.c: largest allowed error of a tensor; < 0 where the table has no row (a failure). */
double op_limit(atom_op op, place_group group, atom_dtype dtype);
/* The same on a card, where sums over many terms are the matrix library's. */
double op_limit_on_card(const op_case *c, place_group group, atom_dtype dtype, bool added);

/* run.c: kernels called between guards. All data is bytes of the table's dtypes. */
typedef struct tensors {
    void *at[KRN_BUF_MAX]; /* NULL where there is nothing */
    size_t bytes[KRN_BUF_MAX];
} tensors;
void tensors_free(tensors *t);
atom_dtype place_dtype(place_kind kind, atom_dtype act);
/* Random content for every place that is there; places with `from` copy from `forward`. */
tensors tensors_fill(const op_case *c, bool backward, atom_dtype act, const tensors *forward);
/* The same numbers in another act dtype (rounded once where it narrows). */
tensors tensors_convert(const op_case *c, bool backward, const tensors *from, atom_dtype from_act,
                        atom_dtype to_act);
/*
 * Calls the kernel on copies of `given`: every buffer between guards, what is only written filled
 * with `garbage`, the workspace too. Returns what the buffers hold afterwards. *broken becomes a
 * message if a guard or a read-only buffer changed.
 */
tensors run_kernel(const krn_table *table, const op_case *c, bool backward, const tensors *given,
                   uint32_t threads, uint8_t garbage, const char **broken);
double tensor_get(atom_dtype dtype, const void *x, int64_t i);
void tensor_put(atom_dtype dtype, void *x, int64_t i, double value);
void run_close(void); /* the thread pools */

/* check.c. Failures are counted, and printed unless quiet. */
typedef struct report {
    const char *backend;
    atom_dtype dtype;
    bool quiet;
    bool no_pool; /* the table uses no threads: skip the runs that differ in them alone */
    bool brief;   /* large shapes with one variant each, and not on 2 threads: where it is slow */
    bool card;    /* limits of a card */
    bool real;    /* op_shapes_real, one variant each; ops without any are skipped */
    size_t shapes_max; /* per op; 0: all */
    int64_t work_max;  /* skip shapes whose dimensions multiply to more; 0: none */
    uint32_t checked, failed, missing;
    double worst[ATOM_OP_N][2][GROUP_N]; /* largest error seen */
} report;
void report_fail(report *r, const op_case *c, bool backward, const char *fmt, ...)
    ATOM_PRINTF(4, 5);
/* table against `spec`, whose dtype is the same, or F64. Both directions of one case. */
void check_case(report *r, const krn_table *table, const krn_table *spec, const op_case *c);
/* All shapes and variants of one op. */
void check_op(report *r, const krn_table *table, const krn_table *spec, atom_op op);

/* naive.c: forward formulas, written without a look at ref. F64. */
const krn_table *naive_table(void);
/* slope.c: backward of an F64 table against finite differences of the naive forward. */
#define SLOPE_LIMIT 2e-8 /* f64 sums of a thousand terms, divided by a step of 5e-4 */
void check_slopes(report *r, const krn_table *table, const op_case *c);

/* host.c: AdamW, round, sumsq bit for bit. Counts failures into r. */
void check_host(report *r, const krn_host_table *table);
/* muon.c: Muon of that table. */
void check_muon(report *r, const krn_host_table *table);
void check_round_sumsq(report *r, const krn_table *table);
/* ortho.c: the table's ortho against ref, bit for bit; shapes of more than work_max elements are
 * skipped. And, for any size: as the middle of Muon, against the CPU backend's in one piece. */
void check_ortho(report *r, const krn_table *table);
void check_ortho_parts(report *r, const krn_table *table, int64_t rows, int64_t cols);

/* canary.c: wrong kernels must be caught. Returns how many were not. */
uint32_t check_canaries(void);

#endif
