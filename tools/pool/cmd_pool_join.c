/*
 * atom pool join: takes part in a pool, by its ticket or by what is left from last time. One idea:
 * the library joins, this file says what was asked for. Refuses decisions.
 */
#include "tools/pool/cmd_pool_ask.h"
#include "tools/pool/cmd_pool_train.h"

#include <string.h>

typedef struct join_values {
    char *data, *model, *output_dir, *device, *devices;
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
     .help = "The pool's data set, if this host already has it; it is used in place. Default: "
             "download it from the members into DIR/data. In a pool whose members bring their "
             "own data: a directory made by `atom data prepare` with the pool's tokenizer; "
             "needed the first time."},
    {.name = "own_data", .type = OPT_FLAG, AT(own_data),
     .help = "Allow --data to name other data than the pool's, if the pool permits that."},
    {.name = "model", .type = OPT_TEXT, AT(model), .value = "DIR|FILE",
     .help = "In a pool that trains adapters (LoRA): a copy of the model they are for. Needed "
             "the first time."},
    {.name = "output_dir", .type = OPT_TEXT, AT(output_dir), .fallback = "pool-run", .value = "DIR",
     .letter = 'o', .help = "Where checkpoints, metrics and the membership (in DIR/pool) are "
                            "written."},
    {.name = "device", .type = OPT_TEXT, AT(device), .value = "auto|cpu|cuda[:N]",
     .help = "What computes."},
    {.name = "devices", .type = OPT_TEXT, AT(devices), .value = "N",
     .help = "Number of devices of one kind that train together as this member: cuda:N and the "
             "next ones. Remembered for this member alone; it may be another number each time, "
             "and the result is that of one device. On the CPU it needs --device-memory."},
    {.name = "device_memory", .type = OPT_TEXT, AT(device_memory), .value = "SIZE",
     .help = "Limit for memory on the device. If it is less than the model needs, the model is "
             "swapped."},
    {.name = "host_memory", .type = OPT_TEXT, AT(host_memory), .value = "SIZE",
     .help = "Limit for this host's memory, including what the pool needs."},
    {.name = "optimizer_state", .type = OPT_TEXT, AT(optimizer_state), .value = "auto|memory|disk",
     .help = "Where master weights and Adam's moments are kept. auto: in memory if they fit, "
             "else on disk. With dense_steps they stay in memory."},
    {.name = "store_dir", .type = OPT_TEXT, AT(store_dir), .value = "DIR",
     .help = "Directory for that state on disk, best on a fast local drive. Default: DIR."},
    {.name = "moments_dtype", .type = OPT_TEXT, AT(moments_dtype), .value = "fp32|bf16",
     .help = "Type of Adam's moments on this host. bf16 saves 4 bytes per parameter. Not with "
             "sync: gradients or dense_steps."},
    {.name = "threads", .type = OPT_TEXT, AT(threads), .value = "N", .help = "CPU threads."},
    {.name = "max_steps", .type = OPT_INT, AT(max_steps), .min = 0, .max = 1e12,
     .help = "Leave after this many steps; 0: when the pool is done."},
    {.name = "patience", .type = OPT_NUMBER, AT(patience), .fallback = "0", .min = 0, .max = 1e9,
     .value = "SECONDS", .help = "Give up if nobody answers for this long. 0: never."},
    PLAN_ROW_JSON(.help = "One JSON object on stdout."),
    {.name = "quiet", .type = OPT_FLAG, AT(quiet), .help = "No progress."},
    POOL_HOST_NAME_SPEC(join_values, host, "name"),
    POOL_HOST_SPECS(join_values, host),
};
/* clang-format on */

static const opt_command options = {
    .name = "pool join",
    .summary = "join a pool, or come back to it, and train",
    .description =
        "With a ticket, joins its pool; without, comes back to the pool of DIR, or says that its "
        "run has ended. The ticket is a "
        "secret: put it into a file, or give - and paste it on standard input. If you type it on "
        "the command line (atom1-...), everybody on this machine can see it. Weights and data "
        "are downloaded from the members; an interrupted download continues, and disk and memory "
        "are checked before it begins. Every member uses the samples in its own order, which "
        "follows from its identity.",
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

/* Nobody may be left to come back to. */
static atom_status say_done(const join_values *v, const pool_run_done *d)
{
    if (v->json)
        return cli_print_json(
            json_pack("{s:b, s:s, s:s?, s:I, s:o, s:I, s:I}", "done", 1, "output_dir",
                      v->output_dir, "checkpoint", d->checkpoint[0] ? d->checkpoint : NULL,
                      "version", (json_int_t)d->version, "alone_from",
                      d->alone ? json_integer((json_int_t)d->alone_from) : json_null(), "pool_step",
                      (json_int_t)d->step, "pool_steps", (json_int_t)d->steps));
    cli_print(
        "this run has ended: the %s made step %llu of %llu, so there is nothing left to train\n",
        d->alone ? "member" : "pool", (unsigned long long)d->step, (unsigned long long)d->steps);
    if (d->alone)
        cli_print(POOL_ALONE "\n", (unsigned long long)d->alone_from);
    cli_print("to get the %s model: atom pool export %s -o model\n",
              d->alone ? "member's" : "pool's", v->output_dir);
    if (d->checkpoint[0])
        cli_print("this member's last checkpoint: %s\n", d->checkpoint);
    return ATOM_OK;
}

static atom_status run(void *values, const opt_parsed *parsed)
{
    join_values *v = values;
    const pool_option train[] = {{"data", v->data},
                                 {"model", v->model},
                                 {"device", v->device},
                                 {"devices", v->devices},
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
    pool_run_done done;
    atom_status st;
    cli_signals_catch();
    if (!join.ticket && pool_run_was_done(show.dir, &done))
        return say_done(v, &done);
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
