/*
 * Owns the pauses between questions for a manifest. Its one idea: only what came wrong makes the next
 * question later; silence does not, since somebody else is asked then. It refuses to say the same
 * twice, or anything more often than once a minute.
 */
#include "gossip/pool/manifest_ask.h"

#include <stdio.h>
#include <string.h>

static const uint64_t FIRST_NS = 1000000000u, MOST_NS = 60000000000u;

bool gsp_manifest_ask_now(gsp_manifest_ask *a, uint64_t now)
{
    if (now < a->due_ns)
        return false;
    a->pause_ns = a->pause_ns ? a->pause_ns : FIRST_NS;
    a->due_ns = now + a->pause_ns;
    a->waits = true;
    return true;
}

bool gsp_manifest_ask_failed(gsp_manifest_ask *a, const char *why, uint64_t now)
{
    if (a->waits) {
        a->waits = false;
        a->pause_ns = 2 * a->pause_ns < MOST_NS ? 2 * a->pause_ns : MOST_NS;
        a->due_ns = now + a->pause_ns;
    }
    bool same = strncmp(a->why, why, sizeof a->why - 1) == 0;
    if (same || (a->said_ns && now - a->said_ns < MOST_NS))
        return false;
    snprintf(a->why, sizeof a->why, "%s", why);
    a->said_ns = now;
    return true;
}
