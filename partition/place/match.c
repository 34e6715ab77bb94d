/*
 * Owns the two graph problems inside a pipeline's cost: matching the hosts of two stages, and the
 * order of the stages. One idea: both are exact where they are small, so that a search compares
 * arrangements and not the luck of a heuristic. Refuses nothing.
 */
#include "partition/place/inner.h"

#include <math.h>
#include <string.h>

/* The column that ends the best augmenting path of row r: the one whose longest pair is shortest. */
static uint32_t reach(const place_problem *p, const uint16_t *a, const uint16_t *b, uint32_t n,
                      double bytes, uint32_t r, place_scratch *s)
{
    double so_far = 0;
    for (uint32_t c = 0; c < n; c++) {
        s->distance[c] = INFINITY;
        s->done[c] = false;
    }
    for (;;) {
        uint32_t next = n;
        for (uint32_t c = 0; c < n; c++) {
            if (s->done[c])
                continue;
            double d = fmax(so_far, place_pair_seconds(p, a[r], b[c], bytes));
            if (d < s->distance[c]) {
                s->distance[c] = d;
                s->from[c] = r;
            }
            if (next == n || s->distance[c] < s->distance[next])
                next = c;
        }
        if (s->row_of[next] == n)
            return next;
        s->done[next] = true;
        so_far = s->distance[next];
        r = s->row_of[next];
    }
}

double place_match(const place_problem *p, const uint16_t *a, const uint16_t *b, uint32_t n,
                   double bytes, place_scratch *s)
{
    double longest = 0;
    for (uint32_t i = 0; i < n; i++)
        s->row_of[i] = s->column_of[i] = n;
    for (uint32_t row = 0; row < n; row++) {
        uint32_t c = reach(p, a, b, n, bytes, row, s);
        for (bool more = true; more;) {
            uint32_t r = s->from[c], before = s->column_of[r];
            s->row_of[c] = r;
            s->column_of[r] = c;
            more = r != row;
            c = before;
        }
    }
    for (uint32_t i = 0; i < n; i++)
        longest = fmax(longest, place_pair_seconds(p, a[i], b[s->column_of[i]], bytes));
    return longest;
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
                        s->via[m * n + i] = (uint8_t)j;
                    }
                }
        }
    for (uint32_t i = 1; i < n; i++)
        if (best[all * n + i] < best[all * n + end])
            end = i;
    double length = best[all * n + end];
    for (uint32_t k = n; k-- > 0;) {
        order[k] = end;
        uint32_t before = k ? s->via[set * n + end] : 0;
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
    for (uint32_t start = 0; start < n; start++) {
        path_nearest(edge, n, start, trial);
        path_improve(edge, n, trial);
        double length = length_of(edge, n, trial);
        if (length < best) {
            best = length;
            memcpy(order, trial, n * sizeof *order);
        }
    }
    return best;
}
