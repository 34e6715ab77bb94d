/*
 * Owns which modules of a model an adapter's configuration means, and the graph that trains them.
 * One idea: a module is what the files have under one name, so targets are the slices of the
 * linears' weights that hfnames lists, and a module that is trained whole is all slices of its
 * parameters. Chooses as PEFT does, by names' ends or by patterns; refuses names that choose
 * nothing.
 */
#include "atom/file/peft_inner.h"

#include "atom/base/mem.h"
#include "atom/file/hfweights.h"
#include "atom/file/pattern.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static const char CONFIG[] = "adapter_config.json";

/* --- patterns --------------------------------------------------------------------------------- */

typedef struct patterns {
    file_pattern **each;
    double *value;
    uint8_t *met; /* which of them matched a module that has an adapter */
    uint32_t n;
} patterns;

static void patterns_close(patterns *p)
{
    for (uint32_t i = 0; i < p->n; i++)
        file_pattern_close(&p->each[i]);
    atom_free(p->each);
    atom_free(p->value);
    atom_free(p->met);
    *p = (patterns){0};
}

static atom_status add_pattern(patterns *p, const char *path, const char *key, const char *before,
                               const char *text, const char *after, double value)
{
    char *where = atom_format("%s: %s", path, key),
         *whole = atom_format("%s%s%s", before, text, after);
    atom_status st = where && whole ? ATOM_OK : atom_fail_memory("a pattern", strlen(text));
    if (st == ATOM_OK)
        st = file_pattern_open(where, whole, &p->each[p->n]);
    if (st == ATOM_OK)
        p->value[p->n++] = value;
    atom_free(where);
    atom_free(whole);
    return st;
}

/* A text, a list of them, or the keys of an object with their numbers; NULL is none. */
static atom_status patterns_open(patterns *p, const char *path, const char *key, const json_t *from,
                                 const char *before, const char *after)
{
    atom_status st = ATOM_OK;
    size_t n = json_is_string(from) ? 1 : json_array_size(from) + json_object_size(from);
    *p = (patterns){.each = atom_alloc(n + 1, sizeof(file_pattern *)),
                    .value = atom_alloc(n + 1, sizeof(double)),
                    .met = atom_alloc(n + 1, 1)};
    if (!p->each || !p->value || !p->met)
        return atom_fail_memory("patterns", n * sizeof(double));
    if (json_is_string(from))
        return add_pattern(p, path, key, before, json_string_value(from), after, 0);
    for (size_t i = 0; i < json_array_size(from) && st == ATOM_OK; i++)
        st =
            add_pattern(p, path, key, before, json_string_value(json_array_get(from, i)), after, 0);
    for (void *at = json_object_iter((json_t *)from); at && st == ATOM_OK;
         at = json_object_iter_next((json_t *)from, at))
        st = add_pattern(p, path, key, before, json_object_iter_key(at), after,
                         json_number_value(json_object_iter_value(at)));
    return st;
}

/* --- choosing --------------------------------------------------------------------------------- */

typedef struct chooser {
    const file_lora *lora;
    const char *prefix;
    const json_t *names;  /* target_modules where that is a list */
    const json_t *layers; /* layers_to_transform; NULL: all of them */
    patterns target, exclude, layer, rank, alpha;
    uint8_t *met; /* by name */
} chooser;

static void chooser_close(chooser *c)
{
    patterns_close(&c->target);
    patterns_close(&c->exclude);
    patterns_close(&c->layer);
    patterns_close(&c->rank);
    patterns_close(&c->alpha);
    atom_free(c->met);
}

static bool is_set(const json_t *list)
{
    return json_is_integer(list) || json_array_size(list) > 0 || json_object_size(list) > 0 ||
           (json_is_string(list) && *json_string_value(list));
}

