/*
 * Owns copies of the model's own embedding and head in an adapter's file: PEFT adds them where one of the
 * two has an adapter, and lays them over the model's when it loads them. One idea: copies that are the
 * model's own weights, number by number, change nothing, so they are passed over. Refuses others, since
 * they are trained weights that would be lost.
 */
#include "atom/file/peft_inner.h"

#include "atom/base/mem.h"

#include <stdio.h>
#include <string.h>

static bool may_be_copied(const file_adapter *a, const file_slice *s)
{
    static const char *const names[] = {"embed_tokens.weight", "wte.weight", "embed_in.weight"};
    bool known = file_is_head(a->base, s->name);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        known = known || strcmp(s->name, names[i]) == 0;
    for (uint32_t i = 0; known && i < a->n_saved; i++)
        known = a->saved[i].slice.param != s->param; /* it is trained whole */
    return known && !s->transposed;
}

/* The copy of a slice, under the name that it has with an adapter beside it, or without one. */
static const file_tensor *find_copy(const file_adapter *a, const file_slice *s)
{
    char name[FILE_LORA_NAME_MAX], inner[FILE_NAME_MAX + 16];
    size_t n = strlen(s->name) - strlen(".weight");
    snprintf(inner, sizeof inner, "%.*s.base_layer.weight", (int)n, s->name);
    file_lora_tensor_name(a->base, inner, name);
    const file_tensor *t = file_st_find(a->file, name);
    if (t)
        return t;
    file_lora_tensor_name(a->base, s->name, name);
    return file_st_find(a->file, name);
}

static atom_status compare(const file_adapter *a, const file_slice *s, const file_tensor *copy,
                           file_vector weights, const char *model_dir)
{
    float *mine = atom_alloc(FILE_BAND_ELEMENTS, sizeof *mine);
    float *theirs = atom_alloc(FILE_BAND_ELEMENTS, sizeof *theirs);
    uint64_t first = a->base->params[s->param].offset + s->first;
    atom_status st = ATOM_OK;
    if (!mine || !theirs)
        ATOM_TRY_CLEAN(atom_fail_memory("a band of weights", FILE_BAND_ELEMENTS * sizeof *mine));
    for (uint64_t at = 0, n; at < s->elements; at += n) {
        n = s->elements - at < FILE_BAND_ELEMENTS ? s->elements - at : FILE_BAND_ELEMENTS;
        ATOM_TRY_CLEAN(weights.get(weights.ctx, first + at, n, mine));
        ATOM_TRY_CLEAN(file_st_read_f32(a->file, copy, at, n, theirs));
        if (memcmp(mine, theirs, n * sizeof *mine) != 0)
            ATOM_TRY_CLEAN(atom_fail(ATOM_E_UNSUPPORTED,
                                     "%s: %.200s is not the model's own (of %s), so the adapter "
                                     "needs another model than that; " FILE_LORA_MERGE_IT,
                                     a->file->path, copy->name, model_dir));
    }
cleanup:
    atom_free(mine);
    atom_free(theirs);
    return st;
}

atom_status file_adapter_check_copies(const file_adapter *a, const char *model_dir, uint32_t *n)
{
    file_slice *slices = NULL;
    file_weights *weights = NULL;
    uint32_t n_slices = 0;
    atom_status st;
    *n = 0;
    ATOM_TRY(file_slices(a->base, &slices, &n_slices));
    for (uint32_t i = 0; i < n_slices; i++) {
        const file_tensor *copy = may_be_copied(a, &slices[i]) ? find_copy(a, &slices[i]) : NULL;
        if (!copy)
            continue;
        ATOM_TRY_CLEAN(file_check_shape(a->file, copy, &slices[i]));
        if (!weights)
            ATOM_TRY_CLEAN(file_weights_open(model_dir, a->base, NULL, &weights));
        ATOM_TRY_CLEAN(compare(a, &slices[i], copy, file_weights_vector(weights), model_dir));
        ++*n;
    }
    st = ATOM_OK;
cleanup:
    file_weights_close(&weights);
    atom_free(slices);
    return st;
}
