/*
 * What a pool's members have in common beside the weights: how they average (the manifest's
 * `settings`) and how they train (run.yml, a file of the manifest). Both are texts of option
 * tables, so they are checked, printed and explained like every other configuration.
 *
 * H (sync_steps) is the number of steps between two averagings of one fragment, as in DiLoCo; a
 * version concerns one of F fragments, so one is due when the mean member has done H / F steps.
 * With slices F is 16 and H = F unless said otherwise: one is due with every step of the mean
 * member, and rounds follow each other as quickly as they can (Presser, Swarm Training, section 3).
 *
 * Ownership: as in config.h. Thread: none of its own. Errors: options.h.
 */
#ifndef ATOM_POOL_SETTINGS_H
#define ATOM_POOL_SETTINGS_H

#include "atom/pool/anchor.h"
#include "atom/train/config.h"

/* Whose data members train on: the creator's, which the manifest names; each its own; the
 * creator's, but a member may take its own. */
typedef enum pool_data_rule { POOL_DATA_SHARED, POOL_DATA_OWN, POOL_DATA_EITHER } pool_data_rule;

/* Where members make fewer steps between averages, the outer step has no momentum unless it is asked for
 * (docs/measurements/2026-11-28-own-steps.md). */
enum { POOL_MOMENTUM_STEPS = 20 };

typedef struct pool_settings {
    int32_t sync; /* pool_sync */
    int32_t data; /* pool_data_rule */
    int64_t sync_steps, fragments;
    int64_t min_peers;
    int32_t codec; /* gsp_codec */
    int32_t trust; /* gsp_trust */
    int64_t audit_percent;
    double outer_learning_rate, outer_momentum, mix;
    double due_seconds, fork_seconds, heartbeat_seconds; /* T, T_fork */
    int64_t rewarm_steps;
    /* Of the creator's run: samples of a step, steps of the schedule. 0: not known yet. */
    int64_t batch, steps;
    int64_t global_batch_size, data_hash; /* gradients */
    bool delayed_updates;
    char *dense_steps; /* of parameters: the first ones, with summed gradients; NULL: none */
    char *base_hash;   /* of what is under adapters; NULL: all is trained */
} pool_settings;

extern const opt_command pool_options;

/* A run.yml in two: what is under its key `pool`, and the rest; each with the lines of the other
 * blank, so that messages name the right line. Fresh memory each. path: for messages. ATOM_E_USAGE
 * where something stands behind `pool:`, or there are two of it. */
ATOM_MUST atom_status pool_settings_split(const char *path, const char *text, size_t bytes,
                                          char **pool, char **rest);
/* What follows from the mode where nobody said it. */
void pool_settings_fill(pool_settings *settings, const opt_parsed *parsed);
/* ATOM_E_USAGE for what does not go together. parsed: what somebody said, NULL where the settings
 * are a manifest's, which has all of them. path, text: where `pool:` was read from, for the line of
 * the key; text NULL: nowhere. */
ATOM_MUST atom_status pool_settings_check(const pool_settings *settings, const opt_parsed *parsed,
                                          const char *path, const char *text);
/*
 * The creator's: batch and steps follow from the run; with gradients its
 * gradient_accumulation_steps becomes that of one pass of one member (anchor.h). ATOM_E_USAGE for
 * what does not go together; path and text as above.
 */
ATOM_MUST atom_status pool_settings_settle(pool_settings *settings, train_config *config,
                                           const char *path, const char *text);
/* How many samples are trained with summed gradients before parameters are averaged; 0: none. Of settings
 * that were settled or checked. */
uint64_t pool_settings_dense(const pool_settings *settings);
/* Samples of a step of all members together. */
int64_t pool_settings_together(const pool_settings *settings);
/* Gradients are summed, to the end or at first. */
bool pool_settings_sums(const pool_settings *settings);
/* Of the settings' memory and state: sync, POOL_SYNC_DENSE_FIRST or POOL_SYNC_DELAYED. */
pool_sync pool_settings_sync(const pool_settings *settings);
/* What the pool's trust promises and needs, in a line. */
const char *pool_settings_trust(const pool_settings *settings);
/* The mode's name ("slices"), and a clause that says what it means here. */
enum { POOL_SAID_BYTES = 200 };
const char *pool_settings_mode(const pool_settings *settings);
void pool_settings_say(const pool_settings *settings, char out[POOL_SAID_BYTES]);
/* Of data_hash and data_contents (0: not known) of a trainer_place, as the settings have it. Pools of
 * older atoms have that of names and lengths alone. */
int64_t pool_data_hash(uint64_t hash, uint64_t contents);

#endif
