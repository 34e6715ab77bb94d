/*
 * LoRA and DoRA as a rewrite: which nodes and parameters there are, what has a gradient, the text form, what
 * is refused; and what a lowered plan then holds: state and gradients for the trained alone.
 */
#include "atom/base/mem.h"
#include "atom/graph/models.h"
#include "codegen/lower.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static graph *llama(void)
{
    graph_config c;
    graph *g = NULL;
    graph_family_defaults(GRAPH_LLAMA, &c);
    c.vocab_size = 50;
    c.positions = 32;
    c.width = 24;
    c.layers = 2;
    c.heads = 4;
    c.kv_heads = 2;
    c.head_dim = 10;
    c.inner = 36;
    strcpy(c.name, "small");
    assert_int_equal(graph_model_build(&c, ATOM_F32, 2, 8, &g), ATOM_OK);
    return g;
}

static int32_t param_of(const graph *g, const char *name)
{
    for (uint32_t p = 0; p < g->n_params; p++)
        if (strcmp(g->params[p].name, name) == 0)
            return (int32_t)p;
    return GRAPH_NONE;
}

static const graph_tensor *tensor_of(const graph *g, const char *name)
{
    for (uint32_t t = 0; t < g->n_tensors; t++)
        if (strcmp(g->tensors[t].name, name) == 0)
            return &g->tensors[t];
    fail_msg("no tensor %s", name);
    return NULL;
}

/* v of layer 0 and down of layer 1. */
static graph *adapted_as(const graph *g, float dropout, bool dora)
{
    graph_target targets[2] = {
        {"layers.0.self_attn.v_proj", param_of(g, "layers.0.self_attn.qkv_proj.weight"), 60, 20, 0,
         0},
        {"layers.1.mlp.down_proj", param_of(g, "layers.1.mlp.down_proj.weight"), 0, 24, 0, 0}};
    graph_lora_config c = {.rank = 4, .scale = 2, .dropout = dropout, .dora = dora};
    graph *out = NULL, *fused = NULL;
    assert_int_equal(graph_lora(g, &c, targets, 2, &out), ATOM_OK);
    assert_int_equal(graph_fuse(out, &fused), ATOM_OK);
    graph_close(&out);
    return fused;
}

static graph *adapted(const graph *g, float dropout)
{
    return adapted_as(g, dropout, false);
}

static void rewrites(void **state)
{
    (void)state;
    graph *g = llama(), *l = adapted(g, 0.1f), *back = NULL;
    int32_t a = param_of(l, "layers.0.self_attn.v_proj.lora_A.weight");
    int32_t b = param_of(l, "layers.0.self_attn.v_proj.lora_B.weight");
    assert_true(a >= 0 && b >= 0);
    const graph_param *A = &l->params[a], *B = &l->params[b];
    assert_true(A->dims[0] == 4 && A->dims[1] == 24 && B->dims[0] == 20 && B->dims[1] == 4);
    assert_true(!A->frozen && !B->frozen && A->offset == 0 && B->offset == 128);
    assert_int_equal(l->trained_elements, 4 * 24 + 20 * 4 + 4 * 36 + 24 * 4);
    assert_int_equal(l->trained_extent, 128 + 128 + 256 + 128);
    assert_int_equal(l->param_elements, g->param_elements + l->trained_elements);
    /* the frozen ones lie behind, in the order and with the gaps of the model without adapters */
    for (uint32_t p = 0; p < g->n_params; p++) {
        int32_t id = param_of(l, g->params[p].name);
        assert_true(id >= 0 && l->params[id].frozen);
        assert_int_equal(l->params[id].offset, g->params[p].offset + l->trained_extent);
    }
    /* nothing in front of the first adapter has a gradient; frozen products keep no input */
    assert_false(tensor_of(l, "embed")->needs_grad);
    assert_false(tensor_of(l, "layers.0.self_attn.qkv_proj")->needs_grad);
    assert_true(tensor_of(l, "layers.0.self_attn.v_proj.lora_B")->needs_grad);
    assert_true(tensor_of(l, "layers.0.self_attn.qkv_proj.lora_dropout")->kept);
    assert_false(tensor_of(l, "layers.0.self_attn")->kept == false); /* attention's own output */
    assert_false(tensor_of(l, "layers.0.post_attention_layernorm")->kept);
    /* the text form */
    char *text = NULL;
    assert_int_equal(graph_print(l, &text), ATOM_OK);
    assert_non_null(strstr(text, "frozen=1"));
    assert_int_equal(graph_parse(text, strlen(text), &back), ATOM_OK);
    assert_int_equal(graph_hash(back), graph_hash(l));
    assert_int_equal(back->trained_extent, l->trained_extent);
    atom_free(text);
    graph_close(&back);
    graph_close(&l);
    graph_close(&g);
}

static const graph_node *node_of(const graph *g, const char *name)
{
    return &g->nodes[tensor_of(g, name)->producer];
}

/* One magnitude per row, the norm of which is a constant; with dropout, what is scaled is the product of
 * the dropped x, and the whole x's stays. */
