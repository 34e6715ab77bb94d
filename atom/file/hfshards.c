/*
 * Owns which files of a directory hold its weights: model.safetensors, or what its index names, or
 * pytorch_model.bin likewise where there is none of these. One idea: the index is a claim that is
 * compared with what the shards really hold, tensor by tensor. Refuses names that could lead out of
 * the directory.
 */
#include "atom/file/hfweights.h"

#include "atom/base/files.h"
#include "atom/base/json.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"
#include "atom/file/torchfile.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { INDEX_BYTES_MAX = 64 << 20, SHARDS_MAX = 4096 };

/* A plain file name: no directories, no drive letters, and the index's own kind of file. */
static bool is_shard_name(const char *name, bool pickles)
{
    size_t n = strlen(name);
    bool ends =
        pickles ? file_torch_is_name(name) : n > 12 && strcmp(name + n - 12, ".safetensors") == 0;
    return ends && n < 256 && name[0] != '.' && !strchr(name, '/') && !strchr(name, '\\') &&
           !strchr(name, ':') && !strstr(name, "..");
}

static int order_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The distinct shard names of the map, sorted, borrowed from it. */
static atom_status list_shards(const char *index_path, json_t *map, const char ***out, size_t *n)
{
    const char *tensor;
    json_t *value;
    size_t count = 0, kept = 0;
    bool pickles = strstr(index_path, ".bin.index.json") != NULL;
    const char **names = atom_alloc(json_object_size(map) + 1, sizeof *names);
    if (!names)
        return atom_fail_memory(index_path, json_object_size(map) * sizeof *names);
    json_object_foreach(map, tensor, value)
    {
        const char *name = json_string_value(value);
        if (!name || !is_shard_name(name, pickles)) {
            atom_free(names);
            return atom_fail(ATOM_E_FORMAT,
                             "%s: tensor '%.128s' is supposed to be in '%.64s', which is not a "
                             "plain name of a %s file",
                             index_path, tensor, name ? name : "(not a string)",
                             pickles ? ".bin" : ".safetensors");
        }
        names[count++] = name;
    }
    qsort(names, count, sizeof *names, order_names);
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || strcmp(names[i], names[i - 1]) != 0)
            names[kept++] = names[i];
    }
    if (kept == 0 || kept > SHARDS_MAX) {
        atom_free(names);
        return atom_fail(ATOM_E_FORMAT, "%s: weight_map names %zu files", index_path, kept);
    }
    *out = names;
    *n = kept;
    return ATOM_OK;
}

/* Every tensor the map puts here is here; the shard's others are told. */
static atom_status compare(const file_safetensors *file, const char *name, json_t *map)
{
    const char *tensor;
    json_t *value;
    json_object_foreach(map, tensor, value)
    {
        if (strcmp(json_string_value(value), name) == 0 && !file_st_find(file, tensor))
            return atom_fail(ATOM_E_FORMAT,
                             "%s: tensor '%.128s' is missing; the index says it is here",
                             file->path, tensor);
    }
    for (uint32_t i = 0; i < file->n_tensors; i++) {
        value = json_object_get(map, file->tensors[i].name);
        if (!value)
            atom_log(ATOM_LOG_WARN, "%s: tensor '%.128s' is not in the index", file->path,
                     file->tensors[i].name);
        else if (strcmp(json_string_value(value), name) != 0)
            return atom_fail(ATOM_E_FORMAT, "%s: tensor '%.128s' is also in %.64s", file->path,
                             file->tensors[i].name, json_string_value(value));
    }
    return ATOM_OK;
}

/* Text of an index -> its tree (free with json_decref) and the names in it
 * (free with atom_free). */
static atom_status parse_index(const char *path, const char *text, size_t bytes, json_t **root,
                               const char ***names, size_t *n)
{
    json_t *loaded = NULL;
    ATOM_TRY(atom_json_parse(path, text, bytes, 0, &loaded));
    json_t *map = json_object_get(loaded, "weight_map");
    atom_status st =
        json_is_object(map)
            ? list_shards(path, map, names, n)
            : atom_fail(ATOM_E_FORMAT, "%s: weight_map is missing or not an object", path);
    if (st != ATOM_OK)
        json_decref(loaded);
    else
        *root = loaded;
    return st;
}

atom_status file_index_check(const char *path, const char *text, size_t bytes)
{
    json_t *root = NULL;
    const char **names = NULL;
    size_t n = 0;
    atom_status st = parse_index(path, text, bytes, &root, &names, &n);
    atom_free(names);
    json_decref(root);
    return st;
}

static atom_status read_index(const char *path, file_shards *s)
{
    char *text = NULL;
    uint64_t bytes = 0;
    ATOM_TRY(atom_file_read(path, INDEX_BYTES_MAX, &text, &bytes));
    atom_status st = parse_index(path, text, (size_t)bytes, &s->index, &s->names, &s->n);
    atom_free(text);
    return st;
}

