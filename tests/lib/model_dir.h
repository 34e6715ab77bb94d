/*
 * A checkpoint directory for tests: config.json, model.safetensors, tokenizer.json (bytes). Aborts
 * when something fails.
 */
#ifndef TESTS_LIB_MODEL_DIR_H
#define TESTS_LIB_MODEL_DIR_H

#include "atom/base/mem.h"
#include "atom/file/hfdir.h"
#include "atom/text/tokenizer.h"
#include "atom/train/init.h"

#include <stdlib.h>
#include <string.h>

typedef struct model_dir {
    const char *dir; /* borrowed */
    graph_config config;
    graph *g;
    float *params; /* canonical; change it, then save */
} model_dir;

static inline void model_dir_must(atom_status st)
{
    if (st != ATOM_OK)
        abort();
}

/* Random weights. */
static inline model_dir model_dir_of(const char *dir, const graph_config *config, uint64_t seed)
{
    model_dir m = {.dir = dir, .config = *config};
    model_dir_must(graph_model_build(&m.config, ATOM_F32, 1, 1, &m.g));
    m.params = atom_alloc(m.g->param_extent, sizeof *m.params);
    if (!m.params)
        abort();
    train_init_weights(m.g, seed, m.params);
    return m;
}

/* GPT-2 with a byte vocabulary padded to 320, as the trainer pads it. */
static inline model_dir model_dir_make(const char *dir, int64_t positions, uint64_t seed)
{
    const graph_config config = {.name = "tiny",
                                 .vocab_size = 320,
                                 .positions = positions,
                                 .width = 48,
                                 .layers = 2,
                                 .heads = 3,
                                 .inner = 96,
                                 .epsilon = 1e-5f,
                                 .init_std = 0.3f};
    return model_dir_of(dir, &config, seed);
}

/* The parameter's place in m.params. */
static inline float *model_dir_param(const model_dir *m, const char *name)
{
    for (uint32_t i = 0; i < m->g->n_params; i++) {
        if (strcmp(m->g->params[i].name, name) == 0)
            return m->params + m->g->params[i].offset;
    }
    abort();
}

static inline void model_dir_save(const model_dir *m)
{
    text_tokenizer *bytes = NULL;
    model_dir_must(file_config_write(m->dir, &m->config, NULL, &(file_ends){256, 256}));
    model_dir_must(file_weights_write(m->dir, m->g, m->params));
    model_dir_must(text_tokenizer_bytes(&bytes));
    model_dir_must(text_tokenizer_save_model(bytes, m->dir));
    text_tokenizer_close(&bytes);
}

static inline void model_dir_close(model_dir *m)
{
    graph_close(&m->g);
    atom_free(m->params);
}

#endif
