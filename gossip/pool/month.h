/*
 * A host's bytes of this calendar month (quota.h): counts what passes the net, keeps the count on
 * disk, and says when a cap is reached. What a host does then is the pool's business.
 *
 * Thread: one at a time (the pool's).
 */
#ifndef GOSSIP_POOL_MONTH_H
#define GOSSIP_POOL_MONTH_H

#include "gossip/net/net.h"
#include "gossip/pool/quota.h"

typedef struct gsp_month {
    gsp_quota quota;
    char *path; /* of the file; NULL: not open */
    uint64_t counted_up, counted_down;
    uint64_t count_ns, save_ns; /* when next */
} gsp_month;

/* Caps: 0 is none. A damaged file is logged, and the month begins at zero. No memory: the month is
 * counted, not kept. */
void gsp_month_open(gsp_month *month, const char *directory, uint64_t up_max, uint64_t down_max);
/* Counts and keeps, now and then. True: a cap is reached. */
bool gsp_month_step(gsp_month *month, gsp_net *net);
void gsp_month_save(const gsp_month *month);
/* Counts what is left to count. net NULL: there is nothing. */
void gsp_month_close(gsp_month *month, gsp_net *net);

#endif
