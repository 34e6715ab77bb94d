/*
 * Owns what the option table looks like to people and shells: --help, the printed configuration.
 * One idea: everything said about an option is in its row, so nothing here knows any option by
 * name. Refuses to print: texts go back to the caller, who knows stdout from stderr.
 */
#include "atom/options/options_internal.h"

#include "atom/base/json.h"
#include "atom/base/mem.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HELP_COLUMN = 30, HELP_WIDTH = 100 };

atom_status opt_out_open(opt_out *out)
{
    *out = (opt_out){0};
    out->file = open_memstream(&out->text, &out->bytes);
    return out->file ? ATOM_OK : atom_fail_memory("a text", 0);
}

atom_status opt_out_close(opt_out *out, char **text)
{
    bool bad = ferror(out->file) != 0;
    bad = fclose(out->file) != 0 || bad;
    char *copy = bad ? NULL : atom_strndup(out->text, out->bytes);
    free(out->text);
    *out = (opt_out){0};
    if (!copy)
        return atom_fail_memory("a text", 0);
    *text = copy;
    return ATOM_OK;
}

const char *opt_value_name(const opt_spec *spec)
{
    static const char *const names[] = {"", "N", "X", "SIZE", "RATE", "TEXT", "", "TEXT..."};
    return spec->value ? spec->value : names[spec->type];
}

/* Words of `text`, wrapped at HELP_WIDTH, continued at `column`. `at` is where the cursor is. */
static void wrap(FILE *f, const char *text, int column, int at)
{
    bool first = true;
    while (*text) {
        text += strspn(text, " ");
        int n = (int)strcspn(text, " ");
        if (n == 0)
            break;
        if (!first && at + 1 + n > HELP_WIDTH) {
            fprintf(f, "\n%*s", column, "");
            at = column;
            first = true;
        }
        fprintf(f, "%s%.*s", first ? "" : " ", n, text);
        at += n + !first;
        first = false;
        text += n;
    }
    fputc('\n', f);
}

static void write_range(FILE *f, const opt_spec *spec)
{
    bool low = spec->min > -1e9, high = spec->max < 1e9;
    if ((spec->min == 0 && spec->max == 0) || (!low && !high))
        return;
    fputs(" Range: ", f);
    if (low && high)
        fprintf(f, "%s%.9g to %s%.9g", spec->flags & OPT_ABOVE_MIN ? "above " : "", spec->min,
                spec->flags & OPT_BELOW_MAX ? "below " : "", spec->max);
    else if (low)
        fprintf(f, "%s %.9g", spec->flags & OPT_ABOVE_MIN ? "more than" : "at least", spec->min);
    else
        fprintf(f, "%s %.9g", spec->flags & OPT_BELOW_MAX ? "less than" : "at most", spec->max);
    fputc('.', f);
}

/* "fp32|bf16" for choices, the value's name otherwise. */
void opt_write_value(FILE *f, const opt_spec *spec)
{
    if (spec->type == OPT_CHOICE && !spec->value) {
        for (uint32_t i = 0; spec->choices[i].name; i++)
            fprintf(f, "%s%s", i ? "|" : "", spec->choices[i].name);
    } else {
        fputs(opt_value_name(spec), f);
    }
}

/* What stands in the column on the left: "  -o, --output_dir DIR", or "  sync_steps: N" of a file's key. */
static void write_left(FILE *f, const opt_spec *spec, bool is_key)
{
    char dashed[64];
    if (is_key)
        fprintf(f, "  %s: ", spec->name);
    else
        fprintf(f, "  %c%c%s %s%s", spec->letter ? '-' : ' ', spec->letter ? spec->letter : ' ',
                spec->letter ? "," : " ", opt_dashed(spec->name, dashed),
                spec->type == OPT_FLAG ? "" : " ");
    if (spec->type != OPT_FLAG)
        opt_write_value(f, spec);
    else if (is_key)
        fputs("true|false", f);
}

static atom_status write_option(FILE *f, const opt_spec *spec, bool is_key)
{
    opt_out line;
    char *head = NULL, *tail = NULL;
    atom_status st = ATOM_OK;
    ATOM_TRY(opt_out_open(&line));
    write_left(line.file, spec, is_key);
    ATOM_TRY_CLEAN(opt_out_close(&line, &head));
    ATOM_TRY_CLEAN(opt_out_open(&line));
    fputs(spec->help ? spec->help : "", line.file);
    if (spec->type == OPT_INT || spec->type == OPT_NUMBER)
        write_range(line.file, spec);
    if (spec->fallback && (spec->type != OPT_FLAG || is_key))
        fprintf(line.file, " [%s]", spec->fallback);
    if (spec->flags & OPT_REQUIRED)
        fputs(" (required)", line.file);
    ATOM_TRY_CLEAN(opt_out_close(&line, &tail));
    int width = (int)strlen(head);
    fputs(head, f);
    if (width + 2 > HELP_COLUMN) {
        fputc('\n', f);
        width = 0;
    }
    fprintf(f, "%*s", HELP_COLUMN - width, "");
    wrap(f, tail, HELP_COLUMN, HELP_COLUMN);
cleanup:
    atom_free(head);
    atom_free(tail);
    return st;
}

