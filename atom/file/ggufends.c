/*
 * Owns which tokens begin and end a text of a GGUF file's model. One idea: llama.cpp ends a text at the tokens of
 * three keys, and ollama at those of a list, so a model ends at all of them. Refuses a list of something other than
 * whole numbers; tells tokens that the model does not have, since llama.cpp goes on without them, too.
 */
#include "atom/file/ggufmodel.h"
#include "atom/file/ggufread.h"

#include "atom/base/bytes.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"

#include <jansson.h>

enum { ENDS_MAX = 4096 };

/* -1, in either width, is how some writers say that there is none. */
static bool is_token(const file_gguf_in *f, const char *key, int64_t id, int64_t V)
{
    if ((id >= V || id < -1) && id != UINT32_MAX)
        atom_log(ATOM_LOG_WARN,
                 "%s: key '%s' names token %lld, which a model of %lld tokens does not have; it is "
                 "left out",
                 f->path, key, (long long)id, (long long)V);
    return id >= 0 && id < V;
}

static int add_end(json_t *list, int64_t id)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_integer_value(json_array_get(list, i)) == id)
            return 0;
    return json_array_append_new(list, json_integer(id));
}

/* The i-th number of a list; *out as file_gguf_int has it. */
static bool item(const file_gguf_value *v, uint64_t i, int64_t *out)
{
    static const uint8_t widths[] = {
        [FILE_GGUF_VALUE_U8] = 1,  [FILE_GGUF_VALUE_I8] = 1,  [FILE_GGUF_VALUE_U16] = 2,
        [FILE_GGUF_VALUE_I16] = 2, [FILE_GGUF_VALUE_U32] = 4, [FILE_GGUF_VALUE_I32] = 4,
        [FILE_GGUF_VALUE_U64] = 8, [FILE_GGUF_VALUE_I64] = 8};
    const uint32_t width = v->item < sizeof widths ? widths[v->item] : 0;
    if (width == 0)
        return false;
    atom_reader r = atom_reader_make(v->at + i * width, width);
    uint64_t x = atom_read_uint(&r, width);
    bool negative = v->item == FILE_GGUF_VALUE_I8 || v->item == FILE_GGUF_VALUE_I16 ||
                    v->item == FILE_GGUF_VALUE_I32;
    if (negative && x >> (8 * width - 1))
        x |= ~(uint64_t)0 << (8 * width);
    *out = v->item == FILE_GGUF_VALUE_U64 && x > INT64_MAX ? INT64_MAX : (int64_t)x;
    return true;
}

static atom_status add_list(json_t *list, const file_gguf_in *f, int64_t V)
{
    static const char KEY[] = "tokenizer.ggml.eos_token_ids";
    const file_gguf_value *v = file_gguf_find(f, KEY);
    int64_t id = 0;
    if (!v)
        return ATOM_OK;
    if (v->type != FILE_GGUF_VALUE_ARRAY || v->n > ENDS_MAX)
        return atom_fail(ATOM_E_FORMAT, "%s: key '%s' must be a list of at most %d token ids",
                         f->path, KEY, ENDS_MAX);
    for (uint64_t i = 0; i < v->n; i++) {
        if (!item(v, i, &id))
            return atom_fail(
                ATOM_E_FORMAT,
                "%s: key '%s' is a list of type %u, but it must be one of whole numbers", f->path,
                KEY, v->item);
        if (is_token(f, KEY, id, V) && add_end(list, id) < 0)
            return atom_fail_memory("config.json", 64);
    }
    return ATOM_OK;
}

atom_status file_gguf_set_ends(const file_gguf_in *f, int64_t V, json_t *root)
{
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    static const char START[] = "tokenizer.ggml.bos_token_id";
    json_t *list = json_array();
    int64_t id = file_gguf_int(f, START, -1);
    int failed = !list;
    atom_status st = ATOM_OK;
    if (is_token(f, START, id, V))
        failed = failed || json_object_set_new(root, "bos_token_id", json_integer(id));
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        id = file_gguf_int(f, keys[i], -1);
        if (is_token(f, keys[i], id, V))
            failed = failed || add_end(list, id);
    }
    if (!failed)
        ATOM_TRY_CLEAN(add_list(list, f, V));
    json_t *ends = json_array_size(list) > 1 ? list : json_array_get(list, 0);
    failed = failed || (ends && json_object_set(root, "eos_token_id", ends));
    if (failed)
        st = atom_fail_memory("config.json", 64);
cleanup:
    json_decref(list);
    return st;
}
