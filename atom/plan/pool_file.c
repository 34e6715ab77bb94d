/*
 * Owns the reading of a pool's description. One idea: what a section may say is an option table, so
 * that types, ranges and messages are those of every other file of atom. Refuses aliases, tags,
 * keys said twice, unknown keys, and a second document.
 */
#include "atom/plan/pool_file.h"

#include "atom/base/files.h"
#include "atom/base/mem.h"
#include "atom/base/nearest.h"
#include "partition/place/place.h"

#include <stdio.h>
#include <string.h>
#include <yaml.h>

enum { ROWS_MAX = 16, NAME_MAX_BYTES = 48 };

#define AT(member) .offset = offsetof(plan_pool_entry, member)
static const opt_spec entry_specs[] = {
    {.name = "name", .type = OPT_TEXT, AT(name)},
    {.name = "device", .type = OPT_TEXT, AT(device)},
    {.name = "profile", .type = OPT_TEXT, AT(profile)},
    {.name = "device_memory", .type = OPT_SIZE, AT(device_memory), .min = 1, .max = 1e15},
    {.name = "host_memory", .type = OPT_SIZE, AT(host_memory), .min = 1, .max = 1e15},
    {.name = "disk", .type = OPT_SIZE, AT(disk), .min = 1, .max = 1e18},
    {.name = "link", .type = OPT_TEXT, AT(link)},
    {.name = "region", .type = OPT_TEXT, AT(region)},
    {.name = "count",
     .type = OPT_INT,
     AT(count),
     .fallback = "1",
     .min = 1,
     .max = PLACE_HOSTS_MAX},
};
#undef AT
static const opt_command entry_table = {.name = "hosts", OPT_TABLE(entry_specs, plan_pool_entry)};

#define AT(member) .offset = offsetof(plan_pool_line, member)
static const opt_spec line_specs[] = {
    {.name = "name", .type = OPT_TEXT, AT(name), .flags = OPT_REQUIRED},
    {.name = "down_mbit",
     .type = OPT_NUMBER,
     AT(down_mbit),
     .min = 0.001,
     .max = 1e7,
     .flags = OPT_REQUIRED},
    {.name = "up_mbit",
     .type = OPT_NUMBER,
     AT(up_mbit),
     .min = 0.001,
     .max = 1e7,
     .flags = OPT_REQUIRED},
    {.name = "delay_ms",
     .type = OPT_NUMBER,
     AT(delay_ms),
     .min = 0,
     .max = 100000,
     .flags = OPT_REQUIRED},
};
#undef AT
static const opt_command line_table = {.name = "links", OPT_TABLE(line_specs, plan_pool_line)};

#define AT(member) .offset = offsetof(plan_pool_between, member)
static const opt_spec region_specs[] = {
    {.name = "between", .type = OPT_LIST, AT(between), .flags = OPT_REQUIRED},
    {.name = "delay_ms",
     .type = OPT_NUMBER,
     AT(delay_ms),
     .min = 0,
     .max = 100000,
     .flags = OPT_REQUIRED},
};
#undef AT
static const opt_command region_table = {.name = "regions",
                                         OPT_TABLE(region_specs, plan_pool_between)};

static const opt_choice codecs[] = {
    {"fp32", PLAN_POOL_FP32}, {"bf16", PLAN_POOL_BF16}, {"int8", PLAN_POOL_INT8}, {NULL, 0}};
#define AT(member) .offset = offsetof(plan_pool_file, member)
static const opt_spec top_specs[] = {
    {.name = "step_tokens",
     .type = OPT_INT,
     AT(step_tokens),
     .fallback = "524288",
     .min = 1,
     .max = 1e12},
    {.name = "codec", .type = OPT_CHOICE, AT(codec), .fallback = "int8", .choices = codecs},
    {.name = "delays_csv", .type = OPT_TEXT, AT(delays_csv)},
    {.name = "mbit_csv", .type = OPT_TEXT, AT(mbit_csv)},
};
#undef AT
static const opt_command top_table = {.name = "pool", OPT_TABLE(top_specs, plan_pool_file)};
static const char *const top_words[] = {"hosts",      "links", "regions", "step_tokens",
                                        "delays_csv", "codec", "mbit_csv"};

typedef struct reader {
    plan_pool_file *file;
    yaml_parser_t parser;
    yaml_document_t doc;
    bool *visited; /* by node: an alias is a node met twice */
} reader;

