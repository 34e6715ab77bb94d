/*
 * Owns what an adapter does to its model's weights, and where those weights go beside an adapter
 * that is trained. One idea: scale B A is computed row by row wherever weights pass by, so merging
 * needs no second copy of the model; modules that were trained whole take the place of the model's.
 * DoRA needs the lengths of rows before, and so a pass over the weights of its own.
 */
#include "atom/file/peft_inner.h"

#include "atom/base/assert.h"
#include "atom/base/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- merging ---------------------------------------------------------------------------------- */

enum { CHUNK = 256 };

/* Elements [from, to) of row `row` of the target. */
static void add_row(const file_adapter *a, const adapter_part *part, int64_t row, int64_t from,
                    int64_t to, float *x)
{
    int64_t in = a->base->params[part->target.param].dims[1], r = part->target.rank;
    double scale = (double)part->target.scale, factor = part->factor ? part->factor[row] : 1;
    for (int64_t at = from; at < to; at += CHUNK) {
        double sum[CHUNK] = {0};
        int64_t n = to - at < CHUNK ? to - at : CHUNK;
        for (int64_t k = 0; k < r; k++) {
            double b = (double)part->B[row * r + k];
            for (int64_t i = 0; i < n; i++)
                sum[i] += b * (double)part->A[k * in + at + i];
        }
        for (int64_t i = 0; i < n; i++)
            x[at - from + i] = (float)(factor * ((double)x[at - from + i] + scale * sum[i]));
    }
}

/* What visits the parts of rows of a target that lie in a run of elements. */
typedef void (*row_fn)(const file_adapter *a, const adapter_part *part, int64_t row, int64_t from,
                       int64_t to, float *x);

static void each_row(const file_adapter *a, uint64_t first, uint64_t n, float *x, row_fn visit)
{
    for (uint32_t i = 0; i < a->n; i++) {
        const adapter_part *part = &a->parts[i];
        const graph_param *p = &a->base->params[part->target.param];
        uint64_t in = (uint64_t)p->dims[1];
        uint64_t begin = p->offset + (uint64_t)part->target.first * in;
        uint64_t end = begin + (uint64_t)part->target.rows * in;
        uint64_t lo = first > begin ? first : begin, hi = first + n < end ? first + n : end;
        while (lo < hi) {
            uint64_t row = (lo - begin) / in, at = begin + row * in;
            uint64_t stop = at + in < hi ? at + in : hi;
            visit(a, part, (int64_t)row, (int64_t)(lo - at), (int64_t)(stop - at),
                  x + (lo - first));
            lo = stop;
        }
    }
}

static atom_status add_adapter(const file_adapter *a, uint64_t first, uint64_t n, float *x)
{
    each_row(a, first, n, x, add_row);
    for (uint32_t i = 0; i < a->n_saved; i++) {
        const adapter_saved *s = &a->saved[i];
        uint64_t begin = a->base->params[s->slice.param].offset + s->slice.first;
        uint64_t end = begin + s->slice.elements;
        uint64_t lo = first > begin ? first : begin, hi = first + n < end ? first + n : end;
        if (lo < hi)
            ATOM_TRY(file_adapter_saved_read(a, s, lo - begin, hi - lo, x + (lo - first)));
    }
    return ATOM_OK;
}

/* Adds the squares of a part of a row to its sum, with the adapter's part in it. */
static void square_row(const file_adapter *a, const adapter_part *part, int64_t row, int64_t from,
                       int64_t to, float *x)
{
    int64_t in = a->base->params[part->target.param].dims[1], r = part->target.rank;
    for (int64_t i = from; i < to; i++) {
        double sum = 0;
        for (int64_t k = 0; k < r; k++)
            sum += (double)part->B[row * r + k] * (double)part->A[k * in + i];
        sum = (double)x[i - from] + (double)part->target.scale * sum;
        part->factor[row] += sum * sum;
    }
}

