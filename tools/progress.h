/*
 * What a person sees while work goes on, on stderr: one line that is redrawn on a terminal, plain
 * lines elsewhere; and what happens on Ctrl-C.
 */
#ifndef TOOLS_PROGRESS_H
#define TOOLS_PROGRESS_H

#include "tools/cli.h"

/* A plan_progress_fn: "what: done of total", on a terminal redrawn, elsewhere a line of its own once ten
 * seconds have passed since the last. ctx is not used. */
void cli_progress(void *ctx, const char *what, uint32_t done, uint32_t total);
/* Clears the redrawn line, if there is one. Call before printing anything else. */
void cli_progress_end(void);
/* Draws text as the redrawn line; at most 10 times a second unless `now`. */
void cli_progress_draw(const char *text, bool now);
/* Is stderr a terminal that can redraw? */
bool cli_progress_live(void);

/*
 * From now on the first SIGINT, SIGTERM or SIGHUP (unless that was ignored) is only remembered; a second
 * one, other than SIGHUP, ends the process at once. cli_signal is the signal that came, or 0.
 */
void cli_signals_catch(void);
int cli_signal(void);

#endif
