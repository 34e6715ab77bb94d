/*
 * Owns a host's bytes per month (quota.h): counting what passes the net, keeping the count, and the
 * rest when a cap is reached. Its one idea: who may send no more says nothing at all: links are
 * ended, nobody is let in, the member's clock stands still, so nothing is decided alone either;
 * with the next month it comes back as somebody who slept. It refuses to rest before the pool was
 * started: joining is a wish.
 */
#include "gossip/pool/pool_inner.h"

#include "atom/base/clock.h"
#include "atom/base/files.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"

#include <time.h>

static const uint64_t SAVE_NS = 10000000000u, COUNT_NS = 200000000u, REST_NS = 50000000u;

static void save(gsp_pool *p)
{
    char *path = atom_path_join(p->directory, "month");
    if (path && gsp_quota_save(path, &p->quota) != ATOM_OK)
        atom_log(ATOM_LOG_WARN, "%s", atom_fail_message());
    atom_free(path);
}

void life_month_open(gsp_pool *p)
{
    char *path = atom_path_join(p->directory, "month");
    p->quota.up_max = p->host.up_month_max;
    p->quota.down_max = p->host.down_month_max;
    if (path && gsp_quota_load(path, atom_wall_seconds(), &p->quota) != ATOM_OK)
        atom_log(ATOM_LOG_WARN, "%s", atom_fail_message());
    atom_free(path);
}

/* What passed since it was counted last. */
static void count(gsp_pool *p)
{
    gsp_net_stats s;
    gsp_net_read_stats(p->net, &s);
    gsp_quota_count(&p->quota, atom_wall_seconds(), s.wire_bytes_sent - p->counted_up,
                    s.wire_bytes_received - p->counted_down);
    p->counted_up = s.wire_bytes_sent;
    p->counted_down = s.wire_bytes_received;
}

static void begin_rest(gsp_pool *p)
{
    char used[160], when[32] = "";
    time_t ends = (time_t)gsp_quota_ends(atom_wall_seconds());
    struct tm t;
    if (localtime_r(&ends, &t))
        (void)strftime(when, sizeof when, "%Y-%m-%d", &t);
    gsp_quota_text(&p->quota, used, sizeof used);
    gsp_diary_add(&p->diary, "\"event\":\"month_spent\",\"sent\":%llu,\"received\":%llu",
                  (unsigned long long)p->quota.up, (unsigned long long)p->quota.down);
    gsp_headline_say(&p->headline, GSP_POOL_RUNNING, "resting until %s: %s", when, used);
    atomic_store(&p->rests, true);
    life_snapshot(p);
    life_links_end(p);
    save(p);
}

bool life_month_step(gsp_pool *p)
{
    uint64_t now = atom_clock_ns();
    if (now >= p->month_count_ns) {
        p->month_count_ns = now + COUNT_NS;
        count(p);
    }
    if (now >= p->month_save_ns) {
        p->month_save_ns = now + SAVE_NS;
        save(p);
    }
    bool spent = gsp_quota_spent(&p->quota), rests = atomic_load(&p->rests);
    if (spent && !rests && p->driver)
        begin_rest(p);
    if (!spent && rests) {
        atomic_store(&p->rests, false);
        gsp_diary_add(&p->diary, "\"event\":\"month_begins\"");
        gsp_headline_say(&p->headline, GSP_POOL_RUNNING, "taking part");
    }
    return atomic_load(&p->rests);
}

atom_status life_month_rest(gsp_pool *p)
{
    gsp_net_event event;
    ATOM_TRY(gsp_net_next(p->net, REST_NS, &event));
    if (event.kind == GSP_NET_UP)
        gsp_net_drop(p->net, event.key); /* it came in before it could know */
    gsp_net_free(p->net, event.data);
    life_obey(p);
    life_snapshot_step(p);
    return ATOM_OK;
}

void life_month_close(gsp_pool *p)
{
    if (!p->net || !p->quota.month)
        return;
    count(p);
    save(p);
}