/* In the order in which they are looked for; each second one is an index. */
static const char *const names_of_weights[] = {"model.safetensors", "model.safetensors.index.json",
                                               "pytorch_model.bin", "pytorch_model.bin.index.json"};
enum { N_NAMES = sizeof names_of_weights / sizeof *names_of_weights };

/* *which: the first that is there; N_NAMES: none. */
static atom_status find_weights(const char *dir, int *which)
{
    for (*which = 0; *which < N_NAMES; ++*which) {
        char *path = atom_path_join(dir, names_of_weights[*which]);
        if (!path)
            return atom_fail_memory("a path", strlen(dir));
        bool there = atom_path_exists(path);
        atom_free(path);
        if (there)
            break;
    }
    return ATOM_OK;
}

bool file_weights_exist(const char *dir)
{
    int which = N_NAMES;
    return find_weights(dir, &which) == ATOM_OK && which < N_NAMES;
}

/* Parts of a model that was cut otherwise, and left here when another took its place. */
static atom_status warn_of_others(const file_shards *s, int which)
{
    const bool pickles = which > 1, indexed = which % 2 == 1;
    const char *const begin = pickles ? "pytorch_model-" : "model-";
    char first[256] = "", more[48] = "";
    size_t n = 0;
    DIR *list = opendir(s->dir);
    if (!list)
        return atom_fail_errno(errno, "cannot open directory %s", s->dir);
    for (struct dirent *entry; (entry = readdir(list));) {
        const char *name = entry->d_name;
        if (strncmp(name, begin, strlen(begin)) != 0 || !is_shard_name(name, pickles) ||
            bsearch(&name, s->names, s->n, sizeof *s->names, order_names))
            continue;
        if (n++ == 0 || strcmp(name, first) < 0)
            snprintf(first, sizeof first, "%s", name);
    }
    closedir(list);
    if (n > 1)
        snprintf(more, sizeof more, " (and %zu more like it)", n - 1);
    if (n > 0)
        atom_log(ATOM_LOG_WARN, "%s: %s%s is not read, since %s%s; it may be of another model",
                 s->dir, first, more, names_of_weights[which],
                 indexed ? " does not name it" : " has all weights");
    return ATOM_OK;
}

/* Of one kind the single file is read, as transformers does it; a directory of shards to which somebody added a
 * file, or the other way round, is of two models. */
static atom_status warn_of_index(const file_shards *s, int which)
{
    char *index = atom_path_join(s->dir, names_of_weights[which + 1]);
    if (!index)
        return atom_fail_memory("a path", strlen(s->dir));
    bool there = atom_path_exists(index);
    atom_free(index);
    if (!there)
        return warn_of_others(s, which);
    atom_log(ATOM_LOG_WARN,
             "%s has both %s and %s; the first is read, as transformers does it, and the files "
             "that the other names are not",
             s->dir, names_of_weights[which], names_of_weights[which + 1]);
    return ATOM_OK;
}

atom_status file_shards_list(const char *dir, file_shards *s)
{
    int which = N_NAMES;
    *s = (file_shards){.dir = dir};
    ATOM_TRY(find_weights(dir, &which));
    if (which == N_NAMES)
        return atom_fail(ATOM_E_FORMAT, "%s has neither model.safetensors nor its index", dir);
    if (which % 2 == 0) {
        s->names = atom_alloc(1, sizeof *s->names);
        if (!s->names)
            return atom_fail_memory("a name", sizeof *s->names);
        s->names[s->n++] = names_of_weights[which];
        return warn_of_index(s, which);
    }
    char *index = atom_path_join(dir, names_of_weights[which]);
    atom_status st = index ? read_index(index, s) : atom_fail_memory("a path", strlen(dir));
    atom_free(index);
    return st == ATOM_OK ? warn_of_others(s, which) : st;
}

void file_shards_free(file_shards *s)
{
    atom_free(s->names);
    json_decref(s->index);
    *s = (file_shards){0};
}

atom_status file_shards_open_one(const file_shards *s, size_t i, file_safetensors **file)
{
    char *path = atom_path_join(s->dir, s->names[i]);
    if (!path)
        return atom_fail_memory("a path", strlen(s->dir));
    atom_status st =
        file_torch_is_name(path) ? file_torch_open(path, file) : file_st_open(path, file);
    atom_free(path);
    if (st != ATOM_OK || !s->index)
        return st;
    return compare(*file, s->names[i], json_object_get(s->index, "weight_map"));
}

atom_status file_shards_open(const char *dir, file_safetensors ***files, uint32_t *n)
{
    file_shards s;
    atom_status st;
    ATOM_TRY_CLEAN(file_shards_list(dir, &s));
    *files = atom_alloc(s.n, sizeof **files);
    if (!*files)
        ATOM_TRY_CLEAN(atom_fail_memory(dir, s.n * sizeof **files));
    *n = (uint32_t)s.n;
    for (size_t i = 0; i < s.n; i++)
        ATOM_TRY_CLEAN(file_shards_open_one(&s, i, &(*files)[i]));
cleanup:
    file_shards_free(&s);
    return st;
}
