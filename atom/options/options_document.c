/*
 * Owns the reading of files that are more than one flat mapping: lists of items beside keys. One idea:
 * what a list's items may say is an option table, so that types, ranges and messages are those of every
 * other file of atom. Refuses aliases, tags, keys said twice, unknown keys, and a second document.
 */
#include "atom/options/options_internal.h"

#include "atom/base/files.h"
#include "atom/base/mem.h"
#include "atom/base/nearest.h"

#include <stdio.h>
#include <string.h>
#include <yaml.h>

typedef struct reader {
    const opt_document *document;
    const char *path;
    yaml_parser_t parser;
    yaml_document_t doc;
    bool *visited; /* by node: an alias is a node met twice */
} reader;

static uint32_t *count_of(const opt_section *s, void *values)
{
    return (uint32_t *)(void *)((char *)values + s->count);
}

static void **items_of(const opt_section *s, void *values)
{
    return (void **)(void *)((char *)values + s->items);
}

void opt_document_free(const opt_document *document, void *values)
{
    for (uint32_t k = 0; k < document->n_sections; k++) {
        const opt_section *s = &document->sections[k];
        char *items = *items_of(s, values);
        for (uint32_t i = 0; i < *count_of(s, values); i++)
            opt_free(s->table, items + i * s->table->values_bytes);
        atom_free(items);
    }
    opt_free(document->top, values);
}

static yaml_node_t *node_of(const reader *r, int id)
{
    return yaml_document_get_node((yaml_document_t *)&r->doc, id);
}

static atom_status at(const reader *r, int id, atom_status st)
{
    const yaml_node_t *node = node_of(r, id);
    return atom_fail_in(st, "%s:%zu:%zu: ", r->path, node->start_mark.line + 1,
                        node->start_mark.column + 1);
}

/* A node that stands where it is read, once. */
static atom_status visit(reader *r, int id, yaml_node_t **out)
{
    static const char *const plain[] = {YAML_STR_TAG, YAML_SEQ_TAG, YAML_MAP_TAG};
    yaml_node_t *node = node_of(r, id);
    const char *tag = (const char *)node->tag;
    bool usual = false;
    for (int i = 0; i < 3; i++)
        usual = usual || strcmp(tag, plain[i]) == 0;
    if (!usual)
        return at(r, id, atom_fail(ATOM_E_USAGE, "tags (%.64s) are not accepted here", tag));
    if (r->visited[id - 1])
        return at(r, id, atom_fail(ATOM_E_USAGE, "aliases (*name) are not accepted here"));
    r->visited[id - 1] = true;
    *out = node;
    return ATOM_OK;
}

static atom_status text_of(reader *r, int id, const char *what, const char **text)
{
    yaml_node_t *node = NULL;
    ATOM_TRY(visit(r, id, &node));
    if (node->type != YAML_SCALAR_NODE)
        return at(r, id,
                  atom_fail(ATOM_E_USAGE, "%s must be a plain value, not a %s", what,
                            node->type == YAML_MAPPING_NODE ? "mapping" : "list"));
    *text = (const char *)node->data.scalar.value;
    if (memchr(*text, 0, node->data.scalar.length))
        return at(r, id, atom_fail(ATOM_E_USAGE, "%s has a NUL character inside", what));
    bool plain = node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    if (!**text || (plain && (strcmp(*text, "null") == 0 || strcmp(*text, "~") == 0)))
        return at(
            r, id,
            atom_fail(ATOM_E_USAGE, "'%s' has no value; remove the line to use the default", what));
    return ATOM_OK;
}

