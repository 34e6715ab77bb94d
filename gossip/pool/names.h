/*
 * What the names mean that a host announces: looked up again every few minutes, because the address of a
 * home's line changes while its name (of a dynamic DNS) stays. A look-up may take as long as the resolver
 * wants, so it has a thread of its own, and nobody waits for it: not even the end.
 *
 * Thread: its own; all functions from one other at a time. Errors: a name that cannot be looked up keeps
 * what it meant before.
 */
#ifndef GOSSIP_POOL_NAMES_H
#define GOSSIP_POOL_NAMES_H

#include "gossip/gate/net_address.h"
#include "gossip/trust/ticket.h"

enum { GSP_NAMES_SECONDS = 300 }; /* between two looks */

/* What a name means. */
typedef struct gsp_meant {
    uint32_t n; /* 0: it is not known */
    gsp_address at[GSP_TICKET_HOSTS_MAX];
} gsp_meant;

typedef struct gsp_names gsp_names;

/* Looks n names up: each[i] is what name i means now, or stays as it is where that is not known, which is
 * logged. May block for seconds. */
void gsp_names_look(const char *const *name, uint32_t n, gsp_meant *each);
/* All addresses of n names, in their order. */
void gsp_names_all(const gsp_meant *each, uint32_t n, gsp_meant *out);
/* Begins to look again at n names (copied), of which each[i] is known already. *out NULL: all of them are
 * addresses, which mean the same for ever. period_s 0: GSP_NAMES_SECONDS. ATOM_E_RESOURCE: no memory, no
 * thread. */
ATOM_MUST atom_status gsp_names_open(const char *const *name, uint32_t n, const gsp_meant *each,
                                     double period_s, gsp_names **out);
/* NULL is fine. */
void gsp_names_close(gsp_names **names);
/* True: all of them mean something else since the last call (or since the beginning), which *out is. */
bool gsp_names_changed(gsp_names *names, gsp_meant *out);

#endif
