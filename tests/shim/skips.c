/*
 * Owns the proof that attention does not touch what a window or a document's start hides: rows far
 * away are filled with NaN, which any product with them would spread, whatever the mask says. One
 * idea: T is many tiles, a query sees few keys, so a far tile that is loaded and multiplied shows.
 */
#include "tests/shim/skips.h"

#include "atom/base/assert.h"
#include "atom/base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { T = 512, H = 2, K = 1, D = 16, ROW = (H + 2 * K) * D, FAR = 128, NEAR = 256, DOCUMENT = 64 };

typedef struct scene {
    const krn_table *table;
    bool apart; /* documents of DOCUMENT rows; else a window of 8 */
    char *qkv, *y, *dy, *dqkv;
    float *lse;
    size_t bytes; /* of an element */
    int32_t starts[T];
} scene;

static void *room(size_t bytes)
{
    void *at = aligned_alloc(256, (bytes + 255) / 256 * 256);
    ATOM_ASSERT(at);
    memset(at, 0, (bytes + 255) / 256 * 256);
    return at;
}

static void put(const scene *s, char *at, int64_t i, float value)
{
    atom_bf16 half = atom_f32_to_bf16(value);
    memcpy(at + (size_t)i * s->bytes, s->bytes == 4 ? (void *)&value : (void *)&half, s->bytes);
}

static float get(const scene *s, const char *at, int64_t i)
{
    float value;
    atom_bf16 half;
    if (s->bytes == 4) {
        memcpy(&value, at + i * 4, sizeof value);
        return value;
    }
    memcpy(&half, at + i * 2, sizeof half);
    return atom_bf16_to_f32(half);
}

static void fill(const scene *s, char *at, int64_t n, uint32_t node)
{
    atom_rng_key key = {.seed = 5, .node = node};
    for (int64_t i = 0; i < n; i++)
        put(s, at, i, (float)(atom_rng_u32(key, (uint64_t)i) >> 8) * 0x1p-24f - 0.5f);
}

/* Elements first .. first + n - 1 of rows from .. to - 1 of width. */
static void poison(const scene *s, char *at, int width, int first, int n, int from, int to)
{
    for (int t = from; t < to; t++) {
        for (int i = first; i < first + n; i++)
            put(s, at, (int64_t)t * width + i, NAN);
    }
}

static int wrong(const scene *s, const char *at, int width, int first, int n, int from, int to)
{
    int bad = 0;
    for (int t = from; t < to; t++) {
        for (int i = first; i < first + n; i++)
            bad += !isfinite(get(s, at, (int64_t)t * width + i));
    }
    return bad;
}

static void run(const scene *s, bool backward)
{
    krn_args args = {.dim = {1, T, H, D, K, s->apart ? 0 : 8}};
    krn_step step = {.starts = s->apart ? s->starts : NULL};
    void *const buf[5] = {s->qkv, s->y, s->lse, s->dy, s->dqkv};
    memcpy(args.buf, buf, sizeof buf);
    uint64_t bytes = s->table->workspace(ATOM_OP_attention, backward, args.dim);
    krn_ctx cx = {.workspace = room(bytes + 1), .workspace_bytes = bytes, .step = &step};
    (backward ? s->table->bwd : s->table->fwd)[ATOM_OP_attention](&cx, &args);
    free(cx.workspace);
}

static int check(scene *s)
{
    int bad = 0;
    fill(s, s->qkv, T * ROW, 1);
    fill(s, s->dy, T * H * D, 2);
    run(s, false);
    /* Late queries meet no early key. */
    poison(s, s->qkv, ROW, H * D, 2 * K * D, 0, FAR);
    run(s, true);
    bad += wrong(s, s->dqkv, ROW, 0, ROW, NEAR, T);
    run(s, false);
    bad += wrong(s, s->y, H * D, 0, H * D, NEAR, T);
    /* Early keys meet no late query. */
    fill(s, s->qkv, T * ROW, 1);
    run(s, false);
    poison(s, s->qkv, ROW, 0, H * D, NEAR, T);
    poison(s, s->dy, H * D, 0, H * D, NEAR, T);
    run(s, true);
    return bad + wrong(s, s->dqkv, ROW, 0, ROW, 0, FAR);
}

int shim_check_skips(const krn_table *table)
{
    int bad = 0;
    scene s = {.table = table, .bytes = atom_dtype_bytes(table->dtype)};
    s.qkv = room(T * ROW * s.bytes);
    s.dqkv = room(T * ROW * s.bytes);
    s.y = room(T * H * D * s.bytes);
    s.dy = room(T * H * D * s.bytes);
    s.lse = room(T * H * sizeof *s.lse);
    for (int t = 0; t < T; t++)
        s.starts[t] = t / DOCUMENT * DOCUMENT;
    for (int apart = 0; apart < 2; apart++) {
        s.apart = apart;
        bad += check(&s);
    }
    free(s.qkv);
    free(s.dqkv);
    free(s.y);
    free(s.dy);
    free(s.lse);
    return bad;
}
