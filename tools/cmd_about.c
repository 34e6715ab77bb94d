/*
 * atom version, help, completion: what the program says about itself. One idea: all of it is read
 * from the tables that also do the work, so it cannot be out of date.
 */
#include "tools/cli.h"

#include <string.h>

static const opt_command version_options = {
    .name = "version",
    .summary = "print the version",
    CLI_ONLY_JSON,
};

static atom_status version_run(void *values, const opt_parsed *parsed)
{
    const cli_json *v = values;
    (void)parsed;
    if (v->json)
        return cli_print_json(json_pack("{s:s, s:s, s:s}", "version", ATOM_VERSION, "build",
                                        ATOM_BUILD, "compiler", ATOM_COMPILER));
    cli_print("atom %s\n", ATOM_VERSION);
    return ATOM_OK;
}

const cli_command cli_version = {&version_options, version_run};

typedef struct help_values {
    bool man;
} help_values;

/* clang-format off */
static const opt_spec help_specs[] = {
    {.name = "man", .type = OPT_FLAG, .offset = offsetof(help_values, man),
     .help = "Print the man page of COMMAND, in roff."},
};
/* clang-format on */

static const opt_command help_options = {
    .name = "help",
    .summary = "list the commands, or explain one",
    .examples = "atom help train\n"
                "# the man page\n"
                "atom help --man train | man -l -\n",
    .positional = "[COMMAND]",
    .positional_max = 2,
    OPT_TABLE(help_specs, help_values),
};

static const char tagline[] = "trains large language models through a memory budget";

/* The commands whose names start with `word` and a blank; all of them when word is NULL. */
static atom_status help_list(const char *word, uint32_t *listed)
{
    const opt_command **tables = NULL;
    uint32_t n = 0, kept = 0;
    char *text = NULL;
    atom_status st = ATOM_OK;
    ATOM_TRY(cli_tables(&tables, &n));
    size_t bytes = word ? strlen(word) : 0;
    for (uint32_t i = 0; i < n; i++) {
        const char *name = tables[i]->name;
        if (!word || (strncmp(name, word, bytes) == 0 && name[bytes] == ' '))
            tables[kept++] = tables[i];
    }
    if (kept) {
        ATOM_TRY_CLEAN(opt_help_all("atom", tagline, tables, kept, &text));
        cli_print("%s", text);
    }
    *listed = kept;
cleanup:
    atom_free(text);
    atom_free(tables);
    return st;
}

static atom_status help_run(void *values, const opt_parsed *parsed)
{
    const help_values *v = values;
    const opt_command **tables = NULL;
    const opt_command *found = NULL;
    uint32_t n = 0, listed = 0;
    int used = 0;
    char *text = NULL, *words[2] = {NULL, NULL};
    atom_status st = ATOM_OK;
    if (parsed->n_positional < 2 && !v->man) {
        st = help_list(parsed->n_positional ? parsed->positional[0] : NULL, &listed);
        if (st != ATOM_OK || listed)
            return st;
    }
    for (uint32_t i = 0; i < parsed->n_positional; i++) {
        words[i] = atom_strdup(parsed->positional[i]);
        if (!words[i])
            ATOM_TRY_CLEAN(atom_fail_memory("a word", 0));
    }
    ATOM_TRY_CLEAN(cli_tables(&tables, &n));
    ATOM_TRY_CLEAN(opt_find_command(tables, n, (int)parsed->n_positional, words, &found, &used));
    if (v->man)
        ATOM_TRY_CLEAN(opt_man("atom", ATOM_VERSION, found, &text));
    else
        ATOM_TRY_CLEAN(opt_help("atom", found, &text));
    cli_print("%s", text);
cleanup:
    atom_free(text);
    atom_free(tables);
    atom_free(words[0]);
    atom_free(words[1]);
    return st;
}

const cli_command cli_help = {&help_options, help_run};

typedef struct completion_values {
    int32_t unused;
} completion_values;

static const opt_command completion_options = {
    .name = "completion",
    .summary = "print completion for a shell (bash)",
    .examples = "# for this shell\n"
                "source <(atom completion bash)\n",
    .positional = "bash",
    .positional_min = 1,
    .positional_max = 1,
    .values_bytes = sizeof(completion_values),
};

static atom_status completion_run(void *values, const opt_parsed *parsed)
{
    (void)values;
    const opt_command **tables = NULL;
    uint32_t n = 0;
    char *text = NULL;
    atom_status st = ATOM_OK;
    if (strcmp(parsed->positional[0], "bash") != 0)
        return atom_fail(ATOM_E_USAGE, "no completion for '%s'; there is bash",
                         parsed->positional[0]);
    ATOM_TRY_CLEAN(cli_tables(&tables, &n));
    ATOM_TRY_CLEAN(opt_completion_bash("atom", tables, n, &text));
    cli_print("%s", text);
cleanup:
    atom_free(text);
    atom_free(tables);
    return st;
}

const cli_command cli_completion = {&completion_options, completion_run};
