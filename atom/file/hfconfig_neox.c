/*
 * Owns config.json of GPT-NeoX, both ways, as transformers 4 and 5 write it. One idea: its own words
 * for the rotary embedding (rotary_pct, rotary_emb_base) are turned into those of the other families,
 * and hfconfig_rope.c reads these; transformers lets its own words win over the others, so that others
 * that say something else are refused. Refuses activations other than GELU, and what only other
 * families have. Source: docs/design/files.md#model-directories.
 */
#include "atom/file/hfconfig.h"

#include "atom/base/mem.h"

#include <string.h>

static const char PCT[] = "rotary_pct", BASE[] = "rotary_emb_base";

static atom_status check_spelling(const char *path, const json_t *root)
{
    static const char *const names[] = {"vocab_size",
                                        "max_position_embeddings",
                                        "hidden_size",
                                        "intermediate_size",
                                        "num_hidden_layers",
                                        "num_attention_heads",
                                        "hidden_act",
                                        "layer_norm_eps",
                                        "initializer_range",
                                        "attention_dropout",
                                        "hidden_dropout",
                                        "classifier_dropout",
                                        "hidden_dropout_prob", /* of the 20B's file, and 0 */
                                        "attention_probs_dropout_prob",
                                        "attention_bias",
                                        "use_parallel_residual",
                                        "tie_word_embeddings",
                                        "rotary_pct",
                                        "rotary_emb_base",
                                        "rope_theta",
                                        "rope_scaling",
                                        "rope_parameters",
                                        "partial_rotary_factor",
                                        "original_max_position_embeddings"};
    return file_check_spelling(path, root, names, sizeof names / sizeof *names);
}

/* Names of one function in transformers: the exact GELU, or its tanh form. */
static atom_status take_activation(const char *path, const json_t *root, bool *tanh_gelu)
{
    static const char *const names[] = {"gelu_new", "gelu_fast", "gelu_pytorch_tanh"};
    const json_t *act = atom_json_present(root, "hidden_act");
    const char *name = act ? json_string_value(act) : "gelu";
    *tanh_gelu = false;
    for (size_t i = 0; name && i < sizeof names / sizeof *names; i++)
        *tanh_gelu |= strcmp(name, names[i]) == 0;
    if (*tanh_gelu || (name && strcmp(name, "gelu") == 0))
        return ATOM_OK;
    return atom_fail(ATOM_E_UNSUPPORTED,
                     "%s: hidden_act: '%.64s' is not supported; gelu, gelu_new, gelu_fast and "
                     "gelu_pytorch_tanh are",
                     path, name ? name : "(not a string)");
}

/* What follows from the other sizes in this family, where a file says it. */
static atom_status check_derived(const char *path, const json_t *root, const char *key,
                                 int64_t value)
{
    int64_t said;
    ATOM_TRY(file_take_int(path, root, key, NULL, value, &said));
    if (said == value)
        return ATOM_OK;
    return atom_fail(ATOM_E_UNSUPPORTED,
                     "%s: %s is %lld, but models of this model_type have no such key, and it would "
                     "have to be %lld; if the key has no effect, remove it",
                     path, key, (long long)said, (long long)value);
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
    c->kv_heads = c->heads;
    c->head_dim = c->width / c->heads;
    ATOM_TRY(check_derived(path, root, "num_key_value_heads", c->kv_heads));
    return check_derived(path, root, "head_dim", c->head_dim);
}

static atom_status take_reals(const char *path, const json_t *root, graph_config *c)
{
    ATOM_TRY(file_take_real(path, root, "layer_norm_eps", (double)c->epsilon, &c->epsilon));
    ATOM_TRY(file_take_real(path, root, "initializer_range", 0.02, &c->init_std));
    ATOM_TRY(file_take_real(path, root, "attention_dropout", 0, &c->attn_pdrop));
    ATOM_TRY(file_take_real(path, root, "hidden_dropout", 0, &c->resid_pdrop));
    c->embd_pdrop = c->resid_pdrop;
    return ATOM_OK;
}

/* A number of the rotary embedding inside one of the objects, or NULL. */
static const json_t *inside(const json_t *root, const char *key)
{
    const json_t *a = atom_json_present(atom_json_present(root, "rope_scaling"), key);
    return a ? a : atom_json_present(atom_json_present(root, "rope_parameters"), key);
}

/* `own` as the other families call it: into root, a copy. A number under their name beside it counts for
 * nothing in transformers, so it may only say the same. */
static atom_status rename_key(const char *path, json_t *root, const char *own, const char *general,
                              double fallback)
{
    const json_t *in = inside(root, general), *beside = atom_json_present(root, general);
    const json_t *from = atom_json_present(root, own);
    double value = fallback;
    if (from)
        ATOM_TRY(atom_json_real(path, root, own, 0, 1e12, &value));
    else if (in && json_is_number(in))
        value = json_number_value(in);
    if (beside && !(json_is_number(beside) && json_number_value(beside) == value))
        return atom_fail(ATOM_E_FORMAT,
                         "%s: %s differs from %s, which is %g and what transformers takes for "
                         "models of this model_type; make them the same",
                         path, general, own, value);
    if (in && !(json_is_number(in) && json_number_value(in) == value))
        return atom_fail(ATOM_E_FORMAT,
                         "%s: %s is %g, but %s among the rope's keys differs; make them the same",
                         path, own, value, general);
    return json_object_set_new(root, general, json_real(value)) ? atom_fail_memory("config.json", 0)
                                                                : ATOM_OK;
}

