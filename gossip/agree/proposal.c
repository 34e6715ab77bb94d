/*
 * Owns what a proposal must be by itself. Its one idea: everything in it that follows from the
 * version before is computed again, by the code that its proposer used, so a certificate from
 * outside is judged like a proposal. It refuses to know who is there, or what anybody promised.
 */
#include "gossip/agree/proposal.h"

#include "gossip/agree/kept_out.h"

#include <math.h>
#include <string.h>

enum { SPREADS = 4, STEP_MOST = 2 * GSP_AGAINST_EACH };

/* ---- contributions ---- */

const char *gsp_contribution_wrong(const gsp_rules *rules, uint64_t tokens, uint64_t samples)
{
    uint64_t each = rules->tokens_per_sample;
    if (tokens == 0 || samples == 0)
        return "a contribution without content";
    if (tokens > GSP_TOKENS_MAX || samples > GSP_TOKENS_MAX || samples > rules->samples_max)
        return "a contribution beyond belief";
    if (each == 0 || (tokens - 1) / each >= samples)
        return "more tokens than its samples can have";
    return NULL;
}

const char *gsp_brought_wrong(const gsp_rules *rules, const gsp_proposal *before, uint64_t tokens,
                              uint64_t samples)
{
    uint64_t each = rules->tokens_per_sample;
    const char *wrong = gsp_contribution_wrong(rules, tokens, samples);
    if (wrong || !gsp_rules_clips_sums(rules, before->samples))
        return wrong;
    return tokens / each == samples && tokens % each == 0 ? NULL
                                                          : "other tokens than its samples have";
}

void gsp_contribution_clip(const gsp_rules *rules, const gsp_proposal *before, gsp_contribution *c)
{
    uint64_t most = rules->samples_max < GSP_TOKENS_MAX ? rules->samples_max : GSP_TOKENS_MAX;
    uint64_t each = rules->tokens_per_sample;
    c->samples = c->samples < most ? c->samples : most;
    if (c->samples && each > GSP_TOKENS_MAX / c->samples)
        most = GSP_TOKENS_MAX;
    else
        most = c->samples * each;
    if (gsp_rules_clips_sums(rules, before->samples))
        c->tokens = most;
    c->tokens = c->tokens < most ? c->tokens : most;
    if (gsp_contribution_wrong(rules, c->tokens, c->samples)) {
        c->tokens = c->samples = 0;
        memset(&c->root, 0, sizeof c->root);
    }
}

/* ---- weights and totals ---- */

bool gsp_proposal_mutes(const gsp_rules *rules, const gsp_proposal *before, uint32_t i)
{
    bool drifts = gsp_rules_drifts(rules, before->samples);
    uint32_t limit = rules->against_rounds * (drifts ? GSP_AGAINST_EACH : 1);
    return limit && before->against[i] >= limit;
}

void gsp_proposal_weigh(const gsp_rules *rules, const gsp_proposal *before,
                        gsp_contributor *contributor, uint32_t n)
{
    uint32_t muted = 0;
    bool exact = gsp_rules_sums(rules, before->samples) && !rules->robust;
    gsp_weigh(contributor, n);
    for (uint32_t i = 0; exact && i < n; i++)
        contributor[i].weight = contributor[i].tokens;
    for (uint32_t i = 0; i < n; i++)
        muted += gsp_proposal_mutes(rules, before, contributor[i].member);
    for (uint32_t i = 0; 2 * muted < n && i < n; i++)
        if (gsp_proposal_mutes(rules, before, contributor[i].member))
            contributor[i].weight = 0;
}

static uint64_t lesser(uint64_t x, uint64_t y)
{
    return x < y ? x : y;
}

