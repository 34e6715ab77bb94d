/*
 * Owns a box's turns: it starts, hears and ends one process after another. One idea: the schedule
 * decides (schedule.h), this file does what it says and tells it what happened. Refuses to touch a
 * pool's directory: what is in it is its process's alone.
 */
#include "atom/host/host_inner.h"

#include "atom/base/clock.h"
#include "atom/base/files.h"
#include "atom/base/mem.h"
#include "gossip/pool/control.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TURN_MS = 100, MOST_WORDS = 11 /* with the NULL */ };
static const double ASK_S = 2, ASK_OFTEN_S = 0.3, ASK_TIMEOUT_S = 2, PUBLISH_S = 0.5;

static void note(host *h, const char *fmt, ...) ATOM_PRINTF(2, 3);
static void note(host *h, const char *fmt, ...)
{
    char text[HOST_LINE_BYTES];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    h->hooks.note(h->hooks.ctx, text);
}

static const host_pool *running(const host *h)
{
    return h->schedule.running < 0 ? NULL : &h->pools->pool[h->schedule.running];
}

static atom_status save(host *h)
{
    h->saved = h->schedule.now;
    return host_ledger_save(h->ledger, h->pools, h->schedule.turn, &h->child.process);
}

/* ---- a turn's process ---- */

static void on_log(void *ctx, const char *line)
{
    host *h = ctx;
    h->hooks.log(h->hooks.ctx, running(h) ? running(h)->name : "", line);
}

/* A ticket serves only where there is no membership yet. */
static atom_status start(host *h)
{
    static char words[][12] = {"pool", "join", "-o", "--json", "--quiet", "--devices"};
    const host_pool *p = running(h);
    char devices[24];
    char *argv[MOST_WORDS] = {h->program, words[0], words[1], words[2], p->dir, words[3]};
    uint32_t n = 6;
    if (h->quiet)
        argv[n++] = words[4];
    if (p->devices > 0) {
        (void)snprintf(devices, sizeof devices, "%lld", (long long)p->devices);
        argv[n++] = words[5];
        argv[n++] = devices;
    }
    char *ticket = host_pool_joined(p) ? NULL : p->ticket;
    if (ticket)
        argv[n++] = ticket;
    h->applied = -1;
    h->text[h->schedule.running][0] = 0;
    h->said_running = h->heard_status = false;
    ATOM_TRY(host_child_start(&h->child, argv, on_log, h));
    ATOM_TRY(save(h)); /* who it is, before it begins */
    host_child_go(&h->child);
    note(h, "%s: its turn begins", p->name);
    return ATOM_OK;
}

/* One line to the member's own control socket. NULL: it does not answer (yet). */
static json_t *ask(const host *h, const char *what)
{
    char request[64], *answer = NULL, *place = atom_path_join(running(h)->dir, "pool");
    json_t *o = NULL;
    snprintf(request, sizeof request, "{\"do\":\"%s\"}", what);
    if (place && gsp_control_ask(place, request, ASK_TIMEOUT_S, &answer) == ATOM_OK)
        o = json_loads(answer, 0, NULL);
    atom_free(answer);
    atom_free(place);
    return o;
}

/* It says goodbye where it takes part, so that nobody waits for it; else it just ends. */
static void leave(host *h)
{
    json_t *answer = h->heard_status ? ask(h, "leave") : NULL;
    if (!json_is_true(json_object_get(answer, "ok")))
        host_child_signal(&h->child, SIGTERM);
    json_decref(answer);
    note(h, "%s: its turn ends after %.0f s of computing", running(h)->name,
         h->schedule.slice_used);
}

static atom_status act(host *h, host_action action)
{
    switch (action) {
    case HOST_DO_NOTHING:
        return ATOM_OK;
    case HOST_DO_START:
        return start(h);
    case HOST_DO_LEAVE:
        leave(h);
        return ATOM_OK;
    case HOST_DO_TERMINATE:
        host_child_signal(&h->child, SIGTERM);
        return ATOM_OK;
    case HOST_DO_KILL:
        note(h, "%s: it did not stop in time, so it is killed", running(h)->name);
        host_child_signal(&h->child, SIGKILL);
        return ATOM_OK;
    }
    return ATOM_OK;
}

