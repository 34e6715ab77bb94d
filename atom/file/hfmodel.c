/*
 * Owns what a user may write behind --model: a preset, a directory, a config.json, a
 * GGUF, a .pt2. One idea:
 * decide what the words mean before anything large is opened. Refuses model names of the Hub:
 * nothing is downloaded here.
 */
#include "atom/file/hfdir.h"

#include "atom/base/files.h"
#include "atom/base/mem.h"
#include "atom/base/nearest.h"
#include "atom/file/ggufmodel.h"
#include "atom/file/hfweights.h"
#include "atom/file/peft.h"
#include "atom/file/pt2.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static bool is_preset(const char *spec)
{
    for (const char *const *name = graph_preset_names(); *name; name++) {
        if (strcmp(spec, *name) == 0)
            return true;
    }
    return false;
}

/* A directory with a model in it has the preset's name: one of them has weights, and either may be meant. */
static atom_status take_preset(const char *spec, file_model *model)
{
    char *config = atom_path_join(spec, "config.json");
    if (!config)
        return atom_fail_memory("a path", strlen(spec));
    bool both = atom_path_exists(config) || file_lora_is_dir(spec);
    atom_free(config);
    if (both)
        return atom_fail(ATOM_E_USAGE,
                         "model '%s' is a preset, which has no weights, and also a directory here "
                         "that contains a model; write ./%s for the directory, or rename that "
                         "if you want the preset",
                         spec, spec);
    model->kind = FILE_MODEL_PRESET;
    return graph_preset_get(spec, &model->config);
}

/* owner/name, as the Hub writes it. */
static bool is_hub_name(const char *spec)
{
    const char *slash = strchr(spec, '/');
    size_t good =
        strspn(spec, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./");
    return slash && slash != spec && slash[1] && !strchr(slash + 1, '/') && spec[0] != '.' &&
           spec[good] == 0;
}

static atom_status no_model(const char *spec)
{
    size_t n = 0;
    const char *const *names = graph_preset_names();
    while (names[n])
        n++;
    const char *near = atom_did_you_mean(spec, names, n);
    if (is_hub_name(spec))
        return atom_fail(ATOM_E_USAGE,
                         "there is no directory or file '%.200s' for model; if it is a model on "
                         "the Hugging Face Hub, download it first (atom does not): hf download "
                         "%.200s --local-dir %.200s",
                         spec, spec, strchr(spec, '/') + 1);
    return atom_fail(ATOM_E_USAGE,
                     "model '%.200s' is not a preset, a directory, a GGUF file, a .pt2 or a "
                     "config.json%s%s%s",
                     spec, near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "");
}

/* The newest checkpoint that a run's directory holds, by its number; -1: it is none. */
static int64_t newest_checkpoint(const char *dir)
{
    long long newest = -1, step;
    char rest;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));)
        if (sscanf(e->d_name, "checkpoint-%18lld%c", &step, &rest) == 1 && step > newest)
            newest = step;
    if (d)
        closedir(d);
    return newest;
}

static atom_status no_config(const char *dir)
{
    int64_t newest = newest_checkpoint(dir);
    if (newest < 0)
        return atom_fail(ATOM_E_FORMAT, "%s has no config.json; is it a model directory?", dir);
    return atom_fail(ATOM_E_USAGE,
                     "%s is the directory of a run; give one of its checkpoints, such as "
                     "%s/checkpoint-%" PRId64,
                     dir, dir, newest);
}

static atom_status resolve_dir(const char *dir, file_model *model)
{
    atom_status st = ATOM_OK;
    char *path = atom_path_join(dir, "config.json");
    model->kind = FILE_MODEL_DIR;
    model->dir = atom_strdup(dir);
    if (!path || !model->dir)
        ATOM_TRY_CLEAN(atom_fail_memory("a path", strlen(dir)));
    if (!atom_path_exists(path))
        ATOM_TRY_CLEAN(no_config(dir));
    ATOM_TRY_CLEAN(file_config_read(path, &model->config, &model->source));
    model->has_weights = file_weights_exist(dir);
    if (model->has_weights && file_lora_is_dir(dir))
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_USAGE,
                                 "%s contains both the weights of a model and an adapter "
                                 "(adapter_config.json), and transformers would use the adapter; "
                                 "move away the one that you do not want",
                                 dir));
    ATOM_TRY_CLEAN(file_buffers_read(dir, model->config.own));
cleanup:
    atom_free(path);
    return st;
}

