/*
 * Muon's products of steps that are made outside of the trainer (train_seam.shared), on the card that
 * trains. Such a step has the whole gradient on the host and leaves the card idle, and a host takes a
 * hundred times as long for them. The trainer's plan leaves the memory free; momentum and weights
 * stay on the host, and only X crosses the link, one matrix at a time.
 *
 * The bits are the host's: docs/design/engine.md#the-optimizer.
 *
 * Thread: any, one at a time; the trainer may use the card meanwhile.
 */
#ifndef ATOM_TRAIN_PRODUCTS_H
#define ATOM_TRAIN_PRODUCTS_H

#include "atom/graph/graph.h"
#include "kernels/device.h"

typedef struct train_products train_products;

/* What the matrices of g take on the card: the largest one, and what its products need beside it. 0:
 * it has none. */
uint64_t train_products_bytes(const graph *g);

/* Takes that memory, and as much pinned memory as the largest matrix. Owns the device. On failure
 * the device is closed. table: the device's own, for fp32. */
ATOM_MUST atom_status train_products_open(const graph *g, dev **device, const krn_table *table,
                                          train_products **out);
void train_products_close(train_products **p);

/*
 * x[rows][cols] on the host holds X of krn_muon_begin_fn and receives what KRN_MUON_STEPS steps make
 * of it.
 *
 * Errors: those of the device, which is dead then.
 */
ATOM_MUST atom_status train_products_make(train_products *p, float *x, int64_t rows, int64_t cols);

#endif
