/*
 * Owns the distance between two words: letters to change, add or drop. Refuses words of 64 letters.
 */
#include "atom/base/nearest.h"

#include <string.h>

static size_t edit_distance(const char *a, const char *b)
{
    size_t n = strlen(b), row[64];
    if (n >= 64 || strlen(a) >= 64)
        return 99;
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 1; a[i - 1]; i++) {
        size_t corner = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t best = corner + (a[i - 1] != b[j - 1]);
            corner = row[j];
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[n];
}

const char *atom_did_you_mean(const char *word, const char *const *names, size_t n)
{
    size_t best = 2 + strlen(word) / 4;
    const char *found = NULL;
    for (size_t i = 0; i < n; i++) {
        size_t d = edit_distance(word, names[i]);
        if (d < best) {
            best = d;
            found = names[i];
        }
    }
    for (size_t i = 0; i < n && !found && strlen(word) > 2; i++) /* a word that ends early */
        found = strncmp(word, names[i], strlen(word)) == 0 ? names[i] : NULL;
    return found;
}
