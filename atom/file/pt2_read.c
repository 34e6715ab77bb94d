/*
 * Owns the archive of a .pt2: which entries there are, the JSON in them, and the raw tensors. One
 * idea: two small JSON files say for each tensor which entry holds it and in what shape; all of
 * that is checked here, so that evaluating the graph can take tensors for granted. Refuses pickled
 * tensors, strided ones, and the archives of older versions, which were pickles.
 */
#include "atom/file/pt2_inner.h"

#include "atom/base/dtype.h"
#include "atom/base/json.h"
#include "atom/base/mem.h"

#include <string.h>

static const uint64_t JSON_BYTES_MAX = (uint64_t)1 << 28;
enum { TENSORS_MAX = 1 << 16 };

bool pt2_size_of(const json_t *size, int64_t *out)
{
    const json_t *value = json_object_get(size, "as_int");
    if (!value)
        value =
            json_object_get(json_object_get(json_object_get(size, "as_expr"), "hint"), "as_int");
    if (!json_is_integer(value))
        return false;
    *out = json_integer_value(value);
    return true;
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* "ROOT/models/NAME.json", the only one. */
static const file_zip_entry *find_model(const file_zip *zip, uint32_t *n)
{
    const file_zip_entry *found = NULL;
    *n = 0;
    for (uint32_t i = 0; i < zip->n_entries; i++) {
        const char *name = zip->entries[i].name, *at = strstr(name, "models/");
        if (at && (at == name || at[-1] == '/') && ends_with(name, ".json") &&
            !strchr(at + 7, '/')) {
            found = &zip->entries[i];
            ++*n;
        }
    }
    return found;
}

static atom_status load_json(file_zip *zip, const char *name, bool must, json_t **out)
{
    const file_zip_entry *e = file_zip_find(zip, name);
    char *text = NULL;
    if (!e && !must) {
        *out = json_object();
        return *out ? ATOM_OK : atom_fail_memory("JSON", 64);
    }
    if (!e)
        return atom_fail(ATOM_E_FORMAT,
                         "%s has no %s; export the model again with torch 2.9 or later", zip->path,
                         name);
    atom_status st = ATOM_OK;
    ATOM_TRY(file_zip_load(zip, e, JSON_BYTES_MAX, &text));
    st = atom_json_parse(name, text, (size_t)e->bytes, JSON_ALLOW_NUL, out);
    if (st != ATOM_OK)
        st = atom_fail_in(st, "%s: ", zip->path);
    atom_free(text);
    return st;
}

bool pt2_is_complex(int dtype)
{
    return dtype == PT2_C64 || dtype == PT2_C128;
}

static uint64_t bytes_each(int dtype)
{
    switch (dtype) {
    case PT2_BOOL:
        return 1;
    case PT2_F16:
    case PT2_BF16:
        return 2;
    case PT2_F32:
        return 4;
    case PT2_F64:
    case PT2_I64:
    case PT2_C64:
        return 8;
    case PT2_C128:
        return 16;
    default:
        return 0;
    }
}

/* The shape, which must be packed. */
static atom_status take_shape(const pt2_archive *a, const json_t *meta, pt2_tensor *t)
{
    const json_t *sizes = json_object_get(meta, "sizes"), *steps = json_object_get(meta, "strides");
    int64_t offset = 0, step, packed = 1;
    t->rank = (uint32_t)json_array_size(sizes);
    t->dtype = (int)json_integer_value(json_object_get(meta, "dtype"));
    if (json_array_size(sizes) > PT2_RANK_MAX || json_array_size(steps) != t->rank)
        return atom_fail(ATOM_E_FORMAT, "%s: tensor '%.128s' has no shape", a->zip->path, t->name);
    for (uint32_t i = t->rank; i-- > 0;) {
        if (!pt2_size_of(json_array_get(sizes, i), &t->dims[i]) || t->dims[i] < 1 ||
            t->dims[i] > INT32_MAX || packed > ((int64_t)1 << 42) / t->dims[i])
            return atom_fail(ATOM_E_FORMAT, "%s: tensor '%.128s' has an impossible shape",
                             a->zip->path, t->name);
        if (!pt2_size_of(json_array_get(steps, i), &step) || (step != packed && t->dims[i] > 1))
            return atom_fail(
                ATOM_E_UNSUPPORTED,
                "%s: tensor '%.128s' is a view of another; make it contiguous() before "
                "the export",
                a->zip->path, t->name);
        packed *= t->dims[i];
    }
    if (!pt2_size_of(json_object_get(meta, "storage_offset"), &offset) || offset != 0)
        return atom_fail(ATOM_E_UNSUPPORTED, "%s: tensor '%.128s' is a part of another; clone() it",
                         a->zip->path, t->name);
    t->elements = packed;
    return ATOM_OK;
}

/* What model_weights_config.json or the constants' say of one tensor. */
static atom_status take_place(pt2_archive *a, const char *root, const char *folder,
                              const json_t *row, pt2_tensor *t)
{
    const char *file = json_string_value(json_object_get(row, "path_name"));
    if (!file)
        return atom_fail(ATOM_E_FORMAT, "%s: tensor '%.128s' has no data", a->zip->path, t->name);
    if (json_is_true(json_object_get(row, "use_pickle")))
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "%s: tensor '%.128s' is pickled, and pickles are never read; use plain "
                         "tensors",
                         a->zip->path, t->name);
    const json_t *meta = json_object_get(row, "tensor_meta");
    ATOM_TRY(take_shape(a, meta, t));
    t->frozen = json_is_false(json_object_get(meta, "requires_grad"));
    char *name = atom_format("%s%s%s", root, folder, file);
    if (!name)
        return atom_fail_memory("a name", strlen(root));
    t->entry = file_zip_find(a->zip, name);
    atom_free(name);
    uint64_t each = bytes_each(t->dtype);
    if (!each || (t->parameter && pt2_is_complex(t->dtype)))
        return atom_fail(
            ATOM_E_UNSUPPORTED, "%s: tensor '%.128s' %s", a->zip->path, t->name,
            pt2_is_complex(t->dtype)
                ? "is a parameter of complex numbers; keep real and imaginary parts in two"
                : "has a type that atom does not read; it reads bool, int64, floating point, and "
                  "complex64 and complex128 of buffers");
    if (!t->entry || t->entry->bytes != (uint64_t)t->elements * each)
        return atom_fail(ATOM_E_FORMAT, "%s: tensor '%.128s' has no data of its size", a->zip->path,
                         t->name);
    for (uint32_t i = 0; i < a->n_tensors && t->first < 0; i++)
        if (a->tensors[i].entry == t->entry && a->tensors[i].elements == t->elements)
            t->first = (int32_t)i;
    t->first = t->first < 0 ? (int32_t)a->n_tensors : t->first;
    return ATOM_OK;
}

