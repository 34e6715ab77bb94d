/*
 * Where everything is: per sub-model facts and the placement of all regions in the device arena and
 * the host slab. Internal to codegen.
 *
 *   device arena                                      host slab
 *   +----------------------+                          +-------------+
 *   | parameter ring       | double-ended: even k at  | wire copy   | canonical order
 *   |                      | the bottom, odd at the   | master      |
 *   +----------------------+ top, so neighbours never | m, v        |
 *   | gradients (f32)      | collide                  | tokens      |
 *   | shared accumulators  |                          | losses      |
 *   | spill ring (wire)    | double-ended too         | norms       |
 *   | optimizer state      | updates on the device    |             |
 *   | Muon's matrices      | products on the device   |             |
 *   | kept and held sets   |                          | stashes     |
 *   | scratch activations  |                          +-------------+
 *   | boundaries, late     |
 *   | tokens, losses, norms|
 *   | workspace            |
 *   +----------------------+
 *
 * Of several devices each has such an arena, with room for its share of the micro-batches; the slab
 * then also has sums, accumulators on their way from one device to the next.
 */
#ifndef CODEGEN_LAYOUT_H
#define CODEGEN_LAYOUT_H

#include "codegen/lower.h"

/* A tensor of a boundary and where it is inside the boundary's block. */
typedef struct gen_boundary {
    uint32_t n;
    int32_t ids[GRAPH_BOUNDARY_MAX];
    uint64_t offset[GRAPH_BOUNDARY_MAX];
    uint64_t bytes;
} gen_boundary;

/* A per-micro-batch item that may live on the device (as many as its share has micro-batches) or be
 * staged through two places. */
typedef struct gen_store {
    uint64_t bytes; /* of one item; 0: there is none */
    part_place place;
    uint64_t device;       /* arena offset of the first item or of the staging ring */
    uint32_t device_items; /* of a share, or 2 for staging */
    uint64_t host;         /* slab offset of the first of C items; only with PART_ON_HOST */
    uint64_t host_stride;  /* from one to the next */
} gen_store;

typedef struct gen_extra {
    int32_t param;        /* a shared parameter that an earlier sub-model owns */
    uint64_t slot_offset; /* bytes, relative to the slot */
} gen_extra;

typedef struct gen_visit {
    int32_t first_param, last_param;     /* owned: [first, last) of the canonical order */
    int32_t first_trained, last_trained; /* those of them that are trained, counted by themselves */
    uint64_t own_offset;                 /* element offset of the first owned trained parameter */
    uint64_t own_bytes;                  /* wire bytes of their extent */
    uint64_t frozen_offset;              /* the same of the frozen ones; in the slot behind */
    uint64_t frozen_bytes;
    uint32_t n_extras;
    gen_extra *extras;               /* [n_extras] in gen_layout.extras */
    uint64_t slot_bytes;             /* own, frozen and extras */
    swap_range slot;                 /* where its parameters are during a visit */
    swap_range grads;                /* f32 accumulators of owned, unshared parameters */
    uint64_t hand;                   /* where they are on their way to device 1, in the slab */
    swap_range spill;                /* rounded gradients, laid out like the owned extent */
    uint64_t kept_bytes, act_bytes;  /* of one micro-batch */
    uint64_t held_bytes, sent_bytes; /* what is held on the device and on the host beside it */
    gen_store kept, held, sent;
    gen_boundary x, y;           /* what comes in and goes out */
    gen_store x_store, dx_store; /* boundary in front of this sub-model; bytes 0 for the first */
    bool has_late;
} gen_visit;

typedef struct gen_layout {
    const graph *g;
    const part_plan *plan;
    uint32_t wire_bytes_each; /* bytes of one wire element */
    uint32_t C;
    uint32_t D;    /* devices */
    uint32_t most; /* micro-batches of the largest share */
    uint32_t n;    /* sub-models */
    gen_visit *visits;
    gen_extra *extras;     /* of all visits, one after the other */
    uint64_t *grad_offset; /* per parameter: bytes into GRAD or SHARED; frozen ones have none */
    uint64_t shared_bytes, muon_bytes;
    swap_range shared, act, workspace, tokens, losses, norms;
    uint64_t hand_bytes; /* of a pair of neighbouring visits: gen_visit.hand of the next device */
    /* The same for shared ones: one place, since they are on one way at once. */
    uint64_t shared_hand;
    swap_range state; /* master, m, v on the device, where the plan updates there */
    /* Where the plan makes Muon's products on the device: a pair of places for the largest matrix,
     * and scratch for one. */
    uint64_t matrix_bytes;
    swap_range matrices, ortho;
    gen_store late;
    int32_t late_node; /* -1: none */
    gen_lowered *out;  /* regions and totals are recorded here */
} gen_layout;

/* layout.c: what each sub-model owns and exchanges; then, when call lists are made and the workspace
 * is known, where all of it is. */
ATOM_MUST atom_status gen_layout_fill(gen_layout *layout);
void gen_layout_place(gen_layout *layout);
/* calls.c: fills the program's lists, and kept_bytes, held_bytes, sent_bytes and act_bytes of every
 * visit; kept_bytes is without what is held and sent. */
ATOM_MUST atom_status gen_calls_build(gen_layout *layout);
/* cost.c: what an instruction takes when it runs alone; zero without a profile. */
void gen_cost_fill(const gen_layout *layout, const part_profile *profile, swap_instr *in);

/* tape.c: builds and links the tapes whose bits (1 << kind) are in kinds; where nothing is trained, those
 * of evaluations in place of any. */
ATOM_MUST atom_status gen_tapes_build(gen_layout *layout, const part_profile *profile,
                                      unsigned kinds);

/* The first micro-batch of device d's share, which ends where the next one's begins; C for d == D.
 * Where shares differ the first ones are larger: a device begins backward when the one before it has
 * ended its first visit there, so the later ones have less time. */
uint32_t gen_share(const gen_layout *layout, uint32_t d);

/* Workspace a node asks the table for. */
uint64_t gen_node_workspace(const graph *g, int32_t node, int backward, const krn_table *table);
/* Byte offset of a parameter inside the slot of sub-model k; the parameter must be used there. */
uint64_t gen_slot_offset(const gen_layout *layout, uint32_t k, int32_t param);
/* Arena range of item i of a share's, and slab range of item i of all. */
static inline swap_range gen_store_device(const gen_store *item, uint32_t i)
{
    if (item->bytes == 0)
        return (swap_range){0};
    return (swap_range){SWAP_DEVICE, item->device + (i % item->device_items) * item->bytes,
                        item->bytes};
}

static inline swap_range gen_store_host(const gen_store *item, uint32_t i)
{
    return (swap_range){SWAP_HOST, item->host + i * item->host_stride, item->bytes};
}

#endif
