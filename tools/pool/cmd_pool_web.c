/*
 * atom pool web: the page of cmd_pool_page.h for the pool in a directory, until it is interrupted.
 * Off unless somebody starts it; on this host only unless asked otherwise.
 */
#include "tools/cli.h"
#include "tools/pool/cmd_pool_page.h"

#include "atom/atom.h"

#include <signal.h>
#include <stddef.h>
#include <string.h>

typedef struct web_values {
    char *listen;
} web_values;

#define AT(member) .offset = offsetof(web_values, member)

/* clang-format off */
static const opt_spec specs[] = {
    {.name = "listen", .type = OPT_TEXT, AT(listen), .fallback = "127.0.0.1:4480",
     .value = "ADDRESS:PORT",
     .help = "The address to serve at. Anybody who can reach it can look, but not change "
             "anything."},
};
/* clang-format on */

static const opt_command options = {
    .name = "pool web",
    .summary = "show a pool as a local web page, and offer its numbers to Prometheus",
    .description =
        "Serves a page that shows the loss against the pool's certified tokens, members over "
        "time, rounds, links and events. /metrics is for Prometheus, and /status.json is what "
        "`atom pool status --json` prints, but without mode and mode_text. The numbers come from the `atom pool create` or "
        "`join` that runs in DIR; it may stop and start again meanwhile. Stop the page with "
        "Ctrl-C.",
    .examples = "atom pool web run\n"
                "atom pool web run --listen 127.0.0.1:9000\n"
                "# on your laptop, for a pool on a remote machine\n"
                "ssh -L 4480:127.0.0.1:4480 box atom pool web run\n",
    .positional = "[DIR]",
    .positional_max = 1,
    OPT_TABLE(specs, web_values),
};

static atom_status run(void *values, const opt_parsed *parsed)
{
    const web_values *v = values;
    atom_status st = ATOM_OK;
    sigset_t ends;
    int number;
    pool_web *web = NULL;
    const char *directory = parsed->n_positional ? parsed->positional[0] : ".";
    char *pool = atom_path_join(directory, "pool");
    if (!pool)
        return atom_fail_memory("a path", strlen(directory));
    sigemptyset(&ends);
    ATOM_TRY_CLEAN(gsp_pool_check_rights(pool));
    if (!gsp_pool_exists(pool))
        ATOM_TRY_CLEAN(atom_fail(
            ATOM_E_USAGE, "%s holds no pool; name the output directory of pool create or join",
            directory));
    /* Blocked before there is a page, and in its thread: whenever one comes, it is waited for below. */
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    sigprocmask(SIG_BLOCK, &ends, NULL);
    ATOM_TRY_CLEAN(pool_web_open(pool, directory, v->listen, &web));
    cli_print("%s\n", pool_web_url(web));
    ATOM_TRY_CLEAN(cli_flush());
    sigwait(&ends, &number);
    sigprocmask(SIG_UNBLOCK, &ends, NULL); /* from here on one more ends it at once */
cleanup:
    pool_web_close(&web);
    atom_free(pool);
    return st;
}

const cli_command cli_pool_web = {&options, run};
