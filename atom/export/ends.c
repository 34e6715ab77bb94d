/*
 * Owns the ends of a model in a GGUF file. One idea: llama.cpp has places for three of them and knows
 * some by their texts; a list that it does not read holds them all, for those who do. Refuses nothing:
 * what llama.cpp will not stop at is said.
 */
#include "atom/export/ends.h"

#include "atom/base/log.h"
#include "atom/base/mem.h"

#include <string.h>

/* Does llama.cpp end at a token of this text, whatever the metadata say? */
static bool is_known(const char *text)
{
    static const char *const known[] = {
        "<|eot_id|>",    "<|im_end|>", "<|end|>", "<|return|>", "<|call|>",       "<end_of_turn>",
        "<|endoftext|>", "<|eom_id|>", "<EOT>",   "_<EOT>",     "<|end_of_text|>"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(text, known[i]) == 0)
            return true;
    return false;
}

static void add(int32_t *ends, uint64_t *n, json_int_t id, int64_t V)
{
    for (uint64_t i = 0; i < *n; i++)
        if (ends[i] == id)
            return;
    if (id >= 0 && id < V)
        ends[(*n)++] = (int32_t)id;
}

/* Of one file; false: it names none. */
static bool take(const json_t *root, int32_t *ends, uint64_t *n, int64_t V)
{
    const json_t *ids = json_object_get(root, "eos_token_id");
    bool any = false;
    for (size_t i = 0; i < (json_is_array(ids) ? json_array_size(ids) : 1); i++) {
        const json_t *id = json_is_array(ids) ? json_array_get(ids, i) : ids;
        if (!json_is_integer(id))
            continue;
        add(ends, n, json_integer_value(id), V);
        any = any || (json_integer_value(id) >= 0 && json_integer_value(id) < V);
    }
    return any;
}

/* ends[0] has a key of its own. */
static void put_others(file_gguf *w, const char *dir, const int32_t *ends, uint64_t n,
                       const char *const *texts)
{
    uint64_t unknown = 0;
    const char *lost = NULL;
    for (uint64_t i = 1; i < n; i++) {
        const char *text = texts[ends[i]] ? texts[ends[i]] : "(no text)";
        if (is_known(text))
            continue;
        if (unknown++ == 0)
            file_gguf_put_u32(w, "tokenizer.ggml.eom_token_id", (uint32_t)ends[i]);
        else if (!lost)
            lost = text;
    }
    if (lost)
        atom_log(
            ATOM_LOG_WARN,
            "%s: llama.cpp will not stop at %llu of the %llu tokens that end this model's answers "
            "(such as \"%.40s\"), because GGUF has no key for them that it reads",
            dir, (unsigned long long)(unknown - 1), (unsigned long long)n, lost);
}

atom_status export_ends(file_gguf *w, const char *dir, const json_t *generation,
                        const json_t *config, const char *const *texts, int64_t V, int64_t eos)
{
    size_t room = 1 + json_array_size(json_object_get(generation, "eos_token_id")) +
                  json_array_size(json_object_get(config, "eos_token_id")) + 2;
    uint64_t n = 0;
    int32_t *ends = atom_alloc(room, sizeof *ends);
    if (!ends)
        return atom_fail_memory("ends of texts", room * sizeof *ends);
    add(ends, &n, eos, V);
    if (!take(generation, ends, &n, V))
        take(config, ends, &n, V);
    if (eos >= 0 && n > 1) {
        file_gguf_put_i32s(w, "tokenizer.ggml.eos_token_ids", ends, n);
        put_others(w, dir, ends, n, texts);
    }
    atom_free(ends);
    return ATOM_OK;
}
