/*
 * Owns the command line: words in, rows of a table found for them. One idea: it is walked twice, so
 * that a configuration file it names is read before the options that override it. Refuses to guess:
 * an unknown word is an error that names the nearest one.
 */
#include "atom/options/options_internal.h"

#include "atom/base/log.h"
#include "atom/base/nearest.h"

#include <string.h>

/* One walk over the command line. The first walk (set false) only finds positionals and bad
 * options. */
typedef struct walk {
    const opt_command *command;
    int argc;
    char **argv;
    int at;
    bool set;
    void *values;
    opt_parsed *parsed;
    const char *words[OPT_SPECS_MAX]; /* the value that each row has from this command line */
} walk;

static atom_status unknown_option(const walk *w, const char *word, size_t bytes)
{
    char name[64], dashed[64];
    snprintf(name, sizeof name, "%.*s", (int)(bytes < 60 ? bytes : 60), word);
    const char *near = strlen(name) > 2 ? opt_suggest(w->command, name + 2) : NULL;
    if (near)
        return atom_fail(ATOM_E_USAGE, "unknown option '%s' of '%s' (did you mean '%s'?)", name,
                         w->command->name, opt_dashed(near, dashed));
    return atom_fail(ATOM_E_USAGE, "unknown option '%s' of '%s'; --help lists them", name,
                     w->command->name);
}

/* Lists grow; of anything else the last value counts, as where an alias of a shell gives the first. */
static void note_repeated(walk *w, int32_t row, const char *text)
{
    const opt_spec *spec = &w->command->specs[row];
    const char *before = w->words[row];
    char dashed[64];
    if (spec->type != OPT_LIST && before && strcmp(before, text) != 0)
        atom_log(ATOM_LOG_INFO, "note: %s is given twice; the last one counts: '%s', not '%s'",
                 opt_dashed(spec->name, dashed), text, before);
    w->words[row] = text;
}

static atom_status walk_set(walk *w, int32_t row, const char *text)
{
    const opt_spec *spec = &w->command->specs[row];
    char dashed[64];
    if (!w->set)
        return ATOM_OK;
    if (w->parsed->origin[row] != OPT_FROM_COMMAND_LINE)
        opt_list_restart(w->command, (uint32_t)row, w->values);
    atom_status st = opt_set_value(spec, text, w->values);
    if (st != ATOM_OK)
        return atom_fail_in(st, "%s: ", opt_dashed(spec->name, dashed));
    w->parsed->origin[row] = OPT_FROM_COMMAND_LINE;
    note_repeated(w, row, text);
    return ATOM_OK;
}

static bool is_option(const char *word)
{
    return word[0] == '-' && word[1] != 0;
}

/* --name, --name=value, --no-name or -n of this command? Then a value is missing in front of it, as where
 * a script's variable was not set. */
static bool is_known_option(const opt_command *command, const char *word)
{
    const char *name = word + 2 + (strncmp(word, "--no-", 5) == 0 ? 3 : 0);
    if (word[1] == '-')
        return opt_find_part(command, word + 2, strcspn(word + 2, "=")) >= 0 ||
               opt_find_part(command, name, strcspn(name, "=")) >= 0;
    for (uint32_t i = 0; word[1] && !word[2] && i < command->n_specs; i++)
        if (command->specs[i].letter == word[1])
            return true;
    return false;
}

/* The value words that follow an option without "=". */
static atom_status walk_values(walk *w, int32_t row, const char *word)
{
    const opt_spec *spec = &w->command->specs[row];
    const char *next = w->at < w->argc ? w->argv[w->at] : NULL;
    if (spec->type == OPT_FLAG) {
        bool words = next && (strcmp(next, "true") == 0 || strcmp(next, "false") == 0);
        w->at += words;
        return walk_set(w, row, words ? next : "true");
    }
    if (!next || (spec->type == OPT_LIST && is_option(next)))
        return atom_fail(ATOM_E_USAGE, "option '%s' needs a value", word);
    if (is_option(next) && is_known_option(w->command, next))
        return atom_fail(ATOM_E_USAGE,
                         "option '%s' needs a value, but '%s' looks like the next option; if it "
                         "is the value, join them with =",
                         word, next);
    w->at++;
    atom_status st = walk_set(w, row, next);
    while (st == ATOM_OK && spec->type == OPT_LIST && w->at < w->argc && !is_option(w->argv[w->at]))
        st = walk_set(w, row, w->argv[w->at++]);
    return st;
}

/* --name, --name=value, --no-name */
static atom_status walk_long(walk *w, const char *word)
{
    const char *equals = strchr(word, '=');
    size_t bytes = equals ? (size_t)(equals - word) : strlen(word);
    int32_t row = opt_find_part(w->command, word + 2, bytes - 2);
    if (row < 0 && !equals && strncmp(word, "--no-", 5) == 0) {
        row = opt_find_part(w->command, word + 5, bytes - 5);
        if (row >= 0 && w->command->specs[row].type == OPT_FLAG)
            return walk_set(w, row, "false");
        row = -1;
    }
    if (row < 0)
        return unknown_option(w, word, bytes);
    if (w->set)
        opt_note_alias(w->command, row, word + 2, bytes - 2);
    if (equals)
        return walk_set(w, row, equals + 1);
    return walk_values(w, row, word);
}

