/* GGUF both ways: what was written is read to the bit, damage has its message, no memory is an
 * error and nothing else. */
#include "atom/base/files.h"
#include "atom/base/mem.h"
#include "atom/file/ggufmodel.h"
#include "tests/lib/random_model.h"
#include "tests/lib/through.h"
#include "tests/scratch.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

typedef struct fixture {
    graph_config config;
    graph *g;
    float *vector, *got;
} fixture;

static void fixture_open(fixture *f, uint64_t seed)
{
    f->config = random_model_make(seed).config;
    if (f->config.family == GRAPH_GPT2)
        f->config.untied = f->config.layers % 2;
    if (graph_family_traits(f->config.family)->nope)
        f->config.nope_every = 4; /* llama.cpp knows no other */
    if (f->config.window_layers)  /* nor windows of some layers */
        f->config.window = f->config.positions;
    if (graph_family_traits(f->config.family)->windows == GRAPH_WINDOW_MOST) {
        f->config.rope = (atom_rope){.theta = f->config.rope.theta, .factor = 1};
        const graph_traits *traits = graph_family_traits(f->config.family);
        const graph_config *usual = &traits->defaults;
        f->config.full_every = usual->full_every;
        f->config.local_theta =
            traits->local_rope == GRAPH_LOCAL_ROPE_SAME ? f->config.rope.theta : usual->local_theta;
        f->config.query_scalar = usual->query_scalar > 0 ? (float)f->config.head_dim : 0;
        f->config.attn_cap = usual->attn_cap;
        f->config.final_cap = usual->final_cap > 0 ? 2.5f : 0;
        f->config.untied = f->config.qkv_bias = f->config.o_bias = false;
        f->config.window = f->config.window ? f->config.window : f->config.positions;
    }
    if (strcmp(file_gguf_architecture(&f->config), "olmo2") == 0) {
        f->config.untied = true;
        f->config.qkv_bias = f->config.o_bias = false;
        if (!f->config.rope.yarn)
            f->config.rope = (atom_rope){.theta = f->config.rope.theta, .factor = 1};
    }
    assert_int_equal(graph_model_build(&f->config, ATOM_F32, 1, 1, &f->g), ATOM_OK);
    f->vector = atom_alloc(f->g->param_extent, sizeof(float));
    f->got = atom_alloc(f->g->param_extent, sizeof(float));
    assert_true(f->vector && f->got);
    for (uint32_t p = 0; p < f->g->n_params; p++) {
        for (uint64_t i = 0; i < f->g->params[p].elements; i++)
            f->vector[f->g->params[p].offset + i] =
                (float)((i * 2654435761u + p) % 1999) / 1024 - 1; /* exact with 1 added, too */
    }
}

static void fixture_close(fixture *f)
{
    graph_close(&f->g);
    atom_free(f->vector);
    atom_free(f->got);
}

static void write_through(const fixture *f, file_gguf_type type, const char *path,
                          const file_sink *sink)
{
    file_gguf *w = NULL;
    assert_int_equal(file_gguf_create(path, sink, &w), ATOM_OK);
    assert_int_equal(file_gguf_put_model(w, &f->config, type), ATOM_OK);
    assert_int_equal(
        file_gguf_put_tensors(w, &f->config, f->g, type, file_vector_memory(f->vector)), ATOM_OK);
    assert_int_equal(file_gguf_finish(w), ATOM_OK);
    file_gguf_close(&w);
}

static void write_model(const fixture *f, file_gguf_type type, const char *path)
{
    write_through(f, type, path, NULL);
}

