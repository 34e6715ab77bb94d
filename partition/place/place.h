/*
 * Who should do what: from a model's layers, hosts and the links between them to one verdict. Every
 * host holds the whole model and gradients are summed; every host holds it and weights are averaged
 * every H steps; or the model is cut into S stages, each held by D hosts, so that D pipelines of S
 * hosts train side by side. Nothing is measured and nothing is sent here: it is arithmetic over
 * what the caller knows. atom runs the first two; it cannot train in stages yet, so stages are
 * never recommended, only predicted.
 *
 * The cost of a step with M micro-batches in S stages of D hosts each, m = ceil(M / D):
 *
 *   pair       w(d, d') = delay and transfer of one boundary there and one back: DT-FM eq. 3
 *   edge       the least possible longest pair when the hosts of two neighbouring stages are matched
 *              one to one (eq. 3: a bottleneck matching)
 *   pipeline   the sum of the edges along the stages, an open path (eq. 4)
 *   groups     the slowest all-reduce of any stage's hosts (eq. 2 and the equation after it)
 *   slots      receive, compute and send overlap (section 3.5), so once the pipeline is full a
 *              micro-batch takes the longest edge or the slowest stage, whichever is longer
 *
 *   step = sum of stages + pipeline + (m - 1) slot + groups + optimizer
 *
 * One boundary at a time is under way on a pair, so its delay counts in every slot; a trainer with
 * more of them in flight would do better. Boundaries and all-reduces do not compete for lines here.
 * A stage's compute is that of its slowest host. Layers are divided among the stages so that the
 * slowest stage is as quick as possible and every stage fits its hosts.
 *
 * All-reduce: gossip's own, with unequal shares (gossip/member/shares.h): a host with the rate r
 * owns (t r - 1) / (n - 2), and all are done after t times the bytes at 0.92 of the lines' rates, as
 * measured (docs/measurements/2026-11-21-pool.md). The longest delay passes ten times: twice with the
 * parts, and with what is said around them. With `paper` it is eq. 2 to the letter: transfers one
 * after the other, each with its delay, equal shares.
 *
 * Whole copies: with summed gradients work is leased by speed, which leaves 0.95 of the members'
 * speeds (docs/measurements/2026-11-23-speeds.md).
 *
 * Search: every ordered arrangement for up to PLACE_EXACT_HOSTS hosts, so nothing is better under
 * this cost. Beyond that DT-FM section 3.4: a population of partitions, children that take groups
 * of both parents, a local step that takes Kernighan and Lin's swaps and then the paper's (the ends
 * of the fastest link of one group with those of another), and an open path that is exact up to 12
 * stages. Hosts that are interchangeable (one kind, the same links to everybody) are priced as a
 * type and a number, so that classes of hosts cost little. The paper's local step alone stays far
 * from the best on its own matrices when hosts come in no order (measured; section 3.4 describes a
 * circular extension that is not built here). The same seed gives the same answer on every machine;
 * no clock is read.
 *
 * Source: Yuan et al., Decentralized Training of Foundation Models in Heterogeneous Environments
 * (DT-FM), NeurIPS 2022, sections 3.1 to 3.5.
 *
 * Units: seconds, bytes, bytes per second. Matrices are n_hosts x n_hosts, entry [from * n_hosts +
 * to]; their diagonal is ignored. Ownership: the problem borrows everything. Thread: any.
 * Errors: ATOM_E_USAGE names the host, the pair or the layer that makes no sense; ATOM_E_RESOURCE.
 */
#ifndef PARTITION_PLACE_PLACE_H
#define PARTITION_PLACE_PLACE_H

#include "atom/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PLACE_HOSTS_MAX = 512,
    PLACE_KINDS_MAX = 64,
    PLACE_LAYERS_MAX = 512,
    PLACE_STAGES_MAX = 64,
    PLACE_EXACT_HOSTS = 8,
    PLACE_NAME_BYTES = 64,
    PLACE_WHY_BYTES = 480,
    PLACE_UNUSED = 0xffff
};

