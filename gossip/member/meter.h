/*
 * How fast a link is, learnt from what it carried (docs/design/pool.md#agreement, #directory:
 * shares follow measured rates). A second in which the link was wanted all the time says how much
 * it carries; seconds with pauses say nothing, so small rounds and heartbeats teach nothing and the
 * rate stays unknown. The highest such stretch counts, because another's slow link makes ours look
 * slow, never fast; it fades, so that a link that became slower is believed after some minutes of
 * work.
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
    uint64_t sum, since_ns;  /* of the busy ticks in a row */
    uint32_t n;
    double rate; /* 0: unknown */
} gsp_meter;

/*
 * Call several times per tick, which is long enough for a record on a slow link: `bytes` carried
 * since ever, and whether there is more to carry (for what comes in, nobody knows: true, and a tick
 * with less than a few KiB ends the row). A clock that jumps, or pauses between calls, end the row
 * too.
 */
void gsp_meter_turn(gsp_meter *meter, uint64_t now_ns, uint64_t bytes, bool wanted);
/* Bytes per second; 0: unknown. */
uint64_t gsp_meter_rate(const gsp_meter *meter);

/* What to tell others of a link: what was said of it (0: nothing), at most twice what was seen;
 * what was seen, where nothing was said. 0: unknown. */
uint64_t gsp_meter_told(uint64_t said, uint64_t seen);

#endif
