/*
 * Owns pools.yml, what a box takes part in. One idea: what an item may say is an option table, so
 * that types, ranges and messages are those of every other file of atom. Refuses aliases, tags, keys
 * said twice, unknown keys, and a second document.
 */
#include "atom/host/pools.h"

#include "atom/base/files.h"
#include "atom/base/mem.h"
#include "atom/base/nearest.h"
#include "atom/options/options.h"
#include "atom/pool/limits.h"
#include "gossip/pool/pool.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <yaml.h>

enum { ROWS_MAX = 8, NAME_BYTES_MAX = 48 };
static const double SHARE_MAX = 1e6, SLICE_MAX = 1e6;

#define AT(member) .offset = offsetof(host_pool, member)
static const opt_spec item_specs[] = {
    {.name = "dir", .type = OPT_TEXT, AT(dir), .flags = OPT_REQUIRED},
    {.name = "ticket", .type = OPT_TEXT, AT(ticket)},
    {.name = "name", .type = OPT_TEXT, AT(name)},
    {.name = "hours", .type = OPT_TEXT, AT(hours)},
    {.name = "share",
     .type = OPT_NUMBER,
     AT(share),
     .fallback = "1",
     .min = 0,
     .max = SHARE_MAX,
     .flags = OPT_ABOVE_MIN},
};
#undef AT
static const opt_command item_table = {.name = "pools", OPT_TABLE(item_specs, host_pool)};

#define AT(member) .offset = offsetof(host_pools, member)
static const opt_spec top_specs[] = {
    {.name = "slice_seconds",
     .type = OPT_NUMBER,
     AT(slice_seconds),
     .fallback = "auto",
     .min = 0,
     .max = SLICE_MAX,
     .flags = OPT_AUTO | OPT_ABOVE_MIN},
    {.name = "hours", .type = OPT_TEXT, AT(hours)},
};
#undef AT
static const opt_command top_table = {.name = "the pools of a box",
                                      OPT_TABLE(top_specs, host_pools)};

typedef struct reader {
    host_pools *file;
    yaml_parser_t parser;
    yaml_document_t doc;
    bool *visited; /* by node: an alias is a node met twice */
} reader;

void host_pools_close(host_pools **pools)
{
    host_pools *f = *pools;
    if (!f)
        return;
    for (uint32_t i = 0; i < f->n; i++)
        opt_free(&item_table, &f->pool[i]);
    atom_free(f->pool);
    atom_free(f->path);
    atom_free(f->hours);
    atom_free(f);
    *pools = NULL;
}

static atom_status at(const reader *r, const yaml_node_t *node, atom_status st)
{
    return atom_fail_in(st, "%s:%zu:%zu: ", r->file->path, node->start_mark.line + 1,
                        node->start_mark.column + 1);
}

/* A node that stands where it is read, once. */
static atom_status visit(reader *r, int id, yaml_node_t **out)
{
    static const char *const plain[] = {YAML_STR_TAG, YAML_SEQ_TAG, YAML_MAP_TAG};
    yaml_node_t *node = yaml_document_get_node(&r->doc, id);
    bool usual = false;
    for (int i = 0; i < 3; i++)
        usual = usual || strcmp((const char *)node->tag, plain[i]) == 0;
    if (!usual)
        return at(
            r, node,
            atom_fail(ATOM_E_USAGE, "tags (%.64s) are not accepted here", (const char *)node->tag));
    if (r->visited[id - 1])
        return at(r, node, atom_fail(ATOM_E_USAGE, "aliases (*name) are not accepted here"));
    r->visited[id - 1] = true;
    *out = node;
    return ATOM_OK;
}

static atom_status text_of(reader *r, int id, const char *what, const char **text)
{
    yaml_node_t *node = NULL;
    ATOM_TRY(visit(r, id, &node));
    if (node->type != YAML_SCALAR_NODE)
        return at(r, node,
                  atom_fail(ATOM_E_USAGE, "%s must be a plain value, not a %s", what,
                            node->type == YAML_MAPPING_NODE ? "mapping" : "list"));
    *text = (const char *)node->data.scalar.value;
    if (memchr(*text, 0, node->data.scalar.length))
        return at(r, node, atom_fail(ATOM_E_USAGE, "%s has a NUL character inside", what));
    bool null = !**text || strcmp(*text, "null") == 0 || strcmp(*text, "~") == 0;
    if (null)
        return at(
            r, node,
            atom_fail(ATOM_E_USAGE, "'%s' has no value; leave the line out for the default", what));
    return ATOM_OK;
}

