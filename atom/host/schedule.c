/*
 * Owns the decision which pool computes, and for how long. One idea: what was really computed, per
 * unit of share, is a level, and the lowest level is next. Refuses clocks, processes and files.
 */
#include "atom/host/schedule.h"

#include <math.h>
#include <string.h>

/* A turn lasts so many times what a switch costs, so that at most a twentieth of the time is lost. */
static const double SWITCHES_PER_SLICE = 20, ROUNDS_PER_SLICE = 3, SLICE_LEAST_S = 600;
/* How much of a measurement is the newest one. */
static const double NEWEST = 0.3;

const host_rules host_rules_usual = {.half_life_s = 86400,
                                     .start_patience_s = 900,
                                     .rest_patience_s = 60,
                                     .certify_wait_s = 120,
                                     .leave_patience_s = 600,
                                     .retry_s = 30,
                                     .retry_max_s = 3600};

const char *host_phase_name(host_phase phase)
{
    static const char *const names[] = {"waiting", "starting",  "computing",
                                        "resting", "finishing", "leaving"};
    return names[phase];
}

static double smooth(double before, double seen)
{
    return before > 0 ? before + NEWEST * (seen - before) : seen;
}

void host_schedule_begin(host_schedule *s, const host_rules *rules, const host_turn *turns,
                         uint32_t n, double now)
{
    double lowest = INFINITY;
    *s = (host_schedule){.rules = *rules, .n = n, .running = HOST_NONE, .now = now, .since = now};
    memcpy(s->turn, turns, n * sizeof *turns);
    for (uint32_t i = 0; i < n; i++)
        if (turns[i].level >= 0)
            lowest = fmin(lowest, turns[i].level);
    for (uint32_t i = 0; i < n; i++) {
        if (!(turns[i].level >= 0))
            s->turn[i].level = isfinite(lowest) ? lowest : 0;
        s->turn[i].not_before = now;
        s->turn[i].failures = 0;
    }
}

double host_schedule_slice(const host_schedule *s, uint32_t pool)
{
    double cost = 0;
    if (s->rules.slice_s > 0)
        return s->rules.slice_s;
    for (uint32_t i = 0; i < s->n; i++)
        cost = fmax(cost, s->turn[i].switch_s);
    return fmax(SLICE_LEAST_S,
                fmax(SWITCHES_PER_SLICE * cost, ROUNDS_PER_SLICE * s->turn[pool].first_round_s));
}

double host_schedule_due(const host_schedule *s, uint32_t pool)
{
    double all = 0;
    for (uint32_t i = 0; i < s->n; i++)
        all += s->turn[i].over ? 0 : s->turn[i].share;
    return s->turn[pool].over ? 0 : s->turn[pool].share / all;
}

void host_schedule_age(host_schedule *s, double seconds)
{
    double keep = seconds > 0 ? exp2(-seconds / s->rules.half_life_s) : 1;
    for (uint32_t i = 0; i < s->n; i++)
        s->turn[i].level *= keep;
}

static bool computes(const host_schedule *s)
{
    return s->phase == HOST_COMPUTING || s->phase == HOST_FINISHING;
}

static void pass_time(host_schedule *s, double now)
{
    double passed = now - s->now;
    if (!(passed > 0))
        return;
    s->now = now;
    host_schedule_age(s, passed);
    if (!computes(s))
        return;
    host_turn *t = &s->turn[s->running];
    t->level += passed / t->share;
    t->computed_s += passed;
    s->slice_used += passed;
}

static void enter(host_schedule *s, host_phase phase)
{
    s->phase = phase;
    s->since = s->now;
}

static bool may_run(const host_schedule *s, uint32_t i)
{
    const host_turn *t = &s->turn[i];
    return t->allowed && !t->over && s->now >= t->not_before;
}

/* Where a pool would be in the middle of its next turn. A turn moves a small share's level far; were
 * beginnings compared, its mean would lie above that of the others, and what is above is forgotten
 * faster. */
static double level_ahead(const host_schedule *s, uint32_t i)
{
    return s->turn[i].level + host_schedule_slice(s, i) / (2 * s->turn[i].share);
}

/* The lowest of those that may run; HOST_NONE: nobody but `besides`. */
static int32_t next_pool(const host_schedule *s, int32_t besides)
{
    int32_t best = HOST_NONE;
    for (uint32_t i = 0; i < s->n; i++)
        if ((int32_t)i != besides && may_run(s, i) &&
            (best < 0 || level_ahead(s, i) < level_ahead(s, (uint32_t)best)))
            best = (int32_t)i;
    return best;
}

static host_action ask_to_leave(host_schedule *s)
{
    enter(s, HOST_LEAVING);
    s->asked = 1;
    return HOST_DO_LEAVE;
}

static host_action start_next(host_schedule *s)
{
    int32_t next = s->stopping ? HOST_NONE : next_pool(s, HOST_NONE);
    if (next == HOST_NONE)
        return HOST_DO_NOTHING;
    s->running = next;
    s->started = s->now;
    s->slice_used = 0;
    s->start_s = -1;
    s->certified = s->put_back = false;
    s->asked = 0;
    s->n_starts++;
    enter(s, HOST_STARTING);
    return HOST_DO_START;
}

