/*
 * Owns the rotary embedding in config.json, both ways, as transformers 4 (rope_scaling, with
 * rope_theta beside it) and 5 (rope_parameters, with it inside) write it. One idea: both objects are
 * laid over each other and read once, and both are written. The numbers that a type leaves out are
 * those of transformers' modeling_rope_utils.py. Refuses other types, keys that a type has not, and
 * objects that contradict each other. Source: docs/design/files.md#model-directories.
 */
#include "atom/file/hfconfig.h"

#include "atom/base/mem.h"

#include <math.h>
#include <string.h>

enum { DEFAULT, LINEAR, LLAMA3, YARN, LONGROPE, DYNAMIC, TYPE_N };
static const char *const type_names[TYPE_N] = {"default", "linear",   "llama3",
                                               "yarn",    "longrope", "dynamic"};
enum { OF_YARN = 1 << YARN, OF_LONGROPE = 1 << LONGROPE, OF_ALL = (1 << TYPE_N) - 1 };

static const char original_key[] = "original_max_position_embeddings";

typedef struct taking {
    const char *path;
    const json_t *root;
    json_t *rope;        /* both objects together */
    const json_t *local; /* what rope_parameters says of layers with a window, or NULL */
    bool typed;          /* rope_parameters has an object for each type of layer */
    int type;
    graph_config *c;
} taking;

/* Phi-3's older files have other words for longrope, and its class takes them for that. */
static int find_type(const graph_config *c, const char *name)
{
    bool phi = graph_family_traits(c->family)->long_rope;
    if (phi && (strcmp(name, "su") == 0 || strcmp(name, "yarn") == 0))
        return LONGROPE;
    for (int type = 0; type < TYPE_N; type++) {
        if (strcmp(name, type_names[type]) == 0)
            return type;
    }
    return TYPE_N;
}

static atom_status check_keys(const taking *t, const char *key, const json_t *rope, int type)
{
    static const struct {
        const char *name;
        int types;
    } known[] = {{"rope_type", OF_ALL},
                 {"type", OF_ALL},
                 {"rope_theta", OF_ALL},
                 {"factor", OF_ALL},
                 {"low_freq_factor", OF_ALL & ~OF_YARN & ~OF_LONGROPE},
                 {"high_freq_factor", OF_ALL & ~OF_YARN & ~OF_LONGROPE},
                 {"original_max_position_embeddings", OF_ALL},
                 {"partial_rotary_factor", OF_ALL},
                 {"attention_factor", OF_YARN | OF_LONGROPE},
                 {"beta_fast", OF_YARN},
                 {"beta_slow", OF_YARN},
                 {"truncate", OF_YARN},
                 {"short_factor", OF_LONGROPE},
                 {"long_factor", OF_LONGROPE}};
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)rope, name, value)
    {
        bool found = json_is_null(value);
        for (size_t i = 0; i < sizeof known / sizeof *known && !found; i++)
            found = strcmp(name, known[i].name) == 0 && (known[i].types & 1 << type);
        if (!found)
            return atom_fail(ATOM_E_UNSUPPORTED, "%s: %s: '%.64s' is not known to rope_type '%s'",
                             t->path, key, name, type_names[type]);
    }
    return ATOM_OK;
}

/* Where there is one object for each type of layer, that of layers that see everything. */
static atom_status open_types(taking *t, const char *key, const json_t **rope)
{
    const json_t *full = atom_json_present(*rope, "full_attention");
    const json_t *local = atom_json_present(*rope, "sliding_attention");
    bool typed = graph_family_traits(t->c->family)->local_rope != GRAPH_LOCAL_ROPE_NONE;
    const char *name;
    json_t *value;
    if (!full && !local && typed && *rope && strcmp(key, "rope_parameters") == 0)
        return atom_fail(
            ATOM_E_FORMAT,
            "%s: %s must hold an object for full_attention and one for sliding_attention", t->path,
            key);
    if (!full && !local)
        return ATOM_OK;
    if (!typed)
        return file_not_supported(t->path, key, "one for each type of layer is not supported");
    if (strcmp(key, "rope_parameters") != 0)
        return file_not_supported(t->path, key,
                                  "one for each type of layer must be called rope_parameters");
    json_object_foreach((json_t *)(uintptr_t)*rope, name, value)
    {
        if ((value != full && value != local) || !json_is_object(value))
            return atom_fail(ATOM_E_FORMAT,
                             "%s: %s must hold one object for full_attention and one for "
                             "sliding_attention, and nothing else",
                             t->path, key);
    }
    t->typed = true;
    t->local = local;
    *rope = full;
    return ATOM_OK;
}

