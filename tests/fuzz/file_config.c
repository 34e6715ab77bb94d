/* Any bytes as a config.json: refused, or a model that the graph accepts and that writes and reads
 * back as itself. */
#include "atom/base/assert.h"
#include "atom/base/mem.h"
#include "atom/file/hfdir.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    graph_config c = {0}, again;
    char *source = atom_strndup((const char *)data, size), *text = NULL;
    ATOM_ASSERT(source);
    if (file_config_parse("fuzz", source, size, &c) == ATOM_OK && strlen(source) == size) {
        ATOM_ASSERT(graph_model_check(&c) == ATOM_OK);
        ATOM_ASSERT(file_config_text(&c, source, &(file_ends){5, 5}, &text) == ATOM_OK);
        ATOM_ASSERT(file_config_parse("again", text, strlen(text), &again) == ATOM_OK);
        ATOM_ASSERT(strcmp(c.name, again.name) == 0 && c.vocab_size == again.vocab_size &&
                    c.positions == again.positions && c.width == again.width &&
                    c.layers == again.layers && c.heads == again.heads && c.inner == again.inner &&
                    c.epsilon == again.epsilon && c.init_std == again.init_std &&
                    c.embd_pdrop == again.embd_pdrop && c.attn_pdrop == again.attn_pdrop &&
                    c.resid_pdrop == again.resid_pdrop);
        ATOM_ASSERT(c.family == again.family && c.kv_heads == again.kv_heads &&
                    c.head_dim == again.head_dim && c.window == again.window &&
                    c.untied == again.untied && c.qkv_bias == again.qkv_bias &&
                    c.o_bias == again.o_bias && c.mlp_bias == again.mlp_bias &&
                    memcmp(&c.rope, &again.rope, sizeof c.rope) == 0 &&
                    memcmp(&c.long_rope, &again.long_rope, sizeof c.long_rope) == 0);
        const graph_bottlenecks *narrow = &c.bottlenecks, *same = &again.bottlenecks;
        ATOM_ASSERT(narrow->n == same->n && narrow->width == same->width &&
                    narrow->maxout == same->maxout &&
                    memcmp(narrow->after, same->after, narrow->n * sizeof *same->after) == 0);
        const graph_buffers *b = c.own ? c.own->buffers : NULL;
        const graph_buffers *is = again.own ? again.own->buffers : NULL;
        ATOM_ASSERT(!b == !is && (!b || b->n == is->n));
        for (uint32_t i = 0; b && i < b->n; i++)
            ATOM_ASSERT(memcmp(&b->all[i], &is->all[i], sizeof b->all[i]) == 0);
        graph_config_free(&again);
    }
    graph_config_free(&c);
    atom_free(source);
    atom_free(text);
    return 0;
}
