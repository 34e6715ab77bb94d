/*
 * Owns adapter_config.json and which modules it means. One idea: a module is what the files have
 * under one name, so targets are the slices of the linears' weights that hfnames lists. Refuses,
 * by name, every kind of adapter whose result would not be W + scale B A.
 */
#include "atom/file/peft.h"

#include "atom/base/files.h"
#include "atom/base/json.h"
#include "atom/base/mem.h"
#include "atom/file/hfweights.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char CONFIG[] = "adapter_config.json", ALL[] = "all-linear";

void file_lora_free(file_lora *lora)
{
    atom_free(lora->targets);
    atom_free(lora->base);
    *lora = (file_lora){0};
}

graph_lora_config file_lora_settings(const file_lora *lora)
{
    double r = (double)lora->rank;
    return (graph_lora_config){.rank = lora->rank,
                               .scale = (float)(lora->alpha / (lora->rslora ? sqrt(r) : r)),
                               .dropout = (float)lora->dropout};
}

bool file_lora_is_dir(const char *dir)
{
    char *path = atom_path_join(dir, CONFIG);
    bool is = path && atom_path_exists(path);
    atom_free(path);
    return is;
}

const char *file_lora_tokenizer_dir(const file_model *model)
{
    char *path = model->adapter ? atom_path_join(model->adapter, "tokenizer.json") : NULL;
    bool there = path && atom_path_exists(path);
    atom_free(path);
    return there ? model->adapter : model->dir;
}

/* --- adapter_config.json ---------------------------------------------------------------------- */

static bool is_empty(const json_t *value)
{
    return !value || json_is_null(value) || json_is_false(value) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0);
}

/* Keys that are read, or that change nothing of what a finished adapter adds to its model. */
static bool is_taken(const char *key)
{
    static const char *const keys[] = {"auto_mapping",
                                       "base_model_name_or_path",
                                       "bias",
                                       "corda_config",
                                       "eva_config",
                                       "ensure_weight_tying",
                                       "fan_in_fan_out",
                                       "inference_mode",
                                       "init_lora_weights",
                                       "loftq_config",
                                       "lora_alpha",
                                       "lora_dropout",
                                       "megatron_config",
                                       "megatron_core",
                                       "peft_type",
                                       "peft_version",
                                       "qalora_group_size",
                                       "r",
                                       "revision",
                                       "runtime_config",
                                       "target_modules",
                                       "task_type",
                                       "use_rslora"};
    size_t i = 0, n = sizeof keys / sizeof *keys;
    while (i < n && strcmp(keys[i], key) != 0)
        i++;
    return i < n;
}

#define MERGE_IT                                                                                   \
    "merge the adapter with PEFT, model.merge_and_unload().save_pretrained(dir), and name that "   \
    "directory as the model"

/* Whatever else is set changes what an adapter is (DoRA, patterns of ranks, saved modules). */
static atom_status check_plain(const char *path, json_t *root)
{
    const char *bias = json_string_value(json_object_get(root, "bias")), *key;
    const char *init = json_string_value(json_object_get(root, "init_lora_weights"));
    json_t *value;
    json_object_foreach(root, key, value)
    {
        if (!is_taken(key) && !is_empty(value))
            return atom_fail(ATOM_E_UNSUPPORTED, "%s: %.64s is not supported; " MERGE_IT, path,
                             key);
    }
    if (bias && strcmp(bias, "none") != 0)
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "%s: bias: \"%.32s\" is not supported, only none is; " MERGE_IT, path,
                         bias);
    if (init && strcmp(init, "gaussian") != 0)
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "%s: init_lora_weights: \"%.32s\" is not supported: it changes the base "
                         "model, too; " MERGE_IT,
                         path, init);
    return ATOM_OK;
}

static atom_status take_number(const char *path, const json_t *root, const char *key,
                               double fallback, double low, double high, double *out)
{
    *out = fallback;
    return atom_json_present(root, key) ? atom_json_real(path, root, key, low, high, out) : ATOM_OK;
}