/* What an object of numbers for the rotary embedding may hold; an empty one is none. */
static atom_status open_rope(taking *t, const char *key, const json_t **rope, int *type)
{
    const char *path = t->path;
    *rope = atom_json_present(t->root, key);
    *type = DEFAULT;
    if (*rope && !json_is_object(*rope))
        return atom_fail(ATOM_E_FORMAT, "%s: %s must be an object", path, key);
    if (!json_object_size(*rope))
        *rope = NULL;
    ATOM_TRY(open_types(t, key, rope));
    if (!json_object_size(*rope))
        *rope = NULL;
    const json_t *says = atom_json_present(*rope, "rope_type"),
                 *old = atom_json_present(*rope, "type");
    says = says ? says : old;
    if ((says && !json_is_string(says)) || (old && !json_equal(says, old)))
        return atom_fail(ATOM_E_FORMAT, "%s: rope_type must be a string, and type the same", path);
    if (says)
        *type = find_type(t->c, json_string_value(says));
    if (*type == TYPE_N)
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "%s: rope_type: '%.64s' is not supported; default, linear, llama3, yarn, "
                         "longrope and dynamic are",
                         path, json_string_value(says));
    return check_keys(t, key, *rope, *type);
}

/* transformers knows no rope_parameters where there is a rope_scaling: may this key of them count, too? */
static bool is_known_beside(const taking *t, const json_t *scaling, const json_t *parameters,
                            const char *key)
{
    const json_t *a = atom_json_present(scaling, key), *b = atom_json_present(parameters, key);
    if (!scaling || !b || t->typed)
        return true;
    return a ? json_equal(a, b) || json_number_value(a) == json_number_value(b)
             : atom_json_present(t->root, key) != NULL; /* of which check_twice knows more */
}

/* null says nothing. */
static int lay_over(json_t *rope, const json_t *from)
{
    const char *name;
    json_t *value;
    int failed = 0;
    json_object_foreach((json_t *)(uintptr_t)from, name, value)
    {
        failed = failed || (!json_is_null(value) && json_object_set(rope, name, value));
    }
    return failed;
}

/* Lays them over each other where both are there. */
static atom_status join(taking *t)
{
    static const char *const same[] = {"factor",
                                       "attention_factor",
                                       "short_factor",
                                       "long_factor",
                                       "low_freq_factor",
                                       "high_freq_factor",
                                       "original_max_position_embeddings",
                                       "beta_fast",
                                       "beta_slow"};
    const json_t *scaling, *parameters;
    int type, newer;
    ATOM_TRY(open_rope(t, "rope_scaling", &scaling, &type));
    ATOM_TRY(open_rope(t, "rope_parameters", &parameters, &newer));
    bool agree = (!scaling || !parameters || type == newer) &&
                 is_known_beside(t, scaling, parameters, "rope_theta") &&
                 is_known_beside(t, scaling, parameters, "partial_rotary_factor");
    for (size_t i = 0; i < sizeof same / sizeof *same && scaling && parameters; i++) {
        const json_t *a = atom_json_present(scaling, same[i]),
                     *b = atom_json_present(parameters, same[i]);
        /* both versions prefer rope_scaling, so that it may say more; the length may be beside it */
        bool beside =
            strcmp(same[i], original_key) == 0 && atom_json_present(t->root, original_key);
        agree =
            agree && ((!a && !b) || (a && !b && i > 0) || (b && !a && beside) || json_equal(a, b));
    }
    if (!agree)
        return atom_fail(ATOM_E_FORMAT,
                         "%s: rope_scaling and rope_parameters contradict each other; remove the "
                         "wrong one",
                         t->path);
    t->type = scaling ? type : newer;
    t->rope = json_object();
    if (!t->rope || lay_over(t->rope, parameters) || lay_over(t->rope, scaling))
        return atom_fail_memory("config.json", 0);
    return ATOM_OK;
}

/* Are there two numbers, one in an inner object and one beside it, that differ? */
static atom_status check_twice(const taking *t, const json_t *inner, const char *inner_key,
                               const char *key, bool *differ)
{
    const json_t *inside = atom_json_present(inner, inner_key);
    const json_t *beside = atom_json_present(t->root, key);
    float unused;
    *differ = false;
    if (!inside || !beside || json_equal(inside, beside))
        return ATOM_OK;
    ATOM_TRY(file_take_real(t->path, inner, inner_key, 0, &unused));
    ATOM_TRY(file_take_real(t->path, t->root, key, 0, &unused));
    *differ = json_number_value(inside) != json_number_value(beside);
    return ATOM_OK;
}

