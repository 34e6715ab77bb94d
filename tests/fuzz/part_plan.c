/* part_plan_parse on any bytes: refuses with words, or reads a plan that writes back; the checker
 * looks at all of them, and whatever it accepts covers its graph. */
#include "atom/base/assert.h"
#include "atom/base/mem.h"
#include "atom/graph/models.h"
#include "partition/json.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The graph of the seeds. */
static graph *small_graph(void)
{
    static const graph_config config = {.name = "tiny",
                                        .vocab_size = 97,
                                        .positions = 16,
                                        .width = 24,
                                        .layers = 3,
                                        .heads = 2,
                                        .inner = 96,
                                        .epsilon = 1e-5f,
                                        .init_std = 0.02f};
    graph *plain = NULL, *fused = NULL;
    ATOM_ASSERT(graph_gpt2_build(&config, ATOM_F32, 2, 8, &plain) == ATOM_OK);
    ATOM_ASSERT(graph_fuse(plain, &fused) == ATOM_OK);
    graph_close(&plain);
    return fused;
}

static void look_at(const part_plan *plan)
{
    char *text = NULL, *again = NULL;
    part_plan *back = NULL;
    graph *g = small_graph();
    ATOM_ASSERT(part_plan_json(plan, &text) == ATOM_OK);
    ATOM_ASSERT(part_plan_parse("again", text, strlen(text), &back) == ATOM_OK);
    ATOM_ASSERT(part_plan_json(back, &again) == ATOM_OK && strcmp(text, again) == 0);
    if (part_plan_check(plan, g) == ATOM_OK) {
        ATOM_ASSERT(plan->sub_models[0].first_node == 0);
        ATOM_ASSERT(plan->sub_models[plan->n_sub_models - 1].last_node == (int32_t)g->n_nodes);
    } else {
        ATOM_ASSERT(atom_fail_message()[0] != '\0');
    }
    atom_free(text);
    atom_free(again);
    part_plan_close(&back);
    graph_close(&g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    part_plan *plan = NULL;
    if (part_plan_parse("fuzz", (const char *)data, size, &plan) == ATOM_OK)
        look_at(plan);
    else
        ATOM_ASSERT(!plan && strncmp(atom_fail_message(), "fuzz", 4) == 0);
    part_plan_close(&plan);
    ATOM_ASSERT(atom_mem_read().live_blocks == 0);
    return 0;
}
