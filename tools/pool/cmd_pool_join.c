/*
 * atom pool join: takes part in a pool, by its ticket or by what is left from last time. One idea:
 * the library joins, this file says what was asked for. Refuses decisions.
 */
#include "tools/pool/cmd_pool_train.h"

#include <string.h>

typedef struct join_values {
    char *data, *model, *output_dir, *device;
    char *device_memory, *host_memory, *optimizer_state, *store_dir, *threads, *moments_dtype;
    int64_t max_steps;
    double patience;
    bool json, quiet, own_data;
    pool_host host;
} join_values;

#define AT(member) .offset = offsetof(join_values, member)

/* clang-format off */
static const opt_spec specs[] = {
    {.name = "data", .type = OPT_TEXT, AT(data), .value = "DIR",
     .help = "The pool's data set, where this host has it already: it is used from there. Default: "
             "fetched from the members into DIR/data. In a pool whose members bring their own: a "
             "directory made by `atom data prepare` with the pool's tokenizer, needed the first "
             "time."},
    {.name = "own_data", .type = OPT_FLAG, AT(own_data),
     .help = "--data is other data than the pool's, in a pool that allows it."},
    {.name = "model", .type = OPT_TEXT, AT(model), .value = "DIR|FILE",
     .help = "In a pool that trains adapters (LoRA): a copy of the model that they are for. Needed "
             "the first time."},
    {.name = "output_dir", .type = OPT_TEXT, AT(output_dir), .fallback = "pool-run", .value = "DIR",
     .letter = 'o', .help = "Checkpoints, metrics, and in DIR/pool the membership."},
    {.name = "device", .type = OPT_TEXT, AT(device), .value = "auto|cpu|cuda[:N]",
     .help = "What computes."},
    {.name = "device_memory", .type = OPT_TEXT, AT(device_memory), .value = "SIZE",
     .help = "Cap on the device's memory; less than the model needs means swapping."},
    {.name = "host_memory", .type = OPT_TEXT, AT(host_memory), .value = "SIZE",
     .help = "Cap on this host's memory, the pool's share of it included."},
    {.name = "optimizer_state", .type = OPT_TEXT, AT(optimizer_state), .value = "auto|memory|disk",
     .help = "Where master weights and Adam's moments live. auto: in memory where they fit, else on "
             "disk. With sync: gradients they stay in memory."},
    {.name = "store_dir", .type = OPT_TEXT, AT(store_dir), .value = "DIR",
     .help = "Directory for that state on disk; a fast local drive. Default: DIR."},
    {.name = "moments_dtype", .type = OPT_TEXT, AT(moments_dtype), .value = "fp32|bf16",
     .help = "What Adam's moments are kept in on this host. bf16: 4 bytes less for each parameter. "
             "Not with sync: gradients."},
    {.name = "threads", .type = OPT_TEXT, AT(threads), .value = "N", .help = "CPU threads."},
    {.name = "max_steps", .type = OPT_INT, AT(max_steps), .min = 0, .max = 1e12,
     .help = "Leave after this many steps; 0: when the pool is done."},
    {.name = "patience", .type = OPT_NUMBER, AT(patience), .fallback = "0", .min = 0, .max = 1e9,
     .value = "SECONDS", .help = "Give up when nobody answers for so long; 0: never."},
    PLAN_ROW_JSON(.help = "One JSON object on stdout."),
    {.name = "quiet", .type = OPT_FLAG, AT(quiet), .help = "No progress."},
    POOL_HOST_NAME_SPEC(join_values, host, "name"),
    POOL_HOST_SPECS(join_values, host),
};
/* clang-format on */

static const opt_command options = {
    .name = "pool join",
    .summary = "train along in a pool",
    .description =
        "With a ticket: joins. It is a secret: give it by a file, or by - on the standard input; "
        "on "
        "the command line (atom1-...) everybody on this machine can see it. Without: comes back to "
        "the pool of DIR. Every member draws its "
        "samples in an order of its own, keyed by its identity. Weights and data come from the "
        "members. What is fetched can be resumed; disk and memory are checked before.",
    .examples = "# paste the ticket when it asks; nobody else on this machine sees it\n"
                "atom pool join - -o run\n"
                "# the ticket is in a file that only you can read (chmod 600)\n"
                "atom pool join ticket.txt -o run\n"
                "# with the data set from here\n"
                "atom pool join ticket.txt --data tokens -o run\n"
                "# come back after a signal, a crash or a reboot\n"
                "atom pool join -o run\n",
    .positional = "[-|FILE|TICKET]",
    .positional_max = 1,
    OPT_TABLE(specs, join_values),
};

static atom_status run(void *values, const opt_parsed *parsed)
{
    join_values *v = values;
    const pool_option train[] = {{"data", v->data},
                                 {"model", v->model},
                                 {"device", v->device},
                                 {"device_memory", v->device_memory},
                                 {"host_memory", v->host_memory},
                                 {"optimizer_state", v->optimizer_state},
                                 {"store_dir", v->store_dir},
                                 {"threads", v->threads},
                                 {"moments_dtype", v->moments_dtype}};
    pool_show show = {
        .dir = v->output_dir, .json = v->json, .quiet = v->quiet, .max_steps = v->max_steps};
    const pool_hooks hooks = pool_show_hooks(&show);
    const pool_run_config config = {.dir = show.dir,
                                    .host = &v->host,
                                    .max_steps = v->max_steps,
                                    .train = train,
                                    .n_train = sizeof train / sizeof *train,
                                    .hooks = &hooks};
    char ticket[GSP_TICKET_TEXT_BYTES] = "";
    const pool_join join = {.ticket = parsed->n_positional ? ticket : NULL,
                            .patience_s = v->patience,
                            .own_data = v->own_data};
    atom_status st;
    cli_signals_catch();
    ATOM_TRY(pool_host_recall(show.dir, &options, parsed, &v->host));
    if (join.ticket)
        ATOM_TRY(gsp_ticket_read(parsed->positional[0], ticket));
    ATOM_TRY_CLEAN(pool_run_join(&config, &join, &show.run));
    cli_progress_end();
    ATOM_TRY_CLEAN(pool_show_train(&show));
cleanup:
    explicit_bzero(ticket, sizeof ticket);
    pool_show_close(&show);
    return st;
}

const cli_command cli_pool_join = {&options, run};
