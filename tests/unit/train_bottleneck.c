/* Bottlenecks on boundaries: where they stand in every family, what their weights are called, that
 * all else stays as it was, what config.json says of them, and what is refused. */
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

/* The nodes from `at` are the pair after so many blocks. */
static void check_pair(const graph *c, uint32_t at, int after)
{
    const graph_node *down = &c->nodes[at], *up = &c->nodes[at + 1];
    const graph_param *a = &c->params[down->params[0]], *b = &c->params[up->params[0]];
    int64_t C = c->tensors[down->in[0]].dims[2];
    int32_t crosses;
    char name[64];
    snprintf(name, sizeof name, "boundary.%d.down", after);
    assert_string_equal(down->name, name);
    snprintf(name, sizeof name, "boundary.%d.up.weight", after);
    assert_string_equal(b->name, name);
    assert_int_equal(down->op, ATOM_OP_linear);
    assert_int_equal(up->op, ATOM_OP_linear);
    assert_int_equal(down->n_params + up->n_params, 2);
    assert_int_equal(up->in[0], down->out[0]);
    assert_int_equal(a->dims[0] * 1000 + a->dims[1], 3 * 1000 + C);
    assert_int_equal(b->dims[0] * 1000 + b->dims[1], C * 1000 + 3);
    assert_true(a->init == GRAPH_INIT_NORMAL && b->init == GRAPH_INIT_NORMAL);
    assert_true(a->init_std * a->init_std * (float)C > 0.999f && b->init_std > a->init_std);
    assert_int_equal(graph_boundary(c, (int32_t)at + 1, &crosses, 1), 1);
    assert_int_equal(crosses, down->out[0]);
}

static void stand_between_blocks(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 96; seed++) {
        graph_config config = config_of(seed);
        graph *g = build(&config), *c;
        config.bottlenecks = both;
        c = build(&config);
        uint32_t pairs = 0, at = 0;
        for (uint32_t i = 0; i < c->n_nodes; i++) {
            if (strncmp(c->nodes[i].name, "boundary.", 9) == 0) {
                check_pair(c, i++, both.after[pairs++]);
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
static void first_weights(void **state)
{
    graph_config config = config_of(1);
    graph *g = build(&config), *c;
    (void)state;
    config.bottlenecks = both;
    c = build(&config);
    float *plain = atom_alloc(g->param_extent, sizeof *plain);
    float *with = atom_alloc(c->param_extent, sizeof *with);
    train_init_weights(g, 5, plain);
    train_init_weights(c, 5, with);
    const float *pairs[4];
    uint32_t narrow = 0, at = 0;
    for (uint32_t i = 0; i < c->n_params; i++) {
        const graph_param *p = &c->params[i];
        if (graph_is_bottleneck(p)) {
            pairs[narrow++] = with + p->offset;
            continue;
        }
        assert_string_equal(p->name, g->params[at].name);
        assert_memory_equal(with + p->offset, plain + g->params[at].offset,
                            p->elements * sizeof *with);
        at++;
    }
    assert_int_equal(narrow, 4);
    assert_true(pairs[0][0] != 0 && pairs[0][0] != pairs[2][0]);
    atom_free(plain);
    atom_free(with);
    graph_close(&g);
    graph_close(&c);
}

/* Somebody's own model says in a table what its tensors are called. */
static void own_names(void **state)
{
    graph_config config = config_of(1);
    graph *g = build(&config), *c = NULL;
    graph_stored rows[256];
    (void)state;
    for (uint32_t i = 0; i < g->n_params; i++) {
        const graph_param *p = &g->params[i];
        rows[i] =
            (graph_stored){.rank = p->rank, .param = (int32_t)i, .step = 1, .rows = p->dims[0]};
        memcpy(rows[i].dims, p->dims, sizeof p->dims);
        snprintf(rows[i].name, sizeof rows[i].name, "net.%s", p->name);
    }
    assert_int_equal(graph_set_stored(g, rows, g->n_params), ATOM_OK);
    assert_int_equal(graph_bottleneck(g, &both, &c), ATOM_OK);
    assert_int_equal(c->n_stored, g->n_params + 4);
    for (uint32_t i = 0; i < c->n_stored; i++) {
        const graph_stored *s = &c->stored[i];
        const char *end = strncmp(s->name, "net.", 4) == 0 ? s->name + 4 : s->name;
        assert_string_equal(end, c->params[s->param].name);
        assert_memory_equal(s->dims, c->params[s->param].dims, sizeof s->dims);
    }
    graph_close(&g);
    graph_close(&c);
}

/* config.json of every family says it, and of all of them nothing that others would load. */
static void configs(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 48; seed++) {
        graph_config config = config_of(seed), again;
        char *text = NULL, *plain = NULL;
        config.bottlenecks = both;
        assert_int_equal(file_config_text(&config, NULL, -1, &text), ATOM_OK);
        assert_non_null(strstr(text, "\"model_type\": \"atom_bottlenecks\""));
        assert_non_null(strstr(text, "\"AtomBottlenecksForCausalLM\""));
        assert_null(strstr(text, graph_family_traits(config.family)->class_name));
        assert_int_equal(file_config_parse("c.json", text, strlen(text), &again), ATOM_OK);
        assert_int_equal(again.family, config.family);
        assert_int_equal(again.bottlenecks.n, 2);
        assert_int_equal(again.bottlenecks.width, 3);
        assert_int_equal(again.bottlenecks.after[1], 3);
        again.bottlenecks.n = 0;
        assert_int_equal(file_config_text(&again, text, -1, &plain), ATOM_OK);
        assert_null(strstr(plain, "ottleneck"));
        atom_free(text);
        atom_free(plain);
    }
}

static void bad_configs(void **state)
{
    static const struct {
        const char *type, *object, *says;
    } bad[] = {
        {"gpt2", "{\"model_type\":\"gpt2\",\"after_blocks\":[1],\"width\":3}", "goes with"},
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
         "after 1 to 1 of the 2 blocks"},
        {"atom_bottlenecks", "{\"model_type\":\"gpt2\",\"after_blocks\":[1,1],\"width\":3}",
         "ascending"}};
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
    (void)state;
    assert_int_equal(graph_bottleneck(g, &wide, &c), ATOM_E_USAGE);
    assert_non_null(strstr(atom_fail_message(), "cross the boundary after 2 blocks"));
    assert_int_equal(graph_bottleneck(g, &late, &c), ATOM_E_USAGE);
    assert_non_null(strstr(atom_fail_message(), "it has 4"));
    assert_null(c);
    graph_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(stand_between_blocks),
                                       cmocka_unit_test(first_weights),
                                       cmocka_unit_test(own_names),
                                       cmocka_unit_test(configs),
                                       cmocka_unit_test(bad_configs),
                                       cmocka_unit_test(refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
