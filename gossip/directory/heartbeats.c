/*
 * Owns what contacts say of a pool's progress. Its one idea: a lookup brings several contacts of
 * one member, of the last ten minutes, so two of them tell a pace at once. It refuses to believe
 * one member about the version, and counters that ran backwards or leapt.
 */
#include "gossip/directory/heartbeats.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_over(const gsp_directory_beat *b, uint64_t now_s)
{
    return b->expires_s < now_s;
}

/* Its row, or one for it; NULL: all rows are of members that were seen lately. */
static struct gsp_heartbeats_of *row_of(gsp_heartbeats *b, const uint8_t *key, uint64_t now_s)
{
    struct gsp_heartbeats_of *row = NULL;
    for (uint32_t i = 0; i < b->n; i++) {
        if (memcmp(b->of[i].key, key, GSP_PUBLIC_BYTES) == 0)
            return &b->of[i];
        if (is_over(&b->of[i].newest, now_s))
            row = &b->of[i];
    }
    if (b->n < GSP_HEARTBEATS_MAX)
        row = &b->of[b->n++];
    if (row) {
        memset(row, 0, sizeof *row);
        memcpy(row->key, key, GSP_PUBLIC_BYTES);
    }
    return row;
}

void gsp_heartbeats_add(gsp_heartbeats *b, const gsp_contact *c, uint64_t now_s)
{
    const gsp_directory_beat beat = {.sequence = c->sequence,
                                     .issued_s = c->issued_s,
                                     .expires_s = c->expires_s,
                                     .version = c->version,
                                     .samples = c->samples};
    struct gsp_heartbeats_of *row = is_over(&beat, now_s) ? NULL : row_of(b, c->key, now_s);
    if (!row)
        return;
    if (beat.sequence > row->newest.sequence) {
        row->before = row->newest;
        row->newest = beat;
    } else if (beat.sequence < row->newest.sequence && beat.sequence > row->before.sequence) {
        row->before = beat;
    }
}

double gsp_heartbeat_pace(const gsp_directory_beat *before, const gsp_directory_beat *newest)
{
    if (before->sequence == 0 || newest->sequence <= before->sequence ||
        newest->issued_s <= before->issued_s || newest->samples < before->samples)
        return -1;
    double pace =
        (double)(newest->samples - before->samples) / (double)(newest->issued_s - before->issued_s);
    return pace <= GSP_HEARTBEATS_PER_SECOND_MAX ? pace : -1;
}

static int descending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x > y ? -1 : x < y;
}

void gsp_heartbeats_look(const gsp_heartbeats *b, uint64_t now_s, gsp_heartbeats_seen *out)
{
    uint64_t version[GSP_HEARTBEATS_MAX];
    *out = (gsp_heartbeats_seen){0};
    for (uint32_t i = 0; i < b->n; i++) {
        const gsp_directory_beat *newest = &b->of[i].newest;
        double pace = gsp_heartbeat_pace(&b->of[i].before, newest);
        if (is_over(newest, now_s))
            continue;
        version[out->members++] = newest->version;
        out->paced += pace >= 0;
        out->samples_per_s += pace >= 0 ? pace : 0;
        out->samples = newest->samples > UINT64_MAX - out->samples ? UINT64_MAX
                                                                   : out->samples + newest->samples;
        out->issued_s = newest->issued_s > out->issued_s ? newest->issued_s : out->issued_s;
    }
    if (out->members == 0)
        return;
    qsort(version, out->members, sizeof *version, descending);
    out->version = version[(out->members + 1) / 2 - 1];
}

const char *gsp_heartbeats_text(const gsp_heartbeats_seen *s, char text[GSP_HEARTBEATS_TEXT_BYTES])
{
    char pace[40] = "";
    if (s->paced)
        snprintf(pace, sizeof pace, ", %.3g samples/s", s->samples_per_s);
    text[0] = 0;
    if (s->members)
        snprintf(text, GSP_HEARTBEATS_TEXT_BYTES,
                 "%u member%s, version %" PRIu64 "%s seen in the directory", s->members,
                 s->members == 1 ? "" : "s", s->version, pace);
    return text;
}
