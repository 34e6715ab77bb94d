/*
 * What the files of the .pt2 reader share. Not for other folders.
 *
 * The exported graph is run through once, node by node, on values that stand for tensors. A tensor
 * of numbers that are known (positions, masks, tables of angles) is computed. One that depends on
 * the tokens is a view (sizes and strides, as in PyTorch) of a base: the rows [B,T,W] that some
 * node of our graph makes. Views cost nothing; where an operator of ours needs whole rows, the view
 * must be them. Products wait until somebody reads them, so that q, k and v, or gate and up, become
 * one.
 *
 * Ownership: pt2_eval owns all values, constants and pieces. Errors: pt2.h.
 */
#ifndef ATOM_FILE_PT2_INNER_H
#define ATOM_FILE_PT2_INNER_H

#include "atom/file/pt2.h"
#include "atom/file/zip.h"

#include <jansson.h>

enum { PT2_RANK_MAX = 8, PT2_SAMPLES_MAX = 32 };
/* Numbers in one constant, and in all together. */
#define PT2_CONST_MAX ((int64_t)1 << 26)
#define PT2_CONSTS_MAX ((int64_t)1 << 28)

/* --- the archive (pt2_read.c) ----------------------------------------------------------------- */

/* PyTorch's numbers of types. */
enum {
    PT2_I64 = 5,
    PT2_F16 = 6,
    PT2_F32 = 7,
    PT2_F64 = 8,
    PT2_C64 = 10,
    PT2_C128 = 11,
    PT2_BOOL = 12,
    PT2_BF16 = 13
};

typedef struct pt2_tensor {
    const char *name;  /* in state_dict; of a constant, its own */
    const char *value; /* what the exported graph calls it; NULL: it does not read it */
    const file_zip_entry *entry;
    int dtype;
    uint32_t rank;
    int64_t dims[PT2_RANK_MAX];
    int64_t elements;
    int32_t first; /* the first tensor of the same entry: itself, unless tied */
    bool parameter, persistent, frozen; /* frozen: without requires_grad */
} pt2_tensor;

typedef struct pt2_archive {
    file_zip *zip;
    json_t *model, *weights, *constants;
    const json_t *graph, *signature; /* in model */
    pt2_tensor *tensors;
    uint32_t n_tensors;
} pt2_archive;

ATOM_MUST atom_status pt2_archive_open(const char *path, pt2_archive **out);
void pt2_archive_close(pt2_archive **a);
bool pt2_is_complex(int dtype);
/* `n` numbers of a tensor from `first` on; a complex one is two. */
ATOM_MUST atom_status pt2_tensor_read(const pt2_archive *a, const pt2_tensor *t, int64_t first,
                                      int64_t n, double *out);
/* --- what shares numbers (pt2_alias.c) ---------------------------------------------------------- */

/* "aten.masked_fill_.Scalar" changes what it takes, whoever reads its result. */
bool pt2_in_place(const json_t *node);
/* The name of the node's first argument; NULL: that is no tensor. */
const char *pt2_self(const json_t *node);
/* An object: for each name that is a view of another, whose numbers it shows. json_decref it. */
ATOM_MUST atom_status pt2_roots(const pt2_archive *a, json_t **out);
/* That name, or this one itself. */
const char *pt2_root(const json_t *roots, const char *name);
/* pt2_buffers.c: those of the state_dict, for g, which has its table of parameters. */
ATOM_MUST atom_status pt2_keep_buffers(const pt2_archive *a, graph *g);
/* A size in either spelling: a number, or a symbol with a hint. */
bool pt2_size_of(const json_t *size, int64_t *out);

/* --- views (pt2_view.c) ----------------------------------------------------------------------- */

/* Element i of a dimension is at (i / rep) * stride + (i % rep) * inner: two axes may have become one
 * although they do not follow each other (batch and heads), or each element stands rep times (inner 0). */
typedef struct pt2_view {
    int rank;
    int64_t size[PT2_RANK_MAX], stride[PT2_RANK_MAX], rep[PT2_RANK_MAX], inner[PT2_RANK_MAX];
    int64_t offset;
} pt2_view;