/* The list, as names with commas between. */
static atom_status take_targets(const char *path, const json_t *root, char **out)
{
    const json_t *value = json_object_get(root, "target_modules");
    const char *text = json_string_value(value);
    char *list = NULL;
    if (text && strcmp(text, ALL) != 0)
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "%s: target_modules is a pattern; only a list of names and "
                         "\"all-linear\" are supported; " MERGE_IT,
                         path);
    size_t n = json_array_size(value);
    if (!text && (n == 0 || n > 4096))
        return atom_fail(ATOM_E_FORMAT, "%s: target_modules is missing or empty", path);
    list = atom_strdup(text ? text : "");
    for (size_t i = 0; i < n && list; i++) {
        const char *name = json_string_value(json_array_get(value, i));
        if (!name || !*name || strchr(name, ',')) {
            atom_free(list);
            return atom_fail(ATOM_E_FORMAT, "%s: target_modules: item %zu is not a module's name",
                             path, i);
        }
        char *longer = atom_format("%s%s%s", list, i ? "," : "", name);
        atom_free(list);
        list = longer;
    }
    *out = list;
    return list ? ATOM_OK : atom_fail_memory("target_modules", n * 64);
}

static atom_status parse_fields(const char *path, json_t *root, file_lora *out)
{
    const char *type = json_string_value(json_object_get(root, "peft_type"));
    const char *base = json_string_value(json_object_get(root, "base_model_name_or_path"));
    double rank;
    atom_status st = ATOM_OK;
    if (!type || strcmp(type, "LORA") != 0)
        return atom_fail(ATOM_E_UNSUPPORTED, "%s: peft_type is %.32s; only LORA is supported", path,
                         type ? type : "missing");
    ATOM_TRY(check_plain(path, root));
    ATOM_TRY(take_number(path, root, "r", 8, 1, 65536, &rank));
    out->rank = (int64_t)rank;
    if ((double)out->rank != rank)
        return atom_fail(ATOM_E_FORMAT, "%s: r is not a whole number", path);
    ATOM_TRY(take_number(path, root, "lora_alpha", 8, 1e-6, 1e6, &out->alpha));
    ATOM_TRY(take_number(path, root, "lora_dropout", 0, 0, 0.999, &out->dropout));
    out->rslora = json_is_true(json_object_get(root, "use_rslora"));
    ATOM_TRY(take_targets(path, root, &out->targets));
    if (base) {
        out->base = atom_strdup(base);
        st = out->base ? ATOM_OK : atom_fail_memory("a path", strlen(base));
    }
    return st;
}

atom_status file_lora_parse(const char *path, const char *text, size_t bytes, file_lora *out)
{
    file_lora parsed = {0};
    json_t *root = NULL;
    ATOM_TRY(atom_json_parse(path, text, bytes, 0, &root));
    atom_status st = parse_fields(path, root, &parsed);
    json_decref(root);
    if (st == ATOM_OK)
        *out = parsed;
    else
        file_lora_free(&parsed);
    return st;
}

atom_status file_lora_read(const char *dir, file_lora *out)
{
    char *path = atom_path_join(dir, CONFIG), *text = NULL;
    uint64_t bytes;
    atom_status st = path ? ATOM_OK : atom_fail_memory("a path", 256);
    if (st == ATOM_OK && !atom_path_exists(path))
        st = atom_fail(ATOM_E_USAGE, "%s has no %s; is it an adapter's directory?", dir, CONFIG);
    if (st == ATOM_OK)
        st = atom_file_read(path, 1 << 20, &text, &bytes);
    if (st == ATOM_OK)
        st = file_lora_parse(path, text, bytes, out);
    atom_free(text);
    atom_free(path);
    return st;
}

/* --- targets ---------------------------------------------------------------------------------- */

static bool ends_with(const char *name, const char *end, size_t n)
{
    size_t m = strlen(name);
    return m >= n && memcmp(name + m - n, end, n) == 0 && (m == n || name[m - n - 1] == '.');
}