/* path: for messages. prefix may be NULL where nothing is chosen. */
static atom_status chooser_open(chooser *c, const char *path, const json_t *config)
{
    const json_t *targets = json_object_get(config, "target_modules");
    const json_t *exclude = json_object_get(config, "exclude_modules");
    const json_t *layers = json_object_get(config, "layers_to_transform");
    const json_t *pattern = json_object_get(config, "layers_pattern");
    const char *text = json_string_value(targets);
    bool chosen_by = text && strcasecmp(text, FILE_LORA_ALL) != 0;
    c->names = json_is_array(targets) ? targets : NULL;
    c->layers = is_set(layers) ? layers : NULL;
    c->met = atom_alloc(json_array_size(c->names) + 1, 1);
    if (!c->met)
        return atom_fail_memory("names", json_array_size(c->names));
    ATOM_TRY(patterns_open(&c->target, path, "target_modules", chosen_by ? targets : NULL, "", ""));
    ATOM_TRY(patterns_open(&c->exclude, path, "exclude_modules",
                           json_is_string(exclude) ? exclude : NULL, "", ""));
    ATOM_TRY(patterns_open(&c->layer, path, "layers_pattern", is_set(pattern) ? pattern : NULL,
                           ".*\\.", "\\.(\\d+)\\."));
    if (c->layers && c->layer.n == 0)
        ATOM_TRY(
            add_pattern(&c->layer, path, "layers_pattern", "", ".*\\.[^.]*\\.(\\d+)\\.", "", 0));
    ATOM_TRY(patterns_open(&c->rank, path, "rank_pattern", json_object_get(config, "rank_pattern"),
                           "(?:.*\\.)?(?:", ")"));
    return patterns_open(&c->alpha, path, "alpha_pattern", json_object_get(config, "alpha_pattern"),
                         "(?:.*\\.)?(?:", ")");
}

atom_status file_lora_check_patterns(const char *path, const json_t *config)
{
    chooser c = {0};
    atom_status st = chooser_open(&c, path, config);
    chooser_close(&c);
    return st;
}

static bool ends_with(const char *name, const char *end)
{
    size_t m = strlen(name), n = strlen(end);
    return m >= n && strcmp(name + m - n, end) == 0 && (m == n || name[m - n - 1] == '.');
}

static atom_status is_excluded(chooser *c, const char *full, bool *yes)
{
    const json_t *list = json_object_get(c->lora->config, "exclude_modules");
    *yes = false;
    for (size_t i = 0; i < json_array_size(list); i++)
        *yes |= ends_with(full, json_string_value(json_array_get(list, i)));
    return c->exclude.n ? file_pattern_whole(c->exclude.each[0], full, yes) : ATOM_OK;
}

/* -1: it is in none. */
static atom_status layer_of(const chooser *c, const char *full, int64_t *layer)
{
    *layer = -1;
    for (uint32_t i = 0; i < c->layer.n && *layer < 0; i++)
        ATOM_TRY(file_pattern_number(c->layer.each[i], full, layer));
    return ATOM_OK;
}

static atom_status in_layers(chooser *c, const char *full, bool *yes)
{
    int64_t layer;
    ATOM_TRY(layer_of(c, full, &layer));
    *yes = json_is_integer(c->layers) && json_integer_value(c->layers) == layer;
    for (size_t i = 0; i < json_array_size(c->layers); i++)
        *yes |= json_integer_value(json_array_get(c->layers, i)) == layer;
    *yes &= layer >= 0;
    return ATOM_OK;
}

/* full: the module's name with the prefix. Notes which of the names it met. */
static atom_status is_chosen(chooser *c, const char *full, bool head, bool *yes)
{
    bool excluded;
    *yes = !c->names && !head;
    if (c->target.n)
        ATOM_TRY(file_pattern_whole(c->target.each[0], full, yes));
    for (size_t i = 0; i < json_array_size(c->names); i++) {
        bool met = ends_with(full, json_string_value(json_array_get(c->names, i)));
        c->met[i] |= met;
        *yes |= met;
    }
    ATOM_TRY(is_excluded(c, full, &excluded));
    *yes &= !excluded;
    return *yes && c->layers ? in_layers(c, full, yes) : ATOM_OK;
}

static atom_status first_value(patterns *p, const char *full, double fallback, double *out)
{
    bool matches = false, found = false;
    *out = fallback;
    for (uint32_t i = 0; i < p->n; i++) {
        ATOM_TRY(file_pattern_whole(p->each[i], full, &matches));
        if (matches && !found)
            *out = p->value[i];
        found |= matches;
        p->met[i] |= matches;
    }
    return ATOM_OK;
}

static float scale_of(const file_lora *lora, double rank, double alpha)
{
    return (float)(alpha / (lora->rslora ? sqrt(rank) : rank));
}

graph_lora_config file_lora_settings(const file_lora *lora)
{
    return (graph_lora_config){.rank = lora->rank,
                               .scale = scale_of(lora, (double)lora->rank, lora->alpha),
                               .dropout = (float)lora->dropout,
                               .dora = lora->dora};
}

/* --- targets ---------------------------------------------------------------------------------- */

void file_lora_tensor_name(const graph *g, const char *name, char out[FILE_LORA_NAME_MAX])
{
    bool head = file_is_head(g, name);
    snprintf(out, FILE_LORA_NAME_MAX, "base_model.model.%s%s", head ? "" : file_prefix(g), name);
}

