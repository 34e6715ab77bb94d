/*
 * Owns what a text means for a row: the fields of the caller's struct, their defaults and names. One
 * idea: opt_set is the only place where text becomes a value, whoever brought the text. Refuses to
 * guess: a word that is not exactly a value of the row's type is an error that says what would be.
 */
#include "atom/options/options_internal.h"

#include "atom/base/assert.h"
#include "atom/base/files.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"
#include "atom/base/nearest.h"
#include "atom/base/size.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static void *field(const opt_spec *spec, void *values)
{
    return (char *)values + spec->offset;
}

/* Are two spellings the same name ('-' and '_' alike)? */
static bool same_name(const char *a, const char *b, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        char x = a[i] == '-' ? '_' : a[i];
        char y = b[i] == '-' ? '_' : b[i];
        if (x != y || !y)
            return false;
    }
    return b[bytes] == 0;
}

int32_t opt_find_part(const opt_command *command, const char *name, size_t bytes)
{
    for (uint32_t i = 0; i < command->n_specs; i++) {
        const opt_spec *spec = &command->specs[i];
        if (same_name(name, spec->name, bytes))
            return (int32_t)i;
        for (const char *const *alias = spec->aliases; alias && *alias; alias++) {
            if (same_name(name, *alias, bytes))
                return (int32_t)i;
        }
    }
    return -1;
}

void opt_note_alias(const opt_command *command, int32_t row, const char *name, size_t bytes)
{
    if (row >= 0 && !same_name(name, command->specs[row].name, bytes))
        atom_log(ATOM_LOG_INFO, "note: '%.*s' is called '%s' here", (int)bytes, name,
                 command->specs[row].name);
}

int32_t opt_find(const opt_command *command, const char *name)
{
    return opt_find_part(command, name, strlen(name));
}

bool opt_given(const opt_command *command, const opt_parsed *parsed, const char *name)
{
    int32_t row = opt_find(command, name);
    ATOM_ASSERT(row >= 0);
    return parsed->origin[row] == OPT_FROM_FILE || parsed->origin[row] == OPT_FROM_COMMAND_LINE;
}

static const char *flag_words[] = {"true", "yes", "on", "1", "false", "no", "off", "0"};

/* 1 true, 0 false, -1 neither. */
static int flag_value(const char *text)
{
    for (int i = 0; i < 8; i++) {
        if (strcasecmp(text, flag_words[i]) == 0)
            return i < 4;
    }
    return -1;
}

/* The end of a range: whole numbers in full, sizes and rates as they are written. */
static const char *bound_text(const opt_spec *spec, double bound, char buf[48])
{
    char size[24];
    bool whole = fabs(bound) < 0x1p62 && bound == floor(bound);
    if (whole && (spec->type == OPT_SIZE || spec->type == OPT_RATE) && bound >= 1024)
        snprintf(buf, 48, "%s%s", atom_size_text((uint64_t)bound, size),
                 spec->type == OPT_RATE ? "/s" : "");
    else if (whole && spec->type == OPT_INT)
        snprintf(buf, 48, "%lld", (long long)bound);
    else
        snprintf(buf, 48, "%g", bound);
    return buf;
}

static atom_status check_range(const opt_spec *spec, double value, const char *text)
{
    if (spec->min == 0 && spec->max == 0)
        return ATOM_OK;
    char bound[48];
    bool low = spec->flags & OPT_ABOVE_MIN ? value <= spec->min : value < spec->min;
    bool high = spec->flags & OPT_BELOW_MAX ? value >= spec->max : value > spec->max;
    if (low)
        return atom_fail(ATOM_E_USAGE, "%s is too small; it must be %s %s", text,
                         spec->flags & OPT_ABOVE_MIN ? "more than" : "at least",
                         bound_text(spec, spec->min, bound));
    if (high)
        return atom_fail(ATOM_E_USAGE, "%s is too large; it must be %s %s", text,
                         spec->flags & OPT_BELOW_MAX ? "less than" : "at most",
                         bound_text(spec, spec->max, bound));
    return ATOM_OK;
}

static bool is_auto(const opt_spec *spec, const char *text)
{
    return (spec->flags & OPT_AUTO) && strcmp(text, "auto") == 0;
}

