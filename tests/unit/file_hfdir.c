/* Model directories: weights both ways, sharded, damaged; model specs. */
#include "atom/file/hfdir.h"

#include "atom/base/log.h"
#include "atom/file/safetensors.h"
#include "tests/lib/through.h"
#include "tests/scratch.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

typedef struct model {
    graph_config config;
    graph *g;
    float *vector, *got;
} model;

static void model_open_as(model *m, int64_t width, int64_t inner)
{
    m->config = (graph_config){.name = "tiny",
                               .vocab_size = 11,
                               .positions = 7,
                               .width = width,
                               .layers = 2,
                               .heads = 2,
                               .inner = inner,
                               .epsilon = 1e-5f};
    assert_int_equal(graph_gpt2_build(&m->config, ATOM_F32, 1, 4, &m->g), ATOM_OK);
    m->vector = atom_alloc(m->g->param_extent, sizeof *m->vector);
    m->got = atom_alloc(m->g->param_extent, sizeof *m->got);
    for (uint64_t i = 0; i < m->g->param_extent; i++)
        m->vector[i] = -1;
    float next = 0.5f;
    for (uint32_t p = 0; p < m->g->n_params; p++) {
        for (uint64_t i = 0; i < m->g->params[p].elements; i++, next += 1)
            m->vector[m->g->params[p].offset + i] = next;
    }
}

static void model_open(model *m)
{
    model_open_as(m, 6, 10);
}

static void model_close(model *m)
{
    graph_close(&m->g);
    atom_free(m->vector);
    atom_free(m->got);
}

static bool same_weights(const model *m)
{
    for (uint32_t p = 0; p < m->g->n_params; p++) {
        const graph_param *q = &m->g->params[p];
        if (memcmp(m->vector + q->offset, m->got + q->offset, q->elements * 4) != 0)
            return false;
    }
    return true;
}

static void weights_round_trip(void **state)
{
    scratch s;
    model m;
    file_safetensors *f = NULL;
    (void)state;
    scratch_open(&s);
    model_open(&m);
    scratch_write(&s, "model-00001-of-00002.safetensors", "x", 1);
    scratch_write(&s, "model.safetensors.index.json", "x", 1);
    scratch_write(&s, "model-1-of-2.safetensors", "x", 1);
    assert_int_equal(file_weights_write(s.dir, m.g, m.vector), ATOM_OK);
    assert_false(atom_path_exists(scratch_path(&s, "model-00001-of-00002.safetensors")));
    assert_false(atom_path_exists(scratch_path(&s, "model.safetensors.index.json")));
    assert_true(atom_path_exists(scratch_path(&s, "model-1-of-2.safetensors")));
    for (uint64_t i = 0; i < m.g->param_extent; i++)
        m.got[i] = -7;
    assert_int_equal(file_weights_read(s.dir, m.g, m.got), ATOM_OK);
    assert_true(same_weights(&m));

    /* In the file: prefix, and [in, out] for the Conv1D weights. */
    assert_int_equal(file_st_open(scratch_path(&s, "model.safetensors"), &f), ATOM_OK);
    assert_int_equal(f->n_tensors, m.g->n_params);
    assert_string_equal(file_st_metadata(f, "format"), "pt");
    const file_tensor *t = file_st_find(f, "transformer.h.1.mlp.c_fc.weight");
    assert_non_null(t);
    assert_int_equal(t->dims[0], 6);
    assert_int_equal(t->dims[1], 10);
    float file_data[60];
    assert_int_equal(file_st_read(f, t, 0, sizeof file_data, file_data), ATOM_OK);
    for (uint32_t p = 0; p < m.g->n_params; p++) {
        if (strcmp(m.g->params[p].name, "h.1.mlp.c_fc.weight") != 0)
            continue;
        const float *in = m.vector + m.g->params[p].offset;
        for (int r = 0; r < 6; r++) {
            for (int c = 0; c < 10; c++)
                assert_true(file_data[r * 10 + c] == in[c * 6 + r]);
        }
    }
    t = file_st_find(f, "transformer.wte.weight");
    assert_int_equal(t->dims[0], 11);
    file_st_close(&f);
    model_close(&m);
    scratch_close(&s);
}

