/*
 * The tape: one training or evaluation step as a linear list of instructions on named streams
 * (docs/design/engine.md#the-tape).
 *
 * A tape means what its sequential execution does. Every instruction says which bytes of which
 * space it reads and writes. From that swap_tape_link() derives the few waits between streams that
 * are needed so that concurrent execution has the same result as the sequential one, and
 * swap_hazard_check() proves it again by another method. So the author of a tape has to think about
 * buffers, but not about synchronisation.
 *
 * A tape may be for several devices (docs/design/engine.md#several-devices). Each has its own arena
 * and streams; there is only one host slab, one optimizer and one disk, which belong to device 0.
 * SWAP_DEVICE always means the arena of the instruction's own device: from one device to another
 * everything goes through the slab.
 */
#ifndef SWAP_TAPE_H
#define SWAP_TAPE_H

#include "kernels/device.h"
#include "swap/calls.h"

typedef enum swap_space {
    SWAP_DEVICE, /* offsets into the arena of the instruction's device */
    SWAP_HOST,   /* offsets into the pinned host slab */
    SWAP_DISK,   /* offsets into a generation of the optimizer's state (disk.h) */
    SWAP_SPACE_N
} swap_space;

typedef struct swap_range {
    swap_space space;
    uint64_t offset, bytes;
} swap_range;

typedef enum swap_code {
    SWAP_UPLOAD,  /* h2d: tokens and targets of a micro-batch */
    SWAP_FETCH,   /* h2d: parameters of a sub-model */
    SWAP_FWD,     /* compute: list FWD or KEEP of (sub_model, micro_batch) */
    SWAP_BWD,     /* compute: [list KEEP, then] list BWD */
    SWAP_LATE,    /* compute: list LATE */
    SWAP_STASH,   /* d2h: a boundary, kept set or gradient of a boundary */
    SWAP_UNSTASH, /* h2d: the same, back */
    SWAP_CLEAR,   /* compute: dst becomes zero: f32 accumulators that another device left full */
    SWAP_HAND,    /* d2h: f32 accumulators on their way to the next device */
    SWAP_TAKE,    /* h2d: the same, there */
    SWAP_ROUND,   /* compute: f32 accumulators to wire dtype, once, with the partial sums of squares
                     of what was rounded; leaves the accumulators zero for the next visit */
    SWAP_SPILL,   /* d2h: rounded gradient to the wire copy's place on the host */
    SWAP_LOSS,    /* d2h: losses (and norms) to the host */
    SWAP_CLIP,    /* host: combine norms, decide the clip factor; fails when not finite */
    SWAP_UPDATE,  /* host: AdamW over a range of elements, or Muon where they are matrices, which
                     are whole in it; or compute: AdamW, where the state is on the device:
                     gradients in base GRAD (wire dtype), parameters go to base PARAM */
    /* Where the device makes Muon's products, matrices pass through these before their UPDATE, which
     * then only ends what was begun (krn_muon_begin_fn). */
    SWAP_BEGIN, /* host: of the matrices in a range momentum moves, and X takes the gradient's place */
    SWAP_RAISE,  /* h2d: X of one matrix */
    SWAP_ORTHO,  /* compute: the products, on X in src, with scratch in dst */
    SWAP_LOWER,  /* d2h: X, back to where it came from */
    SWAP_LOAD,   /* load: a block of master, m, v from disk to a slot of the ring */
    SWAP_STORE,  /* store: the same, back, as the next generation */
    SWAP_COMMIT, /* store: from now on a killed run goes back to that generation */
    SWAP_CODE_N
} swap_code;
const char *swap_code_name(swap_code code); /* "FETCH", ... */

/* A lane is one stream of one device: device 0 has all kinds, the others their own. */
enum {
    SWAP_DEVICES_MAX = 8,
    SWAP_LANES_MAX = DEV_STREAM_N + (SWAP_DEVICES_MAX - 1) * DEV_OWN_STREAMS,
    SWAP_RANGES_MAX = 12
};
static inline uint32_t swap_lane(uint32_t device, dev_stream_kind stream)
{
    uint32_t others = device ? DEV_STREAM_N + (device - 1) * DEV_OWN_STREAMS : 0;
    return others + (uint32_t)stream;
}
static inline uint32_t swap_lanes(uint32_t n_devices)
{
    return DEV_STREAM_N + (n_devices - 1) * DEV_OWN_STREAMS;
}