/* A key that is a row of the table, once, and its value. more: a key beside the rows, or NULL. */
static atom_status set_pair(reader *r, const opt_command *table, const yaml_node_pair_t *pair,
                            const char *key, const char *more, bool *set, void *values)
{
    const char *names[ROWS_MAX], *text = NULL;
    size_t n = 0;
    int32_t row = strchr(key, '-') ? -1 : opt_find(table, key);
    const yaml_node_t *node = yaml_document_get_node(&r->doc, pair->key);
    if (row < 0) {
        for (; n < table->n_specs; n++)
            names[n] = table->specs[n].name;
        if (more)
            names[n++] = more;
        const char *near = atom_did_you_mean(key, names, n);
        return at(r, node,
                  atom_fail(ATOM_E_USAGE, "unknown key '%.64s' in %s%s%s%s", key, table->name,
                            near ? " (did you mean '" : "; see atom host run --help",
                            near ? near : "", near ? "'?)" : ""));
    }
    if (set[row])
        return at(r, node, atom_fail(ATOM_E_USAGE, "'%s' was already set", key));
    set[row] = true;
    ATOM_TRY(text_of(r, pair->value, key, &text));
    atom_status st = opt_set(table, (uint32_t)row, text, values);
    return st == ATOM_OK ? st : at(r, yaml_document_get_node(&r->doc, pair->value), st);
}

static atom_status read_item(reader *r, int id, host_pool *p)
{
    bool set[ROWS_MAX] = {false};
    yaml_node_t *node = NULL;
    ATOM_TRY(visit(r, id, &node));
    p->line = (uint32_t)node->start_mark.line + 1;
    if (node->type != YAML_MAPPING_NODE)
        return at(r, node,
                  atom_fail(ATOM_E_USAGE, "an item of pools must have `key: value` lines, and "
                                          "begins with `dir:`"));
    for (yaml_node_pair_t *i = node->data.mapping.pairs.start; i < node->data.mapping.pairs.top;
         i++) {
        const char *key = NULL;
        ATOM_TRY(text_of(r, i->key, "a key", &key));
        ATOM_TRY(set_pair(r, &item_table, i, key, NULL, set, p));
    }
    return p->dir ? ATOM_OK
                  : at(r, node,
                       atom_fail(ATOM_E_USAGE, "this item of pools needs 'dir', the directory of "
                                               "its membership"));
}

static atom_status read_items(reader *r, int id)
{
    host_pools *f = r->file;
    yaml_node_t *node = NULL;
    opt_parsed parsed;
    ATOM_TRY(visit(r, id, &node));
    if (node->type != YAML_SEQUENCE_NODE)
        return at(r, node, atom_fail(ATOM_E_USAGE, "'pools' must be a list, an item for each"));
    size_t items = (size_t)(node->data.sequence.items.top - node->data.sequence.items.start);
    if (items > HOST_POOLS_MAX)
        return at(
            r, node,
            atom_fail(ATOM_E_USAGE, "%zu pools; one box takes at most %d", items, HOST_POOLS_MAX));
    f->pool = atom_alloc(items ? items : 1, sizeof *f->pool);
    if (!f->pool)
        return atom_fail_memory("the pools of a box", items * sizeof *f->pool);
    for (size_t i = 0; i < items; i++) {
        ATOM_TRY(opt_defaults(&item_table, &f->pool[i], &parsed));
        f->n = (uint32_t)i + 1;
        ATOM_TRY(read_item(r, node->data.sequence.items.start[i], &f->pool[i]));
    }
    return ATOM_OK;
}

static atom_status read_top(reader *r)
{
    bool set[ROWS_MAX] = {false}, listed = false;
    yaml_node_t *root = NULL;
    ATOM_TRY(visit(r, 1, &root));
    if (root->type != YAML_MAPPING_NODE)
        return at(r, root, atom_fail(ATOM_E_USAGE, "expected `key: value` lines"));
    for (yaml_node_pair_t *p = root->data.mapping.pairs.start; p < root->data.mapping.pairs.top;
         p++) {
        const char *key = NULL;
        ATOM_TRY(text_of(r, p->key, "a key", &key));
        if (strcmp(key, "pools") != 0) {
            ATOM_TRY(set_pair(r, &top_table, p, key, "pools", set, r->file));
            continue;
        }
        if (listed)
            return at(r, yaml_document_get_node(&r->doc, p->key),
                      atom_fail(ATOM_E_USAGE, "'pools' was already set"));
        listed = true;
        ATOM_TRY(read_items(r, p->value));
    }
    return ATOM_OK;
}

