/*
 * atom bench codec: what a member's processor does with the bytes of a round (encode, decode, sum,
 * hash, seal, open), and what the codecs on boundaries between blocks cost, each beside a plain
 * memory copy of the same run, and how many cores a link of 1 Gbit/s takes for sealing and hashing.
 * One idea: the very functions that members and training call, on pieces of the size that they get,
 * over data that no cache holds. Refuses more than one thread: a member has one for its round and
 * its gate another.
 */
#include "tools/bench/bench.h"

#include "gossip/agree/signed.h"
#include "gossip/gate/gate_record.h"
#include "gossip/sum/merkle.h"
#include "gossip/sum/reduce.h"
#include "gossip/trust/identity.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    PART_FLOATS = 65536, /* 256 KiB in fp32 */
    RECORDS_PER_PART = PART_FLOATS * 4 / GSP_RECORD_BYTES_MAX,
    RECORD_ROOM = GSP_RECORD_HEAD_BYTES + GSP_RECORD_BYTES_MAX + GSP_RECORD_TAG_BYTES,
    ROUNDS_MAX = 101,
    WIDTH = 1024, /* of a row of activations */
};

/* On boundaries: there and back. */
static const atom_codec boundaries[] = {{ATOM_CODEC_INT8, 1},
                                        {ATOM_CODEC_INT4, 1},
                                        {ATOM_CODEC_INT2, 1},
                                        {ATOM_CODEC_TOPK, 0.1f},
                                        {ATOM_CODEC_RANDOMK, 0.1f}};
enum { BOUNDARIES = sizeof boundaries / sizeof *boundaries };

typedef struct codec_bench {
    uint64_t parts;
    float *x, *sum, *residual, *lost, *scratch;
    uint8_t *encoded, *records;
    gsp_codec codec;
    atom_codec boundary;
    bool wrong;
} codec_bench;

typedef void codec_pass(codec_bench *b);

static float *floats_of(float *at, uint64_t part)
{
    return at + part * PART_FLOATS;
}

static uint8_t *encoded_of(const codec_bench *b, uint64_t part)
{
    return b->encoded + part * PART_FLOATS * sizeof(float);
}

static void pass_copy(codec_bench *b)
{
    for (uint64_t p = 0; p < b->parts; p++)
        memcpy(floats_of(b->sum, p), floats_of(b->x, p), PART_FLOATS * sizeof(float));
}

/* int8 as members do it: with what the last round lost, and keeping what this one loses. */
static void pass_encode(codec_bench *b)
{
    bool feedback = b->codec == GSP_CODEC_INT8;
    for (uint64_t p = 0; p < b->parts; p++)
        gsp_encode(b->codec, floats_of(b->x, p), PART_FLOATS,
                   feedback ? floats_of(b->residual, p) : NULL, encoded_of(b, p),
                   feedback ? floats_of(b->lost, p) : NULL);
}

static void pass_decode(codec_bench *b)
{
    uint64_t bytes = gsp_codec_bytes(b->codec, PART_FLOATS);
    for (uint64_t p = 0; p < b->parts; p++)
        b->wrong |=
            !gsp_decode(b->codec, encoded_of(b, p), bytes, floats_of(b->sum, p), PART_FLOATS);
}

/* Encode and decode in one, as training does it (kernels/kernels.h). */
static void pass_boundary(codec_bench *b)
{
    krn_step step = {.seed = 1, .step = 1};
    krn_ctx cx = {.step = &step};
    for (uint64_t p = 0; p < b->parts; p++) {
        krn_args args = {.buf = {floats_of(b->x, p), floats_of(b->sum, p)},
                         .dim = {PART_FLOATS / WIDTH, WIDTH, b->boundary.kind},
                         .scale = b->boundary.share};
        krn_cpu_table(ATOM_F32)->fwd[ATOM_OP_compress](&cx, &args);
    }
}

/* One contribution into the sum of a part, which stays in the cache. */
static void pass_add(codec_bench *b)
{
    uint64_t bytes = gsp_codec_bytes(b->codec, PART_FLOATS);
    for (uint64_t p = 0; p < b->parts; p++)
        b->wrong |= !gsp_reduce_add(b->codec, encoded_of(b, p), bytes, 1, 8, p == 0, b->sum,
                                    b->scratch, PART_FLOATS);
}

static void pass_hash(codec_bench *b)
{
    gsp_hash leaf;
    for (uint64_t p = 0; p < b->parts; p++) {
        gsp_merkle_leaf((uint32_t)p, floats_of(b->x, p), PART_FLOATS * sizeof(float), &leaf);
        b->wrong |= gsp_hash_none(&leaf);
    }
}

