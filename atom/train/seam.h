/*
 * How somebody outside takes part in a run (a pool does): functions that the trainer calls at the
 * moments that matter, and what it hands them. The trainer knows of nobody who implements them.
 *
 *   train_seam    the functions: around updates, after steps, and in place of them
 *   train_reader  who still reads the weights that are about to change
 *   train_lease   the share of a step that is computed here, when many make it together
 *   train_plans   plans that others made for hosts like this one
 *
 * Thread: the trainer's, where a function doesn't say otherwise. Everything is borrowed.
 */
#ifndef ATOM_TRAIN_SEAM_H
#define ATOM_TRAIN_SEAM_H

#include "atom/file/vector.h"
#include "atom/train/schedule.h"

/*
 * A share of a step that many hosts make together (train_seam.take): the gradients of some
 * micro-batches of batch number `batch`, at the weights that were put in place. Micro-batch i of
 * the batch begins at sample first_sample + i * micro_batch_size. Borrowed until the next take.
 */
typedef struct train_lease {
    uint64_t steps; /* steps that are in the weights: the trainer is at this step now */
    uint64_t batch, samples, first_sample;
    bool moved;  /* the weights changed since the last take */
    bool behind; /* those in place are of a step before, without its moments: the trainer computes
                  * this and takes again at once */
    double grad_norm, rate;      /* of the newest step */
    uint32_t n;                  /* 0: there is nothing to do yet */
    const uint32_t *micro_batch; /* ascending */
    float *sum;                  /* as many floats as the weights, zero: add gradients here */
} train_lease;

/*
 * A reader of the state while the run goes on (a checkpoint that is being written). Call leave()
 * before you change elements [first, first + n) of weights and moments: it returns once nobody
 * reads them where they lie. It may wait for the disk, so hold no lock that others need. From then
 * on you may change them, until the function that was given the reader returns.
 */
typedef struct train_reader {
    void *ctx;
    void (*leave)(void *ctx, uint64_t first, uint64_t n);
} train_reader;

/*
 * What somebody who takes part in a run from outside provides. The trainer's thread calls it, except
 * for the three functions that say otherwise. trainer_open reads only bytes and
 * shared; the functions must be there before trainer_run. All but ctx may be NULL.
 */
typedef struct train_seam {
    void *ctx;
    /* Memory it takes beside the trainer's: the planner leaves it free. least: where it keeps on disk
     * what it can, which trainer_seam_on_disk then asks of it; 0: it cannot. */
    double host_bytes_per_float, least_bytes_per_float;
    /* On the optimizer's stream, before the first and after the last update of a step. live: the
     * master weights, which nobody else changes meanwhile; what before_updates writes to them
     * is in the weights of the next step. reader: whoever still reads them. */
    void (*before_updates)(void *ctx, float *live, const train_reader *reader);
    void (*after_updates)(void *ctx, const float *live);
    /* With the state on disk live is NULL in both, and the masters pass by in between, each block
     * [first, first + n) once before its update, when it may be written, and once after it; every
     * element once, in no particular order. */
    void (*block)(void *ctx, uint64_t first, uint64_t n, float *live, bool begin);
    /* A step was made; the counts are those of the whole run. */
    void (*stepped)(void *ctx, uint64_t samples, uint64_t tokens);
    double (*rate)(void *ctx, const train_schedule *schedule); /* learning rate of the next step */
    bool (*done)(void *ctx);                                   /* in place of max_steps */
    /* All steps are made, but the run goes on: asked before each turn, and while it is true the trainer
     * makes no step but calls `stand` a few times a second. live: the master weights, which nobody else
     * reads or changes meanwhile. *changed: it has written to them. Both NULL: a run ends with its
     * last step. */
    bool (*stands)(void *ctx);
    atom_status (*stand)(void *ctx, file_vector live, bool *changed);
    char *(*marks)(void *ctx); /* text of pool.json in a checkpoint of now; the trainer frees it */
    /*
     * shared: the steps are made outside, from gradients that many hosts bring. The trainer then
     * updates nothing itself; it calls
     *   take     to get weights and moments (master, m, v) if they changed, and something to
     *            compute; waits a little for either
     *   current  while it computes; false: nobody waits for this lease any more
     *   bring    when lease->sum is complete, over so many target tokens
     */
    bool shared;
    atom_status (*take)(void *ctx, const file_vector state[3], const train_reader *reader,
                        train_lease *out);
    /* Asked before each turn of a shared run: true: the next step is one of the trainer's own, as if the
     * run were not shared; the counts are those of the run. NULL: none is. */
    bool (*own)(void *ctx, uint64_t samples, uint64_t tokens);
    uint64_t own_seed; /* of the order of samples and the dropout of those */
    bool (*current)(void *ctx, const train_lease *lease);
    void (*bring)(void *ctx, const train_lease *lease, uint64_t tokens);
} train_seam;

/*
 * Plans that other hosts made (plan/share.h). trainer_open calls these on its thread while it looks
 * for a plan; either may be NULL.
 *   ask    hands each plan that is found to `look`, until that needs no more of them. who: a name
 *          for people, "" for this host itself
 *   offer  this host made a plan for its class of devices
 */
typedef bool (*train_plan_look)(void *ctx, const char *who, const char *text, size_t bytes);
typedef struct train_plans {
    void *ctx;
    atom_status (*ask)(void *ctx, const char *device_class, train_plan_look look, void *look_ctx);
    void (*offer)(void *ctx, const char *device_class, const char *plan);
} train_plans;

#endif
