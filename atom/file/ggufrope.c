/*
 * Owns the rotary embedding in GGUF, both ways. One idea: what llama.cpp would compute from the keys
 * and tensors is what is written or read, with numbers of other ropes refused by name. Refuses
 * frequencies in a file that no config.json could say.
 */
#include "atom/file/ggufrope.h"

#include "atom/base/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { KEY_MAX = 96, HALF_MAX = 4096 };

static const char FREQS[] = "rope_freqs.weight", SHORT[] = "rope_factors_short.weight",
                  LONG[] = "rope_factors_long.weight";

bool file_gguf_is_rope(const char *tensor)
{
    return strcmp(tensor, FREQS) == 0 || strcmp(tensor, SHORT) == 0 || strcmp(tensor, LONG) == 0;
}

static const char *key(const char *arch, const char *rest, char text[KEY_MAX])
{
    snprintf(text, KEY_MAX, "%s.rope.%s", arch, rest);
    return text;
}

/* What YaRN multiplies by where attention_factor is not said. */
static double yarn_gain(double factor)
{
    return 0.1 * log(factor) + 1;
}

static int64_t half_of(const graph_config *c)
{
    return atom_rope_width(&c->rope, c->head_dim) / 2;
}

/* --- writing --------------------------------------------------------------------------------- */

/* Frequencies of "llama3" are divided by factors. */
static bool has_freqs(const graph_config *c)
{
    return c->family != GRAPH_GPT2 && c->rope.original > 0 && !c->rope.yarn;
}

atom_status file_gguf_check_rope(const graph_config *c)
{
    const graph_traits *traits = graph_family_traits(c->family);
    bool gemma =
        traits->windows == GRAPH_WINDOW_MOST && traits->local_rope != GRAPH_LOCAL_ROPE_SAME;
    if ((c->rope.yarn && gemma) || (c->long_rope.original && !traits->long_rope))
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "llama.cpp has no %s for models of type %s, so GGUF cannot hold this one",
                         c->rope.yarn ? "rope_type 'yarn'" : "rope_type 'longrope'", traits->name);
    return ATOM_OK;
}

static void put_real(file_gguf *w, const char *arch, const char *rest, double value)
{
    char text[KEY_MAX];
    file_gguf_put_f32(w, key(arch, rest, text), (float)value);
}

/* The gain that is asked for, over the one that comes by itself. */
static void put_gain(file_gguf *w, const char *arch, const atom_rope *rope, double usual)
{
    double gain = atom_rope_gain(rope);
    if ((float)gain < (float)usual || (float)gain > (float)usual)
        put_real(w, arch, "scaling.attn_factor", gain / usual);
}

static void put_yarn(file_gguf *w, const char *arch, const atom_rope *rope)
{
    char text[KEY_MAX];
    file_gguf_put_text(w, key(arch, "scaling.type", text), "yarn");
    put_real(w, arch, "scaling.factor", (double)rope->factor);
    file_gguf_put_u32(w, key(arch, "scaling.original_context_length", text),
                      (uint32_t)rope->original);
    put_gain(w, arch, rope, yarn_gain((double)rope->factor));
    if (rope->low < 1 || rope->low > 1)
        put_real(w, arch, "scaling.yarn_beta_slow", (double)rope->low);
    if (rope->high < 32 || rope->high > 32)
        put_real(w, arch, "scaling.yarn_beta_fast", (double)rope->high);
}

void file_gguf_put_rope(file_gguf *w, const graph_config *c)
{
    char text[KEY_MAX];
    const graph_traits *traits = graph_family_traits(c->family);
    const char *arch = traits->gguf;
    put_real(w, arch, "freq_base", (double)c->rope.theta);
    if (traits->gguf_pairs || traits->neox || c->rope.width)
        file_gguf_put_u32(w, key(arch, "dimension_count", text), 2 * (uint32_t)half_of(c));
    if (c->rope.yarn) {
        put_yarn(w, arch, &c->rope);
    } else if (c->long_rope.original) {
        file_gguf_put_u32(w, key(arch, "scaling.original_context_length", text),
                          (uint32_t)c->long_rope.original);
        put_real(w, arch, "scaling.attn_factor", atom_rope_gain(&c->rope));
    } else if (!has_freqs(c) && (c->rope.factor < 1 || c->rope.factor > 1)) {
        file_gguf_put_text(w, key(arch, "scaling.type", text), "linear");
        put_real(w, arch, "scaling.factor", (double)c->rope.factor);
    }
}

atom_status file_gguf_declare_rope(file_gguf *w, const graph_config *c)
{
    uint64_t half = (uint64_t)half_of(c);
    if (c->family == GRAPH_GPT2)
        return ATOM_OK;
    if (has_freqs(c))
        ATOM_TRY(file_gguf_declare(w, FREQS, FILE_GGUF_F32, 1, &half));
    if (c->long_rope.original) {
        ATOM_TRY(file_gguf_declare(w, LONG, FILE_GGUF_F32, 1, &half));
        ATOM_TRY(file_gguf_declare(w, SHORT, FILE_GGUF_F32, 1, &half));
    }
    return ATOM_OK;
}

