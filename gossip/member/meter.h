/*
 * How fast a link is, learnt from what it carried (docs/design/pool.md#agreement, #directory:
 * shares follow measured rates). Only a stretch of two seconds in which the link was wanted all the
 * time shows how much it carries; small rounds and heartbeats teach nothing, and the rate stays
 * unknown. The fastest stretch counts, because a peer's slow link can make ours look slow, but
 * never fast. It fades, so that a link that became slower is believed after some minutes of work.
 *
 * Pure: the clock is an argument. Thread: none of its own. Errors: none.
 */
#ifndef GOSSIP_MEMBER_METER_H
#define GOSSIP_MEMBER_METER_H

#include <stdbool.h>
#include <stdint.h>

enum { GSP_METER_TICKS = 4, GSP_METER_TICK_NS = 500000000 };

typedef struct gsp_meter {
    uint64_t tick_ns, bytes; /* when the tick in progress began, and the count then */
    uint64_t sum, since_ns;  /* of the busy ticks of the stretch */
    uint32_t n;
    double rate; /* 0: unknown */
} gsp_meter;

/*
 * Call several times per tick (a tick is long enough for one record on a slow link). bytes: carried
 * since the beginning; wanted: there is more to carry. For what comes in nobody knows that: then it
 * is true, and a tick with less than a few KiB ends the stretch. A clock that jumps and a pause
 * between calls end it too.
 */
void gsp_meter_turn(gsp_meter *meter, uint64_t now_ns, uint64_t bytes, bool wanted);
/* Bytes per second; 0: unknown. */
uint64_t gsp_meter_rate(const gsp_meter *meter);

/* The rate to tell others: what the user said (0: nothing), but at most twice what was seen; what
 * was seen, where the user said nothing. 0: unknown. */
uint64_t gsp_meter_told(uint64_t said, uint64_t seen);

#endif