double plan_pool_codec_bytes(int32_t codec)
{
    return codec == PLAN_POOL_FP32 ? 4 : codec == PLAN_POOL_BF16 ? 2 : 1 + 4.0 / 4096;
}

const char *plan_pool_codec_name(int32_t codec)
{
    return opt_choice_name(codecs, codec);
}

uint32_t plan_pool_hosts(const plan_pool_file *file)
{
    int64_t n = 0;
    for (uint32_t i = 0; i < file->n_entries; i++)
        n += file->entries[i].count;
    return (uint32_t)n;
}

void plan_pool_file_close(plan_pool_file **file)
{
    plan_pool_file *f = *file;
    if (!f)
        return;
    for (uint32_t i = 0; i < f->n_entries; i++)
        opt_free(&entry_table, &f->entries[i]);
    for (uint32_t i = 0; i < f->n_lines; i++)
        opt_free(&line_table, &f->lines[i]);
    for (uint32_t i = 0; i < f->n_regions; i++)
        opt_free(&region_table, &f->regions[i]);
    atom_free(f->entries);
    atom_free(f->lines);
    atom_free(f->regions);
    atom_free(f->path);
    atom_free(f->delays_csv);
    atom_free(f->mbit_csv);
    atom_free(f);
    *file = NULL;
}

static atom_status at(const reader *r, const yaml_node_t *node, atom_status st)
{
    return atom_fail_in(st, "%s:%zu:%zu: ", r->file->path, node->start_mark.line + 1,
                        node->start_mark.column + 1);
}

/* A node that stands where it is read, once. */
static atom_status visit(reader *r, int id, yaml_node_t **out)
{
    yaml_node_t *node = yaml_document_get_node(&r->doc, id);
    static const char *const plain[] = {YAML_STR_TAG, YAML_SEQ_TAG, YAML_MAP_TAG};
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
    if (null && node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE)
        return at(r, node,
                  atom_fail(ATOM_E_USAGE,
                            "'%s' has no value; leave the line out for the "
                            "default",
                            what));
    return ATOM_OK;
}

static atom_status set_one(reader *r, const opt_command *table, uint32_t row, int id, void *values)
{
    const char *text = NULL;
    ATOM_TRY(text_of(r, id, table->specs[row].name, &text));
    atom_status st = opt_set(table, row, text, values);
    return st == ATOM_OK ? st : at(r, yaml_document_get_node(&r->doc, id), st);
}

static atom_status unknown_key(const reader *r, int id, const char *key, const char *const *names,
                               size_t n, const char *where)
{
    char all[256] = "";
    const char *near = atom_did_you_mean(key, names, n);
    for (size_t i = 0, used = 0; i < n && used < sizeof all - 32; i++)
        used += (size_t)snprintf(all + used, sizeof all - used, "%s%s", i ? ", " : "", names[i]);
    return at(r, yaml_document_get_node((yaml_document_t *)&r->doc, id),
              near ? atom_fail(ATOM_E_USAGE, "unknown key '%.64s' in %s (did you mean '%s'?)", key,
                               where, near)
                   : atom_fail(ATOM_E_USAGE, "unknown key '%.64s' in %s; it may have %s", key,
                               where, all));
}

/* Key and value of a mapping whose keys are a table's rows. */
static atom_status set_pair(reader *r, const opt_command *table, const yaml_node_pair_t *pair,
                            const char *key, bool *set, void *values)
{
    const char *names[ROWS_MAX];
    int32_t row = strchr(key, '-') ? -1 : opt_find(table, key);
    for (uint32_t i = 0; i < table->n_specs; i++)
        names[i] = table->specs[i].name;
    if (row < 0 && table == &top_table)
        return unknown_key(r, pair->key, key, top_words, sizeof top_words / sizeof *top_words,
                           "the description of a pool");
    if (row < 0)
        return unknown_key(r, pair->key, key, names, table->n_specs, table->name);
    if (set[row])
        return at(r, yaml_document_get_node(&r->doc, pair->key),
                  atom_fail(ATOM_E_USAGE, "'%s' was already set", key));
    set[row] = true;
    yaml_node_t *value = yaml_document_get_node(&r->doc, pair->value);
    if (table->specs[row].type != OPT_LIST || value->type != YAML_SEQUENCE_NODE)
        return set_one(r, table, (uint32_t)row, pair->value, values);
    ATOM_TRY(visit(r, pair->value, &value));
    for (yaml_node_item_t *i = value->data.sequence.items.start; i < value->data.sequence.items.top;
         i++)
        ATOM_TRY(set_one(r, table, (uint32_t)row, *i, values));
    return ATOM_OK;
}

