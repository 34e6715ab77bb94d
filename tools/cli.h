/*
 * What the subcommands of the program share. A subcommand is an option table (its name, its keys,
 * its help) and a function that runs with the parsed values. Results go to stdout, everything else
 * to stderr; with --json, stdout is one JSON object on one line.
 *
 * Thread: the main thread only. Errors: statuses; atom.c prints the message once and exits with
 * atom_status_exit_code().
 */
#ifndef TOOLS_CLI_H
#define TOOLS_CLI_H

#include "atom/atom.h"
#include "atom/plan/rows.h"

#include <jansson.h>
#include <stdio.h>

typedef atom_status (*cli_run_fn)(void *values, const opt_parsed *parsed);

typedef struct cli_command {
    const opt_command *options;
    cli_run_fn run;
} cli_command;

extern const cli_command cli_doctor, cli_data_prepare, cli_data_inspect, cli_profile, cli_plan,
    cli_train, cli_eval, cli_generate, cli_export, cli_inspect, cli_bench, cli_pool_selftest,
    cli_pool_create, cli_pool_join, cli_pool_status, cli_pool_ticket, cli_pool_invite, cli_pool_ban,
    cli_pool_delegate, cli_pool_rotate, cli_pool_reset, cli_pool_leave, cli_pool_pause,
    cli_pool_resume, cli_pool_web, cli_pool_export, cli_pool_evidence, cli_host_run,
    cli_host_status, cli_host_stop, cli_version, cli_help, cli_completion;

/* The options of commands that have but --json. */
typedef struct cli_json {
    bool json;
} cli_json;
extern const opt_spec cli_json_row;
#define CLI_ONLY_JSON .specs = &cli_json_row, .n_specs = 1, .values_bytes = sizeof(cli_json)

/* All subcommands, in the order of --help. */
const cli_command *const *cli_commands(uint32_t *n);
/* Their option tables alone. Free with atom_free. */
ATOM_MUST atom_status cli_tables(const opt_command ***out, uint32_t *n);

/* printf to stdout. A write that fails is remembered and reported by cli_flush. */
void cli_print(const char *fmt, ...) ATOM_PRINTF(1, 2);
/* One object, one line; takes the reference. NULL means that there was no memory to make it. */
ATOM_MUST atom_status cli_print_json(json_t *object);
/* ATOM_E_RESOURCE on a full disk, ATOM_E_RUNTIME with an empty message when the reader of a
 * pipe has gone. */
ATOM_MUST atom_status cli_flush(void);

/* A JSON text that a library made, printed as it is, or saved to a file when path is not NULL. */
ATOM_MUST atom_status cli_put_text(const char *text, const char *path);

/* LoRA as 'atom train' takes it (config.c), in option tables as CLI_LORA_ROWS(member) of the
 * values. */
#define CLI_LORA_ROWS(member)                                                                      \
    PLAN_ROWS_LORA(member,                                                                         \
                   "Rank of LoRA adapters, as in 'atom train'. auto: all of the model is "         \
                   "trained.",                                                                     \
                   "Linear layers that get an adapter. all-linear: all but the head.")

/*
 * The fused graph of a model as users name it (a preset, a directory, a config.json).
 * sequence -1: the model's longest.
 */
ATOM_MUST atom_status cli_graph(const char *model, atom_dtype dtype, int64_t micro_batch,
                                int64_t sequence, const file_lora_keys *lora, graph **out);

/*
 * A text [bytes] with a 0 behind it, from standard input: is it UTF-8 without a NUL? ATOM_E_FORMAT says at
 * which byte it is not. first: it may begin with a byte order mark, which is taken off. where: for the
 * message, "standard input, line 3".
 */
ATOM_MUST atom_status cli_take_text(char *text, size_t bytes, bool first, const char *where);

/* A note about what was asked for and does not happen, or happens otherwise: --quiet does not hide it. */
bool cli_is_warning(const char *text);

/* A size for people in one of a few static buffers: good for the arguments of one call. */
const char *cli_size(uint64_t bytes);
/* "1.2 s", "340 ms", "12 us", like cli_size. */
const char *cli_seconds(double seconds);
/* How long something lasts or has lasted: "42 s", "12 min", "5 h 20 min", "9 days". */
const char *cli_duration(double seconds);
/* 1234567 as "1.23 M", like cli_size. */
const char *cli_count(double count);

/* A JSON number; null where it is not finite (JSON has no NaN). */
json_t *cli_real(double value);

#endif
