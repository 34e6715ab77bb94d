/*
 * Owns config.json, both ways: what all families share, and GPT-2 (hfconfig_llama.c and
 * hfconfig_neox.c have the others). One idea: a key we know is taken or refused by name, a key we do not know is kept and
 * written back. Refuses every value that would change the mathematics: atom trains exactly what the
 * file says.
 */
#include "atom/file/hfconfig.h"

#include "atom/base/files.h"
#include "atom/base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONFIG_BYTES_MAX = 1 << 25 };

static bool is_class(graph_family family, const char *name)
{
    const graph_traits *traits = graph_family_traits(family);
    return strcmp(name, traits->class_name) == 0 || strcmp(name, traits->body_name) == 0;
}

/* Known families by model_type or, without it, by the class; GRAPH_FAMILY_N if there is none. */
static graph_family find_family(const char *type, const char *class_name)
{
    for (graph_family f = 0; f < GRAPH_FAMILY_N; f++) {
        if (type ? strcmp(type, graph_family_name(f)) == 0 : is_class(f, class_name))
            return f;
    }
    return GRAPH_FAMILY_N;
}

static atom_status take_family(const char *path, const json_t *root, graph_family *family)
{
    const json_t *type = atom_json_present(root, "model_type");
    const char *first =
        json_string_value(json_array_get(atom_json_present(root, "architectures"), 0));
    const char *name = type ? json_string_value(type) : NULL;
    char known[GRAPH_FAMILY_LIST_MAX];
    if (!type && !first)
        return atom_fail(ATOM_E_FORMAT, "%s: model_type is missing; is this a model's config.json?",
                         path);
    *family = type && !name ? GRAPH_FAMILY_N : find_family(name, first);
    graph_family_list(false, known);
    if (name && strcmp(name, "gemma3") == 0)
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "%s: model_type: 'gemma3' is a text model with a vision tower, and atom "
                         "trains only the text model: load it with transformers' "
                         "Gemma3ForCausalLM and save that (docs/guide/train.md#models)",
                         path);
    if (*family == GRAPH_FAMILY_N)
        return atom_fail(ATOM_E_UNSUPPORTED, "%s: %s: '%.64s' is not supported; %s are", path,
                         type ? "model_type" : "architectures",
                         name    ? name
                         : first ? first
                                 : "(not a string)",
                         known);
    if (first && !is_class(*family, first))
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "%s: architectures: '%.64s' is not supported; only %s is", path, first,
                         graph_family_traits(*family)->class_name);
    return ATOM_OK;
}

/* Code that comes with a model is never run: it must be a copy of what its family is anyway, as
 * transformers takes it to be unless trust_remote_code is set. */
static atom_status check_code(const char *path, const json_t *root, graph_family family)
{
    static const char *const kinds[] = {"AutoModelForCausalLM", "AutoModel"};
    const json_t *map = atom_json_present(root, "auto_map");
    if (map && !json_is_object(map))
        return atom_fail(ATOM_E_FORMAT, "%s: auto_map must be an object", path);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const json_t *value = atom_json_present(map, kinds[i]);
        const char *name = json_string_value(value), *dot = name ? strrchr(name, '.') : NULL;
        if (value && !(dot && is_class(family, dot + 1)))
            return atom_fail(ATOM_E_UNSUPPORTED,
                             "%s: auto_map: '%.64s' is code that comes with this model, which "
                             "atom does not run; if the model is an ordinary %s, remove the key",
                             path, name ? name : "(not a string)", graph_family_name(family));
    }
    return ATOM_OK;
}