/* One item of a section. */
static atom_status read_item(reader *r, int id, const opt_command *table, void *values,
                             uint32_t *line)
{
    bool set[ROWS_MAX] = {false};
    yaml_node_t *node = NULL;
    ATOM_TRY(visit(r, id, &node));
    *line = (uint32_t)node->start_mark.line + 1;
    if (node->type != YAML_MAPPING_NODE)
        return at(
            r, node,
            atom_fail(ATOM_E_USAGE, "an item of %s must have `key: value` lines", table->name));
    for (yaml_node_pair_t *p = node->data.mapping.pairs.start; p < node->data.mapping.pairs.top;
         p++) {
        const char *key = NULL;
        ATOM_TRY(text_of(r, p->key, "a key", &key));
        ATOM_TRY(set_pair(r, table, p, key, set, values));
    }
    for (uint32_t i = 0; i < table->n_specs; i++)
        if ((table->specs[i].flags & OPT_REQUIRED) && !set[i])
            return at(r, node,
                      atom_fail(ATOM_E_USAGE, "this item of %s needs '%s'", table->name,
                                table->specs[i].name));
    return ATOM_OK;
}

/* A list of items; the array is the file's from the first one on, so that close frees them. */
static atom_status read_section(reader *r, int id, const opt_command *table, void **array,
                                uint32_t *n, size_t line_offset)
{
    yaml_node_t *node = NULL;
    opt_parsed parsed;
    ATOM_TRY(visit(r, id, &node));
    if (node->type != YAML_SEQUENCE_NODE)
        return at(r, node,
                  atom_fail(ATOM_E_USAGE, "'%s' must be a list, an item for each", table->name));
    size_t items = (size_t)(node->data.sequence.items.top - node->data.sequence.items.start);
    if (items > PLACE_HOSTS_MAX)
        return at(r, node,
                  atom_fail(ATOM_E_USAGE, "%zu items of %s; there may be %d", items, table->name,
                            PLACE_HOSTS_MAX));
    *array = atom_alloc(items ? items : 1, table->values_bytes);
    if (!*array)
        return atom_fail_memory("the description of a pool", items * table->values_bytes);
    for (size_t i = 0; i < items; i++) {
        char *values = (char *)*array + i * table->values_bytes;
        uint32_t line = 0;
        ATOM_TRY(opt_defaults(table, values, &parsed));
        *n = (uint32_t)i + 1;
        ATOM_TRY(read_item(r, node->data.sequence.items.start[i], table, values, &line));
        if (line_offset)
            memcpy(values + line_offset, &line, sizeof line);
    }
    return ATOM_OK;
}

static atom_status read_top(reader *r, yaml_node_t *root)
{
    plan_pool_file *f = r->file;
    bool set[ROWS_MAX] = {false}, section[3] = {false};
    ATOM_TRY(visit(r, 1, &root));
    if (root->type != YAML_MAPPING_NODE)
        return at(r, root, atom_fail(ATOM_E_USAGE, "expected `key: value` lines"));
    for (yaml_node_pair_t *p = root->data.mapping.pairs.start; p < root->data.mapping.pairs.top;
         p++) {
        const char *key = NULL;
        int which = 0;
        ATOM_TRY(text_of(r, p->key, "a key", &key));
        while (which < 3 && strcmp(key, top_words[which]) != 0)
            which++;
        if (which < 3 && section[which])
            return at(r, yaml_document_get_node(&r->doc, p->key),
                      atom_fail(ATOM_E_USAGE, "'%s' was already set", key));
        if (which < 3)
            section[which] = true;
        if (which == 0)
            ATOM_TRY(read_section(r, p->value, &entry_table, (void **)&f->entries, &f->n_entries,
                                  offsetof(plan_pool_entry, line)));
        else if (which == 1)
            ATOM_TRY(read_section(r, p->value, &line_table, (void **)&f->lines, &f->n_lines, 0));
        else if (which == 2)
            ATOM_TRY(read_section(r, p->value, &region_table, (void **)&f->regions, &f->n_regions,
                                  offsetof(plan_pool_between, line)));
        else
            ATOM_TRY(set_pair(r, &top_table, p, key, set, f));
    }
    return ATOM_OK;
}

/* --- what the items say together --- */

