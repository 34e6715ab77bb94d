/* Any bytes as an array of JSON (behind an a) or as CSV, whole and in two blocks: lines that the whole
 * gives are those that its blocks give. */
#include "atom/base/assert.h"
#include "atom/base/mem.h"
#include "atom/text/records.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct lines {
    char *text; /* malloc */
    size_t n;
    bool good;
} lines;

static void put(lines *l, const char *text, size_t bytes)
{
    l->text = realloc(l->text, l->n + bytes + 1);
    ATOM_ASSERT(l->text);
    if (bytes)
        memcpy(l->text + l->n, text, bytes);
    l->n += bytes;
}

static void read_block(lines *l, bool array, text_table *t, const text_records_place *at,
                       const char *data, size_t bytes)
{
    char *made = NULL;
    size_t n = 0;
    if (!l->good)
        return;
    if (array) {
        size_t from = l->n;
        put(l, data, bytes);
        l->good = text_array_lines(at, l->text + from, bytes) == ATOM_OK;
        return;
    }
    l->good = text_table_lines(t, at, data, bytes, &made, &n) == ATOM_OK;
    if (l->good)
        put(l, made, n);
    atom_free(made);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bool array = size && data[0] == 'a';
    const char *text = (const char *)data + (size != 0);
    size_t n = size - (size != 0), half = n / 2, cut;
    text_records_place all = {"f", 1, true, true}, first = {"f", 1, true, false},
                       second = {"f", 2, false, true}; /* whatever its number is */
    lines whole = {.good = true}, parts = {.good = true};
    text_table t = {0};
    if (n == 0)
        return 0;
    read_block(&whole, array, &t, &all, text, n);
    cut = array ? text_array_cut(text, half, true) : text_table_cut(text, half);
    ATOM_ASSERT(cut <= half);
    if (cut) {
        read_block(&parts, array, &t, &first, text, cut);
        read_block(&parts, array, &t, &second, text + cut, n - cut);
        ATOM_ASSERT(!whole.good || (parts.good && parts.n == whole.n));
        ATOM_ASSERT(!whole.good || memcmp(whole.text, parts.text, whole.n) == 0);
    }
    text_table_fini(&t);
    free(whole.text);
    free(parts.text);
    return 0;
}
