/*
 * What each member brought to a pool, as the certificates say that this host applied: samples by
 * key. It is kept on disk, so that it survives restarts of this host and of others, and so is the
 * count of tokens that this host has trained itself.
 *
 * Thread: one at a time (the pool's).
 */
#ifndef GOSSIP_POOL_CREDITS_H
#define GOSSIP_POOL_CREDITS_H

#include "gossip/agree/types.h"

#include "atom/base/status.h"

enum { GSP_CREDITS_MAX = 64 };

typedef struct gsp_credit {
    uint8_t key[GSP_KEY_BYTES];
    uint64_t samples, versions; /* that counted */
} gsp_credit;

typedef struct gsp_credits {
    char *path;      /* of the file; NULL: nothing is kept */
    uint64_t tokens; /* that this host had trained before it was started; not counted here */
    uint64_t saved;  /* tokens that the file says */
    uint32_t n;
    gsp_credit row[GSP_CREDITS_MAX];
    bool changed;
    uint64_t save_ns; /* when next */
} gsp_credits;

/* A damaged file is logged, and all counts begin at zero. */
void gsp_credits_open(gsp_credits *credits, const char *directory);
/* roster: R(version); counted: bits of the contributors whose work is in the version. Where more keys
 * come than there is room for, whoever brought least is forgotten. */
void gsp_credits_count(gsp_credits *credits, const gsp_roster *roster, const gsp_proposal *proposal,
                       uint32_t counted);
/* NULL: it brought nothing yet. */
const gsp_credit *gsp_credits_find(const gsp_credits *credits, const uint8_t key[GSP_KEY_BYTES]);
uint64_t gsp_credits_samples(const gsp_credits *credits); /* by everybody */
/* Writes what changed, now and then; tokens: of this host, in all. */
void gsp_credits_step(gsp_credits *credits, uint64_t tokens);
void gsp_credits_close(gsp_credits *credits, uint64_t tokens);

/* The file, as text: atom_free; NULL: no memory. And back: false: it is damaged. */
char *gsp_credits_text(const gsp_credits *credits, uint64_t tokens);
bool gsp_credits_parse(gsp_credits *credits, const char *text);

#endif