typedef struct swap_instr {
    swap_code code;
    dev_stream_kind stream;
    int32_t sub_model;   /* -1: none */
    int32_t micro_batch; /* -1: all or none */
    uint8_t device;      /* whose stream it is; not 0 only on a stream that each device has */
    uint8_t lists;       /* FWD/BWD/LATE: bit l set = run list l, in ascending order of l */
    uint8_t train;       /* FWD: dropout is on */
    uint8_t ahead;       /* UPDATE: of the step that runs, as if it were not clipped */
    uint8_t begun;       /* UPDATE: BEGIN and ORTHO did the rest of what Muon does */
    swap_range *base;    /* [SWAP_BASE_N]: where each base is, bytes 0: unused; NULL but for FWD, BWD,
                            LATE, and UPDATE on a device */
    /* copies: dst <- src, bytes of src. ROUND: dst and norms <- src (f32) of params
     * [first_param, last_param) of the canonical order. UPDATE: elements [first_element,
     * last_element), which belong to those params; their state is in src (a slot of the ring, or
     * on the device), or, where src is empty, in the slab's own vectors. BEGIN: the same elements.
     * ORTHO: elements [first_element, last_element) are one matrix of first_param */
    swap_range src, dst, norms;
    int32_t first_param, last_param;
    uint64_t first_element, last_element;
    uint8_t n_reads, n_writes, n_waits;
    swap_range *reads, *writes;
    uint32_t *waits; /* earlier instructions on other lanes, by index; [n_waits] */
    dev_cost cost;   /* predicted, running alone */
} swap_instr;

/* Room for what an instruction reads and writes until it is added to a tape, which has its own. */
typedef struct swap_accesses {
    swap_range reads[SWAP_RANGES_MAX], writes[SWAP_RANGES_MAX];
} swap_accesses;

/* One named region of memory, for the memory map. Regions of one space do not overlap. */
typedef struct swap_region {
    char name[32]; /* "parameter ring", "gradients", "boundaries", ... */
    swap_space space;
    uint64_t offset, bytes;
} swap_region;

typedef enum swap_tape_kind {
    SWAP_TAPE_FIRST, /* a training step with nothing to update before it */
    SWAP_TAPE_TRAIN, /* a training step that starts with the updates of the step before */
    SWAP_TAPE_DRAIN, /* only the pending updates */
    SWAP_TAPE_EVAL,  /* forward only, of n_micro_batches */
    /* With clipping, and the state on disk: some updates run right after their backward, as if the
     * step were not clipped, into a generation that is not committed yet. If CLIP then says that
     * the step is clipped, they are void: the wire copy is made again from the masters, and FIRST
     * runs the step again. Otherwise the rest of its updates is pending, and only these tapes may
     * follow. */
    SWAP_TAPE_AHEAD, /* such a step with nothing to update before it */
    SWAP_TAPE_AGAIN, /* such a step that starts with the rest of the one before, and the commit */
    SWAP_TAPE_REST,  /* only the rest, and the commit */
    /* Where nothing is trained: an evaluation after another one, of the same weights. What that left in
     * its slot is not fetched again. */
    SWAP_TAPE_EVAL_NEXT,
    SWAP_TAPE_N
} swap_tape_kind;

static inline bool swap_tape_is_ahead(swap_tape_kind kind)
{
    return kind >= SWAP_TAPE_AHEAD && kind <= SWAP_TAPE_REST;
}

typedef struct swap_chunk swap_chunk;

typedef struct swap_tape {
    swap_tape_kind kind;
    uint32_t n, n_micro_batches, n_devices;
    size_t room;
    swap_instr *instrs;
    swap_chunk *chunks;                /* what the instructions point to */
    uint64_t device_bytes, host_bytes; /* sizes of each arena and of the slab */
    uint64_t disk_bytes;               /* of a generation; 0: there is no disk tier */
} swap_tape;

ATOM_MUST atom_status swap_tape_open(swap_tape_kind kind, uint32_t n_micro_batches,
                                     uint32_t n_devices, swap_tape **out);
void swap_tape_close(swap_tape **tape);
/* Appends a copy of *instr and of all that it points to. It waits for nothing yet. */
ATOM_MUST atom_status swap_tape_add(swap_tape *tape, const swap_instr *instr);
/* For an instruction that is not on a tape yet, whose `reads` and `writes` are those of a swap_accesses: notes one more
 * range there. */
void swap_instr_reads(swap_instr *instr, swap_range range);
void swap_instr_writes(swap_instr *instr, swap_range range);
/* Makes instruction i wait for those n, in place of what it waited for. */
ATOM_MUST atom_status swap_tape_wait(swap_tape *tape, uint32_t i, const uint32_t *waits,
                                     uint32_t n);

/* stream_waits.c: fills in `waits` of every instruction from the ranges (vector clocks; redundant
 * waits are left out). */
ATOM_MUST atom_status swap_tape_link(swap_tape *tape);

/* One line per instruction, for people. Free with atom_free. */
ATOM_MUST atom_status swap_tape_print(const swap_tape *tape, char **text);

/*
 * hazard.c: independent proof that for every two instructions with conflicting ranges (same bytes,
 * at least one writes) the earlier one happens before the later one by stream order and waits, that
 * no range leaves its space, and that each instruction is on a stream of its device.
 * ATOM_E_RUNTIME with both instructions named.
 */
ATOM_MUST atom_status swap_hazard_check(const swap_tape *tape);

#endif
