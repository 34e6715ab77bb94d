/*
 * Repeated timing, and whether the machine was busy meanwhile. Inner header of atom/plan.
 *
 * Units: seconds. Thread: one caller. Errors: none. Ownership: nothing to free.
 */
#ifndef ATOM_PLAN_TIMER_H
#define ATOM_PLAN_TIMER_H

#include "atom/plan/workbench.h"
#include "kernels/bench.h"

typedef struct plan_timer {
    const plan_machine *machine;
    double call_seconds; /* stop repeating a call after this long */
    /* what was seen */
    double medians, fastest;          /* sums over the calls that ran several times */
    double probe_before, probe_after; /* one call at the beginning and at the end; 0: no probe */
    double load;                      /* when it began */
    double rate_spread; /* of the rates the worst median in terms of its fastest pass */
    const char *rate;   /* which; borrowed */
} plan_timer;

/* Begins to watch: notes the load. machine: borrowed, outlives the timer. */
plan_timer plan_timer_begin(const plan_machine *machine, double call_seconds);

/* Median seconds of run(arg), which is run some times after once to warm up; what takes a second is
 * run only once. before(arg) comes before each timed run and is not timed; NULL: nothing does. */
double plan_timer_median(plan_timer *t, void (*run)(void *arg), void (*before)(void *arg),
                         void *arg);

/* The same in two states of the machine: before[i] makes the one in which seconds[i] is timed. They take
 * turns, so that a phase in which the machine is slower meets both; what takes a second is the same in
 * both. */
void plan_timer_medians(plan_timer *t, void (*run)(void *arg), void (*const before[2])(void *arg),
                        void *arg, double seconds[2]);

/* One of the machine's rates was measured elsewhere (kernels/bench.h), by the real clock; where `machine`
 * has another, that says nothing. name: borrowed. */
void plan_timer_saw(plan_timer *t, const char *name, const krn_bench *rate);

/*
 * Was the machine busy with other work? Where it was, `why` is one line that says how that was seen.
 * Calls of some milliseconds in all say nothing: their times vary on an idle machine, too.
 */
bool plan_timer_busy(const plan_timer *t, char *why, size_t room);

#endif