static atom_status tell(host *h, host_event_kind kind, host_end end)
{
    const host_event event = {.kind = kind, .now = atom_clock_seconds(), .end = end};
    return act(h, host_schedule_step(&h->schedule, &event));
}

/* ---- how it ended ---- */

/* What its end means; text: what there is to say of it. */
static host_end judge(const host *h, const host_child_news *news, char *text, size_t bytes)
{
    bool asked = h->schedule.asked > 0;
    const char *why = h->child.why;
    text[0] = 0;
    if (news->code == 0 && news->done) {
        snprintf(text, bytes, "the pool is done");
        return HOST_END_OVER;
    }
    if (news->code == 0 && !asked) {
        snprintf(text, bytes,
                 "it was taken out by atom pool leave; start atom host again to "
                 "bring it back");
        return HOST_END_OVER;
    }
    if (asked && (news->code == 0 || news->code == 130 || news->code == 143))
        return HOST_END_ASKED;
    if (news->signal)
        snprintf(text, bytes, "ended by signal %d", news->signal);
    else if (news->code == 127)
        snprintf(text, bytes, "cannot run %s", h->program);
    else
        snprintf(text, bytes, "exit code %d%s%.200s", news->code, *why ? ": " : "", why);
    return HOST_END_FAILED;
}

static atom_status on_end(host *h, const host_child_news *news)
{
    int32_t was = h->schedule.running;
    host_end end = judge(h, news, h->text[was], sizeof h->text[was]);
    if (end == HOST_END_OVER)
        note(h, "%s: %s; the others get its share", h->pools->pool[was].name, h->text[was]);
    if (end == HOST_END_ASKED && h->schedule.put_back)
        snprintf(h->text[was], sizeof h->text[was], "it computed nothing: %.200s",
                 *h->child.why ? h->child.why : "it gave no reason");
    if (end == HOST_END_FAILED && !h->schedule.stopping)
        note(h, "%s: %s; it is tried again later (atom host status says when)",
             h->pools->pool[was].name, h->text[was]);
    ATOM_TRY(tell(h, HOST_EXITED, end));
    return save(h);
}

/* ---- what a turn sees ---- */

/* A version with a contribution of ours is what a pool is left behind. */
static atom_status look_at_member(host *h)
{
    double pause = h->schedule.phase == HOST_FINISHING ? ASK_OFTEN_S : ASK_S;
    if (!h->child.process.pid || !h->said_running || h->schedule.phase == HOST_LEAVING ||
        h->schedule.now - h->asked < pause)
        return ATOM_OK;
    h->asked = h->schedule.now;
    json_t *o = ask(h, "status");
    if (!o)
        return ATOM_OK;
    const json_t *round = json_array_get(json_object_get(o, "rounds"), 0);
    json_int_t applied = json_integer_value(json_object_get(o, "applied"));
    bool ours = json_number_value(json_object_get(round, "round_s")) > 0;
    const char *text = json_string_value(json_object_get(o, "text"));
    int32_t i = h->schedule.running;
    snprintf(h->text[i], sizeof h->text[i], "%s", text ? text : "");
    h->heard_status = true;
    h->version[i] = applied;
    h->members[i] = json_integer_value(json_object_get(o, "roster"));
    json_decref(o);
    bool grew = h->applied >= 0 && applied > h->applied && ours;
    if (applied > h->applied)
        h->applied = applied;
    return grew ? tell(h, HOST_CERTIFIED, 0) : ATOM_OK;
}

/* A paused one that is running stays in its pool as long as nobody else wants the turn; it has no
 * further one. */
