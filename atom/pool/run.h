/*
 * A member's run in a pool (docs/design/pool.md#joining): a trainer, the anchor that it shares
 * with the others (anchor.h), and this host's membership (gossip/pool/pool.h), brought up in the
 * right order and ended together. This is what `atom pool create` and `atom pool join` do; a
 * program that links libatom does the same with it:
 *
 *   pool_run_create | pool_run_join     the membership, the model, a plan; a joiner has the data
 *                                       fetched while the trainer opens
 *   pool_run_ticket                     what others join with
 *   pool_run_train                      steps, until the pool is done, a hook says stop, or
 *                                       somebody asks this member to leave
 *   pool_run_read_status, _leave        meanwhile
 *   pool_run_close
 *
 * A directory that holds a membership is come back to with pool_run_join and no ticket.
 *
 * Thread: one thread opens, trains and closes. Hooks are called on it. pool_run_read_status may be
 * called from the hooks and from that thread, pool_run_leave from any thread and from a signal
 * handler. Errors: the statuses name what to change; ATOM_E_INTERRUPTED after a hook said stop.
 */
#ifndef ATOM_POOL_RUN_H
#define ATOM_POOL_RUN_H

#include "atom/pool/advice.h"
#include "atom/pool/anchor.h"
#include "atom/pool/hooks.h"
#include "atom/pool/host.h"
#include "atom/pool/settings.h"
#include "gossip/pool/pool.h"

typedef struct pool_run pool_run;

/* An option of `atom train` or of a pool's settings, by its key; value NULL: not given. */
typedef struct pool_option {
    const char *key, *value;
} pool_option;

/* What a creator and a joiner decide alike, for their own host. Borrowed while it opens. */
typedef struct pool_run_config {
    const char *dir;          /* checkpoints, metrics; the membership is in dir/pool */
    const pool_host *host;    /* network, and when this host computes; kept in dir/host.yml.
                               * NULL: it only dials, and nothing is kept */
    int64_t max_steps;        /* of this member, in this process; 0: as long as the pool trains */
    const pool_option *train; /* in place of what the run's configuration says */
    uint32_t n_train;
    const pool_hooks *hooks; /* copied; NULL: nobody listens */
} pool_run_config;

typedef struct pool_create {
    const char *config; /* path: a configuration of `atom train`, with a section `pool:` or none */
    const char *name;   /* of the pool; NULL: none */
    const pool_option *settings; /* in place of what `pool:` says */
    uint32_t n_settings;
    bool plain;   /* no encryption, no admissions: for a trusted network */
    bool dry_run; /* decide how to average, and make nothing */
    /* Of the first ticket; zeros: as gsp_pool_host says. */
    int64_t invite_count;
    double invite_days;
} pool_create;

/*
 * Makes a pool and its first member. With dry_run only pool_run_advice, _settings and _trainer may
 * be asked afterwards.
 * Errors  ATOM_E_USAGE  dir holds a pool or a run already, or the configuration does not go
 *         together; ATOM_E_RESOURCE  memory, disk; those of trainer_open and gsp_pool_create. What
 *         was made in dir until then is removed again
 */
ATOM_MUST atom_status pool_run_create(const pool_run_config *config, const pool_create *create,
                                      pool_run **out);

/* The directory that a run's configuration itself names as output_dir, for a pool_run_config.dir that
 * nobody else names; atom_free. *dir NULL: it names none. */
ATOM_MUST atom_status pool_create_dir(const char *config, char **dir);

typedef struct pool_join {
    const char *ticket; /* NULL: come back to the pool of dir */
    double patience_s;  /* give up when nobody answers for so long; 0: never */
    bool own_data;      /* the option `data` names other data than the pool's, which allows it */
} pool_join;

/*
 * Joins a pool, or comes back to it. Options are `data` (where the pool's data set lies already),
 * `model` (which adapters are for), and what concerns this host alone; they are kept in
 * dir/local.yml. Disk, memory and data are checked before anything large is fetched.
 * Errors  ATOM_E_USAGE  the ticket, data or model are not this pool's, or dir holds another run;
 *         ATOM_E_RESOURCE  memory, disk; those of trainer_open and gsp_pool_join
 */
ATOM_MUST atom_status pool_run_join(const pool_run_config *config, const pool_join *join,
                                    pool_run **out);

/* A run that reached its last step when this member was last there: then nobody of it may be left, and
 * there is nothing to come back for. Reads DIR alone. */
typedef struct pool_run_done {
    uint64_t version, step, steps;
    bool alone; /* in the end this member was by itself, after version alone_from */
    uint64_t alone_from;
    char checkpoint[4096]; /* path of this member's last one; "": it is not there */
} pool_run_done;
bool pool_run_was_done(const char *dir, pool_run_done *out);

/* What others join with; "" where this host has none to give. */
const char *pool_run_ticket(const pool_run *run);
uint16_t pool_run_port(const pool_run *run); /* 0: accepts nobody */
const pool_settings *pool_run_settings(const pool_run *run);
/* Host memory that a member takes beside its trainer, with its anchor in memory or on disk. */
typedef struct pool_host_facts {
    uint64_t floats;
    uint32_t fragments;
    int32_t codec; /* gsp_codec */
    pool_sync sync;
    bool audits;
} pool_host_facts;
uint64_t pool_host_bytes(const pool_host_facts *facts, bool on_disk);
/* What it takes of this host beside the trainer and its checkpoints. */
typedef struct pool_run_room {
    uint64_t host_bytes, least_host_bytes; /* with the anchor in memory, and on disk */
    uint64_t disk_bytes;                   /* as it is */
    uint64_t joiner_bytes;                 /* that a joiner fetches */
    bool on_disk;                          /* the anchor is */
} pool_run_room;
void pool_run_read_room(const pool_run *run, pool_run_room *out);
const pool_advice *pool_run_advice(const pool_run *run); /* of a creator; else NULL */
const train_config *pool_run_configuration(const pool_run *run);
const trainer *pool_run_trainer(const pool_run *run);

/*
 * Fetches the pool's weights where this host has none, trains, and says goodbye; after a stop it is
 * only away, and either way the membership has ended: its status is the last one, the ticket "".
 * *orderly (may be NULL): the steps ended as they should, and *summary says how far;
 * also where the membership had ended with an error, which is what is returned then.
 * Errors  ATOM_E_INTERRUPTED  a hook said stop, and the run is saved; those of trainer_run, and
 *         whatever ended the membership
 */
ATOM_MUST atom_status pool_run_train(pool_run *run, train_summary *summary, bool *orderly);

typedef struct pool_run_status {
    gsp_pool_status pool;      /* members, versions, rounds, bytes */
    pool_anchor_status anchor; /* what of it is in the weights here */
} pool_run_status;
/* About 15 KB: keep it on the heap. with_hash: also anchor.anchor, which reads all weights. */
void pool_run_read_status(pool_run *run, bool with_hash, pool_run_status *out);

/* Asks pool_run_train to end after this step, and to say goodbye. */
void pool_run_leave(pool_run *run);

/* Ends and frees everything; NULL and half-opened are fine. What ended the membership meanwhile is
 * logged. Sets *run to NULL. */
void pool_run_close(pool_run **run);

#endif
