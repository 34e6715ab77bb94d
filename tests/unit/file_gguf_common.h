/* A random model for the tests of GGUF files, and its file. */
#ifndef TESTS_UNIT_FILE_GGUF_COMMON_H
#define TESTS_UNIT_FILE_GGUF_COMMON_H

#include "atom/base/files.h"
#include "atom/base/mem.h"
#include "atom/file/ggufmodel.h"
#include "tests/lib/random_model.h"
#include "tests/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

typedef struct fixture {
    graph_config config;
    graph *g;
    float *vector, *got;
} fixture;

static inline void fixture_open(fixture *f, uint64_t seed)
{
    f->config = random_model_make(seed).config;
    if (f->config.family == GRAPH_GPT2)
        f->config.untied = f->config.layers % 2;
    if (graph_family_traits(f->config.family)->nope)
        f->config.nope_every = 4; /* llama.cpp knows no other */
    if (f->config.window_layers)  /* nor windows of some layers */
        f->config.window = f->config.positions;
    if (graph_family_traits(f->config.family)->windows == GRAPH_WINDOW_MOST) {
        f->config.rope = (atom_rope){.theta = f->config.rope.theta, .factor = 1};
        const graph_traits *traits = graph_family_traits(f->config.family);
        const graph_config *usual = &traits->defaults;
        f->config.full_every = usual->full_every;
        f->config.local_theta =
            traits->local_rope == GRAPH_LOCAL_ROPE_SAME ? f->config.rope.theta : usual->local_theta;
        f->config.query_scalar = usual->query_scalar > 0 ? (float)f->config.head_dim : 0;
        f->config.attn_cap = usual->attn_cap;
        f->config.final_cap = usual->final_cap > 0 ? 2.5f : 0;
        f->config.untied = f->config.qkv_bias = f->config.o_bias = false;
        f->config.window = f->config.window ? f->config.window : f->config.positions;
    }
    if (strcmp(file_gguf_architecture(&f->config), "olmo2") == 0) {
        f->config.untied = true;
        f->config.qkv_bias = f->config.o_bias = false;
        if (!f->config.rope.yarn)
            f->config.rope = (atom_rope){.theta = f->config.rope.theta, .factor = 1};
    }
    assert_int_equal(graph_model_build(&f->config, ATOM_F32, 1, 1, &f->g), ATOM_OK);
    f->vector = atom_alloc(f->g->param_extent, sizeof(float));
    f->got = atom_alloc(f->g->param_extent, sizeof(float));
    assert_true(f->vector && f->got);
    for (uint32_t p = 0; p < f->g->n_params; p++) {
        for (uint64_t i = 0; i < f->g->params[p].elements; i++)
            f->vector[f->g->params[p].offset + i] =
                (float)((i * 2654435761u + p) % 1999) / 1024 - 1; /* exact with 1 added, too */
    }
}

static inline void fixture_close(fixture *f)
{
    graph_close(&f->g);
    atom_free(f->vector);
    atom_free(f->got);
}

static inline void write_through(const fixture *f, file_gguf_type type, const char *path,
                                 const file_sink *sink)
{
    file_gguf *w = NULL;
    assert_int_equal(file_gguf_create(path, sink, &w), ATOM_OK);
    assert_int_equal(file_gguf_put_model(w, &f->config, type), ATOM_OK);
    assert_int_equal(
        file_gguf_put_tensors(w, &f->config, f->g, type, file_vector_memory(f->vector)), ATOM_OK);
    assert_int_equal(file_gguf_finish(w), ATOM_OK);
    file_gguf_close(&w);
}

static inline void write_model(const fixture *f, file_gguf_type type, const char *path)
{
    write_through(f, type, path, NULL);
}

#endif