static void rewrites_dora(void **state)
{
    (void)state;
    graph *g = llama();
    for (int dropped = 0; dropped < 2; dropped++) {
        graph *l = adapted_as(g, dropped ? 0.1f : 0, true), *back = NULL;
        int32_t a = param_of(l, "layers.0.self_attn.v_proj.lora_A.weight");
        int32_t m = param_of(l, "layers.0.self_attn.v_proj.lora_magnitude_vector");
        const graph_node *dora = node_of(l, "layers.0.self_attn.v_proj.lora_magnitude_vector");
        const graph_node *norm = node_of(l, "layers.0.self_attn.v_proj.lora_norm");
        const graph_node *up = node_of(l, "layers.0.self_attn.v_proj.lora_B");
        assert_true(a >= 0 && m >= 0);
        assert_true(l->params[m].rank == 1 && l->params[m].dims[0] == 20 && !l->params[m].decay);
        assert_true(!l->params[m].frozen && !l->params[a].frozen && !l->params[a].shared);
        assert_int_equal(dora->params[0], m);
        assert_true(dora->first == 60 && norm->first == 60 && norm->scale == up->scale);
        assert_int_equal(dora->in[0], up->out[0]);
        assert_int_equal(dora->in[1], norm->out[0]);
        assert_false(graph_node_backward(l, l->tensors[norm->out[0]].producer));
        assert_false(l->tensors[norm->out[0]].needs_grad);
        assert_true(l->tensors[norm->out[0]].kept);
        const graph_node *from = &l->nodes[l->tensors[up->in[0]].producer];
        const char *product = "layers.0.self_attn.qkv_proj.lora_dropped";
        assert_string_equal(from->name, dropped ? product : "layers.0.self_attn.qkv_proj");
        if (dropped) {
            const graph_node *less = node_of(l, "layers.0.self_attn.qkv_proj.lora_less");
            assert_true(less->in[0] == from->out[0] && less->scale == -1);
        }
        char *text = NULL;
        assert_int_equal(graph_print(l, &text), ATOM_OK);
        assert_int_equal(graph_parse(text, strlen(text), &back), ATOM_OK);
        assert_int_equal(graph_hash(back), graph_hash(l));
        atom_free(text);
        graph_close(&back);
        graph_close(&l);
    }
    graph_close(&g);
}

static void refuses(void **state)
{
    (void)state;
    graph *g = llama(), *l = NULL;
    graph_target t = {
        "layers.0.input_layernorm", param_of(g, "layers.0.input_layernorm.weight"), 0, 24, 0, 0};
    graph_lora_config c = {.rank = 4, .scale = 1};
    assert_int_equal(graph_lora(g, &c, &t, 1, &l), ATOM_E_USAGE);
    assert_non_null(strstr(atom_fail_message(), "layers.0.input_layernorm"));
    assert_int_equal(graph_lora(g, &c, &t, 0, &l), ATOM_E_USAGE);
    t = (graph_target){"q", param_of(g, "layers.0.self_attn.qkv_proj.weight"), 0, 40, 0, 0};
    c.rank = 0;
    assert_int_equal(graph_lora(g, &c, &t, 1, &l), ATOM_E_USAGE);
    c.rank = 25;
    assert_int_equal(graph_lora(g, &c, &t, 1, &l), ATOM_E_USAGE);
    c.rank = 4;
    t.rows = 81;
    assert_int_equal(graph_lora(g, &c, &t, 1, &l), ATOM_E_USAGE);
    assert_null(l);
    graph_close(&g);
}

static uint64_t region_of(const gen_lowered *low, const char *name)
{
    for (uint32_t i = 0; i < low->n_regions; i++)
        if (strcmp(low->regions[i].name, name) == 0)
            return low->regions[i].bytes;
    return 0;
}

static void holds_state_for_the_trained_alone(void **state)
{
    (void)state;
    graph *g = llama(), *l = adapted(g, 0);
    part_device device = {.name = "a card",
                          .isa = "none",
                          .cores = 8,
                          .device_bytes = 1ull << 34,
                          .host_bytes = 1ull << 40,
                          .flops_fp32 = 1e12,
                          .flops_bf16 = 1e12,
                          .device_bytes_per_second = 1e12,
                          .h2d_bytes_per_second = 1e10,
                          .d2h_bytes_per_second = 1e10,
                          .h2d_both_bytes_per_second = 1e10,
                          .d2h_both_bytes_per_second = 1e10,
                          .host_bytes_per_second = 1e11,
                          .adamw_params_per_second = 1e10};
    part_profile *profile = NULL;
    part_plan *plan = NULL;
    gen_lowered *low = NULL;
    assert_int_equal(part_profile_model(l, &device, &profile), ATOM_OK);
    assert_int_equal(part_plan_open(l, profile, 1, &plan), ATOM_OK);
    plan->micro_batches = 2;
    plan->clip = true;
    plan->sub_models[0].last_node = (int32_t)l->n_nodes;
    plan->sub_models[0].param_bytes = l->param_extent * 4;
    assert_int_equal(gen_lower(l, plan, profile, NULL, &low), ATOM_OK);
    assert_int_equal(region_of(low, "wire copy"), l->param_extent * 4);
    assert_int_equal(region_of(low, "master weights"), l->trained_extent * 4);
    assert_int_equal(region_of(low, "Adam m"), l->trained_extent * 4);
    assert_int_equal(region_of(low, "Adam v"), l->trained_extent * 4);
    assert_int_equal(region_of(low, "gradients (fp32)"), l->trained_extent * 4);
    assert_int_equal(region_of(low, "shared gradients (fp32)"), 0);
    assert_int_equal(region_of(low, "spill ring"), l->trained_extent * 4);
    assert_int_equal(region_of(low, "late gradients"), 0);
    assert_int_equal(low->n_params, 4);
    gen_lowered_close(&low);
    part_plan_close(&plan);
    part_profile_close(&profile);
    graph_close(&l);
    graph_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rewrites),
        cmocka_unit_test(rewrites_dora),
        cmocka_unit_test(refuses),
        cmocka_unit_test(holds_state_for_the_trained_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