/* Turns only the first channels of every head. */
static atom_status take_part(const taking *t)
{
    graph_config *c = t->c;
    const char *key = "partial_rotary_factor";
    const json_t *inside = atom_json_present(t->rope, key);
    const json_t *part = inside ? inside : atom_json_present(t->root, key);
    bool whole = file_is_neutral(part, 1), differ;
    ATOM_TRY(check_twice(t, t->rope, key, key, &differ));
    if (differ)
        return atom_fail(ATOM_E_FORMAT,
                         "%s: partial_rotary_factor is there twice with different numbers",
                         t->path);
    if (!whole && !graph_family_traits(c->family)->partial)
        return file_not_supported(
            t->path, "partial_rotary_factor",
            "models of this model_type rotate whole heads; if the key has no effect, remove it");
    if (whole)
        return ATOM_OK;
    double x = json_number_value(part);
    int64_t width = x > 0 && x <= 1 ? (int64_t)((double)c->head_dim * x) : 0;
    if (width < 2 || width > INT32_MAX)
        return atom_fail(ATOM_E_FORMAT,
                         "%s: partial_rotary_factor must be at most 1 and leave at least two of "
                         "the %lld channels of a head",
                         t->path, (long long)c->head_dim);
    c->rope.width = width == c->head_dim ? 0 : (int32_t)width;
    return ATOM_OK;
}

/* Inside or beside: transformers 4 takes the one inside, 5 the one beside. */
static atom_status take_original(const taking *t, int64_t fallback, int64_t *original)
{
    const json_t *inside = atom_json_present(t->rope, original_key);
    bool differ;
    ATOM_TRY(check_twice(t, t->rope, original_key, original_key, &differ));
    if (differ)
        return atom_fail(
            ATOM_E_FORMAT,
            "%s: %s is %.15g beside the rope's keys but %.15g among them; make them the same",
            t->path, original_key, json_number_value(atom_json_present(t->root, original_key)),
            json_number_value(inside));
    return file_take_int(t->path, inside ? t->rope : t->root, original_key, NULL, fallback,
                         original);
}

/* What scores are multiplied by, in a way: of 1 nothing is kept. */
static atom_status take_gain(const taking *t, double usual)
{
    ATOM_TRY(file_take_real(t->path, t->rope, "attention_factor", usual, &t->c->rope.gain));
    if (!(t->c->rope.gain > 0))
        return atom_fail(ATOM_E_FORMAT, "%s: attention_factor must be above 0", t->path);
    if (t->c->rope.gain == 1)
        t->c->rope.gain = 0;
    return ATOM_OK;
}

static atom_status take_llama3(const taking *t)
{
    int64_t original;
    ATOM_TRY(file_take_real(t->path, t->rope, "low_freq_factor", 1, &t->c->rope.low));
    ATOM_TRY(file_take_real(t->path, t->rope, "high_freq_factor", 4, &t->c->rope.high));
    ATOM_TRY(take_original(t, t->c->positions, &original));
    t->c->rope.original = (float)original;
    return ATOM_OK;
}

static atom_status take_yarn(const taking *t)
{
    graph_config *c = t->c;
    int64_t original;
    ATOM_TRY(file_check_flag(t->path, t->rope, "truncate", true));
    ATOM_TRY(file_take_real(t->path, t->rope, "beta_slow", 1, &c->rope.low));
    ATOM_TRY(file_take_real(t->path, t->rope, "beta_fast", 32, &c->rope.high));
    ATOM_TRY(take_original(t, c->positions, &original));
    if (!(c->rope.factor >= 1))
        return atom_fail(ATOM_E_FORMAT, "%s: rope_type 'yarn' has factor %g; it must be at least 1",
                         t->path, (double)c->rope.factor);
    c->rope.original = (float)original;
    c->rope.yarn = 1;
    return take_gain(t, 0.1 * log((double)c->rope.factor) + 1);
}

