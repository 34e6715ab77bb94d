/*
 * Owns reading a graph from its text form (text.c shows it). One idea: each line becomes one call
 * of the builder, which checks everything about shapes and attributes; what is left to do here is
 * words, numbers and names. The text is not trusted: every complaint names its line, nothing is
 * read beyond the given bytes, memory is bounded by the size of the text. Blank lines and lines
 * that start with # are skipped. Refuses unknown and repeated keys, names used before they are
 * defined, and floats that are not exact.
 */
#include "atom/graph/words.h"

#include "atom/base/hash.h"
#include "atom/base/mem.h"

#include <string.h>

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
    graph_line line; /* the current one */
} parsing;

static const char *map_name(const parsing *p, const name_map *map, uint32_t id)
{
    return map == &p->tensors ? p->g->tensors[id].name : p->g->params[id].name;
}

/* The slot that holds this name, or the empty one where it belongs. room > used. */
static uint32_t *map_slot(const parsing *p, const name_map *map, graph_span name)
{
    size_t i = atom_hash(ATOM_HASH_SEED, name.s, name.n) & (map->room - 1);
    while (map->slots[i] != 0 && !graph_span_is(name, map_name(p, map, map->slots[i] - 1)))
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
        *map_slot(p, map, (graph_span){name, strlen(name)}) = old[i];
    }
    atom_free(old);
    return ATOM_OK;
}

/* Fails when the current line's name is taken. */
static atom_status map_check(const parsing *p, const name_map *map)
{
    char buf[GRAPH_SHOWN_MAX];
    if (map->room != 0 && *map_slot(p, map, p->line.name) != 0)
        return atom_fail(ATOM_E_FORMAT, "the name \"%s\" is defined twice",
                         graph_span_show(p->line.name, buf));
    return ATOM_OK;
}

static atom_status map_add(const parsing *p, name_map *map, int32_t id)
{
    ATOM_TRY(map_grow(p, map));
    *map_slot(p, map, p->line.name) = (uint32_t)id + 1;
    map->used++;
    return ATOM_OK;
}

/* The ids of a comma list of names; absent is an empty list. */
static atom_status field_ids(parsing *p, const char *key, const name_map *map, int most, int *n,
                             int32_t *ids)
{
    char buf[GRAPH_SHOWN_MAX];
    graph_span list, item;
    *n = 0;
    if (!graph_field_find(&p->line, key, &list))
        return ATOM_OK;
    for (; graph_span_next(&list, &item); ++*n) {
        uint32_t slot = map->room ? *map_slot(p, map, item) : 0;
        if (slot == 0)
            return atom_fail(ATOM_E_FORMAT, "%s: nothing named \"%s\" is defined above", key,
                             graph_span_show(item, buf));
        if (*n == most)
            return atom_fail(ATOM_E_FORMAT, "%s: more than %d names", key, most);
        ids[*n] = (int32_t)slot - 1;
    }
    return ATOM_OK;
}

/* The current line's name as a C string; the builder judges its characters. */
static atom_status name_get(const parsing *p, char name[GRAPH_NAME_MAX])
{
    char buf[GRAPH_SHOWN_MAX];
    if (p->line.name.n == 0 || p->line.name.n >= GRAPH_NAME_MAX ||
        memchr(p->line.name.s, '\0', p->line.name.n))
        return atom_fail(ATOM_E_FORMAT, "\"%s\" is not a name of 1 .. %d characters",
                         graph_span_show(p->line.name, buf), GRAPH_NAME_MAX - 1);
    memcpy(name, p->line.name.s, p->line.name.n);
    name[p->line.name.n] = '\0';
    return ATOM_OK;
}

