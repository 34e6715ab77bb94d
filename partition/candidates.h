/*
 * Candidates for a plan: what is decided around the cuts. Internal to partition/search.
 */
#ifndef PARTITION_CANDIDATES_H
#define PARTITION_CANDIDATES_H

#include "partition/search.h"

/* Ways to run a partition: repeat or stash activations, boundaries on the device or on the host. */
enum { PART_WAYS = 4, PART_CANDIDATES_MAX = 128 };

/* More micro-batches than these are never recommended. */
enum { PART_ADVISED_MAX = 4096 };

/* About half a second of a core; quick cuts, which are mostly the best of all, have to do from here on. */
enum { PART_STATES_ENOUGH = 2000000 };

typedef struct part_candidate {
    part_plan *plan; /* with the model's estimate noted; NULL: gone */
    part_setting setting;
    part_goal goal;
    uint64_t capacity_bytes; /* for the cuts; the rest keeps activations; 0: one sub-model */
    double beside; /* its sub-models may hold single nodes; see part_hold_some(); 0: they may not */
    bool taken;
} part_candidate;

/* Cuts that were found already: what is recommended and what is planned ask for the same ones. */
enum { PART_SOLVED_MAX = 64 };
typedef struct part_solved {
    part_setting setting;
    part_goal goal;
    bool quick;
    uint64_t capacity_bytes;
    part_cuts cuts;
} part_solved;

typedef struct part_search_state {
    const graph *g;
    const part_profile *profile;
    const part_request *request;
    part_model *model;
    part_table *table; /* ranges that fit the device (refuse.c: and more); made when first needed */
    uint64_t device_bytes, host_bytes; /* limits; 0: none */
    uint32_t micro_batches;
    bool in_place;
    bool quick; /* cuts are those that part_dp() finds quickly: for comparing, not for the plan */
    bool last;  /* nothing else is tried: where nothing fits, what would is worth finding out */
    bool vain;  /* what a refusal asks for is not said to anybody */
    bool hasty; /* they have to do for the plan, too */
    uint64_t cuts_bytes; /* with any capacity from this to the one it had, the last part_make_cuts()
                            would have done the same */
    bool squeezed;       /* and it had to take less than the capacity that it was given */
    uint32_t n_solved;   /* the newest PART_SOLVED_MAX of them are kept */
    part_solved solved[PART_SOLVED_MAX];
    uint32_t n_candidates;
    part_candidate candidates[PART_CANDIDATES_MAX];
    /* least that a candidate needed which did not fit */
    uint64_t device_need_bytes, host_need_bytes;
    uint64_t host_alone_bytes; /* of those that fit the device: the host alone is short; 0: none */
    part_search_stats stats;
} part_search_state;

static inline uint64_t part_device_limit(const part_search_state *s)
{
    return s->device_bytes ? s->device_bytes : (uint64_t)1 << 61;
}

/* A simulation of so many visits is dear, and the model is good at it. */
static inline bool part_dear(const part_search_state *s, const part_plan *plan)
{
    enum { VISITS_MAX = 4000 };
    return (uint64_t)plan->n_sub_models * s->micro_batches > VISITS_MAX;
}

static inline bool part_host_holds(const part_search_state *s, const part_verdict *v)
{
    return !s->host_bytes || v->host_peak_bytes <= s->host_bytes;
}

/* --- fit.c: whole plans that fit --- */

/* A plan from cuts; everything but predictions is filled in. */
ATOM_MUST atom_status part_plan_from_cuts(const part_search_state *s, const part_setting *setting,
                                          const int32_t *ends, uint32_t n, part_plan **out);
/* Writes a verdict into the plan's predictions. */
void part_plan_note(const part_search_state *s, part_plan *plan, const part_verdict *v);
/* Estimates the plan and notes that in it. */
void part_plan_estimate(const part_search_state *s, part_plan *plan, part_verdict *v);
/* Judges the plan exactly, where there is an exact evaluation; where that says only the memory, the
 * model says the times. Notes in the plan which it was. */
ATOM_MUST atom_status part_judge(part_search_state *s, part_plan *plan, part_verdict *v);
/* The same where only memory matters. */
ATOM_MUST atom_status part_weigh(part_search_state *s, part_plan *plan, part_verdict *v);
/* part_plan.least_step_seconds. */
double part_least_seconds(const part_search_state *s, const part_plan *plan);
/* The table of ranges, when it is first needed. */
ATOM_MUST atom_status part_open_table(part_search_state *s);
/* The best cuts, which are the state's until others are asked for: found, or remembered. Needs the table, with all ranges
 * that take no more than `capacity`; see part_dp(). */
ATOM_MUST atom_status part_solve(part_search_state *s, const part_setting *setting, part_goal goal,
                                 uint64_t capacity, bool quick, const part_cuts **out);
/* Forgets the cuts that were found. */
void part_solved_close(part_search_state *s);
/* cut_price at which an average cut costs about a thousandth of the compute time. */
int64_t part_noise_price(const part_search_state *s, const part_setting *setting);
/* Cuts that use at most `capacity`, in a plan that fits `limit` and the host; *out is NULL without
 * one. */
ATOM_MUST atom_status part_make_cuts(part_search_state *s, part_setting setting, part_goal goal,
                                     uint64_t capacity, uint64_t limit, part_plan **out);
/* The same; what the cuts leave of `limit` keeps activations and parameters on the device. beside > 0:
 * and single nodes are held where sub-models repeat; *out is NULL where that is not faster. */
