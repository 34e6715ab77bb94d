/* Any bytes as an adapter_config.json: refused, or settings whose targets are modules of a model or
 * are refused by it. */
#include "atom/base/assert.h"
#include "atom/base/mem.h"
#include "atom/file/peft.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static graph *llama(void)
{
    static graph *g;
    graph_config c;
    if (g)
        return g;
    graph_family_defaults(GRAPH_LLAMA, &c);
    c.vocab_size = 8;
    c.positions = 8;
    c.width = 8;
    c.layers = 2;
    c.heads = 2;
    c.kv_heads = 1;
    c.head_dim = 4;
    c.inner = 12;
    c.untied = true;
    strcpy(c.name, "small");
    ATOM_ASSERT(graph_model_build(&c, ATOM_F32, 1, 2, &g) == ATOM_OK);
    return g;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    file_lora lora;
    graph *g = NULL;
    if (file_lora_parse("fuzz", (const char *)data, size, &lora) != ATOM_OK)
        return 0;
    ATOM_ASSERT(lora.rank >= 1 && lora.targets && file_lora_settings(&lora).scale > 0);
    if (file_lora_graph(llama(), &lora, &g) == ATOM_OK)
        ATOM_ASSERT(g->trained_elements > 0 && g->param_elements > llama()->param_elements &&
                    g->param_elements <= llama()->param_elements + g->trained_elements);
    graph_close(&g);
    file_lora_free(&lora);
    return 0;
}