static atom_status parse_graph(parsing *p)
{
    static const char *const dtypes[] = {[ATOM_F32] = "fp32", [ATOM_BF16] = "bf16"};
    char name[GRAPH_NAME_MAX];
    static const char *const optimizers[] = {[GRAPH_ADAMW] = "adamw", [GRAPH_MUON] = "muon"};
    int dtype = 0, moments = 0, optimizer = GRAPH_ADAMW;
    int64_t B = 0, T = 0, packed = 0;
    if (p->g)
        return atom_fail(ATOM_E_FORMAT, "a second graph line");
    ATOM_TRY(name_get(p, name));
    ATOM_TRY(graph_field_choice(&p->line, "dtype", dtypes, 2, &dtype));
    ATOM_TRY(graph_field_int(&p->line, "B", true, GRAPH_DIM_MAX, &B));
    ATOM_TRY(graph_field_int(&p->line, "T", true, GRAPH_DIM_MAX, &T));
    if (graph_field_find(&p->line, "moments", &(graph_span){0}))
        ATOM_TRY(graph_field_choice(&p->line, "moments", dtypes, 2, &moments));
    if (graph_field_find(&p->line, "optimizer", &(graph_span){0}))
        ATOM_TRY(graph_field_choice(&p->line, "optimizer", optimizers, 2, &optimizer));
    ATOM_TRY(graph_field_int(&p->line, "packed", false, 1, &packed));
    ATOM_TRY(graph_open(name, dtype ? ATOM_BF16 : ATOM_F32, B, T, &p->g));
    graph_set_moments(p->g, moments ? ATOM_BF16 : ATOM_F32);
    graph_set_optimizer(p->g, (graph_optimizer)optimizer);
    graph_set_packed(p->g, packed);
    if (strcmp(p->g->name, name) != 0)
        return atom_fail(ATOM_E_FORMAT,
                         "the graph's name has characters other than letters, digits and . _ - / : "
                         "+");
    return ATOM_OK;
}

static atom_status parse_param(parsing *p)
{
    char name[GRAPH_NAME_MAX];
    int64_t dims[GRAPH_RANK_MAX], frozen = 0;
    int rank, init = 0;
    float std = 0;
    int32_t id;
    ATOM_TRY(name_get(p, name));
    ATOM_TRY(map_check(p, &p->params));
    ATOM_TRY(graph_field_dims(&p->line, &rank, dims));
    ATOM_TRY(graph_field_choice(&p->line, "init", graph_init_names, 4, &init));
    ATOM_TRY(graph_field_float(&p->line, "std", init >= GRAPH_INIT_NORMAL, &std));
    ATOM_TRY(graph_field_int(&p->line, "frozen", false, 1, &frozen));
    ATOM_TRY(graph_add_param(p->g, name, rank, dims, (graph_init)init, std, &id));
    if (frozen)
        graph_freeze(p->g, id);
    ATOM_TRY(map_add(p, &p->params, id));
    return ATOM_OK;
}

static atom_status parse_input(parsing *p)
{
    char name[GRAPH_NAME_MAX];
    int64_t dims[GRAPH_RANK_MAX];
    int rank, kind = 0;
    int32_t id;
    ATOM_TRY(name_get(p, name));
    ATOM_TRY(map_check(p, &p->tensors));
    ATOM_TRY(graph_field_choice(&p->line, "kind", graph_kind_names, 3, &kind));
    ATOM_TRY(graph_field_dims(&p->line, &rank, dims));
    ATOM_TRY(graph_add_input(p->g, name, (graph_kind)kind, rank, dims, &id));
    ATOM_TRY(map_add(p, &p->tensors, id));
    return ATOM_OK;
}

static atom_status parse_rope(parsing *p, atom_rope *rope)
{
    const struct {
        const char *key;
        float *value;
    } fields[] = {{"theta", &rope->theta}, {"factor", &rope->factor},     {"low", &rope->low},
                  {"high", &rope->high},   {"original", &rope->original}, {"gain", &rope->gain}};
    int64_t width = 0, yarn = 0;
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        ATOM_TRY(graph_field_float(&p->line, fields[i].key, false, fields[i].value));
    }
    ATOM_TRY(graph_field_int(&p->line, "width", false, GRAPH_DIM_MAX, &width));
    ATOM_TRY(graph_field_int(&p->line, "yarn", false, 1, &yarn));
    rope->width = (int32_t)width;
    rope->yarn = (int32_t)yarn;
    return graph_field_floats(&p->line, "divisors", ATOM_ROPE_DIVISORS_MAX, rope->divisors);
}

