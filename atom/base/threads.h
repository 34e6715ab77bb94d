/*
 * The one thread pool. A parallel loop hands out its indices one at a time from a shared counter;
 * which thread computes an index never changes what is computed
 * (docs/design/engine.md#the-same-bits: bits do not depend on `threads`). Several callers (streams)
 * may run loops at once; they share the workers.
 */
#ifndef ATOM_BASE_THREADS_H
#define ATOM_BASE_THREADS_H

#include "atom/base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct atom_threads atom_threads;

/* One index of a loop. `worker` is 0 .. atom_threads_slots()-1 and unique
 * among concurrent calls. */
typedef void (*atom_task)(void *ctx, uint32_t index, uint32_t worker);

enum { ATOM_CALLERS_MAX = 8 };

/*
 * Starts `count` - 1 workers (the calling thread is the other one). count >= 1.
 */
ATOM_MUST atom_status atom_threads_open(uint32_t count, atom_threads **out);
void atom_threads_close(atom_threads **pool);
uint32_t atom_threads_count(const atom_threads *pool);
/* Upper bound of `worker` ids: count - 1 + ATOM_CALLERS_MAX. */
uint32_t atom_threads_slots(const atom_threads *pool);

/*
 * Calls task(ctx, i, worker) for i in 0 .. count-1, in any order, and returns when all are done.
 * The caller works too. Blocks; may be called from up to ATOM_CALLERS_MAX threads at once;
 * must not be called from inside a task.
 */
void atom_parallel(atom_threads *pool, uint32_t count, atom_task task, void *ctx);

#endif
