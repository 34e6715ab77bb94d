/*
 * What the files of a host's life share: pool.c (opening, the thread, reports), pool_dir.c (what
 * is on disk), pool_create.c and pool_join.c (the two beginnings), pool_talk.c (words of others),
 * pool_seek.c (the first member), pool_links.c (whom to dial, contacts), pool_files.c (serving and
 * fetching), pool_notes.c (small texts for each other), pool_month.c (bytes per month),
 * pool_owner.c (admitting, banning, rotating), pool_status.c (what is shown). Nobody else includes
 * it.
 *
 * Thread: until gsp_pool_start all is the caller's; after it the pool's thread has everything but
 * what stands under `lock` or is atomic.
 */
#ifndef GOSSIP_POOL_POOL_INNER_H
#define GOSSIP_POOL_POOL_INNER_H

#include "gossip/directory/directory.h"
#include "gossip/directory/lan.h"
#include "gossip/directory/peers.h"
#include "gossip/net/net_nanomsg.h"
#include "gossip/net/portmap.h"
#include "gossip/net/probe.h"
#include "gossip/pool/control.h"
#include "gossip/pool/diary.h"
#include "gossip/pool/dir.h"
#include "gossip/pool/headline.h"
#include "gossip/pool/links.h"
#include "gossip/pool/notes.h"
#include "gossip/pool/pool.h"
#include "gossip/pool/words.h"
#include "gossip/swarm/swarm.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

enum {
    POOL_OPEN_MAX = 8, /* files of data that are open to be given */
    POOL_ADMITTED_DAYS = 30,
    POOL_INVITED_DAYS = 30,
    POOL_INVITE_COUNT = 1000,
    POOL_OLD_KEY_SECONDS = 24 * 3600, /* a rotated key still opens the door for members */
};

/* What a control request wants done on the pool's thread. */
typedef enum pool_order_kind {
    POOL_ORDER_NONE,
    POOL_ORDER_INVITE,
    POOL_ORDER_BAN,
    POOL_ORDER_ROTATE,
} pool_order_kind;

typedef struct pool_order {
    pool_order_kind kind;
    uint8_t key[GSP_PUBLIC_BYTES];
    uint32_t count;
    double days;
    bool done;
    atom_status st;
    char text[GSP_TICKET_TEXT_BYTES]; /* the answer: a ticket, or what is wrong */
} pool_order;

/* A download in progress (pool_files.c). */
typedef struct pool_fetch pool_fetch;
/* The data set on its way in (pool_data.c). */
typedef struct pool_haul pool_haul;

struct gsp_pool {
    gsp_pool_host host; /* texts are ours */
    char *directory;
    int lock_fd; /* of directory/lock, held; -1 */
    char name[GSP_WORD_NAME_BYTES];
    gsp_identity identity;
    gsp_manifest *manifest;
    char *manifest_text;
    bool has_manifest;
    uint8_t pool[GSP_POOL_BYTES], owner[GSP_PUBLIC_BYTES];
    bool plain;
    uint32_t n_hosts; /* the ticket's: where to begin */
    char hosts[GSP_TICKET_HOSTS_MAX][GSP_TICKET_HOST_BYTES];
    struct {
        char host[GSP_TICKET_HOST_BYTES], why[128];
        gsp_address at[GSP_NET_ADDRESSES_MAX];
        uint32_t n;
    } tried[GSP_TICKET_HOSTS_MAX + 1]; /* the ticket's hosts, and the last of all others */
    uint64_t seek_ns, seek_pause_ns;   /* when to look them up again, while nobody is linked */

    uint8_t psk[GSP_PSKS_MAX][GSP_PSK_BYTES];
    uint32_t n_psks;
    uint64_t rotated_s; /* the newest key's beginning; older invites are void */
    uint8_t credential[GSP_CREDENTIAL_BYTES_MAX];
    uint32_t credential_bytes;
    bool is_guest; /* the credential is an invite */
    uint64_t admitted_s, expires_s;
    gsp_ledger *ledger; /* the owner's */
    char ticket[GSP_TICKET_TEXT_BYTES];

