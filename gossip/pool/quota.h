/*
 * How many bytes a host has sent and received in a calendar month, and may
 * (docs/design/pool.md#what-the-user-sees: upload and download caps per month). Months are those of
 * the host's clock and time zone, as providers count them. Kept in a small file, so that restarts
 * do not forget; a process that is killed forgets the last ten seconds at most.
 *
 * Thread: none of its own. Errors: status.h.
 */
#ifndef GOSSIP_POOL_QUOTA_H
#define GOSSIP_POOL_QUOTA_H

#include "atom/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct gsp_quota {
    uint32_t month;            /* 202611 */
    uint64_t up, down;         /* bytes in it */
    uint64_t up_max, down_max; /* 0: no cap */
    double behind_s;           /* since when the clock says an earlier month; 0: it does not. Not kept */
} gsp_quota;

/* The month of a time since 1970. */
uint32_t gsp_quota_month(double wall_s);
/* Seconds since 1970 when the month ends. */
double gsp_quota_ends(double wall_s);
/* What is kept of this month. A file that is missing or of another month counts as nothing.
 * ATOM_E_FORMAT  it is damaged (then nothing is known: *quota has the caps and zeros) */
ATOM_MUST atom_status gsp_quota_load(const char *path, double wall_s, gsp_quota *quota);
ATOM_MUST atom_status gsp_quota_save(const char *path, const gsp_quota *quota);
/* Counts bytes at a time; a new month begins at zero. A clock that goes back to an earlier month gives
 * nothing back; after it has gone on there for five minutes the count is of that month (if there were pools then), with all its
 * bytes, so a date far in the future that was corrected does not hold for years. */
void gsp_quota_count(gsp_quota *quota, double wall_s, uint64_t up, uint64_t down);
/* More than a quarter of every cap is left: enough to do others a favour (relays, probes). */
bool gsp_quota_has_spare(const gsp_quota *quota);
/* A cap is reached. */
bool gsp_quota_spent(const gsp_quota *quota);
/* "5.0 GB of 5.0 GB sent, 2.1 GB received this month". */
const char *gsp_quota_text(const gsp_quota *quota, char *text, size_t bytes);

#endif
