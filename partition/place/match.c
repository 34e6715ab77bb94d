/*
 * Owns the two graph problems inside a pipeline's cost: matching the hosts of two stages, and the
 * order of the stages. One idea: both are exact where they are small, so that a search compares
 * arrangements and not the luck of a heuristic. Interchangeable hosts are matched together, as a
 * flow. Refuses nothing.
 */
#include "partition/place/inner.h"

#include "atom/base/mem.h"

#include <math.h>
#include <string.h>

enum { HALF = PLACE_HOSTS_MAX / 2 }; /* hosts of a stage, where there are two */

void place_scratch_close(place_scratch *s)
{
    void *const blocks[] = {s->cost, s->flow,    s->distance,  s->from, s->via, s->spare,
                            s->done, s->reached, s->column_of, s->path, s->step};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        atom_free(blocks[i]);
    *s = (place_scratch){0};
}

atom_status place_scratch_open(place_scratch *s)
{
    size_t states = ((size_t)1 << PLACE_PATH_EXACT) * PLACE_PATH_EXACT;
    s->cost = atom_alloc((size_t)HALF * HALF, sizeof *s->cost);
    s->flow = atom_alloc((size_t)HALF * HALF, sizeof *s->flow);
    s->distance = atom_alloc(HALF, sizeof *s->distance);
    s->from = atom_alloc(HALF, sizeof *s->from);
    s->via = atom_alloc(HALF, sizeof *s->via);
    s->spare = atom_alloc(HALF, sizeof *s->spare);
    s->done = atom_alloc(HALF, sizeof *s->done);
    s->reached = atom_alloc(HALF, sizeof *s->reached);
    s->column_of = atom_alloc(HALF, sizeof *s->column_of);
    s->path = atom_alloc(states, sizeof *s->path);
    s->step = atom_alloc(states, sizeof *s->step);
    if (s->cost && s->flow && s->distance && s->from && s->via && s->spare && s->done &&
        s->reached && s->column_of && s->path && s->step)
        return ATOM_OK;
    place_scratch_close(s);
    return atom_fail_memory("a placement", states * sizeof(double));
}

/* Relaxes all columns by a row that was reached when the longest pair was `so_far`. */
static void relax(place_scratch *s, uint32_t row, double so_far)
{
    for (uint32_t c = 0; c < s->columns.n; c++) {
        double d = fmax(so_far, s->cost[row * s->columns.n + c]);
        if (!s->done[c] && d < s->distance[c]) {
            s->distance[c] = d;
            s->from[c] = row;
        }
    }
}

/* The column that ends the best augmenting path of a row: the one whose longest pair is shortest. */
static uint32_t reach(place_scratch *s, uint32_t row)
{
    uint32_t rows = s->rows.n, columns = s->columns.n;
    for (uint32_t c = 0; c < columns; c++) {
        s->distance[c] = INFINITY;
        s->done[c] = false;
    }
    for (uint32_t r = 0; r < rows; r++)
        s->reached[r] = r == row;
    relax(s, row, 0);
    for (;;) {
        uint32_t next = columns;
        for (uint32_t c = 0; c < columns; c++)
            if (!s->done[c] && (next == columns || s->distance[c] < s->distance[next]))
                next = c;
        if (s->spare[next])
            return next;
        s->done[next] = true;
        for (uint32_t r = 0; r < rows; r++)
            if (!s->reached[r] && s->flow[r * columns + next]) {
                s->reached[r] = true;
                s->via[r] = next;
                relax(s, r, s->distance[next]);
            }
    }
}

/* How many hosts of a row the path to column c takes, at most `want`; and takes them. */
static uint32_t push(place_scratch *s, uint32_t row, uint32_t c, uint32_t want)
{
    uint32_t columns = s->columns.n, n = want < s->spare[c] ? want : s->spare[c];
    for (uint32_t r = s->from[c], at = c; r != row; r = s->from[at]) {
        at = s->via[r];
        n = n < s->flow[r * columns + at] ? n : s->flow[r * columns + at];
    }
    s->spare[c] -= n;
    for (uint32_t at = c;;) {
        uint32_t r = s->from[at];
        s->flow[r * columns + at] = (uint16_t)(s->flow[r * columns + at] + n);
        if (r == row)
            return n;
        at = s->via[r];
        s->flow[r * columns + at] = (uint16_t)(s->flow[r * columns + at] - n);
    }
}

