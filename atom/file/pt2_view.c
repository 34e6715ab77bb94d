/*
 * Owns views: sizes, strides and an offset over numbers that are kept elsewhere. One idea: every
 * rearranging operator of PyTorch is arithmetic on these few numbers, and an axis may be
 * two that were merged, of which the second repeats elements (grouped heads) or not. Refuses (false) what would have to move numbers.
 */
#include "atom/base/mem.h"
#include "atom/file/pt2_inner.h"

#include <string.h>

#define VIEW_ELEMENTS_MAX ((int64_t)1 << 44)

int pt2_dim(int64_t dim, int rank)
{
    if (dim < -rank || dim >= rank)
        return -1;
    return (int)(dim < 0 ? dim + rank : dim);
}

int64_t pt2_view_elements(const pt2_view *v)
{
    int64_t n = 1;
    for (int i = 0; i < v->rank; i++)
        n *= v->size[i];
    return n;
}

bool pt2_view_packed(int rank, const int64_t *sizes, pt2_view *out)
{
    int64_t n = 1;
    if (rank < 0 || rank > PT2_RANK_MAX)
        return false;
    *out = (pt2_view){.rank = rank};
    for (int i = rank; i-- > 0;) {
        if (sizes[i] < 1 || sizes[i] > VIEW_ELEMENTS_MAX / n)
            return false;
        out->size[i] = sizes[i];
        out->stride[i] = n;
        out->rep[i] = 1;
        n *= sizes[i];
    }
    return true;
}

bool pt2_sizes_complete(int64_t elements, int rank, const int64_t *sizes, int64_t *out)
{
    int64_t known = 1;
    int open = -1;
    if (rank < 0 || rank > PT2_RANK_MAX)
        return false;
    for (int i = 0; i < rank; i++) {
        out[i] = sizes[i];
        if (sizes[i] == -1 && open < 0)
            open = i;
        else if (sizes[i] < 1 || sizes[i] > elements / known)
            return false;
        else
            known *= sizes[i];
    }
    if (open >= 0)
        out[open] = elements / known;
    return (open >= 0 ? known * out[open] : known) == elements;
}

/* The longest runs of dimensions that are one: no sizes of 1, a twofold one as two. */
static int melt(const pt2_view *v, int64_t *size, int64_t *stride)
{
    int n = 0;
    for (int i = 0; i < v->rank; i++) {
        int64_t parts[2][2] = {{v->size[i] / v->rep[i], v->stride[i]}, {v->rep[i], v->inner[i]}};
        for (int k = 0; k < 2; k++) {
            if (parts[k][0] == 1)
                continue;
            if (n > 0 && stride[n - 1] == parts[k][0] * parts[k][1]) {
                size[n - 1] *= parts[k][0];
                stride[n - 1] = parts[k][1];
            } else {
                size[n] = parts[k][0];
                stride[n++] = parts[k][1];
            }
        }
    }
    return n;
}

bool pt2_view_reshape(const pt2_view *v, int rank, const int64_t *sizes, pt2_view *out)
{
    int64_t want[PT2_RANK_MAX], size[2 * PT2_RANK_MAX], stride[2 * PT2_RANK_MAX];
    pt2_view made = {.rank = rank, .offset = v->offset};
    if (!pt2_sizes_complete(pt2_view_elements(v), rank, sizes, want))
        return false;
    int n = melt(v, size, stride);
    int64_t left = n ? size[n - 1] : 1, done = 1; /* of the innermost melted one */
    for (int i = rank; i-- > 0;) {
        made.size[i] = want[i];
        made.rep[i] = 1;
        if (want[i] == 1)
            continue;
        if (left == 1 && n > 1) {
            n--;
            left = size[n - 1];
            done = 1;
        }
        if (left % want[i] == 0) {
            made.stride[i] = stride[n - 1] * done;
            left /= want[i];
            done *= want[i];
        } else if (want[i] % left == 0 && n > 1 && size[n - 2] % (want[i] / left) == 0) {
            made.rep[i] = left;
            made.inner[i] = stride[n - 1] * done;
            made.stride[i] = stride[n - 2];
            done = want[i] / left;
            left = size[n - 2] / done;
            n--;
        } else {
            return false;
        }
    }
    *out = made;
    return true;
}

bool pt2_view_expand(const pt2_view *v, int rank, const int64_t *sizes, pt2_view *out)
{
    pt2_view made = {.rank = rank, .offset = v->offset};
    int64_t n = 1;
    if (rank < v->rank || rank > PT2_RANK_MAX)
        return false;
    for (int i = rank; i-- > 0;) {
        int from = i - (rank - v->rank);
        int64_t has = from >= 0 ? v->size[from] : 1;
        made.size[i] = sizes[i] == -1 ? has : sizes[i];
        made.rep[i] = 1;
        if (made.size[i] < 1 || made.size[i] > VIEW_ELEMENTS_MAX / n)
            return false;
        n *= made.size[i];
        if (has == made.size[i] && from >= 0) {
            made.stride[i] = v->stride[from];
            made.rep[i] = v->rep[from];
            made.inner[i] = v->inner[from];
        } else if (has != 1) {
            return false;
        }
    }
    *out = made;
    return true;
}