static bool is_name(const char *text)
{
    size_t n = strlen(text);
    return n > 0 && n <= NAME_MAX_BYTES &&
           strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == n;
}

static atom_status check_name(const plan_pool_file *f, uint32_t line, const char *name)
{
    if (name && !is_name(name))
        return atom_fail(ATOM_E_USAGE,
                         "%s:%u: the name '%.64s' must have 1 to %d letters, digits, '.', '_' or "
                         "'-'",
                         f->path, line, name, NAME_MAX_BYTES);
    return ATOM_OK;
}

/* A host without a name is called after its device. */
static atom_status name_entry(plan_pool_file *f, plan_pool_entry *e)
{
    char name[NAME_MAX_BYTES + 1];
    const char *from = e->device ? e->device : e->profile, *slash = strrchr(from, '/');
    snprintf(name, sizeof name, "%s", slash ? slash + 1 : from);
    char *dot = strrchr(name, '.');
    if (dot && strcmp(dot, ".json") == 0)
        *dot = 0;
    for (uint32_t k = 2; k < PLACE_HOSTS_MAX; k++) {
        bool taken = false;
        for (uint32_t i = 0; i < f->n_entries; i++)
            taken = taken || (f->entries[i].name && strcmp(f->entries[i].name, name) == 0);
        if (!taken)
            break;
        snprintf(name + strcspn(name, "@"), sizeof name - strcspn(name, "@"), "@%u", k);
    }
    for (char *c = name; *c; c++)
        *c = *c == '@' ? '.' : *c;
    e->name = atom_strdup(is_name(name) ? name : "host");
    return e->name ? ATOM_OK : atom_fail_memory("a name", sizeof name);
}

static atom_status check_entry(plan_pool_file *f, plan_pool_entry *e)
{
    ATOM_TRY(check_name(f, e->line, e->name));
    ATOM_TRY(check_name(f, e->line, e->region));
    if (!e->device == !e->profile)
        return atom_fail(ATOM_E_USAGE,
                         e->device ? "%s:%u: a device and a profile both say what this host is; "
                                     "leave one of them out"
                                   : "%s:%u: this host needs 'device' (a described one, such as "
                                     "rtx-4090) or 'profile' (a file of 'atom profile')",
                         f->path, e->line);
    if (e->link && f->mbit_csv)
        return atom_fail(ATOM_E_USAGE,
                         "%s:%u: mbit_csv already says how fast every link is; leave 'link' out",
                         f->path, e->line);
    if (!e->link && !f->mbit_csv)
        return atom_fail(ATOM_E_USAGE,
                         "%s:%u: this host needs 'link', such as home-100-20 (100 Mbit/s down, 20 "
                         "up), fibre or lan",
                         f->path, e->line);
    return e->name ? ATOM_OK : name_entry(f, e);
}

/* Does the host called `name` have a number behind the name of entry e, as e's own hosts do? */
static bool reads_like_one_of(const char *name, const plan_pool_entry *e)
{
    size_t n = strlen(e->name);
    return e->count > 1 && strncmp(name, e->name, n) == 0 && name[n] == '-' && name[n + 1] &&
           strspn(name + n + 1, "0123456789") == strlen(name + n + 1);
}

static atom_status check_names_differ(const plan_pool_file *f)
{
    for (uint32_t i = 0; i < f->n_entries; i++)
        for (uint32_t j = 0; j < f->n_entries; j++)
            if (i != j && ((i > j && strcmp(f->entries[i].name, f->entries[j].name) == 0) ||
                           reads_like_one_of(f->entries[i].name, &f->entries[j])))
                return atom_fail(ATOM_E_USAGE, "%s:%u: '%s' is also the name of a host in line %u",
                                 f->path, f->entries[i].line, f->entries[i].name,
                                 f->entries[j].line);
    for (uint32_t i = 0; i < f->n_lines; i++)
        for (uint32_t j = 0; j < i; j++)
            if (strcmp(f->lines[i].name, f->lines[j].name) == 0)
                return atom_fail(ATOM_E_USAGE, "%s: two links are called '%s'", f->path,
                                 f->lines[i].name);
    return ATOM_OK;
}

