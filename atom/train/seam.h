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
 * A share of a step that many make together (train_seam.take): gradients of some micro-batches of
 * batch number `steps`, at the weights that were put in place. Micro-batch i of it are samples
 * first_sample + i * micro_batch_size and on. Borrowed until the next take.
 */
typedef struct train_lease {
    uint64_t steps; /* that are in the weights: the trainer is at this step now */
    uint64_t samples, first_sample;
    bool moved;                  /* the weights changed since the last take */
    double grad_norm, rate;      /* of the newest step */
    uint32_t n;                  /* 0: there is nothing to do yet */
    const uint32_t *micro_batch; /* ascending */
    float *sum;                  /* as many floats as the weights, zero: add gradients here */
} train_lease;

/*
 * Who reads the state while the run goes on (a checkpoint that is being written). Before elements
 * [first, first + n) of weights and moments change, leave() returns once nobody reads them where
 * they lie; it may wait for the disk, so no lock that others need is held meanwhile. They may
 * change until the function that was given the reader returns.
 */
typedef struct train_reader {
    void *ctx;
    void (*leave)(void *ctx, uint64_t first, uint64_t n);
} train_reader;

/*
 * Whoever takes part in a run from outside (a pool, pool.h). Called on the trainer's thread but for
 * the two that say otherwise. Only host_bytes_per_float is read by trainer_open; the functions must
 * be there before trainer_run. All but ctx may be NULL.
 */
typedef struct train_seam {
    void *ctx;
    double
        host_bytes_per_float; /* that it holds beside the trainer: the planner leaves them free */
    /* On the optimizer's stream, in front of the first and after the last update of a step: live
     * are the master weights, which stand still. What is written to them before the updates is in
     * the weights of the next step. reader: NULL where nobody reads. */
    void (*before_updates)(void *ctx, float *live, const train_reader *reader);
    void (*after_updates)(void *ctx, const float *live);
    /* A step was run; counts are of the whole run. */
    void (*stepped)(void *ctx, uint64_t samples, uint64_t tokens);
    double (*rate)(void *ctx, const train_schedule *schedule); /* learning rate of the next step */
    bool (*done)(void *ctx);                                   /* in place of max_steps */
    char *(*marks)(void *ctx); /* text of pool.json in a checkpoint of now; the trainer frees it */
    /*
     * Shared: the steps are made outside, of gradients that many bring, and the trainer waits for
     * them; known at trainer_open. Then updates do not happen here, and in their place:
     *   take     puts weights and moments (master, m, v) in place if they changed, waits a little
     *            for something to do
     *   current  false: nobody waits for this lease any more
     *   bring    lease->sum is whole, of so many target tokens
     */
    bool shared;
    atom_status (*take)(void *ctx, const file_vector state[3], const train_reader *reader,
                        train_lease *out);
    bool (*current)(void *ctx, const train_lease *lease);
    void (*bring)(void *ctx, const train_lease *lease, uint64_t tokens);
} train_seam;

/*
 * Plans of others for hosts of a pool (plan_share.h). Called while trainer_open looks for a plan,
 * on its thread. `look` is given each plan that is found, until it says that it took one; who: a
 * name for people, "" for this host itself. offer: this host made one for its class. Either may be
 * NULL.
 */
typedef bool (*train_plan_look)(void *ctx, const char *who, const char *text, size_t bytes);
typedef struct train_plans {
    void *ctx;
    atom_status (*ask)(void *ctx, const char *device_class, train_plan_look look, void *look_ctx);
    void (*offer)(void *ctx, const char *device_class, const char *plan);
} train_plans;

#endif