atom_status file_gguf_write_rope(file_gguf *w, const graph_config *c)
{
    int64_t D = c->head_dim, half = half_of(c);
    atom_rope plain = {.theta = c->rope.theta, .factor = 1, .width = c->rope.width};
    if (c->family == GRAPH_GPT2)
        return ATOM_OK;
    for (int64_t i = 0; i < half && has_freqs(c); i++) {
        float factor = atom_rope_frequency(&plain, i, D) / atom_rope_frequency(&c->rope, i, D);
        ATOM_TRY(file_gguf_write(w, &factor, 1));
    }
    if (c->long_rope.original) {
        ATOM_TRY(file_gguf_write(w, c->long_rope.longer, (uint64_t)half));
        ATOM_TRY(file_gguf_write(w, c->long_rope.shorter, (uint64_t)half));
    }
    return ATOM_OK;
}

/* --- reading --------------------------------------------------------------------------------- */

typedef struct taking {
    const file_gguf_in *f;
    const char *arch;
    graph_config *c;
} taking;

static double real(const taking *t, const char *rest, double fallback)
{
    char text[KEY_MAX];
    return file_gguf_real(t->f, key(t->arch, rest, text), fallback);
}

static int64_t number(const taking *t, const char *rest, int64_t fallback)
{
    char text[KEY_MAX];
    return file_gguf_int(t->f, key(t->arch, rest, text), fallback);
}

/* One number for two channels of a head. */
static atom_status read_factors(const taking *t, const char *name, int64_t most, float *out)
{
    const file_gguf_in_tensor *tensor = file_gguf_find_tensor(t->f, name);
    int64_t half = half_of(t->c);
    if (!tensor)
        return atom_fail(ATOM_E_FORMAT, "%s: tensor %s is missing", t->f->path, name);
    if (tensor->rank != 1 || tensor->elements != (uint64_t)half || half > most)
        return atom_fail(ATOM_E_FORMAT,
                         "%s: %s has %llu numbers; heads with %lld rotated channels need half as "
                         "many, and at most %lld",
                         t->f->path, name, (unsigned long long)tensor->elements,
                         (long long)(2 * half), (long long)most);
    return file_gguf_read_f32(t->f, tensor, 0, tensor->elements, out);
}

/* The factors by which frequencies of "llama3" are divided, as this rope would have them. */
static bool same_factors(const atom_rope *rope, const float *factors, int64_t D)
{
    const atom_rope plain = {.theta = rope->theta, .factor = 1, .width = rope->width};
    for (int64_t i = 0; i < atom_rope_width(rope, D) / 2; i++) {
        float want = atom_rope_frequency(&plain, i, D) / atom_rope_frequency(rope, i, D);
        if (!(fabsf(factors[i] - want) <= 1e-5f * want))
            return false;
    }
    return true;
}

/* The file has the factors, not what they were made of: the one length of a power of two with
 * Llama 3's other numbers that gives them. */
static atom_status take_freqs(taking *t)
{
    float factors[HALF_MAX];
    int64_t D = t->c->head_dim;
    atom_rope rope = t->c->rope;
    ATOM_TRY(read_factors(t, FREQS, HALF_MAX, factors));
    rope.factor = roundf(factors[half_of(t->c) - 1] * 1000) / 1000;
    rope.low = 1;
    rope.high = 4;
    for (rope.original = 4; rope.original <= 1 << 24; rope.original *= 2) {
        if (same_factors(&rope, factors, D)) {
            t->c->rope = rope;
            return ATOM_OK;
        }
    }
    return atom_fail(ATOM_E_UNSUPPORTED,
                     "%s: rope_freqs.weight: these frequencies are not Llama 3's (low 1, high 4); "
                     "only those are supported",
                     t->f->path);
}

static atom_status take_original(const taking *t, int64_t fallback, int64_t *out)
{
    *out = number(t, "scaling.original_context_length", fallback);
    return *out >= 1 && *out <= INT32_MAX
               ? ATOM_OK
               : atom_fail(ATOM_E_FORMAT,
                           "%s: rope.scaling.original_context_length is missing or %lld; it must "
                           "be at least 1",
                           t->f->path, (long long)*out);
}

static bool is(double x, double wanted)
{
    return x >= wanted && x <= wanted;
}

/* usual: what comes by itself, without attn_factor. */
static atom_status take_gain(taking *t, double usual)
{
    double own = real(t, "scaling.attn_factor", 1), gain = usual * own;
    if (!(own >= 1e-6 && own <= 1e6))
        return atom_fail(ATOM_E_FORMAT, "%s: rope.scaling.attn_factor is %g; it must be above 0",
                         t->f->path, own);
    t->c->rope.gain = is((double)(float)gain, 1) ? 0 : (float)gain;
    return ATOM_OK;
}

