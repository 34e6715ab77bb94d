/*
 * Owns the tokenizer of a GGUF file that is exported to another one. One idea: nothing in it depends on
 * the numbers of the tensors, so it is copied as it stands. Refuses kinds of values that no
 * tokenizer which atom reads has.
 */
#include "atom/export/export.h"

#include "atom/base/mem.h"

#include <string.h>

static const char PREFIX[] = "tokenizer.";

static atom_status refuse(const file_gguf_in *f, const file_gguf_value *v)
{
    return atom_fail(ATOM_E_UNSUPPORTED,
                     "%s: '%s' has a kind of value that is not copied; export from the "
                     "directory that the file was made of",
                     f->path, v->key);
}

static void copy_texts(file_gguf *w, const file_gguf_value *v)
{
    const uint8_t *at = v->at;
    file_gguf_put_texts(w, v->key, v->n);
    for (uint64_t i = 0, bytes; i < v->n; i++) {
        const char *text = file_gguf_next_text(&at, &bytes);
        file_gguf_add_text(w, text, (size_t)bytes);
    }
}

/* The file has them at any address. */
static atom_status copy_numbers(file_gguf *w, const file_gguf_value *v)
{
    void *numbers = atom_alloc(v->n + 1, 4);
    if (!numbers)
        return atom_fail_memory("a vocabulary", v->n * 4);
    memcpy(numbers, v->at, v->n * 4);
    if (v->item == FILE_GGUF_VALUE_I32)
        file_gguf_put_i32s(w, v->key, numbers, v->n);
    else
        file_gguf_put_f32s(w, v->key, numbers, v->n);
    atom_free(numbers);
    return ATOM_OK;
}

static atom_status copy_array(file_gguf *w, const file_gguf_in *f, const file_gguf_value *v)
{
    if (v->item == FILE_GGUF_VALUE_TEXT)
        copy_texts(w, v);
    else if (v->item == FILE_GGUF_VALUE_I32 || v->item == FILE_GGUF_VALUE_F32)
        return copy_numbers(w, v);
    else
        return refuse(f, v);
    return ATOM_OK;
}

static atom_status copy_text(file_gguf *w, const file_gguf_in *f, const file_gguf_value *v)
{
    char *text = file_gguf_text(f, v->key);
    if (!text)
        return atom_fail_memory("a text", v->n);
    file_gguf_put_text(w, v->key, text);
    atom_free(text);
    return ATOM_OK;
}

static atom_status copy_value(file_gguf *w, const file_gguf_in *f, const file_gguf_value *v)
{
    int64_t number = file_gguf_int(f, v->key, -1);
    if (v->type == FILE_GGUF_VALUE_ARRAY)
        return copy_array(w, f, v);
    if (v->type == FILE_GGUF_VALUE_TEXT)
        return copy_text(w, f, v);
    if (v->type == FILE_GGUF_VALUE_BOOL)
        file_gguf_put_bool(w, v->key, *v->at != 0);
    else if (v->type == FILE_GGUF_VALUE_F32)
        file_gguf_put_f32(w, v->key, (float)file_gguf_real(f, v->key, 0));
    else if (number >= 0 && number <= UINT32_MAX)
        file_gguf_put_u32(w, v->key, (uint32_t)number);
    else
        return refuse(f, v);
    return ATOM_OK;
}

atom_status export_tokens_copy(file_gguf *w, const char *path, bool *any)
{
    file_gguf_in *f = NULL;
    atom_status st;
    *any = false;
    ATOM_TRY_CLEAN(file_gguf_open(path, &f));
    for (uint32_t i = 0; i < f->n_values; i++) {
        if (strncmp(f->values[i].key, PREFIX, sizeof PREFIX - 1) != 0)
            continue;
        ATOM_TRY_CLEAN(copy_value(w, f, &f->values[i]));
        *any = true;
    }
cleanup:
    file_gguf_in_close(&f);
    return st;
}
