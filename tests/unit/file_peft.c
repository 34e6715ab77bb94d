/* Adapters of PEFT: what is not understood is refused, never taken for its default; and what they add to a model. */
#include "atom/base/mem.h"
#include "atom/file/hfweights.h"
#include "atom/file/peft.h"
#include "tests/scratch.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static atom_status parse(const char *more, file_lora *out)
{
    char text[256];
    int n = snprintf(text, sizeof text,
                     "{\"peft_type\": \"LORA\", \"target_modules\": [\"q_proj\"]%s}", more);
    return file_lora_parse("a.json", text, (size_t)n, out);
}

static void switches_are_true_or_false(void **state)
{
    (void)state;
    static const struct {
        const char *more, *says;
        atom_status want;
    } cases[] = {{", \"use_rslora\": 1", "use_rslora must be true or false", ATOM_E_FORMAT},
                 {", \"use_rslora\": \"true\"", "use_rslora", ATOM_E_FORMAT},
                 {", \"use_dora\": \"yes\"", "use_dora must be true or false", ATOM_E_FORMAT},
                 {", \"ensure_weight_tying\": 1", "ensure_weight_tying", ATOM_E_FORMAT},
                 {", \"bias\": true", "bias: \"(not a text)\"", ATOM_E_UNSUPPORTED},
                 {", \"bias\": \"all\"", "bias: \"all\"", ATOM_E_UNSUPPORTED},
                 {", \"task_type\": \"SEQ_CLS\"", "task_type: \"SEQ_CLS\"", ATOM_E_UNSUPPORTED},
                 {", \"task_type\": 1", "task_type: \"(not a text)\"", ATOM_E_UNSUPPORTED},
                 {", \"r\": 2.5", "r is not a whole number", ATOM_E_FORMAT}};
    file_lora lora = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(parse(cases[i].more, &lora), cases[i].want);
        assert_non_null(strstr(atom_fail_message(), cases[i].says));
    }
    assert_int_equal(parse(", \"use_rslora\": true, \"use_dora\": null, \"bias\": null, "
                           "\"task_type\": null",
                           &lora),
                     ATOM_OK);
    assert_true(lora.rslora && !lora.dora);
    file_lora_free(&lora);
    assert_int_equal(parse("", &lora), ATOM_OK);
    assert_false(lora.rslora || lora.dora);
    file_lora_free(&lora);
}

static graph_config small(int64_t width)
{
    graph_config config;
    graph_family_defaults(GRAPH_LLAMA, &config);
    config.vocab_size = 32;
    config.positions = config.inner = 16;
    config.width = width;
    config.layers = 1;
    config.heads = config.kv_heads = 2;
    config.head_dim = width / 2;
    config.epsilon = 1e-5f;
    config.rope = (atom_rope){.theta = 1e4f, .factor = 1};
    return config;
}

/* Of several patterns that a module's name matches the first counts, as in PEFT. */
static void the_first_pattern_counts(void **state)
{
    (void)state;
    static const struct {
        const char *more;
        int64_t rank;
    } cases[] = {{", \"rank_pattern\": {\"q_proj\": 2, \".*proj\": 4}", 2},
                 {", \"rank_pattern\": {\".*proj\": 4, \"q_proj\": 2}", 4},
                 {", \"rank_pattern\": {\"k_proj\": 2}", 8}};
    graph_config config = small(16);
    graph *g = NULL;
    assert_int_equal(graph_model_build(&config, ATOM_F32, 1, 1, &g), ATOM_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        file_lora lora = {0};
        graph_target *targets = NULL;
        uint32_t n = 0;
        assert_int_equal(parse(cases[i].more, &lora), ATOM_OK);
        assert_int_equal(file_lora_targets(g, &lora, &targets, &n), ATOM_OK);
        assert_int_equal(n, 1);
        assert_int_equal(targets[0].rank, cases[i].rank);
        atom_free(targets);
        file_lora_free(&lora);
    }
    graph_close(&g);
}

enum { WIDE = 300, RANK = 2 }; /* wider than what is added at once */

