/*
 * Owns adapter_config.json. One idea: what chooses modules stays the JSON that it came as, checked
 * once, so that it is written back as it was; keys of a run become the same JSON first. Refuses, by
 * name, every key that would change what an adapter is and that is not known here.
 */
#include "atom/file/peft_inner.h"

#include "atom/base/files.h"
#include "atom/base/json.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char CONFIG[] = "adapter_config.json";

void file_lora_free(file_lora *lora)
{
    atom_free(lora->targets);
    atom_free(lora->base);
    json_decref(lora->config);
    *lora = (file_lora){0};
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
    static const char *const keys[] = {"alpha_pattern",
                                       "auto_mapping",
                                       "base_model_name_or_path",
                                       "bias",
                                       "corda_config",
                                       "eva_config",
                                       "ensure_weight_tying",
                                       "exclude_modules",
                                       "fan_in_fan_out",
                                       "inference_mode",
                                       "init_lora_weights",
                                       "layers_pattern",
                                       "layers_to_transform",
                                       "loftq_config",
                                       "lora_alpha",
                                       "lora_dropout",
                                       "megatron_config",
                                       "megatron_core",
                                       "modules_to_save",
                                       "peft_type",
                                       "peft_version",
                                       "qalora_group_size",
                                       "r",
                                       "rank_pattern",
                                       "revision",
                                       "runtime_config",
                                       "target_modules",
                                       "task_type",
                                       "use_dora",
                                       "use_rslora"};
    size_t i = 0, n = sizeof keys / sizeof *keys;
    while (i < n && strcmp(keys[i], key) != 0)
        i++;
    return i < n;
}

/* Ways to begin an adapter that leave the base model as it was. */
static bool begins_alone(const char *init)
{
    return strcmp(init, "gaussian") == 0 || strcmp(init, "orthogonal") == 0 ||
           strcmp(init, "eva") == 0;
}

/* Whatever else is set changes what an adapter is. */
static atom_status check_plain(const char *path, json_t *root)
{
    const char *bias = json_string_value(json_object_get(root, "bias")), *key;
    const char *init = json_string_value(json_object_get(root, "init_lora_weights"));
    const char *task = json_string_value(json_object_get(root, "task_type"));
    json_t *value;
    json_object_foreach(root, key, value)
    {
        if (!is_taken(key) && !is_empty(value))
            return atom_fail(ATOM_E_UNSUPPORTED, "%s: %.64s is not supported; " FILE_LORA_MERGE_IT,
                             path, key);
    }
    if (atom_json_present(root, "bias") && (!bias || strcmp(bias, "none") != 0))
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "%s: bias: \"%.32s\" is not supported, only none is; " FILE_LORA_MERGE_IT,
                         path, bias ? bias : "(not a text)");
    if (atom_json_present(root, "task_type") && (!task || strcmp(task, "CAUSAL_LM") != 0))
        return atom_fail(
            ATOM_E_UNSUPPORTED,
            "%s: task_type: \"%.32s\" is not supported, only CAUSAL_LM is: the adapter "
            "was trained under another head than that of a language model",
            path, task ? task : "(not a text)");
    if (init && !begins_alone(init))
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "%s: init_lora_weights: \"%.32s\" is not supported, because it may also "
                         "change the base model; " FILE_LORA_MERGE_IT,
                         path, init);
    return ATOM_OK;
}

static atom_status take_number(const char *path, const json_t *root, const char *key,
                               double fallback, double low, double high, double *out)
{
    *out = fallback;
    return atom_json_present(root, key) ? atom_json_real(path, root, key, low, high, out) : ATOM_OK;
}

/* Names that choose modules: none of them is empty. text: a single one may stand there alone. */
static atom_status check_names(const char *path, const json_t *root, const char *key, bool text)
{
    const json_t *value = atom_json_present(root, key);
    const char *alone = json_string_value(value);
    if (!value || (text && alone && *alone))
        return ATOM_OK;
    if (!json_is_array(value) || json_array_size(value) > 4096)
        return atom_fail(ATOM_E_FORMAT, "%s: %s is not a list of names%s", path, key,
                         text ? " or a pattern" : "");
    for (size_t i = 0; i < json_array_size(value); i++) {
        const char *name = json_string_value(json_array_get(value, i));
        if (!name || !*name || strlen(name) > 1024 || strchr(name, ','))
            return atom_fail(ATOM_E_FORMAT, "%s: %s: item %zu is not a module's name", path, key,
                             i);
    }
    return ATOM_OK;
}