/* Through a sink the same bytes, through a source the same numbers. */
static void through_somebody(void **state)
{
    static const file_gguf_type types[] = {FILE_GGUF_F32, FILE_GGUF_F16, FILE_GGUF_BF16,
                                           FILE_GGUF_Q8_0};
    (void)state;
    scratch s;
    scratch_open(&s);
    for (uint64_t k = 0; k < 8; k++) {
        fixture f;
        char *a = NULL, *b = NULL;
        uint64_t n, m;
        fixture_open(&f, k + 1);
        file_vector to = file_vector_memory(f.got), plain = file_vector_memory(f.vector);
        const char *path = scratch_path(&s, "x.gguf");
        write_model(&f, types[k % 4], path);
        assert_int_equal(atom_file_read(path, 1 << 24, &a, &n), ATOM_OK);
        through_writes = through_finishes = through_views = 0;
        write_through(&f, types[k % 4], path, &through_keep);
        assert_true(through_writes > 4 && through_finishes == 1);
        assert_int_equal(atom_file_read(path, 1 << 24, &b, &m), ATOM_OK);
        assert_int_equal(n, m);
        assert_memory_equal(a, b, n);
        assert_int_equal(file_gguf_read_weights(path, f.g, plain), ATOM_OK);
        assert_int_equal(through_views, 0);
        to.source = &through_pieces;
        assert_int_equal(file_gguf_read_weights(path, f.g, to), ATOM_OK);
        assert_true(through_views > 0);
        assert_int_equal(through_opened, 0);
        assert_memory_equal(f.got, f.vector, f.g->param_extent * sizeof(float));
        atom_free(a);
        atom_free(b);
        fixture_close(&f);
    }
    scratch_close(&s);
}

/* What was rounded comes back as near as its kind allows: a number of Q8_0 is at most half of a 127th of its block's
 * largest away, and its scale is rounded to 11 bits. */
static void rounded_numbers_come_back(void **state)
{
    static const struct {
        file_gguf_type type;
        float share;
    } kinds[] = {{FILE_GGUF_F16, 0x1p-11f},
                 {FILE_GGUF_BF16, 0x1p-8f},
                 {FILE_GGUF_Q8_0, 0.5f / 127 + 0x1p-10f}};
    uint64_t changed[3] = {0};
    (void)state;
    scratch s;
    scratch_open(&s);
    for (uint64_t k = 0; k < 36; k++) {
        fixture f;
        float largest = 0;
        fixture_open(&f, k + 1);
        const char *path = scratch_path(&s, "x.gguf");
        write_model(&f, kinds[k % 3].type, path);
        assert_int_equal(file_gguf_read_weights(path, f.g, file_vector_memory(f.got)), ATOM_OK);
        for (uint64_t i = 0; i < (uint64_t)f.g->param_extent; i++)
            largest = fmaxf(largest, fabsf(f.vector[i]));
        for (uint64_t i = 0; i < (uint64_t)f.g->param_extent; i++) {
            assert_true(fabsf(f.got[i] - f.vector[i]) <= kinds[k % 3].share * largest);
            changed[k % 3] += f.got[i] != f.vector[i];
        }
        fixture_close(&f);
    }
    assert_true(changed[0] == 0 && changed[1] > 0 &&
                changed[2] > 0); /* 11 bits are all they have */
    scratch_close(&s);
}

static void numbers_too_large_are_counted(void **state)
{
    float x[2 * FILE_GGUF_Q8_BLOCK] = {1e6f, 65519, 65520, -1e9f, INFINITY, NAN, 0};
    char out[sizeof x];
    (void)state;
    x[FILE_GGUF_Q8_BLOCK + 3] = -1e9f;
    assert_int_equal(file_gguf_encode(FILE_GGUF_F16, x, 2 * FILE_GGUF_Q8_BLOCK, out), 4);
    assert_int_equal(file_gguf_encode(FILE_GGUF_BF16, x, 2 * FILE_GGUF_Q8_BLOCK, out), 0);
    /* a block with an infinite number has lost nothing by its scale */
    assert_int_equal(file_gguf_encode(FILE_GGUF_Q8_0, x, 2 * FILE_GGUF_Q8_BLOCK, out),
                     FILE_GGUF_Q8_BLOCK);
    x[FILE_GGUF_Q8_BLOCK + 3] = 65000.0f * 127;
    assert_int_equal(file_gguf_encode(FILE_GGUF_Q8_0, x, 2 * FILE_GGUF_Q8_BLOCK, out), 0);
}