static atom_status take_list(const taking *t, const char *key, float *out)
{
    const json_t *list = atom_json_present(t->rope, key);
    int64_t half = atom_rope_width(&t->c->rope, t->c->head_dim) / 2;
    bool good = json_is_array(list) && (int64_t)json_array_size(list) == half &&
                half <= ATOM_ROPE_DIVISORS_MAX;
    for (int64_t i = 0; i < half && good; i++) {
        double x = json_number_value(json_array_get(list, (size_t)i));
        good = (float)x > 0 && (float)x <= 1e6f;
        out[i] = good ? (float)x : 0;
    }
    if (good)
        return ATOM_OK;
    return atom_fail(ATOM_E_FORMAT,
                     "%s: %s must be an array of %lld numbers above 0, one for two channels of a "
                     "head (at most %d)",
                     t->path, key, (long long)half, ATOM_ROPE_DIVISORS_MAX);
}

static double long_gain(const graph_config *c)
{
    double original = (double)c->long_rope.original, factor = (double)c->positions / original;
    return factor <= 1 || original <= 1 ? 1 : sqrt(1 + log(factor) / log(original));
}

static atom_status take_long(const taking *t)
{
    graph_config *c = t->c;
    const char *key = original_key;
    float factor;
    if (!atom_json_present(t->rope, key) && !atom_json_present(t->root, key))
        return atom_fail(ATOM_E_FORMAT, "%s: rope_type 'longrope' has no %s", t->path, key);
    ATOM_TRY(take_original(t, 0, &c->long_rope.original));
    double ratio = (double)c->positions / (double)c->long_rope.original;
    ATOM_TRY(file_take_real(t->path, t->rope, "factor", ratio, &factor));
    if (fabs((double)factor / ratio - 1) > 1e-5)
        return atom_fail(ATOM_E_FORMAT,
                         "%s: factor is %g, but max_position_embeddings is %g times %s; correct "
                         "the wrong one",
                         t->path, (double)factor, ratio, key);
    ATOM_TRY(take_list(t, "short_factor", c->long_rope.shorter));
    ATOM_TRY(take_list(t, "long_factor", c->long_rope.longer));
    return take_gain(t, long_gain(c));
}

/* Up to max_position_embeddings, and atom takes no longer texts, dynamic is default. */
static atom_status take_dynamic(const taking *t)
{
    int64_t original;
    ATOM_TRY(file_take_int(t->path, t->rope, original_key, NULL, t->c->positions, &original));
    return original >= t->c->positions
               ? ATOM_OK
               : atom_fail(
                     ATOM_E_UNSUPPORTED,
                     "%s: rope_type 'dynamic' depends on the length of the text from %lld tokens "
                     "on, which is not supported; reduce max_position_embeddings to that",
                     t->path, (long long)original);
}

static atom_status fail_theta(const taking *t)
{
    return atom_fail(ATOM_E_FORMAT,
                     "%s: rope_theta is missing outside of rope_scaling; versions of transformers "
                     "take different numbers then, so write down the one that it was trained with",
                     t->path);
}

/* A family whose classes have different defaults has none. transformers 4 takes the one beside, 5 the one inside. */
static atom_status take_theta(const taking *t)
{
    const char *key = "rope_theta";
    const json_t *inside = atom_json_present(t->rope, key);
    const json_t *beside = atom_json_present(t->root, key);
    float *theta = &t->c->rope.theta;
    bool differ, scaling = !atom_json_present(t->root, "rope_parameters"); /* inside of that */
    if (!beside && (inside ? scaling && (float)json_number_value(inside) != *theta : *theta == 0))
        return fail_theta(t);
    ATOM_TRY(check_twice(t, t->rope, key, key, &differ));
    if (differ)
        return atom_fail(ATOM_E_FORMAT,
                         "%s: rope_theta is %g outside of rope_parameters but %g inside; make "
                         "them the same",
                         t->path, json_number_value(beside), json_number_value(inside));
    return file_take_real(t->path, inside ? t->rope : t->root, key, (double)*theta, theta);
}

static atom_status take_all(taking *t)
{
    graph_config *c = t->c;
    bool factor = atom_json_present(t->rope, "factor") != NULL;
    ATOM_TRY(take_theta(t));
    ATOM_TRY(take_part(t));
    if (t->type == DEFAULT && !file_is_neutral(atom_json_present(t->rope, "factor"), 1))
        return atom_fail(ATOM_E_FORMAT, "%s: there is a factor, but no rope_type that uses it",
                         t->path);
    if (t->type == LONGROPE)
        return take_long(t);
    if (t->type == DYNAMIC)
        return take_dynamic(t);
    if (t->type == DEFAULT)
        return ATOM_OK;
    if (!factor)
        return atom_fail(ATOM_E_FORMAT, "%s: rope_type '%s' has no factor", t->path,
                         type_names[t->type]);
    ATOM_TRY(file_take_real(t->path, t->rope, "factor", 1, &c->rope.factor));
    return t->type == LLAMA3 ? take_llama3(t) : t->type == YARN ? take_yarn(t) : ATOM_OK;
}

