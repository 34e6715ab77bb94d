/*
 * Owns the conversion of passes over the data to steps. One idea: it is counted once, from the headers
 * of the shards, before anything large is opened; from there on a run knows steps only. Refuses
 * more steps than max_steps could be.
 */
#include "atom/train/epochs.h"

#include "atom/base/log.h"
#include "atom/file/hfdir.h"
#include "atom/text/dataset.h"

#include <math.h>

enum { STEPS_MAX = 1000000000 };

/* Where data are few, whole steps make other passes than were asked for. */
static void say_passes(const train_config *c, uint64_t windows, double batch)
{
    double passes = windows ? (double)c->max_steps * batch / (double)windows : 0;
    if (windows == 0 || fabs(passes / c->num_train_epochs - 1) <= 0.05)
        return;
    atom_log(ATOM_LOG_WARN,
             "num_train_epochs %g: %lld step%s of %.0f sequences make %.3g passes over the data's "
             "%llu sequences; with a smaller gradient_accumulation_steps or micro_batch_size it "
             "comes closer",
             c->num_train_epochs, (long long)c->max_steps, c->max_steps == 1 ? "" : "s", batch,
             passes, (unsigned long long)windows);
}

atom_status train_epochs_resolve(train_config *config)
{
    file_model model = {0};
    text_shards *shards = NULL;
    atom_status st;
    if (!(config->num_train_epochs > 0) || !config->data)
        return ATOM_OK; /* without data it is refused later, by name */
    ATOM_TRY_CLEAN(file_model_resolve(config->model, &model));
    int64_t T = config->sequence_len > 0 ? config->sequence_len : graph_model_usual(&model.config);
    /* Whether the model has these tokens is the trainer's question: a preset takes the data's. */
    ATOM_TRY_CLEAN(text_shards_open(config->data, TEXT_TRAIN, INT32_MAX, &shards));
    uint64_t windows = text_shards_windows(shards, (uint32_t)T);
    double batch = (double)config->micro_batch_size * (double)config->gradient_accumulation_steps;
    double steps = config->num_train_epochs * (double)windows / batch;
    if (steps > STEPS_MAX)
        st = atom_fail(ATOM_E_USAGE,
                       "num_train_epochs: %g passes over %llu sequences would be %.3g steps",
                       config->num_train_epochs, (unsigned long long)windows, steps);
    else if ((double)config->warmup_steps > fmax(steps, 1))
        st = atom_fail(
            ATOM_E_USAGE,
            "warmup_steps (%lld) is more than the %lld steps of num_train_epochs %g; the "
            "learning rate would never reach its peak",
            (long long)config->warmup_steps, (long long)fmax(steps, 1), config->num_train_epochs);
    else
        config->max_steps = steps < 1 ? 1 : (int64_t)steps;
    if (st == ATOM_OK)
        st = train_config_check_warmup(config);
    if (st == ATOM_OK)
        say_passes(config, windows, batch);
cleanup:
    text_shards_close(&shards);
    file_model_free(&model);
    return st;
}
