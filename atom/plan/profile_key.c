/*
 * Owns the key of cached profiles and rates. One idea: everything that changes a time is in it, so that two
 * cards of one generation, or one card before and after a new driver, do not share a profile. Refuses
 * to look anything up: facts are given.
 */
#include "atom/plan/profile_key.h"

#include "atom/base/hash.h"

#include <string.h>

/* Raise when kernels, or how they are timed, change enough that old timings lie. */
enum { PROFILE_VERSION = 4 };

static uint64_t hash_text(uint64_t hash, const char *text)
{
    return atom_hash(hash, text, strlen(text) + 1);
}

uint64_t plan_profile_key(const plan_profile_facts *f)
{
    const uint32_t numbers[3] = {PROFILE_VERSION, f->threads, f->products};
    uint64_t hash = atom_hash(f->what, numbers, sizeof numbers);
    hash = hash_text(hash, f->cpu);
    hash = hash_text(hash, f->backend);
    hash = hash_text(hash, f->isa);
    hash = hash_text(hash, f->card);
    return atom_hash(hash, &f->link_bandwidth, sizeof f->link_bandwidth);
}
