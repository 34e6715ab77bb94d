/*
 * Owns what shards are called. One idea: whoever numbers files says which of them there are, so a shard that was not
 * copied shows as a gap between two others. Refuses gaps and twins; a shard that is missing at an end of its series
 * does not show here.
 */
#include "atom/text/names.h"

#include "atom/text/dataset.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

static const char END[] = ".bin";
enum { END_BYTES = sizeof END - 1, DIGITS_MAX = 18 };

const char *text_split_name(text_split split)
{
    return split == TEXT_TRAIN ? "train" : "val";
}

bool text_is_shard(const char *name, text_split split)
{
    const char *word = text_split_name(split);
    size_t n = strlen(name), word_n = strlen(word);
    if (n <= END_BYTES || strcmp(name + n - END_BYTES, END) != 0)
        return false;
    for (const char *at = strstr(name, word); at; at = strstr(at + 1, word))
        if ((at[word_n] == '_' || at + word_n == name + n - END_BYTES) &&
            (at == name || at[-1] == '_'))
            return true;
    return false;
}

bool text_shards_exist(const char *dir, text_split split)
{
    bool found = false;
    DIR *list = opendir(dir);
    for (struct dirent *entry; list && !found && (entry = readdir(list));)
        found = text_is_shard(entry->d_name, split);
    if (list)
        closedir(list);
    return found;
}

text_numbered text_shard_number(const char *name)
{
    text_numbered out = {.name = name};
    size_t end = strlen(name) - END_BYTES, at = end;
    while (at > 0 && name[at - 1] >= '0' && name[at - 1] <= '9')
        at--;
    if (at == end || end - at > DIGITS_MAX || at < 2 || name[at - 1] != '_')
        return out;
    out.series = at - 1;
    for (; at < end; at++)
        out.number = 10 * out.number + (uint64_t)(name[at] - '0');
    return out;
}

bool text_same_series(const text_numbered *a, const text_numbered *b)
{
    return a->series == b->series && strncmp(a->name, b->name, a->series) == 0;
}

static int compare(const void *a, const void *b)
{
    const text_numbered *x = a, *y = b;
    size_t n = x->series < y->series ? x->series : y->series;
    int order = strncmp(x->name, y->name, n);
    if (order == 0 && x->series != y->series)
        return x->series < y->series ? -1 : 1;
    return order != 0 ? order : (x->number > y->number) - (x->number < y->number);
}

atom_status text_numbers_check(const char *dir, text_numbered *shards, size_t n)
{
    if (n > 0)
        qsort(shards, n, sizeof *shards, compare);
    for (size_t i = 1; i < n; i++) {
        const text_numbered *a = &shards[i - 1], *b = &shards[i];
        if (b->series == 0 || !text_same_series(a, b) || b->number == a->number + 1)
            continue;
        if (b->number == a->number)
            return atom_fail(ATOM_E_FORMAT,
                             "%s: %s and %s have the same number; if they are of two data sets, "
                             "move one of them away",
                             dir, a->name, b->name);
        int digits = (int)(strlen(a->name) - END_BYTES - a->series - 1);
        return atom_fail(ATOM_E_FORMAT,
                         "%s: between %s and %s there is no %.*s_%0*llu%s; copy the data again, "
                         "or, if it was left out on purpose, number the files without a gap",
                         dir, a->name, b->name, (int)b->series, b->name, digits,
                         (unsigned long long)a->number + 1, END);
    }
    return ATOM_OK;
}
