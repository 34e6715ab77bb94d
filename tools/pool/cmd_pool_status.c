/*
 * atom pool status: what a running member says of its pool. One idea: the member itself is asked,
 * over its local socket; nothing is guessed from files. Refuses to wait for a member that does not
 * answer.
 */
#include "tools/pool/cmd_pool_ask.h"
#include "tools/progress.h"

#include <math.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct status_values {
    bool json, watch;
    double seconds;
} status_values;

#define AT(member) .offset = offsetof(status_values, member)

/* clang-format off */
static const opt_spec specs[] = {
    PLAN_ROW_JSON(.help = "One JSON object on stdout."),
    {.name = "watch", .type = OPT_FLAG, AT(watch),
     .help = "Show it repeatedly until interrupted; with --json as one line each time."},
    {.name = "seconds", .type = OPT_NUMBER, AT(seconds), .fallback = "1", .min = 0.1, .max = 3600,
     .help = "With --watch: how often."},
};
/* clang-format on */

static const opt_command options = {
    .name = "pool status",
    .summary = "show members, version, samples and rounds of a running pool",
    .description = "Asks the member that runs in DIR (the output directory of atom pool create "
                   "or join).",
    .examples = "atom pool status run\n"
                "atom pool status run --watch\n"
                "atom pool status run --json | jq .members\n",
    .positional = "[DIR]",
    .positional_max = 1,
    OPT_TABLE(specs, status_values),
};

/* ---- for people ---- */

static const char *text_of(const json_t *o, const char *key)
{
    const char *text = json_string_value(json_object_get(o, key));
    return text ? text : "";
}