/* A slice of a linear's own weight, as a module; false: it is nothing of the kind. */
static bool module_of(const graph *g, const file_slice *s, graph_target *out)
{
    const graph_param *p = &g->params[s->param];
    size_t n = strlen(s->name), end = strlen(".weight");
    atom_op op = g->nodes[p->first_node].op;
    bool product = op == ATOM_OP_linear || op == ATOM_OP_linear_gelu || op == ATOM_OP_classifier;
    if (p->rank != 2 || p->shared || !product || n <= end ||
        strcmp(s->name + n - end, ".weight") != 0 || n - end >= GRAPH_NAME_MAX)
        return false;
    *out = (graph_target){.param = (int32_t)s->param,
                          .first = (int64_t)s->first / p->dims[1],
                          .rows = (int64_t)s->elements / p->dims[1]};
    memcpy(out->name, s->name, n - end);
    return true;
}

static const char *last_word(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

/* ", " and the last words of the modules' names, each once. */
static void list_modules(const graph *g, const file_slice *slices, uint32_t n, char *text,
                         size_t room)
{
    size_t used = 0;
    graph_target t;
    text[0] = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!module_of(g, &slices[i], &t))
            continue;
        const char *word = last_word(t.name);
        if (!strstr(text, word) && used + strlen(word) + 3 < room)
            used += (size_t)snprintf(text + used, room - used, "%s%s", used ? ", " : "", word);
    }
}

static atom_status check_met(const chooser *c, const graph *g, const file_slice *slices, uint32_t n)
{
    char known[256];
    for (size_t i = 0; i < json_array_size(c->names); i++) {
        const char *name = json_string_value(json_array_get(c->names, i));
        if (c->met[i])
            continue;
        if (ends_with(file_head(g), name))
            return atom_fail(
                ATOM_E_USAGE,
                "lora_target_modules: in this model %s is the embedding (they are tied), "
                "which cannot have an adapter; leave %s out, or train the whole model",
                file_head(g), file_head(g));
        list_modules(g, slices, n, known, sizeof known);
        return atom_fail(ATOM_E_USAGE,
                         "lora_target_modules: no linear layer of this model is named '%.64s'; "
                         "the model has %s",
                         name, known);
    }
    return ATOM_OK;
}

/* Of a run's own keys: a name that no adapter has. Adapters of others may have such, which PEFT passes
 * over. */
static atom_status check_asked(const chooser *c)
{
    const struct {
        const patterns *p;
        const char *key, *name;
    } each[] = {{&c->rank, "rank_pattern", "lora_rank_pattern"},
                {&c->alpha, "alpha_pattern", "lora_alpha_pattern"}};
    for (size_t k = 0; k < sizeof each / sizeof *each; k++) {
        json_t *object = json_object_get(c->lora->config, each[k].key);
        void *at = json_object_iter(object);
        for (uint32_t i = 0; i < each[k].p->n; i++, at = json_object_iter_next(object, at))
            if (!each[k].p->met[i])
                return atom_fail(ATOM_E_USAGE,
                                 "%s: no layer that gets an adapter is named '%.64s'; correct "
                                 "it, or leave it out",
                                 each[k].name, json_object_iter_key(at));
    }
    return ATOM_OK;
}

/* Of a run's own keys: a block that the model has not. top: the last block with a linear layer, -1 where
 * none of them is in a block, so that none is chosen at all. */
static atom_status check_layers(const chooser *c, int64_t top)
{
    for (size_t i = 0; i < json_array_size(c->layers) && top >= 0; i++)
        if (json_integer_value(json_array_get(c->layers, i)) > top)
            return atom_fail(ATOM_E_USAGE,
                             "lora_layers: there is no block %lld; this model has blocks 0 to "
                             "%lld",
                             (long long)json_integer_value(json_array_get(c->layers, i)),
                             (long long)top);
    return ATOM_OK;
}