static atom_status parse_node(parsing *p)
{
    graph_node node = {.op = ATOM_OP_N};
    char word[GRAPH_SHOWN_MAX];
    graph_span op;
    int n_in, n_params;
    int64_t heads = 0, kv_heads = 0, first = 0, rng = p->g->n_nodes;
    int codec = 0;
    int32_t id;
    ATOM_TRY(name_get(p, node.name));
    ATOM_TRY(map_check(p, &p->tensors));
    ATOM_TRY(graph_field_need(&p->line, "op", &op));
    graph_span_show(op, word);
    node.op = atom_op_find(word);
    if (node.op == ATOM_OP_N)
        return atom_fail(ATOM_E_FORMAT, "op=%s: no such op", word);
    ATOM_TRY(field_ids(p, "in", &p->tensors, GRAPH_IN_MAX, &n_in, node.in));
    ATOM_TRY(field_ids(p, "params", &p->params, GRAPH_PARAM_MAX, &n_params, node.params));
    ATOM_TRY(graph_field_float(&p->line, "eps", false, &node.eps));
    ATOM_TRY(graph_field_float(&p->line, "p", false, &node.p));
    ATOM_TRY(graph_field_int(&p->line, "heads", false, GRAPH_DIM_MAX, &heads));
    ATOM_TRY(graph_field_int(&p->line, "kv_heads", false, GRAPH_DIM_MAX, &kv_heads));
    ATOM_TRY(graph_field_int(&p->line, "window", false, GRAPH_DIM_MAX, &node.window));
    ATOM_TRY(parse_rope(p, &node.rope));
    ATOM_TRY(graph_field_float(&p->line, "scale", false, &node.scale));
    ATOM_TRY(graph_field_float(&p->line, "lift", false, &node.lift));
    ATOM_TRY(graph_field_float(&p->line, "cap", false, &node.cap));
    ATOM_TRY(graph_field_int(&p->line, "first", false, GRAPH_DIM_MAX, &first));
    ATOM_TRY(graph_field_int(&p->line, "rng", false, UINT32_MAX, &rng));
    if (node.op == ATOM_OP_compress)
        ATOM_TRY(graph_field_choice(&p->line, "codec", atom_codec_names, ATOM_CODEC_N, &codec));
    int ins = atom_op_get(node.op)->ins;
    if (n_in != ins)
        return atom_fail(ATOM_E_FORMAT, "%s takes %d inputs, not %d", word, ins, n_in);
    node.n_params = (uint8_t)n_params;
    node.heads = (int32_t)heads;
    node.kv_heads = (int32_t)kv_heads;
    node.first = (int32_t)first;
    node.codec = codec;
    ATOM_TRY(graph_add_node_rng(p->g, &node, (uint32_t)rng, &id));
    ATOM_TRY(map_add(p, &p->tensors, id));
    return ATOM_OK;
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
    char buf[GRAPH_SHOWN_MAX];
    atom_status st = graph_line_split(p->at, end, &p->line);
    if (st != ATOM_OK || p->line.kind.n == 0)
        return st;
    if (!p->headed) {
        if (!graph_span_is(p->line.kind, "atom_graph") || !graph_span_is(p->line.name, "1") ||
            p->line.n_fields != 0)
            return atom_fail(ATOM_E_FORMAT, "not a graph of version 1; the first line must be "
                                            "\"atom_graph 1\"");
        p->headed = true;
        return ATOM_OK;
    }
    size_t k = 0;
    while (k < 4 && !graph_span_is(p->line.kind, kinds[k].kind))
        k++;
    if (k == 4)
        return atom_fail(ATOM_E_FORMAT, "\"%s\" is none of graph, param, input, node",
                         graph_span_show(p->line.kind, buf));
    if (k != 0 && !p->g)
        return atom_fail(ATOM_E_FORMAT, "the graph line must come first");
    st = kinds[k].parse(p);
    return st == ATOM_OK ? graph_line_done(&p->line) : st;
}

static atom_status parse_all(parsing *p)
{
    while (p->at < p->end) {
        const char *newline = memchr(p->at, '\n', (size_t)(p->end - p->at));
        const char *end = newline ? newline : p->end;
        p->line_n++;
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
