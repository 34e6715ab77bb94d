/*
 * Owns the keys of a config.json that only some of Llama's kin have: biases, tied heads, windows,
 * layers without a rotary embedding, multipliers.
 * One idea: the family's row (atom/graph/families.c) says which of them there are. Refuses what a
 * key asks for and the family has not.
 */
#include "atom/file/hfconfig.h"

#include <math.h>
#include <string.h>

/* The eps of norms under another family's name, where the default would be taken in its place. */
static atom_status check_eps(const char *path, const json_t *root, const graph_traits *traits)
{
    static const char *const names[] = {"rms_norm_eps", "layer_norm_eps",     "norm_eps",
                                        "norm_epsilon", "layer_norm_epsilon", "layernorm_epsilon"};
    const char *ours = names[traits->neox];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (atom_json_present(root, names[i]) && !atom_json_present(root, ours))
            return atom_fail(ATOM_E_FORMAT,
                             "%s: unknown key '%s', and there is no %s; did you mean %s?", path,
                             names[i], ours, ours);
    return ATOM_OK;
}

/* Keys of other families that change the mathematics, mostly without a tensor of their own that
 * would give them away. */
atom_status file_traits_check(const char *path, const json_t *root, const graph_traits *traits)
{
    const struct {
        const char *key;
        double neutral;
        bool ours;
    } keys[] = {{"attn_logit_softcapping", 0, traits->score_caps},
                {"final_logit_softcapping", 0, traits->caps},
                {"query_pre_attn_scalar", 0, traits->query_scalar},
                {"rope_local_base_freq", 0, traits->local_rope == GRAPH_LOCAL_ROPE_OWN},
                {"sliding_window_pattern", 0, traits->windows == GRAPH_WINDOW_MOST},
                {"use_bidirectional_attention", 0, false},
                {"hidden_activation", 0, traits->geglu},
                {"embedding_multiplier", 1, traits->multipliers},
                {"residual_multiplier", 1, traits->multipliers},
                {"attention_multiplier", 0, traits->multipliers},
                {"logits_scaling", 1, traits->multipliers},
                {"logit_scale", 1, false},
                {"no_rope_layers", 0, traits->nope},
                {"no_rope_layer_interval", 0, traits->nope},
                {"use_qk_norm", 0, false},
                {"qk_layernorm", 0, false},
                {"clip_qkv", 0, false},
                {"rotary_pct", 1, traits->neox},
                {"num_local_experts", 0, false},
                {"num_experts", 0, false},
                {"n_routed_experts", 0, false},
                {"alibi", 0, false},
                {"use_alibi", 0, false},
                {"qk_norm", 0, false},
                {"use_parallel_residual", 0, traits->neox},
                {"parallel_attn", 0, false},
                {"scale_emb", 1, false},
                {"hidden_dropout", 0, traits->neox},
                {"hidden_dropout_prob", 0, false},
                {"attention_probs_dropout_prob", 0, false},
                {"dropout", 0, false},
                {"resid_pdrop", 0, false},
                {"embd_pdrop", 0, false}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!keys[i].ours &&
            !file_is_neutral(atom_json_present(root, keys[i].key), keys[i].neutral))
            return file_not_supported(path, keys[i].key,
                                      "models of this model_type have no such thing; if the key "
                                      "has no effect, remove it");
    return check_eps(path, root, traits);
}

/* layer_types (5), or NULL: one known name for each layer, whether windows are used or not. */
static atom_status open_layer_types(const char *path, const json_t *root, const graph_config *c,
                                    const json_t **types)
{
    *types = atom_json_present(root, "layer_types");
    int64_t n = (int64_t)json_array_size(*types);
    if (*types && n != c->layers)
        return atom_fail(ATOM_E_FORMAT,
                         "%s: layer_types must be an array with one name for each of the %lld "
                         "layers",
                         path, (long long)c->layers);
    for (int64_t i = 0; i < n; i++) {
        const char *type = json_string_value(json_array_get(*types, (size_t)i));
        if (!type ||
            (strcmp(type, "full_attention") != 0 && strcmp(type, "sliding_attention") != 0))
            return file_not_supported(path, "layer_types",
                                      "only full_attention and sliding_attention are supported");
    }
    return ATOM_OK;
}

