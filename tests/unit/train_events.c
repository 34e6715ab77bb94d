/*
 * What a run leaves for others to look at: TensorBoard's events, read back by their format alone, and the
 * marks by which a checkpoint knows its own files.
 */
#include "atom/train/events.h"

#include "atom/graph/models.h"
#include "atom/train/mark.h"
#include "tests/scratch.h"

#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void must(atom_status st)
{
    if (st != ATOM_OK)
        fail_msg("%s", atom_fail_message());
}

/* --- events --------------------------------------------------------------------------------------- */

/* CRC-32C by its definition: the remainder of the bits, lowest first, each with the polynomial from the
 * highest degree down. */
static uint32_t castagnoli(const uint8_t *data, size_t bytes)
{
    uint32_t rest = UINT32_MAX, out = 0;
    for (size_t i = 0; i < 8 * bytes; i++) {
        uint32_t bit = (uint32_t)data[i / 8] >> i % 8 & 1u;
        bool carry = (rest >> 31 ^ bit) != 0;
        rest = rest << 1 ^ (carry ? 0x1edc6f41u : 0);
    }
    for (int i = 0; i < 32; i++)
        out |= (~rest >> (31 - i) & 1u) << i;
    return out;
}

static uint64_t number(const uint8_t *at, int bytes)
{
    uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; i--)
        value = value << 8 | at[i];
    return value;
}

static uint32_t masked(const uint8_t *data, size_t bytes)
{
    uint32_t crc = castagnoli(data, bytes);
    return (uint32_t)((crc / 32768 + crc % 32768 * 131072ull) + 0xa282ead8u);
}

/* The record at *at, whose sums hold; its data. */
static const uint8_t *record(const uint8_t **at, const uint8_t *end, size_t *bytes)
{
    const uint8_t *head = *at;
    assert_true(end - head >= 16);
    *bytes = number(head, 8);
    assert_true(*bytes <= (size_t)(end - head) - 16);
    assert_int_equal(number(head + 8, 4), masked(head, 8));
    assert_int_equal(number(head + 12 + *bytes, 4), masked(head + 12, *bytes));
    *at = head + 16 + *bytes;
    return head + 12;
}

/* A field that has this key: field * 8 + wire type. Of bytes *n is how many; else what follows. */
static const uint8_t *field(const uint8_t *at, uint8_t key, size_t *n)
{
    assert_int_equal(at[0], key);
    if (key % 8 != 2)
        return at + 1;
    *n = at[1] & 127u;
    if (at[1] < 128)
        return at + 2;
    *n += 128u * at[2];
    return at + 3;
}

static uint8_t *read_events(const char *dir, uint64_t *bytes)
{
    char *path = NULL, *data = NULL;
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        if (strncmp(e->d_name, "events.out.tfevents.", 20) == 0) {
            assert_null(path);
            path = atom_path_join(dir, e->d_name);
        }
    closedir(d);
    assert_non_null(path);
    must(atom_file_read(path, 1 << 20, &data, bytes));
    atom_free(path);
    return (uint8_t *)data;
}

static void is_scalar(const uint8_t **at, const char *tag, float value)
{
    size_t n, tag_n;
    const uint8_t *scalar = field(*at, 1 * 8 + 2, &n), *name = field(scalar, 1 * 8 + 2, &tag_n);
    float got;
    assert_int_equal(tag_n, strlen(tag));
    assert_memory_equal(name, tag, tag_n);
    memcpy(&got, field(name + tag_n, 2 * 8 + 5, NULL), sizeof got);
    assert_true(got == value);
    assert_int_equal(name + tag_n + 5 - scalar, n);
    *at = scalar + n;
}

