/*
 * Owns `atom export --to gguf`: a model directory in, one file out. One idea: read as for training,
 * then write what gguf.h and ggufmodel.h say. Refuses directories without weights.
 */
#include "atom/train/export.h"

#include "atom/base/env.h"
#include "atom/base/mem.h"
#include "atom/file/ggufmodel.h"
#include "atom/file/hfdir.h"

#include <string.h>

static atom_status write_file(const file_model *model, const graph *g, const float *vector,
                              file_gguf_type type, const char *path)
{
    file_gguf *w = NULL;
    atom_status st;
    ATOM_TRY(file_gguf_create(path, &w));
    file_gguf_put_model(w, &model->config, type);
    ATOM_TRY(train_export_tokens(w, model->dir, model->source, model->config.vocab_size));
    ATOM_TRY(file_gguf_put_tensors(w, &model->config, g, type, vector));
    ATOM_TRY(file_gguf_finish(w));
fail:
    file_gguf_close(&w);
    return st;
}

atom_status train_export_gguf(const char *dir, file_gguf_type type, const char *path)
{
    file_model model = {0};
    graph *g = NULL;
    float *vector = NULL;
    atom_status st = file_model_resolve(dir, &model);
    if (st != ATOM_OK)
        return st;
    if (!model.has_weights) {
        st = atom_fail(ATOM_E_USAGE,
                       "model '%s' has no weights; name a directory with "
                       "model.safetensors",
                       dir);
        goto fail;
    }
    ATOM_TRY(graph_model_build(&model.config, ATOM_F32, 1, 1, &g));
    vector = atom_pages_take(atom_align(g->param_extent * sizeof *vector));
    if (!vector) {
        st = atom_fail_memory("the weights", g->param_extent * sizeof *vector);
        goto fail;
    }
    ATOM_TRY(file_weights_read(model.dir, g, vector));
    ATOM_TRY(write_file(&model, g, vector, type, path));
fail:
    if (vector)
        atom_pages_give(vector, atom_align(g->param_extent * sizeof *vector));
    graph_close(&g);
    file_model_free(&model);
    return st;
}