static void write_usage(FILE *f, const char *program, const opt_command *command)
{
    char dashed[64];
    fprintf(f, "Usage: %s %s", program, command->name);
    if (command->positional)
        fprintf(f, " %s", command->positional);
    for (uint32_t i = 0; i < command->n_specs; i++) {
        const opt_spec *spec = &command->specs[i];
        if (!(spec->flags & OPT_REQUIRED))
            continue;
        fprintf(f, " %s ", opt_dashed(spec->name, dashed));
        opt_write_value(f, spec);
    }
    fputs(" [--key value ...]\n", f);
}

/* Lines, each wrapped by itself; blank lines stay, and so do those that begin with a space: a file is
 * shown in them. */
static void write_paragraphs(FILE *f, const char *text)
{
    while (*text) {
        size_t n = strcspn(text, "\n");
        char line[1024];
        snprintf(line, sizeof line, "%.*s", (int)n, text);
        if (line[0] == ' ')
            fprintf(f, "%s\n", line);
        else
            wrap(f, line, 0, 0);
        text += n;
        text += *text == '\n';
    }
}

static atom_status write_options(FILE *f, const opt_command *command)
{
    for (uint32_t i = 0; i < command->n_specs; i++) {
        const opt_spec *spec = &command->specs[i];
        if (spec->group || i == 0)
            fprintf(f, "\n%s:\n", spec->group ? spec->group : "Options");
        ATOM_TRY(write_option(f, spec, false));
    }
    const opt_command *section = command->section;
    if (section)
        fprintf(f, "\n%s:\n", command->section_title);
    for (uint32_t i = 0; section && i < section->n_specs; i++)
        if (!(section->specs[i].flags & OPT_FILLED))
            ATOM_TRY(write_option(f, &section->specs[i], true));
    return ATOM_OK;
}

atom_status opt_help(const char *program, const opt_command *command, char **text)
{
    opt_out out;
    ATOM_TRY(opt_out_open(&out));
    FILE *f = out.file;
    fprintf(f, "%s %s: %s\n\n", program, command->name, command->summary);
    write_usage(f, program, command);
    if (command->description) {
        fputc('\n', f);
        write_paragraphs(f, command->description);
    }
    atom_status st = write_options(f, command);
    if (command->examples) {
        fputs("\nExamples:\n", f);
        for (const char *at = command->examples; *at;) {
            int n = (int)strcspn(at, "\n");
            fprintf(f, "  %.*s\n", n, at);
            at += n;
            at += *at == '\n';
        }
    }
    char *made = NULL;
    atom_status closed = opt_out_close(&out, &made);
    if (st == ATOM_OK && closed == ATOM_OK) {
        *text = made;
        return ATOM_OK;
    }
    atom_free(made);
    return st != ATOM_OK ? st : closed;
}

atom_status opt_help_all(const char *program, const char *tagline,
                         const opt_command *const *commands, uint32_t n, char **text)
{
    opt_out out;
    ATOM_TRY(opt_out_open(&out));
    fprintf(out.file, "%s: %s\n\nUsage: %s COMMAND [...]\n\nCommands:\n", program, tagline,
            program);
    for (uint32_t i = 0; i < n; i++)
        fprintf(out.file, "  %-16s %s\n", commands[i]->name, commands[i]->summary);
    fprintf(out.file, "\n'%s COMMAND --help' explains a command.\n", program);
    return opt_out_close(&out, text);
}

/* A YAML scalar that our reader gives back as it was: double-quoted where plain would not do. */
static void write_yaml_text(FILE *f, const char *text)
{
    size_t n = strlen(text);
    bool plain = n &&
                 strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                              "_./-+") == n &&
                 text[0] != '-' && strcmp(text, "null") != 0;
    if (plain) {
        fputs(text, f);
        return;
    }
    fputc('"', f);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            fprintf(f, "\\%c", c);
        else if (c < 32 || c == 127)
            fprintf(f, "\\x%02x", c);
        else
            fputc(c, f);
    }
    fputc('"', f);
}

static void write_bytes(FILE *f, uint64_t bytes)
{
    static const char *const units[] = {"", "KiB", "MiB", "GiB", "TiB"};
    int unit = 0;
    while (unit < 4 && bytes && bytes % 1024 == 0) {
        bytes /= 1024;
        unit++;
    }
    fprintf(f, "%llu%s", (unsigned long long)bytes, units[unit]);
}