static const char *or_auto(const opt_spec *spec)
{
    return spec->flags & OPT_AUTO ? " (or auto)" : "";
}

/* " of MBIT", where the option says what it counts in. */
static const char *of_what(const opt_spec *spec, char buf[48])
{
    buf[0] = 0;
    if (spec->value && spec->value[0] && spec->value[1])
        snprintf(buf, 48, " of %s, without a unit", spec->value);
    return buf;
}

static atom_status set_int(const opt_spec *spec, const char *text, int64_t *out)
{
    char *end = NULL, what[48];
    if (is_auto(spec, text)) {
        *out = -1;
        return ATOM_OK;
    }
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end)
        return atom_fail(ATOM_E_USAGE, "'%s' is not a whole number%s%s", text, of_what(spec, what),
                         or_auto(spec));
    ATOM_TRY(check_range(spec, (double)value, text));
    /* a double is 2^53 where the number is one more */
    if (spec->max >= 0x1p53 && spec->max < 0x1p63 && value > (int64_t)spec->max)
        ATOM_TRY(check_range(spec, nextafter(spec->max, INFINITY), text));
    if (errno)
        return atom_fail(ATOM_E_USAGE, "%s is too large", text);
    *out = value;
    return ATOM_OK;
}

static atom_status set_number(const opt_spec *spec, const char *text, double *out)
{
    char *end = NULL, what[48];
    if (is_auto(spec, text)) {
        *out = -1;
        return ATOM_OK;
    }
    errno = 0;
    double value = strtod(text, &end);
    /* what computes with it has fp32, whose least number is 0x1p-149 */
    bool vanishes = fabs(value) <= 0x1p-150 && (value != 0 || errno == ERANGE);
    if (end == text || *end || !isfinite(value))
        return atom_fail(ATOM_E_USAGE, "'%s' is not a number%s%s", text, of_what(spec, what),
                         or_auto(spec));
    if (vanishes)
        return atom_fail(ATOM_E_USAGE,
                         "%s is too small: in fp32 it would be 0; write 1e-45 or more%s", text,
                         spec->flags & OPT_ABOVE_MIN ? "" : ", or 0");
    ATOM_TRY(check_range(spec, value, text));
    if (spec->flags & OPT_BELOW_MAX && (float)value >= (float)spec->max)
        return atom_fail(ATOM_E_USAGE,
                         "%s is too close to %g: in fp32 it would be that; write less", text,
                         spec->max);
    *out = value;
    return ATOM_OK;
}

/* 100Mb/s are megabits to some and megabytes to others, eight times as many. */
static atom_status check_bytes(const opt_spec *spec, const char *text, const char *number)
{
    const size_t n = strlen(number);
    if (spec->type != OPT_RATE || n < 2 || number[n - 1] != 'b' ||
        !isalpha((unsigned char)number[n - 2]))
        return ATOM_OK;
    return atom_fail(ATOM_E_USAGE,
                     "'%s' may mean bits or bytes; write bytes with a large B: 100 Mbit/s are "
                     "12.5MB/s",
                     text);
}

static atom_status set_size(const opt_spec *spec, const char *text, uint64_t *out)
{
    char copy[64];
    uint64_t value = 0;
    if (is_auto(spec, text)) {
        *out = 0;
        return ATOM_OK;
    }
    size_t n = strlen(text);
    if (spec->type == OPT_RATE && n > 2 && strcmp(text + n - 2, "/s") == 0)
        n -= 2;
    snprintf(copy, sizeof copy, "%.*s", (int)(n < 60 ? n : 60), text);
    atom_status st = atom_size_parse(copy, &value);
    if (st != ATOM_OK || n > 60)
        return atom_fail(ATOM_E_USAGE, "'%s' is not a %s; write for example %s%s", text,
                         spec->type == OPT_RATE ? "rate" : "size",
                         spec->type == OPT_RATE ? "16GB/s" : "8GiB, 512MiB or 2GB", or_auto(spec));
    ATOM_TRY(check_bytes(spec, text, copy));
    st = check_range(spec, (double)value, text);
    if (st == ATOM_OK)
        *out = value;
    return st;
}