static void write_tensor_file(const char *path, const float *A, const float *B, const float *m)
{
    const char *const stem = "base_model.model.model.layers.0.self_attn.q_proj.";
    file_st_writer *w = NULL;
    char name[160];
    uint32_t i;
    const float *const data[] = {A, B, m};
    const uint64_t sizes[] = {RANK * WIDE, WIDE * RANK, WIDE};
    assert_int_equal(file_st_create(path, &w), ATOM_OK);
    snprintf(name, sizeof name, "%slora_A.weight", stem);
    assert_int_equal(file_st_declare(w, name, FILE_F32, 2, (uint64_t[]){RANK, WIDE}), ATOM_OK);
    snprintf(name, sizeof name, "%slora_B.weight", stem);
    assert_int_equal(file_st_declare(w, name, FILE_F32, 2, (uint64_t[]){WIDE, RANK}), ATOM_OK);
    snprintf(name, sizeof name, "%slora_magnitude_vector", stem);
    if (m)
        assert_int_equal(file_st_declare(w, name, FILE_F32, 1, (uint64_t[]){WIDE}), ATOM_OK);
    assert_int_equal(file_st_begin(w), ATOM_OK);
    while (file_st_next(w, &i))
        assert_int_equal(file_st_write(w, data[i], sizes[i] * sizeof(float)), ATOM_OK);
    assert_int_equal(file_st_finish(w), ATOM_OK);
    file_st_writer_close(&w);
}

static float drawn(uint64_t i, uint64_t salt)
{
    return (float)((i * 2654435761u + salt * 40503u) % 1999) / 1000 - 1;
}

/* W + alpha / r B A, and with DoRA each row of that as long as its magnitude says. */
static void merging_is_what_peft_says(void **state)
{
    (void)state;
    float A[RANK * WIDE], B[WIDE * RANK], m[WIDE];
    for (int i = 0; i < RANK * WIDE; i++) {
        A[i] = drawn((uint64_t)i, 1);
        B[i] = drawn((uint64_t)i, 2);
        m[i % WIDE] = 1 + drawn((uint64_t)i, 3) / 2;
    }
    for (int dora = 0; dora < 2; dora++) {
        scratch s;
        graph_config config = small(WIDE);
        graph *g = NULL;
        file_model model = {0};
        char text[256];
        scratch_open(&s);
        assert_int_equal(graph_model_build(&config, ATOM_F32, 1, 1, &g), ATOM_OK);
        float *base = atom_alloc(g->param_extent, sizeof *base);
        float *got = atom_alloc(g->param_extent, sizeof *got);
        for (uint64_t i = 0; i < g->param_extent; i++)
            base[i] = drawn(i, 4);
        assert_int_equal(file_config_write(s.dir, &config, NULL, NULL), ATOM_OK);
        assert_int_equal(file_weights_write(s.dir, g, base), ATOM_OK);
        assert_int_equal(atom_dir_make(scratch_path(&s, "adapter")), ATOM_OK);
        int n = snprintf(text, sizeof text,
                         "{\"peft_type\": \"LORA\", \"target_modules\": [\"q_proj\"], \"r\": 2, "
                         "\"lora_alpha\": 3, \"use_dora\": %s}",
                         dora ? "true" : "false");
        scratch_write(&s, "adapter/adapter_config.json", text, (size_t)n);
        write_tensor_file(scratch_path(&s, "adapter/adapter_model.safetensors"), A, B,
                          dora ? m : NULL);
        assert_int_equal(file_model_resolve(s.dir, &model), ATOM_OK);
        model.adapter = atom_strdup(scratch_path(&s, "adapter"));
        if (file_merged_read(&model, g, file_vector_memory(got)) != ATOM_OK)
            fail_msg("%s", atom_fail_message());
        uint32_t p = 0; /* q is the first rows of this */
        while (!strstr(g->params[p].name, "qkv"))
            p++;
        for (uint64_t row = 0; row < WIDE; row++) {
            double sum[WIDE], square = 0;
            const uint64_t at = g->params[p].offset + row * WIDE;
            for (uint64_t k = 0; k < WIDE; k++) {
                sum[k] = (double)base[at + k];
                for (uint64_t r = 0; r < RANK; r++)
                    sum[k] += 1.5 * (double)B[row * RANK + r] * (double)A[r * WIDE + k];
                square += sum[k] * sum[k];
            }
            for (uint64_t k = 0; k < WIDE; k++) {
                double want = dora ? (double)m[row] * sum[k] / sqrt(square) : sum[k];
                assert_true(fabs((double)got[at + k] - want) < 1e-5);
            }
        }
        const uint64_t rest = g->params[p].offset + (uint64_t)WIDE * WIDE;
        assert_memory_equal(got + rest, base + rest,
                            (g->params[p].elements - WIDE * WIDE) * sizeof *got);
        memcpy(strstr(text, "\"r\": 2"), "\"r\": 3", 6);
        scratch_write(&s, "adapter/adapter_config.json", text, (size_t)n);
        assert_int_equal(file_merged_read(&model, g, file_vector_memory(got)), ATOM_E_USAGE);
        assert_non_null(strstr(atom_fail_message(), "the adapter belongs to another model"));
        file_model_free(&model);
        graph_close(&g);
        atom_free(base);
        atom_free(got);
        scratch_close(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(switches_are_true_or_false),
                                       cmocka_unit_test(the_first_pattern_counts),
                                       cmocka_unit_test(merging_is_what_peft_says)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
