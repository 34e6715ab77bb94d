/*
 * Owns the way of parameters through the device during generation. One idea: the streamed parts
 * form one endless sequence, token after token; visit k uses slot k % 2, and its copy waits only
 * for the end of visit k - 2, so the copies of the next token begin while this one is sampled.
 * Refuses more than two slots: with two the link or the kernels never wait for anything else.
 */
#include "atom/generate/decode_inner.h"

#include "atom/base/mem.h"

#include <string.h>

static const dev_cost FREE = {0};

/* Copies the parameters that stay. */
static atom_status load_residents(generate_decoder *d)
{
    dev *device = d->c.device;
    for (uint32_t i = 0; i < d->n_parts; i++) {
        decode_part *part = &d->parts[i];
        char *at = d->arena + d->resident_at[i];
        if (part->streamed)
            continue;
        part->at = at;
        if (part->elements == 0)
            continue;
        const char *from = (const char *)d->c.params + decode_bytes(d, part->offset);
        ATOM_TRY(device->ops->copy(device, d->swap.h2d, at, from, decode_bytes(d, part->elements),
                                   FREE));
    }
    return device->ops->stream_sync(device, d->swap.h2d);
}

static atom_status list_streamed(generate_decoder *d)
{
    decode_swap *s = &d->swap;
    s->order = atom_alloc(d->n_parts, sizeof *s->order);
    if (!s->order)
        return atom_fail_memory("the order of visits", d->n_parts * sizeof *s->order);
    for (uint32_t i = 0; i < d->n_parts; i++) {
        if (d->parts[i].streamed)
            s->order[s->n_order++] = i;
    }
    return ATOM_OK;
}

/* The rows of a pass lie one after the other, so its tokens are always 0, 1, ... */
static atom_status number_tokens(generate_decoder *d)
{
    int32_t *numbers = (int32_t *)(void *)d->swap.rows;
    dev *device = d->c.device;
    for (int64_t i = 0; i < d->chunk; i++)
        numbers[i] = (int32_t)i;
    ATOM_TRY(device->ops->copy(device, d->swap.h2d, d->arena + d->tokens_at, numbers,
                               (uint64_t)d->chunk * sizeof *numbers, FREE));
    return device->ops->stream_sync(device, d->swap.h2d);
}

static uint64_t rows_bytes(const generate_decoder *d)
{
    return decode_bytes(d, (uint64_t)(d->chunk * d->C));
}

atom_status decode_swap_open(generate_decoder *d)
{
    decode_swap *s = &d->swap;
    dev *device = d->c.device;
    void *rows = NULL, *logits = NULL;
    ATOM_TRY(device->ops->stream_open(device, DEV_COMPUTE, "compute", &s->compute));
    ATOM_TRY(device->ops->stream_open(device, DEV_H2D, "fetch", &s->h2d));
    for (int i = 0; i < 2; i++) {
        s->slot[i] = d->arena + d->slot_at[i];
        ATOM_TRY(device->ops->event_open(device, &s->filled[i]));
        ATOM_TRY(device->ops->event_open(device, &s->freed[i]));
    }
    ATOM_TRY(device->ops->host_alloc(device, 2 * rows_bytes(d), &rows));
    s->rows = rows;
    ATOM_TRY(device->ops->host_alloc(device, (uint64_t)d->V * sizeof(float), &logits));
    s->logits = logits;
    ATOM_TRY(number_tokens(d));
    ATOM_TRY(list_streamed(d));
    return load_residents(d);
}

void decode_swap_close(generate_decoder *d)
{
    decode_swap *s = &d->swap;
    dev *device = d->c.device;
    if (s->compute)
        device->ops->stream_close(device, s->compute);
    if (s->h2d)
        device->ops->stream_close(device, s->h2d);
    for (int i = 0; i < 2; i++) {
        device->ops->event_close(device, s->filled[i]);
        device->ops->event_close(device, s->freed[i]);
    }
    device->ops->host_free(device, s->rows, 2 * rows_bytes(d));
    device->ops->host_free(device, s->logits, (uint64_t)d->V * sizeof(float));
    atom_free(s->order);
}

/* Issues the copy of the next visit. The visit before last must have been issued. */
static atom_status fetch_next(generate_decoder *d)
{
    decode_swap *s = &d->swap;
    dev *device = d->c.device;
    int slot = (int)(s->fetched % 2);
    const decode_part *part = &d->parts[s->order[s->fetched % s->n_order]];
    const char *from = (const char *)d->c.params + decode_bytes(d, part->offset);
    if (s->fetched >= 2)
        ATOM_TRY(device->ops->wait(device, s->h2d, s->freed[slot]));
    ATOM_TRY(device->ops->copy(device, s->h2d, s->slot[slot], from, decode_bytes(d, part->elements),
                               FREE));
    ATOM_TRY(device->ops->record(device, s->h2d, s->filled[slot]));
    s->fetched++;
    return ATOM_OK;
}

static void launch(krn_ctx *cx, void *arg)
{
    decode_run(cx, arg);
}

static atom_status visit(generate_decoder *d, decode_part *part)
{
    decode_swap *s = &d->swap;
    dev *device = d->c.device;
    int slot = (int)(s->used % 2);
    if (!part->streamed)
        return device->ops->launch(device, s->compute, launch, part, FREE);
    if (s->fetched == s->used)
        ATOM_TRY(fetch_next(d));
    part->at = s->slot[slot];
    ATOM_TRY(device->ops->wait(device, s->compute, s->filled[slot]));
    ATOM_TRY(device->ops->launch(device, s->compute, launch, part, FREE));
    ATOM_TRY(device->ops->record(device, s->compute, s->freed[slot]));
    s->used++;
    while (s->fetched < s->used + 2)
        ATOM_TRY(fetch_next(d));
    return ATOM_OK;
}

/* The rows of wte and wpe that this pass needs, one after the other, and their token numbers. */
static atom_status upload_rows(generate_decoder *d, const int32_t *tokens)
{
    const graph_node *nd = &d->c.g->nodes[d->embed];
    const graph_param *wte = &d->c.g->params[nd->params[0]];
    const graph_param *wpe = nd->n_params == 2 ? &d->c.g->params[nd->params[1]] : NULL;
    const char *params = d->c.params;
    char *rows = d->swap.rows, *places = rows + rows_bytes(d);
    char *to = d->arena + d->token_rows_at;
    uint64_t row = decode_bytes(d, (uint64_t)d->C), n = (uint64_t)d->n;
    dev *device = d->c.device;
    for (uint64_t i = 0; i < n; i++)
        memcpy(rows + i * row, params + decode_bytes(d, wte->offset) + (uint64_t)tokens[i] * row,
               row);
    ATOM_TRY(device->ops->copy(device, d->swap.compute, to, rows, n * row, FREE));
    if (!wpe)
        return ATOM_OK;
    memcpy(places, params + decode_bytes(d, wpe->offset) + (uint64_t)d->past * row, n * row);
    return device->ops->copy(device, d->swap.compute, to + rows_bytes(d), places, n * row, FREE);
}

atom_status decode_swap_pass(generate_decoder *d, const int32_t *tokens)
{
    dev *device = d->c.device;
    ATOM_TRY(upload_rows(d, tokens));
    for (uint32_t i = 0; i < d->n_parts; i++)
        ATOM_TRY(visit(d, &d->parts[i]));
    ATOM_TRY(device->ops->copy(device, d->swap.compute, d->swap.logits, d->arena + d->logits_at,
                               (uint64_t)d->V * sizeof(float), FREE));
    return device->ops->stream_sync(device, d->swap.compute);
}
