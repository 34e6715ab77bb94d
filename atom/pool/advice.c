/*
 * Owns the defaults of a pool and the words that explain them. One idea: one table by size, and one
 * formula for the link; every number in a sentence is one that the choice was made with. Refuses to
 * override what somebody said, and to hide that a link is too slow.
 */
#include "atom/pool/advice.h"

#include "gossip/sum/quant.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* docs/design/pool.md#what-the-user-sees. */
static const struct {
    double floats; /* up to */
    int64_t sync_steps;
    int32_t codec;
} sizes[] = {{1e9, 20, GSP_CODEC_INT8}, {INFINITY, 100, GSP_CODEC_INT8}};

/* To what H is raised where the link asks for it; and what alternatives are shown. */
static const int64_t ladder[] = {20, 50, 100, 200, 500};
enum { RUNGS = sizeof ladder / sizeof *ladder, MEMBERS_USUAL = 8 };
static const double DUE_SECONDS = 600;

/* So many averages a run should have: with fewer, members learn much less from each other
 * (docs/measurements/2026-11-27-own-steps.md). */
enum { AVERAGES_LEAST = 50 };

typedef struct reckoning {
    const pool_facts *facts;
    bool sums, delayed, slices;       /* slices: H is the mode's own, a slice a step */
    double bytes_per_s, step_seconds; /* 0: unknown */
    double members;
    double travels; /* encoded bytes that move, of those of the weights */
} reckoning;

static void say(pool_advice *a, const char *fmt, ...) ATOM_PRINTF(2, 3);
static void say(pool_advice *a, const char *fmt, ...)
{
    va_list args;
    if (a->n_why == POOL_WHYS)
        return;
    va_start(args, fmt);
    vsnprintf(a->why[a->n_why++], POOL_WHY_BYTES, fmt, args);
    va_end(args);
}

const char *pool_seconds_text(double s, char buf[POOL_FIGURE_BYTES])
{
    if (s < 10)
        snprintf(buf, POOL_FIGURE_BYTES, "%.1f s", s);
    else if (s < 600)
        snprintf(buf, POOL_FIGURE_BYTES, "%.0f s", s);
    else if (s < 36000)
        snprintf(buf, POOL_FIGURE_BYTES, "%.0f min", s / 60);
    else
        snprintf(buf, POOL_FIGURE_BYTES, "%.0f h", s / 3600);
    return buf;
}

const char *pool_count_text(double n, char buf[POOL_FIGURE_BYTES])
{
    static const char *const units[] = {"", "k", "M", "B", "T"};
    int u = 0;
    while (n >= 999.5 && u < 4) {
        n /= 1000;
        u++;
    }
    snprintf(buf, POOL_FIGURE_BYTES, n < 9.95 && u ? "%.1f%s" : "%.0f%s", n, units[u]);
    return buf;
}

static reckoning begin(const pool_settings *s, const pool_facts *f, pool_advice *a)
{
    uint64_t up = f->up_bytes_per_s, down = f->down_bytes_per_s;
    double n = f->members >= 2 ? f->members : MEMBERS_USUAL;
    uint64_t rate = up && (!down || up < down) ? up : down;
    a->assumed = rate == 0;
    return (reckoning){.facts = f,
                       .sums = s->sync == POOL_SYNC_GRADIENTS,
                       .delayed = s->delayed_updates,
                       .slices = s->sync == POOL_SYNC_SLICES,
                       .bytes_per_s = rate ? (double)rate : POOL_ASSUMED_MBIT * 1e6 / 8,
                       .step_seconds =
                           f->tokens_per_s > 0 ? (double)f->step_tokens / f->tokens_per_s : 0,
                       .members = n,
                       .travels = 1 + (n - 2) / n};
}

