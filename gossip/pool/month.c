/*
 * Owns the count of a month's bytes while a host runs. One idea: the transport counts for ever, so
 * only the difference since the last look is added. It refuses to fail: a count that cannot be kept
 * is logged.
 */
#include "gossip/pool/month.h"

#include "atom/base/clock.h"
#include "atom/base/files.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"

static const uint64_t SAVE_NS = 10000000000u, COUNT_NS = 200000000u;

void gsp_month_open(gsp_month *m, const char *directory, uint64_t up_max, uint64_t down_max)
{
    *m = (gsp_month){.quota = {.up_max = up_max, .down_max = down_max},
                     .path = atom_path_join(directory, "month")};
    if (m->path && gsp_quota_load(m->path, atom_wall_seconds(), &m->quota) != ATOM_OK)
        atom_log(ATOM_LOG_WARN, "%s", atom_fail_message());
}

void gsp_month_save(const gsp_month *m)
{
    if (m->path && gsp_quota_save(m->path, &m->quota) != ATOM_OK)
        atom_log(ATOM_LOG_WARN, "%s", atom_fail_message());
}

static void count(gsp_month *m, gsp_net *net)
{
    gsp_net_stats s;
    gsp_net_read_stats(net, &s);
    gsp_quota_count(&m->quota, atom_wall_seconds(), s.wire_bytes_sent - m->counted_up,
                    s.wire_bytes_received - m->counted_down);
    m->counted_up = s.wire_bytes_sent;
    m->counted_down = s.wire_bytes_received;
}

bool gsp_month_step(gsp_month *m, gsp_net *net)
{
    uint64_t now = atom_clock_ns();
    if (now >= m->count_ns) {
        m->count_ns = now + COUNT_NS;
        count(m, net);
    }
    if (now >= m->save_ns) {
        m->save_ns = now + SAVE_NS;
        gsp_month_save(m);
    }
    return gsp_quota_spent(&m->quota);
}

void gsp_month_close(gsp_month *m, gsp_net *net)
{
    if (net && m->quota.month) {
        count(m, net);
        gsp_month_save(m);
    }
    atom_free(m->path);
    m->path = NULL;
}
