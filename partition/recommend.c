/*
 * Owns the recommended number of micro-batches. One idea: what a step does once (fetches, updates,
 * the first loads) counts less the more micro-batches share it, so throughput rises with their
 * number and then hardly any more; a user wants the smallest number that gets nearly all of it.
 * Refuses to look at loads alone: the whole step is judged.
 */
#include "partition/candidates.h"

#include <math.h>

/* Where four times as many bring less than this, it is the end of the rise. */
static const double NOTHING = 1.005;

/* Where the device's memory is short, only a plan that needs little of it may be left. */
ATOM_MUST static atom_status last_seconds(part_search_state *s, bool exact, double *seconds)
{
    part_plan *plan = NULL;
    part_verdict v;
    atom_status st = ATOM_OK;
    ATOM_TRY(part_least_plan(s, false, &plan, &v));
    if (plan && v.device_peak_bytes <= part_device_limit(s) && part_host_holds(s, &v)) {
        if (exact && !part_dear(s, plan))
            st = part_judge(s, plan, &v);
        part_plan_note(s, plan, &v);
        *seconds = st == ATOM_OK ? part_plan_seconds(plan) : 0;
    }
    part_plan_close(&plan);
    return st;
}

/* Seconds of a step at the state's C; 0: it does not fit. Where what is found quickly is slow, memory may be short. */
ATOM_MUST static atom_status seconds_at(part_search_state *s, bool exact, double *seconds)
{
    static const double SLOW = 2.5;
    const part_plan bare = {.micro_batches = s->micro_batches};
    double last = 0;
    *seconds = 0;
    ATOM_TRY(part_quick_seconds(s, exact, seconds));
    /* Beside a state on disk each little plan is laid out with its disk, which is dear. */
    const bool dear = s->model->disk && s->host_alone_bytes;
    if (dear || (*seconds > 0 && *seconds < SLOW * part_least_seconds(s, &bare)))
        return ATOM_OK;
    ATOM_TRY(last_seconds(s, exact, &last));
    if (last > 0 && (*seconds == 0 || last < *seconds))
        *seconds = last;
    return ATOM_OK;
}

/* Tokens per second with C micro-batches in a step; 0: they do not fit. */
ATOM_MUST static atom_status rate_at(part_search_state *s, uint32_t C, bool exact, double *rate)
{
    const bool over = s->model->over;
    double seconds = 0;
    s->micro_batches = C;
    atom_status st = seconds_at(s, exact, &seconds);
    if (st == ATOM_OK && seconds == 0 && s->model->disk && !over) {
        s->model->over = true; /* as the search does where that does not fit */
        st = seconds_at(s, exact, &seconds);
        s->model->over = over;
    }
    double tokens = (double)C * (double)(s->g->micro_batch * s->g->sequence);
    *rate = seconds > 0 ? tokens / seconds : 0;
    return st;
}

/* Between low, which is too few, and out->micro_batches, which is enough. */
ATOM_MUST static atom_status narrow(part_search_state *s, uint32_t low, part_advice *out)
{
    /* A sixteenth more or less is all the same to a user. */
    while (out->micro_batches - low > 1 + low / 16) {
        uint32_t middle = low + (out->micro_batches - low) / 2;
        double rate;
        ATOM_TRY(rate_at(s, middle, false, &rate));
        if (rate < PART_NEARLY_ALL * out->most_tokens_per_second) {
            low = middle;
            continue;
        }
        out->micro_batches = middle;
        out->tokens_per_second = rate;
    }
    return ATOM_OK;
}

/*
 * The number that the model found is judged exactly; where it is too few, more are taken. With C in a step a
 * rate is about most C / (C + k): what is shared by all of them takes as long as k. So the share of all that is
 * wanted is reached at k share / (1 - share).
 */
ATOM_MUST static atom_status confirm(part_search_state *s, part_advice *out)
{
    enum { TRIES = 3 };
    const double most = out->most_tokens_per_second;
    part_advice next = *out;
    for (int i = 0;; i++) {
        const uint32_t C = next.micro_batches;
        ATOM_TRY(rate_at(s, C, true, &next.tokens_per_second));
        if (i == 0 || next.tokens_per_second > out->tokens_per_second)
            *out = next;                                          /* more may not fit, or not pay */
        if (out->tokens_per_second > out->most_tokens_per_second) /* the model saw too little */
            out->most_tokens_per_second = out->tokens_per_second;
        if (i == TRIES || next.tokens_per_second <= 0 ||
            next.tokens_per_second >= PART_NEARLY_ALL * most)
            return ATOM_OK;
        const double once = C * (most / next.tokens_per_second - 1);
        const double wanted = ceil(once * PART_NEARLY_ALL / (1 - PART_NEARLY_ALL));
        next.micro_batches = wanted >= 2.0 * C ? 2 * C : wanted > C ? (uint32_t)wanted : C + 1;
    }
}

/* About the largest number that is no slower than fewer are: *C has that rate, high is slower or does not fit. */
ATOM_MUST static atom_status most_that_pay(part_search_state *s, uint32_t high, uint32_t *C,
                                           double *rate)
{
    enum { TRIES = 3 };
    for (uint32_t i = 0, middle = high / 2; i < TRIES && *C < middle;
         i++, middle = *C + (high - *C) / 2) {
        double got;
        ATOM_TRY(rate_at(s, middle, false, &got));
        if (got < *rate) {
            high = middle;
            continue;
        }
        *C = middle;
        *rate = got;
    }
    return ATOM_OK;
}

