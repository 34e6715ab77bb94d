/*
 * Owns CSV as lines of JSON. One idea: libcsv reads the rows, and each becomes an object with the
 * header's names. Refuses rows of another length than the header, and quotes that are not closed.
 */
#include "atom/text/chat.h"
#include "atom/text/records.h"

#include "atom/base/mem.h"

#include <csv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void text_table_fini(text_table *t)
{
    for (size_t i = 0; i < t->n; i++)
        atom_free(t->keys[i]);
    atom_free(t->keys);
    *t = (text_table){0};
}

/* In quotes line ends are text; two quotes in a row change nothing. */
size_t text_table_cut(const char *data, size_t bytes)
{
    size_t cut = 0;
    bool quoted = false;
    for (size_t i = 0; i < bytes; i++) {
        quoted ^= data[i] == '"';
        if (data[i] == '\n' && !quoted)
            cut = i + 1;
    }
    return cut;
}

/* One block under way. */
typedef struct reading {
    text_table *t;
    const text_records_place *at;
    char *out;
    size_t n, capacity, fields; /* fields: of the row so far */
    uint64_t record;
    bool header;
    atom_status st;
} reading;

static void put(reading *r, const char *text, size_t bytes)
{
    if (r->capacity - r->n < bytes) {
        size_t want = (r->n + bytes) * 3 / 2 + 4096;
        char *grown = atom_realloc(r->out, want, 1);
        if (!grown) {
            r->st = atom_fail_memory("rows of CSV", want);
            return;
        }
        r->out = grown;
        r->capacity = want;
    }
    if (bytes)
        memcpy(r->out + r->n, text, bytes);
    r->n += bytes;
}

static void put_string(reading *r, const char *text, size_t bytes)
{
    char escape[8];
    size_t run = 0;
    put(r, "\"", 1);
    for (size_t i = 0; i < bytes && r->st == ATOM_OK; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        put(r, text + run, i - run);
        if (r->st == ATOM_OK)
            put(r, escape, (size_t)snprintf(escape, sizeof escape, "\\u%04x", c));
        run = i + 1;
    }
    if (r->st == ATOM_OK)
        put(r, text + run, bytes - run);
    if (r->st == ATOM_OK)
        put(r, "\"", 1);
}

static void add_key(reading *r, const char *text, size_t bytes)
{
    text_table *t = r->t;
    r->st = atom_grow(&t->keys, t->n, &t->capacity, sizeof *t->keys);
    if (r->st != ATOM_OK)
        return;
    t->keys[t->n] = atom_strndup(text, bytes);
    if (t->keys[t->n])
        t->n++;
    else
        r->st = atom_fail_memory("a header", bytes);
}

static void take_field(void *text, size_t bytes, void *ctx)
{
    reading *r = ctx;
    if (r->st != ATOM_OK)
        return;
    if (r->header) {
        add_key(r, text, bytes);
        return;
    }
    if (r->fields < r->t->n) {
        put(r, r->fields ? ", " : "{", r->fields ? 2 : 1);
        if (r->st == ATOM_OK)
            put_string(r, r->t->keys[r->fields], strlen(r->t->keys[r->fields]));
        if (r->st == ATOM_OK)
            put(r, ": ", 2);
        if (r->st == ATOM_OK)
            put_string(r, text, bytes);
    }
    r->fields++;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* What the rows hold is found by the header's names. */
static atom_status check_header(const reading *r)
{
    const text_table *t = r->t;
    const char *name = r->at->name, *same = NULL; /* "FILE, row" */
    const char *end = strrchr(name, ',');
    int file = (int)(end ? (size_t)(end - name) : strlen(name));
    if (t->n == 1 && strpbrk(t->keys[0], ";\t|"))
        return atom_fail(ATOM_E_FORMAT,
                         "%.*s: the header is one column, \"%.80s\"; write the table with commas "
                         "between columns",
                         file, name, t->keys[0]);
    char **sorted = atom_alloc(t->n, sizeof *sorted);
    if (!sorted)
        return atom_fail_memory("a header", t->n * sizeof *sorted);
    memcpy(sorted, t->keys, t->n * sizeof *sorted);
    qsort(sorted, t->n, sizeof *sorted, by_name);
    for (size_t i = 1; i < t->n && !same; i++)
        same = strcmp(sorted[i - 1], sorted[i]) == 0 ? sorted[i] : NULL;
    atom_free(sorted);
    if (same && !*same)
        return atom_fail(ATOM_E_FORMAT, "%.*s: two columns of the header have no name; name them",
                         file, name);
    if (same)
        return atom_fail(ATOM_E_FORMAT,
                         "%.*s: two columns of the header are called \"%.80s\"; rename one of them",
                         file, name, same);
    return ATOM_OK;
}

static void take_row(int c, void *ctx)
{
    reading *r = ctx;
    (void)c;
    if (r->st != ATOM_OK)
        return;
    if (r->header) {
        r->header = false;
        r->st = check_header(r);
        return;
    }
    if (r->fields == r->t->n)
        put(r, "}\n", 2);
    else
        r->st = text_fail_line(r->at->name, r->record,
                               "it has %zu field%s, but the header has "
                               "%zu",
                               r->fields, r->fields == 1 ? "" : "s", r->t->n);
    r->fields = 0;
    r->record++;
}

static void *grow(void *block, size_t bytes)
{
    return atom_realloc(block, bytes, 1);
}

/* Blanks around a field are its own. */
static int no_blank(unsigned char c)
{
    (void)c;
    return 0;
}

static atom_status parse(reading *r, struct csv_parser *p, const char *data, size_t bytes)
{
    bool whole = csv_parse(p, data, bytes, take_field, take_row, r) == bytes &&
                 csv_fini(p, take_field, take_row, r) == 0;
    if (r->st != ATOM_OK || whole)
        return r->st;
    if (csv_error(p) == CSV_ENOMEM)
        return atom_fail_memory("a row of CSV", bytes);
    return text_fail_line(r->at->name, r->record,
                          "a quote is in the wrong place or not closed; a field that contains "
                          "quotes must itself be in quotes, with its own quotes doubled");
}

atom_status text_table_lines(text_table *t, const text_records_place *at, const char *data,
                             size_t bytes, char **lines, size_t *lines_bytes)
{
    struct csv_parser p;
    reading r = {.t = t, .at = at, .record = at->record, .header = at->first || t->n == 0};
    size_t mark = at->first && bytes >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    csv_init(&p, CSV_STRICT | CSV_STRICT_FINI);
    csv_set_realloc_func(&p, grow);
    csv_set_free_func(&p, atom_free);
    csv_set_space_func(&p, no_blank);
    if (at->first)
        text_table_fini(t);
    atom_status st = parse(&r, &p, data + mark, bytes - mark);
    csv_free(&p);
    if (st != ATOM_OK) {
        atom_free(r.out);
        return st;
    }
    *lines = r.out;
    *lines_bytes = r.n;
    return ATOM_OK;
}