/* What all families say of layers with a window, if they have another: nothing is scaled. */
static atom_status check_local(const taking *t)
{
    const json_t *type = atom_json_present(t->local, "rope_type");
    if (type && strcmp(json_is_string(type) ? json_string_value(type) : "", "default") != 0)
        return file_not_supported(t->path, "sliding_attention: rope_type",
                                  "only default is supported");
    if (t->local)
        ATOM_TRY(check_keys(t, "sliding_attention", t->local, DEFAULT));
    if (!file_is_neutral(atom_json_present(t->local, "factor"), 1) ||
        !file_is_neutral(atom_json_present(t->local, "partial_rotary_factor"), 1))
        return file_not_supported(t->path, "sliding_attention", "it may not be scaled");
    return ATOM_OK;
}

/* A base of their own. */
static atom_status take_own(const taking *t)
{
    const char *key = "rope_local_base_freq";
    bool inside = atom_json_present(t->local, "rope_theta") != NULL, differ;
    ATOM_TRY(check_twice(t, t->local, "rope_theta", key, &differ));
    if (differ)
        return atom_fail(ATOM_E_FORMAT,
                         "%s: %s and rope_parameters contradict each other; remove the wrong one",
                         t->path, key);
    return file_take_real(t->path, inside ? t->local : t->root, inside ? "rope_theta" : key,
                          (double)t->c->local_theta, &t->c->local_theta);
}

/* The others' base, which a file of transformers 5 says once more; else that takes its default, whatever stands beside. */
static atom_status take_same(const taking *t)
{
    const char *key = "rope_theta";
    graph_config *c = t->c;
    if (t->typed && !atom_json_present(t->local, key))
        return fail_theta(t);
    ATOM_TRY(file_take_real(t->path, t->local, key, (double)c->rope.theta, &c->local_theta));
    return c->local_theta == c->rope.theta
               ? ATOM_OK
               : atom_fail(
                     ATOM_E_UNSUPPORTED,
                     "%s: rope_theta is %g for layers with a window and %g for the others; in "
                     "models of this model_type only one base for both is supported",
                     t->path, (double)c->local_theta, (double)c->rope.theta);
}

static atom_status take_local(const taking *t)
{
    graph_local_rope local = graph_family_traits(t->c->family)->local_rope;
    if (local == GRAPH_LOCAL_ROPE_NONE)
        return ATOM_OK;
    ATOM_TRY(check_local(t));
    return local == GRAPH_LOCAL_ROPE_OWN ? take_own(t) : take_same(t);
}

atom_status file_rope_take(const char *path, const json_t *root, graph_config *c)
{
    taking t = {.path = path, .root = root, .c = c};
    atom_status st = join(&t);
    if (st == ATOM_OK)
        st = take_all(&t);
    if (st == ATOM_OK)
        st = take_local(&t);
    json_decref(t.rope);
    return st;
}

/* --- writing --------------------------------------------------------------------------------- */

static int type_of(const graph_config *c)
{
    const atom_rope *r = &c->rope;
    return c->long_rope.original            ? LONGROPE
           : r->yarn                        ? YARN
           : r->original > 0                ? LLAMA3
           : r->factor < 1 || r->factor > 1 ? LINEAR
                                            : DEFAULT;
}

static int set_real(json_t *rope, const char *key, float value)
{
    return json_object_set_new(rope, key, json_real(file_neat(value))) < 0;
}

static int set_list(json_t *rope, const char *key, const float *values, int64_t n)
{
    json_t *list = json_array();
    int failed = !list;
    for (int64_t i = 0; i < n && !failed; i++)
        failed = json_array_append_new(list, json_real(file_neat(values[i]))) < 0;
    failed = failed || json_object_set(rope, key, list) < 0;
    json_decref(list);
    return failed;
}

