/*
 * Gradients or parameters: what a pool of hosts like this one would train in each way, priced by
 * partition/place. `atom plan --pool` answers the same for hosts that differ.
 *
 * All members are assumed to be like this host, with a connection like its own, and to take part. A
 * step of gradients has the tokens of one step of every member.
 *
 * Units: bytes, seconds, tokens. Thread: any. Errors: ATOM_E_RESOURCE for want of memory. Where a
 * figure is missing nothing is priced, and `known` is false.
 * Source: docs/guide/plan.md#a-group-of-hosts.
 */
#ifndef ATOM_POOL_WAYS_H
#define ATOM_POOL_WAYS_H

#include "partition/place/place.h"

typedef struct pool_ways_facts {
    uint64_t floats; /* that are averaged */
    uint32_t members;
    double micro_tokens, micro_seconds; /* a micro-batch of this host, without its update;
                                               0 seconds: it is not known */
    double update_seconds;              /* of its own step, less what is hidden */
    double apart_seconds; /* of the step that is made of summed gradients: nothing hides it */
    double step_tokens;   /* of a step of all members together */
    double bytes_per_s;   /* of a line: the lesser of up and down */
    int32_t gradients_codec, weights_codec; /* gsp_codec: how each would travel */
    bool delayed;                           /* gradients move while the next step is computed */
} pool_ways_facts;

typedef struct pool_way {
    double tokens_per_s; /* of all members */
    place_bound bound;
} pool_way;

typedef struct pool_ways {
    bool known;
    uint32_t members;
    double alone; /* tokens per second of this host by itself */
    pool_way gradients, weights;
    double sums_seconds;     /* of a step of gradients: they move when all is computed */
    double delayed_seconds;  /* and with delayed updates: while the next step is computed */
    int32_t gradients_codec; /* gsp_codec */
    double step_tokens;
    int32_t recommended; /* PLACE_GRADIENTS or PLACE_PARAMETERS */
} pool_ways;

/* One way, of a line: a home's in atom/plan/pool_net.h. */
#define POOL_ASSUMED_DELAY 8e-3

ATOM_MUST atom_status pool_ways_price(const pool_ways_facts *facts, pool_ways *out);

#endif
