/*
 * The state in memory as it stood at one moment, while updates go on: copy-on-write of ranges. The
 * reader (the writer of a checkpoint) reads what no update has touched where it lies; a range that
 * is about to change before it was read is copied to spare memory first. Where that is full, the
 * update waits until the reader has passed the range or gives back a spare one. The reader never
 * waits for an update, so neither can hold the other for ever.
 *
 * Elements are counted along the canonical vector, in v too, where nothing stands for matrices: its
 * reader asks for no others. A range is `each` elements of one part, a multiple of KRN_DRAW_ALIGN where AdamW writes. Memory:
 * spare_bytes, untouched until they are needed.
 *
 * Ownership: the parts are the caller's and outlive the value. Thread: before_write(), begin() from
 * the thread that changes the state (begin: while nobody changes it); get(), release() and end()
 * from one that reads. Errors: ATOM_E_RESOURCE where there is no memory, at open() only.
 */
#ifndef SWAP_COW_H
#define SWAP_COW_H

#include "swap/disk.h"

typedef struct swap_cow swap_cow;

typedef struct swap_cow_config {
    const void *parts[SWAP_STATE_N]; /* master weights f32, moments as the next line says */
    atom_dtype moments;
    uint64_t extent;          /* elements of each part; of v, where it has fewer: */
    const swap_param *params; /* borrowed: that part has what swap_second_at() says; NULL: extent */
    uint32_t n_params;
    uint64_t each; /* elements of a range; 0: swap_cow_each(extent) */
    uint64_t spare_bytes;
} swap_cow_config;

/* 1 MiB of floats; less for small vectors, so that they have ranges too. */
uint64_t swap_cow_each(uint64_t extent);

typedef struct swap_cow_facts { /* of the newest snapshot */
    uint64_t copied_bytes;
    uint64_t spare_peak_bytes;
    double waited_seconds; /* how long updates waited for the reader */
} swap_cow_facts;

ATOM_MUST atom_status swap_cow_open(const swap_cow_config *config, swap_cow **out);
void swap_cow_close(swap_cow **cow); /* NULL-safe; no snapshot may be open */

/* From here to end() get() gives what the parts hold now. */
void swap_cow_begin(swap_cow *cow);
void swap_cow_end(swap_cow *cow);
void swap_cow_get(swap_cow *cow, swap_state part, uint64_t first, uint64_t n, float *to);
/* The reader will not ask for these again. Each element is released once. */
void swap_cow_release(swap_cow *cow, swap_state part, uint64_t first, uint64_t n);
/* The same of a whole part, whatever of it was released before. */
void swap_cow_release_all(swap_cow *cow, swap_state part);

/* How many of the n elements from `first` on may change now, in all parts: all where there is no
 * snapshot, else up to the end of a range, once it is safe. */
uint64_t swap_cow_before_write(swap_cow *cow, uint64_t first, uint64_t n);
/* All of them, in all parts, however long that takes; nothing to do where cow is NULL. */
void swap_cow_leave(swap_cow *cow, uint64_t first, uint64_t n);
/* Does an update wait for spare memory, which comes free as readers go on? */
bool swap_cow_is_short(swap_cow *cow);
swap_cow_facts swap_cow_about(swap_cow *cow);

#endif
