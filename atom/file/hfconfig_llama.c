/*
 * Owns config.json of Llama and its kin, both ways, as transformers 4 and 5 write it. One idea:
 * absent keys get the defaults of the family's class, and both spellings of the rotary embedding
 * are read and written; keys that only some families have are in hfconfig_traits.c. Refuses other
 * activations, rotary embeddings and quantised models by name. Source:
 * docs/design/files.md#model-directories.
 */
#include "atom/file/hfconfig.h"

#include "atom/base/mem.h"

#include <string.h>

static atom_status check_spelling(const char *path, const json_t *root)
{
    static const char *const names[] = {"vocab_size",
                                        "max_position_embeddings",
                                        "hidden_size",
                                        "intermediate_size",
                                        "num_hidden_layers",
                                        "num_attention_heads",
                                        "num_key_value_heads",
                                        "head_dim",
                                        "hidden_act",
                                        "rms_norm_eps",
                                        "initializer_range",
                                        "attention_dropout",
                                        "attention_bias",
                                        "mlp_bias",
                                        "tie_word_embeddings",
                                        "rope_theta",
                                        "rope_scaling",
                                        "rope_parameters",
                                        "partial_rotary_factor",
                                        "layer_types",
                                        "sliding_window",
                                        "no_rope_layers",
                                        "no_rope_layer_interval",
                                        "embedding_multiplier",
                                        "residual_multiplier",
                                        "attention_multiplier",
                                        "logits_scaling",
                                        "use_sliding_window",
                                        "max_window_layers"};
    return file_check_spelling(path, root, names, sizeof names / sizeof *names);
}

static atom_status check_mathematics(const char *path, const json_t *root)
{
    const json_t *act = atom_json_present(root, "hidden_act");
    const char *name = act ? json_string_value(act) : "silu";
    const json_t *part = atom_json_present(root, "partial_rotary_factor");
    if (!name || (strcmp(name, "silu") != 0 && strcmp(name, "swish") != 0))
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "%s: hidden_act: '%.64s' is not supported; only silu is", path,
                         name ? name : "(not a string)");
    if (atom_json_present(root, "quantization_config"))
        return file_not_supported(path, "quantization_config", "dequantise the model first");
    if (part && json_number_value(part) != 1)
        return file_not_supported(path, "partial_rotary_factor",
                                  "only rotary embeddings of whole heads are supported");
    if (json_object_size(atom_json_present(root, "pruned_heads")))
        return file_not_supported(path, "pruned_heads", "pruned models are not supported");
    return file_check_flag(path, root, "is_encoder_decoder", false);
}

/* Factors of the scaling that `type` names. */
static atom_status take_scaling(const char *path, const json_t *rope, const char *type,
                                graph_config *c)
{
    int64_t original;
    if (strcmp(type, "default") == 0 && file_is_neutral(atom_json_present(rope, "factor"), 1))
        return ATOM_OK;
    if (strcmp(type, "default") == 0)
        return atom_fail(ATOM_E_FORMAT, "%s: factor is there, but no rope_type that would use it",
                         path);
    if (strcmp(type, "linear") != 0 && strcmp(type, "llama3") != 0)
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "%s: rope_type: '%.64s' is not supported; default, linear and llama3 are",
                         path, type);
    if (!atom_json_present(rope, "factor"))
        return atom_fail(ATOM_E_FORMAT, "%s: rope_type '%s' has no factor", path, type);
    ATOM_TRY(file_take_real(path, rope, "factor", 1, &c->rope.factor));
    if (strcmp(type, "linear") == 0)
        return ATOM_OK;
    ATOM_TRY(file_take_real(path, rope, "low_freq_factor", 1, &c->rope.low));
    ATOM_TRY(file_take_real(path, rope, "high_freq_factor", 4, &c->rope.high));
    ATOM_TRY(file_take_int(path, rope, "original_max_position_embeddings", NULL, c->positions,
                           &original));
    c->rope.original = (float)original;
    return ATOM_OK;
}