static pool_case reckon(const reckoning *r, int32_t codec, int64_t steps)
{
    double bytes = (double)gsp_codec_bytes((gsp_codec)codec, r->facts->floats) * r->travels;
    pool_case c = {.codec = codec,
                   .sync_steps = steps,
                   .sync_seconds = bytes / r->bytes_per_s,
                   .steps_seconds = (double)steps * r->step_seconds};
    if (r->step_seconds <= 0)
        c.waits = 0;
    else if (r->sums && r->delayed)
        c.waits = fmax(0, 1 - c.steps_seconds / c.sync_seconds);
    else if (r->sums)
        c.waits = c.sync_seconds / (c.sync_seconds + c.steps_seconds);
    else if (c.sync_seconds > c.steps_seconds)
        c.waits = 1 - c.steps_seconds / c.sync_seconds;
    return c;
}

static bool hides(const reckoning *r, const pool_case *c)
{
    return r->step_seconds <= 0 || c->sync_seconds <= c->steps_seconds;
}

static uint32_t size_row(uint64_t floats)
{
    uint32_t row = 0;
    while ((double)floats >= sizes[row].floats)
        row++;
    return row;
}

static void choose(const reckoning *r, const pool_settings *s, const pool_said *said,
                   pool_advice *a)
{
    uint32_t row = size_row(r->facts->floats);
    a->codec = said->codec ? s->codec : sizes[row].codec;
    bool keeps = said->sync_steps || r->slices;
    a->sync_steps = keeps ? s->sync_steps : sizes[row].sync_steps;
    a->chosen = reckon(r, a->codec, a->sync_steps);
    for (uint32_t k = 0; k < RUNGS && !keeps && !hides(r, &a->chosen); k++)
        if (ladder[k] > a->sync_steps) {
            a->sync_steps = ladder[k];
            a->chosen = reckon(r, a->codec, a->sync_steps);
        }
    a->hidden = hides(r, &a->chosen);
}

/* The smallest H that hides a sync, rounded up to two digits. */
static int64_t would_hide(const reckoning *r, double sync_seconds)
{
    double steps = sync_seconds / r->step_seconds;
    double unit = pow(10, floor(log10(steps > 1 ? steps : 1)) - 1);
    unit = unit < 1 ? 1 : unit;
    return (int64_t)(ceil(steps / unit) * unit);
}

static void explain(const reckoning *r, const pool_said *said, pool_advice *a)
{
    char size[POOL_FIGURE_BYTES], sync[POOL_FIGURE_BYTES], steps[POOL_FIGURE_BYTES],
        other[POOL_FIGURE_BYTES];
    const pool_case *c = &a->chosen;
    uint32_t row = size_row(r->facts->floats);
    double mbit = r->bytes_per_s * 8e-6;
    pool_count_text((double)r->facts->floats, size);
    pool_seconds_text(c->sync_seconds, sync);
    pool_seconds_text(c->steps_seconds, steps);
    if (r->step_seconds <= 0) {
        say(a,
            "H = %lld: sending all %s parameters once (a sync) takes %s at %.3g Mbit/s; it is "
            "not known how long steps take",
            (long long)c->sync_steps, size, sync, mbit);
        return;
    }
    const char *because = said->sync_steps                        ? " (as you said)"
                          : r->slices                             ? " (a slice a step)"
                          : c->sync_steps > sizes[row].sync_steps ? " (raised because of the "
                                                                    "link)"
                                                                  : "";
    if (a->hidden) {
        say(a,
            "H = %lld%s: sending all %s parameters once (a sync) in %s takes %s at %.3g Mbit/s, "
            "and %lld steps take %s, so the sync is hidden",
            (long long)c->sync_steps, because, size, gsp_codec_name((gsp_codec)c->codec), sync,
            mbit, (long long)c->sync_steps, steps);
        return;
    }
    say(a,
        "H = %lld%s: sending all %s parameters once (a sync) in %s takes %s at %.3g Mbit/s, but "
        "%lld steps take only %s, so the sync is not hidden and weights are averaged every %s "
        "instead",
        (long long)c->sync_steps, because, size, gsp_codec_name((gsp_codec)c->codec), sync, mbit,
        (long long)c->sync_steps, steps, pool_seconds_text(c->sync_seconds, other));
    const int64_t enough = would_hide(r, c->sync_seconds), longest = ladder[RUNGS - 1];
    if (enough <= longest)
        say(a, "H = %lld would hide it", (long long)enough);
    else
        say(a,
            "H = %lld would hide it, but with more than %lld steps between averages members learn "
            "less from each other",
            (long long)enough, (long long)longest);
}