static void round_trip(void **state)
{
    (void)state;
    scratch s;
    scratch_open(&s);
    for (uint64_t seed = 1; seed <= 30; seed++) {
        fixture f;
        graph_config c;
        fixture_open(&f, seed);
        const char *path = scratch_path(&s, "x.gguf");
        write_model(&f, FILE_GGUF_F32, path);
        if (file_gguf_read_model(path, &c, NULL) != ATOM_OK)
            fail_msg("seed %d: %s", (int)seed, atom_fail_message());
        /* A window of all layers is what tells Mistral from Llama there. */
        int64_t window = f.config.window_layers ? 0 : f.config.window;
        assert_int_equal(c.window, window);
        assert_int_equal(c.family, f.config.family == GRAPH_MISTRAL && !window ? GRAPH_LLAMA
                                                                               : f.config.family);
        assert_true(c.vocab_size == f.config.vocab_size && c.layers == f.config.layers &&
                    c.inner == f.config.inner && c.width == f.config.width &&
                    c.kv_heads == f.config.kv_heads && c.head_dim == f.config.head_dim &&
                    c.untied == f.config.untied && c.qkv_bias == f.config.qkv_bias &&
                    c.mlp_bias == f.config.mlp_bias && c.epsilon == f.config.epsilon &&
                    c.nope_every == f.config.nope_every && c.full_every == f.config.full_every &&
                    c.local_theta == f.config.local_theta &&
                    c.query_scalar == f.config.query_scalar && c.attn_cap == f.config.attn_cap &&
                    c.final_cap == f.config.final_cap &&
                    c.embedding_scale == f.config.embedding_scale &&
                    c.residual_scale == f.config.residual_scale &&
                    c.attention_scale == f.config.attention_scale &&
                    c.logits_divisor == f.config.logits_divisor);
        assert_memory_equal(&c.long_rope, &f.config.long_rope, sizeof c.long_rope);
        float gain = f.config.rope.gain; /* YaRN's is written beside what comes by itself */
        assert_true(fabsf(c.rope.gain - gain) <= (f.config.rope.yarn ? 1e-6f : 0));
        c.rope.gain = gain;
        assert_memory_equal(&c.rope, &f.config.rope, sizeof c.rope);
        assert_int_equal(file_gguf_read_weights(path, f.g, file_vector_memory(f.got)), ATOM_OK);
        assert_memory_equal(f.got, f.vector, f.g->param_extent * sizeof(float));
        fixture_close(&f);
    }
    scratch_close(&s);
}

/* One word of the header at a time; every change is refused or harmless, and says the file. */
static void damage_is_named(void **state)
{
    (void)state;
    scratch s;
    fixture f;
    char *data = NULL, *message;
    uint64_t bytes;
    uint32_t refused = 0, read = 0;
    scratch_open(&s);
    fixture_open(&f, 3);
    write_model(&f, FILE_GGUF_F16, scratch_path(&s, "x.gguf"));
    assert_int_equal(atom_file_read(scratch_path(&s, "x.gguf"), 1 << 24, &data, &bytes), ATOM_OK);
    for (uint64_t at = 0; at + 8 < bytes && at < 4000; at += 3) {
        uint64_t word, changed = ~(uint64_t)0 >> (at % 61);
        file_gguf_in *in = NULL;
        bool more;
        memcpy(&word, data + at, 8);
        memcpy(data + at, &changed, 8);
        atom_status st = file_gguf_parse("x.gguf", data, bytes, bytes, &more, &in);
        message = (char *)(uintptr_t)atom_fail_message();
        assert_true(st == ATOM_OK || strncmp(message, "x.gguf:", 7) == 0);
        refused += st != ATOM_OK;
        read += st == ATOM_OK;
        file_gguf_in_close(&in);
        memcpy(data + at, &word, 8);
    }
    assert_true(refused > 50 && read > 50);
    for (uint64_t cut = 0; cut < bytes; cut += 1 + bytes / 97) {
        file_gguf_in *in = NULL;
        bool more;
        assert_int_equal(file_gguf_parse("x.gguf", data, cut, cut, &more, &in), ATOM_E_FORMAT);
        assert_false(more);
        /* of a longer file: more is wanted, or the header is whole */
        atom_status st = file_gguf_parse("x.gguf", data, cut, bytes, &more, &in);
        assert_true(st == ATOM_OK || more);
        file_gguf_in_close(&in);
    }
    atom_free(data);
    fixture_close(&f);
    scratch_close(&s);
}