/* Matrices that take several bands of rows through the buffer, the last one short. */
static void weights_in_bands(void **state)
{
    scratch s;
    model m;
    file_safetensors *f = NULL;
    float row[5003];
    (void)state;
    scratch_open(&s);
    model_open_as(&m, 98, 5003);
    assert_int_equal(file_weights_write(s.dir, m.g, m.vector), ATOM_OK);
    assert_int_equal(file_weights_read(s.dir, m.g, m.got), ATOM_OK);
    assert_true(same_weights(&m));
    assert_int_equal(file_st_open(scratch_path(&s, "model.safetensors"), &f), ATOM_OK);
    const file_tensor *t = file_st_find(f, "transformer.h.0.mlp.c_fc.weight");
    uint32_t p = 0;
    while (strcmp(m.g->params[p].name, "h.0.mlp.c_fc.weight") != 0)
        p++;
    for (uint64_t r = 0; r < 98; r++) {
        assert_int_equal(file_st_read(f, t, r * sizeof row, sizeof row, row), ATOM_OK);
        for (uint64_t c = 0; c < 5003; c++)
            assert_true(row[c] == m.vector[m.g->params[p].offset + c * 98 + r]);
    }
    file_st_close(&f);
    model_close(&m);
    scratch_close(&s);
}

enum {
    NO_PREFIX = 1,
    BUFFERS = 2,
    HEAD = 4,
    HEAD_ONLY = 8,
    HALF = 16,
    OTHER_HEAD = 32,
    EXTRA = 64,
    TWICE = 128,
    LACKING = 256,
    MISSHAPEN = 512,
    INTEGER = 1024,
    NOT_FINITE = 2048
};

/* The tensor that belongs to parameter p as a Hub file might have it. */
static void put_param(file_st_writer *w, const model *m, const graph_param *p, unsigned how)
{
    bool swap = file_param_transposed(p);
    uint64_t rows = swap ? (uint64_t)p->dims[1] : (uint64_t)p->dims[0];
    uint64_t cols = p->elements / rows;
    for (uint64_t i = 0; i < p->elements; i++) {
        uint64_t at = swap ? (i % cols) * rows + i / cols : i;
        float x = m->vector[p->offset + at];
        if ((how & NOT_FINITE) && i == 0)
            x = NAN;
        if (how & HALF) {
            atom_bf16 h = atom_f32_to_bf16(x);
            assert_int_equal(file_st_write(w, &h, 2), ATOM_OK);
        } else {
            assert_int_equal(file_st_write(w, &x, 4), ATOM_OK);
        }
    }
}

typedef struct put {
    const graph_param *param; /* NULL: zeros */
    uint64_t bytes;
    bool negate;
} put;

/* Parameters first .. last of the model, with oddities, into one file. */
static void put_file(const char *path, const model *m, uint32_t first, uint32_t last, unsigned how)
{
    file_st_writer *w = NULL;
    put puts[64];
    uint32_t n = 0, i;
    char name[128];
    assert_int_equal(file_st_create(path, &w), ATOM_OK);
    for (uint32_t p = first; p < last; p++) {
        const graph_param *q = &m->g->params[p];
        uint64_t dims[4] = {0};
        bool swap = file_param_transposed(q);
        if ((how & LACKING) && (p == first + 1 || p == first + 3))
            continue;
        if ((how & HEAD_ONLY) && strcmp(q->name, "wte.weight") == 0)
            continue;
        for (uint32_t d = 0; d < q->rank; d++)
            dims[d] = (uint64_t)q->dims[swap ? 1 - d : d];
        if ((how & MISSHAPEN) && p == first) {
            dims[0] = q->elements;
            dims[1] = 1;
        }
        snprintf(name, sizeof name, "%s%s", how & NO_PREFIX ? "" : "transformer.", q->name);
        bool integer = (how & INTEGER) && p == first;
        assert_int_equal(file_st_declare(w, name,
                                         integer      ? FILE_I32
                                         : how & HALF ? FILE_BF16
                                                      : FILE_F32,
                                         q->rank, dims),
                         ATOM_OK);
        puts[n++] = (put){.param = q};
    }
    const graph_param *wte = &m->g->params[0];
    uint64_t dims[4] = {(uint64_t)wte->dims[0], (uint64_t)wte->dims[1], 1, 1};
    if (how & (HEAD | HEAD_ONLY | OTHER_HEAD)) {
        assert_int_equal(file_st_declare(w, "lm_head.weight", FILE_F32, 2, dims), ATOM_OK);
        puts[n++] = (put){.param = how & OTHER_HEAD ? NULL : wte, .bytes = wte->elements * 4};
    }
    if (how & TWICE) {
        assert_int_equal(file_st_declare(w, "wte.weight", FILE_F32, 2, dims), ATOM_OK);
        puts[n++] = (put){.param = wte};
    }
    if (how & BUFFERS) {
        assert_int_equal(
            file_st_declare(w, "h.0.attn.bias", FILE_BOOL, 4, (uint64_t[]){1, 1, 7, 7}), ATOM_OK);
        puts[n++] = (put){.bytes = 49};
        assert_int_equal(file_st_declare(w, "h.11.attn.masked_bias", FILE_F32, 0, NULL), ATOM_OK);
        puts[n++] = (put){.bytes = 4};
    }
    if (how & EXTRA) {
        assert_int_equal(file_st_declare(w, "h.9.ln_1.weight", FILE_F32, 1, (uint64_t[]){6}),
                         ATOM_OK);
        puts[n++] = (put){.bytes = 24};
    }
    assert_int_equal(file_st_begin(w), ATOM_OK);
    while (file_st_next(w, &i)) {
        static const uint8_t zeros[512];
        if (puts[i].param)
            put_param(w, m, puts[i].param, how);
        else
            assert_int_equal(file_st_write(w, zeros, puts[i].bytes), ATOM_OK);
    }
    assert_int_equal(file_st_finish(w), ATOM_OK);
    file_st_writer_close(&w);
}

