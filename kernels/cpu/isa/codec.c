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

/* From the largest value and the largest of the negated ones. */
KRN_INLINE void head_of(vf top, vf low, vf odd, int bits, float head[2])
{
    int finite = !vf_any_nan(odd);
    float lo = finite ? -vf_most(low) : 0;
    float step = finite ? (vf_most(top) - lo) / (float)((1 << bits) - 1) : 0;
    finite = finite && step <= FLT_MAX;
    head[0] = finite ? lo : NAN;
    head[1] = finite && step >= FLT_MIN ? step : 0.0f;
}

KRN_INLINE vi steps_of(vf x, vf lo, vf inverse)
{
    return vi_from_f((x - lo) * inverse); /* to the nearest integer, ties to even */
}

/* What the lowest bits say. */
KRN_INLINE vf value_of(vi number, int bits, vf lo, vf step)
{
    vf up = vf_from_i(vi_and(number, vi_all((1u << bits) - 1))) * step;
    return lo + up;
}

KRN_INLINE vi shift_up(vi x, int bits)
{
    return bits == 4 ? vi_shl(x, 4) : vi_shl(x, 2);
}
KRN_INLINE vi shift_down(vi x, int bits)
{
    return bits == 4 ? vi_shr(x, 4) : vi_shr(x, 2);
}

/* A whole block, from and to where it lies, but for its bytes. */
KRN_INLINE void whole_steps(atom_dtype dtype, const void *from, void *to, int64_t at, int bits,
                            int add)
{
    enum { N = ATOM_CODEC_BLOCK };
    const int64_t bytes = N * bits / 8, each = 8 / bits;
    uint8_t out[N + ATOM_CODEC_HEAD_BYTES], *packed = out + ATOM_CODEC_HEAD_BYTES;
    float head[2];
    vf top = vf_load_act(dtype, from, at), low = vf_all(0.0f) - top, odd = vf_all(0.0f);
    for (int64_t i = 0; i < N; i += VF_LANES) {
        vf v = vf_load_act(dtype, from, at + i);
        top = vf_max(top, v);
        low = vf_max(low, vf_all(0.0f) - v);
        odd += v - v; /* NaN where v is not finite */
    }
    head_of(top, low, odd, bits, head);
    memcpy(out, head, sizeof head);
    if (head[1] > 0) {
        vf lo = vf_all(head[0]), inverse = vf_all(1.0f / head[1]);
        for (int64_t j = 0; j < bytes; j += VF_LANES) {
            int64_t last = at + (each - 1) * bytes + j;
            vi all = steps_of(vf_load_act(dtype, from, last), lo, inverse);
            for (int64_t i = last - bytes; i >= at; i -= bytes)
                all =
                    vi_or(shift_up(all, bits), steps_of(vf_load_act(dtype, from, i), lo, inverse));
            vi_store_u8(packed + j, all);
        }
    } else {
        memset(packed, 0, (size_t)bytes);
    }
    memcpy(head, out, sizeof head);
    vf lo = vf_all(head[0]), step = vf_all(head[1]);
    for (int64_t j = 0; j < bytes; j += VF_LANES) {
        vi all = vi_load_u8(packed + j);
        for (int64_t i = at + j; i < at + N; i += bytes) {
            vf y = value_of(all, bits, lo, step);
            if (add)
                y += vf_load_act(dtype, to, i);
            vf_store_act(dtype, to, i, y);
            all = shift_down(all, bits);
        }
    }
}

/* The same of what is left of a row, in b->x. */
KRN_INLINE void part_steps(block *b, int64_t n, int bits)
{
    int64_t bytes = (n * bits + 7) / 8, each = 8 / bits;
    uint8_t *out = b->bytes + ATOM_CODEC_HEAD_BYTES;
    float head[2];
    vf top = vf_all(b->x[0]), low = vf_all(-b->x[0]), odd = vf_all(0.0f);
    for (int64_t i = n; i < (n + VF_LANES - 1) / VF_LANES * VF_LANES; i++)
        b->x[i] = b->x[0];
    for (int64_t i = 0; i < n; i += VF_LANES) {
        vf v = vf_load(b->x + i);
        top = vf_max(top, v);
        low = vf_max(low, vf_all(0.0f) - v);
        odd += v - v;
    }
    head_of(top, low, odd, bits, head);
    memcpy(b->bytes, head, sizeof head);
    memset(out, 0, (size_t)bytes);
    for (int64_t i = 0; i < n && head[1] > 0; i += VF_LANES) {
        vi number = steps_of(vf_load(b->x + i), vf_all(head[0]), vf_all(1.0f / head[1]));
        memcpy(b->key + i, &number, sizeof number);
    }
    for (int64_t i = 0; i < n && head[1] > 0; i++)
        out[i % bytes] |= (uint8_t)(b->key[i] << i / bytes * bits);
    for (int64_t k = 0; k < each; k++)
        for (int64_t j = 0; j < krn_min(bytes, n - k * bytes); j++) {
            float up = (float)(out[j] >> k * bits & ((1 << bits) - 1)) * head[1];
            b->x[k * bytes + j] = head[0] + up;
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

KRN_INLINE void sparse_block(const codec_job *j, block *b, int64_t first, int64_t n)
{
    int64_t kept = atom_codec_kept(j->codec.share, n);
    int with_places = j->codec.kind == ATOM_CODEC_TOPK;
    if (with_places)
        keys_of_values(b, n);
    else
        keys_at_random(b, j->rng, (uint64_t)first, n);
    choose(b, n, kept);
    encode_chosen(b, n, kept, with_places);
    decode_chosen(b, n, kept, with_places);
}

/* n elements from `first` on, all of one block; bits is a constant. */
KRN_INLINE void one_block(atom_dtype dtype, const codec_job *j, block *b, int64_t first, int64_t n,
                          int bits)
{
    if (bits && n == ATOM_CODEC_BLOCK) {
        whole_steps(dtype, j->from, j->to, first, bits, j->add);
        return;
    }
    load(dtype, j->from, first, b->x, n);
    if (bits)
        part_steps(b, n, bits);
    else
        sparse_block(j, b, first, n);
    store(dtype, j->to, first, b->x, n, j->add);
}

KRN_INLINE void some_rows(atom_dtype dtype, const codec_job *j, int64_t row, int64_t end, int bits)
{
    block b;
    int64_t most = bits ? ATOM_CODEC_BLOCK : ATOM_CODEC_SPARSE_BLOCK;
    for (; row < end; row++)
        for (int64_t c = 0; c < j->C; c += most)
            one_block(dtype, j, &b, row * j->C + c, krn_min(most, j->C - c), bits);
}

KRN_INLINE void run_rows(atom_dtype dtype, const codec_job *j, uint32_t index)
{
    int64_t row = (int64_t)index * ROWS, end = krn_min(row + ROWS, j->rows);
    switch (atom_codec_bits(j->codec.kind)) {
    case 8:
        some_rows(dtype, j, row, end, 8);
        break;
    case 4:
        some_rows(dtype, j, row, end, 4);
        break;
    case 2:
        some_rows(dtype, j, row, end, 2);
        break;
    default:
        some_rows(dtype, j, row, end, 0);
        break;
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