/* What an object of numbers for the rotary embedding may hold; an empty one is none. */
static atom_status open_rope(const char *path, const json_t *root, const char *key,
                             const json_t **rope, const char **type)
{
    static const char *const known[] = {"rope_type",
                                        "type",
                                        "rope_theta",
                                        "factor",
                                        "low_freq_factor",
                                        "high_freq_factor",
                                        "original_max_position_embeddings",
                                        "partial_rotary_factor"};
    const char *name;
    json_t *value;
    *rope = atom_json_present(root, key);
    *type = "default";
    if (*rope && !json_is_object(*rope))
        return atom_fail(ATOM_E_FORMAT, "%s: %s must be an object", path, key);
    if (!json_object_size(*rope))
        *rope = NULL;
    if (atom_json_present(*rope, "full_attention") || atom_json_present(*rope, "sliding_attention"))
        return file_not_supported(path, key, "one for each type of layer is not supported");
    const json_t *says = atom_json_present(*rope, "rope_type"),
                 *old = atom_json_present(*rope, "type");
    says = says ? says : old;
    if ((says && !json_is_string(says)) || (old && !json_equal(says, old)))
        return atom_fail(ATOM_E_FORMAT, "%s: rope_type must be a string, and type the same", path);
    *type = says ? json_string_value(says) : *type;
    if (!file_is_neutral(atom_json_present(*rope, "partial_rotary_factor"), 1))
        return file_not_supported(path, "partial_rotary_factor",
                                  "only rotary embeddings of whole heads are supported");
    bool ours = strcmp(*type, "default") == 0 || strcmp(*type, "linear") == 0 ||
                strcmp(*type, "llama3") == 0;
    json_object_foreach((json_t *)(uintptr_t)*rope, name, value)
    {
        bool found = !ours || json_is_null(value); /* a type that is refused says it better */
        for (size_t i = 0; i < sizeof known / sizeof *known && !found; i++)
            found = strcmp(name, known[i]) == 0;
        if (!found)
            return atom_fail(ATOM_E_UNSUPPORTED, "%s: %s: '%.64s' is not known to rope_type '%s'",
                             path, key, name, *type);
    }
    return ATOM_OK;
}

/* rope_scaling with rope_theta beside it (4), or rope_parameters with it inside (5). */
static atom_status take_rope(const char *path, const json_t *root, graph_config *c)
{
    const json_t *scaling, *parameters;
    const char *type, *newer;
    ATOM_TRY(open_rope(path, root, "rope_scaling", &scaling, &type));
    ATOM_TRY(open_rope(path, root, "rope_parameters", &parameters, &newer));
    if (scaling && parameters &&
        (strcmp(type, newer) != 0 ||
         !json_equal(json_object_get(scaling, "factor"), json_object_get(parameters, "factor"))))
        return atom_fail(ATOM_E_FORMAT,
                         "%s: rope_scaling and rope_parameters contradict each other; take out the "
                         "one that is wrong",
                         path);
    const json_t *rope = scaling ? scaling : parameters;
    type = scaling ? type : newer;
    const json_t *where = atom_json_present(rope, "rope_theta")         ? rope
                          : atom_json_present(parameters, "rope_theta") ? parameters
                                                                        : root;
    ATOM_TRY(file_take_real(path, where, "rope_theta", (double)c->rope.theta, &c->rope.theta));
    return take_scaling(path, rope, type, c);
}

static atom_status take_sizes(const char *path, const json_t *root, graph_config *c)
{
    ATOM_TRY(file_take_int(path, root, "vocab_size", NULL, c->vocab_size, &c->vocab_size));
    ATOM_TRY(
        file_take_int(path, root, "max_position_embeddings", NULL, c->positions, &c->positions));
    ATOM_TRY(file_take_int(path, root, "hidden_size", NULL, c->width, &c->width));
    ATOM_TRY(file_take_int(path, root, "num_hidden_layers", NULL, c->layers, &c->layers));
    ATOM_TRY(file_take_int(path, root, "num_attention_heads", NULL, c->heads, &c->heads));
    ATOM_TRY(file_take_int(path, root, "intermediate_size", NULL, c->inner, &c->inner));
    if (c->kv_heads == 0 || json_is_null(json_object_get(root, "num_key_value_heads")))
        c->kv_heads = c->heads;
    ATOM_TRY(file_take_int(path, root, "num_key_value_heads", NULL, c->kv_heads, &c->kv_heads));
    bool derived = !atom_json_present(root, "head_dim") &&
                   (c->head_dim == 0 || json_is_null(json_object_get(root, "head_dim")));
    if (derived && c->width % c->heads != 0)
        return atom_fail(
            ATOM_E_FORMAT,
            "%s: hidden_size is %lld, which num_attention_heads %lld does not divide; set head_dim",
            path, (long long)c->width, (long long)c->heads);
    if (derived)
        c->head_dim = c->width / c->heads;
    return file_take_int(path, root, "head_dim", NULL, c->head_dim, &c->head_dim);
}

