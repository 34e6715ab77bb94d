/*
 * How a host finds its first member: it dials the hosts that the ticket names, looks their names up
 * again with longer and longer pauses while nobody is linked, and remembers what came of it for the
 * sentence that people read.
 *
 * Thread: one at a time (the pool's).
 */
#ifndef GOSSIP_POOL_SEEK_H
#define GOSSIP_POOL_SEEK_H

#include "gossip/net/net.h"
#include "gossip/trust/ticket.h"

/* "name:port", with "plain+" before it where the pool has no gate. */
typedef struct gsp_hosts {
    uint32_t n;
    char host[GSP_TICKET_HOSTS_MAX][GSP_TICKET_HOST_BYTES];
} gsp_hosts;

typedef struct gsp_tried {
    char host[GSP_TICKET_HOST_BYTES], why[128]; /* why "": nothing is wrong so far */
    gsp_address at[GSP_NET_ADDRESSES_MAX];
    uint32_t n;
} gsp_tried;

typedef struct gsp_seek {
    gsp_net *net;           /* borrowed */
    const gsp_hosts *hosts; /* borrowed */
    /* The ticket's hosts; the last one is the newest of all others that refused us. */
    gsp_tried tried[GSP_TICKET_HOSTS_MAX + 1];
    uint64_t look_ns, pause_ns; /* when to look names up again; 0: somebody is linked */
    bool shut; /* one of the ticket's hosts closed the connection in the handshake */
    bool news; /* the sentence is another than it was: whoever says it clears this */
} gsp_seek;

/* Dials the hosts now; resolves their names, which may block. */
void gsp_seek_dial(gsp_seek *seek);
/* Dials again when it is time. linked: somebody is. */
void gsp_seek_step(gsp_seek *seek, bool linked, uint64_t now_ns);
/* A dial came to nothing (GSP_NET_REFUSED). */
void gsp_seek_refused(gsp_seek *seek, const gsp_net_event *event);
/* "looking for a member; tried a:1 (why), b:2 (why)", cut where it is too long; before "tried" what
 * to do where the ticket seems to be void. */
const char *gsp_seek_text(const gsp_seek *seek, char *text, size_t bytes);

#endif