static void wrong_models_are_refused(void **state)
{
    (void)state;
    scratch s;
    fixture f;
    graph_config c;
    file_gguf *w = NULL;
    const uint64_t dims[2] = {3, 4};
    const float x[12] = {0};
    scratch_open(&s);
    fixture_open(&f, 1);
    const char *path = scratch_path(&s, "x.gguf");
    assert_int_equal(file_gguf_create(path, NULL, &w), ATOM_OK);
    file_gguf_put_text(w, "general.architecture", "mamba");
    assert_int_equal(file_gguf_declare(w, "token_embd.weight", FILE_GGUF_F32, 2, dims), ATOM_OK);
    assert_int_equal(file_gguf_begin(w), ATOM_OK);
    assert_int_equal(file_gguf_write(w, x, 12), ATOM_OK);
    assert_int_equal(file_gguf_finish(w), ATOM_OK);
    file_gguf_close(&w);
    assert_int_equal(file_gguf_read_model(path, &c, NULL), ATOM_E_UNSUPPORTED);
    assert_non_null(strstr(atom_fail_message(), "'mamba' is not supported; gpt2, llama, qwen2"));
    /* a model that llama.cpp has not */
    c = (graph_config){.family = GRAPH_OWN};
    assert_int_equal(file_gguf_create(path, NULL, &w), ATOM_OK);
    assert_int_equal(file_gguf_put_model(w, &c, FILE_GGUF_F32), ATOM_E_UNSUPPORTED);
    assert_non_null(strstr(atom_fail_message(), "no architecture for models of type atom_graph"));
    c = (graph_config){.family = GRAPH_SMOLLM3, .nope_every = 3};
    assert_int_equal(file_gguf_put_model(w, &c, FILE_GGUF_F32), ATOM_E_UNSUPPORTED);
    assert_non_null(strstr(atom_fail_message(), "no_rope_layers"));
    c = (graph_config){.family = GRAPH_GEMMA3, .rope = {.yarn = 1}};
    assert_int_equal(file_gguf_put_model(w, &c, FILE_GGUF_F32), ATOM_E_UNSUPPORTED);
    assert_non_null(strstr(atom_fail_message(), "rope_type 'yarn'"));
    c = (graph_config){.family = GRAPH_LLAMA, .long_rope = {.original = 4}};
    assert_int_equal(file_gguf_put_model(w, &c, FILE_GGUF_F32), ATOM_E_UNSUPPORTED);
    assert_non_null(strstr(atom_fail_message(), "rope_type 'longrope'"));
    c = (graph_config){.family = GRAPH_QWEN2, .positions = 64, .window = 63, .window_layers = 2};
    assert_int_equal(file_gguf_put_model(w, &c, FILE_GGUF_F32), ATOM_E_UNSUPPORTED);
    assert_non_null(strstr(atom_fail_message(), "only the layers from 2 on have a window"));
    file_gguf_close(&w);
    /* layers that differ */
    char key[96];
    const int32_t each[2] = {1, 2};
    snprintf(key, sizeof key, "%s.attention.head_count_kv_of", file_gguf_architecture(&f.config));
    assert_int_equal(file_gguf_create(path, NULL, &w), ATOM_OK);
    assert_int_equal(file_gguf_put_model(w, &f.config, FILE_GGUF_F32), ATOM_OK);
    file_gguf_put_i32s(w, key, each, 2);
    assert_int_equal(
        file_gguf_put_tensors(w, &f.config, f.g, FILE_GGUF_F32, file_vector_memory(f.vector)),
        ATOM_OK);
    assert_int_equal(file_gguf_finish(w), ATOM_OK);
    file_gguf_close(&w);
    assert_int_equal(file_gguf_read_model(path, &c, NULL), ATOM_E_UNSUPPORTED);
    assert_non_null(
        strstr(atom_fail_message(), "head_count_kv_of is a list with a value for each layer"));
    /* a tensor that the model has not, in place of one that it has */
    write_model(&f, FILE_GGUF_F32, path);
    char *data = NULL;
    uint64_t bytes;
    assert_int_equal(atom_file_read(path, 1 << 24, &data, &bytes), ATOM_OK);
    char *name = memmem(data, bytes, "blk.0.attn_output.weight", 24);
    assert_non_null(name);
    name[0] = 'c';
    scratch_write(&s, "x.gguf", data, bytes);
    assert_int_equal(file_gguf_read_weights(path, f.g, file_vector_memory(f.got)), ATOM_E_FORMAT);
    assert_non_null(strstr(atom_fail_message(), "'blk.0.attn_output.weight' is missing"));
    assert_true(file_gguf_is_file(path));
    assert_false(file_gguf_is_file(s.dir));
    atom_free(data);
    fixture_close(&f);
    scratch_close(&s);
}