int64_t pt2_view_elements(const pt2_view *v);
/* Sizes with the -1 filled in; false where they do not have so many elements. */
bool pt2_sizes_complete(int64_t elements, int rank, const int64_t *sizes, int64_t *out);
/* False where the sizes are impossible or too large. */
bool pt2_view_packed(int rank, const int64_t *sizes, pt2_view *out);
/* False where that would have to move numbers, or the sizes do not fit. One of them may be -1. */
bool pt2_view_reshape(const pt2_view *v, int rank, const int64_t *sizes, pt2_view *out);
bool pt2_view_expand(const pt2_view *v, int rank, const int64_t *sizes, pt2_view *out);
void pt2_view_swap(pt2_view *v, int a, int b);
bool pt2_view_slice(pt2_view *v, int dim, int64_t start, int64_t end, int64_t step);
bool pt2_view_insert(pt2_view *v, int dim); /* a dimension of size 1 */
void pt2_view_remove(pt2_view *v, int dim);
/* Steps through all elements in order; at[] begins as zeros. False behind the last. */
bool pt2_view_next(const pt2_view *v, int64_t at[PT2_RANK_MAX]);
int64_t pt2_view_place(const pt2_view *v, const int64_t at[PT2_RANK_MAX]);
/* How far element i of a dimension is from its first. */
int64_t pt2_view_step(const pt2_view *v, int dim, int64_t i);
/* The same elements in the same order? */
bool pt2_view_same(const pt2_view *a, const pt2_view *b);
/* Has one element in both? Of views of one base; true also where there is no memory to look. */
bool pt2_views_overlap(const pt2_view *a, const pt2_view *b);
/* -1 is the last; -1 is returned where it is none of `rank`. */
int pt2_dim(int64_t dim, int rank);

/* --- values ----------------------------------------------------------------------------------- */

typedef enum pt2_kind {
    PT2_INT,     /* a whole number: number */
    PT2_TOKENS,  /* the tokens [B,T] */
    PT2_TARGETS, /* the targets [B,T] */
    PT2_CONST,   /* known numbers: a view of consts[base] */
    PT2_PARAM,   /* a view of the parameter tensors[base] */
    PT2_PLACES,  /* rows 0 .. T-1 of the parameter tensors[base], for every sequence of the batch */
    PT2_ACT,     /* a view of bases[base] */
    PT2_TURN,    /* as ACT, but each column of the last dimension(s) is a sum of up to two: turn */
    /* Of the ACT `a`: */
    PT2_SQUARE,  /* a^2 */
    PT2_MEAN,    /* mean(a^2) */
    PT2_MEANEPS, /* mean(a^2) + eps */
    PT2_ROOT,    /* sqrt of that */
    PT2_RSTD,    /* 1 / sqrt of that */
    PT2_NORMED,  /* a times that */
    PT2_SIGMOID,
    PT2_MAP,    /* op of the ACT `a`, until it is known whether it gates something, or is squared */
    PT2_CUBIC,  /* GELU's tanh form as far as it was written out: step */
    PT2_TANH,   /* tanh(scale a), to be multiplied by 1 / scale: a soft cap */
    PT2_FLIP,   /* the TURN `a` with its last two axes exchanged */
    PT2_SCORES, /* of q = a and k = b: scale q k', then capped, masked, softmax, dropout */
    PT2_LOSS    /* the mean loss of the logits a */
} pt2_kind;

/* Column i is sum over j < 2 of coef[(2 i + j) S + s] x[src[2 i + j]] at the s-th sampled place. */
typedef struct pt2_turn {
    int64_t n;
    int64_t *src; /* column within the row of the base, of head 0; -1: no such term */
    double *coef;
} pt2_turn;

typedef struct pt2_value {
    pt2_kind kind;
    pt2_view v;
    int32_t base;
    int64_t number;
    uint32_t
        copy; /* ACT: of which clone of the base; 0: the base. What is changed in place is only that one */
    const struct pt2_value *a, *b;
    pt2_turn *turn;
    double eps, scale;
    /* 0: none. SCORES: below 0 between tanh and its factor. ACT: the logits, capped; only a loss
     * reads them. */
    double cap;
    float p;
    bool masked, soft;
    /* CONST, ACT, TURN: the last axis, of 2, is real and imaginary parts, and hidden. */
    bool complex;
    atom_op op; /* MAP, and the node that made it */
    const json_t *node;
    int step;     /* CUBIC */
    int32_t norm; /* ACT, TURN: each head was normalised with this parameter and eps; or -1 */
} pt2_value;