ATOM_MUST atom_status part_make_plan(part_search_state *s, const part_setting *setting,
                                     part_goal goal, uint64_t capacity, uint64_t limit,
                                     double beside, part_plan **out);
/* What goes out beside a forward visit goes in lumps, of which two are on their way at most, and shares
 * the link with what comes in: so much of the visit it may fill, as far as the model sees. */
#define PART_BESIDE 0.9
/* some.c: holds nodes of the sub-models that repeat all, in what the plan leaves of `limit`. beside > 0:
 * and on the host, what goes out within that share of a forward visit. The plan may be no better for
 * it. */
ATOM_MUST atom_status part_hold_some(const part_search_state *s, part_plan *plan, uint64_t limit,
                                     double beside);
/* Remembers by how little a plan did not fit, for the refusal. */
void part_note_need(part_search_state *s, const part_verdict *v, uint64_t limit);

/* --- candidates.c: the list --- */

/* The setting of way 0 .. PART_WAYS-1; false if the request rules it out. */
bool part_way_setting(const part_search_state *s, int way, part_setting *setting);
/* Fills candidates, by the model; each fits by the model, none is exact yet. */
ATOM_MUST atom_status part_candidates_make(part_search_state *s);
/* The most promising candidate whose plan was not taken yet; NULL when there is none. plain: of those
 * that hold no single nodes. */
part_candidate *part_candidates_take(part_search_state *s, bool plain);
/* Makes c->plan again with exact cuts, for a device that has bias bytes less; NULL if there is none. Where that leaves
 * too little to hold nodes in, c->capacity_bytes becomes smaller. */
ATOM_MUST atom_status part_candidate_again(part_search_state *s, part_candidate *c, uint64_t bias);
/* Looks for better cuts than the quick ones: c->plan becomes the better plan. */
ATOM_MUST atom_status part_candidate_refine(part_search_state *s, part_candidate *c);
void part_candidates_clear(part_search_state *s);
/* Seconds of a step at the state's C, by the model, from few plans; 0: none of them fits. exact: the best
 * of these is judged exactly, where that is not dear. */
ATOM_MUST atom_status part_quick_seconds(part_search_state *s, bool exact, double *seconds);

/* --- recommend.c --- */

/* The fields of part_plan of the same names. */
typedef struct part_advice {
    uint32_t micro_batches; /* 0: nothing fits */
    double tokens_per_second, most_tokens_per_second;
} part_advice;
ATOM_MUST atom_status part_recommend(part_search_state *s, part_advice *out);
/* What was recommended was compared with few plans for more micro-batches, of which some are luckier than others; or,
 * where only plans that need little are left, with none. *plan becomes one for more of them where that is clearly
 * quicker, and the state's C with it. little: *plan is one of those that need little. */
ATOM_MUST atom_status part_try_more(part_search_state *s, bool little, part_plan **plan,
                                    part_advice *advice);

/* --- choose.c --- */

/* Times within this factor of each other are a tie: fewer sub-models win. */
#define PART_TIE 1.005
enum { PART_PROBES_MAX = 16 };

/* Is a better than b? They may have different numbers of micro-batches where none was asked for. */
bool part_beats(const part_plan *a, const part_plan *b);
/* The best plan for the state's C among the candidates, or NULL. */
ATOM_MUST atom_status part_choose(part_search_state *s, part_plan **out);
/* The best of the plans that need little; where none of them fits, the one that needs the least. */
ATOM_MUST atom_status part_find_little(part_search_state *s, part_plan **least);
/* The first of these two; where no candidate fits, the second; NULL: that does not fit either. */
ATOM_MUST atom_status part_choose_or_little(part_search_state *s, part_plan **out);
/* Blocks of a state on disk that memory is left for stay in it. Given back until the plan fits. */
ATOM_MUST atom_status part_hold_blocks(part_search_state *s, part_plan *plan);
/* A plan within these limits, by its memory alone; *out is NULL if there is none. */
ATOM_MUST atom_status part_any_within(part_search_state *s, uint64_t device, uint64_t host,
                                      part_plan **out);

/* --- search.c --- */

/* Where the optimizer works. */
typedef struct part_where {
    bool disk;  /* keeps its state there */
    bool over;  /* and has no room for gradients of boundaries beside these */
    bool last;  /* elsewhere has been tried, or may not be */
    bool ortho; /* may make Muon's products on the device; it does where that pays */
} part_where;

/* The best plan with the optimizer there, or ATOM_E_RESOURCE with the bytes missing. What it counted is added to
 * *stats. */
ATOM_MUST atom_status part_search_once(const graph *g, const part_profile *profile,
                                       const part_request *request, part_where where,
                                       part_plan **out, part_search_stats *stats);

/* --- least.c: little memory --- */

/* The quickest, by the model, of the plans that fit and are made for little memory; if s->hasty, the one of them that
 * needs the least. any: where none fits, the one that needs the least device memory, which depends neither on what
 * there is of it nor on times. Laid out, with that noted in it; NULL if there is none that the host holds. */
ATOM_MUST atom_status part_least_plan(part_search_state *s, bool any, part_plan **out,
                                      part_verdict *verdict);

/* refuse.c: ATOM_E_RESOURCE with the bytes missing and what would fit. */
ATOM_MUST atom_status part_refuse_host(const part_search_state *s, uint64_t need);
/* least: that plan with its peak noted, or NULL. */
ATOM_MUST atom_status part_refuse_device(const part_search_state *s, const part_plan *least);

#endif
