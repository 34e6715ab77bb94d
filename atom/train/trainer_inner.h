/*
 * The trainer's struct, and what its files offer each other, from the bottom up: a file asks only
 * those that stand before it here. Internal to atom/train.
 *
 *   facts                      what can be said of a run
 *   room, lora, disk, seam     checkpoints' room, adapters, a state on disk, whoever takes part
 *   boundaries                 codecs and bottlenecks between blocks
 *   plan, snapshot, step       the plan, checkpoints that are written meanwhile, one step
 *   shared                     steps that many make together
 *   open, run (trainer.c)      everything up and down, and the loop
 */
#ifndef ATOM_TRAIN_TRAINER_INNER_H
#define ATOM_TRAIN_TRAINER_INNER_H

#include "atom/text/dataset.h"
#include "atom/train/checkpoint.h"
#include "atom/train/engine.h"
#include "atom/train/events.h"
#include "atom/train/metrics.h"
#include "atom/train/schedule.h"
#include "atom/train/trainer.h"

typedef struct trainer_snapshot trainer_snapshot;

/* What a run writes about itself, and whether it could. */
typedef struct trainer_log {
    uint64_t lost; /* entries since it failed; 0: it is written */
    bool told;     /* that it failed */
    double told_s; /* when that was said last; 0: never */
} trainer_log;

struct trainer {
    const train_config *config;
    train_hooks hooks;
    plan_workbench *bench;
    part_profile *profile;
    part_plan *plan;
    const char *plan_origin;
    train_engine *engine;
    text_shards *train, *val;
    text_sampler sampler;
    train_metrics *metrics;
    train_events *events; /* NULL: nobody asked for TensorBoard's */
    swap_trace *trace;
    train_schedule schedule;
    train_state state;
    bool from_disk; /* it goes on from the optimizer's state on disk, not from a checkpoint */
    int lock_fd;    /* of output_dir, which one run at a time writes; -1: not locked */
    char *compress_boundaries, *compress_at; /* the run's, "" where there is none */
    bool apart;                              /* documents of a sample do not see each other */
    plan_vocab vocab;                        /* of the data's tokenizer */
    int64_t first_step;
    bool unlearned;       /* a step without a token that counts was told of */
    double trace_seconds; /* where the next step goes in the trace */
    double *step_seconds; /* of this run, for the median */
    size_t steps_n, steps_room;
    int64_t tokens_counted; /* that were trained here in step_seconds */
    train_summary summary;
    trainer_snapshot *snapshot; /* a checkpoint that is asked for or being written; or NULL */
    bool save_short;      /* the last one found no room: it is tried again when there is some */
    double save_looked_s; /* whether there is, last */
    trainer_log metrics_log, events_log;
    char *marks;             /* of the checkpoint it went on from; or NULL */
    uint64_t base_hash[2];   /* LoRA: of the model's weights, as they were read */
    file_odd odd;            /* of the weights that the run began with, or adapters lie over */
    bool seam_on_disk;       /* the seam keeps there what it can */
    uint64_t products_bytes; /* of the card, for Muon's products of shared steps; 0: none there */
    bool store_lost;         /* somebody took the state's file away, and it was said */
    train_step_result share; /* shared: of what was computed since the newest step, in sums */
    double share_began;      /* when that step came; 0: not yet */
};

/* --- trainer_facts.c ------------------------------------------------------------------------- */

/* One line for people, through the hook. */
void trainer_note(const trainer *t, const char *fmt, ...) ATOM_PRINTF(2, 3);
/* The run's present state as a checkpoint; borrows everything. Without vectors before the engine is there. */
train_checkpoint trainer_checkpoint(trainer *t);
/* Says what Muon trains; ATOM_E_USAGE where that is nothing. */
ATOM_MUST atom_status trainer_muon_check(const trainer *t);
/* What of the state does not change from step to step. */
void trainer_fill_state(const trainer *t, train_state *state);
/* Are the steps made by many together (train_seam.shared)? */
bool trainer_is_shared(const trainer *t);

/* --- trainer_start.c: where a run begins ------------------------------------------------------ */

/* Does the run take the place of the one in output_dir? */
bool trainer_replaces_run(const train_config *c);
/* Does it go on from the newest checkpoint in output_dir, whatever that is? */
bool trainer_resumes_newest(const train_config *c);
/* Which checkpoint to go on from; NULL: none. Refuses directories in which two runs would mix. */
ATOM_MUST atom_status trainer_start_find(const trainer *t, char **path);

