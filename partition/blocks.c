/*
 * Owns where blocks of a state on disk end. One idea: a block takes elements until it has as many
 * as were asked for, and then ends at once, or where the matrix ends that it is in. Refuses to know
 * how blocks lie on disk or in memory.
 */
#include "partition/plan.h"

static uint64_t up(uint64_t n, uint64_t align)
{
    return (n + align - 1) / align * align;
}

static uint64_t param_end(const graph_param *p)
{
    return p->offset + up(p->elements, GRAPH_PARAM_ALIGN);
}

/* The end of that parameter's matrix that has the element; what pads the last one is its own. */
static uint64_t matrix_end(const graph_param *p, const int64_t rows[], uint32_t n, uint64_t element)
{
    uint64_t end = p->offset;
    for (uint32_t i = 0; i + 1 < n; i++) {
        end += (uint64_t)(rows[i] * p->dims[1]);
        if (element < end)
            return end;
    }
    return param_end(p);
}

bool part_blocks_next(part_blocks *w)
{
    const graph *g = w->g;
    uint64_t trained = g->trained_extent, target = up(w->end + w->each, GRAPH_PARAM_ALIGN);
    int64_t rows[GRAPH_MATRICES_MAX];
    w->first = w->end;
    w->seconds = 0;
    target = target < trained ? target : trained;
    while (w->end < target) {
        const graph_param *p = &g->params[w->param];
        if (p->frozen || param_end(p) <= w->end) {
            w->param++;
            continue;
        }
        uint32_t n = graph_matrices(g, (int32_t)w->param, rows);
        uint64_t at = w->end, end = param_end(p);
        w->end = n ? matrix_end(p, rows, n, at) : end < target ? end : target;
        w->seconds += n ? 0 : w->end - at;
    }
    return w->end > w->first;
}

uint64_t part_blocks_largest(const graph *g, uint64_t each, uint64_t *n)
{
    enum { SECTOR = 4096 };
    uint64_t largest = 0, moment = atom_dtype_bytes(g->moments);
    part_blocks w = {.g = g, .each = each};
    for (*n = 0; part_blocks_next(&w); ++*n) {
        uint64_t align = SECTOR / moment;
        uint64_t bytes = up(w.end - w.first, align) * (4 + moment) + up(w.seconds, align) * moment;
        largest = bytes > largest ? bytes : largest;
    }
    return largest;
}