/* Null is what says that there is no value, which these have not: the default would be another model. */
static atom_status check_sizes(const char *path, const json_t *root)
{
    static const char *const keys[] = {
        "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "n_embd",
        "n_layer",    "n_head",      "intermediate_size", "n_positions"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (json_is_null(json_object_get(root, keys[i])))
            return atom_fail(ATOM_E_FORMAT,
                             "%s: %s is null; it must be a whole number of at least 1", path,
                             keys[i]);
    return ATOM_OK;
}

/* Keys that transformers 5 has for every family: layers that are unlike the others, and weights in another file. */
static atom_status check_everyones(const char *path, const json_t *root)
{
    if (!file_is_neutral(atom_json_present(root, "per_layer_config"), 0))
        return file_not_supported(path, "per_layer_config",
                                  "layers that differ from the others are not supported");
    if (atom_json_present(root, "transformers_weights"))
        return file_not_supported(
            path, "transformers_weights",
            "weights under another name are not supported; load the model with transformers "
            "and save it again");
    return ATOM_OK;
}

static atom_status check_activation(const char *path, const json_t *root)
{
    const json_t *value = atom_json_present(root, "activation_function");
    if (!value)
        return ATOM_OK;
    const char *name = json_string_value(value);
    /* Two names of one function. */
    if (name && (strcmp(name, "gelu_new") == 0 || strcmp(name, "gelu_pytorch_tanh") == 0))
        return ATOM_OK;
    return atom_fail(ATOM_E_UNSUPPORTED,
                     "%s: activation_function: '%.64s' is not supported; only gelu_new is", path,
                     name ? name : "(not a string)");
}

static atom_status check_spelling(const char *path, const json_t *root)
{
    static const char *const names[] = {"vocab_size",
                                        "n_ctx",
                                        "n_positions",
                                        "max_position_embeddings",
                                        "n_embd",
                                        "hidden_size",
                                        "n_layer",
                                        "num_hidden_layers",
                                        "n_head",
                                        "num_attention_heads",
                                        "n_inner",
                                        "layer_norm_epsilon",
                                        "initializer_range",
                                        "embd_pdrop",
                                        "attn_pdrop",
                                        "resid_pdrop",
                                        "activation_function",
                                        "tie_word_embeddings",
                                        "scale_attn_weights",
                                        "scale_attn_by_inverse_layer_idx",
                                        "reorder_and_upcast_attn"};
    return file_check_spelling(path, root, names, sizeof names / sizeof *names);
}

static atom_status check_mathematics(const char *path, const json_t *root)
{
    ATOM_TRY(check_activation(path, root));
    ATOM_TRY(file_check_flag(path, root, "scale_attn_weights", true));
    ATOM_TRY(file_check_flag(path, root, "scale_attn_by_inverse_layer_idx", false));
    ATOM_TRY(file_check_flag(path, root, "reorder_and_upcast_attn", false));
    ATOM_TRY(file_check_flag(path, root, "add_cross_attention", false));
    return file_check_plain(path, root);
}

static atom_status take_numbers(const char *path, const json_t *root, graph_config *c)
{
    atom_status st = ATOM_OK;
    int64_t context = 1024;
    bool tied;
    ATOM_TRY(file_take_int(path, root, "vocab_size", NULL, 50257, &c->vocab_size));
    ATOM_TRY(file_take_int(path, root, "n_ctx", NULL, 1024, &context));
    ATOM_TRY(file_take_int(path, root, "n_positions", "max_position_embeddings", context,
                           &c->positions));
    ATOM_TRY(file_take_int(path, root, "n_embd", "hidden_size", 768, &c->width));
    ATOM_TRY(file_take_int(path, root, "n_layer", "num_hidden_layers", 12, &c->layers));
    ATOM_TRY(file_take_int(path, root, "n_head", "num_attention_heads", 12, &c->heads));
    if (c->width > INT64_MAX / 4)
        return atom_fail(ATOM_E_FORMAT, "%s: n_embd is too large", path);
    ATOM_TRY(file_take_int(path, root, "n_inner", NULL, 4 * c->width, &c->inner));
    ATOM_TRY(file_take_real(path, root, "layer_norm_epsilon", 1e-5, &c->epsilon));
    ATOM_TRY(file_take_real(path, root, "initializer_range", 0.02, &c->init_std));
    ATOM_TRY(file_take_real(path, root, "embd_pdrop", 0.1, &c->embd_pdrop));
    ATOM_TRY(file_take_real(path, root, "attn_pdrop", 0.1, &c->attn_pdrop));
    ATOM_TRY(file_take_real(path, root, "resid_pdrop", 0.1, &c->resid_pdrop));
    ATOM_TRY(file_take_flag(path, root, "tie_word_embeddings", true, &tied));
    c->untied = !tied;
    file_take_name(root, GRAPH_GPT2, c->name);
    st = graph_gpt2_check(c);
    if (st != ATOM_OK)
        st = atom_fail_in(st, "%s: ", path);
    return st;
}

atom_status file_config_parse(const char *path, const char *text, size_t bytes,
                              graph_config *config)
{
    graph_config c = {0};
    json_t *root = NULL;
    atom_status st = ATOM_OK;
    ATOM_TRY(atom_json_parse(path, text, bytes, 0, &root));
    graph_family family = GRAPH_FAMILY_N;
    ATOM_TRY_CLEAN(take_family(path, file_bottlenecks_names(root), &family));
    ATOM_TRY_CLEAN(check_code(path, root, family));
    ATOM_TRY_CLEAN(check_sizes(path, root));
    ATOM_TRY_CLEAN(check_everyones(path, root));
    if (family == GRAPH_GPT2) {
        ATOM_TRY_CLEAN(check_spelling(path, root));
        ATOM_TRY_CLEAN(check_mathematics(path, root));
        ATOM_TRY_CLEAN(take_numbers(path, root, &c));
    } else if (family == GRAPH_OWN) {
        ATOM_TRY_CLEAN(file_own_take(path, root, &c));
    } else if (graph_family_traits(family)->neox) {
        ATOM_TRY_CLEAN(file_neox_take(path, root, family, &c));
    } else {
        ATOM_TRY_CLEAN(file_llama_take(path, root, family, &c));
    }
    ATOM_TRY_CLEAN(file_bottlenecks_take(path, root, &c));
    *config = c;
    c.own = NULL;
cleanup:
    graph_config_free(&c);
    json_decref(root);
    return st;
}

atom_status file_config_read(const char *path, graph_config *config, char **source)
{
    char *text = NULL;
    uint64_t bytes = 0;
    if (!atom_path_exists(path))
        return atom_fail(ATOM_E_FORMAT, "there is no file %s", path);
    atom_status st = atom_file_read(path, CONFIG_BYTES_MAX, &text, &bytes);
    if (st == ATOM_OK)
        st = file_config_parse(path, text, (size_t)bytes, config);
    if (st != ATOM_OK || !source) {
        atom_free(text);
        return st;
    }
    *source = text;
    return ATOM_OK;
}

/* How many digits print every real in the tree exactly (9 to 17). */
static int digits_needed(const json_t *value)
{
    int most = 9;
    if (json_is_real(value)) {
        char buf[40];
        for (; most < 17; most++) {
            snprintf(buf, sizeof buf, "%.*g", most, json_real_value(value));
            if (strtod(buf, NULL) == json_real_value(value))
                break;
        }
    }
    const char *key;
    json_t *child;
    json_object_foreach((json_t *)value, key, child)
    {
        int n = digits_needed(child);
        most = n > most ? n : most;
    }
    for (size_t i = 0; i < json_array_size(value); i++) {
        int n = digits_needed(json_array_get(value, i));
        most = n > most ? n : most;
    }
    return most;
}

/* Releases root. */
static atom_status dump(json_t *root, char **text)
{
    size_t digits = (size_t)digits_needed(root);
    return atom_json_text(root, JSON_INDENT(2) | (size_t)JSON_REAL_PRECISION(digits), "\n", text);
}

static int set_token(json_t *root, const char *key, const json_t *source, int64_t token)
{
    if (token >= 0)
        return json_object_set_new(root, key, json_integer(token));
    if (source && json_object_get(source, key))
        return 0;
    return json_object_set_new(root, key, json_null());
}

static int set_ends(json_t *root, const json_t *source, const file_ends *ends)
{
    return set_token(root, "bos_token_id", source, ends->start) < 0 ||
           set_token(root, "eos_token_id", source, ends->end) < 0;
}

/* Ours over theirs: every key that atom decides. */
static atom_status set_keys(json_t *root, const graph_config *c, const file_ends *ends, bool kept)
{
    json_t *ours = json_pack(
        "{s:[s], s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:s, s:f, s:f, s:f, s:f, s:f, s:b, s:b, "
        "s:b,"
        " s:b, s:s}",
        "architectures", "GPT2LMHeadModel", "model_type", "gpt2", "vocab_size",
        (json_int_t)c->vocab_size, "n_positions", (json_int_t)c->positions, "n_ctx",
        (json_int_t)c->positions, "n_embd", (json_int_t)c->width, "n_layer", (json_int_t)c->layers,
        "n_head", (json_int_t)c->heads, "n_inner",
        c->inner == 4 * c->width ? json_null() : json_integer(c->inner), "activation_function",
        "gelu_new", "layer_norm_epsilon", file_neat(c->epsilon), "initializer_range",
        file_neat(c->init_std), "embd_pdrop", file_neat(c->embd_pdrop), "attn_pdrop",
        file_neat(c->attn_pdrop), "resid_pdrop", file_neat(c->resid_pdrop), "tie_word_embeddings",
        c->tied_files || !c->untied, "scale_attn_weights", 1, "scale_attn_by_inverse_layer_idx", 0,
        "reorder_and_upcast_attn", 0, "_name_or_path", c->name[0] ? c->name : "gpt2");
    int failed = !ours || json_object_update(root, ours) < 0;
    json_decref(ours);
    failed = failed || set_ends(root, kept ? root : NULL, ends);
    return failed ? atom_fail_memory("config.json", 0) : ATOM_OK;
}

/* Of the weights: as torch calls the type, under the key of either version. */
static int set_dtype(json_t *root, atom_dtype dtype)
{
    const char *name = dtype == ATOM_BF16 ? "bfloat16" : dtype == ATOM_F16 ? "float16" : "float32";
    return json_object_set_new(root, "torch_dtype", json_string(name)) < 0 ||
           json_object_set_new(root, "dtype", json_string(name)) < 0;
}

static atom_status set_common(json_t *root, atom_dtype dtype)
{
    int failed = set_dtype(root, dtype);
    if (!failed && !json_object_get(root, "use_cache"))
        failed = json_object_set_new(root, "use_cache", json_true()) < 0;
    if (!failed && !json_object_get(root, "transformers_version"))
        failed = json_object_set_new(root, "transformers_version", json_string("4.44.0")) < 0;
    return failed ? atom_fail_memory("config.json", 0) : ATOM_OK;
}

static atom_status fill(json_t *root, const graph_config *config, bool kept, const file_ends *ends,
                        atom_dtype dtype)
{
    const json_t *source = kept ? root : NULL;
    if (config->family == GRAPH_GPT2) {
        ATOM_TRY(set_keys(root, config, ends, kept));
    } else if (graph_family_traits(config->family)->neox) {
        ATOM_TRY(file_neox_set(root, config, ends, kept));
    } else if (config->family != GRAPH_OWN) {
        ATOM_TRY(file_llama_set(root, config, ends, kept));
    } else {
        ATOM_TRY(file_own_set(root, config));
        if (set_ends(root, source, ends))
            return atom_fail_memory("config.json", 0);
    }
    if (file_bottlenecks_set(root, config))
        return atom_fail_memory("config.json", 0);
    return set_common(root, dtype);
}

static atom_status config_text(const graph_config *config, const char *source,
                               const file_ends *ends, atom_dtype dtype, char **text)
{
    static const file_ends unknown = {-1, -1};
    json_t *root = source ? NULL : json_object();
    atom_status st = ATOM_OK;
    if (source)
        ATOM_TRY(atom_json_parse("config.json", source, strlen(source), 0, &root));
    if (!root)
        return atom_fail_memory("config.json", 0);
    ATOM_TRY_CLEAN(fill(root, config, source != NULL, ends ? ends : &unknown, dtype));
    return dump(root, text);
cleanup:
    json_decref(root);
    return st;
}

atom_status file_config_text(const graph_config *config, const char *source, const file_ends *ends,
                             char **text)
{
    return config_text(config, source, ends, ATOM_F32, text);
}

static atom_status write_text(const char *dir, const char *name, const char *text)
{
    char *path = atom_path_join(dir, name);
    if (!path)
        return atom_fail_memory("a path", strlen(dir));
    atom_status st = atom_file_write(path, text, strlen(text));
    atom_free(path);
    return st;
}

/* bos and eos are what config.json says; sampling stays at transformers' defaults. */
static atom_status generation_text(const char *config_text, char **text)
{
    json_t *config = NULL;
    atom_status st = ATOM_OK;
    ATOM_TRY(atom_json_parse("config.json", config_text, strlen(config_text), 0, &config));
    json_t *root = json_pack("{s:b, s:O, s:O, s:O}", "_from_model_config", 1, "bos_token_id",
                             json_object_get(config, "bos_token_id"), "eos_token_id",
                             json_object_get(config, "eos_token_id"), "transformers_version",
                             json_object_get(config, "transformers_version"));
    st = dump(root, text);
    json_decref(config);
    return st;
}

atom_status file_config_write(const char *dir, const graph_config *config, const char *source,
                              const file_ends *ends)
{
    return file_config_write_as(dir, config, source, ends, ATOM_F32);
}

atom_status file_config_write_as(const char *dir, const graph_config *config, const char *source,
                                 const file_ends *ends, atom_dtype dtype)
{
    char *text = NULL, *generation = NULL;
    atom_status st = ATOM_OK;
    ATOM_TRY_CLEAN(config_text(config, source, ends, dtype, &text));
    ATOM_TRY_CLEAN(generation_text(text, &generation));
    ATOM_TRY_CLEAN(write_text(dir, "config.json", text));
    ATOM_TRY_CLEAN(write_text(dir, "generation_config.json", generation));
cleanup:
    atom_free(text);
    atom_free(generation);
    return st;
}