/* What steps of a member's own cost, and from what batch on the link allows the mode without it. */
static void offer_sums(const reckoning *r, pool_advice *a)
{
    char tokens[POOL_FIGURE_BYTES];
    pool_case whole = reckon(r, GSP_CODEC_INT8, 1);
    if (r->step_seconds <= 0)
        return;
    say(a,
        "averaging weights learns less from the same tokens than one trainer does; sync: "
        "gradients with codec: int8 learns as well as one trainer, and with a global batch of at "
        "least %s tokens (%.0f members) it waits for this link less than 10 %% of the time",
        pool_count_text(9 * whole.sync_seconds * r->facts->tokens_per_s * r->members, tokens),
        r->members);
}

/* A short run has few averages. */
static void warn_of_few(const reckoning *r, const pool_settings *s, pool_advice *a)
{
    char least[POOL_FIGURE_BYTES * 2] = "";
    double all = (double)s->batch * (double)s->steps;
    double own = all > 0 ? (double)s->steps * (1 - (double)pool_settings_dense(s) / all) : 0;
    double each = own / r->members;
    if (r->slices || all <= 0 || each >= AVERAGES_LEAST * (double)a->sync_steps)
        return;
    if (each >= AVERAGES_LEAST)
        snprintf(least, sizeof least, "choose an H of at most %.0f, or ",
                 floor(each / AVERAGES_LEAST));
    say(a,
        "in this run each of %.0f members makes about %.0f steps of its own, so weights are "
        "averaged "
        "only %.0f times; with fewer than %d averages members learn much less from each other: "
        "%strain with sync: gradients",
        r->members, each, each / (double)a->sync_steps, AVERAGES_LEAST, least);
}

/* With slices a pass over all weights takes H steps; whoever comes later needs steps to warm up. */
static void warn_of_short(const reckoning *r, const pool_settings *s, pool_advice *a)
{
    const double all = (double)s->batch * (double)s->steps;
    const double each = all > 0 && !r->sums ? floor((double)s->steps / r->members) : 0;
    if (each >= 1 && r->slices && each < (double)a->sync_steps)
        say(a,
            "in this run each of %.0f members makes about %.0f steps, and with sync_steps: %lld "
            "some slices are never averaged; choose sync_steps of at most %.0f",
            r->members, each, (long long)a->sync_steps, each);
    if (each >= 1 && each < (double)s->rewarm_steps)
        say(a,
            "in this run each of %.0f members makes about %.0f steps, and with rewarm_steps: %lld "
            "a newcomer never reaches the pool's learning rate",
            r->members, each, (long long)s->rewarm_steps);
}

/* An outer momentum is for changes that differ from one average to the next
 * (docs/measurements/2026-11-28-own-steps.md). */
static void warn_of_momentum(const reckoning *r, const pool_settings *s, pool_advice *a)
{
    if (r->sums || r->slices || s->outer_momentum <= 0)
        return;
    if (a->sync_steps >= POOL_MOMENTUM_STEPS) {
        if (r->facts->members == 2)
            say(a,
                "two members that stepped by Muon lost 5.5 %% with an outer momentum and H = 20, "
                "and 2.4 %% with the plain mean: if the pool stays that small, set "
                "outer_learning_rate: 1 and outer_momentum: 0");
        return;
    }
    say(a,
        "H = %lld is small for an outer momentum: with H = 5 four members that stepped by Muon "
        "lost 8.5 %% with it, and 2.9 %% with the plain mean, which is what they get if neither "
        "outer_learning_rate nor outer_momentum is given",
        (long long)a->sync_steps);
}

