/*
 * Owns the codecs' formats and compress, which sends its input through one: y = decode(encode(x)),
 * and backward dx = decode(encode(dy)), as if both had crossed a link (straight-through: the
 * codec's own slope counts as 1). One idea: the values really go through their bytes, so that what
 * is said of bytes and of errors is said of this code.
 */
#include "kernels/ref/codec.h"

#include "kernels/ref/ref.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct ranked {
    uint32_t key, at;
} ranked;

static int by_rank(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? 1 : -1;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* sent[i] = is x[i] one of the `kept` with the largest keys? */
static void choose(const uint32_t *key, int64_t n, int64_t kept, bool *sent)
{
    ranked all[ATOM_CODEC_SPARSE_BLOCK];
    for (int64_t i = 0; i < n; i++) {
        all[i] = (ranked){key[i], (uint32_t)i};
        sent[i] = false;
    }
    qsort(all, (size_t)n, sizeof *all, by_rank);
    for (int64_t i = 0; i < kept; i++)
        sent[all[i].at] = true;
}

static void choose_largest(const float *x, int64_t n, int64_t kept, bool *sent)
{
    uint32_t key[ATOM_CODEC_SPARSE_BLOCK];
    ATOM_ASSERT(n > 0 && n <= ATOM_CODEC_SPARSE_BLOCK);
    for (int64_t i = 0; i < n; i++) {
        memcpy(&key[i], &x[i], 4);
        key[i] &= 0x7fffffffu;
    }
    choose(key, n, kept, sent);
}

static uint8_t *put_places(const bool *sent, int64_t n, int64_t kept, uint8_t *out)
{
    int64_t bytes = atom_codec_place_bytes(kept, n), at = 0;
    memset(out, 0, (size_t)bytes);
    for (int64_t i = 0; i < n; i++) {
        if (!sent[i])
            continue;
        if (bytes < 2 * kept) {
            out[i / 8] |= (uint8_t)(1u << i % 8);
        } else {
            out[at++] = (uint8_t)(i & 255);
            out[at++] = (uint8_t)(i >> 8);
        }
    }
    return out + bytes;
}

static const uint8_t *get_places(const uint8_t *in, int64_t n, int64_t kept, bool *sent)
{
    int64_t bytes = atom_codec_place_bytes(kept, n);
    for (int64_t i = 0; i < n; i++)
        sent[i] = bytes < 2 * kept && (in[i / 8] >> i % 8 & 1);
    for (int64_t k = 0; bytes == 2 * kept && k < kept; k++)
        sent[in[2 * k] | in[2 * k + 1] << 8] = true;
    return in + bytes;
}

static uint8_t *put_steps(int bits, const float *x, int64_t n, uint8_t *out)
{
    float lo = x[0], hi = x[0], sum = 0;
    int64_t bytes = (n * bits + 7) / 8;
    for (int64_t i = 0; i < n; i++) {
        lo = x[i] < lo ? x[i] : lo;
        hi = x[i] > hi ? x[i] : hi;
        sum += x[i] - x[i];
    }
    float step = (hi - lo) / (float)((1 << bits) - 1);
    bool finite = sum == 0 && step <= FLT_MAX;
    if (!finite)
        lo = NAN;
    if (!finite || step < FLT_MIN)
        step = 0;
    memcpy(out, &lo, 4);
    memcpy(out + 4, &step, 4);
    out += ATOM_CODEC_HEAD_BYTES;
    memset(out, 0, (size_t)bytes);
    float inverse = step > 0 ? 1.0f / step : 0.0f;
    for (int64_t i = 0; i < n && step > 0; i++)
        out[i % bytes] |= (uint8_t)((unsigned)rintf((x[i] - lo) * inverse) << i / bytes * bits);
    return out + bytes;
}

static void get_steps(int bits, const uint8_t *in, int64_t n, float *x)
{
    int64_t bytes = (n * bits + 7) / 8;
    float lo, step;
    memcpy(&lo, in, 4);
    memcpy(&step, in + 4, 4);
    in += ATOM_CODEC_HEAD_BYTES;
    for (int64_t i = 0; i < n; i++) {
        float q = (float)(in[i % bytes] >> i / bytes * bits & ((1 << bits) - 1));
        float up = q * step;
        x[i] = lo + up;
    }
}

uint64_t ref_codec_encode(atom_codec codec, const float *x, int64_t n, const uint32_t *words,
                          uint8_t *out)
{
    bool sent[ATOM_CODEC_SPARSE_BLOCK];
    uint8_t *at = out;
    int64_t kept = atom_codec_kept(codec.share, n);
    if (atom_codec_bits(codec.kind))
        return (uint64_t)(put_steps(atom_codec_bits(codec.kind), x, n, out) - out);
    if (codec.kind == ATOM_CODEC_TOPK) {
        choose_largest(x, n, kept, sent);
        at = put_places(sent, n, kept, at);
    } else {
        choose(words, n, kept, sent);
    }
    for (int64_t i = 0; i < n; i++) {
        if (!sent[i])
            continue;
        atom_bf16 value = atom_f32_to_bf16(x[i]);
        *at++ = (uint8_t)(value & 255);
        *at++ = (uint8_t)(value >> 8);
    }
    return (uint64_t)(at - out);
}

void ref_codec_decode(atom_codec codec, const uint8_t *in, int64_t n, const uint32_t *words,
                      float *x)
{
    bool sent[ATOM_CODEC_SPARSE_BLOCK];
    int64_t kept = atom_codec_kept(codec.share, n);
    if (atom_codec_bits(codec.kind)) {
        get_steps(atom_codec_bits(codec.kind), in, n, x);
        return;
    }
    if (codec.kind == ATOM_CODEC_TOPK)
        in = get_places(in, n, kept, sent);
    else
        choose(words, n, kept, sent);
    for (int64_t i = 0; i < n; i++) {
        x[i] = 0;
        if (!sent[i])
            continue;
        x[i] = atom_bf16_to_f32((atom_bf16)(in[0] | in[1] << 8));
        in += 2;
    }
}

/* Row i of `from`, through the codec, to `to`. */
static void through(const ref_job *job, int64_t i, const void *from, void *to, bool add)
{
    const krn_args *args = job->args;
    const krn_step *step = job->cx->step;
    atom_codec codec = {(atom_codec_kind)args->dim[2], args->scale};
    int64_t C = args->dim[1], block = atom_codec_block(codec.kind);
    float x[ATOM_CODEC_SPARSE_BLOCK];
    uint32_t words[ATOM_CODEC_SPARSE_BLOCK];
    uint8_t bytes[REF_CODEC_BYTES_MAX];
    for (int64_t c = 0; c < C; c += block) {
        int64_t n = C - c < block ? C - c : block, first = i * C + c;
        for (int64_t e = 0; e < n; e++) {
            x[e] = (float)ref_get(job->act, from, first + e);
            if (codec.kind == ATOM_CODEC_RANDOMK)
                words[e] = atom_rng_u32(
                    (atom_rng_key){step->seed, step->step, step->micro_batch, args->rng},
                    (uint64_t)(first + e));
        }
        uint64_t sent = ref_codec_encode(codec, x, n, words, bytes);
        ATOM_ASSERT(sent == atom_codec_row_bytes(codec, n));
        ref_codec_decode(codec, bytes, n, words, x);
        for (int64_t e = 0; e < n; e++)
            ref_put_or_add(job->act, to, first + e, (double)x[e], add);
    }
}

static void forward_row(const ref_job *job, int64_t i)
{
    through(job, i, job->args->buf[0], job->args->buf[1], false);
}

static void backward_row(const ref_job *job, int64_t i)
{
    through(job, i, job->args->buf[2], job->args->buf[3], job->args->flags & KRN_ADD_D_IN0);
}

void ref_compress_fwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    ref_parallel(cx, args, act, args->dim[0], forward_row);
}

void ref_compress_bwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    if (args->buf[3])
        ref_parallel(cx, args, act, args->dim[0], backward_row);
}
