/*
 * A host's membership in a pool (docs/design/pool.md#who-gets-in, #directory, #joining,
 * #what-the-user-sees): making a pool, joining one by its ticket, coming back, taking part,
 * leaving. It puts together what the other parts of gossip do: the gate and its links, admissions,
 * contacts, and the node (node.h) that agrees and averages. It knows nothing of models: what is
 * averaged comes in as gsp_work.
 *
 *   gsp_pool_create | gsp_pool_join | gsp_pool_open    keys, links, manifest
 *   gsp_pool_fetch                                     small files of the manifest
 *   ... the caller looks at manifest and files, checks disk, memory, pace ...
 *   gsp_pool_start                                     a thread that takes part
 *   gsp_pool_report, _wishes, _read_status              while it trains
 *   gsp_pool_leave | nothing; gsp_pool_close           goodbye, or just away for a while
 *
 * On disk, in one directory that only its user can read; with it a host comes back as itself:
 *
 *   identity       the host's key. The creator's is also the pool owner's: keep a copy of it
 *   manifest.json  the newest one
 *   keys           pre-shared keys, newest first; a secret
 *   admission      the host's right to be a member; none for the owner
 *   invites        the owner's book of used invites
 *   ticket         the owner's current ticket; a secret
 *   peers          contacts of others; advice
 *   files/         the manifest's files, checked
 *   notes/         ours, by key
 *   trees/         hashes of the pieces of data files, which lie elsewhere (pieces.h)
 *   month          bytes sent and received in this calendar month
 *   credits        what each member brought, and tokens that this host trained
 *   member/        votes and results (votes.h); never copy them to a second host
 *   events.jsonl   what happened, a line of JSON each; .1 is the one before
 *   control.sock   where `atom pool status` and the like ask (control.h)
 *
 * Thread: create, join, open, fetch, start and close from one thread; report, wishes, pause, leave
 * and read_status from any. Before gsp_pool_start nothing runs on its own but the transport.
 */
#ifndef GOSSIP_POOL_POOL_H
#define GOSSIP_POOL_POOL_H

#include "gossip/member/node.h"
#include "gossip/pool/manifest.h"
#include "gossip/pool/status.h"

enum { GSP_POOL_LISTEN_MAX = 4, GSP_POOL_BOOTSTRAPS_MAX = 8 };

/* Settings of this host alone. Texts are copied. All zeros: it only dials, and uses LAN and
 * directory. */
typedef struct gsp_pool_host {
    const char *directory;                   /* made if needed */
    uint32_t n_listen;                       /* 0: accepts nobody (and owns no part of a round) */
    gsp_address listen[GSP_POOL_LISTEN_MAX]; /* port 0: any */
    /* What tickets tell others to dial, "name:port" or addresses; none: the addresses that this
     * host listens at, or for "*" those that it has. */
    uint32_t n_announce;
    const char *announce[GSP_TICKET_HOSTS_MAX];
    bool no_lan;             /* do not speak on the local network */
    bool no_directory;       /* do not take part in the directory */
    bool no_router;          /* do not ask the router to forward the port (portmap.h) */
    uint16_t directory_port; /* UDP; 0: that of the gate, or any where nobody dials */
    uint32_t n_bootstraps;   /* nodes of the directory, "name:port" */
    const char *bootstrap[GSP_POOL_BOOTSTRAPS_MAX];
    uint32_t streams; /* bulk streams per link; 0: the default */
    /* No more than this passes the gate, and others plan this host's share by it. 0: not known. */
    uint64_t up_bytes_per_s, down_bytes_per_s;
    uint64_t up_month_max, down_month_max; /* bytes in a calendar month (quota.h); 0: no cap */
    const char *name; /* what others see beside the key; NULL: the host's name */
    /* The owner's: of the ticket that a new pool or a new key brings; zeros: 16 hosts, 7 days. */
    uint32_t invite_count;
    double invite_days;
} gsp_pool_host;

typedef struct gsp_pool gsp_pool;

/* A file of a new pool: taken into its directory (a link where possible, else a copy). */
typedef struct gsp_pool_file {
    const char *name; /* in the manifest */
    const char *path;
    bool later; /* data: it stays at path, and its tree is made (gsp_manifest_file) */
} gsp_pool_file;

/*
 * Makes a pool whose owner and founder is this host. `draft` gives the manifest's "what", its rules
 * and `plain`; the rest and the files are filled in. The directory must not hold a pool.
 * The ticket (gsp_pool_ticket) has the host's invite.
 * Errors  ATOM_E_USAGE  there is a pool already, a draft out of bounds, an address in use;
 *         ATOM_E_FORMAT a file cannot be read; ATOM_E_RUNTIME, ATOM_E_RESOURCE
 */
