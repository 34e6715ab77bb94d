/*
 * What a measurement depends on, as one number: the name of its file in the cache. Inner header
 * of atom/plan.
 *
 * Thread: any. Errors: none. Ownership: texts are borrowed, none is NULL.
 */
#ifndef ATOM_PLAN_PROFILE_KEY_H
#define ATOM_PLAN_PROFILE_KEY_H

#include <stdint.h>

typedef struct plan_profile_facts {
    uint64_t what;   /* was measured: graph_hash() of a profile, plan_measure_rates_key() of rates */
    const char *cpu; /* the processor's model */
    uint32_t threads;
    const char *backend, *isa;
    uint32_t products; /* version of the CPU's library of matrix products */
    const char *card;  /* name, driver and libraries of a card; "" on the CPU */
    uint64_t link_bandwidth;
} plan_profile_facts;

/* Another number where any of the facts differs. */
uint64_t plan_profile_key(const plan_profile_facts *facts);

#endif