static const char *text_at(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

/* One of the graph's inputs: a tensor of the archive, or what the caller gives. */
static atom_status take_input(pt2_archive *a, const char *root, const json_t *spec)
{
    const json_t *p = json_object_get(spec, "parameter"), *b = json_object_get(spec, "buffer"),
                 *c = json_object_get(spec, "tensor_constant"),
                 *it = p   ? p
                       : b ? b
                           : c;
    const json_t *table = a->weights;
    const char *folder = "data/weights/";
    pt2_tensor t = {.first = -1, .parameter = p != NULL};
    if (!it && json_object_get(spec, "user_input"))
        return ATOM_OK;
    if (!it)
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "%s: the exported program has an input of a kind that atom does not read",
                         a->zip->path);
    t.name = text_at(it, p ? "parameter_name" : b ? "buffer_name" : "tensor_constant_name");
    t.value = text_at(json_object_get(it, "arg"), "name");
    t.persistent = p || (b && !json_is_false(json_object_get(b, "persistent")));
    if (!t.name || !t.value)
        return atom_fail(ATOM_E_FORMAT, "%s: an input of the exported program has no name",
                         a->zip->path);
    if (!t.persistent) {
        table = a->constants;
        folder = "data/constants/";
    }
    const json_t *row = json_object_get(json_object_get(table, "config"), t.name);
    if (!row)
        return atom_fail(ATOM_E_FORMAT, "%s: tensor '%.128s' is not in the archive", a->zip->path,
                         t.name);
    atom_status st = take_place(a, root, folder, row, &t);
    if (st == ATOM_OK)
        a->tensors[a->n_tensors++] = t;
    return st;
}