static atom_status unknown_key(const reader *r, int id, const char *key, const opt_command *table)
{
    const opt_document *d = r->document;
    const char *names[OPT_SPECS_MAX + OPT_SECTIONS_MAX];
    char all[256] = "";
    size_t n = 0;
    for (uint32_t i = 0; table == d->top && i < d->n_sections; i++)
        names[n++] = d->sections[i].table->name;
    for (uint32_t i = 0; i < table->n_specs; i++)
        names[n++] = table->specs[i].name;
    for (size_t i = 0, used = 0; i < n && used < sizeof all - 32; i++)
        used += (size_t)snprintf(all + used, sizeof all - used, "%s%s", i ? ", " : "", names[i]);
    const char *near = atom_did_you_mean(key, names, n), *where = table->name;
    return at(r, id,
              near ? atom_fail(ATOM_E_USAGE, "unknown key '%.64s' in %s (did you mean '%s'?)", key,
                               where, near)
                   : atom_fail(ATOM_E_USAGE, "unknown key '%.64s' in %s; %s%s", key, where,
                               d->help ? "see " : "it may have ", d->help ? d->help : all));
}

static atom_status set_one(reader *r, const opt_command *table, uint32_t row, int id, void *values)
{
    const char *text = NULL;
    ATOM_TRY(text_of(r, id, table->specs[row].name, &text));
    atom_status st = opt_set(table, row, text, values);
    return st == ATOM_OK ? st : at(r, id, st);
}

/* A key that is a row of the table, once, and its value. */
static atom_status set_pair(reader *r, const opt_command *table, const yaml_node_pair_t *pair,
                            const char *key, bool *set, void *values)
{
    int32_t row = strchr(key, '-') ? -1 : opt_find(table, key);
    yaml_node_t *value = node_of(r, pair->value);
    if (row < 0)
        return unknown_key(r, pair->key, key, table);
    if (set[row])
        return at(r, pair->key, atom_fail(ATOM_E_USAGE, "'%s' was already set", key));
    set[row] = true;
    if (table->specs[row].type != OPT_LIST || value->type != YAML_SEQUENCE_NODE)
        return set_one(r, table, (uint32_t)row, pair->value, values);
    ATOM_TRY(visit(r, pair->value, &value));
    for (yaml_node_item_t *i = value->data.sequence.items.start; i < value->data.sequence.items.top;
         i++)
        ATOM_TRY(set_one(r, table, (uint32_t)row, *i, values));
    return ATOM_OK;
}

static atom_status read_item(reader *r, int id, const opt_section *s, void *values)
{
    bool set[OPT_SPECS_MAX] = {false};
    yaml_node_t *node = NULL;
    ATOM_TRY(visit(r, id, &node));
    uint32_t line = (uint32_t)node->start_mark.line + 1;
    if (s->line)
        memcpy((char *)values + s->line, &line, sizeof line);
    if (node->type != YAML_MAPPING_NODE)
        return at(r, id,
                  atom_fail(ATOM_E_USAGE, "an item of %s must have `key: value` lines%s",
                            s->table->name, s->begins ? s->begins : ""));
    for (yaml_node_pair_t *p = node->data.mapping.pairs.start; p < node->data.mapping.pairs.top;
         p++) {
        const char *key = NULL;
        ATOM_TRY(text_of(r, p->key, "a key", &key));
        ATOM_TRY(set_pair(r, s->table, p, key, set, values));
    }
    for (uint32_t i = 0; i < s->table->n_specs; i++)
        if ((s->table->specs[i].flags & OPT_REQUIRED) && !set[i])
            return at(r, id,
                      atom_fail(ATOM_E_USAGE, "this item of %s needs '%s'%s", s->table->name,
                                s->table->specs[i].name, s->needs ? s->needs : ""));
    return ATOM_OK;
}

