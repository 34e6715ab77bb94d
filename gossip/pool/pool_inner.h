/*
 * The whole: a host's life in a pool, put together from parts. Each part is a struct with a header
 * of its own that knows nothing of this one; the files named pool_*.c know the whole and call the
 * parts in order. They call each other downwards only:
 *
 *   pool_create.c  pool_join.c  pool_run.c   the beginnings; the thread
 *   pool_get.c                               what the caller waits for: files, data, notes
 *   pool.c  pool_step.c                      opening, closing; what is done now and then
 *   pool_owner.c  pool_status.c              orders and tickets; what is shown, and asked
 *   pool_talk.c                              events of the net, words of others
 *   pool_admit.c                             those about who comes in
 *   pool_self.c                              what this host says of itself
 *   the parts: door links book reach seek month notes files data headline diary errands status
 *   dir words ...
 *
 * Thread: until gsp_pool_start everything is the caller's; after it everything is the pool's
 * thread's, but what is atomic, what stands under `lock`, and what a part's header says is for any
 * thread (door, headline, errands).
 */
#ifndef GOSSIP_POOL_POOL_INNER_H
#define GOSSIP_POOL_POOL_INNER_H

#include "gossip/net/net_nanomsg.h"
#include "gossip/net/probe.h"
#include "gossip/pool/address_book.h"
#include "gossip/pool/control.h"
#include "gossip/pool/control_orders.h"
#include "gossip/pool/credits.h"
#include "gossip/pool/data.h"
#include "gossip/pool/denials.h"
#include "gossip/pool/dir.h"
#include "gossip/pool/door.h"
#include "gossip/pool/event_log.h"
#include "gossip/pool/files.h"
#include "gossip/pool/headline.h"
#include "gossip/pool/links.h"
#include "gossip/pool/manifest_ask.h"
#include "gossip/pool/month.h"
#include "gossip/pool/notes.h"
#include "gossip/pool/pause.h"
#include "gossip/pool/pool.h"
#include "gossip/pool/reach.h"
#include "gossip/pool/seek.h"
#include "gossip/pool/words.h"
#include "gossip/swarm/swarm.h"

#include <pthread.h>
#include <stdatomic.h>

struct gsp_pool {
    gsp_pool_host host; /* texts are ours */
    char *directory;
    int lock_fd; /* of directory/lock, held; -1 */
    char name[GSP_WORD_NAME_BYTES];

    gsp_net *net;
    gsp_door door;
    gsp_links links;
    gsp_address_book book;
    gsp_reach reach;
    gsp_seek seek;
    gsp_denials denials;
    gsp_manifest_ask manifest_ask;
    gsp_month month;
    gsp_credits credits;
    gsp_notes *notes;
    gsp_files *files;
    gsp_headline headline;
    gsp_event_log diary;
    gsp_control_orders errands;
    gsp_probe_server *probe;
    gsp_control *control;

    uint64_t step_ns, ask_ns, renew_ns, key_ns, snapshot_ns; /* when to do it next */
    uint64_t warn_ns;     /* of an admission that nobody renews: next; 0: there was no need */
    uint64_t twin_ns;     /* since when others say that a twin is there, and nobody lets us in; 0 */
    bool was_admitted;    /* as a guest: all links have to be made anew */
    bool ticket_is_old;   /* of a delegate: gsp_pool_renew_ticket */
    uint32_t shown_bytes; /* of what the gate shows (gsp_door_shows) */
    uint32_t refusals;    /* words that were not heard */
    bool no_favours;      /* the month's bytes are for ourselves now */

    /* Data. */
    gsp_data data;

    /* Taking part. */
    gsp_node *node; /* NULL before the start */
    char *memory;   /* the node's directory; it keeps the pointer */
    gsp_rates rates;
    uint64_t said_samples, said_tokens, base_samples;
    bool summed; /* contributions are pieces of one sum (gsp_work.ready) */
    uint64_t seen_version, counted_version;
    gsp_roster counted_roster; /* R(counted_version + 1) */
    gsp_hash seen_lineage;
    uint32_t seen_bans;
    bool said_waits;     /* for a quorum */
    uint64_t leaving_ns; /* since when we say goodbye; 0: not */
    double started_s;

    pthread_t thread;
    bool has_thread;
    atomic_bool stop, leave, paused, asked_stop;
    atomic_bool ended;   /* the thread is over */
    atomic_bool no_room; /* the thread waits in a write, until the disk has room */
    double no_room_s;    /* since when */
    atomic_uint_fast64_t samples, tokens;
    bool muted; /* this host, as its user was told */

