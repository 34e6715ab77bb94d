/*
 * Owns a decoder from opening to closing. One idea: feeding is one pass over the parts of the model
 * per chunk of new tokens, whether the parts are one (in place) or many (through the device).
 * Refuses graphs whose forward pass is not an embedding, blocks and a head without bias.
 */
#include "atom/generate/decode_inner.h"

#include "atom/base/assert.h"
#include "atom/base/mem.h"

#include <string.h>

static atom_status find_ends(generate_decoder *d)
{
    const graph *g = d->c.g;
    const krn_table *table = d->c.table;
    d->embed = 0;
    d->head = (int32_t)g->n_nodes - 1;
    if (g->micro_batch != 1 || g->nodes[0].op != ATOM_OP_embed ||
        g->nodes[d->head].op != ATOM_OP_classifier)
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "'%s' is not a language model of one sample with an embedding and a head",
                         g->name);
    for (int32_t i = 0; i < d->head; i++) {
        atom_op op = g->nodes[i].op;
        if (op != ATOM_OP_attention && (!table->fwd[op] || op == ATOM_OP_cross_entropy))
            return atom_fail(ATOM_E_UNSUPPORTED, "the %s backend cannot generate with '%s' (%s)",
                             table->backend, g->nodes[i].name, atom_op_get(op)->name);
    }
    const graph_param *wte = &g->params[g->nodes[0].params[0]];
    d->V = g->params[g->nodes[d->head].params[0]].dims[0];
    d->C = wte->dims[1];
    d->P = g->nodes[0].n_params == 2 ? g->params[g->nodes[0].params[1]].dims[0] : d->c.room;
    ATOM_ASSERT(d->c.room >= 1 && d->c.room <= d->P);
    return ATOM_OK;
}

atom_status generate_decoder_open(const generate_decoder_config *config, generate_decoder **out)
{
    void *arena = NULL;
    atom_status st;
    generate_decoder *d = atom_alloc(1, sizeof *d);
    if (!d)
        return atom_fail_memory("a decoder", sizeof *d);
    d->c = *config;
    d->chunk = config->room < GENERATE_DECODE_CHUNK ? config->room : GENERATE_DECODE_CHUNK;
    ATOM_TRY_CLEAN(find_ends(d));
    ATOM_TRY_CLEAN(decode_plan(d));
    ATOM_TRY_CLEAN(config->device->ops->alloc(config->device, d->arena_bytes, &arena));
    d->arena = arena;
    if (decode_swaps(d))
        ATOM_TRY_CLEAN(decode_swap_open(d));
    *out = d;
    return ATOM_OK;
cleanup:
    generate_decoder_close(&d);
    return st;
}

void generate_decoder_close(generate_decoder **d_ref)
{
    generate_decoder *d = *d_ref;
    if (!d)
        return;
    if (decode_swaps(d))
        decode_swap_close(d);
    d->c.device->ops->free(d->c.device, d->arena, d->arena_bytes);
    atom_free(d->tensor_at);
    atom_free(d->keys_at);
    atom_free(d->resident_at);
    atom_free(d->parts);
    atom_free(d);
    *d_ref = NULL;
}

static void pass_in_place(generate_decoder *d, const int32_t *tokens)
{
    krn_ctx cx = {.threads = d->c.threads};
    memcpy(d->arena + d->tokens_at, tokens, (size_t)d->n * sizeof *tokens);
    decode_run(&cx, &d->parts[0]);
}

atom_status generate_decoder_feed(generate_decoder *d, const int32_t *tokens, int64_t n)
{
    ATOM_ASSERT(n >= 1 && d->past + n <= d->c.room);
    for (int64_t at = 0; at < n; at += d->n) {
        d->n = n - at < d->chunk ? n - at : d->chunk;
        if (decode_swaps(d))
            ATOM_TRY(decode_swap_pass(d, tokens + at));
        else
            pass_in_place(d, tokens + at);
        d->past += d->n;
    }
    return ATOM_OK;
}

const float *generate_decoder_logits(const generate_decoder *d)
{
    const void *at = d->arena + d->logits_at;
    return decode_swaps(d) ? d->swap.logits : at;
}

int64_t generate_decoder_past(const generate_decoder *d)
{
    return d->past;
}

void generate_decoder_rewind(generate_decoder *d, int64_t past)
{
    ATOM_ASSERT(past >= 0 && past <= d->past);
    d->past = past;
}

void generate_decoder_reset(generate_decoder *d)
{
    d->past = 0;
}

generate_decoder_info generate_decoder_get_info(const generate_decoder *d)
{
    generate_decoder_info info = {.vocab = d->V,
                                  .positions = d->P,
                                  .cache_bytes = d->caches_bytes,
                                  .param_bytes = decode_bytes(d, d->c.g->param_extent),
                                  .parts = d->n_parts};
    for (uint32_t i = 0; i < d->n_parts; i++) {
        uint64_t bytes = decode_bytes(d, d->parts[i].elements);
        *(d->parts[i].streamed ? &info.streamed_bytes : &info.resident_bytes) += bytes;
    }
    return info;
}