static atom_status check_values(const char *path, json_t *root, const char *key, double low,
                                double high, bool whole)
{
    const char *name;
    json_t *value, *object = json_object_get(root, key);
    if (!atom_json_present(root, key))
        return ATOM_OK;
    if (!json_is_object(object) || json_object_size(object) > 4096)
        return atom_fail(ATOM_E_FORMAT, "%s: %s is not an object of names and numbers", path, key);
    json_object_foreach(object, name, value)
    {
        double x = json_number_value(value);
        if (!*name || !json_is_number(value) || !(x >= low && x <= high) ||
            (whole && !json_is_integer(value)))
            return atom_fail(ATOM_E_FORMAT, "%s: %s: \"%.64s\" is not %s from %g to %g", path, key,
                             name, whole ? "a whole number" : "a number", low, high);
    }
    return ATOM_OK;
}

static bool is_layer(const json_t *value)
{
    return json_is_integer(value) && json_integer_value(value) >= 0 &&
           json_integer_value(value) < 1000000;
}

/* PEFT takes layers only beside a list of names. */
static atom_status check_layers(const char *path, const json_t *root)
{
    const json_t *value = atom_json_present(root, "layers_to_transform");
    const char *targets = json_string_value(json_object_get(root, "target_modules"));
    if (!value || (json_is_array(value) && json_array_size(value) == 0))
        return ATOM_OK;
    bool good = json_is_array(value) ? json_array_size(value) <= 4096 : is_layer(value);
    for (size_t i = 0; i < json_array_size(value); i++)
        good &= is_layer(json_array_get(value, i));
    if (!good)
        return atom_fail(ATOM_E_FORMAT, "%s: layers_to_transform is not a list of layers' numbers",
                         path);
    if (targets && strcasecmp(targets, FILE_LORA_ALL) != 0)
        return atom_fail(ATOM_E_FORMAT,
                         "%s: layers_to_transform has no effect when target_modules is a "
                         "pattern; put the layers into the pattern",
                         path);
    return ATOM_OK;
}

static atom_status check_choice(const char *path, json_t *root)
{
    ATOM_TRY(check_names(path, root, "target_modules", true));
    ATOM_TRY(check_names(path, root, "exclude_modules", true));
    ATOM_TRY(check_names(path, root, "layers_pattern", true));
    ATOM_TRY(check_names(path, root, "modules_to_save", false));
    ATOM_TRY(check_values(path, root, "rank_pattern", 1, 65536, true));
    ATOM_TRY(check_values(path, root, "alpha_pattern", 1e-6, 1e6, false));
    ATOM_TRY(check_layers(path, root));
    return file_lora_check_patterns(path, root);
}

/* The targets as people read them: the pattern, or names with commas between. */
static atom_status take_targets(const char *path, const json_t *root, char **out)
{
    const json_t *value = json_object_get(root, "target_modules");
    const char *text = json_string_value(value);
    size_t n = json_array_size(value);
    if (!text && n == 0)
        return atom_fail(ATOM_E_FORMAT, "%s: target_modules is missing or empty", path);
    char *list = atom_strdup(text ? text : "");
    for (size_t i = 0; i < n && list; i++) {
        char *longer =
            atom_format("%s%s%s", list, i ? "," : "", json_string_value(json_array_get(value, i)));
        atom_free(list);
        list = longer;
    }
    *out = list;
    return list ? ATOM_OK : atom_fail_memory("target_modules", n * 64);
}

/* A switch that is neither would be taken for false, and the adapter for another one. */
static atom_status take_switch(const char *path, const json_t *root, const char *key, bool *out)
{
    *out = false;
    return atom_json_present(root, key) ? atom_json_flag(path, root, key, out) : ATOM_OK;
}