/* Rows row, row + step, ... of a tensor as the product's [out, in]. */
typedef struct pt2_piece {
    int32_t tensor;
    bool transposed;
    int64_t row, step, rows;
} pt2_piece;

typedef struct pt2_base {
    atom_op op; /* linear or embed where it waits */
    int32_t x;  /* tensor id in our graph */
    pt2_piece w, b;
    bool has_b;
    int64_t width;
    int32_t tensor; /* id in our graph, or GRAPH_NONE: it waits */
    const json_t *node;
} pt2_base;

typedef struct pt2_const {
    double *data;
    int64_t n;
} pt2_const;

/* A parameter of ours and the pieces it is made of. */
typedef struct pt2_made {
    pt2_piece *pieces;
    uint32_t n;
    int32_t param;
} pt2_made;

typedef struct pt2_eval {
    const pt2_archive *archive;
    const char *path;
    const json_t *node; /* the one that is evaluated */
    graph *g;
    int64_t B, T, positions;
    int32_t tokens, targets;
    json_t *names; /* value name -> index */
    pt2_value **values;
    pt2_base *bases;
    pt2_const *consts;
    pt2_made *made;
    size_t n_values, values_room, n_bases, bases_room, n_consts, consts_room, n_made, made_room;
    int64_t const_numbers;
    int64_t samples[PT2_SAMPLES_MAX]; /* places in the sequence at which rotations are looked at */
    int n_samples;
    uint32_t n_copies; /* clones so far */
} pt2_eval;

/* --- evaluation (pt2_eval.c) ------------------------------------------------------------------ */

/* The whole graph -> the sealed graph, with its table of stored tensors. */
ATOM_MUST atom_status pt2_evaluate(const pt2_archive *a, graph **out, int64_t *positions);

/* pt2_value.c */
/* ATOM_E_UNSUPPORTED: "file: aten.tril.default, at model.py:12 (x = x.tril()): " and the reason. */
ATOM_MUST atom_status pt2_refuse(const pt2_eval *e, const char *fmt, ...) ATOM_PRINTF(2, 3);
/* ATOM_E_UNSUPPORTED where v is no rows that an operator of ours can read: what it is instead. */
ATOM_MUST atom_status pt2_refuse_rows(const pt2_eval *e, const pt2_value *v);
/* A fresh value, zero but for norm; NULL for want of memory. */
pt2_value *pt2_value_new(pt2_eval *e);
ATOM_MUST atom_status pt2_value_copy(pt2_eval *e, const pt2_value *v, pt2_value **out);
/* Gives a value the name that later nodes call it by. */
ATOM_MUST atom_status pt2_name(pt2_eval *e, const char *name, const pt2_value *v);
/* Names the node's i-th result. */
ATOM_MUST atom_status pt2_result(pt2_eval *e, size_t i, pt2_value *v);

/* The present node changes `name` in place, which is no activation: refused where a name of `later` shows it, too. */
ATOM_MUST atom_status pt2_check_shared(pt2_eval *e, const char *name, const json_t *later);
ATOM_MUST atom_status pt2_refuse_shared(const pt2_eval *e, const char *name, const char *other);

/* Arguments of the present node by name (pt2_args.c); NULL or the fallback where they are absent or
 * None. */
const json_t *pt2_arg(const pt2_eval *e, const char *name);
const pt2_value *pt2_tensor_arg(const pt2_eval *e, const char *name);
int64_t pt2_int_arg(const pt2_eval *e, const char *name, int64_t fallback);
double pt2_real_arg(const pt2_eval *e, const char *name, double fallback);
bool pt2_bool_arg(const pt2_eval *e, const char *name, bool fallback);
const char *pt2_text_arg(const pt2_eval *e, const char *name, const char *fallback);
/* Whole numbers; -1 where it is not a list of at most `room`. */
int pt2_ints_arg(const pt2_eval *e, const char *name, int64_t *out, int room);
/* The value of a name; NULL if there is none. */
const pt2_value *pt2_named(const pt2_eval *e, const char *name);
/* The i-th of a list of tensors. */
const pt2_value *pt2_list_arg(const pt2_eval *e, const char *name, size_t i);
/* A plain number where a tensor may stand, too. */
bool pt2_number_arg(const pt2_eval *e, const char *name, double *out);