void gsp_proposal_adds(bool sums, const gsp_proposal *p, uint64_t *tokens, uint64_t *samples)
{
    uint32_t anywhere = 0;
    uint64_t brought[GSP_MEMBERS_MAX] = {0};
    for (uint32_t k = 0; k < p->n_parts; k++)
        anywhere |= p->part[k].included;
    for (uint32_t i = 0; i < p->n_contributors; i++)
        brought[i] = p->contributor[i].samples;
    uint64_t limit = sums ? GSP_TOKENS_MAX : 2 * gsp_lower_median(brought, p->n_contributors);
    *tokens = *samples = 0;
    for (uint32_t i = 0; i < p->n_contributors; i++) {
        if (anywhere >> i & 1) {
            const gsp_contributor *c = &p->contributor[i];
            *tokens += c->weight;
            *samples += lesser(lesser(c->samples, limit), c->weight);
        }
    }
}

void gsp_proposal_totals(const gsp_rules *rules, const gsp_proposal *before, const gsp_proposal *p,
                         uint64_t *tokens, uint64_t *samples)
{
    gsp_proposal_adds(gsp_rules_sums(rules, before->samples), p, tokens, samples);
    *tokens += before->tokens;
    *samples += before->samples;
}

/* How contributor c leans, over all parts that it is in; false: it is in none. */
static bool leans(const gsp_proposal *p, uint32_t c, int32_t *lean)
{
    bool brought = false;
    *lean = 0;
    for (uint32_t k = 0; k < p->n_parts; k++) {
        if (p->part[k].included >> c & 1) {
            *lean += p->part[k].lean[c];
            brought = true;
        }
    }
    return brought;
}

/* The upper one of two in the middle. */
static double upper_median(const double *x, uint32_t n)
{
    double sorted[GSP_MEMBERS_MAX];
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = i;
        for (; at > 0 && sorted[at - 1] > x[i]; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = x[i];
    }
    return sorted[n / 2];
}

/* What is expected of a mean over so many samples, where the middle contributor leans by `middle`: noise
 * shortens a cosine as the root of its samples. */
static double expected(const gsp_proposal *p, uint32_t c, double middle)
{
    uint64_t samples[GSP_MEMBERS_MAX] = {0};
    for (uint32_t i = 0; i < p->n_contributors; i++)
        samples[i] = p->contributor[i].samples;
    uint64_t usual = gsp_lower_median(samples, p->n_contributors);
    double part = usual ? (double)p->contributor[c].samples / (double)usual : 1;
    return part < 1 ? middle * sqrt(part) : middle;
}

/*
 * Contributions are partly noise, so signs in a row say little. What counts is how far a
 * contribution stays behind half of what the middle one leans, step after step, in units of that or of
 * the noise: the spread of all. Honest members drift down, whoever pulls backwards or nowhere drifts up
 * (a CUSUM test: Page, "Continuous inspection schemes", 1954). All operations are IEEE 754's own.
 */
static uint8_t behind(const gsp_rules *rules, uint8_t before, const gsp_proposal *p, uint32_t c,
                      int32_t lean)
{
    double all[GSP_MEMBERS_MAX], most = GSP_AGAINST_EACH * 2.0 * rules->against_rounds;
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_contributors; i++) {
        int32_t other;
        if (leans(p, i, &other))
            all[n++] = other;
    }
    double middle = n > 2 ? upper_median(all, n) : 0;
    if (!(middle > 0)) /* nobody can say where it goes */
        return before;
    for (uint32_t i = 0; i < n; i++)
        all[i] = fabs(all[i] - middle);
    double noise = SPREADS * upper_median(all, n), unit = middle > noise ? middle : noise;
    double step = GSP_AGAINST_EACH * (expected(p, c, middle) / 2 - lean) / unit;
    step = step < -STEP_MOST ? -STEP_MOST : step > STEP_MOST ? STEP_MOST : step;
    double now = before + nearbyint(step);
    most = most < UINT8_MAX ? most : UINT8_MAX;
    return (uint8_t)(now < 0 ? 0 : now > most ? most : now);
}

