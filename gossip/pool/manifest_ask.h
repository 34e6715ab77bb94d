/*
 * When a host asks for the pool's manifest, and what was wrong with the one that came. A manifest that
 * cannot be read is mostly one of a newer program, so asking again each second helps nobody: the
 * pause grows from a second to a minute, and what is wrong is said once.
 *
 * Pure: the clock is an argument. Thread: one at a time per object. Zeros: nothing was asked yet.
 */
#ifndef GOSSIP_POOL_MANIFEST_ASK_H
#define GOSSIP_POOL_MANIFEST_ASK_H

#include <stdbool.h>
#include <stdint.h>

enum { GSP_MANIFEST_WHY_BYTES = 256 };

typedef struct gsp_manifest_ask {
    uint64_t due_ns, pause_ns; /* when to ask next; what passes until the time after that */
    uint64_t said_ns;          /* when a failure was said last */
    bool waits;                /* asked, and nothing wrong has come since */
    char why[GSP_MANIFEST_WHY_BYTES];
} gsp_manifest_ask;

/* True: it is time to ask, and this counts as asking. */
bool gsp_manifest_ask_now(gsp_manifest_ask *ask, uint64_t now_ns);
/* What came is not to be used. Only the first such answer to a question makes the pause longer, so
 * nobody does that unasked. True: it is worth saying. */
bool gsp_manifest_ask_failed(gsp_manifest_ask *ask, const char *why, uint64_t now_ns);

#endif