/* --- trainer_resume.c: what a run goes on from ------------------------------------------------ */

/* Refuses a checkpoint of another model or of adapters that count otherwise. path may be NULL. */
ATOM_MUST atom_status trainer_resume_check(const trainer *t, const char *path);
/* After the state is read: refuses num_train_epochs if the run would make another number of passes than
 * that, because its batch or its data was another before, or if all are made. `path` is what it goes on
 * from; ends: all may be made. */
ATOM_MUST atom_status trainer_resume_epochs(const trainer *t, const char *path, bool ends);
/* Says what changed since the checkpoint was made. */
void trainer_resume_note(const trainer *t);

/* --- trainer_room.c -------------------------------------------------------------------------- */

/* A note where output_dir is too small for the checkpoints to come. */
void trainer_note_room(trainer *t);
/* What a log said of its last entry: says once that it failed, and that it is written again. */
void trainer_logged(trainer *t, trainer_log *log, const char *name, atom_status st);
/* A failure of files that ends no run: a full disk, or one that does not write. */
bool trainer_may_go_on(atom_status st);
/* Has output_dir too little room for a checkpoint, as far as it can be told? *need: of one. */
bool trainer_lacks_room(trainer *t, uint64_t *need, uint64_t *left);
/* A checkpoint that is not the last one failed with `why`: says what follows, and remembers it. */
void trainer_save_failed(trainer *t, const char *why);
/* A checkpoint found no room, and now there is some: asked between steps, cheap. */
bool trainer_save_again(trainer *t);
/* The last checkpoint failed with st and its message: tries again for a while, and says so. *path: what was
 * written. asked: the run ends because somebody asked it to. */
ATOM_MUST atom_status trainer_save_persist(trainer *t, const train_checkpoint *c, atom_status st,
                                           bool asked, char **path);

/* --- trainer_lora.c: runs that train adapters of a model; nothing happens in others ---------- */

ATOM_MUST atom_status trainer_lora_check(const trainer *t);
/* The model's weights to their place, whatever the run goes on from; fresh: from nothing, so that
 * modules that are trained whole begin as the model has them. */
ATOM_MUST atom_status trainer_lora_base(trainer *t, bool fresh);
/* The adapter that it starts from, or what a new one takes from the model's weights. */
ATOM_MUST atom_status trainer_lora_start(trainer *t);
/* Refuses a LoRA checkpoint in a run without, or whose adapters are for other modules. */
ATOM_MUST atom_status trainer_lora_resume(const trainer *t, const char *checkpoint);
void trainer_lora_note(const trainer *t);

/* --- trainer_disk.c: plans that keep the optimizer's state on disk --------------------------- */

const char *trainer_store_dir(const trainer *t);
ATOM_MUST atom_status trainer_store_path(const trainer *t, char **path);
/* Before the store is opened, in directories that are there: a store_dir that several runs name holds the
 * state of one. ATOM_E_USAGE where that is another, whose output_dir still is there. */
ATOM_MUST atom_status trainer_store_claim(const trainer *t);
/* Of a run that is replaced, wherever its successor keeps its state; that of another run, which named the same
 * store_dir, stays. */
void trainer_store_replace(const trainer *t);
/* Is there a state on disk that the run does not go on from, whatever it finds? */
bool trainer_disk_left(const trainer *t);
/* With --resume-from-checkpoint auto: is the store newer than the newest checkpoint (or NULL)? Then
 * the run's state is the store's. */
bool trainer_disk_resume(trainer *t, const char *checkpoint);
/* A directory with the config.json or adapter_config.json of the run whose state is on disk, which are as
 * good as a checkpoint's for trainer_resume_check; NULL: an older atom wrote none. Free with atom_free. */
char *trainer_disk_model(const trainer *t);
/* Writes that directory. */
ATOM_MUST atom_status trainer_disk_describe(const trainer *t);
/* train_engine_config.before_commit; ctx is the trainer. */
ATOM_MUST atom_status trainer_before_commit(void *ctx, uint32_t step, int64_t targets);
/* True once, with a note, when somebody took the state's file away under the run: what is open goes
 * on, but only a checkpoint can be resumed from. */
bool trainer_disk_lost(trainer *t);
/* The last checkpoint holds everything: gives the disk's space back. */
void trainer_disk_done(const trainer *t);
/* The run is refused, because its last checkpoint is there: gives back the state on disk of that very step,
 * which a run that was killed behind its checkpoint left there. */