/* A list of items; they are the caller's from the first one on, so that free finds them. */
static atom_status read_section(reader *r, int id, const opt_section *s, void *values)
{
    const opt_command *table = s->table;
    yaml_node_t *node = NULL;
    opt_parsed parsed;
    ATOM_TRY(visit(r, id, &node));
    if (node->type != YAML_SEQUENCE_NODE)
        return at(r, id, atom_fail(ATOM_E_USAGE, "'%s' must be a list", table->name));
    const int *item = node->data.sequence.items.start;
    size_t n = (size_t)(node->data.sequence.items.top - item);
    if (n > s->most)
        return at(r, id, atom_fail(ATOM_E_USAGE, "%zu %s %u", n, s->too_many, s->most));
    char *items = *items_of(s, values) = atom_alloc(n ? n : 1, table->values_bytes);
    if (!items)
        return atom_fail_memory(r->document->top->name, n * table->values_bytes);
    for (size_t i = 0; i < n; i++) {
        ATOM_TRY(opt_defaults(table, items + i * table->values_bytes, &parsed));
        *count_of(s, values) = (uint32_t)i + 1;
        ATOM_TRY(read_item(r, item[i], s, items + i * table->values_bytes));
    }
    return ATOM_OK;
}

static atom_status read_top(reader *r, void *values)
{
    const opt_document *d = r->document;
    bool set[OPT_SPECS_MAX] = {false}, listed[OPT_SECTIONS_MAX] = {false};
    yaml_node_t *root = NULL;
    ATOM_TRY(visit(r, 1, &root));
    if (root->type != YAML_MAPPING_NODE)
        return at(r, 1, atom_fail(ATOM_E_USAGE, "expected `key: value` lines"));
    for (yaml_node_pair_t *p = root->data.mapping.pairs.start; p < root->data.mapping.pairs.top;
         p++) {
        const char *key = NULL;
        uint32_t k = 0;
        ATOM_TRY(text_of(r, p->key, "a key", &key));
        while (k < d->n_sections && strcmp(key, d->sections[k].table->name) != 0)
            k++;
        if (k == d->n_sections) {
            ATOM_TRY(set_pair(r, d->top, p, key, set, values));
            continue;
        }
        if (listed[k])
            return at(r, p->key, atom_fail(ATOM_E_USAGE, "'%s' was already set", key));
        listed[k] = true;
        ATOM_TRY(read_section(r, p->value, &d->sections[k], values));
    }
    return ATOM_OK;
}

static atom_status load(reader *r, yaml_document_t *doc)
{
    if (yaml_parser_load(&r->parser, doc))
        return ATOM_OK;
    memset(doc, 0, sizeof *doc);
    return opt_yaml_problem(&r->parser, r->path);
}

static atom_status read_document(reader *r, void *values)
{
    yaml_document_t second;
    ATOM_TRY(load(r, &r->doc));
    if (!yaml_document_get_root_node(&r->doc))
        return ATOM_OK;
    size_t nodes = (size_t)(r->doc.nodes.top - r->doc.nodes.start);
    r->visited = atom_alloc(nodes, sizeof *r->visited);
    if (!r->visited)
        return atom_fail_memory(r->document->top->name, nodes);
    ATOM_TRY(read_top(r, values));
    ATOM_TRY(load(r, &second));
    bool more = yaml_document_get_root_node(&second) != NULL;
    yaml_document_delete(&second);
    return more ? atom_fail(ATOM_E_USAGE,
                            "%s: there is a second YAML document; keep only one "
                            "per file",
                            r->path)
                : ATOM_OK;
}

atom_status opt_read_document(const opt_document *document, const char *path, const char *text,
                              size_t bytes, void *values)
{
    reader r = {.document = document, .path = path};
    opt_parsed parsed;
    atom_status st;
    ATOM_TRY(opt_defaults(document->top, values, &parsed));
    if (bytes > OPT_FILE_BYTES_MAX)
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_USAGE, "%s is larger than %d bytes; is it %s?", path,
                                 OPT_FILE_BYTES_MAX, document->what));
    ATOM_TRY_CLEAN(opt_yaml_begin(&r.parser, text, bytes));
    st = read_document(&r, values);
    yaml_document_delete(&r.doc);
    yaml_parser_delete(&r.parser);
    atom_free(r.visited);
cleanup:
    if (st != ATOM_OK)
        opt_document_free(document, values);
    return st;
}