void pt2_view_swap(pt2_view *v, int a, int b)
{
    pt2_view old = *v;
    v->size[a] = old.size[b];
    v->stride[a] = old.stride[b];
    v->rep[a] = old.rep[b];
    v->inner[a] = old.inner[b];
    v->size[b] = old.size[a];
    v->stride[b] = old.stride[a];
    v->rep[b] = old.rep[a];
    v->inner[b] = old.inner[a];
}

bool pt2_view_slice(pt2_view *v, int dim, int64_t start, int64_t end, int64_t step)
{
    int64_t n = v->size[dim];
    start = start < 0 ? start + n : start;
    end = end < 0 ? end + n : end;
    start = start < 0 ? 0 : start > n ? n : start;
    end = end > n ? n : end;
    if (step < 1 || end <= start)
        return false;
    if (start == 0 && end == n && step == 1)
        return true;
    if (v->rep[dim] != 1)
        return false;
    v->offset += start * v->stride[dim];
    v->size[dim] = (end - start + step - 1) / step;
    v->stride[dim] *= step;
    return true;
}

bool pt2_view_insert(pt2_view *v, int dim)
{
    if (v->rank == PT2_RANK_MAX)
        return false;
    size_t n = (size_t)(v->rank - dim) * sizeof v->size[0];
    memmove(&v->size[dim + 1], &v->size[dim], n);
    memmove(&v->stride[dim + 1], &v->stride[dim], n);
    memmove(&v->rep[dim + 1], &v->rep[dim], n);
    memmove(&v->inner[dim + 1], &v->inner[dim], n);
    v->size[dim] = v->rep[dim] = 1;
    v->stride[dim] = v->inner[dim] = 0;
    v->rank++;
    return true;
}

void pt2_view_remove(pt2_view *v, int dim)
{
    size_t n = (size_t)(v->rank - dim - 1) * sizeof v->size[0];
    memmove(&v->size[dim], &v->size[dim + 1], n);
    memmove(&v->stride[dim], &v->stride[dim + 1], n);
    memmove(&v->rep[dim], &v->rep[dim + 1], n);
    memmove(&v->inner[dim], &v->inner[dim + 1], n);
    v->rank--;
}

bool pt2_view_next(const pt2_view *v, int64_t at[PT2_RANK_MAX])
{
    for (int i = v->rank; i-- > 0;) {
        if (++at[i] < v->size[i])
            return true;
        at[i] = 0;
    }
    return false;
}

int64_t pt2_view_step(const pt2_view *v, int dim, int64_t i)
{
    return i / v->rep[dim] * v->stride[dim] + i % v->rep[dim] * v->inner[dim];
}

bool pt2_view_same(const pt2_view *a, const pt2_view *b)
{
    bool same = a->rank == b->rank && a->offset == b->offset;
    for (int i = 0; i < a->rank && same; i++)
        same = a->size[i] == b->size[i] &&
               (a->size[i] == 1 || (a->stride[i] == b->stride[i] && a->rep[i] == b->rep[i] &&
                                    (a->rep[i] == 1 || a->inner[i] == b->inner[i])));
    return same;
}

int64_t pt2_view_place(const pt2_view *v, const int64_t at[PT2_RANK_MAX])
{
    int64_t place = v->offset;
    for (int i = 0; i < v->rank; i++)
        place += pt2_view_step(v, i, at[i]);
    return place;
}

/* Places of b are looked up among marks of those of a. */
bool pt2_views_overlap(const pt2_view *a, const pt2_view *b)
{
    int64_t at[PT2_RANK_MAX] = {0}, last = 0;
    bool found = false;
    do {
        int64_t place = pt2_view_place(a, at);
        last = place > last ? place : last;
    } while (pt2_view_next(a, at));
    uint8_t *marks = atom_alloc((size_t)(last / 8 + 1), 1);
    if (!marks)
        return true;
    memset(at, 0, sizeof at);
    do {
        int64_t place = pt2_view_place(a, at);
        marks[place / 8] |= (uint8_t)(1u << place % 8);
    } while (pt2_view_next(a, at));
    memset(at, 0, sizeof at);
    do {
        int64_t place = pt2_view_place(b, at);
        found = place <= last && (marks[place / 8] >> place % 8 & 1);
    } while (!found && pt2_view_next(b, at));
    atom_free(marks);
    return found;
}
