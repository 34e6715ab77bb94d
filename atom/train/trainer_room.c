/*
 * Owns the warning at a run's start that its checkpoints will not fit. One idea: compare the most
 * that it will have written with what the file system has free now, so that a run of days does not
 * find out at its first checkpoint. Refuses to stop anybody: space may be freed in time.
 */
#include "atom/train/trainer_inner.h"

#include "atom/base/files.h"
#include "atom/base/size.h"

#include <inttypes.h>

/* Checkpoints that there will be beside those of now: the limit's, and the one that is written
 * before the oldest goes. 0: nobody can say. */
static uint64_t more_checkpoints(const trainer *t)
{
    const train_config *c = t->config;
    uint64_t limit = (uint64_t)c->save_total_limit, saves = 0;
    uint64_t there = train_checkpoint_count(c->output_dir);
    if (!t->hooks.seam && c->max_steps > t->state.step) {
        uint64_t steps = (uint64_t)(c->max_steps - t->state.step), each = (uint64_t)c->save_steps;
        saves = each ? (steps + each - 1) / each : 1;
    }
    if (!limit)
        return saves;
    uint64_t most = limit + 1 > there ? limit + 1 - there : 1;
    return saves && saves < most ? saves : most;
}

void trainer_note_room(trainer *t)
{
    const train_config *c = t->config;
    const train_checkpoint one = trainer_checkpoint(t);
    uint64_t each = train_checkpoint_bytes(&one), n = more_checkpoints(t), left;
    char size[24], have[24], need[24];
    if (t->hooks.save_nothing || !n || !atom_dir_free_bytes(c->output_dir, &left) ||
        left / n >= each)
        return;
    trainer_note(t,
                 "warning: output_dir %s has room for %" PRIu64 " more checkpoints of %s (%s are "
                 "free), but this run writes up to %" PRIu64 ": %s (%" PRIu64 " bytes) are "
                 "missing; free some space, lower --save-total-limit (%" PRId64 "%s) or name "
                 "another --output-dir",
                 c->output_dir, left / each, atom_size_text(each, size), atom_size_text(left, have),
                 n, atom_size_text(n * each - left, need), n * each - left, c->save_total_limit,
                 c->save_total_limit ? "" : ": all are kept");
}