static atom_status check_part(const char *path, const json_t *general, const graph_config *c)
{
    double part = json_number_value(json_object_get(general, "partial_rotary_factor"));
    if (part <= 1 && part * (double)c->head_dim >= 2)
        return ATOM_OK;
    return atom_fail(
        ATOM_E_FORMAT,
        "%s: %s is %g; it must be at most 1 and leave at least two of the %lld channels "
        "of a head",
        path, PCT, part, (long long)c->head_dim);
}

static atom_status take_rope(const char *path, const json_t *root, graph_config *c)
{
    json_t *general = json_copy((json_t *)(uintptr_t)root);
    atom_status st;
    if (!general)
        return atom_fail_memory("config.json", 0);
    ATOM_TRY_CLEAN(rename_key(path, general, PCT, "partial_rotary_factor", 0.25));
    ATOM_TRY_CLEAN(check_part(path, general, c));
    ATOM_TRY_CLEAN(rename_key(path, general, BASE, "rope_theta", 1e4));
    ATOM_TRY_CLEAN(file_rope_take(path, general, c));
cleanup:
    json_decref(general);
    return st;
}

atom_status file_neox_take(const char *path, const json_t *root, graph_family family,
                           graph_config *c)
{
    atom_status st = ATOM_OK;
    graph_family_defaults(family, c);
    ATOM_TRY(check_spelling(path, root));
    ATOM_TRY(file_traits_check(path, root, graph_family_traits(family)));
    ATOM_TRY(file_check_plain(path, root));
    ATOM_TRY(take_activation(path, root, &c->tanh_gelu));
    ATOM_TRY(take_sizes(path, root, c));
    ATOM_TRY(take_reals(path, root, c));
    ATOM_TRY(file_take_flag(path, root, "use_parallel_residual", true, &c->parallel));
    ATOM_TRY(take_rope(path, root, c));
    ATOM_TRY(file_traits_take(path, root, c));
    file_take_name(root, family, c->name);
    st = graph_model_check(c);
    if (st != ATOM_OK)
        st = atom_fail_in(st, "%s: ", path);
    return st;
}

/* --- writing --------------------------------------------------------------------------------- */

/* A whole head is written down, too: where the number is missing a quarter is meant. */
static int set_rope(json_t *root, const graph_config *c)
{
    int failed = file_rope_set(root, c);
    json_t *parameters = json_object_get(root, "rope_parameters");
    json_t *part = file_rope_part(c);
    failed = failed || !part || json_object_set(root, PCT, part) < 0 ||
             json_object_set(root, "partial_rotary_factor", part) < 0 ||
             (json_is_object(parameters) &&
              json_object_set(parameters, "partial_rotary_factor", part) < 0) ||
             json_object_set_new(root, BASE, json_real(file_neat(c->rope.theta))) < 0;
    json_decref(part);
    return failed;
}

atom_status file_neox_set(json_t *root, const graph_config *c, const file_ends *ends, bool kept)
{
    const char *family = graph_family_name(c->family);
    const char *act = json_string_value(atom_json_present(root, "hidden_act"));
    act = act ? act : c->tanh_gelu ? "gelu_pytorch_tanh" : "gelu";
    json_t *ours = json_pack(
        "{s:[s], s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:f, s:f, s:f, s:f, s:b, s:b, s:s}",
        "architectures", graph_family_traits(c->family)->class_name, "model_type", family,
        "vocab_size", (json_int_t)c->vocab_size, "hidden_size", (json_int_t)c->width,
        "intermediate_size", (json_int_t)c->inner, "num_hidden_layers", (json_int_t)c->layers,
        "num_attention_heads", (json_int_t)c->heads, "max_position_embeddings",
        (json_int_t)c->positions, "hidden_act", act, "layer_norm_eps", file_neat(c->epsilon),
        "initializer_range", file_neat(c->init_std), "attention_dropout", file_neat(c->attn_pdrop),
        "hidden_dropout", file_neat(c->resid_pdrop), "use_parallel_residual", (int)c->parallel,
        "tie_word_embeddings", c->tied_files || !c->untied, "_name_or_path",
        c->name[0] ? c->name : family);
    int failed = !ours || json_object_update(root, ours) < 0 || set_rope(root, c) ||
                 file_traits_set(root, c, kept) ||
                 file_set_token(root, "bos_token_id", ends->start) < 0 ||
                 file_set_token(root, "eos_token_id", ends->end) < 0;
    json_decref(ours);
    return failed ? atom_fail_memory("config.json", 0) : ATOM_OK;
}
