/*
 * What the files of a member's run share: run.c runs it, run_create.c and run_join.c open it,
 * run_config.c puts its configuration together. Internal to atom/pool. Data, plans and people are
 * parts of their own, whose functions see nothing else of the run.
 */
#ifndef ATOM_POOL_RUN_INNER_H
#define ATOM_POOL_RUN_INNER_H

#include "atom/pool/dataset.h"
#include "atom/pool/people.h"
#include "atom/pool/plans.h"
#include "atom/pool/run.h"

#include <stdatomic.h>

struct pool_run {
    char *dir;
    pool_hooks hooks; /* all are there */
    int64_t max_steps;
    bool came_back;    /* to a pool that it was in before, without a ticket */
    uint64_t disk_max; /* bytes that dir may take; 0: what is free */
    train_config config;
    pool_settings settings;
    pool_advice *advice; /* of a creator */
    pool_dataset data;
    pool_plans plans;
    pool_people people;
    pool_limits *limits; /* NULL: none */
    bool genesis;        /* this process makes the pool */
    char *withheld;      /* then: what was said that joiners are not told */

    trainer *t;
    train_hooks trainer_hooks;
    train_plans trainer_plans;
    train_seam seam;
    pool_anchor *anchor;
    train_products *products; /* of the steps that anchor makes; NULL: the host's */
    gsp_pool *life;
    gsp_pool_status *status; /* room for a look */

    uint64_t tokens_first; /* of the run, when this process began */
    double scaled;         /* samples, each divided by the members then */
    atomic_bool leaving;
    gsp_pool_wish wish;
    char why[GSP_POOL_WHY_BYTES];
    atom_status ended;     /* what ended the pool for us */
    bool lacks;            /* members with which the pool begins; and for nothing else it waits */
    bool starved;          /* the trainer waited in a write, for room on the disk */
    bool short_of_disk;    /* there was not room enough when it was last looked */
    double looked_s;       /* at the disk */
    uint64_t last_version; /* the newest while the member stands at the end, and */
    double last_s;         /* when it came; 0: it does not stand */
    bool last_said;        /* that everything is averaged once more */
    bool met;              /* since it came back it had a link, or it was said that it had none */
    double back_s, met_s;  /* when that was first looked at, and is looked at next */
    bool nobody;           /* it was said, and nobody has answered yet */
    bool unbegun_said;
    double linked_s;       /* when it had a link last, as one that stands and is on no roster */
};

/* run.c */
/* Directory, hooks and limits; what create and join begin with. */
ATOM_MUST atom_status pool_run_begin(const pool_run_config *config, pool_run **out);
/* Text of dir/pool/name, or of dir/pool; atom_free. */
char *pool_run_path(const pool_run *r, const char *name);
/* The pool sums gradients. */
bool pool_run_sums(const pool_run *r);
/* Of this member's own order of samples and dropout; the founder keeps the run's. */
uint64_t pool_run_own_seed(const pool_run *r);
ATOM_MUST atom_status pool_run_open_trainer(pool_run *r);
/* What the mode is, and what it takes here: notes, before anything large is fetched. */
void pool_run_say_mode(const pool_run *r, uint64_t n_floats);

/* run_memory.c. What a member takes of this host beside the trainer, with its anchor in memory or on
 * disk. */
uint64_t pool_run_host_bytes(const pool_run *r, uint64_t n_floats, bool on_disk);
uint64_t pool_run_disk_bytes(const pool_run *r, uint64_t n_floats, bool on_disk);
/* What the trainer leaves free for it. */
void pool_run_seam(const pool_run *r, train_seam *seam);
/* Notes: both ways; and which it is, once there is a trainer. */
void pool_run_say_memory(const pool_run *r, uint64_t n_floats);
void pool_run_say_tier(const pool_run *r);

/* run_disk.c. Is there disk for all that this member will keep: checkpoints as it is configured,
 * anchor, data that is to be fetched? Before there is a trainer it is the least that it will be:
 * with Muon as if no parameter had a second moment. ATOM_E_RESOURCE: not that much is free, or
 * given. */