static atom_status find_targets(chooser *c, const graph *g, const file_slice *slices,
                                uint32_t n_slices, graph_target *targets, uint32_t *n)
{
    char full[FILE_NAME_MAX + 16], known[256];
    double rank, alpha;
    bool chosen;
    int64_t layer, top = -1;
    for (uint32_t i = 0; i < n_slices; i++) {
        graph_target *t = &targets[*n];
        if (!module_of(g, &slices[i], t))
            continue;
        bool head = file_is_head(g, t->name);
        snprintf(full, sizeof full, "%s%s", head ? "" : c->prefix, t->name);
        ATOM_TRY(layer_of(c, full, &layer));
        top = layer > top ? layer : top;
        ATOM_TRY(is_chosen(c, full, head, &chosen));
        if (!chosen)
            continue;
        ATOM_TRY(first_value(&c->rank, full, (double)c->lora->rank, &rank));
        ATOM_TRY(first_value(&c->alpha, full, c->lora->alpha, &alpha));
        t->rank = (int64_t)rank;
        t->scale = scale_of(c->lora, rank, alpha);
        ++*n;
    }
    ATOM_TRY(check_met(c, g, slices, n_slices));
    if (c->lora->asked)
        ATOM_TRY(check_layers(c, top));
    list_modules(g, slices, n_slices, known, sizeof known);
    if (*n == 0)
        return atom_fail(ATOM_E_USAGE,
                         "lora_target_modules, with its layers and exclusions, selects no "
                         "linear layer of this model, which has %s",
                         known);
    return c->lora->asked ? check_asked(c) : ATOM_OK;
}

atom_status file_lora_targets(const graph *base, const file_lora *lora, graph_target **out,
                              uint32_t *n)
{
    chooser c = {.lora = lora, .prefix = file_prefix(base)};
    file_slice *slices = NULL;
    graph_target *targets = NULL;
    uint32_t n_slices = 0, found = 0;
    atom_status st;
    ATOM_TRY_CLEAN(chooser_open(&c, CONFIG, lora->config));
    ATOM_TRY_CLEAN(file_slices(base, &slices, &n_slices));
    targets = atom_alloc(n_slices + 1, sizeof *targets);
    if (!targets)
        ATOM_TRY_CLEAN(atom_fail_memory("targets", n_slices * sizeof *targets));
    ATOM_TRY_CLEAN(find_targets(&c, base, slices, n_slices, targets, &found));
    *out = targets;
    *n = found;
    targets = NULL;
cleanup:
    chooser_close(&c);
    atom_free(slices);
    atom_free(targets);
    return st;
}

atom_status file_lora_all_names(const graph *base, json_t **out)
{
    file_slice *slices = NULL;
    uint32_t n = 0;
    graph_target t;
    ATOM_TRY(file_slices(base, &slices, &n));
    json_t *names = json_object(), *list = json_array();
    for (uint32_t i = 0; i < n; i++)
        if (module_of(base, &slices[i], &t) && !file_is_head(base, t.name))
            json_object_set_new(names, last_word(t.name), json_null());
    for (void *at = json_object_iter(names); at; at = json_object_iter_next(names, at))
        json_array_append_new(list, json_string(json_object_iter_key(at)));
    json_decref(names);
    atom_free(slices);
    *out = list;
    return list ? ATOM_OK : atom_fail_memory("names", 256);
}

/* --- modules that are trained whole ----------------------------------------------------------- */

/* Is the end of the module's name, or of one that it is a part of, the text? PEFT asks for no dot
 * in front. group: only of one that it is a part of. */
static bool is_saved(const char *full, const char *end, bool *group)
{
    size_t n = strlen(end);
    *group = false;
    for (const char *at = strchr(full, '.'); at; at = strchr(at + 1, '.'))
        *group |= (size_t)(at - full) >= n && memcmp(at - n, end, n) == 0;
    size_t m = strlen(full);
    return m >= n && strcmp(full + m - n, end) == 0;
}

/* The module's name of a slice: without ".weight". */
static void module_name(const graph *g, const char *slice, char out[FILE_NAME_MAX + 16])
{
    snprintf(out, FILE_NAME_MAX + 16, "%s%s", file_is_head(g, slice) ? "" : file_prefix(g), slice);
    char *dot = strrchr(out, '.');
    if (dot)
        *dot = 0;
}

/* Does some name mean the embedding, or the head? */
static bool saves_either(const json_t *names, graph_family family)
{
    bool neox = graph_family_traits(family)->neox;
    const char *embedding = neox                   ? "gpt_neox.embed_in"
                            : family == GRAPH_GPT2 ? "transformer.wte"
                                                   : "model.embed_tokens";
    const char *head = neox ? "embed_out" : "lm_head";
    bool group, either = false;
    for (size_t i = 0; i < json_array_size(names); i++) {
        const char *name = json_string_value(json_array_get(names, i));
        either |= is_saved(embedding, name, &group) || is_saved(head, name, &group);
    }
    return either;
}

