/* Bottlenecks on boundaries, of both kinds: where they stand in every family, what their weights are
 * called, that exactly the narrow values cross, that all else stays as it was, what config.json says
 * of them, and what is refused. */
#include "atom/base/mem.h"
#include "atom/file/hfdir.h"
#include "atom/train/init.h"
#include "tests/lib/random_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const graph_bottlenecks both = {.n = 2, .width = 3, .after = {1, 3}};
enum { LINEAR, MAXOUT, KINDS };

/* Windows of maxout do not overlap: the widest that it can leave of C. */
static graph_bottlenecks of_kind(int kind, int64_t C)
{
    graph_bottlenecks b = both;
    b.maxout = kind == MAXOUT;
    if (b.maxout)
        for (b.width = C / 2; C % b.width != 0;)
            b.width--;
    return b;
}

static graph_config config_of(uint64_t seed)
{
    graph_config c = random_model_make(seed).config;
    c.layers = 4;
    c.window_layers = 0;
    return c;
}

static graph *build(const graph_config *c)
{
    graph *g = NULL;
    if (graph_model_build(c, ATOM_BF16, 1, 1, &g) != ATOM_OK)
        fail_msg("%s", atom_fail_message());
    return g;
}

/* What the node from `at` on is called, which op it is, and that it reads what the last one made. */
static const graph_node *check_node(const graph *c, uint32_t at, int after, const char *part,
                                    atom_op op)
{
    const graph_node *node = &c->nodes[at];
    char name[64];
    snprintf(name, sizeof name, "boundary.%d.%s", after, part);
    assert_string_equal(node->name, name);
    assert_int_equal(node->op, op);
    assert_int_equal(node->in[0], c->nodes[at - 1].out[0]);
    return node;
}

static const graph_param *check_param(const graph *c, int32_t id, int after, const char *part,
                                      int64_t rows, int64_t columns)
{
    const graph_param *p = &c->params[id];
    char name[64];
    snprintf(name, sizeof name, "boundary.%d.%s", after, part);
    assert_string_equal(p->name, name);
    assert_int_equal(p->rank, columns ? 2 : 1);
    assert_int_equal(p->dims[0], rows);
    if (columns)
        assert_int_equal(p->dims[1], columns);
    assert_true(graph_is_bottleneck(p));
    return p;
}

/* Where the model is cut in front of node `at`, W values per token cross, and nothing else. */
static void check_crossing(const graph *c, uint32_t at, int64_t W)
{
    int32_t crosses[2];
    assert_int_equal(graph_boundary(c, (int32_t)at, crosses, 2), 1);
    assert_int_equal(crosses[0], c->nodes[at - 1].out[0]);
    assert_int_equal(c->tensors[crosses[0]].dims[2], W);
}

/* The nodes from `at` are the pair after so many blocks. Returns how many they are. */
static uint32_t check_linear(const graph *c, uint32_t at, int after, int64_t W)
{
    int64_t C = c->tensors[c->nodes[at].in[0]].dims[2];
    const graph_node *down = check_node(c, at, after, "down", ATOM_OP_linear);
    const graph_node *up = check_node(c, at + 1, after, "up", ATOM_OP_linear);
    const graph_param *a = check_param(c, down->params[0], after, "down.weight", W, C);
    const graph_param *b = check_param(c, up->params[0], after, "up.weight", C, W);
    assert_int_equal(down->n_params + up->n_params, 2);
    assert_true(a->init == GRAPH_INIT_NORMAL && b->init == GRAPH_INIT_NORMAL);
    assert_true(a->init_std * a->init_std * (float)C > 0.999f && b->init_std > a->init_std);
    check_crossing(c, at + 1, W);
    return 2;
}

