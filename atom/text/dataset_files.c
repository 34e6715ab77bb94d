/*
 * Owns the list of files that make a data set, for copying one to another host. One idea: what
 * training reads is a shard, what lies beside it under its name, and the counts; nothing else of a
 * directory is anybody's business. Refuses nothing but a directory without training shards.
 */
#include "atom/text/dataset.h"

#include "atom/base/files.h"
#include "atom/base/mem.h"
#include "atom/text/mask.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char COUNTS[] = "dataset.json";

static bool is_any_shard(const char *name)
{
    return text_is_shard(name, TEXT_TRAIN) || text_is_shard(name, TEXT_VAL);
}

bool text_is_dataset_file(const char *name)
{
    static const char *const beside[] = {".mask", ".begins"};
    char shard[256];
    size_t n = strlen(name);
    if (strchr(name, '/'))
        return false;
    if (is_any_shard(name) || strcmp(name, COUNTS) == 0)
        return true;
    for (int i = 0; i < 2 && n < sizeof shard - 5; i++) {
        size_t end = strlen(beside[i]);
        if (n <= end || strcmp(name + n - end, beside[i]) != 0)
            continue;
        memcpy(shard, name, n - end);
        memcpy(shard + n - end, ".bin", 5);
        return is_any_shard(shard);
    }
    return false;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static atom_status add(text_file_list *l, size_t *capacity, const char *name)
{
    atom_status st = atom_grow(&l->name, l->n, capacity, sizeof *l->name);
    char *copy = st == ATOM_OK ? atom_strdup(name) : NULL;
    if (st == ATOM_OK && !copy)
        return atom_fail_memory("a name", strlen(name));
    if (st == ATOM_OK)
        l->name[l->n++] = copy;
    return st;
}

/* Its mask and its begins, where it has them. */
static atom_status add_beside(text_file_list *l, size_t *capacity, const char *dir,
                              const char *shard)
{
    char *beside[] = {text_mask_path(shard), text_begins_path(shard)};
    atom_status st = ATOM_OK;
    for (int i = 0; i < 2 && st == ATOM_OK; i++) {
        char *path = beside[i] ? atom_path_join(dir, beside[i]) : NULL;
        if (!path)
            st = atom_fail_memory("a path", 256);
        else if (atom_path_exists(path))
            st = add(l, capacity, beside[i]);
        atom_free(path);
    }
    atom_free(beside[0]);
    atom_free(beside[1]);
    return st;
}

atom_status text_dataset_files(const char *dir, text_file_list *out)
{
    text_file_list l = {0};
    size_t capacity = 0;
    atom_status st = ATOM_OK;
    char *counts = NULL;
    DIR *list = opendir(dir);
    if (!list)
        return atom_fail(ATOM_E_FORMAT, "%s: %s", dir, strerror(errno));
    for (struct dirent *entry; (entry = readdir(list));)
        if (is_any_shard(entry->d_name)) {
            ATOM_TRY_CLEAN(add(&l, &capacity, entry->d_name));
            ATOM_TRY_CLEAN(add_beside(&l, &capacity, dir, entry->d_name));
        }
    if (l.n)
        qsort(l.name, l.n, sizeof *l.name, compare_names);
    counts = atom_path_join(dir, COUNTS);
    if (!counts)
        ATOM_TRY_CLEAN(atom_fail_memory("a path", 256));
    if (atom_path_exists(counts))
        ATOM_TRY_CLEAN(add(&l, &capacity, COUNTS));
    *out = l;
    l = (text_file_list){0};
cleanup:
    closedir(list);
    atom_free(counts);
    text_file_list_free(&l);
    return st;
}

void text_file_list_free(text_file_list *l)
{
    for (uint32_t i = 0; i < l->n; i++)
        atom_free(l->name[i]);
    atom_free(l->name);
    *l = (text_file_list){0};
}
