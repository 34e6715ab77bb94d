/* GGUF both ways: what was written is read to the bit, damage has its message, no memory is an
 * error and nothing else. */
#include "tests/lib/through.h"
#include "tests/unit/file_gguf_common.h"

#include <math.h>
#include <stdlib.h>

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

/* The number that llama.cpp has at row and column of a tensor of the model. */
static float there(const fixture *f, const file_slice *s, uint64_t row, uint64_t column)
{
    const char *arch = file_gguf_architecture(&f->config);
    const uint64_t D = (uint64_t)f->config.head_dim, width = s->rank == 2 ? s->dims[1] : 1;
    bool pairs =
        strcmp(arch, "llama") == 0 || strcmp(arch, "granite") == 0 || strcmp(arch, "smollm3") == 0;
    bool turned = pairs && (strstr(s->name, ".q_proj.") || strstr(s->name, ".k_proj."));
    bool lifted = strncmp(arch, "gemma", 5) == 0 && strstr(s->name, "norm.");
    if (turned) /* pairs of channels are turned together, and not halves */
        row = row / D * D + row % D / 2 + row % 2 * (D / 2);
    return f->vector[f->g->params[s->param].offset + s->first + row * width + column] +
           (lifted ? 1 : 0);
}

/* Whoever writes and reads in the same wrong order notices nothing. */
static void numbers_are_where_llama_cpp_has_them(void **state)
{
    (void)state;
    scratch s;
    scratch_open(&s);
    for (uint64_t seed = 3; seed <= 90; seed += 3) {
        fixture f;
        file_gguf_in *in = NULL;
        file_slice *slices = NULL;
        uint32_t n = 0;
        char name[FILE_NAME_MAX + 16];
        fixture_open(&f, seed);
        write_model(&f, FILE_GGUF_F32, scratch_path(&s, "x.gguf"));
        assert_int_equal(file_gguf_open(scratch_path(&s, "x.gguf"), &in), ATOM_OK);
        assert_int_equal(file_slices(f.g, &slices, &n), ATOM_OK);
        for (uint32_t i = 0; i < n && f.config.family != GRAPH_GPT2; i++) {
            if (slices[i].transposed || slices[i].heads)
                continue;
            assert_int_equal(file_gguf_name(&f.config, slices[i].name, name, sizeof name), ATOM_OK);
            const file_gguf_in_tensor *t = file_gguf_find_tensor(in, name);
            assert_non_null(t);
            assert_int_equal(file_gguf_read_f32(in, t, 0, t->elements, f.got), ATOM_OK);
            const uint64_t width = t->rank == 2 ? t->dims[1] : 1;
            for (uint64_t k = 0; k < t->elements; k++)
                if (f.got[k] != there(&f, &slices[i], k / width, k % width))
                    fail_msg("seed %d: %s, number %d", (int)seed, name, (int)k);
        }
        atom_free(slices);
        file_gguf_in_close(&in);
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
        cmocka_unit_test(numbers_are_where_llama_cpp_has_them),
        cmocka_unit_test(rounded_numbers_come_back),
        cmocka_unit_test(through_somebody),
        cmocka_unit_test(damage_is_named),
        cmocka_unit_test(wrong_models_are_refused),
        cmocka_unit_test(survives_want_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