static void check_norm(const graph *c, uint32_t at, int after, const char *part, int64_t wide)
{
    const graph_node *node = check_node(c, at, after, part, ATOM_OP_layernorm);
    char name[32];
    snprintf(name, sizeof name, "%s.weight", part);
    assert_int_equal(check_param(c, node->params[0], after, name, wide, 0)->init, GRAPH_INIT_ONE);
    snprintf(name, sizeof name, "%s.bias", part);
    assert_int_equal(check_param(c, node->params[1], after, name, wide, 0)->init, GRAPH_INIT_ZERO);
    assert_true(node->eps == 1e-5f);
}

static uint32_t check_maxout(const graph *c, uint32_t at, int after, int64_t W)
{
    int64_t C = c->tensors[c->nodes[at].in[0]].dims[2];
    check_norm(c, at, after, "ln_1", C);
    const graph_node *maxout = check_node(c, at + 1, after, "maxout", ATOM_OP_maxout);
    check_norm(c, at + 2, after, "ln_2", W);
    const graph_node *up = check_node(c, at + 3, after, "up", ATOM_OP_linear);
    const graph_param *b = check_param(c, up->params[0], after, "up.weight", C, W);
    assert_int_equal(maxout->window, C / W);
    assert_int_equal(maxout->n_params, 0);
    assert_int_equal(up->n_params, 1);
    assert_int_equal(b->init, GRAPH_INIT_NORMAL);
    assert_true(b->init_std * b->init_std * (float)W > 0.999f);
    check_crossing(c, at + 3, W);
    return 4;
}

static void stand_between_blocks(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 96 * KINDS; seed++) {
        graph_config config = config_of(seed / KINDS);
        const graph_bottlenecks own = of_kind((int)(seed % KINDS), config.width);
        graph *g = build(&config), *c;
        config.bottlenecks = own;
        c = build(&config);
        uint32_t pairs = 0, at = 0;
        for (uint32_t i = 0; i < c->n_nodes; i++) {
            if (strncmp(c->nodes[i].name, "boundary.", 9) == 0) {
                int after = own.after[pairs++];
                i += (own.maxout ? check_maxout : check_linear)(c, i, after, own.width) - 1;
                continue;
            }
            assert_string_equal(c->nodes[i].name, g->nodes[at].name);
            assert_int_equal(c->nodes[i].rng, g->nodes[at].rng);
            if (c->nodes[i].n_params)
                assert_string_equal(c->params[c->nodes[i].params[0]].name,
                                    g->params[g->nodes[at].params[0]].name);
            at++;
        }
        assert_int_equal(pairs, 2);
        assert_int_equal(at, g->n_nodes);
        assert_int_equal(c->packed, g->packed);
        assert_int_equal(c->param_elements, graph_model_params(&config));
        graph_close(&g);
        graph_close(&c);
    }
}

/* With the same seed the others begin as they would alone; bottlenecks draw numbers of their own. */
static void check_first_weights(int kind)
{
    graph_config config = config_of(1);
    graph *g = build(&config), *c;
    config.bottlenecks = of_kind(kind, config.width);
    c = build(&config);
    float *plain = atom_alloc(g->param_extent, sizeof *plain);
    float *with = atom_alloc(c->param_extent, sizeof *with);
    train_init_weights(g, 5, plain);
    train_init_weights(c, 5, with);
    const float *own[10];
    uint32_t narrow = 0, at = 0;
    for (uint32_t i = 0; i < c->n_params; i++) {
        const graph_param *p = &c->params[i];
        if (graph_is_bottleneck(p)) {
            own[narrow++] = with + p->offset;
            continue;
        }
        assert_string_equal(p->name, g->params[at].name);
        assert_memory_equal(with + p->offset, plain + g->params[at].offset,
                            p->elements * sizeof *with);
        at++;
    }
    assert_int_equal(narrow, kind == MAXOUT ? 10 : 4);
    const float *last = own[narrow - 1], *before = own[narrow / 2 - 1];
    assert_true(last[0] != 0 && last[0] != before[0]);
    for (int i = 0; kind == MAXOUT && i < 4; i++)
        assert_true(own[i][0] == (i % 2 ? 0.0f : 1.0f));
    atom_free(plain);
    atom_free(with);
    graph_close(&g);
    graph_close(&c);
}

