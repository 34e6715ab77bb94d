/*
 * Owns what a host says of itself: one line of JSON, made anew by the thread that knows and read by
 * that of the socket. One idea: who asks gets a copy and waits for nobody. Refuses all requests but
 * `status` and `stop`.
 */
#include "atom/host/host_inner.h"

#include "atom/base/mem.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *state_of(const host *h, uint32_t i)
{
    const host_turn *t = &h->schedule.turn[i];
    if (h->schedule.running == (int32_t)i)
        return host_phase_name(h->schedule.phase);
    if (t->over)
        return "over";
    if (h->paused[i])
        return "paused";
    if (!t->allowed)
        return "outside its hours";
    if (h->schedule.now < t->not_before)
        return "backed off";
    return "waiting";
}

static json_t *seconds_or_null(double x)
{
    return x > 0 ? json_real(x) : json_null();
}

static json_t *pool_json(const host *h, uint32_t i, double all_s)
{
    const host_turn *t = &h->schedule.turn[i];
    const host_pool *p = &h->pools->pool[i];
    double retry_s = fmax(0, t->not_before - h->schedule.now);
    return json_pack(
        "{s:s, s:s, s:s, s:s, s:f, s:f, s:f, s:f, s:f, s:o, s:o, s:f, s:i, s:f, s:I, s:I}", "name",
        p->name, "dir", p->dir, "state", state_of(h, i), "text", h->text[i], "share", p->share,
        "due", host_schedule_due(&h->schedule, i), "got", all_s > 0 ? t->computed_s / all_s : 0.0,
        "computed_s", t->computed_s, "level", t->level, "switch_s", seconds_or_null(t->switch_s),
        "first_round_s", seconds_or_null(t->first_round_s), "turn_s",
        host_schedule_slice(&h->schedule, i), "failures", (int)t->failures, "retry_s",
        t->over ? 0.0 : retry_s, "version", (json_int_t)h->version[i], "members",
        (json_int_t)h->members[i]);
}

static json_t *status_json(const host *h)
{
    const host_schedule *s = &h->schedule;
    double all_s = 0;
    json_t *pools = json_array();
    for (uint32_t i = 0; i < h->pools->n; i++)
        all_s += s->turn[i].computed_s;
    for (uint32_t i = 0; i < h->pools->n; i++)
        json_array_append_new(pools, pool_json(h, i, all_s));
    return json_pack(
        "{s:b, s:s, s:s, s:o, s:I, s:f, s:f, s:I, s:I, s:o}", "ok", 1, "file", h->pools->path,
        "state", s->stopping ? "stopping" : host_phase_name(s->phase), "running",
        s->running < 0 ? json_null() : json_string(h->pools->pool[s->running].name), "process",
        (json_int_t)h->child.process.pid, "up_s", s->now - h->began, "turn_used_s", s->slice_used,
        "turns", (json_int_t)s->n_starts, "failures", (json_int_t)s->n_failures, "pools", pools);
}

void host_status_publish(host *h)
{
    json_t *o = status_json(h);
    char *text = o ? json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(o);
    if (!text)
        return; /* no memory now: the last one stands */
    pthread_mutex_lock(&h->mutex);
    char *old = h->status;
    h->status = text;
    pthread_mutex_unlock(&h->mutex);
    free(old);
}

char *host_status_answer(void *context, const char *request)
{
    host *h = context;
    char *answer = NULL;
    json_t *o = json_loads(request, JSON_REJECT_DUPLICATES, NULL);
    const char *what = json_string_value(json_object_get(o, "do"));
    if (what && strcmp(what, "stop") == 0) {
        atomic_store(&h->asked_stop, true);
        answer = atom_strdup("{\"ok\":true}");
    } else if (what && strcmp(what, "status") == 0) {
        pthread_mutex_lock(&h->mutex);
        answer = h->status ? atom_strdup(h->status) : NULL;
        pthread_mutex_unlock(&h->mutex);
    } else {
        answer = atom_strdup("{\"ok\":false,\"error\":\"a request is status or stop\"}");
    }
    json_decref(o);
    return answer;
}
