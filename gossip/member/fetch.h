/*
 * A joiner's side of the transfer of state (docs/design/pool.md#joining): it asks every peer which
 * state it holds, chooses what to believe (transfer.h), fetches chunks from all donors at once
 * (swarm.h decides from whom), and hands the whole to the work. To adopt it is the node's business.
 *
 * Thread: the member's. Errors: those of the work, the disk and the memory.
 */
#ifndef GOSSIP_MEMBER_FETCH_H
#define GOSSIP_MEMBER_FETCH_H

#include "gossip/member/friends.h"
#include "gossip/member/transfer.h"
#include "gossip/member/work.h"

typedef struct gsp_fetch gsp_fetch;

/* Of all fetches of a member. */
typedef struct gsp_fetch_counts {
    uint64_t bytes, all_bytes; /* of the fetch in progress: here and checked, and of all */
    uint64_t wrong;            /* chunks and roots that were not what they claimed to be */
    uint64_t repeated_bytes;
} gsp_fetch_counts;

/* What a fetch uses; the pointers stay as they are until it is closed. */
typedef struct gsp_fetch_config {
    gsp_friends *friends;
    const gsp_work *work;
    uint32_t n_fragments;
    const char *directory;
    const gsp_chain_terms *terms;
    gsp_fetch_counts *counts;
} gsp_fetch_config;

/* Wants the state that a chain leads to, which is copied. NULL: no memory. */
gsp_fetch *gsp_fetch_open(const gsp_fetch_config *config, const gsp_chain *chain);
/* The chain has grown. False: it leads to another lineage, which takes another fetch. */
ATOM_MUST bool gsp_fetch_follow(gsp_fetch *fetch, const gsp_chain *chain);
/* Somebody is where the chain does not lead yet: its chain is to be asked for. */
ATOM_MUST bool gsp_fetch_lags(gsp_fetch *fetch, gsp_key *whom);
/* NULL is fine. What has come stays on disk. */
void gsp_fetch_close(gsp_fetch **fetch);

/* STATE_ROOTS, STATE_CHUNK or STATE_NONE came. */
ATOM_MUST atom_status gsp_fetch_heard(gsp_fetch *fetch, const gsp_friend *from,
                                      const gsp_message *message, const void *body);
/* A peer's link is down. */
void gsp_fetch_down(gsp_fetch *fetch, const gsp_key *key);

typedef enum gsp_fetch_news {
    GSP_FETCH_WAITS, /* for others */
    GSP_FETCH_GOES,  /* there is more to do at once */
    GSP_FETCH_WHOLE, /* all of it is with the work: gsp_fetch_saved is to be adopted */
    GSP_FETCH_ENDS,  /* nothing came for long, or it is not needed any more */
} gsp_fetch_news;

/* Does some of what is waiting. applying: the work takes nothing in now. */
ATOM_MUST atom_status gsp_fetch_work(gsp_fetch *fetch, bool applying, gsp_fetch_news *news);
/* The state that is whole. */
const gsp_saved *gsp_fetch_saved(const gsp_fetch *fetch);
/* How far it is, in plain words; returns text. */
const char *gsp_fetch_explain(const gsp_fetch *fetch, char *text, size_t bytes);

#endif
