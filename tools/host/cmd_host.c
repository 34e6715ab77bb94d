/*
 * atom host: several pools on one box. One idea: the library takes turns, this file shows them.
 * Refuses decisions.
 */
#include "tools/pool/notify.h"
#include "tools/progress.h"

#include <string.h>

typedef struct run_values {
    bool quiet;
} run_values;

/* clang-format off */
static const opt_spec run_specs[] = {
    {.name = "quiet", .type = OPT_FLAG, .offset = offsetof(run_values, quiet),
     .help = "Do not show the progress of the pool that computes."},
};
/* clang-format on */

static const char TURNS[] =
    "The pools take turns: one computes at a time, and the next is always the one that has "
    "computed least for its share. A turn ends after a version that this box contributed to. The "
    "box then says goodbye to that pool, so that nobody waits for it, and comes back in the next "
    "turn as the same member. The settings in each membership's own host.yml (name, addresses, "
    "limits) still apply. A pool that fails is tried again after 30 s, and after further "
    "failures it waits longer; the others compute meanwhile. A pool that is done leaves its "
    "share to the others.\n"
    "\n"
    "FILE, pools.yml, lists the pools; paths are relative to it:\n"
    "\n"
    "    slice_seconds: auto       # length of a turn; auto: 10 min, or 20 times what a switch "
    "costs\n"
    "    hours: 22:00-07:00        # when this box computes; default: always\n"
    "    pools:\n"
    "      - dir: friends          # the directory of `atom pool join -o` or `atom pool create "
    "-o`\n"
    "        share: 2              # default 1\n"
    "      - dir: cats\n"
    "        ticket: cats.txt      # used to join if dir holds no membership yet\n"
    "        hours: 00:00-06:00    # when this pool may compute\n"
    "        name: meow            # default: the last part of dir\n"
    "        devices: 2            # that compute for this pool; default: as its membership "
    "remembers\n"
    "\n"
    "How much each pool has computed is remembered in `host-state` beside FILE.";

static const opt_command run_options = {
    .name = "host run",
    .summary = "take part in several pools with one box, each with its share of the time",
    .description = TURNS,
    .examples = "# uses pools.yml in this directory\n"
                "atom host run\n"
                "atom host run box/pools.yml\n"
                "# as a service: tools/atom-host@.service\n",
    .positional = "[DIR|FILE]",
    .positional_max = 1,
    OPT_TABLE(run_specs, run_values),
};

/* ---- run ---- */

static void on_note(void *ctx, const char *text)
{
    (void)ctx;
    atom_log(ATOM_LOG_INFO, "%s", text);
}

static void on_log(void *ctx, const char *pool, const char *line)
{
    (void)ctx;
    fprintf(stderr, "[%s] %s\n", pool, line);
}

static void on_ready(void *ctx, const char *status)
{
    char words[256];
    (void)ctx;
    snprintf(words, sizeof words, "READY=1\nSTATUS=%s", status);
    notify_manager(words);
}

static bool on_stop(void *ctx)
{
    (void)ctx;
    return cli_signal() != 0;
}

static atom_status run(void *values, const opt_parsed *parsed)
{
    const run_values *v = values;
    const host_hooks hooks = {.note = on_note, .log = on_log, .ready = on_ready, .stop = on_stop};
    char *file = host_file_of(parsed->n_positional ? parsed->positional[0] : NULL);
    if (!file)
        return atom_fail_memory("a path", 0);
    const host_config config = {
        .file = file, .program = "/proc/self/exe", .hooks = &hooks, .quiet = v->quiet};
    cli_signals_catch();
    atom_status st = host_run(&config);
    atom_free(file);
    return st;
}

/* ---- status and stop ---- */

static atom_status ask(const opt_parsed *parsed, const char *request, json_t **answer)
{
    char *file = host_file_of(parsed->n_positional ? parsed->positional[0] : NULL), *text = NULL;
    char *state = file ? host_state_of(file) : NULL;
    atom_status st;
    if (!state)
        ATOM_TRY_CLEAN(atom_fail_memory("a path", 0));
    if (!atom_path_is_dir(state))
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_USAGE, "atom host never ran with %s", file));
    st = gsp_control_ask(state, request, 15, &text);
    if (st == ATOM_E_RUNTIME)
        ATOM_TRY_CLEAN(atom_fail(
            st, "no atom host that runs with %s answers; atom host run %s starts one", file, file));
    ATOM_TRY_CLEAN(st);
    *answer = json_loads(text, 0, NULL);
    if (!json_is_true(json_object_get(*answer, "ok"))) {
        json_decref(*answer);
        st = atom_fail(ATOM_E_RUNTIME, "%s: the answer cannot be read", state);
    }
