/*
 * Owns reading a graph from its text form (text.c shows it). One idea: each line becomes one call
 * of the builder, which checks everything about shapes and attributes; what is left to do here is
 * words, numbers and names. The text is not trusted: every complaint names its line, nothing is
 * read beyond the given bytes, memory is bounded by the size of the text. Blank lines and lines
 * that start with # are skipped. Refuses unknown and repeated keys, names used before they are
 * defined, and floats that are not exact.
 */
#include "atom/graph/build.h"

#include "atom/base/env.h"
#include "atom/base/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { FIELDS_MAX = 8, SHOWN_MAX = 48 };

typedef struct span {
    const char *s;
    size_t n;
} span;

typedef struct field {
    span key, value;
    bool taken;
} field;

/* Names to ids by hashing, open addressing; a slot holds id + 1, or 0. */
typedef struct name_map {
    uint32_t *slots;
    size_t room, used; /* room is a power of two, or 0 */
} name_map;

typedef struct parsing {
    const char *at, *end;
    uint32_t line_n;
    graph *g; /* NULL until the graph line */
    bool headed;
    name_map tensors, params;
    span kind, name; /* of the current line */
    uint32_t n_fields;
    field fields[FIELDS_MAX];
} parsing;

static bool span_is(span a, const char *text)
{
    return a.n == strlen(text) && memcmp(a.s, text, a.n) == 0;
}

/* For messages: cut, and with what could disturb a terminal replaced. */
static const char *span_show(span a, char buf[SHOWN_MAX])
{
    size_t n = a.n < SHOWN_MAX - 1 ? a.n : SHOWN_MAX - 1;
    for (size_t i = 0; i < n; i++)
        buf[i] = a.s[i] > ' ' && a.s[i] < 0x7f ? a.s[i] : '?';
    buf[n] = '\0';
    return buf;
}

/* ---- names ---- */

static const char *map_name(const parsing *p, const name_map *map, uint32_t id)
{
    return map == &p->tensors ? p->g->tensors[id].name : p->g->params[id].name;
}

/* The slot that holds this name, or the empty one where it belongs. room > used. */
static uint32_t *map_slot(const parsing *p, const name_map *map, span name)
{
    size_t i = atom_hash(ATOM_HASH_SEED, name.s, name.n) & (map->room - 1);
    while (map->slots[i] != 0 && !span_is(name, map_name(p, map, map->slots[i] - 1)))
        i = (i + 1) & (map->room - 1);
    return &map->slots[i];
}

static atom_status map_grow(const parsing *p, name_map *map)
{
    if (map->room > 2 * map->used)
        return ATOM_OK;
    name_map larger = {.room = map->room ? 4 * map->room : 64, .used = map->used};
    larger.slots = atom_alloc(larger.room, sizeof *larger.slots);
    if (!larger.slots)
        return atom_fail_memory("names of a graph", larger.room * sizeof *larger.slots);
    uint32_t *old = map->slots;
    size_t old_room = map->room;
    *map = larger;
    for (size_t i = 0; i < old_room; i++) {
        if (old[i] == 0)
            continue;
        const char *name = map_name(p, map, old[i] - 1);
        *map_slot(p, map, (span){name, strlen(name)}) = old[i];
    }
    atom_free(old);
    return ATOM_OK;
}

/* Fails when the current line's name is taken. */
static atom_status map_check(const parsing *p, const name_map *map)
{
    char buf[SHOWN_MAX];
    if (map->room != 0 && *map_slot(p, map, p->name) != 0)
        return atom_fail(ATOM_E_FORMAT, "the name \"%s\" is defined twice",
                         span_show(p->name, buf));
    return ATOM_OK;
}

static atom_status map_add(const parsing *p, name_map *map, int32_t id)
{
    atom_status st = map_grow(p, map);
    if (st != ATOM_OK)
        return st;
    *map_slot(p, map, p->name) = (uint32_t)id + 1;
    map->used++;
    return ATOM_OK;
}

/* ---- words and fields ---- */

static bool blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* The next word before `end`; empty at the end. */
static span word_next(const char **at, const char *end)
{
    while (*at < end && blank(**at))
        (*at)++;
    span word = {*at, 0};
    while (*at < end && !blank(**at))
        (*at)++;
    word.n = (size_t)(*at - word.s);
    return word;
}