static bool type_is_full(const json_t *types, int64_t layer)
{
    return strcmp(json_string_value(json_array_get(types, (size_t)layer)), "full_attention") == 0;
}

/* How many layers, the first ones, they leave without a window; all there are where they are absent. */
static atom_status take_layer_types(const char *path, const json_t *root, const graph_config *c,
                                    int64_t *full)
{
    const json_t *types;
    ATOM_TRY(open_layer_types(path, root, c, &types));
    *full = 0;
    for (int64_t i = 0; types && i < c->layers; i++) {
        bool is_full = type_is_full(types, i);
        if (is_full && *full < i)
            return file_not_supported(path, "layer_types",
                                      "full_attention after sliding_attention is not supported");
        *full += is_full;
    }
    *full = types ? *full : c->layers;
    return ATOM_OK;
}

/* A family without windows: whatever asks for one is refused, unless it would see everything. */
static atom_status refuse_window(const char *path, const json_t *root, const graph_config *c,
                                 int64_t full)
{
    int64_t window = c->positions;
    bool used = true;
    ATOM_TRY(file_take_flag(path, root, "use_sliding_window", true, &used));
    if (!used)
        return ATOM_OK;
    ATOM_TRY(file_take_int(path, root, "sliding_window", NULL, c->positions, &window));
    if (window < c->positions)
        return file_not_supported(path, "sliding_window",
                                  "models of this model_type have no sliding window; if the key "
                                  "has no effect, remove it");
    if (full < c->layers)
        return file_not_supported(path, "layer_types",
                                  "models of this model_type have no sliding window: only "
                                  "full_attention is supported");
    return ATOM_OK;
}

/* Which layers see everything: layer_types (5) or sliding_window_pattern (4). Without either it is what
 * the class says. */
static atom_status take_pattern(const char *path, const json_t *root, graph_config *c)
{
    const char *key = "sliding_window_pattern";
    const json_t *types, *said = atom_json_present(root, key);
    int64_t first = 0;
    ATOM_TRY(open_layer_types(path, root, c, &types));
    if (said && graph_family_traits(c->family)->local_rope != GRAPH_LOCAL_ROPE_OWN)
        return file_not_supported(path, key,
                                  "models of this model_type have no such key; layer_types says "
                                  "which layers have a window");
    ATOM_TRY(file_take_int(path, root, key, NULL, c->full_every, &c->full_every));
    if (!types)
        return ATOM_OK;
    while (first < c->layers && !type_is_full(types, first))
        first++;
    int64_t every = first < c->layers ? first + 1 : 0;
    for (int64_t i = 0; i < c->layers; i++) {
        bool is_full = type_is_full(types, i);
        if (is_full != (every > 0 && (i + 1) % every == 0))
            return file_not_supported(path, "layer_types",
                                      "only full_attention at every n-th layer is supported");
        if (said && is_full != graph_layer_is_full(c, i))
            return atom_fail(ATOM_E_FORMAT,
                             "%s: layer_types and %s contradict each other; remove the wrong one",
                             path, key);
    }
    c->full_every = every;
    return ATOM_OK;
}

static atom_status take_most_windows(const char *path, const json_t *root, graph_config *c)
{
    ATOM_TRY(file_check_flag(path, root, "use_sliding_window", true));
    ATOM_TRY(take_pattern(path, root, c));
    if (json_is_null(json_object_get(root, "sliding_window")))
        return ATOM_OK;
    return file_take_int(path, root, "sliding_window", NULL, graph_family_traits(c->family)->window,
                         &c->window);
}

