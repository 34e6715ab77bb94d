/*
 * Owns the words and numbers of the graph's text form. One idea: a line is split once into spans of
 * the text, and a value is judged when it is asked for, so that what nobody asked for is known at
 * the end. Refuses numbers with signs, fractions or too many digits, and floats that are not exact.
 */
#include "atom/graph/words.h"

#include <float.h>
#include <math.h>
#include <string.h>

bool graph_span_is(graph_span a, const char *text)
{
    return a.n == strlen(text) && memcmp(a.s, text, a.n) == 0;
}

const char *graph_span_show(graph_span a, char buf[GRAPH_SHOWN_MAX])
{
    size_t n = a.n < GRAPH_SHOWN_MAX - 1 ? a.n : GRAPH_SHOWN_MAX - 1;
    for (size_t i = 0; i < n; i++)
        buf[i] = a.s[i] > ' ' && a.s[i] < 0x7f ? a.s[i] : '?';
    buf[n] = '\0';
    return buf;
}

static bool blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* The next word before `end`; empty at the end. */
static graph_span word_next(const char **at, const char *end)
{
    while (*at < end && blank(**at))
        (*at)++;
    graph_span word = {*at, 0};
    while (*at < end && !blank(**at))
        (*at)++;
    word.n = (size_t)(*at - word.s);
    return word;
}

static atom_status field_add(graph_line *line, graph_span word)
{
    char buf[GRAPH_SHOWN_MAX];
    const char *equals = memchr(word.s, '=', word.n);
    if (!equals || equals == word.s)
        return atom_fail(ATOM_E_FORMAT, "\"%s\" is not key=value", graph_span_show(word, buf));
    graph_field f = {.key = {word.s, (size_t)(equals - word.s)}};
    f.value = (graph_span){equals + 1, word.n - f.key.n - 1};
    for (uint32_t i = 0; i < line->n_fields; i++)
        if (line->fields[i].key.n == f.key.n &&
            memcmp(line->fields[i].key.s, f.key.s, f.key.n) == 0)
            return atom_fail(ATOM_E_FORMAT, "the key \"%s\" appears twice",
                             graph_span_show(f.key, buf));
    if (line->n_fields == GRAPH_FIELDS_MAX)
        return atom_fail(ATOM_E_FORMAT, "more than %d fields", GRAPH_FIELDS_MAX);
    line->fields[line->n_fields++] = f;
    return ATOM_OK;
}

atom_status graph_line_split(const char *at, const char *end, graph_line *line)
{
    line->n_fields = 0;
    line->kind = word_next(&at, end);
    if (line->kind.n > 0 && line->kind.s[0] == '#')
        line->kind.n = 0;
    line->name = line->kind.n > 0 ? word_next(&at, end) : line->kind;
    while (line->name.n > 0) {
        graph_span word = word_next(&at, end);
        if (word.n == 0)
            break;
        ATOM_TRY(field_add(line, word));
    }
    return ATOM_OK;
}

atom_status graph_line_done(const graph_line *line)
{
    char kind[GRAPH_SHOWN_MAX], key[GRAPH_SHOWN_MAX];
    for (uint32_t i = 0; i < line->n_fields; i++)
        if (!line->fields[i].taken)
            return atom_fail(ATOM_E_FORMAT, "a %s line has no key \"%s\"",
                             graph_span_show(line->kind, kind),
                             graph_span_show(line->fields[i].key, key));
    return ATOM_OK;
}

bool graph_field_find(graph_line *line, const char *key, graph_span *value)
{
    *value = (graph_span){"", 0};
    for (uint32_t i = 0; i < line->n_fields; i++) {
        if (!graph_span_is(line->fields[i].key, key))
            continue;
        line->fields[i].taken = true;
        *value = line->fields[i].value;
        return true;
    }
    return false;
}

atom_status graph_field_need(graph_line *line, const char *key, graph_span *value)
{
    if (graph_field_find(line, key, value))
        return ATOM_OK;
    return atom_fail(ATOM_E_FORMAT, "the key \"%s\" is missing", key);
}

atom_status graph_field_choice(graph_line *line, const char *key, const char *const *words, int n,
                               int *choice)
{
    char buf[GRAPH_SHOWN_MAX];
    graph_span value;
    ATOM_TRY(graph_field_need(line, key, &value));
    for (int i = 0; i < n; i++) {
        if (graph_span_is(value, words[i])) {
            *choice = i;
            return ATOM_OK;
        }
    }
    return atom_fail(ATOM_E_FORMAT, "%s=%s: unknown value", key, graph_span_show(value, buf));
}