/* ---- what the items say together ---- */

/* A path from where the program runs; *path is replaced. */
static atom_status place(const host_pools *f, char **path)
{
    const char *slash = strrchr(f->path, '/');
    if (!*path || (*path)[0] == '/' || !slash)
        return ATOM_OK;
    char *whole = atom_format("%.*s/%s", (int)(slash - f->path), f->path, *path);
    if (!whole)
        return atom_fail_memory("a path", strlen(*path));
    atom_free(*path);
    *path = whole;
    return ATOM_OK;
}

static atom_status check_hours(const char *hours)
{
    const pool_limits_config config = {.hours = hours};
    pool_limits *limits = NULL;
    if (!hours)
        return ATOM_OK;
    ATOM_TRY(pool_limits_open(&config, NULL, &limits));
    pool_limits_close(&limits);
    return ATOM_OK;
}

static bool is_name(const char *text)
{
    size_t n = strlen(text);
    return n > 0 && n <= NAME_BYTES_MAX && text[0] != '.' &&
           strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == n;
}

/* The last part of dir is the name, if nothing else was said. */
static atom_status name_item(host_pool *p)
{
    if (p->name)
        return ATOM_OK;
    size_t end = strlen(p->dir);
    while (end > 1 && p->dir[end - 1] == '/')
        end--;
    size_t from = end;
    while (from > 0 && p->dir[from - 1] != '/')
        from--;
    p->name = atom_strndup(p->dir + from, end - from);
    return p->name ? ATOM_OK : atom_fail_memory("a name", end);
}

static atom_status check_item(const host_pools *f, uint32_t i)
{
    host_pool *p = &f->pool[i];
    ATOM_TRY(name_item(p));
    if (!is_name(p->name))
        return atom_fail(ATOM_E_USAGE,
                         "'%.64s' cannot be the name of a pool: 1 to %d letters, digits and . _ -; "
                         "say another with 'name'",
                         p->name, NAME_BYTES_MAX);
    ATOM_TRY(check_hours(p->hours));
    ATOM_TRY(place(f, &p->dir));
    ATOM_TRY(place(f, &p->ticket));
    for (uint32_t k = 0; k < i; k++) {
        if (strcmp(f->pool[k].dir, p->dir) == 0)
            return atom_fail(ATOM_E_USAGE, "%s is also the directory of the pool in line %u",
                             p->dir, f->pool[k].line);
        if (strcmp(f->pool[k].name, p->name) == 0)
            return atom_fail(ATOM_E_USAGE,
                             "the pool in line %u is called '%s', too; say another with 'name'",
                             f->pool[k].line, p->name);
    }
    return ATOM_OK;
}

static atom_status check_together(const host_pools *f)
{
    if (f->n == 0)
        return atom_fail(ATOM_E_USAGE, "%s: there are no pools; 'pools' lists them", f->path);
    atom_status st = check_hours(f->hours);
    if (st != ATOM_OK)
        return atom_fail_in(st, "%s: ", f->path);
    for (uint32_t i = 0; st == ATOM_OK && i < f->n; i++) {
        st = check_item(f, i);
        if (st != ATOM_OK)
            st = atom_fail_in(st, "%s:%u: ", f->path, f->pool[i].line);
    }
    return st;
}

/* ---- the text ---- */

static atom_status load(reader *r, const char *text, size_t bytes, yaml_document_t *doc)
{
    if (bytes) {
        yaml_parser_set_input_string(&r->parser, (const unsigned char *)text, bytes);
        yaml_parser_set_encoding(&r->parser, YAML_UTF8_ENCODING);
    }
    if (yaml_parser_load(&r->parser, doc))
        return ATOM_OK;
    const char *why = r->parser.problem ? r->parser.problem : "cannot be parsed";
    memset(doc, 0, sizeof *doc);
    if (r->parser.error == YAML_MEMORY_ERROR)
        return atom_fail(ATOM_E_RESOURCE, "%s: not enough memory", r->file->path);
    if (r->parser.error == YAML_READER_ERROR)
        return atom_fail(ATOM_E_USAGE, "%s: byte %zu: %s", r->file->path, r->parser.problem_offset,
                         why);
    return atom_fail(ATOM_E_USAGE, "%s:%zu:%zu: not YAML: %s", r->file->path,
                     r->parser.problem_mark.line + 1, r->parser.problem_mark.column + 1, why);
}