/* Where the link allows it, averages that come more often are worth it
 * (docs/measurements/2026-11-28-own-steps.md). */
static void offer_frequent(const reckoning *r, const pool_said *said, pool_advice *a)
{
    enum { FREQUENT = 5 };
    const pool_case frequent = reckon(r, a->codec, FREQUENT);
    if (said->sync_steps || r->sums || r->slices || r->step_seconds <= 0 || !hides(r, &frequent))
        return;
    say(a,
        "this link would hide a sync every %d steps, too; with sync_steps: %d members learn more "
        "and send %.2g times as much (by Muon with 0.45M parameters, two ended 1.3 %% behind one "
        "trainer instead of 2.4 %% with H = 20, and four 2.9 %% instead of 5.3 %%)",
        FREQUENT, FREQUENT, (double)a->sync_steps / FREQUENT);
}

/* Whoever misses a few reports is not gone. */
static void warn_of_forks(const pool_settings *s, pool_advice *a)
{
    enum { REPORTS = 4 };
    if (s->fork_seconds >= REPORTS * s->heartbeat_seconds)
        return;
    say(a,
        "with fork_seconds: %g members that miss %d reports (heartbeat_seconds: %g) already go on "
        "by themselves, and what one side has trained until they meet again is lost",
        s->fork_seconds, (int)fmax(1, ceil(s->fork_seconds / s->heartbeat_seconds)),
        s->heartbeat_seconds);
}

static void explain_sums(const reckoning *r, pool_advice *a)
{
    char size[POOL_FIGURE_BYTES], sync[POOL_FIGURE_BYTES], step[POOL_FIGURE_BYTES],
        batch[POOL_FIGURE_BYTES];
    const pool_case *c = &a->chosen;
    pool_count_text((double)r->facts->floats, size);
    pool_seconds_text(c->sync_seconds, sync);
    pool_seconds_text(c->steps_seconds, step);
    if (r->step_seconds <= 0) {
        say(a, "gradients: each step sends those of %s parameters, in %s at %.3g Mbit/s", size,
            sync, r->bytes_per_s * 8e-6);
        return;
    }
    say(a,
        "gradients: each step sends those of %s parameters in %s at %.3g Mbit/s and computes for "
        "%s; %.0f %% of the time it waits for the link",
        size, sync, r->bytes_per_s * 8e-6, step, 100 * c->waits);
    if (c->waits <= 0.1)
        return;
    double times = (r->delayed ? 0.9 : 9) * c->sync_seconds / c->steps_seconds;
    if (times < 10)
        snprintf(batch, sizeof batch, "%.2g", times);
    say(a,
        "a global batch %s times as large would wait 10 %% of the time; or average parameters: "
        "sync: parameters sends as much only once in 20 steps, while training goes on",
        times < 10 ? batch : pool_count_text(times, batch));
}

static void add_case(pool_advice *a, pool_case c)
{
    c.chosen = c.codec == a->codec && c.sync_steps == a->sync_steps;
    if (a->n_cases < POOL_CASES_MAX)
        a->cases[a->n_cases++] = c;
}

/* Codecs by H; the chosen H where it belongs. */
static void add_cases(const reckoning *r, pool_advice *a)
{
    static const int32_t codecs[] = {GSP_CODEC_INT8, GSP_CODEC_BF16, GSP_CODEC_FP32};
    static const int64_t shown[] = {20, 100, 500};
    for (uint32_t k = 0; k < 3; k++) {
        int64_t before = 0;
        for (uint32_t i = 0; i < 3 && !r->sums; i++) {
            if (a->sync_steps > before && a->sync_steps < shown[i])
                add_case(a, reckon(r, codecs[k], a->sync_steps));
            add_case(a, reckon(r, codecs[k], shown[i]));
            before = shown[i];
        }
        if (r->sums || a->sync_steps > before)
            add_case(a, reckon(r, codecs[k], a->sync_steps));
    }
}

