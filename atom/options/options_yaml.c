/*
 * Owns the reading of configuration files: libyaml's event stream, one flat mapping. One idea: a
 * scalar's type comes from the option table, never from YAML's guessing, so `1e-4`, `no`, `08` and
 * `null` hold no surprise. Refuses anchors, aliases, tags, duplicates, nesting, second documents.
 */
#include "atom/options/options_internal.h"

#include "atom/base/files.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"

#include <stdio.h>
#include <string.h>
#include <yaml.h>

typedef struct yaml_reader {
    const opt_command *command;
    const char *path;
    void *values;
    opt_parsed *parsed;
    bool foreign;                 /* somebody else wrote it */
    bool peek;                    /* it is read once more, which says what is to be said */
    bool whole;                   /* a file; of a text the section `pool:` was taken out */
    uint32_t line[OPT_SPECS_MAX]; /* where a row was set by this file; 0: not yet */
    yaml_parser_t parser;
    yaml_event_t event;
} yaml_reader;

/* Puts "path:line:col: " of the current event in front of the message. */
static atom_status at_event(const yaml_reader *r, atom_status st)
{
    return atom_fail_in(st, "%s:%zu:%zu: ", r->path, r->event.start_mark.line + 1,
                        r->event.start_mark.column + 1);
}

atom_status opt_yaml_begin(yaml_parser_t *parser, const char *text, size_t bytes)
{
    if (!yaml_parser_initialize(parser))
        return atom_fail_memory("a YAML parser", sizeof *parser);
    /* Editors of Windows begin files with a byte order mark, and libyaml skips it only where it may guess
     * the encoding. */
    size_t mark = bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    yaml_parser_set_input_string(parser, (const unsigned char *)text + mark, bytes - mark);
    yaml_parser_set_encoding(parser, YAML_UTF8_ENCODING);
    return ATOM_OK;
}

atom_status opt_yaml_problem(const yaml_parser_t *p, const char *path)
{
    if (p->error == YAML_MEMORY_ERROR)
        return atom_fail(ATOM_E_RESOURCE, "%s: not enough memory", path);
    if (p->error == YAML_READER_ERROR)
        return atom_fail(ATOM_E_USAGE, "%s: byte %zu: %s", path, p->problem_offset,
                         p->problem ? p->problem : "not readable as UTF-8");
    return atom_fail(ATOM_E_USAGE, "%s:%zu:%zu: not YAML: %s", path, p->problem_mark.line + 1,
                     p->problem_mark.column + 1, p->problem ? p->problem : "cannot be parsed");
}

static atom_status next_event(yaml_reader *r)
{
    yaml_event_delete(&r->event);
    if (yaml_parser_parse(&r->parser, &r->event))
        return ATOM_OK;
    memset(&r->event, 0, sizeof r->event);
    return opt_yaml_problem(&r->parser, r->path);
}

/* A plain or quoted scalar without anchor or tag; its text has no NUL inside. */
static atom_status check_scalar(const yaml_reader *r, const char *what)
{
    const yaml_event_t *e = &r->event;
    if (e->type == YAML_ALIAS_EVENT)
        return at_event(r, atom_fail(ATOM_E_USAGE, "aliases (*name) are not accepted here"));
    if (e->type != YAML_SCALAR_EVENT)
        return at_event(r, atom_fail(ATOM_E_USAGE, "%s must be a plain value, not a %s", what,
                                     e->type == YAML_MAPPING_START_EVENT ? "mapping" : "list"));
    if (e->data.scalar.anchor)
        return at_event(r, atom_fail(ATOM_E_USAGE, "anchors (&name) are not accepted here"));
    if (e->data.scalar.tag)
        return at_event(r, atom_fail(ATOM_E_USAGE, "tags (%s) are not accepted here",
                                     (const char *)e->data.scalar.tag));
    if (memchr(e->data.scalar.value, 0, e->data.scalar.length))
        return at_event(r, atom_fail(ATOM_E_USAGE, "%s has a NUL character inside", what));
    return ATOM_OK;
}

static const char *scalar(const yaml_reader *r)
{
    return (const char *)r->event.data.scalar.value;
}

bool opt_is_shared(const opt_command *command, uint32_t row)
{
    return command->shared || (command->specs[row].flags & OPT_SHARED);
}

