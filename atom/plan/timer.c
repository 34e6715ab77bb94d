/*
 * Owns repeated timing. One idea: on a machine that has nothing else to do, a call takes the same time
 * again and again, so medians far above the fastest runs, a call that takes longer at the end than it
 * did at the beginning, or more work than cores mean that rates are not the machine's own. Refuses to
 * correct what it saw: a busy machine is measured again.
 */
#include "atom/plan/timer.h"

#include "atom/base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { RUNS_MIN = 3, RUNS_MAX = 15 };
static const double SECONDS_ALONE = 1.0; /* what takes longer is run once */
static const double TELLING = 0.02;      /* medians of less than that in all say nothing */
/* Beyond these it was busy. */
static const double SPREAD = 1.25, RATE_SPREAD = 1.3, DRIFT = 1.3, LOAD = 1.5;

static double now(const plan_timer *t)
{
    return t->machine->seconds ? t->machine->seconds(t->machine->ctx) : atom_clock_seconds();
}

/* Tasks that want to run, for each core there is. */
static double load_of(const plan_machine *m)
{
    double one = 0;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (m->load)
        return m->load(m->ctx);
    return cores > 0 && getloadavg(&one, 1) == 1 ? one / (double)cores : 0;
}

plan_timer plan_timer_begin(const plan_machine *machine, double call_seconds)
{
    return (plan_timer){.machine = machine, .call_seconds = call_seconds, .load = load_of(machine)};
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

enum { STATES_MAX = 2 };

/* One run in a state. */
static double time_run(const plan_timer *t, void (*run)(void *arg), void (*before)(void *arg),
                       void *arg)
{
    if (before)
        before(arg);
    double start = now(t);
    run(arg);
    return now(t) - start;
}

/* Medians in n states, by turns. */
static void time_states(plan_timer *t, void (*run)(void *arg), void (*const before[])(void *arg),
                        int n_states, void *arg, double seconds[])
{
    double times[STATES_MAX][RUNS_MAX], begin = now(t);
    int n = 0;
    run(arg); /* touch, warm up, create primitives */
    double first = now(t) - begin;
    for (int s = 0; s < n_states; s++)
        seconds[s] = first;
    if (first > SECONDS_ALONE)
        return; /* warming up is no matter then, and a run of hours is not begun by minutes */
    while (n < RUNS_MAX && (n < RUNS_MIN || now(t) - begin < n_states * t->call_seconds)) {
        for (int s = 0; s < n_states; s++)
            times[s][n] = time_run(t, run, before[s], arg);
        n++;
    }
    for (int s = 0; s < n_states; s++) {
        qsort(times[s], (size_t)n, sizeof times[s][0], by_value);
        t->medians += times[s][n / 2];
        t->fastest += times[s][0];
        seconds[s] = times[s][n / 2];
    }
}

double plan_timer_median(plan_timer *t, void (*run)(void *arg), void (*before)(void *arg),
                         void *arg)
{
    double seconds;
    time_states(t, run, &before, 1, arg, &seconds);
    return seconds;
}

void plan_timer_medians(plan_timer *t, void (*run)(void *arg), void (*const before[2])(void *arg),
                        void *arg, double seconds[2])
{
    time_states(t, run, before, 2, arg, seconds);
}

void plan_timer_saw(plan_timer *t, const char *name, const krn_bench *rate)
{
    double spread = rate->fastest_seconds > 0 ? rate->seconds / rate->fastest_seconds : 1;
    if (spread <= t->rate_spread || t->machine->seconds)
        return;
    t->rate_spread = spread;
    t->rate = name;
}

bool plan_timer_busy(const plan_timer *t, char *why, size_t room)
{
    double spread = t->fastest > 0 ? t->medians / t->fastest : 1;
    double drift = t->probe_before > 0 ? t->probe_after / t->probe_before : 1;
    if (drift < 1 && drift > 0)
        drift = 1 / drift;
    if (t->medians < TELLING)
        return false;
    if (spread > SPREAD)
        snprintf(why, room,
                 "the machine was busy: calls took %.1f times as long as their fastest run",
                 spread);
    else if (t->rate_spread > RATE_SPREAD)
        snprintf(why, room, "the machine was busy: %s took %.1f times as long as its fastest run",
                 t->rate, t->rate_spread);
    else if (drift > DRIFT)
        snprintf(why, room,
                 "the machine was busy: one call took %.1f times as long at another moment", drift);
    else if (t->load > LOAD)
        snprintf(why, room, "the machine was busy: %.1f tasks wanted each core", t->load);
    else
        return false;
    return true;
}