uint8_t gsp_proposal_against(const gsp_rules *rules, const gsp_proposal *before,
                             const gsp_proposal *p, const gsp_key *key)
{
    uint32_t i = gsp_roster_find_key(&before->next, key), c = 0;
    int32_t lean;
    if (i == GSP_NOBODY)
        return 0;
    while (c < p->n_contributors && p->contributor[c].member != i)
        c++;
    if (c == p->n_contributors || !leans(p, c, &lean))
        return before->against[i];
    if (gsp_rules_drifts(rules, before->samples))
        return behind(rules, before->against[i], p, c, lean);
    return lean >= 0 ? 0 : before->against[i] < 255 ? before->against[i] + 1 : 255;
}

/* ---- contributors ---- */

const char *gsp_contributors_wrong(const gsp_rules *rules, const gsp_proposal *before,
                                   const gsp_contributor *c, uint32_t n)
{
    gsp_contributor weighed[GSP_MEMBERS_MAX];
    if (n > before->next.n || n > GSP_MEMBERS_MAX)
        return "more contributors than members";
    for (uint32_t i = 0; i < n; i++) {
        if (c[i].member >= before->next.n || (i > 0 && c[i].member <= c[i - 1].member))
            return "contributors are not ascending members";
        if (gsp_hash_none(&c[i].root))
            return "a contribution without content";
        const char *wrong = gsp_brought_wrong(rules, before, c[i].tokens, c[i].samples);
        if (wrong)
            return wrong;
        weighed[i] = c[i];
    }
    gsp_proposal_weigh(rules, before, weighed, n);
    for (uint32_t i = 0; i < n; i++)
        if (weighed[i].weight != c[i].weight)
            return "a weight that is not by the rule";
    return NULL;
}

/* ---- parts ---- */

/* The part's owner is a member and has sealed it. */
static bool sealed(const gsp_seals *seals, const gsp_roster *roster, const gsp_proposal *p,
                   uint32_t k, const gsp_hash *contributors, const gsp_round *heard)
{
    const gsp_part *part = &p->part[k];
    gsp_statement said;
    if (part->owner >= roster->n)
        return false;
    if (heard && part->owner == heard->known[k].owner &&
        memcmp(part->seal, heard->known[k].seal, sizeof part->seal) == 0 &&
        gsp_hash_equal(contributors, &heard->contributors)) {
        gsp_hash mine, theirs;
        gsp_part_hash(seals, k, &heard->known[k], &mine);
        gsp_part_hash(seals, k, part, &theirs);
        if (gsp_hash_equal(&mine, &theirs))
            return true;
    }
    gsp_reduced_statement(seals, &p->lineage, p->version, k, part, contributors,
                          &roster->member[part->owner], &said);
    return gsp_statement_verify(seals, &said);
}

static const char *part_wrong(gsp_trust trust, const gsp_proposal *p, const gsp_part *part)
{
    uint32_t n = p->n_contributors, all = n >= 32 ? UINT32_MAX : (1u << n) - 1;
    if (part->included == 0 || part->weight == 0 || (part->included & ~all))
        return "a part of nobody's contributions";
    if (!gsp_included_enough(trust, n, part->included))
        return "a part of too few contributions";
    for (uint32_t i = 0; i < GSP_MEMBERS_MAX; i++)
        if (!(part->included >> i & 1) && part->lean[i] != 0)
            return "a lean of somebody who is not included";
    if (part->weight != gsp_included_weight(p->contributor, n, part->included))
        return "weights that do not add up";
    if (!isfinite(part->norm) || part->norm < 0)
        return "a norm that is not a number";
    return NULL;
}