/* Only Qwen's class has this switch; others give their layers the window whatever it says. */
static atom_status check_switch(const char *path, const json_t *root, const graph_config *c)
{
    int64_t window = graph_family_traits(c->family)->window;
    if (json_is_null(json_object_get(root, "sliding_window")))
        return ATOM_OK;
    ATOM_TRY(file_take_int(path, root, "sliding_window", NULL, window, &window));
    if (window == 0 || window >= c->positions)
        return ATOM_OK;
    return file_not_supported(
        path, "use_sliding_window",
        "models of this model_type have no such switch, and transformers uses "
        "their sliding_window all the same; remove the key, or set "
        "sliding_window to null");
}

static atom_status take_window(const char *path, const json_t *root, graph_config *c)
{
    const graph_traits *traits = graph_family_traits(c->family);
    const json_t *all = atom_json_present(root, "max_window_layers");
    bool later = traits->windows == GRAPH_WINDOW_LATER, used = false;
    int64_t full;
    c->window = c->window_layers = 0;
    if (traits->windows == GRAPH_WINDOW_MOST)
        return take_most_windows(path, root, c);
    ATOM_TRY(take_layer_types(path, root, c, &full));
    if (traits->windows == GRAPH_WINDOW_NEVER)
        return refuse_window(path, root, c, full);
    ATOM_TRY(file_take_flag(path, root, "use_sliding_window", !later, &used));
    if (!used && !later)
        ATOM_TRY(check_switch(path, root, c));
    if (!used || json_is_null(json_object_get(root, "sliding_window")))
        return ATOM_OK;
    const json_t *said = atom_json_present(root, "sliding_window");
    bool seen =
        json_is_integer(said) && json_integer_value(said) >= c->positions && full == c->layers;
    if (full > 0 && said && !seen && traits->windows == GRAPH_WINDOW_ALL && !traits->typed_window &&
        atom_json_present(root, "layer_types"))
        return file_not_supported(
            path, "layer_types",
            "in models of this model_type all layers have the window of sliding_window; "
            "remove layer_types or set sliding_window to null");
    bool zero = json_is_integer(all) && json_integer_value(all) == 0;
    if (atom_json_present(root, "layer_types"))
        c->window_layers = full;
    else if (later && !zero)
        ATOM_TRY(file_take_int(path, root, "max_window_layers", NULL, 28, &c->window_layers));
    if (c->window_layers < c->layers)
        ATOM_TRY(file_take_int(path, root, "sliding_window", NULL, traits->window, &c->window));
    else
        c->window_layers = 0;
    return ATOM_OK;
}

static atom_status take_biases(const char *path, const json_t *root, graph_config *c)
{
    const graph_traits *traits = graph_family_traits(c->family);
    bool tied = false;
    ATOM_TRY(file_take_flag(path, root, "tie_word_embeddings", !c->untied, &tied));
    c->untied = !tied;
    if (traits->attention_bias) {
        ATOM_TRY(file_take_flag(path, root, "attention_bias", c->qkv_bias, &c->qkv_bias));
        c->o_bias = c->qkv_bias;
    }
    if (traits->mlp_bias)
        ATOM_TRY(file_take_flag(path, root, "mlp_bias", false, &c->mlp_bias));
    return ATOM_OK;
}

/* no_rope_layers lists what no_rope_layer_interval would say shorter: a 0 for each layer that turns
 * nothing. An interval that the model has too few layers for leaves no 0 in it. */