ATOM_MUST atom_status gsp_pool_create(const gsp_pool_host *host, const gsp_manifest *draft,
                                      const gsp_pool_file *files, uint32_t n_files, gsp_pool **out);

typedef struct gsp_pool_progress {
    gsp_pool_stage stage;
    const char *text; /* a sentence for people: what is waited for, or being done */
    uint64_t bytes_done, bytes;
    double left_s; /* until all bytes are here, as it goes now; 0: not known */
} gsp_pool_progress;
/* Called a few times a second while join and fetch wait. False: give up (ATOM_E_INTERRUPTED). */
typedef bool gsp_pool_watch(void *context, const gsp_pool_progress *progress);

/*
 * Joins by a ticket: finds a member, is admitted, gets the manifest, and none of its files: that is
 * for the caller, who may refuse what the manifest says. Blocks until then, until it is refused for
 * good, or for patience_s (0: for ever). A directory that already holds a membership of this pool is
 * used again; the new ticket brings new keys and hosts.
 * Errors  ATOM_E_USAGE  the ticket is wrong, or the directory holds another pool;
 *         ATOM_E_RUNTIME  refused, banned, or nobody answers in time; ATOM_E_INTERRUPTED
 */
ATOM_MUST atom_status gsp_pool_join(const gsp_pool_host *host, const char *ticket,
                                    double patience_s, gsp_pool_watch *watch, void *context,
                                    gsp_pool **out);
/*
 * Comes back to a pool that this host was in, from its directory alone, without asking anybody.
 * Errors  ATOM_E_FORMAT  damaged, or no pool there; ATOM_E_USAGE  another process has it, an
 *         address is in use
 */
ATOM_MUST atom_status gsp_pool_open(const gsp_pool_host *host, gsp_pool **out);
/* Is there a pool in this directory? */
bool gsp_pool_exists(const char *directory);
/* Its user paused the member there (gsp_pool_pause), whether it runs or not. */
bool gsp_pool_is_paused(const char *directory);
/* ATOM_E_USAGE where this user may not look into the directory: then no pool exists for it, although
 * there may be one. */
ATOM_MUST atom_status gsp_pool_check_rights(const char *directory);

/* The signed manifest, valid until gsp_pool_start. After that, bans and keys may change; what is
 * trained does not. */
const gsp_manifest *gsp_pool_manifest(const gsp_pool *pool);
const uint8_t *gsp_pool_key(const gsp_pool *pool); /* our own, GSP_PUBLIC_BYTES */
bool gsp_pool_is_founder(const gsp_pool *pool);
/* The owner's ticket, for others; "": this host has none to give. */
const char *gsp_pool_ticket(const gsp_pool *pool);
uint16_t gsp_pool_port(const gsp_pool *pool); /* 0: accepts nobody */
/*
 * Finds a file of the manifest (not of data), checked. If it is not here it is fetched from members
 * first, from where an earlier try ended. Before gsp_pool_start. patience_s: gives up when
 * nothing comes for so long; 0: never. *path: atom_free.
 * Errors  ATOM_E_USAGE  no such file in the manifest; ATOM_E_FORMAT  it is larger than
 *         GSP_FILE_BYTES_MAX; ATOM_E_RESOURCE  no room on the disk; those of join
 */
ATOM_MUST atom_status gsp_pool_fetch(gsp_pool *pool, const char *name, double patience_s,
                                     gsp_pool_watch *watch, void *context, char **path);

/*
 * Notes: texts of at most 64 KiB that members leave for each other under a key whose meaning is the
 * callers' (a training host leaves its plan under the hash of what the plan is good for). Every
 * member hands its own to all it is linked with, keeps a few of each of them, and shows what it has
 * to any that asks. A note comes from some admitted member, but nobody signed it: check it as if an
 * enemy had written it. Before gsp_pool_start.
 * Errors  ATOM_E_USAGE  too long, or started; ATOM_E_RUNTIME  the disk
 */
ATOM_MUST atom_status gsp_pool_note(gsp_pool *pool, const gsp_hash *key, const char *text);
/* Looks at one note. who: the name of the member that handed it over ("": ourselves, some time
 * ago). text is not a string: it has no NUL at its end, nor within. True: it will do, look no
 * further. */
typedef bool gsp_pool_look(void *context, const char *who, const char *text, size_t bytes);
/* Shows `look` the notes that are here, then those of the linked members, until one will do, all
 * have answered or the time is over; none of these is an error. ATOM_E_INTERRUPTED: watch said
 * so. */