    gsp_net *net;
    uint16_t port;
    gsp_peers *peers;
    gsp_lan *lan;
    gsp_directory *nodes;
    gsp_probe_server *probe;
    gsp_links links;
    gsp_address announced[GSP_NET_ADDRESSES_MAX]; /* host.announce, resolved */
    uint32_t n_announced;
    gsp_address seen; /* this host, as others see it; zeros: nobody said */
    gsp_portmap *router;
    gsp_address outside; /* that the router forwards; zeros: none */
    bool router_told;
    uint32_t router_changes;
    uint64_t router_ns;
    gsp_contact contact;
    bool contact_changed;
    bool book_changed; /* somebody is new: on disk soon, for who is killed finds the others by it */
    uint64_t saved_ns; /* the book */
    uint64_t step_ns, contact_ns, book_ns, ask_ns, renew_ns, lan_ns, snapshot_ns;
    pool_fetch *fetch;
    gsp_notes *notes;
    pool_haul *haul;
    char *data_dir;                          /* where data lies; NULL: this host has none to give */
    bool data_whole[GSP_MANIFEST_FILES_MAX]; /* of the manifest's files: in data_dir, checked */
    struct {
        gsp_pieces *pieces; /* NULL: free */
        uint32_t file;
        uint64_t used_ns;
    } open[POOL_OPEN_MAX];
    uint64_t piece_ns; /* when one was given last */
    uint32_t give_turn;
    bool was_admitted; /* as a guest: all links have to be made anew */

    /* How joining stands. */
    gsp_headline headline;
    uint32_t refusals;

    gsp_diary diary;

    /* Taking part. */
    gsp_node *driver;
    char *memory; /* the member's directory; it keeps the pointer */
    pthread_t thread;
    bool has_thread;
    gsp_rates rates;
    atomic_bool stop, leave;
    atomic_bool paused, asked_stop;
    atomic_bool ended; /* the thread is over */
    atomic_uint_fast64_t samples, tokens;
    uint64_t said_samples, said_tokens, base_samples;
    uint64_t seen_version;
    gsp_quota quota;
    uint64_t counted_up, counted_down, month_count_ns, month_save_ns;
    atomic_bool rests; /* a cap of the month is reached */
    bool said_waits;   /* for a quorum */
    uint32_t seen_bans;
    gsp_hash seen_lineage;
    uint64_t leaving_ns; /* since when we say goodbye; 0: not */
    double started_s;

    gsp_control *control;
    pthread_mutex_t lock; /* of what follows, and of manifest's bans where the gate asks */
    pthread_cond_t answered;
    bool has_lock;
    gsp_pool_status *status;
    pool_order order;
    atom_status end; /* why the thread ended */
    char end_text[GSP_POOL_WHY_BYTES];
};

/* pool.c */
/* Once for links, contacts, files, LAN and directory; call often. */
void life_step(gsp_pool *p);
/* Makes the object: lock on the directory, identity, texts of the host. */
ATOM_MUST atom_status life_make(const gsp_pool_host *host, gsp_pool **out);
/* Opens net, book of peers, LAN, directory, with keys and credential as they are. */
ATOM_MUST atom_status life_open_net(gsp_pool *p);
void life_who(gsp_pool *p, gsp_handshake_config *out);
/* The keys or the credential are new. */
void life_rekey(gsp_pool *p);
/* Takes a newer manifest with its key (psk NULL: not given); tells others. */
ATOM_MUST atom_status life_adopt(gsp_pool *p, const gsp_manifest *next, const char *text,
                                 const uint8_t *psk);

/* pool_dir.c */
ATOM_MUST atom_status life_save_keys(const gsp_pool *p);
ATOM_MUST atom_status life_load_keys(gsp_pool *p);
ATOM_MUST atom_status life_save_manifest(const gsp_pool *p);
ATOM_MUST atom_status life_load_manifest(gsp_pool *p);
ATOM_MUST atom_status life_save_admission(const gsp_pool *p);
/* False: there is none, or it is of no use any more. */
bool life_load_admission(gsp_pool *p);
/* pool_bans.c: an event for each member that was banned since; the newest of them. */
void life_watch_bans(gsp_pool *p);
struct json_t *life_bans_json(const gsp_node_status *status);