/* Where a trainer's key is expected. */
static atom_status fail_pool(const yaml_reader *r)
{
    return r->whole ? atom_fail(ATOM_E_USAGE, "this file configures a pool: atom pool create "
                                              "--config FILE -o DIR creates it and trains as its "
                                              "first member; to train alone, remove the section "
                                              "'pool'")
                    : atom_fail(ATOM_E_USAGE, "write pool: at the left margin on a line of its "
                                              "own, without quotes, and its keys on the lines "
                                              "below it, one per line and indented with spaces");
}

static atom_status read_key(yaml_reader *r, int32_t *row)
{
    atom_status st = ATOM_OK;
    ATOM_TRY(check_scalar(r, "a key"));
    const char *key = scalar(r);
    int32_t found = strchr(key, '-') ? -1 : opt_find(r->command, key);
    if (found >= 0 && (r->command->specs[found].flags & OPT_CLI_ONLY))
        return at_event(r,
                        atom_fail(ATOM_E_USAGE, "'%s' can only be given on the command line", key));
    if (found < 0 && !r->foreign && strcmp(key, "pool") == 0 &&
        strcmp(r->command->name, "train") == 0)
        return at_event(r, fail_pool(r));
    if (found < 0) {
        const char *near = opt_suggest(r->command, key);
        st = near ? atom_fail(ATOM_E_USAGE, "unknown key '%.64s' (did you mean '%s'?)", key, near)
                  : atom_fail(ATOM_E_USAGE, "unknown key '%.64s'; '%s --help' lists them", key,
                              r->command->name);
        return at_event(r, st);
    }
    if (r->foreign && !opt_is_shared(r->command, (uint32_t)found))
        return at_event(r, atom_fail(ATOM_E_USAGE, "'%s' is for each host to decide by itself",
                                     r->command->specs[found].name));
    if (r->line[found])
        return at_event(
            r, atom_fail(ATOM_E_USAGE, "'%s' was already set in line %u", key, r->line[found]));
    if (!r->peek)
        opt_note_alias(r->command, found, key, strlen(key));
    r->line[found] = (uint32_t)r->event.start_mark.line + 1;
    *row = found;
    return ATOM_OK;
}

static bool is_null(const yaml_reader *r)
{
    const char *text = scalar(r);
    return r->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           (!*text || strcmp(text, "null") == 0 || strcmp(text, "~") == 0);
}

static atom_status fail_commas(const yaml_reader *r, const opt_spec *spec)
{
    bool list = r->event.type == YAML_SEQUENCE_START_EVENT;
    const char *form = spec->value && strchr(spec->value, ',') ? spec->value : "a,b,c";
    return at_event(r, atom_fail(ATOM_E_USAGE,
                                 "%s must be a plain value, not a %s; write it in one text with "
                                 "commas: %s",
                                 spec->name, list ? "list" : "mapping", form));
}

static atom_status set_scalar(yaml_reader *r, uint32_t row)
{
    const opt_spec *spec = &r->command->specs[row];
    atom_status st = ATOM_OK;
    if ((spec->flags & OPT_COMMAS) &&
        (r->event.type == YAML_SEQUENCE_START_EVENT || r->event.type == YAML_MAPPING_START_EVENT))
        return fail_commas(r, spec);
    ATOM_TRY(check_scalar(r, spec->name));
    if (is_null(r))
        return at_event(r, atom_fail(ATOM_E_USAGE,
                                     "'%s' has no value; remove the line to use the default",
                                     spec->name));
    st = opt_set(r->command, row, scalar(r), r->values);
    return st == ATOM_OK ? ATOM_OK : at_event(r, st);
}

static atom_status read_value(yaml_reader *r, uint32_t row)
{
    const opt_spec *spec = &r->command->specs[row];
    ATOM_TRY(next_event(r));
    opt_list_restart(r->command, row, r->values);
    r->parsed->origin[row] = OPT_FROM_FILE;
    if (spec->type != OPT_LIST || r->event.type != YAML_SEQUENCE_START_EVENT)
        return set_scalar(r, row);
    if (r->event.data.sequence_start.anchor || r->event.data.sequence_start.tag)
        return at_event(r, atom_fail(ATOM_E_USAGE, "anchors and tags are not accepted here"));
    for (;;) {
        ATOM_TRY(next_event(r));
        if (r->event.type == YAML_SEQUENCE_END_EVENT)
            return ATOM_OK;
        ATOM_TRY(set_scalar(r, row));
    }
}