static void weights_as_others_write_them(void **state)
{
    static const unsigned ways[] = {0,         NO_PREFIX, NO_PREFIX | BUFFERS, HEAD,
                                    HEAD_ONLY, HALF,      NOT_FINITE};
    scratch s;
    model m;
    (void)state;
    scratch_open(&s);
    model_open(&m);
    for (uint64_t i = 0; i < m.g->param_extent; i++)
        m.vector[i] = atom_bf16_to_f32(atom_f32_to_bf16(m.vector[i]));
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        put_file(scratch_path(&s, "model.safetensors"), &m, 0, m.g->n_params, ways[i]);
        memset(m.got, 0, m.g->param_extent * 4);
        if (file_weights_read(s.dir, m.g, m.got) != ATOM_OK)
            fail_msg("way %u: %s", ways[i], atom_fail_message());
        assert_int_equal(same_weights(&m), ways[i] != NOT_FINITE);
    }
    model_close(&m);
    scratch_close(&s);
}

/* A graph with a head of its own, of a model whose files have it in the embedding, beside it or in its
 * place: read at once, and piece by piece. */
static void weights_of_tied_files(void **state)
{
    static const unsigned ways[] = {0,    NO_PREFIX | BUFFERS, HEAD,   HEAD_ONLY,
                                    HALF, OTHER_HEAD,          LACKING};
    scratch s;
    model m;
    graph *g = NULL;
    (void)state;
    scratch_open(&s);
    model_open(&m);
    m.config.untied = m.config.tied_files = true;
    assert_int_equal(graph_gpt2_build(&m.config, ATOM_F32, 1, 4, &g), ATOM_OK);
    assert_true(g->tied_files && g->n_params == m.g->n_params + 1);
    float *got = atom_alloc(g->param_extent, sizeof *got);
    for (uint64_t i = 0; i < m.g->param_extent; i++)
        m.vector[i] = atom_bf16_to_f32(atom_f32_to_bf16(m.vector[i]));
    for (size_t i = 0; i < 2 * sizeof ways / sizeof ways[0]; i++) {
        unsigned how = ways[i / 2];
        file_weights *w = NULL;
        put_file(scratch_path(&s, "model.safetensors"), &m, 0, m.g->n_params, how);
        memset(got, 0, g->param_extent * 4);
        atom_status st =
            i % 2 ? file_weights_open(s.dir, g, NULL, &w) : file_weights_read(s.dir, g, got);
        assert_int_equal(st, how == OTHER_HEAD ? ATOM_E_UNSUPPORTED
                             : how == LACKING  ? ATOM_E_FORMAT
                                               : ATOM_OK);
        for (uint32_t p = 0; p < g->n_params && st == ATOM_OK; p++) {
            const graph_param *q = &g->params[p];
            const graph_param *from = &m.g->params[p < m.g->n_params ? p : 0];
            file_vector v = w ? file_weights_vector(w) : file_vector_memory(got);
            float x[256];
            assert_true(q->elements == from->elements && q->elements <= 256);
            assert_int_equal(v.get(v.ctx, q->offset, q->elements, x), ATOM_OK);
            if (memcmp(x, m.vector + from->offset, q->elements * sizeof *x) != 0)
                fail_msg("way %u: %s", how, q->name);
        }
        file_weights_close(&w);
    }
    atom_free(got);
    graph_close(&g);
    model_close(&m);
    scratch_close(&s);
}