static void first_weights(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++)
        check_first_weights(kind);
}

/* Somebody's own model says in a table what its tensors are called. */
static void check_own_names(int kind)
{
    graph_config config = config_of(1);
    const graph_bottlenecks own = of_kind(kind, config.width);
    graph *g = build(&config), *c = NULL;
    graph_stored rows[256];
    for (uint32_t i = 0; i < g->n_params; i++) {
        const graph_param *p = &g->params[i];
        rows[i] =
            (graph_stored){.rank = p->rank, .param = (int32_t)i, .step = 1, .rows = p->dims[0]};
        memcpy(rows[i].dims, p->dims, sizeof p->dims);
        snprintf(rows[i].name, sizeof rows[i].name, "net.%s", p->name);
    }
    assert_int_equal(graph_set_stored(g, rows, g->n_params), ATOM_OK);
    assert_int_equal(graph_bottleneck(g, &own, &c), ATOM_OK);
    assert_int_equal(c->n_stored, g->n_params + (own.maxout ? 10 : 4));
    for (uint32_t i = 0; i < c->n_stored; i++) {
        const graph_stored *s = &c->stored[i];
        const char *end = strncmp(s->name, "net.", 4) == 0 ? s->name + 4 : s->name;
        assert_string_equal(end, c->params[s->param].name);
        assert_int_equal(s->rank, c->params[s->param].rank);
        assert_memory_equal(s->dims, c->params[s->param].dims, sizeof s->dims);
    }
    graph_close(&g);
    graph_close(&c);
}

static void own_names(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++)
        check_own_names(kind);
}

/* config.json of every family says it, and of all of them nothing that others would load. */
static void configs(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 48 * KINDS; seed++) {
        graph_config config = config_of(seed / KINDS), again;
        const graph_bottlenecks own = of_kind((int)(seed % KINDS), config.width);
        char *text = NULL, *plain = NULL;
        config.bottlenecks = own;
        assert_int_equal(file_config_text(&config, NULL, NULL, &text), ATOM_OK);
        assert_non_null(strstr(text, "\"model_type\": \"atom_bottlenecks\""));
        assert_non_null(strstr(text, "\"AtomBottlenecksForCausalLM\""));
        assert_null(strstr(text, graph_family_traits(config.family)->class_name));
        assert_int_equal(file_config_parse("c.json", text, strlen(text), &again), ATOM_OK);
        assert_int_equal(again.family, config.family);
        assert_int_equal(again.bottlenecks.n, 2);
        assert_int_equal(again.bottlenecks.width, own.width);
        assert_int_equal(again.bottlenecks.maxout, own.maxout);
        assert_int_equal(strstr(text, "\"kind\": \"maxout\"") != NULL, own.maxout);
        assert_int_equal(strstr(text, "\"kind\"") != NULL, own.maxout);
        assert_int_equal(again.bottlenecks.after[1], 3);
        again.bottlenecks.n = 0;
        assert_int_equal(file_config_text(&again, text, NULL, &plain), ATOM_OK);
        assert_null(strstr(plain, "ottleneck"));
        atom_free(text);
        atom_free(plain);
    }
}

#define W3 "{\"model_type\":\"gpt2\",\"after_blocks\":[1],\"width\":3,"

/* The kind may be said of linear layers, too; so it is in no file that we write. */
static void linear_is_said(void **state)
{
    graph_config c;
    static const char text[] =
        "{\"model_type\":\"atom_bottlenecks\",\"n_embd\":8,\"n_head\":2,\"n_layer\":2,"
        "\"atom_bottlenecks\":" W3 "\"kind\":\"linear\"}}";
    (void)state;
    assert_int_equal(file_config_parse("c.json", text, strlen(text), &c), ATOM_OK);
    assert_false(c.bottlenecks.maxout);
    assert_int_equal(c.bottlenecks.width, 3);
}