static atom_status field_add(parsing *p, span word)
{
    char buf[SHOWN_MAX];
    const char *equals = memchr(word.s, '=', word.n);
    if (!equals || equals == word.s)
        return atom_fail(ATOM_E_FORMAT, "\"%s\" is not key=value", span_show(word, buf));
    field f = {.key = {word.s, (size_t)(equals - word.s)}};
    f.value = (span){equals + 1, word.n - f.key.n - 1};
    for (uint32_t i = 0; i < p->n_fields; i++)
        if (p->fields[i].key.n == f.key.n && memcmp(p->fields[i].key.s, f.key.s, f.key.n) == 0)
            return atom_fail(ATOM_E_FORMAT, "the key \"%s\" stands twice", span_show(f.key, buf));
    if (p->n_fields == FIELDS_MAX)
        return atom_fail(ATOM_E_FORMAT, "more than %d fields", FIELDS_MAX);
    p->fields[p->n_fields++] = f;
    return ATOM_OK;
}

static bool field_find(parsing *p, const char *key, span *value)
{
    *value = (span){"", 0};
    for (uint32_t i = 0; i < p->n_fields; i++) {
        if (!span_is(p->fields[i].key, key))
            continue;
        p->fields[i].taken = true;
        *value = p->fields[i].value;
        return true;
    }
    return false;
}

static atom_status field_need(parsing *p, const char *key, span *value)
{
    if (field_find(p, key, value))
        return ATOM_OK;
    return atom_fail(ATOM_E_FORMAT, "the key \"%s\" is missing", key);
}

/* The value as one of n words. */
static atom_status field_choice(parsing *p, const char *key, const char *const *words, int n,
                                int *choice)
{
    char buf[SHOWN_MAX];
    span value;
    atom_status st = field_need(p, key, &value);
    if (st != ATOM_OK)
        return st;
    for (int i = 0; i < n; i++) {
        if (span_is(value, words[i])) {
            *choice = i;
            return ATOM_OK;
        }
    }
    return atom_fail(ATOM_E_FORMAT, "%s=%s: unknown value", key, span_show(value, buf));
}

/* ---- numbers ---- */

static bool span_digits(span a, int64_t most, int64_t *value)
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

/* Leaves *value alone when the key is absent and not needed. */
static atom_status field_int(parsing *p, const char *key, bool need, int64_t most, int64_t *value)
{
    char buf[SHOWN_MAX];
    span text;
    if (!field_find(p, key, &text))
        return need ? field_need(p, key, &text) : ATOM_OK;
    if (!span_digits(text, most, value))
        return atom_fail(ATOM_E_FORMAT, "%s=%s: not a whole number of at most %lld", key,
                         span_show(text, buf), (long long)most);
    return ATOM_OK;
}

