/* Any bytes as an adapter_config.json: refused, or settings whose targets are modules of a model or
 * are refused by it. */
#include "atom/base/assert.h"
#include "atom/base/mem.h"
#include "atom/file/peft.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* As the adapter needs it: with a head of its own where modules_to_save name that or the embedding. */
static graph *llama(const file_lora *lora)
{
    static graph *tied, *apart;
    graph_config c;
    graph_family_defaults(GRAPH_LLAMA, &c);
    c.vocab_size = 8;
    c.positions = 8;
    c.width = 8;
    c.layers = 2;
    c.heads = 2;
    c.kv_heads = 1;
    c.head_dim = 4;
    c.inner = 12;
    strcpy(c.name, "small");
    c.untied = false;
    if (file_lora_untie(lora, &c) != ATOM_OK)
        return NULL;
    graph **g = c.untied ? &apart : &tied;
    if (!*g)
        ATOM_ASSERT(graph_model_build(&c, ATOM_F32, 1, 2, g) == ATOM_OK);
    return *g;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    file_lora lora;
    graph *g = NULL, *base;
    if (file_lora_parse("fuzz", (const char *)data, size, &lora) != ATOM_OK)
        return 0;
    ATOM_ASSERT(lora.rank >= 1 && lora.targets && file_lora_settings(&lora).scale > 0);
    base = llama(&lora);
    if (base && file_lora_graph(base, &lora, &g) == ATOM_OK)
        ATOM_ASSERT(g->trained_elements > 0 && g->param_elements > base->param_elements &&
                    g->param_elements <= base->param_elements + g->trained_elements);
    graph_close(&g);
    file_lora_free(&lora);
    return 0;
}
