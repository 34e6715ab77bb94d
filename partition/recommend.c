/*
 * Owns the recommended number of micro-batches. One idea: what a step does once (fetches, updates,
 * the first loads) counts less the more micro-batches share it, so throughput rises with their
 * number and then hardly any more; a user wants the smallest number that gets nearly all of it.
 * Refuses to look at loads alone: the whole step is judged.
 */
#include "partition/candidates.h"

enum { MICRO_BATCHES_MAX = 4096 };

/* Where four times as many bring less than this, it is the end of the rise. */
static const double NOTHING = 1.005;

/* Tokens per second with C micro-batches in a step; 0: they do not fit. */
ATOM_MUST static atom_status rate_at(part_search_state *s, uint32_t C, double *rate)
{
    double seconds = 0;
    s->micro_batches = C;
    atom_status st = part_quick_seconds(s, &seconds);
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
        ATOM_TRY(rate_at(s, middle, &rate));
        if (rate < PART_NEARLY_ALL * out->most_tokens_per_second) {
            low = middle;
            continue;
        }
        out->micro_batches = middle;
        out->tokens_per_second = rate;
    }
    return ATOM_OK;
}

atom_status part_recommend(part_search_state *s, part_advice *out)
{
    enum { STEPS = 7 }; /* 1, 4, 16 .. MICRO_BATCHES_MAX */
    const uint32_t asked = s->micro_batches;
    double rates[STEPS] = {0};
    uint32_t n = 0;
    bool rises = true;
    atom_status st = ATOM_OK;
    *out = (part_advice){.micro_batches = 1};
    if (s->in_place)
        return ATOM_OK;
    for (uint32_t C = 1; rises && C <= MICRO_BATCHES_MAX; C *= 4, n++) {
        ATOM_TRY_CLEAN(rate_at(s, C, &rates[n]));
        rises = rates[n] > NOTHING * out->most_tokens_per_second;
        if (rates[n] > out->most_tokens_per_second)
            out->most_tokens_per_second = rates[n];
    }
    uint32_t first = 0;
    while (first + 1 < n && rates[first] < PART_NEARLY_ALL * out->most_tokens_per_second)
        first++;
    out->micro_batches = out->most_tokens_per_second > 0 ? 1u << 2 * first : 0;
    out->tokens_per_second = rates[first];
    if (first > 0)
        ATOM_TRY_CLEAN(narrow(s, 1u << 2 * (first - 1), out));
cleanup:
    s->micro_batches = asked;
    return st;
}
