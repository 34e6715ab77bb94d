/*
 * Owns compress: rows through a codec and back, with the values of kernels/ref/codec.h. One idea: a
 * block stays in the first-level cache while it is encoded to its bytes and decoded from them, so
 * that the cost is that of a real link's two ends but for the link. What is chosen is found by its
 * threshold, bit by bit, with passes that only count. Refuses to sort.
 */
#include "atom/base/codec.h"
#include "kernels/cpu/isa/kernels.h"
#include "kernels/cpu/isa/span.h"
#include "kernels/cpu/isa/vecrng.h"

#include <float.h>
#include <math.h>

enum { ROWS = 4, MOST = ATOM_CODEC_SPARSE_BLOCK, DRAWN = 4 * VF_LANES };

/* Where a block is kept: values with room for whole vectors, and its bytes. */
typedef struct block {
    float x[MOST + VF_LANES];
    uint32_t key[MOST + 2 * DRAWN];
    uint16_t place[MOST + 1];
    uint8_t bytes[2 * MOST + MOST / 8];
} block;

KRN_INLINE void load(atom_dtype dtype, const void *from, int64_t at, float *x, int64_t n)
{
    int64_t i = 0;
    for (; i + VF_LANES <= n; i += VF_LANES)
        vf_store(x + i, vf_load_act(dtype, from, at + i));
    if (i < n)
        vf_store(x + i, vf_load_act_n(dtype, from, at + i, n - i));
}

KRN_INLINE void store(atom_dtype dtype, void *to, int64_t at, const float *x, int64_t n, int add)
{
    for (int64_t i = 0; i < n; i += VF_LANES) {
        int64_t k = krn_min(VF_LANES, n - i);
        vf y = vf_load(x + i);
        if (add)
            y += vf_get(dtype, to, at + i, k);
        vf_put(dtype, to, at + i, k, y);
    }
}

/* --- int8, int4, int2 --- */

/* Lowest value and step of x[n], whose last vector is filled up with x[0]. */
KRN_INLINE void head_of(const float *x, int64_t n, int bits, float head[2])
{
    vf top = vf_load(x), low = vf_all(0.0f) - top, odd = vf_all(0.0f);
    for (int64_t i = 0; i < n; i += VF_LANES) {
        vf v = vf_load(x + i);
        top = vf_max(top, v);
        low = vf_max(low, vf_all(0.0f) - v);
        odd += v - v; /* NaN where v is not finite */
    }
    float lo = -vf_top(low), step = (vf_top(top) - lo) / (float)((1 << bits) - 1);
    int finite = vf_sum(odd) == 0 && step <= FLT_MAX;
    head[0] = finite ? lo : NAN;
    head[1] = finite && step >= FLT_MIN ? step : 0.0f;
}

KRN_INLINE void encode_steps(block *b, int64_t n, int bits)
{
    int64_t bytes = (n * bits + 7) / 8, each = 8 / bits, whole = bytes * each;
    uint8_t *out = b->bytes + ATOM_CODEC_HEAD_BYTES;
    uint32_t *q = b->key;
    float head[2];
    for (int64_t i = n; i < (n + VF_LANES - 1) / VF_LANES * VF_LANES; i++)
        b->x[i] = b->x[0];
    head_of(b->x, n, bits, head);
    memcpy(b->bytes, head, sizeof head);
    if (!(head[1] > 0)) {
        memset(out, 0, (size_t)bytes);
        return;
    }
    vf lo = vf_all(head[0]), inverse = vf_all(1.0f / head[1]);
    for (int64_t i = 0; i < n; i += VF_LANES) {
        vf up = vf_round((vf_load(b->x + i) - lo) * inverse);
        vi number = vi_from_f(up);
        memcpy(q + i, &number, sizeof number);
    }
    for (int64_t i = n; i < whole; i++)
        q[i] = 0;
    for (int64_t j = 0; j < bytes; j++) {
        uint32_t all = q[j];
        for (int64_t k = 1; k < each; k++)
            all |= q[j + k * bytes] << k * bits;
        out[j] = (uint8_t)all;
    }
}

KRN_INLINE void decode_steps(block *b, int64_t n, int bits)
{
    int64_t bytes = (n * bits + 7) / 8, each = 8 / bits;
    const uint8_t *in = b->bytes + ATOM_CODEC_HEAD_BYTES;
    float head[2];
    memcpy(head, b->bytes, sizeof head);
    for (int64_t k = 0; k < each; k++) {
        int64_t end = krn_min(bytes, n - k * bytes);
        for (int64_t j = 0; j < end; j++) {
            float up = (float)(in[j] >> k * bits & ((1 << bits) - 1)) * head[1];
            b->x[k * bytes + j] = head[0] + up;
        }
    }
}

/* --- topk, randomk --- */

/* place[kept] = ascending places of the largest keys, of equal ones the first. */
KRN_INLINE void choose(block *b, int64_t n, int64_t kept)
{
    const uint32_t *key = b->key;
    uint32_t least = 0;
    int64_t above = 0, at = 0;
    for (int bit = 31; bit >= 0; bit--) {
        uint32_t higher = least | 1u << bit, count = 0;
        for (int64_t i = 0; i < n; i++)
            count += key[i] >= higher;
        if (count >= kept)
            least = higher;
    }
    for (int64_t i = 0; i < n; i++)
        above += key[i] > least;
    int64_t equal = kept - above; /* of those with the least key that is sent */
    for (int64_t i = 0; i < n; i++) {
        int same = key[i] == least && equal > 0;
        b->place[at] = (uint16_t)i;
        at += same || key[i] > least;
        equal -= same;
    }
}

