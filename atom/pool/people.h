/*
 * Who came and who went: a note when a member appears on the roster, or is no longer on it.
 *
 * Ownership: the caller's object, zero at first. Thread: the run's.
 */
#ifndef ATOM_POOL_PEOPLE_H
#define ATOM_POOL_PEOPLE_H

#include "atom/pool/hooks.h"

typedef struct pool_person {
    uint8_t key[GSP_PUBLIC_BYTES];
    char name[32];
    bool seen, here; /* on the roster: now, before */
} pool_person;

/* The others, as the last look found them. */
typedef struct pool_people {
    bool looked;
    uint32_t n;
    pool_person person[GSP_POOL_SHOWN_MAX];
} pool_people;

/* Notes who came and went since the last call. */
void pool_people_look(pool_people *people, const gsp_pool_status *status, const pool_hooks *hooks);

#endif