static void look_at_hours(host *h)
{
    char why[POOL_LIMITS_WHY_BYTES];
    bool open = !h->hours || pool_limits_now(h->hours, why);
    for (uint32_t i = 0; i < h->pools->n; i++) {
        h->paused[i] = host_pool_is_paused(&h->pools->pool[i]);
        h->schedule.turn[i].allowed =
            open && (!h->pool_hours[i] || pool_limits_now(h->pool_hours[i], why)) &&
            (!h->paused[i] || h->schedule.running == (int32_t)i);
    }
}

static atom_status look(host *h)
{
    host_child_news news;
    host_child_hear(&h->child, TURN_MS, &news);
    if (news.said == HOST_SAID_COMPUTES) {
        h->said_running = true;
        ATOM_TRY(tell(h, HOST_COMPUTES, 0));
    }
    if (news.said == HOST_SAID_RESTS)
        ATOM_TRY(tell(h, HOST_RESTS, 0));
    if (news.exited)
        ATOM_TRY(on_end(h, &news));
    ATOM_TRY(look_at_member(h));
    if (h->hooks.stop(h->hooks.ctx) || atomic_load(&h->asked_stop))
        ATOM_TRY(tell(h, HOST_STOP, 0));
    look_at_hours(h);
    ATOM_TRY(tell(h, HOST_TICK, 0));
    /* What a kill can make us forget is small beside a turn. */
    double often = h->schedule.running < 0
                       ? 60
                       : host_schedule_slice(&h->schedule, (uint32_t)h->schedule.running) / 30;
    return h->schedule.now - h->saved > often ? save(h) : ATOM_OK;
}

static void publish(host *h)
{
    host_phase phase = h->schedule.phase;
    if (h->schedule.now - h->published < PUBLISH_S && phase == h->published_phase)
        return;
    if (phase != h->published_phase || h->published == 0) {
        char line[160];
        const host_pool *p = running(h);
        snprintf(line, sizeof line, "%s%s%s", host_phase_name(phase), p ? " " : "",
                 p ? p->name : "");
        h->hooks.ready(h->hooks.ctx, line);
    }
    h->published = h->schedule.now;
    h->published_phase = phase;
    host_status_publish(h);
}

static bool all_over(const host *h)
{
    bool over = true;
    for (uint32_t i = 0; i < h->pools->n; i++)
        over &= h->schedule.turn[i].over;
    return over;
}

static atom_status turns(host *h)
{
    while (h->schedule.phase != HOST_IDLE || !(h->schedule.stopping || all_over(h))) {
        ATOM_TRY(look(h));
        publish(h);
    }
    ATOM_TRY(save(h));
    if (h->schedule.stopping && h->hooks.stop(h->hooks.ctx))
        return atom_fail(ATOM_E_INTERRUPTED, "stopped");
    if (!h->schedule.stopping)
        note(h, "none of the pools has anything left to do");
    return ATOM_OK;
}

/* ---- the start ---- */

/* The process of a host that was killed ends by itself, after its step: nothing starts beside it. */
static atom_status wait_for_orphan(host *h, const host_process *orphan)
{
    double began = atom_clock_seconds();
    bool told = false, killed = false;
    while (host_process_lives(orphan)) {
        if (!told)
            note(h,
                 "waiting for process %" PRId64 ", which an earlier atom host left running, to "
                 "save and stop",
                 orphan->pid);
        told = true;
        if (h->hooks.stop(h->hooks.ctx))
            return atom_fail(ATOM_E_INTERRUPTED, "stopped");
        if (!killed && atom_clock_seconds() - began > host_rules_usual.leave_patience_s) {
            note(h, "process %" PRId64 " did not stop in time, so it is killed", orphan->pid);
            killed = kill((pid_t)orphan->pid, SIGKILL) == 0;
        }
        usleep(TURN_MS * 1000);
    }
    return ATOM_OK;
}

static atom_status open_hours(const char *hours, pool_limits **out)
{
    const pool_limits_config config = {.hours = hours};
    return hours ? pool_limits_open(&config, NULL, out) : ATOM_OK;
}

