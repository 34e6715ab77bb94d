/*
 * atom_slow: the program itself on a slower machine. Each micro-batch of a lease takes
 * ATOM_SLOW_MS milliseconds more, which it sleeps, so that speeds beside each other are as a test
 * says whatever else the machine does; where members make steps of their own, each of these takes
 * ATOM_SLOW_STEP_MS more. It is linked with --wrap=pool_anchor_seam; nothing in the product knows of
 * it. It refuses to be late with what nobody waits for: a lease that is somebody else's by then is
 * given up, as the trainer does.
 */
#include "atom/pool/anchor.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static train_seam real;

train_seam __wrap_pool_anchor_seam(pool_anchor *pool);
train_seam __real_pool_anchor_seam(pool_anchor *pool);

static void bring(void *ctx, const train_lease *lease, uint64_t tokens)
{
    useconds_t us = (useconds_t)(1000 * atoi(getenv("ATOM_SLOW_MS")));
    for (uint32_t i = 0; i < lease->n; i++) {
        usleep(us);
        if (!real.current(ctx, lease))
            return;
    }
    real.bring(ctx, lease, tokens);
}

static void stepped(void *ctx, uint64_t samples, uint64_t tokens)
{
    usleep((useconds_t)(1000 * atoi(getenv("ATOM_SLOW_STEP_MS"))));
    real.stepped(ctx, samples, tokens);
}

train_seam __wrap_pool_anchor_seam(pool_anchor *pool)
{
    real = __real_pool_anchor_seam(pool);
    if (!getenv(real.bring ? "ATOM_SLOW_MS" : "ATOM_SLOW_STEP_MS")) {
        fputs("atom_slow: ATOM_SLOW_MS is not set, or ATOM_SLOW_STEP_MS where the pool does not sum "
              "gradients\n",
              stderr);
        abort();
    }
    train_seam slow = real;
    if (real.bring)
        slow.bring = bring;
    else
        slow.stepped = stepped;
    return slow;
}