/* What the program does not read, an export may leave out of its inputs; state_dict has it: another name
 * of a parameter that it does read, or what nothing trains. */
static atom_status take_unread(pt2_archive *a, const char *root, json_t *config)
{
    json_t *rest = json_copy(config), *row;
    const char *name;
    atom_status st = rest ? ATOM_OK : atom_fail_memory("names", 64);
    for (uint32_t i = 0; i < a->n_tensors && rest; i++)
        if (a->tensors[i].persistent)
            json_object_del(rest, a->tensors[i].name);
    json_object_foreach(config, name, row)
    {
        pt2_tensor t = {.first = -1, .name = name, .persistent = true};
        if (st != ATOM_OK || !json_object_get(rest, name))
            continue;
        st = take_place(a, root, "data/weights/", row, &t);
        if (st != ATOM_OK)
            continue;
        t.parameter = t.first < (int32_t)a->n_tensors && a->tensors[t.first].parameter;
        a->tensors[a->n_tensors++] = t;
    }
    json_decref(rest);
    return st;
}

/* All parameters are trained here. Where none of them has requires_grad, it was switched off for the export. */
static atom_status check_frozen(const pt2_archive *a)
{
    const char *frozen = NULL;
    bool others = false;
    for (uint32_t i = 0; i < a->n_tensors; i++) {
        const pt2_tensor *t = &a->tensors[i];
        if (t->parameter && t->frozen)
            frozen = t->name;
        others = others || (t->parameter && !t->frozen);
    }
    if (!frozen || !others)
        return ATOM_OK;
    return atom_fail(ATOM_E_UNSUPPORTED,
                     "%s: parameter '%.128s' has requires_grad=False, but atom trains all "
                     "parameters; if it may be trained, call model.requires_grad_(True) before the "
                     "export",
                     a->zip->path, frozen);
}

static atom_status take_tensors(pt2_archive *a, const char *root)
{
    const json_t *specs = json_object_get(a->signature, "input_specs");
    json_t *config = json_object_get(a->weights, "config");
    size_t n = json_array_size(specs), more = json_object_size(config);
    if (n == 0 || n > TENSORS_MAX || more > TENSORS_MAX)
        return atom_fail(ATOM_E_FORMAT, "%s: the exported program has no inputs", a->zip->path);
    a->tensors = atom_alloc(n + more, sizeof *a->tensors);
    if (!a->tensors)
        return atom_fail_memory("the tensors of a model", (n + more) * sizeof *a->tensors);
    for (size_t i = 0; i < n; i++) {
        ATOM_TRY(take_input(a, root, json_array_get(specs, i)));
    }
    ATOM_TRY(take_unread(a, root, config));
    return check_frozen(a);
}