static atom_status take_nope(const char *path, const json_t *root, graph_config *c)
{
    const json_t *list = atom_json_present(root, "no_rope_layers");
    int64_t n = (int64_t)json_array_size(list), every = 0;
    if (!list)
        return file_take_int(path, root, "no_rope_layer_interval", NULL, c->nope_every,
                             &c->nope_every);
    if (n < c->layers)
        return atom_fail(ATOM_E_FORMAT,
                         "%s: no_rope_layers must be an array with a 0 or a 1 for each of the %lld "
                         "layers",
                         path, (long long)c->layers);
    for (int64_t i = 0; i < c->layers; i++) {
        const json_t *turns = json_array_get(list, (size_t)i);
        if (!json_is_integer(turns) ||
            (json_int_t)(json_integer_value(turns) != 0) != json_integer_value(turns))
            return atom_fail(ATOM_E_FORMAT, "%s: no_rope_layers has something other than 0 and 1",
                             path);
        if (json_integer_value(turns) == 0 && every == 0)
            every = i + 1;
        if ((json_integer_value(turns) == 0) != (every > 0 && (i + 1) % every == 0))
            return file_not_supported(path, "no_rope_layers",
                                      "only every n-th layer without a rotary embedding is "
                                      "supported");
    }
    const int64_t interval = json_integer_value(json_object_get(root, "no_rope_layer_interval"));
    c->nope_every = every == 0 && interval > c->layers ? interval : every;
    return ATOM_OK;
}

/* One above 0, as none of the models has otherwise. */
static atom_status take_multiplier(const char *path, const json_t *root, const char *key,
                                   float *out)
{
    ATOM_TRY(file_take_real(path, root, key, (double)*out, out));
    return *out > 0 ? ATOM_OK
                    : atom_fail(ATOM_E_FORMAT, "%s: %s is %g; it must be above 0", path, key,
                                (double)*out);
}

/* Null is none; the class has one or has not where the key is absent. */
static atom_status take_cap(const char *path, const json_t *root, const char *key, float *cap)
{
    if (!json_object_get(root, key))
        return ATOM_OK;
    *cap = 0;
    return atom_json_present(root, key) ? take_multiplier(path, root, key, cap) : ATOM_OK;
}

static atom_status take_caps(const char *path, const json_t *root, graph_config *c)
{
    if (graph_family_traits(c->family)->score_caps)
        ATOM_TRY(take_cap(path, root, "attn_logit_softcapping", &c->attn_cap));
    return take_cap(path, root, "final_logit_softcapping", &c->final_cap);
}

static atom_status take_multipliers(const char *path, const json_t *root, graph_config *c)
{
    ATOM_TRY(take_multiplier(path, root, "embedding_multiplier", &c->embedding_scale));
    ATOM_TRY(take_multiplier(path, root, "residual_multiplier", &c->residual_scale));
    ATOM_TRY(take_multiplier(path, root, "attention_multiplier", &c->attention_scale));
    return take_multiplier(path, root, "logits_scaling", &c->logits_divisor);
}

atom_status file_traits_take(const char *path, const json_t *root, graph_config *c)
{
    const graph_traits *traits = graph_family_traits(c->family);
    ATOM_TRY(take_biases(path, root, c));
    if (traits->nope)
        ATOM_TRY(take_nope(path, root, c));
    if (traits->multipliers)
        ATOM_TRY(take_multipliers(path, root, c));
    if (traits->caps)
        ATOM_TRY(take_caps(path, root, c));
    if (traits->query_scalar)
        ATOM_TRY(take_multiplier(path, root, "query_pre_attn_scalar", &c->query_scalar));
    return take_window(path, root, c);
}

/* Which layers have a window where not all have or none has. */
static int set_layer_types(json_t *root, const graph_config *c)
{
    json_t *types = json_array();
    int failed = !types;
    for (int64_t i = 0; i < c->layers && !failed; i++) {
        const char *type = graph_layer_is_full(c, i) ? "full_attention" : "sliding_attention";
        failed = json_array_append_new(types, json_string(type)) < 0;
    }
    failed = failed || json_object_set(root, "layer_types", types) < 0;
    json_decref(types);
    return failed;
}