/* A piece of the model inside of which no stage ends. */
typedef struct place_layer {
    uint64_t elements;       /* of its parameters */
    uint64_t boundary_bytes; /* that cross in front of it for one micro-batch; the first: ignored */
} place_layer;

/* What hosts of one kind have in common. */
typedef struct place_kind {
    char name[PLACE_NAME_BYTES];
    const double *layer_seconds; /* n_layers: one micro-batch's forward, backward and the forward
                                    that backward repeats */
    double update_elements_per_second;
    double load_bytes_per_second;    /* weights to the device; 0: they are where they are used */
    double disk_bytes_per_second;    /* of a state on disk, both ways at once; 0: no disk */
    uint64_t device_bytes;           /* 0: the host's memory */
    uint64_t host_bytes, disk_bytes; /* that may be used */
    bool whole;                      /* can it hold and train the whole model? */
    char whole_why[PLACE_WHY_BYTES]; /* why not */
    double whole_micro_seconds;      /* of a whole copy: a micro-batch without its update */
    double whole_update_seconds;     /* and the update, once per step */
    uint64_t whole_bytes;            /* of host memory */
} place_kind;

typedef struct place_host {
    char name[PLACE_NAME_BYTES];
    uint32_t kind;
} place_host;

typedef struct place_problem {
    const place_layer *layers;
    const place_kind *kinds;
    const place_host *hosts;
    uint32_t n_layers, n_kinds, n_hosts;
    const double *delay;     /* matrix */
    const double *rate;      /* matrix: what a single transfer from one to the other gets */
    const double *up, *down; /* n_hosts each, of each host's line, both or neither. NULL: a host
                                exchanges with the others of its group one after the other */
    double micro_tokens;     /* tokens of a micro-batch */
    uint32_t micro_batches;  /* M: of a step of all hosts together */
    double sync_bytes;       /* per element on the wire, as the codec packs it */
    double state_bytes;      /* per element: master weight and moments */
    double wire_bytes;       /* per element: of weights and gradients as they are computed with */
    bool paper;              /* all-reduce by eq. 2 to the letter */
    bool everybody;          /* gradients: of all hosts that can, not of the best set of them */
    bool delayed;            /* gradients: they move while the next step is computed */
} place_problem;

/* Whole numbers are in range, times and rates are sane, every two hosts are connected. */
ATOM_MUST atom_status place_check(const place_problem *p);

typedef enum place_mode { PLACE_GRADIENTS, PLACE_PARAMETERS, PLACE_STAGES, PLACE_MODES } place_mode;
extern const char *const place_mode_names[PLACE_MODES]; /* "gradients", "parameters", "stages" */

typedef enum place_bound {
    PLACE_BOUND_COMPUTE,   /* of host `binds` */
    PLACE_BOUND_SYNC,      /* the all-reduce; its longest part is that of host `binds` */
    PLACE_BOUND_BOUNDARY,  /* the link between `binds` and `binds_to`, stages apart */
    PLACE_BOUND_OPTIMIZER, /* of host `binds` */
    PLACE_BOUND_BUBBLE,    /* filling and draining the pipeline */
    PLACE_BOUNDS
} place_bound;
extern const char *const place_bound_names[PLACE_BOUNDS];

typedef struct place_candidate {
    place_mode mode;
    bool possible;
    char why[PLACE_WHY_BYTES];   /* not possible: one line that says why */
    uint32_t n_used;             /* hosts */
    uint32_t n_stages, n_groups; /* S, D; whole copies: 1, n_used */
    uint32_t sync_steps;         /* H; 1 with gradients and stages */
    bool hidden;                 /* parameters: H steps take at least as long as averaging */
    double tokens_per_second, step_seconds;
    /* of a step; they add up to it. link: what is not hidden behind computing */
    double compute_seconds, link_seconds, optimizer_seconds, bubble_seconds;
    double sync_seconds;          /* one all-reduce; parameters: beside H steps, not in a step */
    double communication_seconds; /* DT-FM's eq. 1: groups + pipeline; 0 for whole copies */
    place_bound bound;
    uint32_t binds, binds_to;                                   /* hosts, or PLACE_UNUSED */
    uint16_t stage[PLACE_HOSTS_MAX], pipeline[PLACE_HOSTS_MAX]; /* by host, or PLACE_UNUSED */
    uint32_t first_layer[PLACE_STAGES_MAX + 1];
    double busy[PLACE_HOSTS_MAX]; /* share of the step in which the host computes or updates */
    uint64_t memory_bytes[PLACE_HOSTS_MAX]; /* of host memory; a state on disk is not in it */
} place_candidate;

