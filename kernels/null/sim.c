/*
 * Owns virtual time: a discrete-event simulation of the queued work with shared resources
 * (device_null.h). It is the cost model of the whole project (docs/design/engine.md#the-tape). One
 * idea: few streams, so at every event all of them are looked at; the cost is linear in items.
 * Refuses to look ahead: it stops where the host stops waiting, because the host may queue more
 * work at that moment.
 */
#include "kernels/null/device_null.h"

#include "atom/base/assert.h"

#include <string.h>

static null_item *head(dev_stream *s)
{
    return &s->items[s->finished - s->first];
}

static void finish(dev_stream *s)
{
    s->finished++;
    s->running = false;
}

/* Passes records and satisfied waits, and starts work,
 * until nothing more can start at this moment. */
static void start_all(null_time *t)
{
    bool moved = true;
    while (moved) {
        moved = false;
        for (dev_stream *s = t->streams; s; s = s->after) {
            while (!s->running && s->finished < s->queued) {
                null_item *it = head(s);
                if (it->code == NULL_WAIT && it->of->finished < it->until)
                    break;
                if (it->code == NULL_RECORD) {
                    it->event->at = t->now;
                    it->event->pending--;
                }
                if (it->code == NULL_WORK && it->cost.seconds > 0) {
                    s->running = true;
                    s->left = it->cost.seconds;
                    break;
                }
                s->bytes_copied += it->bytes;
                finish(s);
                moved = true;
            }
        }
    }
}

/* The device whose resource a stream's work takes; 0 where the machine has one of it. */
static uint32_t whose(const dev_stream *s, int resource)
{
    bool own = resource == DEV_R_H2D || resource == DEV_R_D2H || resource == DEV_R_LINK ||
               resource == DEV_R_GPU;
    return own ? s->device : 0;
}

/* Sets the rate of every running item; returns the time until the first of them ends, or -1. */
static double next_end(null_time *t)
{
    double total[NULL_DEVICES_MAX][DEV_RESOURCE_N], soonest = -1;
    memset(total, 0, t->devices * sizeof total[0]);
    for (dev_stream *s = t->streams; s; s = s->after) {
        for (int r = 0; s->running && r < DEV_RESOURCE_N; r++)
            total[whose(s, r)][r] += (double)head(s)->cost.share[r];
    }
    for (dev_stream *s = t->streams; s; s = s->after) {
        if (!s->running)
            continue;
        double crowd = 1;
        for (int r = 0; r < DEV_RESOURCE_N; r++) {
            if (head(s)->cost.share[r] > 0 && total[whose(s, r)][r] > crowd)
                crowd = total[whose(s, r)][r];
        }
        s->rate = 1 / crowd;
        double end = s->left * crowd;
        if (soonest < 0 || end < soonest)
            soonest = end;
    }
    return soonest;
}

static void advance(null_time *t, double dt)
{
    t->now += dt;
    for (dev_stream *s = t->streams; s; s = s->after) {
        if (!s->running)
            continue;
        s->busy_seconds += dt;
        /* an item that ends within a rounding of this moment ends now, so that equals stay equal */
        double left = s->left - dt * s->rate;
        s->left = left;
        if (left <= head(s)->cost.seconds * 1e-12) {
            s->bytes_copied += head(s)->bytes;
            finish(s);
        }
    }
}

void null_sim_run(null_time *t, const dev_stream *s, uint64_t until)
{
    start_all(t);
    while (s->finished < until) {
        double dt = next_end(t);
        ATOM_ASSERT(dt >= 0); /* a wait always refers to work queued before it */
        advance(t, dt);
        start_all(t);
    }
}