/* It neither computes nor ends: others that may compute are not kept waiting for long. */
static host_action look_at_idle_process(host_schedule *s, double patience)
{
    bool others = next_pool(s, s->running) != HOST_NONE;
    if (s->turn[s->running].allowed && (!others || s->now - s->since < patience))
        return HOST_DO_NOTHING;
    s->put_back = s->turn[s->running].allowed;
    return ask_to_leave(s);
}

/* Is the turn over? Only where somebody else has one to come. */
static bool turn_is_over(const host_schedule *s)
{
    const host_turn *t = &s->turn[s->running];
    int32_t next = next_pool(s, s->running);
    if (!t->allowed)
        return true;
    return next != HOST_NONE &&
           level_ahead(s, (uint32_t)next) < level_ahead(s, (uint32_t)s->running) &&
           s->slice_used >= host_schedule_slice(s, (uint32_t)s->running);
}

static host_action look_at_leaving(host_schedule *s)
{
    if (s->asked >= 3 || s->now - s->since < s->rules.leave_patience_s)
        return HOST_DO_NOTHING;
    enter(s, HOST_LEAVING);
    return ++s->asked == 2 ? HOST_DO_TERMINATE : HOST_DO_KILL;
}

static host_action on_tick(host_schedule *s)
{
    switch (s->phase) {
    case HOST_IDLE:
        return start_next(s);
    case HOST_STARTING:
        return look_at_idle_process(s, s->rules.start_patience_s);
    case HOST_RESTING:
        return look_at_idle_process(s, s->rules.rest_patience_s);
    case HOST_COMPUTING:
        if (turn_is_over(s))
            enter(s, HOST_FINISHING);
        return HOST_DO_NOTHING;
    case HOST_FINISHING:
        if (!turn_is_over(s)) {
            enter(s, HOST_COMPUTING);
            return HOST_DO_NOTHING;
        }
        return s->now - s->since < s->rules.certify_wait_s ? HOST_DO_NOTHING : ask_to_leave(s);
    case HOST_LEAVING:
        return look_at_leaving(s);
    }
    return HOST_DO_NOTHING;
}

/* A round of a turn that was not measured yet, and a sign that it does not fail at once. */
static host_action on_certified(host_schedule *s)
{
    host_turn *t = &s->turn[s->running];
    if (!computes(s))
        return HOST_DO_NOTHING;
    if (!s->certified && s->start_s >= 0)
        t->first_round_s = smooth(t->first_round_s, s->now - s->started - s->start_s);
    s->certified = true;
    t->failures = 0;
    return s->phase == HOST_FINISHING ? ask_to_leave(s) : HOST_DO_NOTHING;
}

static void back_off(host_schedule *s, host_turn *t)
{
    double wait = s->rules.retry_s * exp2(fmin(t->failures, 30));
    t->failures++;
    t->not_before = s->now + fmin(wait, s->rules.retry_max_s);
}

static host_action on_exit(host_schedule *s, host_end end)
{
    host_turn *t = &s->turn[s->running];
    if (end == HOST_END_OVER) {
        t->over = true;
    } else if (end == HOST_END_FAILED && !s->stopping) {
        s->n_failures++;
        back_off(s, t);
    } else if (s->put_back) {
        back_off(s, t);
    } else if (s->start_s >= 0 && s->asked == 1) {
        t->switch_s = smooth(t->switch_s, s->start_s + (s->now - s->since));
    }
    s->running = HOST_NONE;
    enter(s, HOST_IDLE);
    return start_next(s);
}

static host_action on_stop(host_schedule *s)
{
    bool first = !s->stopping;
    s->stopping = true;
    if (!first || s->phase == HOST_IDLE || s->asked >= 2)
        return HOST_DO_NOTHING;
    enter(s, HOST_LEAVING);
    s->asked = 2;
    return HOST_DO_TERMINATE;
}

host_action host_schedule_step(host_schedule *s, const host_event *event)
{
    pass_time(s, event->now);
    if (event->kind == HOST_TICK)
        return on_tick(s);
    if (event->kind == HOST_STOP)
        return on_stop(s);
    if (s->running == HOST_NONE)
        return HOST_DO_NOTHING;
    switch (event->kind) {
    case HOST_COMPUTES:
        if (s->phase != HOST_STARTING && s->phase != HOST_RESTING)
            return HOST_DO_NOTHING;
        if (s->start_s < 0)
            s->start_s = s->now - s->started;
        enter(s, HOST_COMPUTING);
        return HOST_DO_NOTHING;
    case HOST_RESTS:
        if (s->phase == HOST_STARTING || computes(s))
            enter(s, HOST_RESTING);
        return HOST_DO_NOTHING;
    case HOST_CERTIFIED:
        return on_certified(s);
    case HOST_EXITED:
        return on_exit(s, event->end);
    default:
        return HOST_DO_NOTHING;
    }
}