/* "0x" hex digits "p" [-] digits, or "0"; exact as a float. */
static bool span_float(span a, float *value)
{
    if (span_is(a, "0")) {
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
    span digits = {p + 1, (size_t)(a.s + a.n - p - 1)};
    bool negative = digits.n > 0 && digits.s[0] == '-';
    if (negative)
        digits = (span){digits.s + 1, digits.n - 1};
    int64_t exponent;
    if (!span_digits(digits, 200, &exponent))
        return false;
    double exact = ldexp((double)m, negative ? -(int)exponent : (int)exponent);
    *value = (float)exact;
    return isfinite(*value) && (double)*value == exact;
}

static atom_status field_float(parsing *p, const char *key, bool need, float *value)
{
    char buf[SHOWN_MAX];
    span text;
    if (!field_find(p, key, &text))
        return need ? field_need(p, key, &text) : ATOM_OK;
    if (!span_float(text, value))
        return atom_fail(ATOM_E_FORMAT,
                         "%s=%s: not an exact float, which is 0 or an integer times a power of two "
                         "as 0x..p..",
                         key, span_show(text, buf));
    return ATOM_OK;
}

/* The next item of a comma list; false at the end. *list shrinks; an empty item is an item. */
static bool list_next(span *list, span *item)
{
    if (!list->s)
        return false;
    const char *comma = memchr(list->s, ',', list->n);
    *item = (span){list->s, comma ? (size_t)(comma - list->s) : list->n};
    *list = comma ? (span){comma + 1, list->n - item->n - 1} : (span){NULL, 0};
    return true;
}

static atom_status field_dims(parsing *p, int *rank, int64_t dims[GRAPH_RANK_MAX])
{
    char buf[SHOWN_MAX];
    span list, item;
    atom_status st = field_need(p, "dims", &list);
    if (st != ATOM_OK)
        return st;
    for (*rank = 0; list_next(&list, &item); ++*rank) {
        if (*rank == GRAPH_RANK_MAX)
            return atom_fail(ATOM_E_FORMAT, "more than %d dims", GRAPH_RANK_MAX);
        if (!span_digits(item, GRAPH_DIM_MAX, &dims[*rank]))
            return atom_fail(ATOM_E_FORMAT, "dims: \"%s\" is not a whole number below 2^31",
                             span_show(item, buf));
    }
    return ATOM_OK;
}

/* The ids of a comma list of names; absent is an empty list. */
static atom_status field_ids(parsing *p, const char *key, const name_map *map, int most, int *n,
                             int32_t *ids)
{
    char buf[SHOWN_MAX];
    span list, item;
    *n = 0;
    if (!field_find(p, key, &list))
        return ATOM_OK;
    for (; list_next(&list, &item); ++*n) {
        uint32_t slot = map->room ? *map_slot(p, map, item) : 0;
        if (slot == 0)
            return atom_fail(ATOM_E_FORMAT, "%s: nothing named \"%s\" is defined above", key,
                             span_show(item, buf));
        if (*n == most)
            return atom_fail(ATOM_E_FORMAT, "%s: more than %d names", key, most);
        ids[*n] = (int32_t)slot - 1;
    }
    return ATOM_OK;
}

/* ---- lines ---- */

/* The current line's name as a C string; the builder judges its characters. */
static atom_status name_get(const parsing *p, char name[GRAPH_NAME_MAX])
{
    char buf[SHOWN_MAX];
    if (p->name.n == 0 || p->name.n >= GRAPH_NAME_MAX || memchr(p->name.s, '\0', p->name.n))
        return atom_fail(ATOM_E_FORMAT, "\"%s\" is no name of 1 .. %d characters",
                         span_show(p->name, buf), GRAPH_NAME_MAX - 1);
    memcpy(name, p->name.s, p->name.n);
    name[p->name.n] = '\0';
    return ATOM_OK;
}

static atom_status parse_graph(parsing *p)
{
    static const char *const dtypes[] = {"fp32", "bf16"};
    char name[GRAPH_NAME_MAX];
    int dtype = 0;
    int64_t B = 0, T = 0;
    atom_status st;
    if (p->g)
        return atom_fail(ATOM_E_FORMAT, "a second graph line");
    ATOM_TRY(name_get(p, name));
    ATOM_TRY(field_choice(p, "dtype", dtypes, 2, &dtype));
    ATOM_TRY(field_int(p, "B", true, GRAPH_DIM_MAX, &B));
    ATOM_TRY(field_int(p, "T", true, GRAPH_DIM_MAX, &T));
    ATOM_TRY(graph_open(name, dtype ? ATOM_BF16 : ATOM_F32, B, T, &p->g));
    if (strcmp(p->g->name, name) != 0)
        return atom_fail(ATOM_E_FORMAT,
                         "the graph's name has characters other than letters, digits and . _ - / : "
                         "+");
    return ATOM_OK;
fail:
    return st;
}

static atom_status parse_param(parsing *p)
{
    static const char *const inits[] = {"zero", "one", "normal"};
    char name[GRAPH_NAME_MAX];
    int64_t dims[GRAPH_RANK_MAX];
    int rank, init = 0;
    float std = 0;
    int32_t id;
    atom_status st;
    ATOM_TRY(name_get(p, name));
    ATOM_TRY(map_check(p, &p->params));
    ATOM_TRY(field_dims(p, &rank, dims));
    ATOM_TRY(field_choice(p, "init", inits, 3, &init));
    ATOM_TRY(field_float(p, "std", init == GRAPH_INIT_NORMAL, &std));
    ATOM_TRY(graph_add_param(p->g, name, rank, dims, (graph_init)init, std, &id));
    ATOM_TRY(map_add(p, &p->params, id));
    return ATOM_OK;
fail:
    return st;
}

static atom_status parse_input(parsing *p)
{
    static const char *const kinds[] = {"act", "f32", "i32"};
    char name[GRAPH_NAME_MAX];
    int64_t dims[GRAPH_RANK_MAX];
    int rank, kind = 0;
    int32_t id;
    atom_status st;
    ATOM_TRY(name_get(p, name));
    ATOM_TRY(map_check(p, &p->tensors));
    ATOM_TRY(field_choice(p, "kind", kinds, 3, &kind));
    ATOM_TRY(field_dims(p, &rank, dims));
    ATOM_TRY(graph_add_input(p->g, name, (graph_kind)kind, rank, dims, &id));
    ATOM_TRY(map_add(p, &p->tensors, id));
    return ATOM_OK;
fail:
    return st;
}

static atom_status parse_node(parsing *p)
{
    graph_node node = {.op = ATOM_OP_N};
    char word[SHOWN_MAX];
    span op;
    int n_in, n_params;
    int64_t heads = 0, rng = p->g->n_nodes;
    int32_t id;
    atom_status st;
    ATOM_TRY(name_get(p, node.name));
    ATOM_TRY(map_check(p, &p->tensors));
    ATOM_TRY(field_need(p, "op", &op));
    span_show(op, word);
    node.op = atom_op_find(word);
    if (node.op == ATOM_OP_N)
        return atom_fail(ATOM_E_FORMAT, "op=%s: no such op", word);
    ATOM_TRY(field_ids(p, "in", &p->tensors, GRAPH_IN_MAX, &n_in, node.in));
    ATOM_TRY(field_ids(p, "params", &p->params, GRAPH_PARAM_MAX, &n_params, node.params));
    ATOM_TRY(field_float(p, "eps", false, &node.eps));
    ATOM_TRY(field_float(p, "p", false, &node.p));
    ATOM_TRY(field_int(p, "heads", false, GRAPH_DIM_MAX, &heads));
    ATOM_TRY(field_int(p, "rng", false, UINT32_MAX, &rng));
    int ins = atom_op_get(node.op)->ins;
    if (n_in != ins)
        return atom_fail(ATOM_E_FORMAT, "%s takes %d inputs, not %d", word, ins, n_in);
    node.n_params = (uint8_t)n_params;
    node.heads = (int32_t)heads;
    ATOM_TRY(graph_add_node_rng(p->g, &node, (uint32_t)rng, &id));
    ATOM_TRY(map_add(p, &p->tensors, id));
    return ATOM_OK;
fail:
    return st;
}

/* Splits one line; p->kind is empty for a line without meaning. */
static atom_status split(parsing *p, const char *end)
{
    p->n_fields = 0;
    p->kind = word_next(&p->at, end);
    p->name = (span){p->at, 0};
    if (p->kind.n > 0 && p->kind.s[0] == '#')
        p->kind.n = 0;
    if (p->kind.n == 0)
        return ATOM_OK;
    p->name = word_next(&p->at, end);
    for (;;) {
        span word = word_next(&p->at, end);
        if (word.n == 0)
            return ATOM_OK;
        atom_status st = field_add(p, word);
        if (st != ATOM_OK)
            return st;
    }
}

static atom_status parse_line(parsing *p, const char *end)
{
    static const struct {
        const char *kind;
        atom_status (*parse)(parsing *p);
    } kinds[] = {{"graph", parse_graph},
                 {"param", parse_param},
                 {"input", parse_input},
                 {"node", parse_node}};
    char buf[SHOWN_MAX];
    atom_status st = split(p, end);
    if (st != ATOM_OK || p->kind.n == 0)
        return st;
    if (!p->headed) {
        if (!span_is(p->kind, "atom_graph") || !span_is(p->name, "1") || p->n_fields != 0)
            return atom_fail(ATOM_E_FORMAT, "not a graph of version 1; the first line must be "
                                            "\"atom_graph 1\"");
        p->headed = true;
        return ATOM_OK;
    }
    size_t k = 0;
    while (k < 4 && !span_is(p->kind, kinds[k].kind))
        k++;
    if (k == 4)
        return atom_fail(ATOM_E_FORMAT, "\"%s\" is none of graph, param, input, node",
                         span_show(p->kind, buf));
    if (k != 0 && !p->g)
        return atom_fail(ATOM_E_FORMAT, "the graph line must come first");
    st = kinds[k].parse(p);
    for (uint32_t i = 0; i < p->n_fields && st == ATOM_OK; i++)
        if (!p->fields[i].taken)
            st = atom_fail(ATOM_E_FORMAT, "a %s line has no key \"%s\"", kinds[k].kind,
                           span_show(p->fields[i].key, buf));
    return st;
}

static atom_status parse_all(parsing *p)
{
    while (p->at < p->end) {
        const char *newline = memchr(p->at, '\n', (size_t)(p->end - p->at));
        const char *end = newline ? newline : p->end;
        p->line_n++;
        for (uint32_t i = 0; i < FIELDS_MAX; i++)
            p->fields[i].taken = false;
        atom_status st = parse_line(p, end);
        if (st != ATOM_OK)
            return atom_fail_in(st, "graph text, line %u: ", p->line_n);
        p->at = newline ? newline + 1 : p->end;
    }
    if (!p->g)
        return atom_fail(ATOM_E_FORMAT, "graph text: it ends before its graph line");
    atom_status st = graph_seal(p->g);
    return st == ATOM_OK ? st : atom_fail_in(st, "graph text: ");
}

atom_status graph_parse(const char *text, size_t bytes, graph **out)
{
    if (bytes > GRAPH_TEXT_BYTES_MAX)
        return atom_fail(ATOM_E_FORMAT, "graph text: %zu bytes; at most %d are read", bytes,
                         GRAPH_TEXT_BYTES_MAX);
    parsing p = {.at = text, .end = text + bytes};
    atom_status st = parse_all(&p);
    if (st == ATOM_OK) {
        *out = p.g;
        p.g = NULL;
    }
    atom_free(p.tensors.slots);
    atom_free(p.params.slots);
    graph_close(&p.g);
    return st;
}
