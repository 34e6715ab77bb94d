/*
 * Owns hooks that do nothing. One idea: a caller need not ask whether a hook is there.
 */
#include "atom/pool/hooks.h"

#include <stdarg.h>
#include <stdio.h>

void pool_note(const pool_hooks *hooks, const char *fmt, ...)
{
    char text[600];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    hooks->note(hooks->ctx, text);
}

static void no_note(void *ctx, const char *text)
{
    (void)ctx;
    (void)text;
}

static void no_report(void *ctx, const train_report *report)
{
    (void)ctx;
    (void)report;
}

static bool no_watch(void *ctx, const gsp_pool_progress *progress)
{
    (void)ctx;
    (void)progress;
    return true;
}

static bool no_stop(void *ctx)
{
    (void)ctx;
    return false;
}

static void no_phase(void *ctx, pool_phase phase)
{
    (void)ctx;
    (void)phase;
}

static void no_progress(void *ctx, const char *what, uint32_t done, uint32_t total)
{
    (void)ctx;
    (void)what;
    (void)done;
    (void)total;
}

pool_hooks pool_hooks_whole(const pool_hooks *h)
{
    static const pool_hooks none = {0};
    h = h ? h : &none;
    return (pool_hooks){.ctx = h->ctx,
                        .note = h->note ? h->note : no_note,
                        .progress = h->progress ? h->progress : no_progress,
                        .report = h->report ? h->report : no_report,
                        .watch = h->watch ? h->watch : no_watch,
                        .stop = h->stop ? h->stop : no_stop,
                        .phase = h->phase ? h->phase : no_phase};
}