/* T is for members who do not get their steps done: it must not come before the slow ones. */
static void choose_due(const reckoning *r, const pool_settings *s, const pool_said *said,
                       pool_advice *a)
{
    char text[POOL_FIGURE_BYTES], piece[POOL_FIGURE_BYTES];
    double fragments = s->fragments > 0 ? (double)s->fragments : 1;
    double each = a->chosen.steps_seconds / fragments;
    a->due_seconds = s->due_seconds;
    if (said->due_seconds || r->sums || 2 * each <= DUE_SECONDS)
        return;
    a->due_seconds = fmin(ceil(2 * each / 60) * 60, 86400);
    say(a,
        "T = %s: a fragment is due after every %s of training, and T must leave time for "
        "slower members",
        pool_seconds_text(a->due_seconds, text), pool_seconds_text(each, piece));
}

void pool_advise(const pool_settings *settings, const pool_said *said, const pool_facts *facts,
                 pool_advice *out)
{
    memset(out, 0, sizeof *out);
    reckoning r = begin(settings, facts, out);
    if (r.sums) {
        out->codec = settings->codec;
        out->sync_steps = 1;
        out->chosen = reckon(&r, out->codec, 1);
        out->hidden = out->chosen.waits <= 0.1;
        explain_sums(&r, out);
    } else {
        choose(&r, settings, said, out);
        explain(&r, said, out);
        warn_of_few(&r, settings, out);
        offer_sums(&r, out);
    }
    warn_of_short(&r, settings, out);
    warn_of_momentum(&r, settings, out);
    offer_frequent(&r, said, out);
    warn_of_forks(settings, out);
    out->chosen.chosen = true;
    choose_due(&r, settings, said, out);
    if (out->assumed)
        say(out,
            "%.0f Mbit/s is assumed, because the speed of this host's connection is not known; "
            "give it with --max-upload and --max-download (atom pool selftest --via TICKET "
            "measures it)",
            POOL_ASSUMED_MBIT);
    add_cases(&r, out);
}

/* What binds, in the words of somebody who asks what to buy. */
static const char *binds(place_bound bound)
{
    return bound == PLACE_BOUND_SYNC        ? "limited by the connection"
           : bound == PLACE_BOUND_OPTIMIZER ? "limited by updates"
                                            : "limited by computing";
}

static void explain_ways(const pool_ways *w, pool_advice *a)
{
    char weights[POOL_FIGURE_BYTES], sums[POOL_FIGURE_BYTES], step[POOL_FIGURE_BYTES];
    say(a,
        "%u hosts like this one should reach %s tokens/s by averaging weights (%s), and %s by "
        "summing gradients in %s, %s tokens a step (%s)%s; recommended is sync: %s; for hosts "
        "that differ use `atom plan --pool`",
        w->members, pool_count_text(w->weights.tokens_per_s, weights), binds(w->weights.bound),
        pool_count_text(w->gradients.tokens_per_s, sums),
        gsp_codec_name((gsp_codec)w->gradients_codec), pool_count_text(w->step_tokens, step),
        binds(w->gradients.bound),
        w->gradients.tokens_per_s < w->alone ? ", less than one of them alone" : "",
        place_mode_names[w->recommended]);
}

/* What the other kind of gradients would make of a step. */
static void explain_delay(const pool_settings *s, const pool_ways *w, pool_advice *a)
{
    char sums[POOL_FIGURE_BYTES], side[POOL_FIGURE_BYTES];
    double gain = w->sums_seconds / w->delayed_seconds;
    pool_seconds_text(w->sums_seconds, sums);
    pool_seconds_text(w->delayed_seconds, side);
    if (s->delayed_updates || gain >= PLACE_DELAY_PAYS)
        say(a,
            "delayed_updates%s: a step takes %s instead of %s (%.2g times as fast), because "
            "members compute while gradients are sent; each gradient is then computed with "
            "weights one step old",
            s->delayed_updates ? "" : ": true would be worth it", side, sums, gain);
}