KRN_INLINE void keys_of_values(block *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &b->x[i], 4);
        b->key[i] = bits & 0x7fffffffu;
    }
}

/* The words of elements first .. first + n. */
KRN_INLINE void keys_at_random(block *b, atom_rng_key rng, uint64_t first, int64_t n)
{
    uint64_t from = first / DRAWN * DRAWN;
    int64_t skip = (int64_t)(first - from);
    for (int64_t i = 0; i < skip + n; i += DRAWN) {
        vi words[4];
        krn_rng_words(rng, (from + (uint64_t)i) / 4, words);
        memcpy(b->key + i, words, sizeof words);
    }
    memmove(b->key, b->key + skip, (size_t)n * sizeof *b->key);
}

KRN_INLINE void encode_chosen(block *b, int64_t n, int64_t kept, int with_places)
{
    int64_t bytes = with_places ? atom_codec_place_bytes(kept, n) : 0;
    if (with_places && bytes == 2 * kept) {
        memcpy(b->bytes, b->place, (size_t)bytes);
    } else if (with_places) {
        memset(b->bytes, 0, (size_t)bytes);
        for (int64_t k = 0; k < kept; k++)
            b->bytes[b->place[k] / 8] |= (uint8_t)(1u << b->place[k] % 8);
    }
    for (int64_t k = 0; k < kept; k++) {
        atom_bf16 value = atom_f32_to_bf16(b->x[b->place[k]]);
        memcpy(b->bytes + bytes + 2 * k, &value, 2);
    }
}

KRN_INLINE void decode_chosen(block *b, int64_t n, int64_t kept, int with_places)
{
    int64_t bytes = with_places ? atom_codec_place_bytes(kept, n) : 0, at = 0;
    if (with_places && bytes == 2 * kept)
        memcpy(b->place, b->bytes, (size_t)bytes);
    else if (with_places)
        for (int64_t i = 0; i < n; i++) {
            b->place[at] = (uint16_t)i;
            at += b->bytes[i / 8] >> i % 8 & 1;
        }
    memset(b->x, 0, (size_t)n * sizeof(float));
    for (int64_t k = 0; k < kept; k++) {
        atom_bf16 value;
        memcpy(&value, b->bytes + bytes + 2 * k, 2);
        b->x[b->place[k]] = atom_bf16_to_f32(value);
    }
}

/* --- rows --- */

typedef struct codec_job {
    const void *from;
    void *to;
    int64_t rows, C;
    atom_codec codec;
    atom_rng_key rng;
    int add;
} codec_job;

KRN_INLINE void one_block(const codec_job *j, block *b, int64_t first, int64_t n)
{
    int bits = atom_codec_bits(j->codec.kind);
    int64_t kept = atom_codec_kept(j->codec.share, n);
    int with_places = j->codec.kind == ATOM_CODEC_TOPK;
    if (bits) {
        encode_steps(b, n, bits);
        decode_steps(b, n, bits);
        return;
    }
    if (with_places)
        keys_of_values(b, n);
    else
        keys_at_random(b, j->rng, (uint64_t)first, n);
    choose(b, n, kept);
    encode_chosen(b, n, kept, with_places);
    decode_chosen(b, n, kept, with_places);
}

KRN_INLINE void run_rows(atom_dtype dtype, const codec_job *j, uint32_t index)
{
    block b;
    int64_t end = krn_min(((int64_t)index + 1) * ROWS, j->rows);
    int64_t most = atom_codec_block(j->codec.kind);
    for (int64_t row = (int64_t)index * ROWS; row < end; row++)
        for (int64_t c = 0; c < j->C; c += most) {
            int64_t n = krn_min(most, j->C - c), first = row * j->C + c;
            load(dtype, j->from, first, b.x, n);
            one_block(j, &b, first, n);
            store(dtype, j->to, first, b.x, n, j->add);
        }
}

static void run(krn_ctx *cx, const krn_args *args, int backward, atom_task task)
{
    const krn_step *s = cx->step;
    codec_job job = {.from = args->buf[backward ? 2 : 0],
                     .to = args->buf[backward ? 3 : 1],
                     .rows = args->dim[0],
                     .C = args->dim[1],
                     .codec = {(atom_codec_kind)args->dim[2], args->scale},
                     .rng = {s->seed, s->step, s->micro_batch, args->rng},
                     .add = backward && (args->flags & KRN_ADD_D_IN0)};
    if (job.to)
        krn_each(cx->threads, krn_ceil_div(job.rows, ROWS), task, &job);
}

#define ENTRIES(dtype, suffix)                                                                     \
    KRN_TASK(run_rows, dtype, suffix)                                                              \
    void KRN_ISA(krn_cpu_compress_fwd_##suffix)(krn_ctx * cx, const krn_args *args)                \
    {                                                                                              \
        run(cx, args, 0, run_rows_##suffix);                                                       \
    }                                                                                              \
    void KRN_ISA(krn_cpu_compress_bwd_##suffix)(krn_ctx * cx, const krn_args *args)                \
    {                                                                                              \
        run(cx, args, 1, run_rows_##suffix);                                                       \
    }
ENTRIES(ATOM_F32, f32)
ENTRIES(ATOM_BF16, bf16)