static atom_status check_together(plan_pool_file *f)
{
    int64_t n = 0;
    if (f->n_entries == 0)
        return atom_fail(ATOM_E_USAGE, "%s: there are no hosts; 'hosts' lists them", f->path);
    if (!f->delays_csv != !f->mbit_csv)
        return atom_fail(ATOM_E_USAGE, "%s: delays_csv and mbit_csv go together", f->path);
    if (f->mbit_csv && (f->n_lines || f->n_regions))
        return atom_fail(ATOM_E_USAGE,
                         "%s: delays_csv and mbit_csv say everything about the links; leave "
                         "'links' and 'regions' out",
                         f->path);
    for (uint32_t i = 0; i < f->n_lines; i++)
        ATOM_TRY(check_name(f, 1, f->lines[i].name));
    for (uint32_t i = 0; i < f->n_entries; i++) {
        ATOM_TRY(check_entry(f, &f->entries[i]));
        n += f->entries[i].count;
    }
    if (n > PLACE_HOSTS_MAX)
        return atom_fail(ATOM_E_USAGE, "%s: %lld hosts; there may be %d", f->path, (long long)n,
                         PLACE_HOSTS_MAX);
    return check_names_differ(f);
}

/* --- */

static atom_status load(reader *r, const char *text, size_t bytes)
{
    yaml_parser_set_input_string(&r->parser, (const unsigned char *)text, bytes);
    yaml_parser_set_encoding(&r->parser, YAML_UTF8_ENCODING);
    if (yaml_parser_load(&r->parser, &r->doc))
        return ATOM_OK;
    const char *why = r->parser.problem ? r->parser.problem : "cannot be parsed";
    memset(&r->doc, 0, sizeof r->doc);
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
    ATOM_TRY(load(r, text, bytes));
    yaml_node_t *root = yaml_document_get_root_node(&r->doc);
    if (!root)
        return atom_fail(ATOM_E_USAGE, "%s: there are no hosts; 'hosts' lists them", r->file->path);
    size_t nodes = (size_t)(r->doc.nodes.top - r->doc.nodes.start);
    r->visited = atom_alloc(nodes, sizeof *r->visited);
    if (!r->visited)
        return atom_fail_memory("the description of a pool", nodes);
    ATOM_TRY(read_top(r, root));
    if (!yaml_parser_load(&r->parser, &second))
        return atom_fail(ATOM_E_USAGE, "%s:%zu:%zu: not YAML: %s", r->file->path,
                         r->parser.problem_mark.line + 1, r->parser.problem_mark.column + 1,
                         r->parser.problem ? r->parser.problem : "cannot be parsed");
    bool more = yaml_document_get_root_node(&second) != NULL;
    yaml_document_delete(&second);
    return more ? atom_fail(ATOM_E_USAGE, "%s: a second document; keep one per file", r->file->path)
                : ATOM_OK;
}

atom_status plan_pool_file_parse(const char *path, const char *text, size_t bytes,
                                 plan_pool_file **out)
{
    reader r = {0};
    plan_pool_file *f = atom_alloc(1, sizeof *f);
    opt_parsed parsed;
    atom_status st = ATOM_OK;
    if (!f)
        return atom_fail_memory("the description of a pool", sizeof *f);
    r.file = f;
    ATOM_TRY_CLEAN(opt_defaults(&top_table, f, &parsed));
    f->path = atom_strdup(path);
    if (!f->path || !yaml_parser_initialize(&r.parser))
        ATOM_TRY_CLEAN(atom_fail_memory("a YAML parser", sizeof r.parser));
    if (bytes > OPT_FILE_BYTES_MAX)
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_USAGE,
                                 "%s is larger than %d bytes; is it the description of a pool?",
                                 path, OPT_FILE_BYTES_MAX));
    ATOM_TRY_CLEAN(read_document(&r, text, bytes));
    ATOM_TRY_CLEAN(check_together(f));
    *out = f;
    f = NULL;
cleanup:
    yaml_document_delete(&r.doc);
    yaml_parser_delete(&r.parser);
    atom_free(r.visited);
    plan_pool_file_close(&f);
    return st;
}

atom_status plan_pool_file_read(const char *path, plan_pool_file **out)
{
    char *text = NULL;
    uint64_t bytes = 0;
    if (!atom_path_exists(path))
        return atom_fail(ATOM_E_USAGE, "there is no description of a pool %s", path);
    atom_status st = atom_file_read(path, OPT_FILE_BYTES_MAX, &text, &bytes);
    if (st == ATOM_OK)
        st = plan_pool_file_parse(path, text, (size_t)bytes, out);
    atom_free(text);
    return st == ATOM_E_FORMAT ? ATOM_E_USAGE : st;
}