/* A micro-batch is computed by one member. */
static void warn_of_idle(const pool_ways_facts *f, pool_advice *a)
{
    double micros = f->micro_tokens > 0 ? round(f->step_tokens / f->micro_tokens) : f->members;
    if (micros < f->members)
        say(a,
            "a step has %.0f micro-batch%s, so no more than %.0f of %u members can work on it; set "
            "global_batch_size to at least %u times micro_batch_size",
            micros, micros == 1 ? "" : "es", micros, f->members, f->members);
}

atom_status pool_advise_ways(const pool_settings *settings, const pool_facts *facts,
                             const pool_pace *pace, pool_advice *advice)
{
    reckoning r = begin(settings, facts, advice);
    const pool_ways_facts f = {.floats = facts->floats,
                               .members = (uint32_t)r.members,
                               .micro_tokens = pace->micro_tokens,
                               .micro_seconds = pace->micro_seconds,
                               .update_seconds = pace->update_seconds,
                               .apart_seconds = pace->apart_seconds,
                               .step_tokens = (double)facts->step_tokens * r.members,
                               .bytes_per_s = r.bytes_per_s,
                               .delayed = r.delayed,
                               .gradients_codec = r.sums ? advice->codec : GSP_CODEC_INT8,
                               .weights_codec = r.sums ? GSP_CODEC_INT8 : advice->codec};
    ATOM_TRY(pool_ways_price(&f, &advice->ways));
    if (advice->ways.known)
        explain_ways(&advice->ways, advice);
    if (advice->ways.known && r.sums)
        explain_delay(settings, &advice->ways, advice);
    if (r.sums)
        warn_of_idle(&f, advice);
    return ATOM_OK;
}

static pool_learns expect(const pool_settings *s, const pool_facts *f, const pool_learner *l,
                          const pool_advice *a)
{
    if (l->adapters)
        return (pool_learns){.why = "averaging was not measured with adapters"};
    if (s->sync == POOL_SYNC_SLICES)
        return (pool_learns){.why = "slices were measured only once, 19 % worse with 2.9M "
                                    "parameters"};
    double all = (double)s->batch * (double)s->steps;
    const pool_learns_facts facts = {.floats = f->floats,
                                     .members = f->members >= 2 ? f->members : MEMBERS_USUAL,
                                     .sync_steps = a->sync_steps,
                                     .muon = l->muon,
                                     .momentum = s->outer_momentum > 0,
                                     .dense = all > 0 ? (double)pool_settings_dense(s) / all : 0};
    return pool_learns_expect(&facts);
}

void pool_advise_loss(const pool_settings *s, const pool_facts *f, const pool_learner *l,
                      pool_advice *a)
{
    const char *by = l->muon ? "Muon" : "AdamW";
    if (s->sync == POOL_SYNC_GRADIENTS) {
        say(a, "loss: as with one %s trainer that trains on the same batches%s", by,
            s->delayed_updates ? ", with weights one step old, which learns less at high "
                                 "learning rates"
                               : "");
        return;
    }
    a->expects = expect(s, f, l, a);
    if (a->expects.known)
        say(a,
            "loss: about %.2g %% (%.2g to %.2g %%) higher than with one %s trainer and as many "
            "tokens, estimated from measurements with 2 to %u members",
            100 * a->expects.behind, 100 * a->expects.low, 100 * a->expects.high, by,
            a->expects.members);
    else
        say(a, "loss: it is not known how much higher it will be than with one %s trainer: %s", by,
            a->expects.why);
}

void pool_advice_follow(const pool_advice *advice, pool_settings *settings)
{
    settings->due_seconds = advice->due_seconds;
    if (settings->sync == POOL_SYNC_GRADIENTS)
        return;
    settings->sync_steps = advice->sync_steps;
    settings->codec = advice->codec;
}
