/*
 * Owns the redrawn line and the signals. One idea: a line that is redrawn belongs to a terminal;
 * logs of batch jobs get whole lines only. Refuses to print results.
 */
#include "tools/progress.h"

#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static bool drawn;
static uint64_t drawn_ns, said_ns;
static volatile sig_atomic_t caught;

bool cli_progress_live(void)
{
    const char *term = getenv("TERM");
    return isatty(2) && (!term || strcmp(term, "dumb") != 0);
}

static int columns(void)
{
    struct winsize size;
    return ioctl(2, TIOCGWINSZ, &size) == 0 && size.ws_col > 20 ? size.ws_col - 1 : 99;
}

void cli_progress_draw(const char *text, bool now)
{
    uint64_t at = atom_clock_ns();
    if (!cli_progress_live() || (!now && at - drawn_ns < 100000000u))
        return;
    fprintf(stderr, "\r\033[K%.*s", columns(), text);
    drawn_ns = at;
    drawn = true;
}

void cli_progress_end(void)
{
    if (drawn)
        fputs("\r\033[K", stderr);
    drawn = false;
}

/* For logs: a line now and then, and none about what is soon done. */
static void say_slowly(const char *text, bool first)
{
    static const uint64_t EVERY_NS = 10000000000u;
    uint64_t at = atom_clock_ns();
    if (!first && said_ns && at - said_ns < EVERY_NS)
        return;
    if (!first && said_ns)
        atom_log(ATOM_LOG_INFO, "%s", text);
    said_ns = at;
}

void cli_progress(void *ctx, const char *what, uint32_t done, uint32_t total)
{
    char text[256];
    (void)ctx;
    snprintf(text, sizeof text, "%s: %u of %u", what, done, total);
    if (!cli_progress_live())
        say_slowly(text, done == 0);
    cli_progress_draw(text, done == total);
}

static void on_signal(int number)
{
    if (number == SIGHUP && caught)
        return; /* a terminal that goes sends it twice: the kernel does, and the shell */
    if (caught)
        _exit(128 + number);
    caught = number;
}

void cli_signals_catch(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART}, before;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    if (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN) /* else: nohup */
        sigaction(SIGHUP, &action, NULL);
}

int cli_signal(void)
{
    return caught;
}