/* A model's file with one more key; what its reader says of it. */
static atom_status with_key(const fixture *f, const char *path, const char *rest, double value,
                            bool flag, graph_config *c)
{
    char key[96];
    file_gguf *w = NULL;
    snprintf(key, sizeof key, "%s.%s", file_gguf_architecture(&f->config), rest);
    assert_int_equal(file_gguf_create(path, NULL, &w), ATOM_OK);
    assert_int_equal(file_gguf_put_model(w, &f->config, FILE_GGUF_F32), ATOM_OK);
    if (flag)
        file_gguf_put_bool(w, key, value > 0);
    else
        file_gguf_put_f32(w, key, (float)value);
    assert_int_equal(
        file_gguf_put_tensors(w, &f->config, f->g, FILE_GGUF_F32, file_vector_memory(f->vector)),
        ATOM_OK);
    assert_int_equal(file_gguf_finish(w), ATOM_OK);
    file_gguf_close(&w);
    return file_gguf_read_model(path, c, NULL);
}

/* Keys that change the mathematics of a model are not passed over. */
static void keys_that_count(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        double value;
        bool flag, fine;
    } cases[] = {
        {"attention.scale", 0.7, false, false},       {"attention.scale", 0, false, true},
        {"logit_scale", 0.5, false, false},           {"logit_scale", 1, false, true},
        {"residual_scale", 0.3, false, false},        {"embedding_scale", 12, false, false},
        {"attn_logit_softcapping", 50, false, false}, {"final_logit_softcapping", 30, false, false},
        {"attention.clamp_kqv", 8, false, false},     {"attention.max_alibi_bias", 8, false, false},
        {"attention.causal", 0, true, false},         {"attention.causal", 1, true, true},
        {"use_parallel_residual", 1, true, false},    {"use_parallel_residual", 0, true, true},
        {"rope.scaling.finetuned", 0, true, true}};
    scratch s;
    fixture f;
    graph_config c;
    scratch_open(&s);
    uint64_t seed = 1;
    for (fixture_open(&f, seed);
         f.config.family != GRAPH_LLAMA || f.config.rope.factor != 1 ||
         f.config.rope.original > 0 || f.config.rope.divisors[0] > 0 || f.config.long_rope.original;
         fixture_open(&f, ++seed))
        fixture_close(&f);
    const char *path = scratch_path(&s, "x.gguf");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        atom_status st = with_key(&f, path, cases[i].key, cases[i].value, cases[i].flag, &c);
        assert_int_equal(st, cases[i].fine ? ATOM_OK : ATOM_E_UNSUPPORTED);
        if (!cases[i].fine)
            assert_non_null(strstr(atom_fail_message(), cases[i].key));
    }
    /* as llama.cpp: linear where no type is said, under either name */
    assert_int_equal(with_key(&f, path, "rope.scaling.factor", 4, false, &c), ATOM_OK);
    assert_true(c.rope.factor == 4);
    assert_int_equal(with_key(&f, path, "rope.scale_linear", 2, false, &c), ATOM_OK);
    assert_true(c.rope.factor == 2);
    /* a factor below 1 is one, too */
    f.config.rope.factor = 0.5f;
    write_model(&f, FILE_GGUF_F32, path);
    assert_int_equal(file_gguf_read_model(path, &c, NULL), ATOM_OK);
    assert_true(c.rope.factor == 0.5f);
    fixture_close(&f);
    scratch_close(&s);
}