static atom_status read_mapping(yaml_reader *r)
{
    if (r->event.data.mapping_start.anchor || r->event.data.mapping_start.tag)
        return at_event(r, atom_fail(ATOM_E_USAGE, "anchors and tags are not accepted here"));
    for (;;) {
        int32_t row = -1;
        ATOM_TRY(next_event(r));
        if (r->event.type == YAML_MAPPING_END_EVENT)
            return ATOM_OK;
        ATOM_TRY(read_key(r, &row));
        ATOM_TRY(read_value(r, (uint32_t)row));
    }
}

/* stream start, document start, one mapping (or nothing), document end, stream end */
static atom_status read_stream(yaml_reader *r)
{
    uint32_t documents = 0;
    do {
        ATOM_TRY(next_event(r));
        const yaml_event_t *e = &r->event;
        if (e->type == YAML_DOCUMENT_START_EVENT && documents++)
            return at_event(r, atom_fail(ATOM_E_USAGE, "there is a second YAML document; keep "
                                                       "only one per file"));
        if (e->type == YAML_DOCUMENT_START_EVENT && e->data.document_start.tag_directives.start !=
                                                        e->data.document_start.tag_directives.end)
            return at_event(r, atom_fail(ATOM_E_USAGE, "%%TAG is not accepted here"));
        if (e->type == YAML_MAPPING_START_EVENT) {
            ATOM_TRY(read_mapping(r));
            continue;
        }
        bool empty = e->type == YAML_SCALAR_EVENT && e->data.scalar.length == 0 &&
                     !e->data.scalar.tag && !e->data.scalar.anchor;
        if (!empty && (e->type == YAML_SCALAR_EVENT || e->type == YAML_SEQUENCE_START_EVENT ||
                       e->type == YAML_ALIAS_EVENT))
            return at_event(r, atom_fail(ATOM_E_USAGE, "expected `key: value` lines"));
    } while (r->event.type != YAML_STREAM_END_EVENT);
    return ATOM_OK;
}

static atom_status read_text(yaml_reader *r, const char *text, size_t bytes)
{
    if (bytes > OPT_FILE_BYTES_MAX)
        return atom_fail(ATOM_E_USAGE, "%s is larger than %d bytes; is it a configuration?",
                         r->path, OPT_FILE_BYTES_MAX);
    ATOM_TRY(opt_yaml_begin(&r->parser, text, bytes));
    atom_status st = read_stream(r);
    yaml_event_delete(&r->event);
    yaml_parser_delete(&r->parser);
    return st;
}

atom_status opt_read_text(const opt_command *command, const char *path, const char *text,
                          size_t bytes, void *values, opt_parsed *parsed)
{
    yaml_reader r = {.command = command, .path = path, .values = values, .parsed = parsed};
    return read_text(&r, text, bytes);
}

atom_status opt_peek_text(const opt_command *command, const char *path, const char *text,
                          size_t bytes, void *values, opt_parsed *parsed)
{
    yaml_reader r = {
        .command = command, .path = path, .values = values, .parsed = parsed, .peek = true};
    return read_text(&r, text, bytes);
}

atom_status opt_read_foreign(const opt_command *command, const char *path, const char *text,
                             size_t bytes, void *values, opt_parsed *parsed)
{
    yaml_reader r = {
        .command = command, .path = path, .values = values, .parsed = parsed, .foreign = true};
    atom_status st = read_text(&r, text, bytes);
    return st == ATOM_E_USAGE ? ATOM_E_FORMAT : st;
}

atom_status opt_file_text(const char *path, const char *missing, char **text, size_t *bytes)
{
    uint64_t n = 0;
    if (!atom_path_exists(path))
        return atom_fail(ATOM_E_USAGE, "%s", missing);
    atom_status st = atom_file_read(path, OPT_FILE_BYTES_MAX, text, &n);
    *bytes = (size_t)n;
    return st == ATOM_E_FORMAT ? ATOM_E_USAGE : st;
}

atom_status opt_read_file(const opt_command *command, const char *path, void *values,
                          opt_parsed *parsed)
{
    char *text = NULL, missing[512];
    size_t bytes = 0;
    snprintf(missing, sizeof missing, "there is no configuration file %s", path);
    ATOM_TRY(opt_file_text(path, missing, &text, &bytes));
    yaml_reader r = {
        .command = command, .path = path, .values = values, .parsed = parsed, .whole = true};
    atom_status st = read_text(&r, text, bytes);
    bool any = false;
    for (uint32_t i = 0; i < OPT_SPECS_MAX; i++)
        any = any || r.line[i] > 0;
    if (st == ATOM_OK && !any)
        atom_log(ATOM_LOG_WARN, "%s sets nothing: it has no line 'key: value'", path);
    atom_free(text);
    return st;
}