atom_status file_lora_untie(const file_lora *lora, graph_config *config)
{
    const json_t *names = json_object_get(lora->config, "modules_to_save");
    if (config->untied || config->family == GRAPH_OWN || !saves_either(names, config->family))
        return ATOM_OK;
    if (json_is_true(json_object_get(lora->config, "ensure_weight_tying")))
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "%s: ensure_weight_tying with the embedding or the head in "
                         "modules_to_save trains them as one matrix, which is not supported: atom "
                         "trains a copy of what is named; " FILE_LORA_MERGE_IT,
                         CONFIG);
    config->untied = config->tied_files = true;
    return ATOM_OK;
}

/* Marks the parameters of all modules that one name means. */
static atom_status save_one(const graph *base, const file_slice *slices, uint32_t n,
                            const char *name, uint8_t *chosen)
{
    char full[FILE_NAME_MAX + 16];
    bool met = false, group;
    for (uint32_t i = 0; i < n; i++) {
        module_name(base, slices[i].name, full);
        if (is_saved(full, name, &group)) {
            if (base->params[slices[i].param].shared) /* of somebody's own model: file_lora_untie */
                return atom_fail(ATOM_E_UNSUPPORTED,
                                 "modules_to_save: %s is tied to another layer of this model, and "
                                 "PEFT would train a copy of one of them; leave it out",
                                 full);
            met = true;
            chosen[i] = 1;
        } else if (group) {
            return atom_fail(ATOM_E_UNSUPPORTED,
                             "modules_to_save: '%.64s' is a group of layers (%s is one of them); "
                             "name the layers themselves",
                             name, full);
        }
    }
    return met ? ATOM_OK
               : atom_fail(ATOM_E_USAGE, "modules_to_save: no layer of this model is named '%.64s'",
                           name);
}

/* A fused parameter is trained as a whole or not at all. */
static atom_status whole_params(const file_slice *slices, uint32_t n, const uint8_t *chosen,
                                uint8_t *trained)
{
    for (uint32_t i = 0; i < n; i++)
        trained[slices[i].param] |= chosen[i];
    for (uint32_t i = 0; i < n; i++)
        if (trained[slices[i].param] && !chosen[i])
            return atom_fail(ATOM_E_UNSUPPORTED,
                             "modules_to_save: %s forms one matrix with another layer; name all "
                             "layers of that matrix (q_proj, k_proj and v_proj; gate_proj and "
                             "up_proj) or none",
                             slices[i].name);
    return ATOM_OK;
}

atom_status file_lora_saved(const graph *base, const file_lora *lora, uint8_t *trained)
{
    const json_t *names = json_object_get(lora->config, "modules_to_save");
    file_slice *slices = NULL;
    uint8_t *chosen = NULL;
    uint32_t n = 0;
    atom_status st;
    memset(trained, 0, base->n_params);
    if (json_array_size(names) == 0)
        return ATOM_OK;
    ATOM_TRY_CLEAN(file_slices(base, &slices, &n));
    chosen = atom_alloc(n, 1);
    if (!chosen)
        ATOM_TRY_CLEAN(atom_fail_memory("modules_to_save", n));
    for (size_t i = 0; i < json_array_size(names); i++)
        ATOM_TRY_CLEAN(
            save_one(base, slices, n, json_string_value(json_array_get(names, i)), chosen));
    ATOM_TRY_CLEAN(whole_params(slices, n, chosen, trained));
cleanup:
    atom_free(chosen);
    atom_free(slices);
    return st;
}

/* --- the graph -------------------------------------------------------------------------------- */

atom_status file_lora_graph(const graph *base, const file_lora *lora, graph **out)
{
    graph_target *targets = NULL;
    graph *plain = NULL;
    uint8_t *trained = NULL;
    uint32_t n;
    graph_lora_config config = file_lora_settings(lora);
    atom_status st;
    if (base->n_stored)
        return atom_fail(ATOM_E_UNSUPPORTED, "LoRA is not supported for models of torch.export; "
                                             "leave lora_r out to train the whole model");
    trained = atom_alloc(base->n_params, 1);
    if (!trained)
        return atom_fail_memory("modules_to_save", base->n_params);
    ATOM_TRY_CLEAN(file_lora_targets(base, lora, &targets, &n));
    ATOM_TRY_CLEAN(file_lora_saved(base, lora, trained));
    config.trained = trained;
    ATOM_TRY_CLEAN(graph_lora(base, &config, targets, n, &plain));
    ATOM_TRY_CLEAN(graph_fuse(plain, out));
cleanup:
    atom_free(trained);
    atom_free(targets);
    graph_close(&plain);
    return st;
}