/* A key of another kind is not taken for one that is not there. */
static void kinds_of_keys(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        double value;
        bool flag;
        const char *says;
    } cases[] = {{"attention.sliding_window", 8, false, "it must be a whole number"},
                 {"rope.scaling.factor", 1, true, "it must be a real number"},
                 {"rope.scaling.factor", NAN, false, "is not a finite number"},
                 {"rope.scaling.type", 2, false, "it must be a text"},
                 {"attention.causal", 0, false, "it must be true or false"},
                 {"expert_count", 1, true, "it must be a whole number"}};
    scratch s;
    fixture f;
    graph_config c;
    uint64_t seed = 1;
    scratch_open(&s);
    for (fixture_open(&f, seed); f.config.family != GRAPH_LLAMA || f.config.rope.factor != 1 ||
                                 f.config.rope.original > 0 || f.config.window;
         fixture_open(&f, ++seed))
        fixture_close(&f);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(with_key(&f, scratch_path(&s, "x.gguf"), cases[i].key, cases[i].value,
                                  cases[i].flag, &c),
                         ATOM_E_FORMAT);
        assert_non_null(strstr(atom_fail_message(), cases[i].key));
        assert_non_null(strstr(atom_fail_message(), cases[i].says));
    }
    fixture_close(&f);
    scratch_close(&s);
}

/* Rows of a head in another order cannot be taken from blocks that cross heads. */
static void blocks_across_heads(void **state)
{
    (void)state;
    scratch s;
    fixture f;
    char *data = NULL;
    uint64_t bytes, seed = 1, rows = 0;
    scratch_open(&s);
    for (fixture_open(&f, seed);; fixture_open(&f, ++seed)) {
        rows = (uint64_t)(f.config.heads * f.config.head_dim);
        if (graph_family_traits(f.config.family)->gguf_pairs && f.config.qkv_bias &&
            f.config.head_dim % FILE_GGUF_Q8_BLOCK && rows % FILE_GGUF_Q8_BLOCK == 0)
            break;
        fixture_close(&f);
        assert_true(seed < 5000);
    }
    write_model(&f, FILE_GGUF_F32, scratch_path(&s, "x.gguf"));
    assert_int_equal(atom_file_read(scratch_path(&s, "x.gguf"), 1 << 24, &data, &bytes), ATOM_OK);
    char *type = memmem(data, bytes, "blk.0.attn_q.bias", 17);
    assert_non_null(type);
    type[17 + 4 + 8] = FILE_GGUF_Q8_0; /* behind rank and rows; its numbers no longer matter */
    scratch_write(&s, "x.gguf", data, bytes);
    assert_int_equal(
        file_gguf_read_weights(scratch_path(&s, "x.gguf"), f.g, file_vector_memory(f.got)),
        ATOM_E_UNSUPPORTED);
    assert_non_null(strstr(atom_fail_message(), "'blk.0.attn_q.bias' has blocks across heads"));
    atom_free(data);
    fixture_close(&f);
    scratch_close(&s);
}

