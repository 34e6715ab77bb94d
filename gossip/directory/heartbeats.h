/*
 * What the directory says of a pool's progress: the newest contacts of each member (contact.h), and
 * the difference between two of them (docs/design/pool.md#directory).
 *
 * A member signs what it says of itself, and nobody checks the numbers, so they are worth a line of
 * text for people and nothing else: no vote, no share and no dial depends on them. Only contacts
 * that were judged GOOD come in; old ones, replays and counters that ran backwards or leapt are left
 * out of the pace.
 *
 * A plain value of fixed size. Times are seconds since 1970. Thread: one at a time.
 */
#ifndef GOSSIP_DIRECTORY_HEARTBEATS_H
#define GOSSIP_DIRECTORY_HEARTBEATS_H

#include "gossip/directory/contact.h"

enum {
    GSP_HEARTBEATS_MAX = 64,                 /* members; more are not counted */
    GSP_HEARTBEATS_PER_SECOND_MAX = 1000000, /* samples; a faster member is not believed */
    GSP_HEARTBEATS_TEXT_BYTES = 128,
};

typedef struct gsp_directory_beat {
    uint64_t sequence; /* 0: none */
    uint64_t issued_s, expires_s, version, samples;
} gsp_directory_beat;

typedef struct gsp_heartbeats {
    uint32_t n;
    struct gsp_heartbeats_of {
        uint8_t key[GSP_PUBLIC_BYTES];
        gsp_directory_beat newest, before;
    } of[GSP_HEARTBEATS_MAX];
} gsp_heartbeats;

/* All that has not expired, taken together. */
typedef struct gsp_heartbeats_seen {
    uint32_t members, paced; /* paced: those of whom two contacts tell a pace */
    uint64_t version;        /* at least half of the members say that they have it */
    uint64_t samples;        /* processed, in all */
    double samples_per_s;    /* of the paced ones */
    uint64_t issued_s;       /* of the newest contact */
} gsp_heartbeats_seen;

/* Takes a contact that the directory had and that was judged GOOD, in any order. */
void gsp_heartbeats_add(gsp_heartbeats *beats, const gsp_contact *contact, uint64_t now_s);
/* Samples per second between the two newest contacts of a member; below 0: they do not tell. */
double gsp_heartbeat_pace(const gsp_directory_beat *before, const gsp_directory_beat *newest);
void gsp_heartbeats_look(const gsp_heartbeats *beats, uint64_t now_s, gsp_heartbeats_seen *out);
/* "5 members, version 1234, 310 samples/s seen in the directory"; "": nobody was seen. */
const char *gsp_heartbeats_text(const gsp_heartbeats_seen *seen,
                                char text[GSP_HEARTBEATS_TEXT_BYTES]);

#endif