const char *opt_choice_name(const opt_choice *choices, int32_t value)
{
    while (choices->name && choices->value != value)
        choices++;
    ATOM_ASSERT(choices->name);
    return choices->name;
}

static atom_status set_choice(const opt_spec *spec, const char *text, int32_t *out)
{
    const char *names[OPT_CHOICES_MAX];
    char all[512] = "";
    size_t used = 0, n = 0;
    for (; spec->choices[n].name; n++) {
        ATOM_ASSERT(n < OPT_CHOICES_MAX);
        names[n] = spec->choices[n].name;
        if (strcmp(text, names[n]) == 0) {
            *out = spec->choices[n].value;
            return ATOM_OK;
        }
        used += (size_t)snprintf(all + used, sizeof all - used, "%s%s", n ? ", " : "", names[n]);
        ATOM_ASSERT(used < sizeof all);
    }
    const char *near = atom_did_you_mean(text, names, n);
    if (near)
        return atom_fail(ATOM_E_USAGE, "'%s' is none of: %s (did you mean '%s'?)", text, all, near);
    return atom_fail(ATOM_E_USAGE, "'%s' is none of: %s", text, all);
}

static atom_status set_text(const char *text, char **out)
{
    char *copy = atom_strdup(text);
    if (!copy)
        return atom_fail_memory("an option", strlen(text));
    atom_free(*out);
    *out = copy;
    return ATOM_OK;
}

static atom_status list_add(const char *text, opt_list *list)
{
    char *copy = atom_strdup(text);
    char **grown = copy ? atom_realloc(list->items, (size_t)list->n + 1, sizeof *grown) : NULL;
    if (!grown) {
        atom_free(copy);
        return atom_fail_memory("an option", strlen(text));
    }
    list->items = grown;
    grown[list->n++] = copy;
    return ATOM_OK;
}

static void list_clear(opt_list *list)
{
    for (uint32_t i = 0; i < list->n; i++)
        atom_free(list->items[i]);
    atom_free(list->items);
    *list = (opt_list){0};
}

/* The $ of a variable, which a shell would have replaced; NULL: there is none. */
static const char *variable_in(const char *text)
{
    const char *at = strchr(text, '$');
    while (at && at[1] != '{' && at[1] != '_' && !isalpha((unsigned char)at[1]))
        at = strchr(at + 1, '$');
    return at;
}

/* `trace: false` means that there should be none, and would make a file of that name. A row that has
 * words besides paths says itself what they mean. */
static bool is_switch(const opt_spec *spec, const char *text)
{
    static const char *const words[] = {"none", "false", "no", "off", "auto", "true", "yes", "on"};
    if ((spec->flags & OPT_REQUIRED) || strchr(spec->value, '|'))
        return false;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcasecmp(text, words[i]) == 0)
            return !atom_path_exists(text);
    return false;
}

/* An empty path is what a script's unset variable leaves. ~ and $NAME are the shell's words;
 * directories of these names would be made. */
static atom_status check_path(const opt_spec *spec, const char *text)
{
    const char *home = getenv("HOME"), *value = spec->value ? spec->value : "";
    bool both = strstr(value, "PATH"), dir = both || strstr(value, "DIR"),
         file = both || strstr(value, "FILE");
    if ((dir || file) && !*text)
        return atom_fail(ATOM_E_USAGE, "it is empty; name a %s%s%s%s", file ? "file" : "",
                         dir && file ? " or " : "", dir ? "directory" : "",
                         spec->flags & OPT_REQUIRED ? "" : ", or leave it out");
    const size_t n = strlen(text);
    const bool ends = n && (text[n - 1] == '\n' || text[n - 1] == '\r');
    /* of a | or > in YAML, or of a script with CRLF */
    if ((dir || file) && ends && !atom_path_exists(text))
        return atom_fail(ATOM_E_USAGE,
                         "the name of a %s ends with a line end; write it on one line, without | "
                         "or >",
                         file ? "file" : "directory");
    if ((dir || file) && is_switch(spec, text))
        return atom_fail(ATOM_E_USAGE,
                         "'%s' would be the name of a %s; leave it out for none, or write ./%s if "
                         "it is called so",
                         text, file ? "file" : "directory", text);
    const char *variable = variable_in(text);
    if ((dir || file) && variable && !atom_path_exists(text))
        return atom_fail(ATOM_E_USAGE,
                         "'%s': only a shell replaces the variable %.*s by its value, and there "
                         "is no such path; write the value itself",
                         text, (int)strcspn(variable, "/"), variable);
    if (!(dir || file) || text[0] != '~' || (text[1] && text[1] != '/'))
        return ATOM_OK;
    return atom_fail(
        ATOM_E_USAGE,
        "'%s': ~ means your home directory only where a shell replaces it, at the start of a "
        "word; write %s%s",
        text, home ? home : "the whole path", home ? text + 1 : "");
}