/* The shortest decimal that reads back as the same double; 80 rather than 8e+01. */
static void write_number(FILE *f, double value)
{
    char buf[40];
    bool whole = fabs(value) < 1e15 && value == floor(value);
    if (whole)
        snprintf(buf, sizeof buf, "%.0f", value);
    for (int digits = 1; !whole && digits <= 17; digits++) {
        snprintf(buf, sizeof buf, "%.*g", digits, value);
        if (strtod(buf, NULL) == value)
            break;
    }
    fputs(buf, f);
}

static void write_yaml_value(FILE *f, const opt_spec *spec, const void *values)
{
    const void *at = (const char *)values + spec->offset;
    bool automatic = spec->flags & OPT_AUTO;
    switch (spec->type) {
    case OPT_FLAG:
        fputs(*(const bool *)at ? "true" : "false", f);
        break;
    case OPT_INT:
        if (automatic && *(const int64_t *)at == -1)
            fputs("auto", f);
        else
            fprintf(f, "%lld", (long long)*(const int64_t *)at);
        break;
    case OPT_NUMBER:
        if (automatic && *(const double *)at < 0)
            fputs("auto", f);
        else
            write_number(f, *(const double *)at);
        break;
    case OPT_SIZE:
    case OPT_RATE:
        if (automatic && *(const uint64_t *)at == 0)
            fputs("auto", f);
        else
            write_bytes(f, *(const uint64_t *)at);
        break;
    case OPT_TEXT:
        write_yaml_text(f, *(char *const *)at);
        break;
    case OPT_CHOICE:
        write_yaml_text(f, opt_choice_name(spec->choices, *(const int32_t *)at));
        break;
    case OPT_LIST: {
        const opt_list *list = at;
        fputc('[', f);
        for (uint32_t i = 0; i < list->n; i++) {
            fputs(i ? ", " : "", f);
            write_yaml_text(f, list->items[i]);
        }
        fputc(']', f);
    }
    }
}

atom_status opt_print(const opt_command *command, const void *values, const opt_parsed *parsed,
                      bool with_origin, char **text)
{
    static const char *const origins[] = {"default", "file", "command line", "preset"};
    opt_out out;
    ATOM_TRY(opt_out_open(&out));
    for (uint32_t i = 0; i < command->n_specs; i++) {
        const opt_spec *spec = &command->specs[i];
        const void *at = (const char *)values + spec->offset;
        if (spec->flags & (OPT_CLI_ONLY | OPT_NO_PRINT))
            continue;
        bool unset = spec->type == OPT_TEXT && !*(char *const *)at;
        fprintf(out.file, "%s%s: ", unset ? "# " : "", spec->name);
        if (!unset)
            write_yaml_value(out.file, spec, values);
        if (with_origin && parsed)
            fprintf(out.file, "  # %s", origins[parsed->origin[i]]);
        fputc('\n', out.file);
    }
    return opt_out_close(&out, text);
}

static json_t *json_value(const opt_spec *spec, const void *values)
{
    const void *at = (const char *)values + spec->offset;
    json_t *list = NULL;
    switch (spec->type) {
    case OPT_FLAG:
        return json_boolean(*(const bool *)at);
    case OPT_INT:
        return json_integer(*(const int64_t *)at);
    case OPT_NUMBER:
        return json_real(*(const double *)at);
    case OPT_SIZE:
    case OPT_RATE:
        return json_integer((json_int_t) * (const uint64_t *)at);
    case OPT_TEXT:
        if (!*(char *const *)at)
            return json_null();
        /* a path need not be UTF-8 */
        list = json_string(*(char *const *)at);
        return list ? list : json_string("(not UTF-8)");
    case OPT_CHOICE:
        return json_string(opt_choice_name(spec->choices, *(const int32_t *)at));
    case OPT_LIST:
        list = json_array();
        for (uint32_t i = 0; list && i < ((const opt_list *)at)->n; i++)
            json_array_append_new(list, json_string(((const opt_list *)at)->items[i]));
        return list;
    }
    return NULL;
}

atom_status opt_print_json(const opt_command *command, const void *values, char **text)
{
    json_t *object = json_object();
    bool bad = !object;
    for (uint32_t i = 0; !bad && i < command->n_specs; i++) {
        if (!(command->specs[i].flags & OPT_CLI_ONLY))
            bad = json_object_set_new(object, command->specs[i].name,
                                      json_value(&command->specs[i], values)) != 0;
    }
    if (bad) {
        json_decref(object);
        object = NULL;
    }
    return atom_json_text(object, JSON_COMPACT | JSON_REAL_PRECISION(17), "", text);
}
