/*
 * Owns the learning rate. One idea: a pure function of the step, so that resuming needs no state.
 * Refuses nothing: the option table has checked the numbers.
 */
#include "atom/train/schedule.h"

#include <math.h>

train_schedule train_schedule_make(const train_config *config)
{
    double ratio = train_config_min_lr_ratio(config);
    return (train_schedule){.kind = (train_scheduler)config->lr_scheduler,
                            .peak = config->learning_rate,
                            .end = config->learning_rate * ratio,
                            .warmup_steps = train_config_warmup(config),
                            .max_steps = config->max_steps,
                            .decay_steps =
                                llround(config->decay_ratio * (double)config->max_steps)};
}

/* How far the last decay_steps have gone at `step`, 0 .. 1. */
static double decayed(const train_schedule *s, int64_t step)
{
    int64_t into = step - (s->max_steps - s->decay_steps);
    if (into <= 0 || s->decay_steps <= 0)
        return 0;
    return into < s->decay_steps ? (double)into / (double)s->decay_steps : 1;
}

/* cos(pi p) for p in 0 .. 1, to the last bits: sin(pi (1/2 - p)) by its series. Members of a pool
 * compute rates apart from each other, and mathematical libraries round differently. */
static double cosine(double p)
{
    double y = M_PI * (0.5 - p), square = y * y, term = y, sum = y;
    for (int k = 1; k <= 12; k++) {
        term *= -square / (2 * k * (2 * k + 1));
        sum += term;
    }
    return sum;
}

double train_schedule_rate(const train_schedule *s, int64_t step)
{
    if (step < s->warmup_steps)
        return s->peak * ((double)step / (double)s->warmup_steps);
    int64_t span = s->max_steps - s->warmup_steps;
    double p = span > 0 ? (double)(step - s->warmup_steps) / (double)span : 0;
    p = p > 1 ? 1 : p;
    switch (s->kind) {
    case TRAIN_CONSTANT:
        return s->peak;
    case TRAIN_LINEAR:
        return s->peak - (s->peak - s->end) * p;
    case TRAIN_COSINE:
        return s->end + (s->peak - s->end) * 0.5 * (1 + cosine(p));
    case TRAIN_WSD:
        return s->peak - (s->peak - s->end) * decayed(s, step);
    }
    return s->peak;
}
