/*
 * Owns which kind of value each key of a GGUF file must have. One idea: the reader asks for a key with a
 * value for the case that it is not there, and a key of another kind would be taken for one that is not
 * there; so all kinds are checked before anything is asked. Refuses numbers that are not finite, too.
 */
#include "atom/file/ggufmodel.h"
#include "atom/file/ggufread.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef enum key_kind { WHOLE, REAL, TRUTH, TEXT } key_kind;

typedef struct known_key {
    const char *name;
    key_kind kind;
} known_key;

/* Keys with their whole names. Lists are checked where they are read. */
static const known_key of_file[] = {
    {"general.architecture", TEXT},
    {"general.name", TEXT},
    {"general.type", TEXT},
    {"general.alignment", WHOLE},
    {"tokenizer.ggml.model", TEXT},
    {"tokenizer.ggml.pre", TEXT},
    {"tokenizer.ggml.bos_token_id", WHOLE},
    {"tokenizer.ggml.eos_token_id", WHOLE},
    {"tokenizer.ggml.eot_token_id", WHOLE},
    {"tokenizer.ggml.eom_token_id", WHOLE},
    {"tokenizer.ggml.add_bos_token", TRUTH},
    {"tokenizer.ggml.add_space_prefix", TRUTH},
    {"tokenizer.chat_template", TEXT},
    {"tokenizer.chat_template.tool_use", TEXT},
};

/* Keys behind the name of the architecture. */
static const known_key of_model[] = {
    {"context_length", WHOLE},
    {"embedding_length", WHOLE},
    {"block_count", WHOLE},
    {"feed_forward_length", WHOLE},
    {"expert_count", WHOLE},
    {"attention.head_count", WHOLE},
    {"attention.head_count_kv", WHOLE},
    {"attention.key_length", WHOLE},
    {"attention.value_length", WHOLE},
    {"attention.sliding_window", WHOLE},
    {"attention.layer_norm_epsilon", REAL},
    {"attention.layer_norm_rms_epsilon", REAL},
    {"attention.scale", REAL},
    {"attention.clamp_kqv", REAL},
    {"attention.max_alibi_bias", REAL},
    {"attention.causal", TRUTH},
    {"attn_logit_softcapping", REAL},
    {"final_logit_softcapping", REAL},
    {"logit_scale", REAL},
    {"residual_scale", REAL},
    {"embedding_scale", REAL},
    {"use_parallel_residual", TRUTH},
    {FILE_GGUF_ACTIVATION, TEXT},
    {"rope.dimension_count", WHOLE},
    {"rope.freq_base", REAL},
    {"rope.freq_base_swa", REAL},
    {"rope.scale_linear", REAL},
    {"rope.scaling.type", TEXT},
    {"rope.scaling.factor", REAL},
    {"rope.scaling.attn_factor", REAL},
    {"rope.scaling.original_context_length", WHOLE},
    {"rope.scaling.finetuned", TRUTH},
    {"rope.scaling.yarn_ext_factor", REAL},
    {"rope.scaling.yarn_attn_factor", REAL},
    {"rope.scaling.yarn_log_multiplier", REAL},
    {"rope.scaling.yarn_beta_slow", REAL},
    {"rope.scaling.yarn_beta_fast", REAL},
};

static bool is_whole(uint32_t type)
{
    return type <= FILE_GGUF_VALUE_I32 || type == FILE_GGUF_VALUE_U64 ||
           type == FILE_GGUF_VALUE_I64;
}

static bool is_real(uint32_t type)
{
    return type == FILE_GGUF_VALUE_F32 || type == FILE_GGUF_VALUE_F64;
}

static bool is_of(const file_gguf_value *v, key_kind kind)
{
    switch (kind) {
    case WHOLE:
        return is_whole(v->type);
    case REAL:
        return is_real(v->type);
    case TRUTH:
        return v->type == FILE_GGUF_VALUE_BOOL;
    case TEXT:
        return v->type == FILE_GGUF_VALUE_TEXT;
    }
    return false;
}

static atom_status check_key(const file_gguf_in *f, const file_gguf_value *v, key_kind kind)
{
    static const char *const names[] = {[WHOLE] = "a whole number",
                                        [REAL] = "a real number",
                                        [TRUTH] = "true or false",
                                        [TEXT] = "a text"};
    if (!is_of(v, kind))
        return atom_fail(ATOM_E_FORMAT, "%s: key '%.80s' has a value of type %u, but it must be %s",
                         f->path, v->key, v->type, names[kind]);
    if (kind == WHOLE && v->type == FILE_GGUF_VALUE_U64 && file_gguf_int(f, v->key, -1) < 0)
        return atom_fail(ATOM_E_FORMAT, "%s: key '%.80s' is larger than %lld", f->path, v->key,
                         (long long)INT64_MAX);
    if (kind == TEXT && memchr(v->at, 0, v->n))
        return atom_fail(ATOM_E_FORMAT, "%s: key '%.80s' has a zero byte in its text", f->path,
                         v->key);
    if (kind == REAL && !isfinite(file_gguf_real(f, v->key, 0)))
        return atom_fail(ATOM_E_FORMAT, "%s: key '%.80s' is not a finite number", f->path, v->key);
    return ATOM_OK;
}

atom_status file_gguf_check_kinds(const file_gguf_in *f)
{
    char name[192];
    for (size_t i = 0; i < sizeof of_file / sizeof *of_file; i++) {
        const file_gguf_value *v = file_gguf_find(f, of_file[i].name);
        if (v)
            ATOM_TRY(check_key(f, v, of_file[i].kind));
    }
    const file_gguf_value *arch = file_gguf_find(f, "general.architecture");
    for (size_t i = 0; arch && i < sizeof of_model / sizeof *of_model; i++) {
        snprintf(name, sizeof name, "%.*s.%s", arch->n < 64 ? (int)arch->n : 64,
                 (const char *)arch->at, of_model[i].name);
        const file_gguf_value *v = file_gguf_find(f, name);
        if (v && v->type != FILE_GGUF_VALUE_ARRAY) /* one value for each layer is refused by name */
            ATOM_TRY(check_key(f, v, of_model[i].kind));
    }
    return ATOM_OK;
}