/* An adapter's directory stands for its base with the adapter. */
static atom_status resolve_adapter(const char *dir, file_model *model)
{
    file_lora lora = {0};
    char *beside = NULL;
    atom_status st;
    ATOM_TRY_CLEAN(file_lora_read(dir, &lora));
    if (!lora.base)
        ATOM_TRY_CLEAN(
            atom_fail(ATOM_E_USAGE,
                      "%s does not say which model it belongs to (base_model_name_or_path); give "
                      "the model as --model and this directory as --adapter",
                      dir));
    beside = atom_path_join(dir, lora.base);
    const char *base =
        atom_path_exists(lora.base) || !beside || !atom_path_exists(beside) ? lora.base : beside;
    if (file_lora_is_dir(base))
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_UNSUPPORTED,
                                 "%s: its base %s is also an adapter; merge that one first", dir,
                                 base));
    st = file_model_resolve(base, model);
    if (st == ATOM_E_USAGE && !atom_path_exists(base))
        ATOM_TRY_CLEAN(
            atom_fail(st,
                      "%s: its model %s (base_model_name_or_path) was not found; give the "
                      "model's directory as --model and this one as --adapter",
                      dir, base));
    if (st != ATOM_OK)
        ATOM_TRY_CLEAN(atom_fail_in(st, "%s: base_model_name_or_path: ", dir));
    model->adapter = atom_strdup(dir);
    st = model->adapter ? ATOM_OK : atom_fail_memory("a path", strlen(dir));
cleanup:
    file_lora_free(&lora);
    atom_free(beside);
    return st;
}

/* Some programs put the base's config.json beside an adapter. */
static bool is_adapter(const char *dir)
{
    return file_lora_is_dir(dir) && !file_weights_exist(dir);
}

static atom_status resolve_gguf(const char *path, file_model *model)
{
    model->kind = FILE_MODEL_GGUF;
    model->has_weights = true;
    model->dir = atom_strdup(path);
    return model->dir ? file_gguf_read_model(path, &model->config, &model->source)
                      : atom_fail_memory("a path", strlen(path));
}

static atom_status resolve_pt2(const char *path, file_model *model)
{
    model->kind = FILE_MODEL_PT2;
    model->has_weights = true;
    model->dir = atom_strdup(path);
    return model->dir ? file_pt2_read_model(path, &model->config)
                      : atom_fail_memory("a path", strlen(path));
}

/* A file that is not JSON holds text or weights, and what its first character is helps nobody. */
static atom_status resolve_config(const char *path, file_model *model)
{
    model->kind = FILE_MODEL_CONFIG;
    char start[64] = "", *first = start;
    FILE *f = fopen(path, "rb");
    size_t n = f ? fread(start, 1, sizeof start - 1, f) : 0;
    if (f)
        fclose(f);
    if (atom_is_lfs_pointer(start, n))
        return atom_fail_lfs(path);
    const char *end = strrchr(path, '.');
    if (end && (strcmp(end, ".safetensors") == 0 || strcmp(end, ".bin") == 0))
        return atom_fail(ATOM_E_USAGE,
                         "%s is a file of a model; give the directory that contains it and its "
                         "config.json",
                         path);
    first += memcmp(start, "\xef\xbb\xbf", 3) == 0 ? 3 : 0; /* whoever reads it refuses that */
    first += strspn(first, " \t\r\n");
    if (f && *first != '{' && *first)
        return atom_fail(
            ATOM_E_FORMAT,
            "%s is not a model: a file must be a config.json, a .pt2 of torch.export or a GGUF",
            path);
    ATOM_TRY(file_config_read(path, &model->config, &model->source));
    const char *slash = strrchr(path, '/');
    char *dir =
        slash ? atom_strndup(path, (size_t)(slash - path) + (slash == path)) : atom_strdup(".");
    atom_status st =
        dir ? file_buffers_read(dir, model->config.own) : atom_fail_memory("a path", strlen(path));
    atom_free(dir);
    return st;
}

atom_status file_model_resolve(const char *spec, file_model *out)
{
    file_model model = {0};
    atom_status st = ATOM_OK;
    if (is_preset(spec)) {
        st = take_preset(spec, &model);
    } else if (atom_path_is_dir(spec) && is_adapter(spec)) {
        st = resolve_adapter(spec, &model);
    } else if (atom_path_is_dir(spec)) {
        st = resolve_dir(spec, &model);
    } else if (file_pt2_is_file(spec)) {
        st = resolve_pt2(spec, &model);
    } else if (file_gguf_is_file(spec)) {
        st = resolve_gguf(spec, &model);
    } else if (atom_path_exists(spec)) {
        st = resolve_config(spec, &model);
    } else {
        st = no_model(spec);
    }
    if (st != ATOM_OK) {
        file_model_free(&model);
        return st;
    }
    *out = model;
    return ATOM_OK;
}

void file_model_free(file_model *model)
{
    graph_config_free(&model->config);
    atom_free(model->dir);
    atom_free(model->source);
    atom_free(model->adapter);
    *model = (file_model){0};
}