/* --- operators: each handles the present node ------------------------------------------------- */

typedef atom_status (*pt2_op_fn)(pt2_eval *e);
typedef struct pt2_op {
    const char *target;
    pt2_op_fn run;
} pt2_op;
/* Ending in a row of NULLs: views (pt2_shape.c), known numbers (pt2_const.c), arithmetic
 * (pt2_math.c), layers (pt2_layer.c), attention (pt2_attention.c), activations (pt2_gate.c),
 * complex numbers (pt2_complex.c), masks (pt2_mask.c). */
extern const pt2_op pt2_shape_ops[], pt2_const_ops[], pt2_math_ops[], pt2_layer_ops[],
    pt2_attention_ops[], pt2_gate_ops[], pt2_complex_ops[], pt2_mask_ops[];

/* pt2_const.c */
/* A fresh constant of that shape; its numbers at *data. */
ATOM_MUST atom_status pt2_const_new(pt2_eval *e, int rank, const int64_t *sizes, pt2_value **out,
                                    double **data);
double pt2_const_at(const pt2_eval *e, const pt2_value *v, const int64_t at[PT2_RANK_MAX]);
/* The same numbers, packed. */
ATOM_MUST atom_status pt2_const_pack(pt2_eval *e, const pt2_value *v, pt2_value **out);

ATOM_MUST atom_status pt2_const_number(pt2_eval *e, double x, pt2_value **out);
/* The present node, of known numbers. */
ATOM_MUST atom_status pt2_const_unary(pt2_eval *e, const pt2_value *x);
ATOM_MUST atom_status pt2_const_binary(pt2_eval *e, const pt2_value *a, const pt2_value *b);
ATOM_MUST atom_status pt2_const_cat(pt2_eval *e, const pt2_value *const *parts, size_t n, int dim);
ATOM_MUST atom_status pt2_const_matmul(pt2_eval *e, const pt2_value *a, const pt2_value *b);
ATOM_MUST atom_status pt2_const_choose(pt2_eval *e, const pt2_value *mask, const pt2_value *yes,
                                       const pt2_value *no);

/* pt2_layer.c: what patterns of arithmetic end in. */
ATOM_MUST atom_status pt2_norm_weight(pt2_eval *e, const pt2_value *normed,
                                      const pt2_value *weight);
ATOM_MUST atom_status pt2_residual(pt2_eval *e, const pt2_value *a, const pt2_value *b);
ATOM_MUST atom_status pt2_add_places(pt2_eval *e, const pt2_value *x, const pt2_value *places);

/* pt2_gate.c: functions of one number. Each waits as a MAP: the present node's result. */
ATOM_MUST atom_status pt2_map(pt2_eval *e, atom_op op, double scale, const pt2_value *x);
/* Now, whatever follows: the rows of a MAP. */
ATOM_MUST atom_status pt2_map_now(pt2_eval *e, const pt2_value *map, pt2_value **out);
/* A MAP of that name becomes rows of its own under the same name. */
ATOM_MUST atom_status pt2_settle_one(pt2_eval *e, const char *name);
/* All that the present node reads, but where a pattern goes on from there. */
ATOM_MUST atom_status pt2_settle(pt2_eval *e);
/* map * other */
ATOM_MUST atom_status pt2_map_times(pt2_eval *e, const pt2_value *map, const pt2_value *other);
/* One more step of GELU's tanh form: a CUBIC or its beginning with a number or the ACT itself.
 * False where it is none. */
bool pt2_cubic_goes_on(const pt2_value *v, char how, double number);
ATOM_MUST atom_status pt2_cubic_step(pt2_eval *e, const pt2_value *v);
/* Scores or a soft cap times a number. */
ATOM_MUST atom_status pt2_scale_scores(pt2_eval *e, const pt2_value *s, double by);
ATOM_MUST atom_status pt2_cap(pt2_eval *e, const pt2_value *tanh, double by);

/* pt2_attention.c: added: to be added to the scores; else true where they are hidden. */
ATOM_MUST atom_status pt2_mask_scores(pt2_eval *e, const pt2_value *scores, const pt2_value *mask,
                                      bool added);