static void bad_configs(void **state)
{
    static const struct {
        const char *type, *object, *says;
    } bad[] = {
        {"gpt2", "{\"model_type\":\"gpt2\",\"after_blocks\":[1],\"width\":3}",
         "must be used together"},
        {"atom_bottlenecks", "1", "'atom_bottlenecks' is not supported"},
        {"atom_bottlenecks", "{\"after_blocks\":[1],\"width\":3}", "model_type is missing"},
        {"atom_bottlenecks", "{\"model_type\":\"gpt2\",\"width\":3}", "after_blocks"},
        {"atom_bottlenecks", "{\"model_type\":\"gpt2\",\"after_blocks\":[],\"width\":3}",
         "1 to 32"},
        {"atom_bottlenecks", "{\"model_type\":\"gpt2\",\"after_blocks\":[\"1\"],\"width\":3}",
         "whole numbers"},
        {"atom_bottlenecks", "{\"model_type\":\"gpt2\",\"after_blocks\":[1]}", "width"},
        {"atom_bottlenecks", "{\"model_type\":\"gpt2\",\"after_blocks\":[1],\"width\":8}", "below"},
        {"atom_bottlenecks", "{\"model_type\":\"gpt2\",\"after_blocks\":[2],\"width\":3}",
         "after block 1 to 1 of the 2 blocks"},
        {"atom_bottlenecks", "{\"model_type\":\"gpt2\",\"after_blocks\":[1,1],\"width\":3}",
         "ascending"},
        {"atom_bottlenecks", W3 "\"kind\":\"max\"}", "kind must be \"linear\" or \"maxout\""},
        {"atom_bottlenecks", W3 "\"kind\":\"\"}", "kind must be"},
        {"atom_bottlenecks", W3 "\"kind\":1}", "kind must be"},
        {"atom_bottlenecks", W3 "\"kind\":null}", "kind must be"},
        {"atom_bottlenecks", W3 "\"kind\":[\"maxout\"]}", "kind must be"},
        {"atom_bottlenecks", W3 "\"kind\":\"maxout\"}", "it must divide the model's own, 8"}};
    graph_config c;
    char text[512];
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(text, sizeof text,
                 "{\"model_type\":\"%s\",\"n_embd\":8,\"n_head\":2,\"n_layer\":2,"
                 "\"atom_bottlenecks\":%s}",
                 bad[i].type, bad[i].object);
        assert_true(file_config_parse("c.json", text, strlen(text), &c) != ATOM_OK);
        if (!strstr(atom_fail_message(), bad[i].says))
            fail_msg("'%s' does not say: %s", atom_fail_message(), bad[i].says);
    }
}

static void refusals(void **state)
{
    graph_config config = config_of(1);
    graph *g = build(&config), *c = NULL;
    graph_bottlenecks wide = {.n = 1, .width = config.width, .after = {2}};
    graph_bottlenecks late = {.n = 1, .width = 2, .after = {4}};
    graph_bottlenecks odd = {.n = 1, .width = config.width - 1, .maxout = true, .after = {2}};
    (void)state;
    assert_int_equal(graph_bottleneck(g, &wide, &c), ATOM_E_USAGE);
    assert_non_null(strstr(atom_fail_message(), "cross the boundary after 2 blocks"));
    assert_int_equal(graph_bottleneck(g, &late, &c), ATOM_E_USAGE);
    assert_non_null(strstr(atom_fail_message(), "it has 4"));
    assert_int_equal(graph_bottleneck(g, &odd, &c), ATOM_E_USAGE);
    assert_non_null(strstr(atom_fail_message(), "the first number must divide the second"));
    assert_null(c);
    graph_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(stand_between_blocks),
                                       cmocka_unit_test(first_weights),
                                       cmocka_unit_test(own_names),
                                       cmocka_unit_test(configs),
                                       cmocka_unit_test(linear_is_said),
                                       cmocka_unit_test(bad_configs),
                                       cmocka_unit_test(refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