static atom_status read_document(reader *r, const char *text, size_t bytes)
{
    yaml_document_t second;
    if (bytes == 0)
        return ATOM_OK;
    ATOM_TRY(load(r, text, bytes, &r->doc));
    if (!yaml_document_get_root_node(&r->doc))
        return ATOM_OK;
    size_t nodes = (size_t)(r->doc.nodes.top - r->doc.nodes.start);
    r->visited = atom_alloc(nodes, sizeof *r->visited);
    if (!r->visited)
        return atom_fail_memory("the pools of a box", nodes);
    ATOM_TRY(read_top(r));
    ATOM_TRY(load(r, NULL, 0, &second));
    bool more = yaml_document_get_root_node(&second) != NULL;
    yaml_document_delete(&second);
    return more ? atom_fail(ATOM_E_USAGE, "%s: a second document; keep one per file", r->file->path)
                : ATOM_OK;
}

atom_status host_pools_parse(const char *path, const char *text, size_t bytes, host_pools **out)
{
    reader r = {0};
    host_pools *f = atom_alloc(1, sizeof *f);
    opt_parsed parsed;
    atom_status st = ATOM_OK;
    if (!f)
        return atom_fail_memory("the pools of a box", sizeof *f);
    r.file = f;
    ATOM_TRY_CLEAN(opt_defaults(&top_table, f, &parsed));
    f->path = atom_strdup(path);
    if (!f->path || !yaml_parser_initialize(&r.parser))
        ATOM_TRY_CLEAN(atom_fail_memory("a YAML parser", sizeof r.parser));
    if (bytes > OPT_FILE_BYTES_MAX)
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_USAGE, "%s is larger than %d bytes; is it a list of pools?",
                                 path, OPT_FILE_BYTES_MAX));
    ATOM_TRY_CLEAN(read_document(&r, text, bytes));
    ATOM_TRY_CLEAN(check_together(f));
    *out = f;
    f = NULL;
cleanup:
    yaml_document_delete(&r.doc);
    yaml_parser_delete(&r.parser);
    atom_free(r.visited);
    host_pools_close(&f);
    return st;
}

atom_status host_pools_read(const char *path, host_pools **out)
{
    char *text = NULL;
    uint64_t bytes = 0;
    if (!atom_path_exists(path))
        return atom_fail(ATOM_E_USAGE,
                         "there is no %s; it lists the pools of this box (atom host run --help "
                         "shows one)",
                         path);
    atom_status st = atom_file_read(path, OPT_FILE_BYTES_MAX, &text, &bytes);
    if (st == ATOM_OK)
        st = host_pools_parse(path, text, (size_t)bytes, out);
    atom_free(text);
    return st == ATOM_E_FORMAT ? ATOM_E_USAGE : st;
}

/* ---- the disk ---- */

bool host_pool_joined(const host_pool *pool)
{
    char *inner = atom_path_join(pool->dir, "pool");
    bool joined = inner && gsp_pool_exists(inner);
    atom_free(inner);
    return joined;
}

static atom_status check_place(const host_pool *p)
{
    if (host_pool_joined(p))
        return ATOM_OK;
    if (!p->ticket)
        return atom_fail(ATOM_E_USAGE,
                         "%s holds no membership in a pool; join it once (atom pool join - -o %s), "
                         "or name the file of a ticket with 'ticket'",
                         p->dir, p->dir);
    return atom_path_exists(p->ticket)
               ? ATOM_OK
               : atom_fail(ATOM_E_USAGE, "there is no ticket %s", p->ticket);
}

atom_status host_pools_check(const host_pools *f)
{
    struct stat seen[HOST_POOLS_MAX];
    bool there[HOST_POOLS_MAX];
    for (uint32_t i = 0; i < f->n; i++) {
        atom_status st = check_place(&f->pool[i]);
        there[i] = stat(f->pool[i].dir, &seen[i]) == 0;
        for (uint32_t k = 0; st == ATOM_OK && there[i] && k < i; k++)
            if (there[k] && seen[k].st_ino == seen[i].st_ino && seen[k].st_dev == seen[i].st_dev)
                st = atom_fail(ATOM_E_USAGE, "%s is also the directory of the pool in line %u",
                               f->pool[i].dir, f->pool[k].line);
        if (st != ATOM_OK)
            return atom_fail_in(st, "%s:%u: ", f->path, f->pool[i].line);
    }
    return ATOM_OK;
}
