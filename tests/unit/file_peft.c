/* adapter_config.json: what is not understood is refused, never taken for its default. */
#include "atom/base/mem.h"
#include "atom/file/peft.h"

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
                 {", \"r\": 2.5", "r is not a whole number", ATOM_E_FORMAT}};
    file_lora lora = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(parse(cases[i].more, &lora), cases[i].want);
        assert_non_null(strstr(atom_fail_message(), cases[i].says));
    }
    assert_int_equal(parse(", \"use_rslora\": true, \"use_dora\": null, \"bias\": null", &lora),
                     ATOM_OK);
    assert_true(lora.rslora && !lora.dora);
    file_lora_free(&lora);
    assert_int_equal(parse("", &lora), ATOM_OK);
    assert_false(lora.rslora || lora.dora);
    file_lora_free(&lora);
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
    graph_config config;
    graph *g = NULL;
    graph_family_defaults(GRAPH_LLAMA, &config);
    config.vocab_size = 32;
    config.positions = config.width = config.inner = 16;
    config.layers = 1;
    config.heads = config.kv_heads = 2;
    config.head_dim = 8;
    config.epsilon = 1e-5f;
    config.rope = (atom_rope){.theta = 1e4f, .factor = 1};
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(switches_are_true_or_false),
                                       cmocka_unit_test(the_first_pattern_counts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