/* The weights of all targets, once, in ascending order. */
static atom_status square_targets(const file_adapter *a, file_vector weights, float *band)
{
    for (uint32_t i = 0; i < a->n; i++) {
        int32_t param = a->parts[i].target.param;
        const graph_param *p = &a->base->params[param];
        if (i > 0 && a->parts[i - 1].target.param == param)
            continue;
        for (uint64_t at = 0, some; at < p->elements; at += some) {
            some = p->elements - at < FILE_BAND_ELEMENTS ? p->elements - at : FILE_BAND_ELEMENTS;
            ATOM_TRY(weights.get(weights.ctx, p->offset + at, some, band));
            each_row(a, p->offset + at, some, band, square_row);
        }
    }
    return ATOM_OK;
}

/* Factors become the lengths of the rows, with the adapter in them. */
static atom_status measure(file_adapter *a, const char *model_dir)
{
    file_weights *weights = NULL;
    float *band = NULL;
    atom_status st = ATOM_OK;
    for (uint32_t i = 0; i < a->n; i++) {
        a->parts[i].factor = atom_alloc((uint64_t)a->parts[i].target.rows, sizeof(double));
        if (!a->parts[i].factor)
            ATOM_TRY_CLEAN(atom_fail_memory("lengths of rows", 8));
    }
    band = atom_alloc(FILE_BAND_ELEMENTS, sizeof *band);
    if (!band)
        ATOM_TRY_CLEAN(atom_fail_memory("a band of weights", FILE_BAND_ELEMENTS * sizeof *band));
    ATOM_TRY_CLEAN(file_weights_open(model_dir, a->base, NULL, &weights));
    ATOM_TRY_CLEAN(square_targets(a, file_weights_vector(weights), band));
    for (uint32_t i = 0; i < a->n; i++)
        for (int64_t row = 0; row < a->parts[i].target.rows; row++)
            a->parts[i].factor[row] = sqrt(a->parts[i].factor[row]);
cleanup:
    file_weights_close(&weights);
    atom_free(band);
    return st;
}

atom_status file_adapter_measure(file_adapter *a, const char *model_dir)
{
    if (!a->lora.dora)
        return ATOM_OK;
    ATOM_TRY(measure(a, model_dir));
    for (uint32_t i = 0; i < a->n; i++) {
        adapter_part *part = &a->parts[i];
        for (int64_t row = 0; row < part->target.rows; row++) {
            double length = part->factor[row];
            part->factor[row] = length > 0 ? (double)part->magnitude[row] / length : 0;
        }
    }
    return ATOM_OK;
}

static atom_status put_lengths(const adapter_part *part, const graph *g, file_vector to)
{
    char name[FILE_LORA_NAME_MAX];
    uint32_t p = 0;
    snprintf(name, sizeof name, "%s.lora_magnitude_vector", part->target.name);
    while (p < g->n_params && strcmp(g->params[p].name, name) != 0)
        p++;
    ATOM_ASSERT(p < g->n_params);
    for (int64_t row = 0; row < part->target.rows; row++) {
        float length = (float)part->factor[row];
        ATOM_TRY(to.put(to.ctx, g->params[p].offset + (uint64_t)row, 1, &length));
    }
    return ATOM_OK;
}

atom_status file_lora_start(const file_lora *lora, const graph *base, const char *model_dir,
                            const graph *g, file_vector to)
{
    file_adapter *a = NULL;
    atom_status st;
    if (!lora->dora)
        return ATOM_OK;
    a = atom_alloc(1, sizeof *a);
    if (!a)
        return atom_fail_memory("an adapter", sizeof *a);
    a->base = base;
    a->lora = *lora;
    ATOM_TRY_CLEAN(file_adapter_targets(a));
    for (uint32_t i = 0; i < a->n; i++)
        a->parts[i].target.rank = 0; /* B is 0 yet: W alone is measured */
    ATOM_TRY_CLEAN(measure(a, model_dir));
    for (uint32_t i = 0; i < a->n; i++)
        ATOM_TRY_CLEAN(put_lengths(&a->parts[i], g, to));
cleanup:
    a->lora = (file_lora){0}; /* the caller's */
    file_adapter_close(&a);
    return st;
}