void trainer_disk_ended(const trainer *t);
/* The run is refused: gives back the space of a store that was made for it. engine: may be NULL. */
void trainer_disk_refused(const trainer *t);
/* Whether updates may run ahead of the clip factor, which auto lets them where it is faster. */
ATOM_MUST atom_status trainer_disk_ahead(trainer *t);
/* Says where the state is and what that costs the disk. */
void trainer_disk_note(const trainer *t);

/* --- trainer_seam.c: whoever takes part from outside (train_seam) ---------------------------- */

double trainer_seam_rate(const trainer *t, int64_t step);
bool trainer_seam_done(const trainer *t);
/* All steps are made, but weights still come and go. */
bool trainer_seam_stands(const trainer *t);
void trainer_seam_stepped(const trainer *t);
void trainer_seam_updates(trainer *t, const train_reader *reader, bool begin);
/* train_engine_config.on_block; ctx is the trainer. */
void trainer_on_block(void *ctx, uint64_t first, uint64_t n, float *masters, bool begin);
/* Fresh memory, or NULL where nobody takes part. */
char *trainer_seam_marks(const trainer *t);
ATOM_MUST atom_status trainer_seam_resume(trainer *t, const char *checkpoint);
/* least: where it keeps on disk what it can. */
uint64_t trainer_seam_host_bytes(const trainer *t, bool least);
/* Shared steps of somebody who can keep nothing on disk: then the trainer's state stays in memory, too. */
bool trainer_stays_in_memory(const trainer *t);

/* --- trainer_boundaries.c: runs as if the model were spread over hosts ------------------------- */

/* t->compress_boundaries and t->compress_at: of the configuration, else of the checkpoint or state
 * on disk that the run goes on from. */
ATOM_MUST atom_status trainer_boundaries_choose(trainer *t, const char *checkpoint);
/* Weights of a model without bottlenecks into that with them, which keep the values that they were
 * drawn with. */
ATOM_MUST atom_status trainer_boundaries_read(const trainer *t, const char *dir,
                                              file_vector master);
void trainer_boundaries_note(const trainer *t);
/* Says what of it changed since t->state was saved. */
void trainer_boundaries_changed(const trainer *t, const train_state *now);

/* --- trainer_plan.c -------------------------------------------------------------------------- */

/* t->profile and t->plan, from files, from the cache, from others, or fresh. */
ATOM_MUST atom_status trainer_open_plan(trainer *t);

/* --- trainer_snapshot.c ---------------------------------------------------------------------- */

/* A checkpoint of the present step, written while training goes on; poll after every step, finish
 * before the engine closes. Failures surface at poll or finish. */
ATOM_MUST atom_status trainer_snapshot_ask(trainer *t);
ATOM_MUST atom_status trainer_snapshot_poll(trainer *t);
ATOM_MUST atom_status trainer_snapshot_finish(trainer *t);
/* Of the checkpoint that is being written, if there is one; valid as long as the trainer is. */
train_reader trainer_snapshot_reader(trainer *t);
/* train_engine_config.on_updates; ctx is the trainer. */
void trainer_on_updates(void *ctx, uint32_t step, bool begin);

/* --- trainer_step.c -------------------------------------------------------------------------- */

/* The next step of a run that makes its own. */
ATOM_MUST atom_status trainer_step(trainer *t);
/* Micro-batch i of the next tape are the samples from `first` on. */
ATOM_MUST atom_status trainer_load(trainer *t, uint32_t i, uint64_t first);
/* What follows a step, for steps that are made elsewhere, too. */
void trainer_log_step(trainer *t, const train_step_result *r, double rate);
void trainer_log_eval(trainer *t, const train_eval_metrics *m);
void trainer_note_spans(trainer *t, const train_step_result *r);
ATOM_MUST atom_status trainer_remember(trainer *t, double seconds);
/* The first step of this run with a loss of its own, if it is that: whoever joins others begins behind theirs. */
void trainer_begins(trainer *t, int64_t step, double loss);

/* --- trainer_shared.c ------------------------------------------------------------------------ */

/* A turn of a run whose steps many make together: takes what came, and computes what is asked for,
 * if anything. *stepped: there is a new step. */
ATOM_MUST atom_status trainer_shared_turn(trainer *t, bool *stepped);
/* Asks whether to save and end. Whoever is asked may let the run rest; that is no time of a step. */
bool trainer_stops(trainer *t);

#endif