static bool span_digits(graph_span a, int64_t most, int64_t *value)
{
    int64_t v = 0;
    if (a.n == 0 || a.n > 10)
        return false;
    for (size_t i = 0; i < a.n; i++) {
        if (a.s[i] < '0' || a.s[i] > '9')
            return false;
        v = 10 * v + (a.s[i] - '0');
    }
    *value = v;
    return v <= most;
}

atom_status graph_field_int(graph_line *line, const char *key, bool need, int64_t most,
                            int64_t *value)
{
    char buf[GRAPH_SHOWN_MAX];
    graph_span text;
    if (!graph_field_find(line, key, &text))
        return need ? graph_field_need(line, key, &text) : ATOM_OK;
    if (!span_digits(text, most, value))
        return atom_fail(ATOM_E_FORMAT, "%s=%s: not a whole number of at most %lld", key,
                         graph_span_show(text, buf), (long long)most);
    return ATOM_OK;
}

static bool span_float(graph_span a, float *value)
{
    if (graph_span_is(a, "0")) {
        *value = 0;
        return true;
    }
    const char *p = memchr(a.s, 'p', a.n);
    if (!p || a.n < 5 || a.s[0] != '0' || a.s[1] != 'x' || p == a.s + 2 || p > a.s + 9)
        return false;
    uint32_t m = 0;
    for (const char *c = a.s + 2; c < p; c++) {
        if (*c >= '0' && *c <= '9')
            m = 16 * m + (uint32_t)(*c - '0');
        else if (*c >= 'a' && *c <= 'f')
            m = 16 * m + (uint32_t)(*c - 'a' + 10);
        else
            return false;
    }
    graph_span digits = {p + 1, (size_t)(a.s + a.n - p - 1)};
    bool negative = digits.n > 0 && digits.s[0] == '-';
    if (negative)
        digits = (graph_span){digits.s + 1, digits.n - 1};
    int64_t exponent;
    if (!span_digits(digits, 200, &exponent))
        return false;
    double exact = ldexp((double)m, negative ? -(int)exponent : (int)exponent);
    if (exact > (double)FLT_MAX)
        return false;
    *value = (float)exact;
    return (double)*value == exact;
}

atom_status graph_field_float(graph_line *line, const char *key, bool need, float *value)
{
    char buf[GRAPH_SHOWN_MAX];
    graph_span text;
    if (!graph_field_find(line, key, &text))
        return need ? graph_field_need(line, key, &text) : ATOM_OK;
    if (!span_float(text, value))
        return atom_fail(ATOM_E_FORMAT,
                         "%s=%s: not an exact float, which is 0 or an integer times a power of two "
                         "as 0x..p..",
                         key, graph_span_show(text, buf));
    return ATOM_OK;
}

bool graph_span_next(graph_span *list, graph_span *item)
{
    if (!list->s)
        return false;
    const char *comma = memchr(list->s, ',', list->n);
    *item = (graph_span){list->s, comma ? (size_t)(comma - list->s) : list->n};
    *list = comma ? (graph_span){comma + 1, list->n - item->n - 1} : (graph_span){NULL, 0};
    return true;
}

atom_status graph_field_floats(graph_line *line, const char *key, int n, float *values)
{
    char buf[GRAPH_SHOWN_MAX];
    graph_span list, item;
    if (!graph_field_find(line, key, &list))
        return ATOM_OK;
    for (int i = 0; graph_span_next(&list, &item); i++) {
        if (i == n || !span_float(item, &values[i]))
            return atom_fail(ATOM_E_FORMAT,
                             "%s: \"%s\" is not one of at most %d exact floats, which are 0 or "
                             "integers times powers of two as 0x..p..",
                             key, graph_span_show(item, buf), n);
    }
    return ATOM_OK;
}

atom_status graph_field_dims(graph_line *line, int *rank, int64_t dims[GRAPH_RANK_MAX])
{
    char buf[GRAPH_SHOWN_MAX];
    graph_span list, item;
    ATOM_TRY(graph_field_need(line, "dims", &list));
    for (*rank = 0; graph_span_next(&list, &item); ++*rank) {
        if (*rank == GRAPH_RANK_MAX)
            return atom_fail(ATOM_E_FORMAT, "more than %d dims", GRAPH_RANK_MAX);
        if (!span_digits(item, GRAPH_DIM_MAX, &dims[*rank]))
            return atom_fail(ATOM_E_FORMAT, "dims: \"%s\" is not a whole number below 2^31",
                             graph_span_show(item, buf));
    }
    return ATOM_OK;
}
