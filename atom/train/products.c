/*
 * Owns Muon's products for steps that are made outside. One idea: one matrix up, multiplied and down
 * again on one stream, so nothing has to wait for anything else. Refuses to hold more than one matrix.
 */
#include "atom/train/products.h"

#include "atom/base/assert.h"
#include "atom/base/mem.h"

#include <string.h>

struct train_products {
    dev *device;
    dev_stream *stream;
    const krn_table *table;
    uint64_t bytes, device_bytes;
    void *staged; /* pinned, bytes */
    char *place;  /* on the device: X, and behind it what the products need */
    uint64_t space;
    int64_t rows, cols; /* of the one that is made */
};

typedef struct most {
    uint64_t x, space;
} most;

static most most_of(const graph *g)
{
    most m = {0};
    for (uint32_t p = 0; p < g->n_params; p++) {
        int64_t rows[GRAPH_MATRICES_MAX], cols = g->params[p].dims[1];
        uint32_t n = graph_matrices(g, (int32_t)p, rows);
        for (uint32_t i = 0; i < n; i++) {
            uint64_t x = atom_align((uint64_t)(rows[i] * cols) * sizeof(float));
            uint64_t space = krn_ortho_space(rows[i], cols);
            m.x = x > m.x ? x : m.x;
            m.space = space > m.space ? space : m.space;
        }
    }
    return m;
}

uint64_t train_products_bytes(const graph *g)
{
    most m = most_of(g);
    return m.x + m.space;
}

atom_status train_products_open(const graph *g, dev **device, const krn_table *table,
                                train_products **out)
{
    most m = most_of(g);
    atom_status st;
    void *place = NULL;
    train_products *p = atom_alloc(1, sizeof *p);
    if (!p) {
        dev_close(device);
        return atom_fail_memory("Muon's products", sizeof *p);
    }
    p->device = *device;
    *device = NULL;
    p->table = table;
    p->bytes = p->space = m.x;
    ATOM_TRY_CLEAN(p->device->ops->stream_open(p->device, DEV_COMPUTE, "muon", &p->stream));
    ATOM_TRY_CLEAN(p->device->ops->alloc(p->device, m.x + m.space, &place));
    p->place = place;
    p->device_bytes = m.x + m.space;
    ATOM_TRY_CLEAN(p->device->ops->host_alloc(p->device, m.x, &p->staged));
    *out = p;
    return ATOM_OK;
cleanup:
    train_products_close(&p);
    return st;
}

void train_products_close(train_products **products)
{
    train_products *p = *products;
    if (!p)
        return;
    const dev_ops *ops = p->device->ops;
    if (p->staged)
        ops->host_free(p->device, p->staged, p->bytes);
    if (p->place)
        ops->free(p->device, p->place, p->device_bytes);
    if (p->stream)
        ops->stream_close(p->device, p->stream);
    dev_close(&p->device);
    atom_free(p);
    *products = NULL;
}

static void multiply(krn_ctx *cx, void *arg)
{
    train_products *p = arg;
    p->table->ortho(cx, p->place, p->rows, p->cols, p->place + p->space);
}

atom_status train_products_make(train_products *p, float *x, int64_t rows, int64_t cols)
{
    const dev_ops *ops = p->device->ops;
    const uint64_t bytes = (uint64_t)(rows * cols) * sizeof *x;
    ATOM_ASSERT(bytes <= p->bytes);
    p->rows = rows;
    p->cols = cols;
    memcpy(p->staged, x, bytes);
    ATOM_TRY(ops->copy(p->device, p->stream, p->place, p->staged, bytes, (dev_cost){0}));
    ATOM_TRY(ops->launch(p->device, p->stream, multiply, p, (dev_cost){0}));
    ATOM_TRY(ops->copy(p->device, p->stream, p->staged, p->place, bytes, (dev_cost){0}));
    ATOM_TRY(ops->stream_sync(p->device, p->stream));
    memcpy(x, p->staged, bytes);
    return ATOM_OK;
}
