/*
 * events.jsonl: what happened to a host in its pool, a line of JSON each. At 32 MiB it becomes
 * events.jsonl.1 and a new one begins. A diary only: what cannot be written is lost.
 *
 * Thread: one at a time; nothing here is locked.
 */
#ifndef GOSSIP_POOL_EVENT_LOG_H
#define GOSSIP_POOL_EVENT_LOG_H

#include "atom/base/status.h"

#include <stdint.h>
#include <stdio.h>

typedef struct gsp_event_log {
    const char *directory; /* borrowed; zeros beside it are a closed diary */
    FILE *file;
    uint64_t bytes;
} gsp_event_log;

/* Adds a line; fmt makes the JSON that follows the time: "\"event\":\"up\"". */
void gsp_event_log_add(gsp_event_log *diary, const char *fmt, ...) ATOM_PRINTF(2, 3);
void gsp_event_log_close(gsp_event_log *diary);

#endif