    pthread_mutex_t lock;   /* of what follows */
    pthread_cond_t changed; /* `ended` */
    gsp_pool_status *status;
    char rest[GSP_POOL_REST_BYTES]; /* why the trainer waits; "": it does not */
    atom_status end;                /* why the thread ended */
    char end_text[GSP_POOL_WHY_BYTES];
    char room_text[GSP_POOL_WHY_BYTES]; /* while no_room */
};

/* ---- pool_self.c ---- */

/* Our contact is made anew and said. */
void gsp_pool_renew_contact(gsp_pool *p);
/* Keys or credential are new. */
void gsp_pool_rekey(gsp_pool *p);
/* Says HELLO. */
void gsp_pool_greet(gsp_pool *p, gsp_link *link);
void gsp_pool_greet_all(gsp_pool *p);
/* A contact that was judged good, from wherever; from NULL: nobody sent it. */
void gsp_pool_found(void *pool, const gsp_contact *contact, const gsp_address *from);

/* ---- pool_talk.c ---- */

/* An event of the net. True: a message was taken; the caller frees it nonetheless. */
bool gsp_pool_take(gsp_pool *p, const gsp_net_event *event);
/* Tells the door which members are heard. */
void gsp_pool_show_present(gsp_pool *p);
/* The door has adopted a manifest: says so to everybody. */
void gsp_pool_tell_manifest(gsp_pool *p);

/* ---- pool_admit.c ---- */

/* Somebody asks to be admitted, or passes such a question on. */
void gsp_pool_asked_in(gsp_pool *p, gsp_link *from, const gsp_word *m);
/* An answer to such a question, ours or one that is to be passed on; or that we are a delegate. */
void gsp_pool_answered_in(gsp_pool *p, gsp_link *from, const gsp_word *m);
/* A member does not let us in. The owner's word is the last one, anybody else's is one of many. */
void gsp_pool_refused_in(gsp_pool *p, const uint8_t *by, const gsp_address *at, bool owners,
                         gsp_refusal refusal);
/* A delegate that has been banned since let it in, and nobody has shown us another admission of it. */
bool gsp_pool_is_void(gsp_pool *p, const gsp_link *link);
/* The owner: tells a delegate of its delegation. False: it is not linked, or the link is full now. */
bool gsp_pool_tell_delegation(gsp_pool *p, const uint8_t *key);
/* The same, if it does not show it yet. */
void gsp_pool_remind_delegate(gsp_pool *p, const gsp_link *link);

/* ---- pool_owner.c ---- */

ATOM_MUST atom_status gsp_pool_new_ticket(gsp_pool *p, uint32_t count, double days);
/* For as many hosts and days as this host's settings say. */
ATOM_MUST atom_status gsp_pool_usual_ticket(gsp_pool *p);
ATOM_MUST atom_status gsp_pool_refresh_ticket(gsp_pool *p);
/* The book of invites and the ticket, where this host is the owner or a delegate. */
ATOM_MUST atom_status gsp_pool_load_owner(gsp_pool *p);
/* A delegate has a new delegation or a new key: it opens its book, and makes its ticket anew; or its
 * delegation has ended: it has none. */
void gsp_pool_renew_ticket(gsp_pool *p);
/* Does what the control socket ordered. */
void gsp_pool_obey(gsp_pool *p);

/* ---- pool_status.c ---- */

void gsp_pool_snapshot(gsp_pool *p);
void gsp_pool_snapshot_step(gsp_pool *p); /* now and then */
/* That this host has trained, in this and in earlier runs; where contributions are pieces of one sum,
 * those of its that certificates counted. */
uint64_t gsp_pool_own_tokens(const gsp_pool *p);
/* Answers a control request, on the control's thread. */
char *gsp_pool_answer(void *pool, const char *request);

/* ---- pool_step.c ---- */

/* Everything that is due; call often. */
void gsp_pool_step(gsp_pool *p);
/* Ends all links and dials nobody, until the next gsp_pool_step. */
void gsp_pool_end_links(gsp_pool *p);
/* What was tried to find a member becomes the headline. */
void gsp_pool_say_seeking(gsp_pool *p);
/* Looks what the router says. */
void gsp_pool_look_at_router(gsp_pool *p);

/* ---- pool.c ---- */

/* Makes the object: the directory and its lock, identity, texts of the host. */
ATOM_MUST atom_status gsp_pool_make(const gsp_pool_host *host, gsp_pool **out);
/* Opens net, book, router and control socket, with keys and credential as they are. */
ATOM_MUST atom_status gsp_pool_open_net(gsp_pool *p);
/* Closes what failed to open, and keeps the message; returns st. */
atom_status gsp_pool_close_after(gsp_pool **pool, atom_status st);

/* ---- pool_get.c ---- */

/* Turns the net for a while, as the pool's thread does later. */
ATOM_MUST atom_status gsp_pool_wait(gsp_pool *p, uint64_t ns, gsp_pool_watch *watch, void *context);

#endif