cleanup:
    atom_free(file);
    atom_free(state);
    atom_free(text);
    return st;
}

static const char *text_of(const json_t *o, const char *key)
{
    const char *text = json_string_value(json_object_get(o, key));
    return text ? text : "";
}

static double number_of(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

static void show_pool(const json_t *p, bool now)
{
    const char *text = text_of(p, "text");
    double retry_s = number_of(p, "retry_s"), version = number_of(p, "version");
    cli_print("%c %-16s %5.4g %6.1f%% %6.1f%% %12s  %s", now ? '*' : ' ', text_of(p, "name"),
              number_of(p, "share"), 100 * number_of(p, "due"), 100 * number_of(p, "got"),
              cli_duration(number_of(p, "computed_s")), text_of(p, "state"));
    if (retry_s >= 1)
        cli_print(" for %s", cli_duration(retry_s));
    if (version > 0)
        cli_print("; version %.0f", version);
    cli_print("%s%s\n", *text ? "; " : "", text);
}

static void show(const json_t *s)
{
    const char *running = text_of(s, "running");
    const json_t *pools = json_object_get(s, "pools"), *p;
    size_t i;
    double cost = 0, turn = 0;
    cli_print("%s%s%s; up for %s, %.0f turns, %.0f failures\n\n", text_of(s, "state"),
              *running ? " " : "", running, cli_duration(number_of(s, "up_s")),
              number_of(s, "turns"), number_of(s, "failures"));
    cli_print("  %-16s %5s %7s %7s %12s  %s\n", "pool", "share", "due", "got", "computed", "state");
    json_array_foreach(pools, i, p)
    {
        show_pool(p, strcmp(text_of(p, "name"), running) == 0);
        cost = number_of(p, "switch_s") > cost ? number_of(p, "switch_s") : cost;
        turn = number_of(p, "turn_s") > turn ? number_of(p, "turn_s") : turn;
    }
    cli_print("\n"
              "a turn takes at least %s",
              cli_duration(turn));
    if (cost > 0)
        cli_print("; switching took up to %s here, %.1f %% of that", cli_seconds(cost),
                  100 * cost / turn);
    cli_print("\n");
}

static const opt_command status_options = {
    .name = "host status",
    .summary = "show the pools of a box: whose turn it is, and how much time each got",
    .description =
        "Asks the atom host that runs with FILE. `due` is each pool's part according to the "
        "shares, `got` its part of what was really computed since the beginning.",
    .examples = "atom host status\natom host status box/pools.yml --json\n",
    .positional = "[DIR|FILE]",
    .positional_max = 1,
    CLI_ONLY_JSON,
};

static atom_status status(void *values, const opt_parsed *parsed)
{
    const cli_json *v = values;
    json_t *s = NULL;
    ATOM_TRY(ask(parsed, "{\"do\":\"status\"}", &s));
    if (v->json)
        return cli_print_json(s);
    show(s);
    json_decref(s);
    return ATOM_OK;
}

static const opt_command stop_options = {
    .name = "host stop",
    .summary = "stop atom host: the pool whose turn it is saves, and no other starts",
    .examples = "atom host stop\n",
    .positional = "[DIR|FILE]",
    .positional_max = 1,
    CLI_ONLY_JSON,
};

static atom_status stop(void *values, const opt_parsed *parsed)
{
    const cli_json *v = values;
    json_t *s = NULL;
    ATOM_TRY(ask(parsed, "{\"do\":\"stop\"}", &s));
    if (v->json)
        return cli_print_json(s);
    json_decref(s);
    cli_print("stopping: the pool that computes finishes its step and saves\n");
    return ATOM_OK;
}

const cli_command cli_host_run = {&run_options, run};
const cli_command cli_host_status = {&status_options, status};
const cli_command cli_host_stop = {&stop_options, stop};
