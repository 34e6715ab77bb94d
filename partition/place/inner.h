/*
 * What the files of partition/place share: the parts of a cost, and the workspace in which
 * arrangements are priced. Internal to partition/place.
 *
 * Thread: one workspace per thread. Errors: ATOM_E_RESOURCE from opening.
 */
#ifndef PARTITION_PLACE_INNER_H
#define PARTITION_PLACE_INNER_H

#include "partition/place/place.h"

enum { PLACE_PATH_EXACT = 12 }; /* stages up to which the open path is exact */
enum { PLACE_PATH_STARTS = 16 };

/* --- types.c --------------------------------------------------------------------------------- */

/* Which hosts are interchangeable: of[host] is the type of each. */
typedef struct place_types {
    uint32_t n;
    uint16_t of[PLACE_HOSTS_MAX];
} place_types;
void place_types_find(const place_problem *p, place_types *out);

/* Some hosts by type, in the order in which types are met first. Places are those among them. */
typedef struct place_members {
    uint32_t n;                      /* types */
    uint16_t type[PLACE_HOSTS_MAX];  /* n */
    uint16_t at[PLACE_HOSTS_MAX];    /* n: place of the first host of the type */
    uint16_t other[PLACE_HOSTS_MAX]; /* n: place of the second one, or PLACE_UNUSED */
    uint16_t count[PLACE_HOSTS_MAX]; /* n */
} place_members;
void place_members_of(const place_types *types, const uint16_t *hosts, uint32_t n,
                      place_members *out);

/* --- links.c --------------------------------------------------------------------------------- */

/* One boundary there and one back (eq. 3). */
double place_pair_seconds(const place_problem *p, uint32_t a, uint32_t b, double bytes);
/* All-reduce of `bytes` among n hosts; *slowest (optional) is the host whose part is longest. */
double place_sync_seconds(const place_problem *p, const place_types *types, const uint16_t *hosts,
                          uint32_t n, double bytes, uint32_t *slowest);

/* --- match.c --------------------------------------------------------------------------------- */

typedef struct place_scratch {
    place_members rows, columns; /* of the match that is made */
    double *cost;                /* rows x columns: seconds of a pair */
    uint16_t *flow;              /* rows x columns: how many pairs of these types */
    double *distance;            /* by column; PLACE_HOSTS_MAX each */
    uint32_t *from, *via;        /* the row that reached a column, the column that did a row */
    uint32_t *spare;             /* by column: hosts without a partner */
    uint32_t *column_of;         /* by host of the first stage, after place_match_pairs */
    bool *done, *reached;        /* columns, rows */
    double *path;                /* 2^PLACE_PATH_EXACT x PLACE_PATH_EXACT */
    uint8_t *step;
} place_scratch;

ATOM_MUST atom_status place_scratch_open(place_scratch *s);
void place_scratch_close(place_scratch *s);

/*
 * Matches the hosts of two stages one to one so that the longest pair is as short as possible, and
 * returns its seconds.
 */
double place_match(const place_problem *p, const place_types *types, const uint16_t *a,
                   const uint16_t *b, uint32_t n, double bytes, place_scratch *s);
/* The pairs of the last match, which was of these stages: s->column_of[i] is the partner of a[i] in b. */
void place_match_pairs(const place_types *types, const uint16_t *a, const uint16_t *b, uint32_t n,
                       place_scratch *s);
/*
 * The shortest open path through all of n points, edge[i * n + j] symmetric: order[n]. Exact for n
 * <= PLACE_PATH_EXACT; beyond that the best after 2-opt of nearest-neighbour paths from
 * PLACE_PATH_STARTS points.
 */
double place_path(const double *edge, uint32_t n, uint32_t *order, place_scratch *s);

/* --- price.c --------------------------------------------------------------------------------- */

/* How the layers are divided among stages of these kinds of hosts (a bit each). */
enum { PLACE_DIVISIONS = 256 };
typedef struct place_division {
    uint32_t stages, groups; /* 0: none yet */
    uint64_t kinds[PLACE_STAGES_MAX];
    bool fits;
    uint32_t first[PLACE_STAGES_MAX + 1];
} place_division;

/* Seconds of a micro-batch in a stage of such hosts, for all layers it could have. */
enum { PLACE_STAGE_TABLES = 16 };
typedef struct place_stage_table {
    uint64_t kinds; /* 0: none yet */
    uint32_t m;
    double *seconds; /* (n_layers + 1) squared: [a, b); INFINITY where a host cannot hold them */
} place_stage_table;

typedef struct place_work {
    const place_problem *p;
    double *prefix;     /* n_kinds x (n_layers + 1): seconds of the layers in front */
    uint64_t *elements; /* n_layers + 1, in front */
    double *best;       /* (PLACE_STAGES_MAX + 1) x (n_layers + 1), of dividing layers */
    double *edges;      /* PLACE_STAGES_MAX squared */
    double inner_bytes; /* the usual boundary: the median of all but the first */
    place_types types;
    place_division *divisions; /* PLACE_DIVISIONS that were made before */
    place_stage_table tables[PLACE_STAGE_TABLES];
    double *table_seconds; /* of all tables */
    place_scratch s;
} place_work;

ATOM_MUST atom_status place_work_open(const place_problem *p, place_work **out);
void place_work_close(place_work **work);

typedef struct place_cost {
    bool fits;
    double step, communication;
    double compute, link, optimizer, bubble, groups, pipeline;
    uint32_t first_layer[PLACE_STAGES_MAX + 1];
} place_cost;
void place_work_price(place_work *w, const place_layout *layout, place_cost *out);
/* The whole story of one arrangement. */
void place_work_describe(place_work *w, const place_layout *layout, place_candidate *out);

/* --- swaps.c --------------------------------------------------------------------------------- */

enum { PLACE_SWAPS = 4 };
typedef struct place_swap {
    uint32_t a, b; /* places in an order of hosts by group */
    double gain;   /* seconds, as promised; -INFINITY: there is none */
} place_swap;

typedef struct place_swaps {
    const place_types *types;
    uint32_t stages, d;
    double *between;       /* types x types: seconds of a link */
    double *sums;          /* types x stages */
    place_members *groups; /* stages */
} place_swaps;

/* Borrows the workspace. */
ATOM_MUST atom_status place_swaps_open(const place_work *w, uint32_t stages, uint32_t d,
                                       place_swaps *out);
void place_swaps_close(place_swaps *s);
/* The swaps between groups that promise most, by Kernighan and Lin's gain or by section 3.4's:
 * best[PLACE_SWAPS], the best one first. order: stages x d hosts. */
void place_swaps_promising(place_swaps *s, const uint16_t *order, bool kl, place_swap *best);

#endif