atom_status part_recommend(part_search_state *s, part_advice *out)
{
    /* 1, 4, 16 .. PART_ADVISED_MAX; the last may be between these, where so many did not fit or pay */
    enum { STEPS = 7 };
    const uint32_t asked = s->micro_batches;
    uint32_t at[STEPS] = {0}, n = 0;
    double rates[STEPS] = {0};
    bool rises = true;
    atom_status st = ATOM_OK;
    *out = (part_advice){.micro_batches = 1};
    if (s->in_place)
        return ATOM_OK;
    for (uint32_t C = 1; rises && C <= PART_ADVISED_MAX; C *= 4, n++) {
        at[n] = C;
        ATOM_TRY_CLEAN(rate_at(s, at[n], false, &rates[n]));
        if (n > 0 && rates[n] < rates[n - 1]) {
            at[n] = at[n - 1];
            rates[n] = rates[n - 1];
            ATOM_TRY_CLEAN(most_that_pay(s, C, &at[n], &rates[n]));
            C = PART_ADVISED_MAX;
        }
        rises = rates[n] > NOTHING * out->most_tokens_per_second;
        if (rates[n] > out->most_tokens_per_second)
            out->most_tokens_per_second = rates[n];
    }
    uint32_t first = 0;
    while (first + 1 < n && rates[first] < PART_NEARLY_ALL * out->most_tokens_per_second)
        first++;
    out->micro_batches = out->most_tokens_per_second > 0 ? at[first] : 0;
    out->tokens_per_second = rates[first];
    if (first > 0)
        ATOM_TRY_CLEAN(narrow(s, at[first - 1], out));
    if (out->micro_batches)
        ATOM_TRY_CLEAN(confirm(s, out));
cleanup:
    s->micro_batches = asked;
    return st;
}

/* --- where the plan is there --- */

/* The best plan for C micro-batches, of cuts that are found quickly; NULL: none fits. */
ATOM_MUST static atom_status choose_quickly(part_search_state *s, uint32_t C, part_plan **plan)
{
    const uint32_t asked = s->micro_batches;
    const bool hasty = s->hasty;
    s->micro_batches = C;
    s->hasty = true;
    atom_status st = part_choose(s, plan);
    s->micro_batches = asked;
    s->hasty = hasty;
    return st;
}

/* What is promised of the plan for more micro-batches; is that clearly more than what there is? */
static bool is_clear(part_advice *advice, const part_plan *had, const part_plan *more)
{
    static const double CLEARLY = PART_NEARLY_ALL - 0.01;
    const double rate = more ? part_plan_tokens_per_second(more) : 0;
    advice->most_tokens_per_second = fmax(advice->most_tokens_per_second, rate);
    return part_plan_tokens_per_second(had) < CLEARLY * rate;
}

/* The best plan for C micro-batches is taken if it is clearly quicker. little: the plan is one of those that need little,
 * of which there are too few to ask for a quick one first. */
ATOM_MUST static atom_status try_as_many(part_search_state *s, uint32_t C, bool little,
                                         part_plan **plan, part_advice *advice)
{
    const uint32_t had = s->micro_batches;
    part_plan *quick = NULL, *more = NULL;
    atom_status st = ATOM_OK;
    if (C > PART_ADVISED_MAX || s->stats.states > PART_STATES_ENOUGH)
        return ATOM_OK;
    if (!little)
        ATOM_TRY(choose_quickly(s, C, &quick));
    if (!little && !is_clear(advice, *plan, quick))
        goto cleanup;
    s->micro_batches = C;
    ATOM_TRY_CLEAN(part_choose_or_little(s, &more));
    if (quick && (!more || part_beats(quick, more))) {
        part_plan_close(&more);
        more = quick;
        quick = NULL;
    }
    if (is_clear(advice, *plan, more)) {
        part_plan_close(plan);
        *plan = more;
        more = NULL;
    } else {
        s->micro_batches = had;
    }
cleanup:
    part_plan_close(&quick);
    part_plan_close(&more);
    return st;
}

/* So many micro-batches get nearly all that these cuts can get, by the model. */
static uint32_t enough_for(const part_search_state *s, const part_plan *plan)
{
    double most = 0, rate;
    uint32_t enough = plan->micro_batches;
    for (uint32_t C = plan->micro_batches; C <= PART_ADVISED_MAX; C *= 2) {
        part_plan many = *plan;
        part_verdict v;
        many.micro_batches = C;
        part_estimate(s->model, &many, &v);
        rate = C / v.step_seconds;
        if (v.device_peak_bytes > part_device_limit(s) || !part_host_holds(s, &v) ||
            PART_NEARLY_ALL * rate <= most)
            break;
        most = rate;
        enough = C;
    }
    return enough;
}

atom_status part_try_more(part_search_state *s, bool little, part_plan **plan, part_advice *advice)
{
    enum { ROUNDS = 3, TIMES_MAX = 4 };
    const uint32_t enough = little ? enough_for(s, *plan) : 0;
    if (enough > s->micro_batches)
        ATOM_TRY(try_as_many(s, enough, true, plan, advice));
    for (int i = 0; i < ROUNDS; i++) {
        const uint32_t had = s->micro_batches;
        for (uint32_t times = 2; times <= TIMES_MAX && s->micro_batches == had; times *= 2)
            ATOM_TRY(try_as_many(s, times * had, little, plan, advice));
        if (s->micro_batches == had)
            break;
    }
    return ATOM_OK;
}