static void weights_refused(void **state)
{
    static const struct {
        unsigned how;
        atom_status status;
        const char *message;
    } cases[] = {
        {OTHER_HEAD, ATOM_E_UNSUPPORTED, "lm_head.weight differs from wte.weight"},
        {EXTRA, ATOM_E_FORMAT, "tensor 'h.9.ln_1.weight' is not part of the model"},
        {TWICE, ATOM_E_FORMAT, "wte.weight' appears twice"},
        {LACKING, ATOM_E_FORMAT, "2 tensors are missing: wpe.weight, h.0.ln_1.bias"},
        {MISSHAPEN, ATOM_E_FORMAT,
         "tensor 'transformer.wte.weight' is [66, 1], but config.json says [11, 6]"},
        {INTEGER, ATOM_E_FORMAT, "tensor 'transformer.wte.weight' is I32"},
    };
    scratch s;
    model m;
    (void)state;
    scratch_open(&s);
    model_open(&m);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        put_file(scratch_path(&s, "model.safetensors"), &m, 0, m.g->n_params, cases[i].how);
        atom_status st = file_weights_read(s.dir, m.g, m.got);
        if (st != cases[i].status || !strstr(atom_fail_message(), cases[i].message))
            fail_msg("%u: %s: %s", cases[i].how, atom_status_name(st), atom_fail_message());
    }
    assert_int_equal(unlink(scratch_path(&s, "model.safetensors")), 0);
    assert_false(file_weights_exist(s.dir));
    assert_int_equal(file_weights_read(s.dir, m.g, m.got), ATOM_E_FORMAT);
    scratch_write(&s, "pytorch_model.bin", "x", 1);
    assert_int_equal(file_weights_read(s.dir, m.g, m.got), ATOM_E_FORMAT);
    assert_non_null(strstr(atom_fail_message(), "not one of torch.save"));
    model_close(&m);
    scratch_close(&s);
}

/* An index that maps parameters [0, half) to file a and the rest to file b. */
static void put_index(scratch *s, const model *m, const char *a, const char *b, int wrong)
{
    char text[8192];
    int n = snprintf(text, sizeof text, "{\"metadata\":{\"total_size\":1},\"weight_map\":{");
    for (uint32_t p = 0; p < m->g->n_params; p++)
        n +=
            snprintf(text + n, sizeof text - (size_t)n, "%s\"transformer.%s\":\"%s\"", p ? "," : "",
                     m->g->params[p].name, (p < m->g->n_params / 2) != ((int)p == wrong) ? a : b);
    n += snprintf(text + n, sizeof text - (size_t)n, "}}");
    scratch_write(s, "model.safetensors.index.json", text, (size_t)n);
}

/* Piece by piece through a source, which has one of the files open at a time. */
static void read_through(model *m, const char *dir)
{
    file_weights *w = NULL;
    through_views = 0;
    memset(m->got, 0, m->g->param_extent * sizeof *m->got);
    assert_int_equal(file_weights_open(dir, m->g, &through_pieces, &w), ATOM_OK);
    file_vector v = file_weights_vector(w);
    for (uint32_t p = 0; p < m->g->n_params; p++) {
        uint64_t first = m->g->params[p].offset, n = m->g->params[p].elements;
        assert_int_equal(v.get(v.ctx, first, n, m->got + first), ATOM_OK);
    }
    assert_true(same_weights(m));
    assert_true(through_views > m->g->n_params);
    file_weights_close(&w);
    assert_int_equal(through_opened, 0);
}

