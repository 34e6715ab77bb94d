/*
 * Call lists: one sub-model's forward or backward for one micro-batch, as a flat list of kernels
 * with their buffers, sizes and attributes (docs/design/engine.md#generated-code). A list does not
 * know where its sub-model lives: its buffers are (base, offset) pairs, and the tape says where
 * each base is for a given visit.
 *
 * The interpreter here walks a list; codegen/emit prints it as C that does the same calls.
 */
#ifndef SWAP_CALLS_H
#define SWAP_CALLS_H

#include "kernels/kernels.h"

#include <stdbool.h>
#include <stdint.h>

/* What an offset is relative to, during one visit and micro-batch. */
typedef enum swap_base {
    SWAP_BASE_NONE = 0, /* the buffer is NULL */
    SWAP_BASE_PARAM,    /* the sub-model's parameters, wire dtype */
    SWAP_BASE_GRAD,     /* f32 gradient accumulators of the parameters it owns */
    SWAP_BASE_SHARED,   /* f32 accumulators of shared parameters (tied wte) */
    SWAP_BASE_TOKENS,   /* i32[B,T] of the micro-batch */
    SWAP_BASE_TARGETS,  /* i32[B,T] */
    SWAP_BASE_LOSS,     /* f32[B,T] */
    SWAP_BASE_X,        /* boundary tensors that come in */
    SWAP_BASE_Y,        /* boundary tensors that go out */
    SWAP_BASE_DY,       /* gradients of Y */
    SWAP_BASE_DX,       /* gradients of X */
    SWAP_BASE_KEPT,     /* what backward reads of this micro-batch's forward */
    SWAP_BASE_ACT,      /* scratch activations and their gradients */
    SWAP_BASE_LATE,     /* dX of the node whose backward comes last (embedding) */
    SWAP_BASE_HELD,     /* of what backward reads, that which forward left on the device */
    SWAP_BASE_SENT,     /* the same that went to the host and is back */
    SWAP_BASE_N
} swap_base;
const char *swap_base_name(swap_base base); /* "PARAM", ... */

typedef struct swap_ref {
    swap_base base;
    uint64_t offset; /* bytes, a multiple of 256 */
} swap_ref;

typedef struct swap_call {
    atom_op op; /* ATOM_OP_N: copy buf[0] <- buf[1], dim[0] bytes */
    uint8_t backward;
    uint8_t n_buf;
    int32_t node;  /* graph node index, for messages and profiles */
    char name[48]; /* node name */
    swap_ref buf[KRN_BUF_MAX];
    uint64_t bytes[KRN_BUF_MAX]; /* size of each buffer */
    int64_t dim[KRN_DIM_MAX];
    float eps, p;
    uint32_t flags, rng;
    atom_rope rope;
    float scale, lift, cap;
} swap_call;

typedef enum swap_list {
    SWAP_LIST_FWD,  /* forward, keeps nothing; the last sub-model ends in the loss */
    SWAP_LIST_KEEP, /* forward that fills KEPT; no terminal op, whose backward does all of it */
    SWAP_LIST_BWD,  /* backward from KEPT (the last sub-model starts with the terminal op) */
    SWAP_LIST_LATE, /* backward of late nodes, one micro-batch */
    SWAP_LIST_N
} swap_list;
const char *swap_list_name(swap_list list); /* "fwd", "keep", "bwd", "late" */

typedef struct swap_calls {
    uint32_t n;
    swap_call *calls;
} swap_calls;

/* A parameter of a sub-model, for people who read generated code. */
typedef struct swap_symbol {
    char name[64];
    int64_t dims[2];     /* dims[1] is 0 for vectors */
    uint64_t slot_bytes; /* offset relative to PARAM */
    uint64_t grad_bytes; /* offset relative to GRAD, or to SHARED if shared; SWAP_NO_GRAD */
    uint8_t shared;
} swap_symbol;
#define SWAP_NO_GRAD UINT64_MAX

typedef struct swap_sub_model {
    int32_t first_node, last_node; /* [first, last) */
    swap_calls list[SWAP_LIST_N];
    uint32_t n_symbols;
    swap_symbol *symbols; /* ascending slot_bytes */
} swap_sub_model;

typedef struct swap_program {
    uint64_t graph_hash;
    char model[64];
    atom_dtype dtype;
    uint32_t n_sub_models;
    swap_sub_model *sub_models;
    uint64_t workspace_bytes; /* largest any call needs with the table it was lowered for */
} swap_program;
void swap_program_close(swap_program **program);

/* Where the bases are right now. */
typedef struct swap_bases {
    void *at[SWAP_BASE_N];
} swap_bases;

/*
 * What generated code gets and gives (codegen/emit prints these declarations into each file).
 * A compiled list calls the same kernels with the same arguments as swap_calls_run().
 */
typedef void (*swap_compiled_fn)(krn_ctx *cx, const krn_table *table, void *const *at);
typedef struct swap_compiled {
    swap_compiled_fn list[SWAP_LIST_N]; /* NULL: interpret */
} swap_compiled;

/* Runs every call of the list in order on the calling thread (CPU) or native stream (CUDA). */
void swap_calls_run(krn_ctx *cx, const krn_table *table, const swap_calls *calls,
                    const swap_bases *bases);

#endif
