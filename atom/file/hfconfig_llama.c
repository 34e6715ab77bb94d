/*
 * Owns config.json of Llama and its kin, both ways, as transformers 4 and 5 write it. One idea:
 * absent keys get the defaults of the family's class; keys that only some families have are in
 * hfconfig_traits.c, those of the rotary embedding in hfconfig_rope.c. Refuses other activations and
 * quantised models by name. Source:
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
                                        "hidden_activation",
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
                                        "original_max_position_embeddings",
                                        "layer_types",
                                        "sliding_window",
                                        "no_rope_layers",
                                        "no_rope_layer_interval",
                                        "embedding_multiplier",
                                        "residual_multiplier",
                                        "attention_multiplier",
                                        "logits_scaling",
                                        "use_sliding_window",
                                        "max_window_layers",
                                        "sliding_window_pattern",
                                        "_sliding_window_pattern",
                                        "rope_local_base_freq",
                                        "query_pre_attn_scalar",
                                        "attn_logit_softcapping",
                                        "final_logit_softcapping"};
    return file_check_spelling(path, root, names, sizeof names / sizeof *names);
}

/* Each function has two names. */
static atom_status check_activation(const char *path, const json_t *root, const char *key,
                                    bool gelu)
{
    static const char *const names[2][2] = {{"silu", "swish"}, {"gelu_pytorch_tanh", "gelu_new"}};
    const json_t *act = atom_json_present(root, key);
    const char *name = act ? json_string_value(act) : names[gelu][0];
    if (name && (strcmp(name, names[gelu][0]) == 0 || strcmp(name, names[gelu][1]) == 0))
        return ATOM_OK;
    return atom_fail(ATOM_E_UNSUPPORTED, "%s: %s: '%.64s' is not supported; only %s is", path, key,
                     name ? name : "(not a string)", names[gelu][0]);
}

static atom_status check_mathematics(const char *path, const json_t *root,
                                     const graph_traits *traits)
{
    ATOM_TRY(check_activation(path, root, "hidden_act", traits->geglu));
    if (traits->geglu)
        ATOM_TRY(check_activation(path, root, "hidden_activation", true));
    return file_check_plain(path, root);
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
            "%s: hidden_size %lld is not a multiple of num_attention_heads %lld; set head_dim",
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
    ATOM_TRY(check_mathematics(path, root, graph_family_traits(family)));
    ATOM_TRY(take_sizes(path, root, c));
    ATOM_TRY(file_take_real(path, root, "rms_norm_eps", (double)c->epsilon, &c->epsilon));
    ATOM_TRY(file_take_real(path, root, "initializer_range", 0.02, &c->init_std));
    ATOM_TRY(file_take_real(path, root, "attention_dropout", 0, &c->attn_pdrop));
    ATOM_TRY(file_rope_take(path, root, c));
    ATOM_TRY(file_traits_take(path, root, c));
    file_take_name(root, family, c->name);
    st = graph_model_check(c);
    if (st != ATOM_OK)
        st = atom_fail_in(st, "%s: ", path);
    return st;
}

/* --- writing --------------------------------------------------------------------------------- */

/* What an imported file says stays; a model of our own ends its texts with the data's token. */
int file_set_token(json_t *root, const char *key, int64_t token)
{
    if (atom_json_present(root, key))
        return 0;
    return json_object_set_new(root, key, token >= 0 ? json_integer(token) : json_null());
}

atom_status file_llama_set(json_t *root, const graph_config *c, const file_ends *ends, bool kept)
{
    const char *family = graph_family_name(c->family);
    json_t *ours = json_pack(
        "{s:[s], s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:f, s:f, s:f, s:b, "
        "s:s}",
        "architectures", graph_family_traits(c->family)->class_name, "model_type", family,
        "vocab_size", (json_int_t)c->vocab_size, "hidden_size", (json_int_t)c->width,
        "intermediate_size", (json_int_t)c->inner, "num_hidden_layers", (json_int_t)c->layers,
        "num_attention_heads", (json_int_t)c->heads, "num_key_value_heads", (json_int_t)c->kv_heads,
        "head_dim", (json_int_t)c->head_dim, "max_position_embeddings", (json_int_t)c->positions,
        "hidden_act", graph_family_traits(c->family)->geglu ? "gelu_pytorch_tanh" : "silu",
        "rms_norm_eps", file_neat(c->epsilon), "initializer_range", file_neat(c->init_std),
        "attention_dropout", file_neat(c->attn_pdrop), "tie_word_embeddings",
        c->tied_files || !c->untied, "_name_or_path", c->name[0] ? c->name : family);
    int failed = !ours || json_object_update(root, ours) < 0 || file_rope_set(root, c) ||
                 file_traits_set(root, c, kept) ||
                 file_set_token(root, "bos_token_id", ends->start) < 0 ||
                 file_set_token(root, "eos_token_id", ends->end) < 0;
    json_decref(ours);
    return failed ? atom_fail_memory("config.json", 0) : ATOM_OK;
}