/* "ROOT/" and "model" out of "ROOT/models/model.json". */
static atom_status load_all(pt2_archive *a, const char *model, char **root)
{
    const char *at = strstr(model, "models/");
    size_t n = strlen(at + 7) - strlen(".json");
    char *name = atom_strndup(at + 7, n), *weights = NULL, *constants = NULL;
    atom_status st = ATOM_OK;
    *root = atom_strndup(model, (size_t)(at - model));
    if (name && *root) {
        weights = atom_format("%sdata/weights/%s_weights_config.json", *root, name);
        constants = atom_format("%sdata/constants/%s_constants_config.json", *root, name);
    }
    if (!weights || !constants)
        ATOM_TRY_CLEAN(atom_fail_memory("names", 256));
    ATOM_TRY_CLEAN(load_json(a->zip, model, true, &a->model));
    ATOM_TRY_CLEAN(load_json(a->zip, weights, true, &a->weights));
    ATOM_TRY_CLEAN(load_json(a->zip, constants, false, &a->constants));
cleanup:
    atom_free(name);
    atom_free(weights);
    atom_free(constants);
    return st;
}

atom_status pt2_archive_open(const char *path, pt2_archive **out)
{
    pt2_archive *a = atom_alloc(1, sizeof *a);
    char *root = NULL;
    uint32_t n = 0;
    atom_status st;
    if (!a)
        return atom_fail_memory("an archive", sizeof *a);
    ATOM_TRY_CLEAN(file_zip_open(path, &a->zip));
    const file_zip_entry *model = find_model(a->zip, &n);
    if (n != 1)
        ATOM_TRY_CLEAN(atom_fail(
            ATOM_E_FORMAT, "%s has %s; a .pt2 of torch.export.save (torch 2.9 or later) has one",
            path, n ? "several models/*.json" : "no models/*.json"));
    ATOM_TRY_CLEAN(load_all(a, model->name, &root));
    const json_t *module = json_object_get(a->model, "graph_module");
    a->graph = json_object_get(module, "graph");
    a->signature = json_object_get(module, "signature");
    if (!json_is_object(a->graph) || !json_is_object(a->signature))
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_FORMAT, "%s: %s has no graph_module", path, model->name));
    ATOM_TRY_CLEAN(take_tensors(a, root));
    *out = a;
    a = NULL;
cleanup:
    atom_free(root);
    pt2_archive_close(&a);
    return st;
}

void pt2_archive_close(pt2_archive **ref)
{
    pt2_archive *a = *ref;
    if (!a)
        return;
    file_zip_close(&a->zip);
    json_decref(a->model);
    json_decref(a->weights);
    json_decref(a->constants);
    atom_free(a->tensors);
    atom_free(a);
    *ref = NULL;
}

static double number_at(int dtype, const unsigned char *at)
{
    int64_t whole;
    double wide;
    float narrow;
    uint16_t half;
    switch (dtype) {
    case PT2_BOOL:
        return *at != 0;
    case PT2_I64:
        memcpy(&whole, at, sizeof whole);
        return (double)whole;
    case PT2_F64:
    case PT2_C128:
        memcpy(&wide, at, sizeof wide);
        return wide;
    case PT2_F32:
    case PT2_C64:
        memcpy(&narrow, at, sizeof narrow);
        return (double)narrow;
    default:
        memcpy(&half, at, sizeof half);
        return (double)(dtype == PT2_F16 ? atom_f16_to_f32(half) : atom_bf16_to_f32(half));
    }
}

atom_status pt2_tensor_read(const pt2_archive *a, const pt2_tensor *t, int64_t first, int64_t n,
                            double *out)
{
    unsigned char band[4096];
    /* A complex number is two. */
    uint64_t each = bytes_each(t->dtype) / (pt2_is_complex(t->dtype) ? 2 : 1);
    for (int64_t done = 0, some; done < n; done += some) {
        some = (int64_t)(sizeof band / each);
        some = n - done < some ? n - done : some;
        ATOM_TRY(file_zip_read(a->zip, t->entry, (uint64_t)(first + done) * each,
                               (uint64_t)some * each, band));
        for (int64_t i = 0; i < some; i++)
            out[done + i] = number_at(t->dtype, band + (uint64_t)i * each);
    }
    return ATOM_OK;
}