static atom_status walk_short(walk *w, const char *word)
{
    for (uint32_t i = 0; word[2] == 0 && i < w->command->n_specs; i++) {
        if (w->command->specs[i].letter == word[1])
            return walk_values(w, (int32_t)i, word);
    }
    return unknown_option(w, word, strlen(word));
}

static atom_status walk_positional(walk *w, const char *word)
{
    if (w->parsed->n_positional >= w->command->positional_max ||
        w->parsed->n_positional >= OPT_POSITIONAL_MAX)
        return atom_fail(ATOM_E_USAGE, "'%s': unexpected argument; '%s' takes %s%s", word,
                         w->command->name, w->command->positional ? "at most " : "options only",
                         w->command->positional ? w->command->positional : "");
    w->parsed->positional[w->parsed->n_positional++] = word;
    return ATOM_OK;
}

static atom_status walk_all(walk *w)
{
    bool only_positionals = false;
    w->parsed->n_positional = 0;
    for (w->at = 0; w->at < w->argc;) {
        const char *word = w->argv[w->at++];
        if (only_positionals || !is_option(word))
            ATOM_TRY(walk_positional(w, word));
        else if (strcmp(word, "--") == 0)
            only_positionals = true;
        else if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
            w->parsed->help = true;
        else if (word[1] == '-')
            ATOM_TRY(walk_long(w, word));
        else
            ATOM_TRY(walk_short(w, word));
        if (w->parsed->help)
            return ATOM_OK;
    }
    return ATOM_OK;
}

static atom_status check_required(const opt_command *command, const opt_parsed *parsed)
{
    char dashed[64];
    if (parsed->n_positional < command->positional_min)
        return atom_fail(ATOM_E_USAGE, "'%s' needs %s", command->name, command->positional);
    for (uint32_t i = 0; i < command->n_specs; i++) {
        const opt_spec *spec = &command->specs[i];
        if ((spec->flags & OPT_REQUIRED) && parsed->origin[i] == OPT_FROM_DEFAULT)
            return atom_fail(ATOM_E_USAGE, "'%s' needs %s%s%s", command->name,
                             opt_dashed(spec->name, dashed), spec->value ? " " : "",
                             spec->value ? spec->value : "");
    }
    return ATOM_OK;
}

atom_status opt_parse(const opt_command *command, int argc, char **argv, void *values,
                      opt_parsed *parsed)
{
    walk w = {.command = command, .argc = argc, .argv = argv, .values = values, .parsed = parsed};
    atom_status st = ATOM_OK;
    ATOM_TRY(opt_defaults(command, values, parsed));
    ATOM_TRY_CLEAN(walk_all(&w));
    if (parsed->help)
        return ATOM_OK;
    if (command->config_file && parsed->n_positional)
        ATOM_TRY_CLEAN(opt_read_file(command, parsed->positional[0], values, parsed));
    w.set = true;
    ATOM_TRY_CLEAN(walk_all(&w));
    ATOM_TRY_CLEAN(check_required(command, parsed));
    return ATOM_OK;
cleanup:
    opt_free(command, values);
    return st;
}

static bool starts_with_words(const char *name, int argc, char **argv, int *used)
{
    *used = 0;
    while (*name) {
        size_t bytes = strcspn(name, " ");
        if (*used >= argc || strncmp(argv[*used], name, bytes) != 0 || argv[*used][bytes])
            return false;
        (*used)++;
        name += bytes;
        name += *name == ' ';
    }
    return true;
}

static atom_status unknown_command(const opt_command *const *commands, uint32_t n, int argc,
                                   char **argv)
{
    const char *names[OPT_SPECS_MAX];
    char two[128], verbs[256] = "";
    size_t used = 0, bytes = strlen(argv[0]);
    for (uint32_t i = 0; i < n && i < OPT_SPECS_MAX; i++) {
        const char *name = commands[i]->name;
        names[i] = name;
        if (strncmp(name, argv[0], bytes) == 0 && name[bytes] == ' ' && used < sizeof verbs)
            used += (size_t)snprintf(verbs + used, sizeof verbs - used, "%s%s", used ? ", " : "",
                                     name + bytes + 1);
    }
    n = n < OPT_SPECS_MAX ? n : OPT_SPECS_MAX;
    snprintf(two, sizeof two, "%s %s", argv[0], argc > 1 ? argv[1] : "");
    const char *near = atom_did_you_mean(argc > 1 && used ? two : argv[0], names, n);
    if (near && !(used && argc < 2))
        return atom_fail(ATOM_E_USAGE, "unknown command '%s' (did you mean '%s'?)",
                         used ? two : argv[0], near);
    if (used)
        return atom_fail(ATOM_E_USAGE, "'%s' needs one of: %s", argv[0], verbs);
    return atom_fail(ATOM_E_USAGE, "unknown command '%s'; --help lists them", argv[0]);
}

atom_status opt_find_command(const opt_command *const *commands, uint32_t n, int argc, char **argv,
                             const opt_command **out, int *used)
{
    const opt_command *best = NULL;
    int best_used = 0;
    if (argc < 1)
        return atom_fail(ATOM_E_USAGE, "no command was given; --help lists them");
    for (uint32_t i = 0; i < n; i++) {
        int words = 0;
        if (starts_with_words(commands[i]->name, argc, argv, &words) && words > best_used) {
            best = commands[i];
            best_used = words;
        }
    }
    if (!best)
        return unknown_command(commands, n, argc, argv);
    *out = best;
    *used = best_used;
    return ATOM_OK;
}