/* What an imported file says of windows stays as it is. */
static int set_window(json_t *root, const graph_config *c)
{
    graph_windows windows = graph_family_traits(c->family)->windows;
    json_t *window = c->window ? json_integer(c->window) : json_null();
    if (windows == GRAPH_WINDOW_NEVER) {
        json_decref(window);
        return 0;
    }
    /* of fewer layers than the pattern's none sees everything */
    int64_t every = c->full_every > 0 ? c->full_every : c->layers + 1;
    return json_object_set_new(root, "sliding_window", window) < 0 ||
           (windows == GRAPH_WINDOW_MOST &&
            (set_layer_types(root, c) ||
             (graph_family_traits(c->family)->local_rope == GRAPH_LOCAL_ROPE_OWN &&
              json_object_set_new(root, "sliding_window_pattern", json_integer(every)) < 0))) ||
           (windows == GRAPH_WINDOW_ALL && c->window_layers && set_layer_types(root, c)) ||
           (windows == GRAPH_WINDOW_LATER &&
            (json_object_set_new(root, "use_sliding_window", json_boolean(c->window > 0)) < 0 ||
             json_object_set_new(root, "max_window_layers",
                                 json_integer(c->window ? c->window_layers : c->layers)) < 0));
}

/* transformers divides by the interval, so where all layers turn it stays away. */
static int set_nope(json_t *root, const graph_config *c)
{
    json_t *list = json_array();
    int failed = !list;
    for (int64_t i = 0; i < c->layers && !failed; i++) {
        bool turns = c->nope_every == 0 || (i + 1) % c->nope_every != 0;
        failed = json_array_append_new(list, json_integer(turns)) < 0;
    }
    failed = failed || json_object_set(root, "no_rope_layers", list) < 0;
    json_decref(list);
    if (!failed && c->nope_every)
        failed =
            json_object_set_new(root, "no_rope_layer_interval", json_integer(c->nope_every)) < 0;
    return failed;
}

static int set_multipliers(json_t *root, const graph_config *c)
{
    json_t *ours =
        json_pack("{s:f, s:f, s:f, s:f}", "embedding_multiplier", file_neat(c->embedding_scale),
                  "residual_multiplier", file_neat(c->residual_scale), "attention_multiplier",
                  file_neat(c->attention_scale), "logits_scaling", file_neat(c->logits_divisor));
    int failed = !ours || json_object_update(root, ours) < 0;
    json_decref(ours);
    return failed;
}

static int set_cap(json_t *root, const char *key, float cap)
{
    return json_object_set_new(root, key, cap > 0 ? json_real(file_neat(cap)) : json_null()) < 0;
}

static int set_caps(json_t *root, const graph_config *c)
{
    return set_cap(root, "attn_logit_softcapping", c->attn_cap) ||
           set_cap(root, "final_logit_softcapping", c->final_cap);
}

/* transformers 5 takes it for a whole number. */
static int set_query_scalar(json_t *root, const graph_config *c)
{
    double value = file_neat(c->query_scalar);
    bool whole = value == floor(value) && value < 1e9;
    return json_object_set_new(root, "query_pre_attn_scalar",
                               whole ? json_integer((json_int_t)value) : json_real(value));
}

int file_traits_set(json_t *root, const graph_config *c, bool kept)
{
    const graph_traits *traits = graph_family_traits(c->family);
    return (traits->nope && set_nope(root, c)) ||
           (traits->multipliers && set_multipliers(root, c)) ||
           (traits->query_scalar && set_query_scalar(root, c)) ||
           (traits->caps && set_caps(root, c)) ||
           (traits->geglu &&
            json_object_set_new(root, "hidden_activation", json_string("gelu_pytorch_tanh")) < 0) ||
           (traits->attention_bias &&
            json_object_set_new(root, "attention_bias", json_boolean(c->qkv_bias)) < 0) ||
           (traits->mlp_bias &&
            json_object_set_new(root, "mlp_bias", json_boolean(c->mlp_bias)) < 0) ||
           (!kept && set_window(root, c));
}
