/*
 * Owns what all devices share: closing, and counting bytes against the budget. One idea: a byte is
 * counted before it is taken, so that the budget holds on every device in the same way.
 */
#include "kernels/dev_common.h"

#include "atom/base/assert.h"
#include "atom/base/mem.h"

void dev_close(dev **d)
{
    if (*d)
        (*d)->ops->close(*d);
    *d = NULL;
}

static void count_up(uint64_t *used, uint64_t *peak, uint64_t bytes)
{
    *used += atom_align(bytes);
    if (*used > *peak)
        *peak = *used;
}

atom_status dev_budget_take(dev *d, uint64_t bytes)
{
    uint64_t rounded = bytes > UINT64_MAX / 2 ? bytes : atom_align(bytes);
    uint64_t needs = d->used_bytes + rounded;
    if (needs < rounded)
        needs = UINT64_MAX;
    if (d->budget_bytes && needs > d->budget_bytes)
        return atom_fail(ATOM_E_RESOURCE,
                         "device memory: %llu bytes are needed, but the budget is %llu; %llu are "
                         "missing; raise --device-memory or use a smaller micro-batch",
                         (unsigned long long)needs, (unsigned long long)d->budget_bytes,
                         (unsigned long long)(needs - d->budget_bytes));
    count_up(&d->used_bytes, &d->peak_bytes, bytes);
    return ATOM_OK;
}

void dev_budget_give(dev *d, uint64_t bytes)
{
    ATOM_ASSERT(d->used_bytes >= atom_align(bytes));
    d->used_bytes -= atom_align(bytes);
}

void dev_host_take(dev *d, uint64_t bytes)
{
    count_up(&d->host_bytes, &d->host_peak_bytes, bytes);
}

void dev_host_give(dev *d, uint64_t bytes)
{
    ATOM_ASSERT(d->host_bytes >= atom_align(bytes));
    d->host_bytes -= atom_align(bytes);
}
