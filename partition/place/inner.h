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

/* --- links.c --------------------------------------------------------------------------------- */

/* One boundary there and one back (eq. 3). */
double place_pair_seconds(const place_problem *p, uint32_t a, uint32_t b, double bytes);
/* All-reduce of `bytes` among n hosts; *slowest (optional) is the host whose part is longest. */
double place_sync_seconds(const place_problem *p, const uint16_t *hosts, uint32_t n, double bytes,
                          uint32_t *slowest);
/* How fast a host exchanges with the others of a group: the lesser direction of its line, or the
 * harmonic mean over its pairs. */
double place_host_rate(const place_problem *p, const uint16_t *hosts, uint32_t n, uint32_t of);

/* --- match.c --------------------------------------------------------------------------------- */

typedef struct place_scratch {
    double *distance;                    /* n_groups max */
    uint32_t *from, *row_of, *column_of; /* n_groups max */
    bool *done;
    double *path; /* 2^PLACE_PATH_EXACT x PLACE_PATH_EXACT */
    uint8_t *via;
} place_scratch;

/*
 * Matches the hosts of two stages one to one so that the longest pair is as short as possible, and
 * returns its seconds. s->column_of[i] is then the partner of a[i] in b.
 */
double place_match(const place_problem *p, const uint16_t *a, const uint16_t *b, uint32_t n,
                   double bytes, place_scratch *s);
/*
 * The shortest open path through all of n points, edge[i * n + j] symmetric: order[n]. Exact for n
 * <= PLACE_PATH_EXACT; beyond that the best nearest-neighbour path after 2-opt.
 */
double place_path(const double *edge, uint32_t n, uint32_t *order, place_scratch *s);

/* --- price.c --------------------------------------------------------------------------------- */

typedef struct place_work {
    const place_problem *p;
    double *prefix;         /* n_kinds x (n_layers + 1): seconds of the layers in front */
    uint64_t *elements;     /* n_layers + 1, in front */
    double *best;           /* (PLACE_STAGES_MAX + 1) x (n_layers + 1), of dividing layers */
    double *edges;          /* PLACE_STAGES_MAX squared */
    double inner_bytes;     /* the usual boundary: the median of all but the first */
    uint32_t cached_stages; /* one kind of host: how the layers are divided; 0: not yet */
    bool cached_fits;
    uint32_t cached[PLACE_STAGES_MAX + 1];
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

#endif