static double number_of(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

static bool flag_of(const json_t *o, const char *key)
{
    return json_is_true(json_object_get(o, key));
}

static const char *state_of(const json_t *m, bool paused)
{
    if (!flag_of(m, "up"))
        return "away";
    if (flag_of(m, "self") && paused)
        return "paused";
    if (flag_of(m, "on_roster"))
        return flag_of(m, "rests") ? "resting" : flag_of(m, "muted") ? "muted" : "member";
    return flag_of(m, "waiting") ? "waiting" : "linked";
}

/* paused: this host. */
static void show_members(const json_t *members, bool paused)
{
    size_t i;
    const json_t *m;
    cli_print("\n    %-10s %-16s %-8s %9s %13s %6s %8s  %s\n", "key", "name", "state", "version",
              "tokens", "share", "heard", "address");
    json_array_foreach(members, i, m)
    {
        const char *at = text_of(m, "address"), *port = strrchr(at, ':');
        const json_t *heard = json_object_get(m, "heard_s");
        bool self = flag_of(m, "self");
        cli_print("  %c %-10.8s %-16.16s %-8s %9.0f %13.0f %5.1f%% %8s  %s%s\n", self ? '*' : ' ',
                  text_of(m, "key"), text_of(m, "name"), state_of(m, paused),
                  number_of(m, "version"), number_of(m, "tokens"), 100 * number_of(m, "share"),
                  self                    ? ""
                  : json_is_number(heard) ? cli_duration(json_number_value(heard))
                                          : "never",
                  self                    ? "this host"
                  : flag_of(m, "relayed") ? "relayed"
                                          : at,
                  !self && port && strcmp(port, ":0") == 0 ? " (only dials)" : "");
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void show_rounds(const json_t *rounds)
{
    double took[64];
    size_t n = 0, i;
    const json_t *r;
    char when[32];
    json_array_foreach(rounds, i, r) if (number_of(r, "round_s") > 0 && n < 64) took[n++] =
        number_of(r, "round_s");
    if (json_array_size(rounds) == 0)
        return;
    r = json_array_get(rounds, 0);
    time_t at = (time_t)number_of(r, "time");
    struct tm local;
    strftime(when, sizeof when, "%H:%M:%S", localtime_r(&at, &local));
    cli_print("\nlast round: version %.0f at %s, %.0f of %.0f contributed", number_of(r, "version"),
              when, number_of(r, "contributors"), number_of(r, "roster"));
    if (n) {
        qsort(took, n, sizeof *took, by_value);
        cli_print("; rounds take %s (median of %zu)", cli_seconds(took[n / 2]), n);
    }
    cli_print("\n");
}

static void show_banned(const json_t *banned)
{
    size_t i;
    const json_t *b;
    json_array_foreach(banned, i, b)
    {
        const char *file = text_of(b, "evidence");
        cli_print("banned: %.8s: %s%s%s\n", text_of(b, "key"), text_of(b, "why"),
                  *file ? "; evidence: " : "", file);
    }
}

/* A member for people: the start of its key, and the name where it is here now. */
static void show_delegate(const json_t *members, const json_t *d)
{
    size_t i;
    const json_t *m;
    const char *name = "";
    char when[32];
    const time_t until = (time_t)number_of(d, "until");
    struct tm t;
    strftime(when, sizeof when, "%Y-%m-%d", gmtime_r(&until, &t));
    json_array_foreach(members, i, m) if (strcmp(text_of(m, "key"), text_of(d, "key")) == 0) name =
        text_of(m, "name");
    cli_print("delegate: %.8s%s%s%s, until %s\n", text_of(d, "key"), *name ? " (" : "", name,
              *name ? ")" : "", when);
}

/* At the owner and at a delegate. */
static void show_delegates(const json_t *s)
{
    size_t i;
    const json_t *d, *list = json_object_get(s, "delegates");
    json_array_foreach(list, i, d) show_delegate(json_object_get(s, "members"), d);
    if (flag_of(s, "owner") && json_is_array(list) && json_array_size(list) == 0 &&
        number_of(s, "roster") > 1)
        cli_print(
            "no delegates: without this host the pool ends after a month at the latest (atom pool "
            "delegate KEY lets a member admit others and renew admissions)\n");
}

/* What the manifest's settings mean, which the member passes on as a text. */
static void add_mode(json_t *s)
{
    const char *text = text_of(s, "settings");
    pool_settings settings;
    opt_parsed parsed;
    char said[POOL_SAID_BYTES];
    if (!*text || opt_defaults(&pool_options, &settings, &parsed) != ATOM_OK)
        return;
    if (opt_read_text(&pool_options, "settings", text, strlen(text), &settings, &parsed) ==
        ATOM_OK) {
        pool_settings_say(&settings, said);
        json_object_set_new(s, "mode", json_string(pool_settings_mode(&settings)));
        json_object_set_new(s, "mode_text", json_string(said));
    }
    opt_free(&pool_options, &settings);
}

/* What other members say of themselves there, and how long ago the newest of them said it. */
static void show_directory(const json_t *d)
{
    if (json_is_object(d))
        cli_print("%s, %s ago\n", text_of(d, "text"),
                  cli_duration(fmax(0, (double)time(NULL) - number_of(d, "time"))));
}

static void show(const json_t *s)
{
    const char *name = text_of(s, "name");
    double members = number_of(s, "roster");
    cli_print("%s%sversion %.0f, %s tokens certified, %.0f member%s\n", name, *name ? ": " : "",
              number_of(s, "version"), cli_count(number_of(s, "certified_tokens")), members,
              members == 1 ? "" : "s");
    if (*text_of(s, "mode"))
        cli_print("%s: %s\n", text_of(s, "mode"), text_of(s, "mode_text"));
    bool paused = strcmp(text_of(s, "wish"), "pause") == 0;
    cli_print("%s: %s\n", paused ? "paused" : text_of(s, "state"), text_of(s, "text"));
    show_directory(json_object_get(s, "directory"));
    show_members(json_object_get(s, "members"), paused);
    show_rounds(json_object_get(s, "rounds"));
    show_banned(json_object_get(s, "banned"));
    show_delegates(s);
    cli_print("%s out, %s in", cli_size((uint64_t)number_of(s, "bytes_out")),
              cli_size((uint64_t)number_of(s, "bytes_in")));
    const char *month = text_of(json_object_get(s, "month"), "text");
    if (*month)
        cli_print("; %s", month);
    double unanswered = number_of(s, "unanswered");
    cli_print("; up for %s; %.0f messages and connections of strangers refused",
              cli_duration(number_of(s, "up_s")), number_of(s, "faults"));
    if (unanswered > 0)
        cli_print("; %.0f question%s left unanswered because members ask too often", unanswered,
                  unanswered == 1 ? "" : "s");
    cli_print("\n");
}

static atom_status once(const status_values *v, const char *dir)
{
    json_t *s = NULL;
    ATOM_TRY(pool_ask(dir, json_pack("{s:s}", "do", "status"), &s));
    add_mode(s);
    if (v->json)
        return cli_print_json(s);
    if (v->watch && isatty(STDOUT_FILENO))
        cli_print("\033[H\033[2J");
    show(s);
    json_decref(s);
    return ATOM_OK;
}

static atom_status run(void *values, const opt_parsed *parsed)
{
    const status_values *v = values;
    const char *dir = parsed->n_positional ? parsed->positional[0] : ".";
    if (!v->watch && opt_given(&options, parsed, "seconds"))
        return atom_fail(ATOM_E_USAGE,
                         "--seconds works only with --watch; without it the pool is asked only "
                         "once");
    cli_signals_catch();
    atom_status st = once(v, dir);
    while (st == ATOM_OK && v->watch && !cli_signal()) {
        st = cli_flush();
        double until = atom_clock_seconds() + v->seconds;
        while (st == ATOM_OK && atom_clock_seconds() < until && !cli_signal())
            usleep(50000);
        if (st == ATOM_OK && !cli_signal())
            st = once(v, dir);
    }
    return st;
}

const cli_command cli_pool_status = {&options, run};