static void events(void **state)
{
    static const char tag[] = "train/a name that is rather long for what it stands for";
    const train_scalar scalars[] = {{"train/loss", 2.5}, {tag, -0.125}, {"x", 3e38}};
    scratch place;
    train_events *e = NULL;
    uint64_t bytes;
    size_t n;
    double wall;
    (void)state;
    assert_int_equal(castagnoli((const uint8_t *)"123456789", 9), 0xe3069283u);
    scratch_open(&place);
    must(train_events_open(place.dir, &e));
    must(train_events_add(e, 300, scalars, 3));
    must(train_events_add(e, 5, scalars, 0));
    train_events_close(&e);
    assert_null(e);
    uint8_t *file = read_events(place.dir, &bytes);
    const uint8_t *at = file, *end = file + bytes, *data = record(&at, end, &n);
    memcpy(&wall, field(data, 1 * 8 + 1, NULL), sizeof wall);
    assert_true(wall > 1e9 && wall < 1e11);
    assert_int_equal(*field(data + 9, 2 * 8 + 0, NULL), 0); /* step */
    const uint8_t *version = field(data + 11, 3 * 8 + 2, &n);
    assert_int_equal(n, 13);
    assert_memory_equal(version, "brain.Event:2", 13);

    data = record(&at, end, &n);
    const uint8_t *step = field(data + 9, 2 * 8 + 0, NULL);
    assert_int_equal((step[0] & 127) + 128 * step[1], 300);
    assert_true(step[0] & 128 && step[1] < 128);
    const uint8_t *summary = field(step + 2, 5 * 8 + 2, &n), *scalar = summary;
    is_scalar(&scalar, "train/loss", 2.5f);
    is_scalar(&scalar, tag, -0.125f);
    is_scalar(&scalar, "x", 3e38f);
    assert_int_equal(scalar - summary, n);
    data = record(&at, end, &n);
    assert_int_equal(*field(data + 9, 2 * 8 + 0, NULL), 5);
    assert_ptr_equal(at, end);
    atom_free(file);
    scratch_close(&place);
    assert_int_equal(train_events_open("/no/such/directory", &e), ATOM_E_RUNTIME);
}

/* --- marks ---------------------------------------------------------------------------------------- */

typedef struct fixture {
    graph *g;
    float *floats;
    uint64_t n;
} fixture;

static void open_fixture(fixture *f)
{
    graph_config config = {0};
    must(graph_preset_get("gpt2-124m", &config));
    config.vocab_size = 40;
    config.positions = 8;
    config.width = 16;
    config.heads = 2;
    config.inner = 64;
    config.layers = 2;
    must(graph_model_build(&config, ATOM_F32, 1, 8, &f->g));
    f->n = f->g->param_extent;
    f->floats = atom_alloc(f->n, sizeof *f->floats);
    assert_non_null(f->floats);
    for (uint64_t i = 0; i < f->n; i++)
        f->floats[i] = (float)i + 0.5f;
}

/* Gets everything in pieces of so many elements, from the first on or from the last on; the mark. */
static uint64_t got(const fixture *f, uint64_t piece, bool backwards, bool puts)
{
    train_mark *mark = NULL;
    float *copy = atom_alloc(f->n, sizeof *copy);
    assert_non_null(copy);
    memcpy(copy, f->floats, f->n * sizeof *copy);
    must(train_mark_open(f->g, &mark));
    file_vector seen = train_mark_over(mark, file_vector_memory(copy));
    for (uint64_t i = 0, pieces = (f->n + piece - 1) / piece; i < pieces; i++) {
        uint64_t first = (backwards ? pieces - 1 - i : i) * piece;
        uint64_t n = f->n - first < piece ? f->n - first : piece;
        float *to = atom_alloc(n, sizeof *to);
        assert_non_null(to);
        if (puts)
            must(seen.put(seen.ctx, first, n, f->floats + first));
        else
            must(seen.get(seen.ctx, first, n, to));
        if (!puts)
            assert_memory_equal(to, f->floats + first, n * sizeof *to);
        atom_free(to);
    }
    uint64_t hash = train_mark_hash(mark);
    assert_memory_equal(copy, f->floats, f->n * sizeof *copy);
    train_mark_close(&mark);
    assert_null(mark);
    atom_free(copy);
    return hash;
}

static void marks(void **state)
{
    fixture f = {0};
    (void)state;
    open_fixture(&f);
    const uint64_t whole = got(&f, f.n, false, false);
    assert_true(whole != 0);
    assert_int_equal(got(&f, 1, false, false), whole); /* however it passes by */
    assert_int_equal(got(&f, 7, true, false), whole);
    assert_int_equal(got(&f, 64, false, true), whole);
    assert_int_equal(got(&f, f.n - 1, true, true), whole);
    /* The first and the last number of each parameter is looked at. */
    for (uint32_t p = 0; p < f.g->n_params; p++) {
        const graph_param *param = &f.g->params[p];
        const uint64_t places[] = {param->offset, param->offset + (param->elements - 1) / 7 * 7};
        for (int i = 0; i < 2; i++) {
            f.floats[places[i]] += 1;
            assert_int_not_equal(got(&f, f.n, false, false), whole);
            f.floats[places[i]] -= 1;
        }
    }
    /* What is frozen stays out. */
    graph_param *first = (graph_param *)(uintptr_t)&f.g->params[0];
    first->frozen = true;
    const uint64_t rest = got(&f, f.n, false, false);
    assert_int_not_equal(rest, whole);
    f.floats[first->offset] += 1;
    assert_int_equal(got(&f, f.n, false, false), rest);
    atom_free(f.floats);
    graph_close(&f.g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events),
        cmocka_unit_test(marks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