/* An arrangement in stages: host[s * n_groups + g] holds stage s; g has no meaning, pipelines are
 * matched when it is priced. */
typedef struct place_layout {
    uint32_t n_stages, n_groups;
    uint16_t host[PLACE_HOSTS_MAX];
} place_layout;

/* What one arrangement costs; out->possible false where its stages cannot fit. */
ATOM_MUST atom_status place_price(const place_problem *p, const place_layout *layout,
                                  place_candidate *out);

/* Whole copies: mode is PLACE_GRADIENTS or PLACE_PARAMETERS. With gradients, unless p->everybody,
 * the best set of hosts:
 * exact up to PLACE_EXACT_HOSTS. Beyond that the slowest lines, or the slowest computers, are left
 * out class after class down to the last, and the best of those sets host after host. */
ATOM_MUST atom_status place_whole(const place_problem *p, place_mode mode, place_candidate *out);

typedef enum place_local {
    PLACE_LOCAL_BOTH,          /* Kernighan and Lin's swaps, then the paper's */
    PLACE_LOCAL_PAPER,         /* section 3.4's alone */
    PLACE_LOCAL_KERNIGHAN_LIN, /* what it is compared with there */
    PLACE_LOCAL_NONE           /* a few random arrangements */
} place_local;

typedef struct place_search {
    uint64_t seed;
    bool communication; /* minimise eq. 1 alone, as the paper does; else the step */
    place_local local;  /* the local step */
    uint32_t tries;     /* arrangements that are priced at most; 0: a number for a
                           few seconds. Small searches are exact whatever it says */
    bool brief;         /* an eighth of them: to compare numbers of stages */
    bool no_exact;      /* evolve even where every arrangement could be tried */
} place_search;

/* The best arrangement in n_stages stages of floor(n_hosts / n_stages) hosts, who is left over
 * included. 2 <= n_stages. */
ATOM_MUST atom_status place_stages(const place_problem *p, uint32_t n_stages,
                                   const place_search *search, place_candidate *out);

/* The best number of stages, by the same search. Not possible, with a reason, where there are fewer
 * than two hosts or layers, or where no number of stages fits. */
ATOM_MUST atom_status place_most(const place_problem *p, const place_search *search,
                                 place_candidate *out);

/* Could a host of this kind hold layers [first, last) as a stage? */
bool place_holds(const place_problem *p, uint32_t kind, uint32_t first, uint32_t last);

typedef struct place_verdict {
    place_candidate gradients, parameters;
    place_candidate stages; /* the best number of them */
    int32_t recommended;    /* PLACE_GRADIENTS or PLACE_PARAMETERS; -1: atom cannot train it here */
} place_verdict;

/* From this many times the pace of gradients on, delayed ones are spoken of: they teach less. */
#define PLACE_DELAY_PAYS 1.1
/* Of the two ways that atom trains in the one to take; -1: neither is possible. Gradients are taken
 * where they train at least PLACE_GRADIENTS_ENOUGH times as fast as parameters do: the same tokens
 * teach more when gradients are summed. */
#define PLACE_GRADIENTS_ENOUGH 0.9
int32_t place_recommend(const place_candidate *gradients, const place_candidate *parameters);
/* All three. */
ATOM_MUST atom_status place_decide(const place_problem *p, const place_search *search,
                                   place_verdict *out);

#endif