ATOM_MUST atom_status pool_run_check_disk_early(const pool_run *r, uint64_t n_floats);
/* The same once the plan says what goes to disk. */
ATOM_MUST atom_status pool_run_check_disk(const pool_run *r, const trainer *t);
/* The least that it will be, as soon as there is a manifest. */
ATOM_MUST atom_status pool_run_check_manifest_disk(const pool_run *r, const gsp_manifest *m,
                                                   bool with_data);

/* Of a checkpoint as this host is configured. t: NULL before there is one, then it is the least. */
uint64_t pool_run_checkpoint_bytes(const pool_run *r, const trainer *t, uint64_t n_floats);

/* run_room.c. A disk that fills up while the member trains. Is there room for what comes next? Else
 * `text` says what is missing, and the member should rest. Cheap: looks once a second. */
bool pool_run_has_room(pool_run *r, char text[GSP_POOL_REST_BYTES]);
/* atom_room_wait of the trainer's thread; ctx: the run. */
bool pool_run_wait_room(void *ctx, int fd, uint64_t bytes);
/* st with its message, and where the disk was the reason, the command that goes on. */
ATOM_MUST atom_status pool_run_say_return(const pool_run *r, atom_status st);

/* run_done.c. True: too few others are here to make the pool's next step where gradients are summed, to
 * make the last ones the pool's, or to average once more: `text` says so, and the member waits; for the
 * last average not for ever. */
bool pool_run_ends(pool_run *r, char text[GSP_POOL_REST_BYTES]);
/* Once, to whoever came back to a pool that lacks members to begin: whom it waits for, and how they come. */
void pool_run_say_unbegun(pool_run *r);
/* After the last version: a member that lacks it gets it first, if it is here and does so in time. */
void pool_run_wait_for_others(pool_run *r, double seconds);
/* What pool_run_was_done finds: kept where this member has seen the last step, and forgotten
 * where there is something to train all the same (after the owner's reset). */
void pool_run_keep_done(const pool_run *r, const pool_anchor_status *s, const char *checkpoint);
void pool_run_forget_done(const pool_run *r);

/* run_place.c. From here on until pool_run_is_made DIR says that its pool is being made; without the first
 * weights on disk there is nothing to come back to (ATOM_E_USAGE). */
ATOM_MUST atom_status pool_run_is_making(const pool_run *r);
void pool_run_is_made(const pool_run *r);
ATOM_MUST atom_status pool_run_check_made(const pool_run *r);
/* ATOM_E_USAGE: DIR holds checkpoints or metrics of a run, though no pool. */
ATOM_MUST atom_status pool_run_check_unused(const pool_run *r);
enum { POOL_RUN_MAKES = 4 };
typedef struct pool_run_before {
    bool dir, had[POOL_RUN_MAKES]; /* DIR, and of what a try makes in it each */
} pool_run_before;
void pool_run_look_before(const pool_run *r, pool_run_before *before);
/* Making the pool failed with st: ends the membership and removes what was not there before.
 * Returns st with its message. Where no trainer was opened, nothing was made and nothing is removed. */
ATOM_MUST atom_status pool_run_undo(pool_run *r, const pool_run_before *before, atom_status st);

/* run_config.c. The value of a key; NULL: not given. */
const char *pool_option_of(const pool_option *options, uint32_t n, const char *key);
/* Sets those that are given. parsed: may be NULL. */
ATOM_MUST atom_status pool_options_set(const opt_command *command, const pool_option *options,
                                       uint32_t n, void *values, opt_parsed *parsed);
/*
 * Fills r->config from layers, the later win: run.yml's text, dir/local.yml where it exists and the
 * pool is not made now, options; output_dir is dir. The run.yml is the creator's own file, or the
 * pool's, of which only the closed list is obeyed (run_text.h).
 */
ATOM_MUST atom_status pool_run_configure(pool_run *r, const char *run_path, const char *run_text,
                                         const pool_option *options, uint32_t n);
/* What was chosen for this host alone, so that it comes back with it. */
ATOM_MUST atom_status pool_run_save_local(const pool_run *r);

#endif