static void shards(void **state)
{
    static const char *const bad_names[] = {
        "../a.safetensors", ".a.safetensors",     "/etc/a.safetensors", "a.bin",
        "C:a.safetensors",  "x\\\\a.safetensors", ".safetensors"};
    static const char a[] = "model-00001-of-00002.safetensors",
                      b[] = "model-00002-of-00002.safetensors";
    scratch s;
    model m;
    (void)state;
    scratch_open(&s);
    model_open(&m);
    uint32_t half = m.g->n_params / 2;
    put_file(scratch_path(&s, a), &m, 0, half, 0);
    put_file(scratch_path(&s, b), &m, half, m.g->n_params, BUFFERS);
    put_index(&s, &m, a, b, -1);
    assert_true(file_weights_exist(s.dir));
    assert_int_equal(file_weights_read(s.dir, m.g, m.got), ATOM_OK);
    assert_true(same_weights(&m));
    read_through(&m, s.dir);

    /* No name of a shard is shorter. */
    char whole[640];
    snprintf(whole, sizeof whole, "%s", scratch_path(&s, a));
    assert_int_equal(rename(whole, scratch_path(&s, "a.safetensors")), 0);
    put_index(&s, &m, "a.safetensors", b, -1);
    assert_int_equal(file_weights_read(s.dir, m.g, m.got), ATOM_OK);
    assert_int_equal(rename(scratch_path(&s, "a.safetensors"), whole), 0);

    put_index(&s, &m, a, b, 1);
    assert_int_equal(file_weights_read(s.dir, m.g, m.got), ATOM_E_FORMAT);
    assert_non_null(strstr(atom_fail_message(), "tensor 'transformer.wpe.weight' is also in"));
    put_index(&s, &m, a, b, (int)half + 1);
    assert_int_equal(file_weights_read(s.dir, m.g, m.got), ATOM_E_FORMAT);
    assert_non_null(strstr(atom_fail_message(), "is missing; the index says it is here"));
    put_index(&s, &m, a, "nothing.safetensors", -1);
    assert_int_equal(file_weights_read(s.dir, m.g, m.got), ATOM_E_FORMAT);
    assert_non_null(strstr(atom_fail_message(), "there is no file"));
    for (size_t i = 0; i < sizeof bad_names / sizeof bad_names[0]; i++) {
        put_index(&s, &m, a, bad_names[i], -1);
        assert_int_equal(file_weights_read(s.dir, m.g, m.got), ATOM_E_FORMAT);
        assert_non_null(strstr(atom_fail_message(), "not a plain name"));
    }
    static const char *const texts[] = {
        "{}", "[]", "{\"weight_map\":[]}", "{\"weight_map\":{}}", "{\"weight_map\":{\"a\":1}}",
        "{"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        scratch_write(&s, "model.safetensors.index.json", texts[i], strlen(texts[i]));
        assert_int_equal(file_weights_read(s.dir, m.g, m.got), ATOM_E_FORMAT);
    }
    model_close(&m);
    scratch_close(&s);
}

/* More files than the process may have open: they are read one after another. */
static void more_shards_than_descriptors(void **state)
{
    scratch s;
    model m;
    char text[8192], name[64];
    struct rlimit before, few;
    int n = snprintf(text, sizeof text, "{\"weight_map\":{");
    (void)state;
    scratch_open(&s);
    model_open(&m);
    for (uint32_t p = 0; p < m.g->n_params; p++) {
        snprintf(name, sizeof name, "model-%u.safetensors", p);
        put_file(scratch_path(&s, name), &m, p, p + 1, 0);
        n += snprintf(text + n, sizeof text - (size_t)n, "%s\"transformer.%s\":\"%s\"",
                      p ? "," : "", m.g->params[p].name, name);
    }
    n += snprintf(text + n, sizeof text - (size_t)n, "}}");
    scratch_write(&s, "model.safetensors.index.json", text, (size_t)n);
    int lowest = dup(0);
    assert_true(lowest >= 0);
    close(lowest);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = before;
    few.rlim_cur = (rlim_t)lowest + 8;
    assert_true(m.g->n_params > 20);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    atom_status st = file_weights_read(s.dir, m.g, m.got);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    if (st != ATOM_OK)
        fail_msg("%s", atom_fail_message());
    assert_true(same_weights(&m));
    model_close(&m);
    scratch_close(&s);
}