static atom_status over_get(void *ctx, uint64_t first, uint64_t n, float *to)
{
    const file_adapter *a = ctx;
    atom_status st = a->under.get(a->under.ctx, first, n, to);
    return st == ATOM_OK ? add_adapter(a, first, n, to) : st;
}

static atom_status over_put(void *ctx, uint64_t first, uint64_t n, const float *from)
{
    const file_adapter *a = ctx;
    float *sum = atom_alloc(n, sizeof *sum);
    if (!sum)
        return atom_fail_memory("merging an adapter", n * sizeof *sum);
    memcpy(sum, from, n * sizeof *sum);
    atom_status st = add_adapter(a, first, n, sum);
    if (st == ATOM_OK)
        st = a->under.put(a->under.ctx, first, n, sum);
    atom_free(sum);
    return st;
}

file_vector file_adapter_over(file_adapter *a, file_vector base)
{
    ATOM_ASSERT(!a->lora.dora || (a->n && a->parts[0].factor));
    a->under = base;
    return (file_vector){.ctx = a,
                         .get = base.get ? over_get : NULL,
                         .put = base.put ? over_put : NULL,
                         .source = base.source,
                         .sink = base.sink,
                         .odd = base.odd};
}

atom_status file_merged_read(const file_model *model, const graph *g, file_vector to)
{
    file_adapter *a = NULL;
    atom_status st;
    if (!model->adapter)
        return file_weights_read_to(model->dir, g, to);
    ATOM_TRY_CLEAN(file_adapter_open(model->adapter, g, model->dir, &a));
    ATOM_TRY_CLEAN(file_adapter_measure(a, model->dir));
    ATOM_TRY_CLEAN(file_weights_read_to(model->dir, g, file_adapter_over(a, to)));
cleanup:
    file_adapter_close(&a);
    return st;
}

/* --- beside an adapter that is trained -------------------------------------------------------- */

atom_status file_lora_base_open(const graph *base, const graph *g, bool whole, file_vector to,
                                file_lora_base *out)
{
    uint64_t *place = atom_alloc(base->n_params, sizeof *place);
    if (!place)
        return atom_fail_memory("places of parameters", base->n_params * sizeof *place);
    for (uint32_t p = 0; p < base->n_params; p++) {
        uint32_t at = 0;
        while (at < g->n_params && strcmp(g->params[at].name, base->params[p].name) != 0)
            at++;
        ATOM_ASSERT(at < g->n_params);
        bool left_out = !g->params[at].frozen && !whole;
        place[p] = left_out ? UINT64_MAX : g->params[at].offset;
    }
    *out = (file_lora_base){.base = base, .g = g, .to = to, .place = place};
    return ATOM_OK;
}

void file_lora_base_close(file_lora_base *b)
{
    atom_free(b->place);
    *b = (file_lora_base){0};
}

/* The parameter at an element, of base; pieces of readers lie within one. */
static uint32_t param_at(const graph *base, uint64_t first)
{
    uint32_t low = 0, high = base->n_params;
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (base->params[middle].offset <= first)
            low = middle;
        else
            high = middle;
    }
    return low;
}

atom_status file_lora_base_put(const file_lora_base *b, uint64_t first, uint64_t n,
                               const float *from)
{
    uint32_t p = param_at(b->base, first);
    uint64_t in = first - b->base->params[p].offset;
    ATOM_ASSERT(in + n <= b->base->params[p].elements);
    return b->place[p] == UINT64_MAX ? ATOM_OK : b->to.put(b->to.ctx, b->place[p] + in, n, from);
}