/* q k', and that (masked, softmax) times v. */
ATOM_MUST atom_status pt2_scores(pt2_eval *e, const pt2_value *q, const pt2_value *kt);
ATOM_MUST atom_status pt2_attend(pt2_eval *e, const pt2_value *scores, const pt2_value *v);

/* pt2_complex.c: refuses the present node where it takes complex numbers and does not know of them. */
ATOM_MUST atom_status pt2_check_complex(const pt2_eval *e);

/* pt2_turn.c: sums of columns. */
ATOM_MUST atom_status pt2_turn_of(pt2_eval *e, const pt2_value *v, pt2_value **out);
ATOM_MUST atom_status pt2_turn_scale(pt2_eval *e, const pt2_value *v, const pt2_value *by,
                                     pt2_value **out);
/* Complex activations times a table of complex numbers. */
ATOM_MUST atom_status pt2_turn_complex(pt2_eval *e, const pt2_value *v, const pt2_value *by,
                                       pt2_value **out);
ATOM_MUST atom_status pt2_turn_add(pt2_eval *e, const pt2_value *a, const pt2_value *b, double sign,
                                   pt2_value **out);
ATOM_MUST atom_status pt2_turn_cat(pt2_eval *e, const pt2_value *const *parts, size_t n,
                                   bool stacked, pt2_value **out);
/* What attention needs to know of q or k: rows of which base, and how they are turned. */
typedef struct pt2_heads {
    int32_t base, norm;
    double eps;
    int64_t heads, dim, first, step; /* first column of head 0, columns from head to head */
    int64_t group;                   /* each head stands for this many */
    double factor;                   /* what all of it is multiplied by */
    bool turned, pairs;              /* pairs: (2i, 2i+1) turn together, else (i, i + D/2) */
    atom_rope rope;
} pt2_heads;
ATOM_MUST atom_status pt2_heads_of(pt2_eval *e, const pt2_value *v, pt2_heads *h);

/* pt2_emit.c */
/* [B,T,W] whole, and its id in our graph; emits what waits. */
ATOM_MUST atom_status pt2_force(pt2_eval *e, const pt2_value *v, int32_t *id);
/* Is v columns [first, first + n) of its base's rows, each row once, in whatever order? */
bool pt2_columns(const pt2_eval *e, const pt2_value *v, int64_t *first, int64_t *n);
/* The axes in front of the last, of width numbers a row, counted in rows: which row comes where. */
pt2_view pt2_front(const pt2_view *v, int64_t width);
/* Do two that have columns have the same row at the same place? */
bool pt2_same_rows(const pt2_eval *e, const pt2_value *a, const pt2_value *b);
/* Emits a base that waits. */
ATOM_MUST atom_status pt2_emit_base(pt2_eval *e, int32_t base);
/* A parameter of these pieces, rank 1 or 2, with `cols` in rank 2. */
ATOM_MUST atom_status pt2_param(pt2_eval *e, const pt2_piece *pieces, uint32_t n, int rank,
                                int64_t cols, graph_init init, int32_t *id);
/* Adds a node named after the present one, and a base for what it makes, of shape `like` but for
 * the last dimension. */
ATOM_MUST atom_status pt2_node(pt2_eval *e, graph_node *node, int32_t *base);
/* The same, with a name that has `tail` behind it. */
ATOM_MUST atom_status pt2_node_part(pt2_eval *e, graph_node *node, const char *tail, int32_t *base);
ATOM_MUST atom_status pt2_base_new(pt2_eval *e, const pt2_base *base, int32_t *id);
/* A value that is all of a base, as [.., W] with rows where `front` has them. */
ATOM_MUST atom_status pt2_whole(pt2_eval *e, int32_t base, pt2_view front, pt2_value **out);
/* The present node's result: all of a base, with rows where the value `like` has them. */
ATOM_MUST atom_status pt2_whole_result(pt2_eval *e, int32_t base, const pt2_value *like);
/* One linear of runs of columns of waiting products: each run is `n` columns of `base`. */
typedef struct pt2_run {
    int32_t base;
    int64_t first, step, n;
} pt2_run;
ATOM_MUST atom_status pt2_join(pt2_eval *e, const pt2_run *runs, uint32_t n, int32_t *id);
/* The table of stored tensors; complains of unused parameters. */
ATOM_MUST atom_status pt2_store_names(pt2_eval *e);

#endif
