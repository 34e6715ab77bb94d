/*
 * What atom pool selftest looks at on this host, one finding per line. A finding is good, a note
 * (it works, but could be better) or bad (this host cannot take part); the last two say what to
 * change, as a command where there is one. Thread: the main thread only.
 */
#ifndef TOOLS_POOL_CMD_POOL_SELFTEST_H
#define TOOLS_POOL_CMD_POOL_SELFTEST_H

#include "tools/cli.h"

#include "gossip/net/probe.h"

typedef enum pool_state { POOL_GOOD, POOL_NOTE, POOL_BAD } pool_state;

enum { POOL_FINDINGS_MAX = 24, POOL_TEXT_BYTES = 240, POOL_FIX_BYTES = 480 };

typedef struct pool_finding {
    const char *name;
    pool_state state;
    char text[POOL_TEXT_BYTES]; /* what was found */
    char fix[POOL_FIX_BYTES];   /* what to do; lines; "" where nothing is to be done */
} pool_finding;

typedef struct pool_findings {
    pool_finding finding[POOL_FINDINGS_MAX];
    uint32_t n;
    bool short_of_disk; /* the bad one is the disk: exit code 4 */
} pool_findings;

/* A fresh finding; its text and fix are printf'd by pool_finding_say and pool_finding_fix. */
pool_finding *pool_find(pool_findings *to, const char *name, pool_state state);
void pool_finding_say(pool_finding *finding, const char *fmt, ...) ATOM_PRINTF(2, 3);
void pool_finding_fix(pool_finding *finding, const char *fmt, ...)
    ATOM_PRINTF(2, 3); /* adds a line */

/* Where an address is good for. */
typedef enum pool_reach {
    POOL_HERE,    /* loopback, link-local */
    POOL_PRIVATE, /* RFC 1918, fc00::/7 */
    POOL_SHARED,  /* 100.64.0.0/10: the provider's own NAT */
    POOL_GLOBAL,
} pool_reach;
pool_reach pool_reach_of(const gsp_address *address);
/* The addresses of this host that are not loopback or link-local, global ones first; returns how
 * many. Ports are 0. */
uint32_t pool_addresses(gsp_address *out, uint32_t n_max);

/* The local findings. bytes_per_s and rtt_s: of the way to a peer, 0 where it is not known. */
void pool_check_addresses(pool_findings *to, uint16_t port, const gsp_probe_result *peer);
void pool_check_buffers(pool_findings *to, double bytes_per_s, double rtt_s);
void pool_check_clock(pool_findings *to, const gsp_probe_result *peer);
void pool_check_files(pool_findings *to);
void pool_check_disk(pool_findings *to, const char *dir);

#endif