static atom_status take_yarn(taking *t)
{
    atom_rope *rope = &t->c->rope;
    int64_t original;
    double factor = real(t, "scaling.factor", 1), share = real(t, "scaling.yarn_ext_factor", 1);
    double own = real(t, "scaling.yarn_attn_factor", 1),
           more = real(t, "scaling.yarn_log_multiplier", 0);
    if (!(factor >= 1 && factor <= 1e6))
        return atom_fail(ATOM_E_FORMAT,
                         "%s: rope.scaling.factor is %g; with YaRN it must be at "
                         "least 1",
                         t->f->path, factor);
    if (!is(share, 1) || !is(own, 1) || !is(more, 0))
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "%s: rope.scaling.yarn_ext_factor, yarn_attn_factor and "
                         "yarn_log_multiplier are supported only as 1, 1 and 0",
                         t->f->path);
    ATOM_TRY(take_original(t, t->c->positions, &original));
    rope->yarn = 1;
    rope->factor = (float)factor;
    rope->original = (float)original;
    rope->low = (float)real(t, "scaling.yarn_beta_slow", 1);
    rope->high = (float)real(t, "scaling.yarn_beta_fast", 32);
    return take_gain(t, yarn_gain((double)rope->factor));
}

static atom_status take_long(taking *t)
{
    ATOM_TRY(take_original(t, 0, &t->c->long_rope.original));
    ATOM_TRY(read_factors(t, LONG, ATOM_ROPE_DIVISORS_MAX, t->c->long_rope.longer));
    ATOM_TRY(read_factors(t, SHORT, ATOM_ROPE_DIVISORS_MAX, t->c->long_rope.shorter));
    return take_gain(t, 1);
}

/* How many channels of a head are turned. */
static atom_status take_width(taking *t)
{
    int64_t D = t->c->head_dim, width = number(t, "dimension_count", D);
    if (width == D)
        return ATOM_OK;
    if (!graph_family_traits(t->c->family)->partial)
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "%s: rope.dimension_count: rotary embeddings of a part of each head are "
                         "not supported for this architecture",
                         t->f->path);
    if (width < 2 || width > D || width % 2)
        return atom_fail(ATOM_E_FORMAT,
                         "%s: rope.dimension_count is %lld; it must be an even number of the %lld "
                         "channels of a head",
                         t->f->path, (long long)width, (long long)D);
    t->c->rope.width = (int32_t)width;
    return ATOM_OK;
}

static bool has(const taking *t, const char *tensor)
{
    return file_gguf_find_tensor(t->f, tensor) != NULL;
}

/* type: NULL where the file does not say it. */
static atom_status take_scaling(taking *t, const char *type)
{
    bool none = !type || strcmp(type, "none") == 0, yarn = type && strcmp(type, "yarn") == 0;
    bool longer = has(t, LONG) || has(t, SHORT);
    if (longer ? !(none || strcmp(type, "longrope") == 0) || has(t, FREQS) : yarn && has(t, FREQS))
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "%s: rope.scaling.type: '%.40s' together with frequencies in a tensor "
                         "is not supported",
                         t->f->path, type ? type : "none");
    if (longer)
        return take_long(t);
    if (yarn)
        return take_yarn(t);
    double gain = real(t, "scaling.attn_factor", 1);
    if (!is(gain, 1))
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "%s: rope.scaling.attn_factor is %g; only YaRN and LongRoPE have one",
                         t->f->path, gain);
    if (!none && strcmp(type, "linear") != 0)
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "%s: rope.scaling.type: '%.40s' is not supported; linear, yarn and "
                         "longrope with its tensors are",
                         t->f->path, type);
    /* without a type llama.cpp takes the factor for a linear one; older files have another key */
    double factor = type && none ? 1 : real(t, "scaling.factor", real(t, "scale_linear", 1));
    if (has(t, FREQS) && !type && !is(factor, 1))
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "%s: rope.scaling.factor together with frequencies in a tensor is not "
                         "supported",
                         t->f->path);
    t->c->rope.factor = (float)factor;
    return has(t, FREQS) ? take_freqs(t) : ATOM_OK;
}

atom_status file_gguf_take_rope(const file_gguf_in *f, const char *arch, graph_config *c)
{
    char text[KEY_MAX];
    taking t = {.f = f, .arch = arch, .c = c};
    c->rope = (atom_rope){.theta = (float)real(&t, "freq_base", 10000), .factor = 1};
    if (c->head_dim < 2 || c->head_dim > 2 * HALF_MAX)
        return ATOM_OK; /* graph_model_check says so */
    ATOM_TRY(take_width(&t));
    char *type = file_gguf_text(f, key(arch, "scaling.type", text));
    atom_status st = take_scaling(&t, type);
    atom_free(type);
    return st == ATOM_OK ? file_gguf_check_rope(c) : st;
}