static void specs(void **state)
{
    scratch s;
    model m;
    file_model got = {0};
    (void)state;
    scratch_open(&s);
    model_open(&m);
    assert_int_equal(file_model_resolve("gpt2-124m", &got), ATOM_OK);
    assert_int_equal(got.kind, FILE_MODEL_PRESET);
    assert_int_equal(got.config.width, 768);
    file_model_free(&got);
    assert_int_equal(file_model_resolve("gpt2-124", &got), ATOM_E_USAGE);
    assert_non_null(strstr(atom_fail_message(), "did you mean 'gpt2-124m'?"));
    assert_int_equal(file_model_resolve(s.dir, &got), ATOM_E_FORMAT);
    assert_non_null(strstr(atom_fail_message(), "has no config.json"));
    assert_int_equal(file_config_write(s.dir, &m.config, NULL, &(file_ends){10, 10}), ATOM_OK);
    assert_true(atom_path_exists(scratch_path(&s, "generation_config.json")));
    assert_int_equal(file_model_resolve(s.dir, &got), ATOM_OK);
    assert_int_equal(got.kind, FILE_MODEL_DIR);
    assert_false(got.has_weights);
    assert_non_null(got.source);
    file_model_free(&got);
    assert_int_equal(file_weights_write(s.dir, m.g, m.vector), ATOM_OK);
    assert_int_equal(file_model_resolve(s.dir, &got), ATOM_OK);
    assert_true(got.has_weights);
    file_model_free(&got);
    assert_int_equal(file_model_resolve(scratch_path(&s, "config.json"), &got), ATOM_OK);
    assert_int_equal(got.kind, FILE_MODEL_CONFIG);
    assert_int_equal(got.config.inner, 10);
    assert_string_equal(got.config.name, "tiny");
    file_model_free(&got);
    model_close(&m);
    scratch_close(&s);
}

/* A directory that has a preset's name is not taken for it, nor it for the directory. */
static void preset_or_directory(void **state)
{
    scratch s;
    model m;
    file_model got = {0};
    char here[4096];
    (void)state;
    scratch_open(&s);
    model_open(&m);
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir(s.dir), 0);
    assert_int_equal(atom_dir_make("gpt2-124m"), ATOM_OK);
    assert_int_equal(file_model_resolve("gpt2-124m", &got), ATOM_OK); /* that of a run, say */
    assert_int_equal(got.kind, FILE_MODEL_PRESET);
    file_model_free(&got);
    assert_int_equal(file_config_write("gpt2-124m", &m.config, NULL, NULL), ATOM_OK);
    assert_int_equal(file_model_resolve("gpt2-124m", &got), ATOM_E_USAGE);
    assert_non_null(strstr(atom_fail_message(), "write ./gpt2-124m for the directory"));
    assert_int_equal(file_model_resolve("./gpt2-124m", &got), ATOM_OK);
    assert_int_equal(got.kind, FILE_MODEL_DIR);
    file_model_free(&got);
    assert_int_equal(chdir(here), 0);
    model_close(&m);
    scratch_close(&s);
}

static void no_memory(void **state)
{
    scratch s;
    model m;
    (void)state;
    scratch_open(&s);
    model_open(&m);
    uint64_t before = atom_mem_read().live_blocks;
    for (uint64_t n = 1;; n++) {
        file_model got = {0};
        atom_mem_fail_after(n);
        atom_status st = file_config_write(s.dir, &m.config, "{\"a\":1}", NULL);
        if (st == ATOM_OK)
            st = file_weights_write(s.dir, m.g, m.vector);
        if (st == ATOM_OK)
            st = file_model_resolve(s.dir, &got);
        if (st == ATOM_OK)
            st = file_weights_read(s.dir, m.g, m.got);
        atom_mem_fail_after(0);
        file_model_free(&got);
        assert_int_equal(atom_mem_read().live_blocks, before);
        if (st == ATOM_OK) {
            assert_true(n > 40);
            break;
        }
        assert_int_equal(st, ATOM_E_RESOURCE);
    }
    assert_true(same_weights(&m));
    model_close(&m);
    scratch_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_round_trip),
        cmocka_unit_test(weights_in_bands),
        cmocka_unit_test(weights_as_others_write_them),
        cmocka_unit_test(weights_of_tied_files),
        cmocka_unit_test(weights_refused),
        cmocka_unit_test(shards),
        cmocka_unit_test(more_shards_than_descriptors),
        cmocka_unit_test(specs),
        cmocka_unit_test(preset_or_directory),
        cmocka_unit_test(no_memory),
    };
    atom_log_set_level(ATOM_LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
