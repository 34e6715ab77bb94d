/*
 * What atom pool create and atom pool join share: a trainer, its seam (atom/pool/anchor.h) and
 * a host's life in a pool (gossip/pool/pool.h), from the first step to the goodbye. Thread: the
 * main thread only.
 */
#ifndef TOOLS_POOL_CMD_POOL_TRAIN_H
#define TOOLS_POOL_CMD_POOL_TRAIN_H

#include "tools/cli.h"
#include "tools/pool/cmd_pool_host.h"
#include "tools/progress.h"

#include "atom/pool/advice.h"
#include "atom/pool/anchor.h"
#include "atom/pool/settings.h"
#include "gossip/pool/pool.h"

/* Others of the pool, as the last look found them. */
typedef struct pool_person {
    uint8_t key[GSP_PUBLIC_BYTES];
    char name[32];
    bool seen, here; /* on the roster: now, before */
} pool_person;

typedef struct pool_people {
    bool looked;
    uint32_t n;
    pool_person person[GSP_POOL_SHOWN_MAX];
} pool_people;

typedef struct pool_run {
    /* the command's: borrowed */
    const char *dir; /* output directory; the pool's is dir/pool */
    bool json, quiet;
    int64_t max_steps;         /* of this member now; 0: the pool's */
    double patience;           /* seconds without news while data is fetched; 0: for ever */
    uint64_t down_bytes_per_s; /* this host's own limit; 0: none */
    /* made on the way */
    char *data_dir;          /* where fetched data goes: dir/data */
    bool has_data, own_data; /* the manifest names the data; this host trains on other data */
    bool fetch_data;         /* some of it is missing in data_dir */
    gsp_pool_data data;      /* of the manifest, as it lies here */
    train_config config;
    pool_settings settings;
    train_hooks hooks;
    train_seam seam;
    train_plans plans;
    char *plan_class, *plan_text; /* that was made here, to be offered; or NULL */
    trainer *t;
    pool_anchor *pool;
    gsp_pool *life;
    train_progress progress;              /* file NULL: not yet */
    uint64_t samples_first, tokens_first; /* of the run, when this process began */
    double scaled;                        /* samples, each divided by the members then */
    double shown_seconds;
    double pace_seconds; /* when the pool stood at pace_step: what its end is reckoned from */
    uint64_t pace_step;
    gsp_pool_status *status;
    pool_people people;
    pool_limits *limits; /* NULL: none */
    gsp_pool_wish wish;
    char why[GSP_POOL_WHY_BYTES];
    atom_status ended; /* what ended the pool for us */
} pool_run;

/* Texts of dir/pool; atom_free. */
char *pool_run_path(const pool_run *r, const char *name);
/*
 * Fills config from layers, the later win: run.yml's text (may be NULL), dir/local.yml where it
 * exists, words of a command line; output_dir is dir.
 */
ATOM_MUST atom_status pool_run_configure(pool_run *r, const char *run_path, const char *run_text,
                                         char *const *words, int n_words, bool with_local);
/* The pool sums gradients. */
bool pool_run_sums(const pool_run *r);
/* Opens the trainer with the hooks of a pool. */
ATOM_MUST atom_status pool_run_open_trainer(pool_run *r);
/* What the mode is, and what it takes here: a note, before anything large is fetched. */
void pool_run_say_mode(pool_run *r, uint64_t n_floats);
/* cmd_pool_plans.c: fills r->plans, for trainer_open; and leaves in the pool what was made here. A
 * host that is not in a pool yet asks nobody. */
void pool_run_plans(pool_run *r);
void pool_run_offer(pool_run *r);
/* cmd_pool_data.c. Files of the data set of config, added behind files[*n]; at most n_max in all.
 * pool_data_free: of those whose `later` is set. */
ATOM_MUST atom_status pool_data_list(const pool_run *r, gsp_pool_file *files, uint32_t n_max,
                                     uint32_t *n);
void pool_data_free(gsp_pool_file *files, uint32_t n);
/* The creator's, from where it lies. */
ATOM_MUST atom_status pool_data_offer(pool_run *r);
/*
 * After pool_run_configure: is config.data the pool's data, or is it to be fetched? returns: this
 * host was here before. ATOM_E_USAGE names the file that does not fit, and what to do.
 */
ATOM_MUST atom_status pool_data_choose(pool_run *r, bool own, bool returns);

/* Is there disk for checkpoints, anchor, and data that is to be fetched? Before anything large is
 * fetched. */
ATOM_MUST atom_status pool_run_check_disk(const pool_run *r, uint64_t n_floats,
                                          uint32_t n_fragments);
/*
 * r->life and r->t are open: anchor, start, state, steps, goodbye. genesis: the creator's first
 * time. ATOM_E_INTERRUPTED after a signal that saved.
 */
ATOM_MUST atom_status pool_run_train(pool_run *r, bool genesis);
/* Notes who came and went since the last call, by r->status. */
void pool_run_people(pool_run *r);
void pool_run_note(pool_run *r, const char *fmt, ...) ATOM_PRINTF(2, 3);
/* gsp_pool_watch for create, join and fetch; context is the pool_run. */
bool pool_run_watch(void *context, const gsp_pool_progress *progress);
/* Everything that was opened; the first error of the pool's thread, where there was one. */
void pool_run_close(pool_run *r);

/* When this box may compute, by its options. */
ATOM_MUST atom_status pool_run_limit(pool_run *r, const pool_host *host);

#endif
