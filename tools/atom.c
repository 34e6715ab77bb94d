/*
 * The program: finds the subcommand, parses its options, runs it, prints what went wrong once, and
 * exits with the code that says which kind of wrong it was. Refuses to know what any command does.
 */
#include "tools/progress.h"

#include <signal.h>
#include <string.h>

static const cli_command *const commands[] = {
    &cli_doctor,      &cli_data_prepare,  &cli_data_inspect, &cli_profile,       &cli_plan,
    &cli_train,       &cli_eval,          &cli_generate,     &cli_export,        &cli_inspect,
    &cli_bench,       &cli_pool_selftest, &cli_pool_create,  &cli_pool_join,     &cli_pool_status,
    &cli_pool_ticket, &cli_pool_invite,   &cli_pool_ban,     &cli_pool_delegate, &cli_pool_rotate,
    &cli_pool_reset,  &cli_pool_leave,    &cli_pool_pause,   &cli_pool_resume,   &cli_pool_web,
    &cli_pool_export, &cli_pool_evidence, &cli_host_run,     &cli_host_status,   &cli_host_stop,
    &cli_version,     &cli_help,          &cli_completion,
};
enum { COMMANDS_N = sizeof commands / sizeof commands[0] };

const cli_command *const *cli_commands(uint32_t *n)
{
    *n = COMMANDS_N;
    return commands;
}

atom_status cli_tables(const opt_command ***out, uint32_t *n)
{
    const opt_command **tables = atom_alloc(COMMANDS_N, sizeof(void *));
    if (!tables)
        return atom_fail_memory("the list of commands", COMMANDS_N * sizeof(void *));
    for (uint32_t i = 0; i < COMMANDS_N; i++)
        tables[i] = commands[i]->options;
    *out = tables;
    *n = COMMANDS_N;
    return ATOM_OK;
}

static bool is_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

static atom_status run_command(const cli_command *command, int argc, char **argv)
{
    opt_parsed parsed;
    char *help = NULL;
    void *values = atom_alloc(1, command->options->values_bytes + 1);
    atom_status st = ATOM_OK;
    if (!values)
        return atom_fail_memory("options", command->options->values_bytes);
    ATOM_TRY_CLEAN(opt_parse(command->options, argc, argv, values, &parsed));
    if (parsed.help) {
        ATOM_TRY_CLEAN(opt_help("atom", command->options, &help));
        cli_print("%s", help);
    } else {
        ATOM_TRY_CLEAN(command->run(values, &parsed));
    }
cleanup:
    atom_free(help);
    opt_free(command->options, values);
    atom_free(values);
    return st;
}

static atom_status dispatch(int argc, char **argv)
{
    static char help_word[] = "help";
    static char version_word[] = "version";
    const opt_command **tables = NULL;
    const opt_command *found = NULL;
    uint32_t n = 0;
    int used = 0;
    if (argc > 0 && strcmp(argv[0], "--version") == 0)
        argv[0] = version_word;
    if (argc > 0 && is_help(argv[0]))
        argv[0] = help_word;
    if (argc == 2 && is_help(argv[1])) { /* "atom data --help" */
        char *words[] = {argv[0]};
        uint32_t count = 0;
        for (uint32_t i = 0; i < COMMANDS_N; i++) {
            size_t bytes = strlen(argv[0]);
            const char *name = commands[i]->options->name;
            count += strncmp(name, argv[0], bytes) == 0 && name[bytes] == ' ';
        }
        if (count)
            return run_command(&cli_help, 1, words);
    }
    atom_status st = ATOM_OK;
    ATOM_TRY(cli_tables(&tables, &n));
    st = opt_find_command(tables, n, argc, argv, &found, &used);
    atom_free(tables);
    for (uint32_t i = 0; st == ATOM_OK && i < COMMANDS_N; i++) {
        if (commands[i]->options == found)
            return run_command(commands[i], argc - used, argv + used);
    }
    return st;
}

int main(int argc, char **argv)
{
    extern char **environ;
    signal(SIGPIPE, SIG_IGN); /* a reader that went away is a failed write, not a death */
    signal(SIGXFSZ, SIG_IGN); /* so is a file that may not grow */
    atom_environment_check(environ);
    atom_status st = dispatch(argc - 1, argv + 1);
    bool told = st == ATOM_OK || st == ATOM_E_INTERRUPTED;
    if (!told)
        atom_log(ATOM_LOG_ERROR, "%s",
                 *atom_fail_message() ? atom_fail_message()
                                      : "failed without a reason; this is a bug in atom");
    atom_status written = cli_flush();
    if (st == ATOM_OK && written != ATOM_OK) {
        st = written;
        if (*atom_fail_message()) /* empty: the reader of a pipe has gone, which is its right */
            atom_log(ATOM_LOG_ERROR, "%s", atom_fail_message());
    }
    if (st == ATOM_E_INTERRUPTED && cli_signal())
        return 128 + cli_signal();
    return atom_status_exit_code(st);
}