atom_status file_llama_take(const char *path, const json_t *root, graph_family family,
                            graph_config *c)
{
    atom_status st = ATOM_OK;
    graph_family_defaults(family, c);
    ATOM_TRY(check_spelling(path, root));
    ATOM_TRY(file_traits_check(path, root, graph_family_traits(family)));
    ATOM_TRY(check_mathematics(path, root));
    ATOM_TRY(take_sizes(path, root, c));
    ATOM_TRY(file_take_real(path, root, "rms_norm_eps", (double)c->epsilon, &c->epsilon));
    ATOM_TRY(file_take_real(path, root, "initializer_range", 0.02, &c->init_std));
    ATOM_TRY(file_take_real(path, root, "attention_dropout", 0, &c->attn_pdrop));
    ATOM_TRY(take_rope(path, root, c));
    ATOM_TRY(file_traits_take(path, root, c));
    file_take_name(root, family, c->name);
    st = graph_model_check(c);
    if (st != ATOM_OK)
        st = atom_fail_in(st, "%s: ", path);
    return st;
}

/* --- writing --------------------------------------------------------------------------------- */

/* rope_scaling of 4 (null: none), or rope_parameters of 5. */
static json_t *rope_json(const graph_config *c, bool parameters)
{
    const atom_rope *r = &c->rope;
    bool llama3 = r->original > 0, scaled = llama3 || r->factor < 1 || r->factor > 1;
    if (!scaled && !parameters)
        return json_null();
    json_t *rope = json_pack("{s:s}", "rope_type",
                             llama3   ? "llama3"
                             : scaled ? "linear"
                                      : "default");
    int failed = !rope;
    if (!failed && parameters)
        failed = json_object_set_new(rope, "rope_theta", json_real(file_neat(r->theta))) < 0;
    if (!failed && scaled)
        failed = json_object_set_new(rope, "factor", json_real(file_neat(r->factor))) < 0;
    if (!failed && llama3)
        failed = json_object_set_new(rope, "low_freq_factor", json_real(file_neat(r->low))) < 0 ||
                 json_object_set_new(rope, "high_freq_factor", json_real(file_neat(r->high))) < 0 ||
                 json_object_set_new(rope, "original_max_position_embeddings",
                                     json_integer((json_int_t)r->original)) < 0;
    if (!failed)
        return rope;
    json_decref(rope);
    return NULL;
}

/* What an imported file says stays; a model of our own ends its texts with the data's token. */
static int set_token(json_t *root, const char *key, int64_t end_token)
{
    if (atom_json_present(root, key))
        return 0;
    return json_object_set_new(root, key, end_token >= 0 ? json_integer(end_token) : json_null());
}

atom_status file_llama_set(json_t *root, const graph_config *c, int64_t end_token, bool kept)
{
    const char *family = graph_family_name(c->family);
    json_t *ours = json_pack(
        "{s:[s], s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:f, s:f, s:f, s:b, "
        "s:f, s:o, s:o, s:s}",
        "architectures", graph_family_traits(c->family)->class_name, "model_type", family,
        "vocab_size", (json_int_t)c->vocab_size, "hidden_size", (json_int_t)c->width,
        "intermediate_size", (json_int_t)c->inner, "num_hidden_layers", (json_int_t)c->layers,
        "num_attention_heads", (json_int_t)c->heads, "num_key_value_heads", (json_int_t)c->kv_heads,
        "head_dim", (json_int_t)c->head_dim, "max_position_embeddings", (json_int_t)c->positions,
        "hidden_act", "silu", "rms_norm_eps", file_neat(c->epsilon), "initializer_range",
        file_neat(c->init_std), "attention_dropout", file_neat(c->attn_pdrop),
        "tie_word_embeddings", (int)!c->untied, "rope_theta", file_neat(c->rope.theta),
        "rope_scaling", rope_json(c, false), "rope_parameters", rope_json(c, true), "_name_or_path",
        c->name[0] ? c->name : family);
    int failed = !ours || json_object_update(root, ours) < 0 || file_traits_set(root, c, kept) ||
                 set_token(root, "bos_token_id", end_token) < 0 ||
                 set_token(root, "eos_token_id", end_token) < 0;
    json_decref(ours);
    return failed ? atom_fail_memory("config.json", 0) : ATOM_OK;
}