static const char *parts_wrong(const gsp_rules *rules, const gsp_seals *seals,
                               const gsp_roster *roster, const gsp_proposal *p,
                               const gsp_round *heard)
{
    gsp_hash contributors;
    gsp_contributors_hash(seals, p->contributor, p->n_contributors, &contributors);
    if (p->n_parts != rules->n_parts)
        return "another number of parts";
    for (uint32_t k = 0; k < p->n_parts; k++) {
        const gsp_part *part = &p->part[k];
        if (gsp_hash_none(&part->hash)) {
            if (part->included != 0 || part->weight != 0 || part->norm != 0 || part->owner != 0)
                return "an unchanged part with content";
            continue; /* nobody is included, so no lean is looked at or hashed */
        }
        const char *wrong = part_wrong(rules->trust, p, part);
        if (wrong)
            return wrong;
        if (!sealed(seals, roster, p, k, &contributors, heard))
            return "a part that its owner did not sign";
    }
    return NULL;
}

/* ---- the next roster ---- */

uint32_t gsp_joiners_max(const gsp_roster *roster)
{
    enum { LEAST = 3 };
    return roster->n > LEAST ? roster->n : LEAST;
}

static const char *counts_wrong(const gsp_proposal *before, const gsp_proposal *p, uint32_t i,
                                uint32_t was)
{
    uint32_t missed = before->missed[was];
    bool back = p->next.member[i].incarnation > before->next.member[was].incarnation;
    if (p->next.member[i].incarnation < before->next.member[was].incarnation)
        return "a member put back to an older incarnation";
    if (p->missed[i] != 0 && (back || p->missed[i] != (missed < 255 ? missed + 1 : 255)))
        return "a count of silent rounds that is not right";
    return NULL;
}

static const char *roster_wrong(const gsp_rules *rules, const gsp_proposal *before,
                                const gsp_proposal *p)
{
    uint32_t joined = 0;
    if (p->next.n == 0 || p->next.n > GSP_MEMBERS_MAX)
        return "a roster of nobody, or too large";
    for (uint32_t i = 0; i < p->next.n; i++) {
        const gsp_member *who = &p->next.member[i];
        uint32_t was = gsp_roster_find_key(&before->next, &who->key);
        if (who->incarnation == 0)
            return "a member without an incarnation";
        if (i > 0 && gsp_key_compare(&p->next.member[i - 1].key, &who->key) >= 0)
            return "a roster out of order";
        if (p->against[i] != gsp_proposal_against(rules, before, p, &who->key))
            return "a count of backward contributions that is not right";
        const char *wrong = was == GSP_NOBODY ? NULL : counts_wrong(before, p, i, was);
        if (wrong)
            return wrong;
        if (was == GSP_NOBODY && p->missed[i] != 0)
            return "a joiner that was silent";
        joined += was == GSP_NOBODY;
    }
    return joined > gsp_joiners_max(&before->next) ? "too many joiners at once" : NULL;
}

const char *gsp_proposal_invalid(const gsp_rules *rules, const gsp_seals *seals,
                                 const gsp_proposal *before, const gsp_proposal *p,
                                 const gsp_round *heard)
{
    uint64_t tokens, samples;
    uint32_t out;
    if (!gsp_proposal_fits(p) || !gsp_hash_equal(&p->lineage, &before->lineage) ||
        p->version != before->version + 1)
        return "it does not follow";
    bool same = gsp_roster_equal(&before->next, &p->next);
    if (p->since != before->made || p->made != (same ? before->made : p->version))
        return "a roster of another version";
    const char *wrong = gsp_contributors_wrong(rules, before, p->contributor, p->n_contributors);
    if (!wrong)
        wrong = parts_wrong(rules, seals, &before->next, p, heard);
    if (!wrong)
        wrong = roster_wrong(rules, before, p);
    if (!wrong)
        wrong = gsp_kept_out_wrong(
            before, gsp_kept_out_versions(rules->withheld_ns, rules->time_due_ns), p, &out);
    if (wrong)
        return wrong;
    gsp_proposal_totals(rules, before, p, &tokens, &samples);
    if (p->tokens != tokens || p->samples != samples)
        return "totals that do not add up";
    return NULL;
}
