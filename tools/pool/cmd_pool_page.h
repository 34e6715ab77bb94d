/*
 * A page that shows a pool, for people, and its numbers for Prometheus
 * (docs/design/pool.md#what-the-user-sees). It looks at what a
 * running host says on its control socket and at the files that it writes; it can change nothing.
 * Only GET, only for requests that name this very address in Host (a page of somebody else cannot read it
 * through the browser), at most 16 connections of 10 seconds.
 *
 *   /             the page
 *   /status.json  what `atom pool status --json` prints, but without mode and mode_text
 *   /rounds.json  [{version, contributors, roster, tokens, round_s, wall_s}], thinned to 4096
 *   /steps.json   [{tokens, loss, wall_s}] of this host, thinned likewise
 *   /events.jsonl the last of the events
 *   /metrics      Prometheus text format 0.0.4
 *
 * Thread: its own; open and close from one.
 */
#ifndef TOOLS_POOL_CMD_POOL_PAGE_H
#define TOOLS_POOL_CMD_POOL_PAGE_H

#include "atom/atom.h"

typedef struct pool_web pool_web;

/*
 * directory: the pool's (gossip/pool/pool.h); run: where metrics.jsonl lies. listen:
 * "127.0.0.1:4480"; port 0: any. Errors  ATOM_E_USAGE  not an address of this host, or in use;
 * ATOM_E_RESOURCE
 */
ATOM_MUST atom_status pool_web_open(const char *directory, const char *run, const char *listen,
                                    pool_web **out);
void pool_web_close(pool_web **web);
/* "http://127.0.0.1:4480/" */
const char *pool_web_url(const pool_web *web);

#endif