ATOM_MUST atom_status gsp_pool_ask(gsp_pool *pool, const gsp_hash *key, double patience_s,
                                   gsp_pool_watch *watch, void *watching, gsp_pool_look *look,
                                   void *context, bool *found);

/*
 * The data set of the pool: the manifest's files that are `later`, each with the root over its
 * pieces (pieces.h). A host that has it, or some of it, gives it to those that ask.
 *
 * Looks how much of the data set lies in `directory`, which need not exist. A file that changed
 * since the last look is hashed (a second or two per GB). From then on this host gives what is
 * there to others. Before gsp_pool_start; call it again when the directory changes.
 * Errors  ATOM_E_FORMAT  a file cannot be read; ATOM_E_INTERRUPTED; ATOM_E_RESOURCE
 */
ATOM_MUST atom_status gsp_pool_data_look(gsp_pool *pool, const char *directory,
                                         gsp_pool_watch *watch, void *context, gsp_pool_data *out);
/*
 * Fetches what is missing or wrong there, piece by piece, from all members that have it, once there
 * is room for all of it. A file that is there and was never this pool's is not replaced. A piece
 * that does not prove itself is dropped, and its sender is not asked again. Goes on where an
 * earlier run ended. Before gsp_pool_start. patience_s: gives up when nothing comes for so long; 0:
 * never.
 * Errors  ATOM_E_RESOURCE  the disk; ATOM_E_USAGE  a file is in the way; ATOM_E_RUNTIME  nobody
 *         has it; ATOM_E_INTERRUPTED
 */
ATOM_MUST atom_status gsp_pool_data_fetch(gsp_pool *pool, const char *directory, double patience_s,
                                          gsp_pool_watch *watch, void *context);

/*
 * How many samples the pool has certified, as a chain of votes proves that members give to a host which
 * has no state yet; 0: nobody showed one within patience_s, or this host has a state. Before
 * gsp_pool_start, and before anything large is fetched.
 * Errors  those of gsp_node_open; ATOM_E_INTERRUPTED
 */
ATOM_MUST atom_status gsp_pool_ask_samples(gsp_pool *pool, double patience_s, gsp_pool_watch *watch,
                                           void *context, uint64_t *samples);

typedef struct gsp_pool_part {
    gsp_work work;      /* called on the pool's thread (node.h) */
    bool holds_genesis; /* gsp_node_config */
    gsp_rates rates;    /* zeros: unknown; `accepts` is filled in */
    bool has_audit;     /* must be equal at all members; false: as in gsp_agree_defaults */
    uint32_t audit_percent;
} gsp_pool_part;

/*
 * Starts to take part: opens the node, keeps links, answers others, serves the control socket.
 * What goes wrong later ends the thread, and gsp_pool_wishes says STOP.
 * Errors  those of gsp_node_open; ATOM_E_USAGE  another process serves this directory
 */
ATOM_MUST atom_status gsp_pool_start(gsp_pool *pool, const gsp_pool_part *part);

/* The trainer says how many samples and tokens it has processed since gsp_pool_start, in all.
 * What is new since the newest certificate is counted here. Cheap; any thread. */
void gsp_pool_report(gsp_pool *pool, uint64_t samples, uint64_t tokens);

/* What the trainer should do at its next step boundary. why: for people, "" for GO; may be NULL.
 * status: ATOM_OK if a user asked for it, else what ended the pool; may be NULL. */
gsp_pool_wish gsp_pool_wishes(gsp_pool *pool, char why[GSP_POOL_WHY_BYTES], atom_status *status);
/* Why the trainer does not compute although it may, for the status; "": it computes. */
void gsp_pool_say_rest(gsp_pool *pool, const char *why);
/* Until it is taken back, also after a restart (pause.h). It pauses also where that cannot be kept,
 * which is then the error. */
ATOM_MUST atom_status gsp_pool_pause(gsp_pool *pool, bool paused);

/* ---- what is seen of it ---- */

/* A snapshot, at most half a second old. About 15 KB: keep it on the heap. */
void gsp_pool_read_status(gsp_pool *pool, gsp_pool_status *out);

/* ---- the end ---- */

/*
 * Says goodbye, which takes this host off the roster with the next certificate. Waits for that at
 * most timeout_s, then ends the thread. The host comes back with gsp_pool_open, as a new
 * incarnation.
 * Errors  ATOM_E_RUNTIME  no certificate in time: the others will notice by silence
 */
ATOM_MUST atom_status gsp_pool_leave(gsp_pool *pool, double timeout_s);
/* Ends the thread and closes everything, without a goodbye. Returns ATOM_OK, or what had ended the
 * thread before. NULL and half-built are fine; sets *pool to NULL. */
atom_status gsp_pool_close(gsp_pool **pool);

#endif