static void pass_seal(codec_bench *b)
{
    gsp_record_key key = {.key = {1}};
    for (uint64_t i = 0; i < b->parts * RECORDS_PER_PART; i++)
        b->wrong |= gsp_record_seal(&key, b->records + i * RECORD_ROOM, GSP_RECORD_BYTES_MAX) !=
                    RECORD_ROOM;
}

/* After pass_seal: what was sealed. */
static void pass_open(codec_bench *b)
{
    gsp_record_key key = {.key = {1}};
    for (uint64_t i = 0; i < b->parts * RECORDS_PER_PART; i++)
        b->wrong |= !gsp_record_open(&key, b->records + i * RECORD_ROOM, GSP_RECORD_BYTES_MAX);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef struct codec_rates {
    double copy, hash, seal, open, encode[GSP_CODEC_N], decode[GSP_CODEC_N], add[GSP_CODEC_N];
    double boundary[BOUNDARIES];
} codec_rates;

typedef struct codec_step {
    codec_pass *pass;
    gsp_codec codec;
    atom_codec boundary;
    double *rate;
    double seconds[ROUNDS_MAX];
} codec_step;

/* Of this thread: what is asked for is cores, and others may be at work beside it. */
static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* All kinds in turn, so that a drift of the machine meets them all. */
static void measure(codec_bench *b, uint32_t rounds, codec_step *step, uint32_t n)
{
    for (uint32_t k = 0; k <= rounds; k++) /* the first one warms up */
        for (uint32_t i = 0; i < n; i++) {
            double began = cpu_seconds();
            b->codec = step[i].codec;
            b->boundary = step[i].boundary;
            step[i].pass(b);
            if (k > 0)
                step[i].seconds[k - 1] = cpu_seconds() - began;
        }
    for (uint32_t i = 0; i < n; i++) {
        qsort(step[i].seconds, rounds, sizeof(double), compare);
        *step[i].rate =
            (double)(b->parts * PART_FLOATS * sizeof(float)) / step[i].seconds[rounds / 2];
    }
}

/* Hashed per byte that comes in: the own contribution once, every contribution to parts it owns,
 * every result, and its own ones (member_bytes.c). A fragment V: in come 2 V (N-1)/N. */
static double hashed_per_byte(double peers)
{
    double in = 2.0 * (peers - 1.0) / peers;
    return (1.0 + in + 1.0 / peers) / in;
}

static json_t *rates_json(const double *rate)
{
    json_t *o = json_object();
    for (int c = 0; c < GSP_CODEC_N; c++)
        json_object_set_new(o, gsp_codec_name((gsp_codec)c), cli_real(rate[c]));
    return o;
}

static json_t *boundaries_json(const double *rate)
{
    json_t *o = json_object();
    char text[ATOM_CODEC_TEXT_BYTES];
    for (int i = 0; i < BOUNDARIES; i++)
        json_object_set_new(o, atom_codec_text(boundaries[i], text), cli_real(rate[i]));
    return o;
}

static void print_rate(const char *what, double rate, double copy)
{
    cli_print("  %-12s %8sB/s  %5.2f of a copy\n", what, cli_count(rate), rate / copy);
}

static void print_boundaries(const codec_rates *r)
{
    cli_print("on boundaries between blocks, rows of %d values, encode and decode in one:\n",
              WIDTH);
    for (int i = 0; i < BOUNDARIES; i++) {
        char text[ATOM_CODEC_TEXT_BYTES];
        print_rate(atom_codec_text(boundaries[i], text), r->boundary[i], r->copy);
    }
}

static atom_status show(const bench_values *v, const codec_rates *r)
{
    const double gigabit = 125e6;
    double hashed = hashed_per_byte((double)v->peers);
    double sealing = gigabit / r->seal + gigabit / r->open, hashing = gigabit * hashed / r->hash;
    if (v->json)
        return cli_print_json(json_pack(
            "{s:s, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "bench", "codec",
            "bytes", (json_int_t)v->bytes, "copy_bytes_per_second", cli_real(r->copy),
            "hash_bytes_per_second", cli_real(r->hash), "seal_bytes_per_second", cli_real(r->seal),
            "open_bytes_per_second", cli_real(r->open), "encode_bytes_per_second",
            rates_json(r->encode), "decode_bytes_per_second", rates_json(r->decode),
            "add_bytes_per_second", rates_json(r->add), "hashed_per_byte_received",
            cli_real(hashed), "cores_sealing_at_gigabit", cli_real(sealing),
            "cores_hashing_at_gigabit", cli_real(hashing), "boundary_bytes_per_second",
            boundaries_json(r->boundary)));
    cli_print("one thread, parts of 256 KiB out of %s; rates count bytes of fp32\n",
              cli_size(v->bytes));
    cli_print("  %-12s %8sB/s\n", "memory copy", cli_count(r->copy));
    for (int c = 0; c < GSP_CODEC_N; c++) {
        const char *name = gsp_codec_name((gsp_codec)c);
        char what[24];
        snprintf(what, sizeof what, "encode %s", name);
        print_rate(what, r->encode[c], r->copy);
        snprintf(what, sizeof what, "decode %s", name);
        print_rate(what, r->decode[c], r->copy);
        snprintf(what, sizeof what, "add %s", name);
        print_rate(what, r->add[c], r->copy);
    }
    print_rate("hash", r->hash, r->copy);
    print_rate("seal", r->seal, r->copy);
    print_rate("open", r->open, r->copy);
    cli_print(
        "at 1 Gbit/s both ways, %d peers: %.2f cores seal and open, %.2f hash (%.2f bytes per "
        "byte received): %.2f in all\n",
        (int)v->peers, sealing, hashing, hashed, sealing + hashing);
    print_boundaries(r);
    return ATOM_OK;
}

static atom_status buffers(codec_bench *b)
{
    uint64_t n = b->parts * PART_FLOATS, records = b->parts * RECORDS_PER_PART * RECORD_ROOM;
    b->x = atom_alloc(n, sizeof(float));
    b->sum = atom_alloc(n, sizeof(float));
    b->residual = atom_alloc(n, sizeof(float));
    b->lost = atom_alloc(n, sizeof(float));
    b->scratch = atom_alloc(PART_FLOATS, sizeof(float));
    b->encoded = atom_alloc(n, sizeof(float));
    b->records = atom_alloc(1, records);
    if (!b->x || !b->sum || !b->residual || !b->lost || !b->scratch || !b->encoded || !b->records)
        return atom_fail_memory("the vectors", 5 * n * sizeof(float) + records);
    for (uint64_t k = 0; k < n; k++)
        b->x[k] = (float)((uint32_t)(k * 2654435761u) >> 8) * 0x1p-24f - 0.5f;
    return ATOM_OK;
}

atom_status bench_codec_run(const bench_values *v)
{
    atom_status st;
    uint32_t rounds = v->rounds < ROUNDS_MAX ? (uint32_t)v->rounds : ROUNDS_MAX;
    codec_bench b = {.parts = v->bytes / (PART_FLOATS * sizeof(float))};
    codec_rates r;
    b.parts = b.parts ? b.parts : 1;
    codec_step *step = atom_alloc(4 + 3 * GSP_CODEC_N + BOUNDARIES, sizeof *step);
    if (!step)
        return atom_fail_memory("the bench", sizeof *step);
    ATOM_TRY_CLEAN(gsp_crypto_start());
    ATOM_TRY_CLEAN(buffers(&b));
    uint32_t n = 0;
    step[n++] = (codec_step){.pass = pass_copy, .rate = &r.copy};
    step[n++] = (codec_step){.pass = pass_hash, .rate = &r.hash};
    step[n++] = (codec_step){.pass = pass_seal, .rate = &r.seal};
    step[n++] = (codec_step){.pass = pass_open, .rate = &r.open};
    for (int c = 0; c < GSP_CODEC_N; c++) {
        gsp_codec codec = (gsp_codec)c;
        step[n++] = (codec_step){.pass = pass_encode, .codec = codec, .rate = &r.encode[c]};
        step[n++] = (codec_step){.pass = pass_decode, .codec = codec, .rate = &r.decode[c]};
        step[n++] = (codec_step){.pass = pass_add, .codec = codec, .rate = &r.add[c]};
    }
    for (int i = 0; i < BOUNDARIES; i++)
        step[n++] =
            (codec_step){.pass = pass_boundary, .boundary = boundaries[i], .rate = &r.boundary[i]};
    measure(&b, rounds, step, n);
    if (b.wrong)
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_RUNTIME, "what was encoded or sealed does not come back"));
    st = show(v, &r);
cleanup:
    atom_free(b.x);
    atom_free(b.sum);
    atom_free(b.residual);
    atom_free(b.lost);
    atom_free(b.scratch);
    atom_free(b.encoded);
    atom_free(b.records);
    atom_free(step);
    return st;
}