/* pool_talk.c */
/* An event of the net. True: a message was taken; the caller frees it nonetheless. */
bool life_take(gsp_pool *p, const gsp_net_event *event);
void life_greet(gsp_pool *p, gsp_link *link);
void life_greet_all(gsp_pool *p);
void life_ask_admission(gsp_pool *p);

/* pool_links.c */
void life_links_step(gsp_pool *p, uint64_t now_ns);
void life_known(gsp_pool *p, const gsp_contact *contact, const gsp_address *from);
/* Where others should dial us. */
uint32_t life_own_addresses(const gsp_pool *p, gsp_address *out, uint32_t n_max);
void life_contact_renew(gsp_pool *p);
/* Ends all links, so that they are made anew with another credential. */
void life_links_drop(gsp_pool *p);
/* Ends all links and wishes for links; life_links_step dials again. */
void life_links_end(gsp_pool *p);

/* pool_seek.c */
/* Dials whoever answers at the ticket's hosts; resolves, may block. */
void life_seek(gsp_pool *p);
void life_seek_step(gsp_pool *p, uint64_t now_ns);
void life_seek_refused(gsp_pool *p, const gsp_net_event *event);
/* What was tried and what came of it, as the text of the stage. */
void life_seek_say(gsp_pool *p);

/* pool_files.c */
void life_file_asked(gsp_pool *p, gsp_link *from, const gsp_word *m);
void life_file_came(gsp_pool *p, gsp_link *from, const gsp_word *m);
void life_files_step(gsp_pool *p, uint64_t now_ns);
/* Who may be asked for files and data: members that are linked and gave no wrong file; only != NULL:
 * this one alone. */
void life_donors(gsp_links *links, gsp_swarm *swarm, const uint8_t *only, uint64_t now_ns);
ATOM_MUST atom_status life_file_hash(const char *path, uint64_t *bytes, gsp_hash *hash);
/* Until the file is here and checked; turns the net meanwhile (life_wait). */
ATOM_MUST atom_status life_file_fetch(gsp_pool *p, const gsp_manifest_file *file,
                                      gsp_pool_watch *watch, void *context);

/* pool_give.c */
void life_pieces_asked(gsp_pool *p, gsp_link *from, const gsp_word *m);
void life_pieces_give(gsp_pool *p, uint64_t now_ns);
void life_pieces_close(gsp_pool *p);
/* Fresh texts, NULL: no memory: the tree of a file of data; the file in a directory. */
char *life_tree_path(const gsp_pool *p, const char *name);

/* pool_data.c */
void life_piece_came(gsp_pool *p, gsp_link *from, const gsp_word *m);
void life_haul_step(gsp_pool *p, uint64_t now_ns);
void life_haul_progress(const gsp_pool *p, gsp_pool_progress *out);

/* pool_month.c */
void life_month_open(gsp_pool *p);
/* Counts and keeps; true: the member rests, and life_month_rest is what its turn is then. */
bool life_month_step(gsp_pool *p);
ATOM_MUST atom_status life_month_rest(gsp_pool *p);
void life_month_close(gsp_pool *p);

/* pool_join.c */
/* Turns the net for a while, as the pool's thread does later. */
ATOM_MUST atom_status life_wait(gsp_pool *p, uint64_t ns, gsp_pool_watch *watch, void *context);

/* pool_owner.c */
ATOM_MUST atom_status life_new_ticket(gsp_pool *p, uint32_t count, double days);
ATOM_MUST atom_status life_refresh_ticket(gsp_pool *p);

/* pool_router.c */
void life_router_open(gsp_pool *p);
void life_router_step(gsp_pool *p, uint64_t now);
/* key NULL: only the pre-shared key changes. */
ATOM_MUST atom_status life_rotate(gsp_pool *p, const uint8_t *ban);
/* Somebody (on any link) asks for an admission, and we may give it. */
void life_admit(gsp_pool *p, const gsp_word *ask, gsp_word *answer);
void life_obey(gsp_pool *p);

/* pool_status.c */
void life_snapshot(gsp_pool *p);
void life_snapshot_step(gsp_pool *p); /* now and then */
/* Control requests, on the control's thread. */
char *life_answer(void *context, const char *request);

#endif
