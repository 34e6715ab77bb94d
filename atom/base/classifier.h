/*
 * How a card's classifier divides its rows: f32 logits of a few rows at a time, and d logits in act for a
 * larger chunk of them. The kernel (kernels/cuda/loss.cu) takes its scratch by it, and plans for cards that
 * are only described (partition/profile.c) leave as much free. One idea: both read the same lines, so what
 * is planned cannot differ from what is taken. Plain C and C++. Thread: any.
 */
#ifndef ATOM_BASE_CLASSIFIER_H
#define ATOM_BASE_CLASSIFIER_H

#include <stdint.h>

/* Rows of f32 logits at a time: enough for large tiles (256 rows of GPT-2's make 460 TFLOP/s on an
 * H200, 512 make 700), and not so few that the product reads all of w for next to nothing: 64 rows
 * are 64 operations per byte, and cards make 75 to 300 in the time of one. Rows of d logits: enough
 * for the sums of dw, which go through memory once per chunk. */
enum {
    ATOM_CLASSIFIER_ALIGN = 64, /* a row of logits begins at a multiple of so many elements */
    ATOM_CLASSIFIER_ROWS_MIN = 128,
    ATOM_CLASSIFIER_LOGIT_ROWS_MAX = 512,
    ATOM_CLASSIFIER_LOGIT_BYTES = 104 << 20,
    ATOM_CLASSIFIER_D_ROWS_MAX = 2048,
    ATOM_CLASSIFIER_D_BYTES = 208 << 20
};

/* Sizes and places in the scratch; the matrix library's own follows at `bytes`. */
typedef struct atom_classifier {
    int64_t ld;                 /* elements from one row of logits to the next */
    int64_t logit_rows, d_rows; /* at a time; d_rows is a multiple of logit_rows, or all rows */
    uint64_t d_at, bytes;       /* of d logits, and of all */
} atom_classifier;

static inline int64_t atom_classifier_rows(int64_t bytes, int64_t row_bytes, int64_t most)
{
    int64_t rows = bytes / row_bytes / 64 * 64, least = ATOM_CLASSIFIER_ROWS_MIN;
    rows = rows < least ? least : rows;
    return rows < most ? rows : most;
}

static inline uint64_t atom_classifier_aligned(uint64_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* Of `rows` rows over `vocab` tokens; act_bytes: of an element of d logits, 0 where none are made. The last
 * two are the limits above, but tests make chunks small, to cross them. */
static inline atom_classifier atom_classifier_of(int64_t rows, int64_t vocab, int64_t act_bytes,
                                                 int64_t logit_rows_max, int64_t d_rows_max)
{
    atom_classifier c;
    c.ld = (vocab + ATOM_CLASSIFIER_ALIGN - 1) / ATOM_CLASSIFIER_ALIGN * ATOM_CLASSIFIER_ALIGN;
    c.logit_rows = atom_classifier_rows(ATOM_CLASSIFIER_LOGIT_BYTES, c.ld * 4, logit_rows_max);
    c.d_rows = c.logit_rows;
    if (act_bytes > 0) {
        int64_t most = atom_classifier_rows(ATOM_CLASSIFIER_D_BYTES, c.ld * act_bytes, d_rows_max);
        most = most / c.logit_rows * c.logit_rows;
        c.d_rows = most > c.logit_rows ? most : c.logit_rows;
    }
    c.logit_rows = c.logit_rows < rows ? c.logit_rows : rows;
    c.d_rows = c.d_rows < rows ? c.d_rows : rows;
    c.d_at = atom_classifier_aligned((uint64_t)(c.logit_rows * c.ld) * 4);
    c.bytes = c.d_at + atom_classifier_aligned((uint64_t)(c.d_rows * c.ld * act_bytes));
    return c;
}

#endif