/* llama.cpp turns nothing in a Granite that says so; of other models the key says only how they were made. */
static void granite_may_turn_nothing(void **state)
{
    (void)state;
    scratch s;
    fixture f;
    graph_config c;
    uint64_t seed = 1;
    scratch_open(&s);
    for (fixture_open(&f, seed); f.config.family != GRAPH_GRANITE; fixture_open(&f, ++seed))
        fixture_close(&f);
    const char *path = scratch_path(&s, "x.gguf"), *key = "rope.scaling.finetuned";
    assert_int_equal(with_key(&f, path, key, 1, true, &c), ATOM_OK);
    assert_int_equal(with_key(&f, path, key, 0, true, &c), ATOM_E_UNSUPPORTED);
    assert_non_null(strstr(atom_fail_message(), "granite.rope.scaling.finetuned is false"));
    fixture_close(&f);
    scratch_close(&s);
}

/* Two keys that every file has; without them nobody knows the number, or what the file is. */
static void keys_that_must_be_there(void **state)
{
    (void)state;
    static const struct {
        const char *key, *says;
        atom_status want;
    } cases[] = {{"norm_rms_epsilon", "epsilon is missing", ATOM_E_FORMAT},
                 {"general.type", NULL, ATOM_OK}};
    scratch s;
    fixture f;
    graph_config c;
    char *data = NULL;
    uint64_t bytes, seed = 1;
    scratch_open(&s);
    for (fixture_open(&f, seed); f.config.family == GRAPH_GPT2; fixture_open(&f, ++seed))
        fixture_close(&f);
    const char *path = scratch_path(&s, "x.gguf");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_model(&f, FILE_GGUF_F32, path);
        assert_int_equal(atom_file_read(path, 1 << 24, &data, &bytes), ATOM_OK);
        char *name = memmem(data, bytes, cases[i].key, strlen(cases[i].key));
        assert_non_null(name);
        name[0] = '_';
        scratch_write(&s, "x.gguf", data, bytes);
        assert_int_equal(file_gguf_read_model(path, &c, NULL), cases[i].want);
        if (cases[i].says)
            assert_non_null(strstr(atom_fail_message(), cases[i].says));
        atom_free(data);
    }
    write_model(&f, FILE_GGUF_F32, path);
    assert_int_equal(atom_file_read(path, 1 << 24, &data, &bytes), ATOM_OK);
    char *type = memmem(data, bytes, "\x05\0\0\0\0\0\0\0model", 13);
    assert_non_null(type);
    type[8] = 'M';
    scratch_write(&s, "x.gguf", data, bytes);
    assert_int_equal(file_gguf_read_model(path, &c, NULL), ATOM_E_UNSUPPORTED);
    assert_non_null(strstr(atom_fail_message(), "general.type: this file is not a model"));
    atom_free(data);
    fixture_close(&f);
    scratch_close(&s);
}

static void survives_want_of_memory(void **state)
{
    (void)state;
    scratch s;
    fixture f;
    bool done = false;
    scratch_open(&s);
    fixture_open(&f, 3);
    const char *path = scratch_path(&s, "x.gguf");
    write_model(&f, FILE_GGUF_F32, path);
    uint64_t before = atom_mem_read().live_blocks;
    for (uint64_t n = 1; !done; n++) {
        atom_mem_fail_after(n);
        atom_status st = file_gguf_read_weights(path, f.g, file_vector_memory(f.got));
        atom_mem_fail_after(0);
        done = st == ATOM_OK;
        assert_true(done || st == ATOM_E_RESOURCE || st == ATOM_E_UNSUPPORTED);
        assert_int_equal(atom_mem_read().live_blocks, before);
    }
    fixture_close(&f);
    scratch_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_too_large_are_counted),
        cmocka_unit_test(round_trip),
        cmocka_unit_test(rounded_numbers_come_back),
        cmocka_unit_test(through_somebody),
        cmocka_unit_test(damage_is_named),
        cmocka_unit_test(wrong_models_are_refused),
        cmocka_unit_test(keys_that_count),
        cmocka_unit_test(kinds_of_keys),
        cmocka_unit_test(blocks_across_heads),
        cmocka_unit_test(granite_may_turn_nothing),
        cmocka_unit_test(keys_that_must_be_there),
        cmocka_unit_test(survives_want_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
