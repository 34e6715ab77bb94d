/* A model file of llm.c has every number of the vector in its place, also of a matrix that is larger
 * than what is written at once. */
#include "atom/base/files.h"
#include "atom/base/mem.h"
#include "atom/file/llmc.h"
#include "tests/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { HEADER_INTS = 256, VOCAB = 2000, PADDED = 2048, WIDTH = 160, POSITIONS = 8 };

/* Of the vector where this parameter begins. */
static uint64_t offset_of(const graph *g, const char *name)
{
    for (uint32_t i = 0; i < g->n_params; i++)
        if (strcmp(g->params[i].name, name) == 0)
            return g->params[i].offset;
    fail_msg("no parameter %s", name);
    return 0;
}

static void every_number_has_its_place(void **state)
{
    const graph_config config = {.vocab_size = VOCAB,
                                 .positions = POSITIONS,
                                 .width = WIDTH,
                                 .layers = 1,
                                 .heads = 2,
                                 .inner = 4 * WIDTH,
                                 .epsilon = 1e-5f};
    const uint64_t embedding = (uint64_t)VOCAB * WIDTH, rows = (uint64_t)PADDED * WIDTH;
    graph *g = NULL;
    char *data = NULL;
    scratch s;
    uint64_t bytes, numbers = rows - embedding;
    (void)state;
    scratch_open(&s);
    assert_int_equal(graph_model_build(&config, ATOM_F32, 1, 1, &g), ATOM_OK);
    float *vector = atom_alloc(g->param_extent, sizeof *vector);
    for (uint64_t i = 0; i < g->param_extent; i++)
        vector[i] = (float)(1 + i);
    for (uint32_t i = 0; i < g->n_params; i++)
        numbers += g->params[i].elements;
    const char *path = scratch_path(&s, "model.bin");
    assert_int_equal(file_llmc_write(path, &config, g, file_vector_memory(vector), ATOM_F32),
                     ATOM_OK);
    assert_int_equal(atom_file_read(path, 1 << 24, &data, &bytes), ATOM_OK);
    assert_int_equal(bytes, HEADER_INTS * sizeof(int32_t) + numbers * sizeof(float));
    const float *file = (const float *)data + HEADER_INTS;
    assert_memory_equal(file, vector + offset_of(g, "wte.weight"), embedding * sizeof *file);
    for (uint64_t i = embedding; i < rows; i++)
        assert_true(file[i] == 0);
    assert_memory_equal(file + rows, vector + offset_of(g, "wpe.weight"),
                        (size_t)POSITIONS * WIDTH * sizeof *file);
    assert_memory_equal(file + numbers - WIDTH, vector + offset_of(g, "ln_f.bias"),
                        WIDTH * sizeof *file);
    atom_free(data);
    atom_free(vector);
    graph_close(&g);
    scratch_close(&s);
}

/* What its header does not say must be what llm.c takes it for. */
static void other_mathematics_is_refused(void **state)
{
    (void)state;
    graph_config config = {.vocab_size = VOCAB,
                           .positions = POSITIONS,
                           .width = WIDTH,
                           .layers = 1,
                           .heads = 2,
                           .inner = 4 * WIDTH,
                           .epsilon = 1e-6f};
    assert_int_equal(file_llmc_check("m", &config), ATOM_E_UNSUPPORTED);
    assert_non_null(strstr(atom_fail_message(), "layer_norm_epsilon is 1e-06"));
    config.epsilon = 1e-5f;
    assert_int_equal(file_llmc_check("m", &config), ATOM_OK);
    config.untied = true;
    assert_int_equal(file_llmc_check("m", &config), ATOM_E_UNSUPPORTED);
    assert_non_null(strstr(atom_fail_message(), "tie_word_embeddings"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_number_has_its_place),
                                       cmocka_unit_test(other_mathematics_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