double place_match(const place_problem *p, const place_types *types, const uint16_t *a,
                   const uint16_t *b, uint32_t n, double bytes, place_scratch *s)
{
    double longest = 0;
    place_members_of(types, a, n, &s->rows);
    place_members_of(types, b, n, &s->columns);
    uint32_t rows = s->rows.n, columns = s->columns.n;
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t c = 0; c < columns; c++) {
            s->cost[r * columns + c] =
                place_pair_seconds(p, a[s->rows.at[r]], b[s->columns.at[c]], bytes);
            s->flow[r * columns + c] = 0;
        }
    for (uint32_t c = 0; c < columns; c++)
        s->spare[c] = s->columns.count[c];
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t left = s->rows.count[r]; left;)
            left -= push(s, r, reach(s, r), left);
    for (uint32_t i = 0; i < rows * columns; i++)
        longest = s->flow[i] ? fmax(longest, s->cost[i]) : longest;
    return longest;
}

void place_match_pairs(const place_types *types, const uint16_t *a, const uint16_t *b, uint32_t n,
                       place_scratch *s)
{
    bool taken[PLACE_HOSTS_MAX] = {false};
    for (uint32_t i = 0; i < n; i++) {
        uint32_t r = 0, c = 0, j = 0;
        while (s->rows.type[r] != types->of[a[i]])
            r++;
        while (!s->flow[r * s->columns.n + c])
            c++;
        while (taken[j] || types->of[b[j]] != s->columns.type[c])
            j++;
        taken[j] = true;
        s->flow[r * s->columns.n + c]--;
        s->column_of[i] = j;
    }
}

/* Held and Karp: the shortest path through a set that ends at a point. */
static double path_exact(const double *edge, uint32_t n, uint32_t *order, place_scratch *s)
{
    uint32_t all = (1u << n) - 1, end = 0, set = all;
    double *best = s->path;
    for (uint32_t m = 1; m <= all; m++)
        for (uint32_t i = 0; i < n; i++) {
            double *here = &best[m * n + i];
            *here = m == 1u << i ? 0 : INFINITY;
            if (!(m >> i & 1))
                continue;
            for (uint32_t j = 0; j < n; j++)
                if (j != i && (m >> j & 1)) {
                    double d = best[(m ^ 1u << i) * n + j] + edge[j * n + i];
                    if (d < *here) {
                        *here = d;
                        s->step[m * n + i] = (uint8_t)j;
                    }
                }
        }
    for (uint32_t i = 1; i < n; i++)
        if (best[all * n + i] < best[all * n + end])
            end = i;
    double length = best[all * n + end];
    for (uint32_t k = n; k-- > 0;) {
        order[k] = end;
        uint32_t before = k ? s->step[set * n + end] : 0;
        set ^= 1u << end;
        end = before;
    }
    return length;
}

static double length_of(const double *edge, uint32_t n, const uint32_t *order)
{
    double sum = 0;
    for (uint32_t i = 1; i < n; i++)
        sum += edge[order[i - 1] * n + order[i]];
    return sum;
}

static void path_nearest(const double *edge, uint32_t n, uint32_t start, uint32_t *order)
{
    bool used[PLACE_STAGES_MAX] = {false};
    order[0] = start;
    used[start] = true;
    for (uint32_t k = 1; k < n; k++) {
        uint32_t next = n;
        for (uint32_t j = 0; j < n; j++)
            if (!used[j] &&
                (next == n || edge[order[k - 1] * n + j] < edge[order[k - 1] * n + next]))
                next = j;
        order[k] = next;
        used[next] = true;
    }
}

/* Turns stretches around while that shortens the path. */
static void path_improve(const double *edge, uint32_t n, uint32_t *order)
{
    for (bool better = true; better;) {
        better = false;
        for (uint32_t i = 0; i + 1 < n; i++)
            for (uint32_t j = i + 1; j < n; j++) {
                double gone = (i ? edge[order[i - 1] * n + order[i]] : 0) +
                              (j + 1 < n ? edge[order[j] * n + order[j + 1]] : 0);
                double come = (i ? edge[order[i - 1] * n + order[j]] : 0) +
                              (j + 1 < n ? edge[order[i] * n + order[j + 1]] : 0);
                if (come >= gone * (1 - 1e-12))
                    continue;
                for (uint32_t x = i, y = j; x < y; x++, y--) {
                    uint32_t t = order[x];
                    order[x] = order[y];
                    order[y] = t;
                }
                better = true;
            }
    }
}

double place_path(const double *edge, uint32_t n, uint32_t *order, place_scratch *s)
{
    uint32_t trial[PLACE_STAGES_MAX];
    double best = INFINITY;
    if (n <= PLACE_PATH_EXACT)
        return path_exact(edge, n, order, s);
    const uint32_t starts = n < PLACE_PATH_STARTS ? n : PLACE_PATH_STARTS;
    for (uint32_t i = 0; i < starts; i++) {
        path_nearest(edge, n, i * n / starts, trial);
        path_improve(edge, n, trial);
        double length = length_of(edge, n, trial);
        if (length < best) {
            best = length;
            memcpy(order, trial, n * sizeof *order);
        }
    }
    return best;
}
