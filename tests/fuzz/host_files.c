/* Any bytes as the list of a box's pools, and as its ledger: refused with a line, or pools with names
 * of their own and shares, and numbers that a schedule may go on from. */
#include "atom/base/assert.h"
#include "atom/base/mem.h"
#include "atom/host/ledger.h"

#include <math.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void look(const host_pools *f)
{
    ATOM_ASSERT(f->n > 0 && f->n <= HOST_POOLS_MAX);
    ATOM_ASSERT(f->slice_seconds == -1 || f->slice_seconds > 0);
    for (uint32_t i = 0; i < f->n; i++) {
        ATOM_ASSERT(f->pool[i].share > 0 && isfinite(f->pool[i].share));
        ATOM_ASSERT(f->pool[i].dir && f->pool[i].name && *f->pool[i].name);
        for (uint32_t k = 0; k < i; k++)
            ATOM_ASSERT(strcmp(f->pool[i].name, f->pool[k].name) != 0);
    }
}

static void read_ledger(const uint8_t *data, size_t size)
{
    static const char text[] = "pools:\n  - dir: a\n  - dir: b\n";
    host_turn turns[HOST_POOLS_MAX];
    host_process process;
    host_pools *f = NULL;
    double passed_s = 0;
    ATOM_ASSERT(host_pools_parse("p.yml", text, strlen(text), &f) == ATOM_OK);
    atom_status st =
        host_ledger_parse("l", (const char *)data, size, 1e9, f, turns, &process, &passed_s);
    ATOM_ASSERT(st == ATOM_OK || st == ATOM_E_FORMAT);
    if (st == ATOM_OK) {
        host_schedule s;
        ATOM_ASSERT(passed_s >= 0 && passed_s <= 1e9 && process.pid >= 0);
        host_schedule_begin(&s, &host_rules_usual, turns, f->n, 5);
        host_schedule_age(&s, passed_s);
        ATOM_ASSERT(host_schedule_step(&s, &(host_event){.kind = HOST_TICK, .now = 5}) ==
                    HOST_DO_START);
        ATOM_ASSERT(s.turn[0].level >= 0 && isfinite(s.turn[0].level));
        ATOM_ASSERT(isfinite(host_schedule_slice(&s, 0)));
    }
    host_pools_close(&f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    host_pools *f = NULL;
    atom_status st = host_pools_parse("p.yml", (const char *)data, size, &f);
    ATOM_ASSERT(st == ATOM_OK || st == ATOM_E_USAGE);
    if (st == ATOM_OK)
        look(f);
    host_pools_close(&f);
    read_ledger(data, size);
    ATOM_ASSERT(atom_mem_read().live_blocks == 0);
    return 0;
}