static atom_status parse_fields(const char *path, json_t *root, file_lora *out)
{
    bool tying;
    const char *type = json_string_value(json_object_get(root, "peft_type"));
    const char *base = json_string_value(json_object_get(root, "base_model_name_or_path"));
    double rank;
    atom_status st = ATOM_OK;
    if (!type || strcmp(type, "LORA") != 0)
        return atom_fail(ATOM_E_UNSUPPORTED, "%s: peft_type is %.32s; only LORA is supported", path,
                         type ? type : "missing");
    out->config = json_incref(root);
    ATOM_TRY(check_plain(path, root));
    ATOM_TRY(check_choice(path, root));
    ATOM_TRY(take_number(path, root, "r", 8, 1, 65536, &rank));
    out->rank = (int64_t)rank;
    if ((double)out->rank != rank)
        return atom_fail(ATOM_E_FORMAT, "%s: r is not a whole number", path);
    ATOM_TRY(take_number(path, root, "lora_alpha", 8, 1e-6, 1e6, &out->alpha));
    ATOM_TRY(take_number(path, root, "lora_dropout", 0, 0, 0.999, &out->dropout));
    ATOM_TRY(take_switch(path, root, "use_rslora", &out->rslora));
    ATOM_TRY(take_switch(path, root, "use_dora", &out->dora));
    ATOM_TRY(take_switch(path, root, "ensure_weight_tying", &tying)); /* file_lora_untie reads it */
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

/* --- keys of a run ---------------------------------------------------------------------------- */

/* One item of a list after another; *n is its length. */
static const char *next_item(const char **at, size_t *n)
{
    const char *item = *at;
    *n = strcspn(item, ",");
    *at = item + *n + (item[*n] == ',');
    return item;
}

static json_t *names_of(const char *text)
{
    json_t *list = json_array();
    size_t n;
    for (const char *at = text; *at;) {
        const char *item = next_item(&at, &n);
        if (n)
            json_array_append_new(list, json_stringn(item, n));
    }
    return list;
}

/* Names have letters, digits, points and underscores; what has anything else is a pattern. */
static json_t *targets_of(const char *text)
{
    bool pattern = strpbrk(text, "*+?()[]{}|^$\\") != NULL;
    return pattern || strcmp(text, FILE_LORA_ALL) == 0 ? json_string(text) : names_of(text);
}

/* "0,2,8-15" */
static atom_status layers_of(const char *text, json_t **out)
{
    json_t *list = json_array();
    atom_status st = ATOM_OK;
    for (const char *at = text; *at && st == ATOM_OK;) {
        size_t n;
        const char *item = next_item(&at, &n);
        char *end;
        long long first = strtoll(item, &end, 10), last = first;
        if (end > item && *end == '-' && end[1] >= '0' && end[1] <= '9') /* "0-" is none */
            last = strtoll(end + 1, &end, 10);
        if (n == 0 || end != item + n || first < 0 || last < first || last - first > 4095)
            st = atom_fail(ATOM_E_USAGE,
                           "lora_layers: '%.*s' is not a layer or a range of layers, as in "
                           "\"0,2,8-15\"",
                           (int)(n < 64 ? n : 64), item);
        for (long long i = first; i <= last && st == ATOM_OK; i++)
            json_array_append_new(list, json_integer(i));
    }
    if (st == ATOM_OK)
        *out = list;
    else
        json_decref(list);
    return st;
}

/* "q_proj=16,down_proj=4" */
static atom_status values_of(const char *key, const char *text, bool whole, json_t **out)
{
    json_t *object = json_object();
    atom_status st = ATOM_OK;
    for (const char *at = text; *at && st == ATOM_OK;) {
        size_t n, name;
        const char *item = next_item(&at, &n);
        char *end = NULL, *key_text;
        name = strcspn(item, "=,");
        double x = name < n ? strtod(item + name + 1, &end) : 0;
        key_text = end == item + n && name > 0 && fabs(x) < 1e9
                       ? atom_format("%.*s", (int)name, item)
                       : NULL;
        if (!key_text)
            st = atom_fail(ATOM_E_USAGE, "%s: '%.*s' is not NAME=NUMBER, as in \"q_proj=16\"", key,
                           (int)(n < 64 ? n : 64), item);
        else if (json_object_get(object, key_text))
            st = atom_fail(ATOM_E_USAGE, "%s: '%.64s' appears twice; leave one of them out", key,
                           key_text);
        else
            json_object_set_new(object, key_text,
                                whole && x == (double)(int)x ? json_integer((int)x) : json_real(x));
        atom_free(key_text);
    }
    if (st == ATOM_OK)
        *out = object;
    else
        json_decref(object);
    return st;
}

/* What a script's unset variable leaves says nothing, and PEFT would take it for all layers, or none. */
static atom_status check_said(const file_lora_keys *k)
{
    const struct {
        const char *text, *name;
    } keys[] = {{k->save, "lora_modules_to_save"},
                {k->layers, "lora_layers"},
                {k->ranks, "lora_rank_pattern"},
                {k->alphas, "lora_alpha_pattern"}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (keys[i].text && keys[i].text[strspn(keys[i].text, ",")] == 0)
            return atom_fail(ATOM_E_USAGE, "%s is empty; say which, or leave it out", keys[i].name);
    return ATOM_OK;
}

static atom_status config_of(const file_lora_keys *k, json_t *root)
{
    json_t *value = NULL;
    ATOM_TRY(check_said(k));
    json_object_set_new(root, "peft_type", json_string("LORA"));
    json_object_set_new(root, "r", json_integer(k->r));
    json_object_set_new(root, "lora_alpha",
                        json_real(k->alpha > 0 ? k->alpha : 2.0 * (double)k->r));
    json_object_set_new(root, "lora_dropout", json_real(k->dropout));
    json_object_set_new(root, "use_rslora", json_boolean(k->rslora));
    json_object_set_new(root, "use_dora", json_boolean(k->dora));
    json_object_set_new(root, "target_modules", targets_of(k->targets));
    if (k->save)
        json_object_set_new(root, "modules_to_save", names_of(k->save));
    if (k->layers) {
        ATOM_TRY(layers_of(k->layers, &value));
        json_object_set_new(root, "layers_to_transform", value);
    }
    if (k->ranks) {
        ATOM_TRY(values_of("lora_rank_pattern", k->ranks, true, &value));
        json_object_set_new(root, "rank_pattern", value);
    }
    if (k->alphas) {
        ATOM_TRY(values_of("lora_alpha_pattern", k->alphas, false, &value));
        json_object_set_new(root, "alpha_pattern", value);
    }
    return ATOM_OK;
}

atom_status file_lora_make(const file_lora_keys *keys, const char *base, file_lora *out)
{
    file_lora made = {0};
    json_t *root = json_object();
    atom_status st = root ? config_of(keys, root) : atom_fail_memory("LoRA's keys", 256);
    if (st == ATOM_OK) {
        st = parse_fields("LoRA", root, &made);
        if (st == ATOM_E_FORMAT) /* it was no file that said so */
            st = atom_fail_in(ATOM_E_USAGE, "%s", "");
    }
    if (st == ATOM_OK && base) {
        made.base = atom_strdup(base);
        st = made.base ? ATOM_OK : atom_fail_memory("a path", strlen(base));
    }
    json_decref(root);
    made.asked = true;
    if (st == ATOM_OK)
        *out = made;
    else
        file_lora_free(&made);
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

/* The same numbers in the same order, which decides where two patterns match. */
static bool same_values(const json_t *a, const json_t *b)
{
    void *x = json_object_iter((json_t *)a), *y = json_object_iter((json_t *)b);
    for (; x && y;
         x = json_object_iter_next((json_t *)a, x), y = json_object_iter_next((json_t *)b, y)) {
        double p = json_number_value(json_object_iter_value(x));
        double q = json_number_value(json_object_iter_value(y));
        if (strcmp(json_object_iter_key(x), json_object_iter_key(y)) != 0 || p < q || p > q)
            return false;
    }
    return !x && !y;
}

bool file_lora_alike(const file_lora *a, const file_lora *b)
{
    return !(a->alpha < b->alpha) && !(a->alpha > b->alpha) && a->rslora == b->rslora &&
           a->dora == b->dora &&
           same_values(json_object_get(a->config, "alpha_pattern"),
                       json_object_get(b->config, "alpha_pattern"));
}

static bool has_name(const json_t *list, const json_t *name)
{
    bool found = false;
    for (size_t i = 0; i < json_array_size(list) && !found; i++)
        found = json_equal(json_array_get(list, i), name);
    return found;
}

bool file_lora_saves_alike(const file_lora *a, const file_lora *b)
{
    const json_t *x = json_object_get(a->config, "modules_to_save");
    const json_t *y = json_object_get(b->config, "modules_to_save");
    bool alike = true;
    for (size_t i = 0; i < json_array_size(x); i++)
        alike = alike && has_name(y, json_array_get(x, i));
    for (size_t i = 0; i < json_array_size(y); i++)
        alike = alike && has_name(x, json_array_get(y, i));
    return alike;
}

atom_status file_adapter_warn(const char *dir, const char *model)
{
    file_lora lora = {0};
    char *beside = NULL, *made_for = NULL, *used_with = realpath(model, NULL);
    atom_status st;
    ATOM_TRY_CLEAN(file_lora_read(dir, &lora));
    beside = lora.base ? atom_path_join(dir, lora.base) : NULL;
    made_for = lora.base ? realpath(lora.base, NULL) : NULL;
    if (!made_for && beside)
        made_for = realpath(beside, NULL);
    if (made_for && used_with && strcmp(made_for, used_with) != 0)
        atom_log(ATOM_LOG_WARN,
                 "the adapter %s was trained for the model %s; with %s it means something else, "
                 "unless that is a copy",
                 dir, made_for, used_with);
cleanup:
    free(made_for);
    free(used_with);
    atom_free(beside);
    file_lora_free(&lora);
    return st;
}