atom_status opt_set_value(const opt_spec *spec, const char *text, void *values)
{
    void *at = field(spec, values);
    switch (spec->type) {
    case OPT_FLAG: {
        int value = flag_value(text);
        if (value < 0)
            return atom_fail(ATOM_E_USAGE, "'%s' is neither true nor false", text);
        *(bool *)at = value;
        return ATOM_OK;
    }
    case OPT_INT:
        return set_int(spec, text, at);
    case OPT_NUMBER:
        return set_number(spec, text, at);
    case OPT_SIZE:
    case OPT_RATE:
        return set_size(spec, text, at);
    case OPT_TEXT:
        ATOM_TRY(check_path(spec, text));
        return set_text(text, at);
    case OPT_CHOICE:
        return set_choice(spec, text, at);
    case OPT_LIST:
        ATOM_TRY(check_path(spec, text));
        return list_add(text, at);
    }
    return ATOM_E_USAGE;
}

atom_status opt_set(const opt_command *command, uint32_t row, const char *text, void *values)
{
    ATOM_ASSERT(row < command->n_specs);
    atom_status st = opt_set_value(&command->specs[row], text, values);
    return st == ATOM_OK ? ATOM_OK : atom_fail_in(st, "%s: ", command->specs[row].name);
}

void opt_list_restart(const opt_command *command, uint32_t row, void *values)
{
    if (command->specs[row].type == OPT_LIST)
        list_clear(field(&command->specs[row], values));
}

void opt_free(const opt_command *command, void *values)
{
    for (uint32_t i = 0; i < command->n_specs; i++) {
        const opt_spec *spec = &command->specs[i];
        if (spec->type == OPT_TEXT)
            atom_free(*(char **)field(spec, values));
        if (spec->type == OPT_LIST)
            list_clear(field(spec, values));
    }
    memset(values, 0, command->values_bytes);
}

atom_status opt_defaults(const opt_command *command, void *values, opt_parsed *parsed)
{
    ATOM_ASSERT(command->n_specs <= OPT_SPECS_MAX);
    memset(values, 0, command->values_bytes);
    memset(parsed, 0, sizeof *parsed);
    for (uint32_t i = 0; i < command->n_specs; i++) {
        const opt_spec *spec = &command->specs[i];
        atom_status st = spec->fallback ? opt_set_value(spec, spec->fallback, values) : ATOM_OK;
        ATOM_ASSERT(st == ATOM_OK || st == ATOM_E_RESOURCE); /* a default that is no legal value */
        if (st != ATOM_OK) {
            opt_free(command, values);
            return st;
        }
    }
    return ATOM_OK;
}

/* Nearest name of the table to a misspelt one, or NULL. */
const char *opt_suggest(const opt_command *command, const char *word)
{
    const char *names[OPT_SPECS_MAX];
    char plain[64];
    for (uint32_t i = 0; i < command->n_specs; i++)
        names[i] = command->specs[i].name;
    snprintf(plain, sizeof plain, "%s", word);
    for (char *c = plain; *c; c++)
        *c = *c == '-' ? '_' : *c;
    return atom_did_you_mean(plain, names, command->n_specs);
}

/* "--device-memory" from a row's name; buf holds 64. */
char *opt_dashed(const char *name, char buf[64])
{
    snprintf(buf, 64, "--%s", name);
    for (char *c = buf + 2; *c; c++)
        *c = *c == '_' ? '-' : *c;
    return buf;
}
