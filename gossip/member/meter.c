/*
 * Owns the reading of a link's rate from a count of bytes. Its one idea: busy ticks in a row are a
 * measurement, everything else is none. It refuses to guess from a burst: buffers swallow what
 * comes in less than two seconds.
 */
#include "gossip/member/meter.h"

static const uint64_t LITTLE = 4096;  /* a tick with less was a pause */
static const double FADES = 1.0 / 64; /* of the way down to a slower stretch, for each */

static void start_row(gsp_meter *m, uint64_t now)
{
    m->n = 0;
    m->sum = 0;
    m->since_ns = now;
}

static void end_row(gsp_meter *m, uint64_t now)
{
    double rate = 1e9 * (double)m->sum / (double)(now - m->since_ns);
    if (rate > m->rate)
        m->rate = rate;
    else
        m->rate += (rate - m->rate) * FADES;
    start_row(m, now);
}

void gsp_meter_turn(gsp_meter *m, uint64_t now, uint64_t bytes, bool wanted)
{
    bool first = m->tick_ns == 0, late = now > m->tick_ns + 2 * (uint64_t)GSP_METER_TICK_NS;
    if (first || late || now < m->tick_ns || bytes < m->bytes || !wanted) {
        m->tick_ns = now;
        m->bytes = bytes;
        start_row(m, now);
        return;
    }
    if (now - m->tick_ns < GSP_METER_TICK_NS)
        return;
    uint64_t carried = bytes - m->bytes;
    m->tick_ns = now;
    m->bytes = bytes;
    if (carried < LITTLE) {
        start_row(m, now);
        return;
    }
    m->sum += carried;
    if (++m->n == GSP_METER_TICKS)
        end_row(m, now);
}

uint64_t gsp_meter_rate(const gsp_meter *m)
{
    return (uint64_t)m->rate;
}

uint64_t gsp_meter_told(uint64_t said, uint64_t seen)
{
    if (said == 0 || seen == 0)
        return said ? said : seen;
    return seen < said / 2 ? 2 * seen : said;
}