static atom_status lock(host *h)
{
    int64_t holder;
    ATOM_TRY(atom_dir_make(h->state));
    ATOM_TRY(atom_dir_lock(h->state, &h->lock, &holder));
    return h->lock >= 0 ? ATOM_OK
                        : atom_fail(ATOM_E_USAGE,
                                    "another atom host (process %" PRId64 ") already runs with "
                                    "%s; see it with atom host status, stop it with atom host "
                                    "stop",
                                    holder, h->pools->path);
}

static atom_status begin(host *h, const host_config *config)
{
    host_turn turns[HOST_POOLS_MAX];
    host_process orphan;
    double passed_s;
    host_rules rules = host_rules_usual;
    ATOM_TRY(host_pools_read(config->file, &h->pools));
    ATOM_TRY(host_pools_check(h->pools));
    h->state = host_state_of(config->file);
    h->ledger = h->state ? atom_path_join(h->state, "ledger.json") : NULL;
    h->program = atom_strdup(config->program);
    if (!h->state || !h->ledger || !h->program)
        return atom_fail_memory("a host", 0);
    ATOM_TRY(lock(h));
    ATOM_TRY(host_ledger_read(h->ledger, h->pools, turns, &orphan, &passed_s));
    ATOM_TRY(wait_for_orphan(h, &orphan));
    ATOM_TRY(open_hours(h->pools->hours, &h->hours));
    for (uint32_t i = 0; i < h->pools->n; i++)
        ATOM_TRY(open_hours(h->pools->pool[i].hours, &h->pool_hours[i]));
    rules.slice_s = h->pools->slice_seconds > 0 ? h->pools->slice_seconds : 0;
    h->began = atom_clock_seconds();
    host_schedule_begin(&h->schedule, &rules, turns, h->pools->n, h->began);
    host_schedule_age(&h->schedule, passed_s);
    look_at_hours(h);
    host_status_publish(h);
    return gsp_control_open(h->state, host_status_answer, h, &h->control);
}

/* After an error of ours: the process of the pool saves and ends, and is waited for. */
static void end_child(host *h)
{
    host_child_news news = {0};
    double began = atom_clock_seconds();
    bool killed = false;
    host_child_signal(&h->child, SIGTERM);
    if (h->child.process.pid && h->child.go >= 0)
        host_child_go(&h->child);
    while (h->child.process.pid) {
        host_child_hear(&h->child, TURN_MS, &news);
        if (!killed && atom_clock_seconds() - began > host_rules_usual.leave_patience_s)
            host_child_signal(&h->child, SIGKILL), killed = true;
    }
}

static void finish(host *h)
{
    end_child(h);
    gsp_control_close(&h->control);
    for (uint32_t i = 0; i < HOST_POOLS_MAX; i++)
        pool_limits_close(&h->pool_hours[i]);
    pool_limits_close(&h->hours);
    host_pools_close(&h->pools);
    if (h->lock >= 0)
        close(h->lock);
    pthread_mutex_destroy(&h->mutex);
    free(h->status);
    atom_free(h->state);
    atom_free(h->ledger);
    atom_free(h->program);
    atom_free(h);
}

atom_status host_run(const host_config *config)
{
    host *h = atom_alloc(1, sizeof *h);
    if (!h)
        return atom_fail_memory("a host", sizeof *h);
    h->hooks = *config->hooks;
    h->quiet = config->quiet;
    h->lock = -1;
    h->child.hear = h->child.out = h->child.err = h->child.go = -1;
    pthread_mutex_init(&h->mutex, NULL);
    atom_status st = begin(h, config);
    if (st == ATOM_OK)
        st = turns(h);
    finish(h);
    return st;
}

/* ---- places ---- */

char *host_file_of(const char *file_or_dir)
{
    if (file_or_dir && !atom_path_is_dir(file_or_dir))
        return atom_strdup(file_or_dir);
    return atom_path_join(file_or_dir ? file_or_dir : ".", "pools.yml");
}

char *host_state_of(const char *file)
{
    const char *slash = strrchr(file, '/');
    return slash ? atom_format("%.*s/host-state", (int)(slash - file), file)
                 : atom_strdup("host-state");
}