static int set_long(json_t *rope, const graph_config *c, bool parameters)
{
    int64_t half = atom_rope_width(&c->rope, c->head_dim) / 2;
    float gain = (float)atom_rope_gain(&c->rope);
    return set_list(rope, "short_factor", c->long_rope.shorter, half) ||
           set_list(rope, "long_factor", c->long_rope.longer, half) ||
           (gain != (float)long_gain(c) && set_real(rope, "attention_factor", gain)) ||
           (parameters && json_object_set_new(rope, "original_max_position_embeddings",
                                              json_integer((json_int_t)c->long_rope.original)) < 0);
}

static int set_scaled(json_t *rope, const graph_config *c, int type)
{
    const atom_rope *r = &c->rope;
    int failed = set_real(rope, "factor", r->factor);
    if (type == LLAMA3)
        failed = failed || set_real(rope, "low_freq_factor", r->low) ||
                 set_real(rope, "high_freq_factor", r->high);
    if (type == YARN)
        failed = failed || set_real(rope, "beta_slow", r->low) ||
                 set_real(rope, "beta_fast", r->high) ||
                 set_real(rope, "attention_factor", (float)atom_rope_gain(r));
    if (type != LINEAR)
        failed = failed || json_object_set_new(rope, "original_max_position_embeddings",
                                               json_integer((json_int_t)r->original)) < 0;
    return failed;
}

/* A number of which transformers makes the width again, cutting off what is behind the point. */
json_t *file_rope_part(const graph_config *c)
{
    int64_t width = atom_rope_width(&c->rope, c->head_dim);
    double D = (double)c->head_dim, part = (double)width / D;
    while ((int64_t)(D * part) < width)
        part = nextafter(part, 2);
    return json_real(part);
}

/* rope_scaling of 4 (null: none), or rope_parameters of 5. Phi-3's class of 4 takes three keys, one of them "type". */
static json_t *rope_json(const graph_config *c, bool parameters)
{
    int type = type_of(c), failed = 0;
    if (type == DEFAULT && !parameters)
        return json_null();
    json_t *rope = json_pack("{s:s}", type == LONGROPE && !parameters ? "type" : "rope_type",
                             type_names[type]);
    failed = !rope || (parameters && set_real(rope, "rope_theta", c->rope.theta)) ||
             (parameters && c->rope.width &&
              json_object_set_new(rope, "partial_rotary_factor", file_rope_part(c)) < 0) ||
             (type == LONGROPE && set_long(rope, c, parameters)) ||
             (type != LONGROPE && type != DEFAULT && set_scaled(rope, c, type));
    if (!failed)
        return rope;
    json_decref(rope);
    return NULL;
}

static bool says_dynamic(const json_t *root, const char *key)
{
    const json_t *rope = json_object_get(root, key),
                 *full = json_object_get(rope, "full_attention");
    rope = full ? full : rope;
    const json_t *says = json_object_get(rope, "rope_type");
    const char *name = json_string_value(says ? says : json_object_get(rope, "type"));
    return name && strcmp(name, type_names[DYNAMIC]) == 0;
}

/* For transformers 5, of a family whose layers with a window have another. */
static int set_local(json_t *root, const graph_config *c)
{
    json_t *types =
        json_pack("{s:o, s:{s:s, s:f}}", "full_attention", rope_json(c, true), "sliding_attention",
                  "rope_type", type_names[DEFAULT], "rope_theta", file_neat(c->local_theta));
    bool own = graph_family_traits(c->family)->local_rope == GRAPH_LOCAL_ROPE_OWN;
    return (own && set_real(root, "rope_local_base_freq", c->local_theta)) ||
           json_object_set_new(root, "rope_parameters", types) < 0;
}

/* What a file says of longer texts than atom takes stays as it is. */
int file_rope_set(json_t *root, const graph_config *c)
{
    if (says_dynamic(root, "rope_scaling") || says_dynamic(root, "rope_parameters"))
        return 0;
    bool local = graph_family_traits(c->family)->local_rope != GRAPH_LOCAL_ROPE_NONE;
    return set_real(root, "rope_theta", c->rope.theta) ||
           json_object_set_new(root, "rope_scaling", rope_json(c, false)) < 0 ||
           (local ? set_local(root, c)
                  : json_object_set_new(root, "rope_parameters", rope_json(c, true)) < 0) ||
           (c->rope.width &&
            json_object_set_new(root, "partial_rotary_factor", file_rope_part(c)) < 0) ||
           (c->long_rope.original &&
            json_object_set_new(root, "original_max_position_embeddings",
                                json_integer((json_int_t)c->long_rope.original)) < 0);
}
