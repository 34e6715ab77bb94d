/*
 * Owns the marks of vectors. One idea: the numbers that are looked at have fixed places, each with a
 * slot of its own, so order and repetition of what passes by do not matter, and a sum of all knows each
 * number's place, so that order does not. Refuses nothing: who
 * compares two marks says what it means.
 */
#include "atom/train/mark.h"

#include "atom/base/hash.h"
#include "atom/base/mem.h"

#include <string.h>

enum { LOOKS = 8 }; /* numbers of each parameter, from its first to its last */

struct train_mark {
    file_vector under;
    uint64_t n;
    uint64_t *at; /* [n] places in the vector, ascending */
    float *seen;  /* [n]; 0 where nothing has passed */
    train_sum got, put;
};

atom_status train_mark_open(const graph *g, train_mark **out)
{
    train_mark *m = atom_alloc(1, sizeof *m);
    uint64_t most = (uint64_t)g->n_params * LOOKS;
    if (m) {
        m->at = atom_alloc(most, sizeof *m->at);
        m->seen = atom_alloc(most, sizeof *m->seen);
    }
    *out = m;
    if (!m || !m->at || !m->seen) {
        train_mark_close(out);
        return atom_fail_memory("a checkpoint's mark", most * sizeof(uint64_t));
    }
    for (uint32_t p = 0; p < g->n_params; p++) {
        const graph_param *param = &g->params[p];
        uint64_t elements = param->frozen ? 0 : param->elements;
        for (uint64_t k = 0; k < LOOKS && elements; k++)
            m->at[m->n++] = param->offset + (elements - 1) / (LOOKS - 1) * k;
    }
    return ATOM_OK;
}

void train_mark_close(train_mark **mark)
{
    train_mark *m = *mark;
    if (!m)
        return;
    atom_free(m->at);
    atom_free(m->seen);
    atom_free(m);
    *mark = NULL;
}

static void look(train_mark *m, uint64_t first, uint64_t n, const float *floats)
{
    uint64_t low = 0, high = m->n;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (m->at[middle] < first)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < m->n && m->at[low] - first < n; low++)
        m->seen[low] = floats[m->at[low] - first];
}

/* Each number is multiplied by an odd one of its place, so that no other number there makes the same product.
 * Eight at a time, for vector instructions; the places' high 32 bits are all the same. */
static uint64_t sum_run(uint64_t first, size_t n, const float *floats)
{
    enum { LANES = 8 };
    const uint32_t odd = 0x9e3779b1u;
    uint32_t key[LANES], bits[LANES] = {0};
    uint64_t sums[LANES] = {0}, sum = 0;
    for (uint32_t k = 0; k < LANES; k++)
        key[k] = ((uint32_t)first + k) * odd + (uint32_t)(first >> 32) * 0x85ebca77u;
    for (; n >= LANES; n -= LANES, floats += LANES) {
        memcpy(bits, floats, sizeof bits);
        for (int k = 0; k < LANES; k++) {
            sums[k] += (uint64_t)(bits[k] ^ key[k]) * (key[k] | 1);
            key[k] += LANES * odd;
        }
    }
    memcpy(bits, floats, n * sizeof *floats);
    for (size_t k = 0; k < LANES; k++)
        sum += sums[k] + (k < n ? (uint64_t)(bits[k] ^ key[k]) * (key[k] | 1) : 0);
    return sum;
}

static void add(train_sum *s, uint64_t first, uint64_t n, const float *floats)
{
    s->n += n;
    for (uint64_t at = 0, some; at < n; at += some) {
        some = (1ull << 32) - (uint32_t)(first + at);
        some = some < n - at ? some : n - at;
        s->sum += sum_run(first + at, (size_t)some, floats + at);
    }
}

static atom_status marked_get(void *ctx, uint64_t first, uint64_t n, float *to)
{
    train_mark *m = ctx;
    ATOM_TRY(m->under.get(m->under.ctx, first, n, to));
    look(m, first, n, to);
    add(&m->got, first, n, to);
    return ATOM_OK;
}

static atom_status marked_put(void *ctx, uint64_t first, uint64_t n, const float *from)
{
    train_mark *m = ctx;
    look(m, first, n, from);
    add(&m->put, first, n, from);
    return m->under.put(m->under.ctx, first, n, from);
}

static void marked_done(void *ctx, uint64_t first, uint64_t n)
{
    const train_mark *m = ctx;
    file_vector_done(m->under, first, n);
}

file_vector train_mark_over(train_mark *mark, file_vector under)
{
    mark->under = under;
    return (file_vector){.ctx = mark,
                         .get = marked_get,
                         .put = marked_put,
                         .done = under.done ? marked_done : NULL, /* and no floats: all is put */
                         .source = under.source,
                         .sink = under.sink};
}

uint64_t train_mark_hash(const train_mark *mark)
{
    uint64_t hash = ATOM_HASH_SEED;
    hash = atom_hash(hash, mark->seen, mark->n * sizeof *mark->seen);
    return hash ? hash : 1;
}

train_sum train_mark_got(const train_mark *mark)
{
    return mark->got;
}

train_sum train_mark_put(const train_mark *mark)
{
    return mark->put;
}

void train_mark_again(train_mark *mark)
{
    mark->got = mark->put = (train_sum){0};
}