/* Is the module, without and with prefix, among the names? Notes which name it was. */
static bool is_chosen(const char *prefix, const char *module, const char *names, uint8_t *met)
{
    char full[FILE_NAME_MAX + 16];
    bool chosen = false;
    uint32_t i = 0;
    snprintf(full, sizeof full, "%s%s", prefix, module);
    for (const char *at = names; *at; i++) {
        size_t n = strcspn(at, ",");
        if (n && ends_with(full, at, n)) {
            met[i] = 1;
            chosen = true;
        }
        at += n + (at[n] == ',');
    }
    return chosen;
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
        const char *word = strrchr(t.name, '.');
        word = word ? word + 1 : t.name;
        if (!strstr(text, word) && used + strlen(word) + 3 < room)
            used += (size_t)snprintf(text + used, room - used, "%s%s", used ? ", " : "", word);
    }
}

static atom_status check_met(const graph *g, const file_slice *slices, uint32_t n,
                             const char *names, const uint8_t *met)
{
    char known[256];
    uint32_t i = 0;
    for (const char *at = names; *at; i++) {
        size_t length = strcspn(at, ",");
        if (!met[i] && ends_with("lm_head", at, length))
            return atom_fail(
                ATOM_E_USAGE,
                "lora_target_modules: lm_head is the embedding here (it is tied), which "
                "cannot have an adapter; leave lm_head out, or train the whole model");
        if (!met[i]) {
            list_modules(g, slices, n, known, sizeof known);
            return atom_fail(ATOM_E_USAGE,
                             "lora_target_modules: no linear layer of this model is named "
                             "'%.*s'; it has %s",
                             (int)(length < 64 ? length : 64), at, known);
        }
        at += length + (at[length] == ',');
    }
    return ATOM_OK;
}

atom_status file_lora_targets(const graph *base, const char *names, graph_target **out, uint32_t *n)
{
    const char *prefix = file_prefix(base);
    file_slice *slices = NULL;
    graph_target *targets = NULL;
    uint32_t n_slices = 0, found = 0;
    bool all = strcmp(names, ALL) == 0;
    uint8_t *met = atom_alloc(strlen(names) + 1, 1);
    atom_status st = met ? file_slices(base, &slices, &n_slices) : atom_fail_memory("names", 256);
    if (st == ATOM_OK) {
        targets = atom_alloc(n_slices, sizeof *targets);
        st = targets ? ATOM_OK : atom_fail_memory("targets", n_slices * sizeof *targets);
    }
    for (uint32_t i = 0; i < n_slices && st == ATOM_OK; i++) {
        graph_target *t = &targets[found];
        if (!module_of(base, &slices[i], t))
            continue;
        bool head = strcmp(t->name, "lm_head") == 0;
        found += all ? !head : is_chosen(head ? "" : prefix, t->name, names, met);
    }
    if (st == ATOM_OK && !all)
        st = check_met(base, slices, n_slices, names, met);
    if (st == ATOM_OK && found == 0)
        st = atom_fail(ATOM_E_USAGE, "lora_target_modules names no module");
    atom_free(slices);
    atom_free(met);
    if (st != ATOM_OK) {
        atom_free(targets);
        return st;
    }
    *out = targets;
    *n = found;
    return ATOM_OK;
}

atom_status file_lora_graph(const graph *base, const file_lora *lora, graph **out)
{
    graph_target *targets = NULL;
    graph *plain = NULL;
    uint32_t n;
    graph_lora_config config = file_lora_settings(lora);
    atom_status st;
    if (base->n_stored)
        return atom_fail(ATOM_E_UNSUPPORTED, "LoRA is not supported for models of torch.export; "
                                             "leave lora_r out to train the whole model");
    ATOM_TRY_CLEAN(file_lora_targets(base, lora->targets, &targets, &n));
    ATOM_TRY_CLEAN(graph_lora(base, &config, targets, n, &plain));
    ATOM_TRY_CLEAN(graph_fuse(plain, out));
cleanup:
    atom_free(targets);
    graph_close(&plain);
    return st;
}
