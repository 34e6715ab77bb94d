/*
 * Owns files of torch.save as tables of tensors. One idea: the pickle says which piece of which
 * storage a tensor is, the file says where each storage begins, and both together are an offset.
 * Refuses strided tensors, anything that is no tensor, data of the other byte order, and storages that
 * differ from their checksum, when they are read.
 */
#include "atom/file/torchfile.h"

#include "atom/base/files.h"
#include "atom/base/mem.h"
#include "atom/file/pickle.h"
#include "atom/file/zip.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { PICKLE_BYTES_MAX = 1 << 26 };

/* How a file older than PyTorch 1.6 begins: a pickled number, and the version 1001. */
static const uint8_t OLD_START[] = {0x80, 2,    0x8a, 10,  0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a,
                                    0xa8, 0x50, 0x19, '.', 0x80, 2,    'M',  0xe9, 3,    '.'};

typedef struct storage {
    const file_pickle_value *value;
    uint64_t place; /* in the file */
} storage;

typedef struct torch_file {
    file_pickle pickle;
    const file_pickle_value *root;
    storage *storages; /* ascending key, each once */
    size_t n_storages;
    file_safetensors *file;
} torch_file;

bool file_torch_is_name(const char *path)
{
    size_t n = strlen(path);
    return n > 4 && strcmp(path + n - 4, ".bin") == 0;
}

static atom_status damaged(const torch_file *t, const char *what)
{
    return atom_fail(ATOM_E_FORMAT, "%s: %s; the file is damaged or not one of torch.save",
                     t->file->path, what);
}

/* --- storages --------------------------------------------------------------------------------- */

static uint64_t bytes_each(file_dtype dtype)
{
    return file_dtype_bits(dtype) / 8;
}

static int order_keys(const void *a, const void *b)
{
    return strcmp(((const storage *)a)->value->text, ((const storage *)b)->value->text);
}

static storage *find_storage(const torch_file *t, const char *key)
{
    const file_pickle_value wanted = {.text = (char *)key};
    const storage like = {.value = &wanted};
    return t->n_storages ? bsearch(&like, t->storages, t->n_storages, sizeof like, order_keys)
                         : NULL;
}

/* All that the pickle refers to; the same key means the same storage. */
static atom_status list_storages(torch_file *t)
{
    const file_pickle *p = &t->pickle;
    size_t n = 0, kept = 0;
    for (size_t i = 0; i < p->n_values; i++)
        n += p->values[i]->kind == FILE_PICKLE_STORAGE;
    t->storages = atom_alloc(n + 1, sizeof *t->storages);
    if (!t->storages)
        return atom_fail_memory(t->file->path, n * sizeof *t->storages);
    n = 0;
    for (size_t i = 0; i < p->n_values; i++)
        if (p->values[i]->kind == FILE_PICKLE_STORAGE)
            t->storages[n++].value = p->values[i];
    qsort(t->storages, n, sizeof *t->storages, order_keys);
    for (size_t i = 0; i < n; i++) {
        const storage *last = kept ? &t->storages[kept - 1] : NULL;
        if (!last || order_keys(last, &t->storages[i]) != 0)
            t->storages[kept++] = t->storages[i];
        else if (last->value->dtype != t->storages[i].value->dtype ||
                 last->value->number != t->storages[i].value->number)
            return damaged(t, "one storage has two types or sizes");
    }
    t->n_storages = kept;
    return ATOM_OK;
}

/* --- tensors ---------------------------------------------------------------------------------- */

static atom_status take_shape(const torch_file *t, const file_pickle_value *v, file_tensor *out)
{
    const file_pickle_value *sizes = v->items[2], *strides = v->items[3];
    uint64_t packed = 1;
    if (sizes->kind != FILE_PICKLE_TUPLE || strides->kind != FILE_PICKLE_TUPLE ||
        sizes->n != strides->n || sizes->n > FILE_RANK_MAX)
        return atom_fail(ATOM_E_FORMAT, "%s: tensor '%.128s' has no shape of at most %d axes",
                         t->file->path, out->name, FILE_RANK_MAX);
    out->rank = (uint32_t)sizes->n;
    for (uint32_t i = out->rank; i-- > 0;) {
        const file_pickle_value *size = sizes->items[i], *stride = strides->items[i];
        if (size->kind != FILE_PICKLE_INT || stride->kind != FILE_PICKLE_INT || size->number < 0)
            return atom_fail(ATOM_E_FORMAT, "%s: tensor '%.128s' has an impossible shape",
                             t->file->path, out->name);
        if (size->number > 1 && packed != 0 && stride->number != (int64_t)packed)
            return atom_fail(ATOM_E_UNSUPPORTED,
                             "%s: tensor '%.128s' is not contiguous; save the state_dict with "
                             "every tensor as tensor.contiguous()",
                             t->file->path, out->name);
        out->dims[i] = (uint64_t)size->number;
        if (__builtin_mul_overflow(packed, out->dims[i], &packed) || packed > INT64_MAX)
            return atom_fail(ATOM_E_FORMAT, "%s: tensor '%.128s': its shape overflows",
                             t->file->path, out->name);
    }
    out->elements = packed;
    return ATOM_OK;
}

static atom_status take_tensor(torch_file *t, const char *name, const file_pickle_value *v)
{
    const file_pickle_value *from = v->items[0], *first = v->items[1];
    file_tensor *out = &t->file->tensors[t->file->n_tensors];
    if (strlen(name) > FILE_TENSOR_NAME_MAX)
        return damaged(t, "a tensor's name is longer than 512 bytes");
    out->name = atom_strdup(name);
    if (!out->name)
        return atom_fail_memory("a tensor name", strlen(name));
    t->file->n_tensors++;
    ATOM_TRY(take_shape(t, v, out));
    uint64_t each = bytes_each(from->dtype);
    if (first->kind != FILE_PICKLE_INT || first->number < 0 || first->number > from->number ||
        out->elements > (uint64_t)(from->number - first->number))
        return atom_fail(ATOM_E_FORMAT, "%s: tensor '%.128s' lies outside its storage",
                         t->file->path, name);
    out->dtype = from->dtype;
    out->bytes = out->elements * each;
    out->offset = find_storage(t, from->text)->place + (uint64_t)first->number * each;
    if (t->file->sums)
        file_sums_expect(t->file->sums, out->offset, out->bytes);
    return ATOM_OK;
}

static atom_status take_tensors(torch_file *t)
{
    const file_pickle_value *root = t->root;
    if (root->kind != FILE_PICKLE_DICT)
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "%s contains %s, but atom reads only the state_dict of a model: "
                         "torch.save(model.state_dict(), \"pytorch_model.bin\")",
                         t->file->path, file_pickle_kind_name(root->kind));
    t->file->tensors = atom_alloc(root->n / 2 + 1, sizeof *t->file->tensors);
    t->file->by_name = atom_alloc(root->n / 2 + 1, sizeof *t->file->by_name);
    if (!t->file->tensors || !t->file->by_name)
        return atom_fail_memory(t->file->path, root->n * sizeof *t->file->tensors);
    for (size_t i = 0; i + 1 < root->n; i += 2) {
        const file_pickle_value *key = root->items[i], *v = root->items[i + 1];
        if (key->kind != FILE_PICKLE_TEXT)
            return damaged(t, "a key of its dict is not text");
        if (v->kind != FILE_PICKLE_TENSOR)
            return atom_fail(ATOM_E_UNSUPPORTED,
                             "%s: '%.128s' is %s, not a tensor; save only the state_dict of the "
                             "model: torch.save(model.state_dict(), \"pytorch_model.bin\")",
                             t->file->path, key->text, file_pickle_kind_name(v->kind));
        ATOM_TRY(take_tensor(t, key->text, v));
    }
    return file_st_sort(t->file);
}

/* --- zip archives ----------------------------------------------------------------------------- */

/* "ROOT/data.pkl", the only one; *root_bytes: how long "ROOT/" is. */
static atom_status find_pickle(const torch_file *t, const file_zip *z, const file_zip_entry **out,
                               size_t *root_bytes)
{
    static const char NAME[] = "data.pkl";
    size_t end = sizeof NAME - 1, found = 0;
    for (uint32_t i = 0; i < z->n_entries; i++) {
        const char *name = z->entries[i].name, *slash = strchr(name, '/');
        size_t n = strlen(name), root = slash ? (size_t)(slash - name) + 1 : 0;
        if (n != root + end || strcmp(name + root, NAME) != 0)
            continue;
        *out = &z->entries[i];
        *root_bytes = root;
        found++;
    }
    return found == 1 ? ATOM_OK : damaged(t, found ? "has several data.pkl" : "has no data.pkl");
}

static atom_status check_order(const torch_file *t, file_zip *z, const char *root, size_t n)
{
    char *name = atom_format("%.*sbyteorder", (int)n, root), *text = NULL;
    if (!name)
        return atom_fail_memory("a name", n);
    const file_zip_entry *e = file_zip_find(z, name);
    atom_status st = e ? file_zip_load(z, e, 16, &text) : ATOM_OK;
    if (st == ATOM_OK && e && strcmp(text, "little") != 0)
        st = atom_fail(ATOM_E_UNSUPPORTED,
                       "%s was written with big-endian numbers; load and save "
                       "it on this machine",
                       t->file->path);
    atom_free(text);
    atom_free(name);
    return st;
}

static int order_sums(const void *a, const void *b)
{
    const file_sum *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

/* To be compared when the storage is read. */
static atom_status add_sum(torch_file *t, const file_zip_entry *e, uint64_t place)
{
    file_sums *sums = t->file->sums;
    file_sum *s = &sums->all[sums->n];
    *s = (file_sum){
        .name = atom_strdup(e->name), .first = place, .bytes = e->bytes, .wanted = e->sum};
    if (!s->name)
        return atom_fail_memory("a name", strlen(e->name));
    sums->n++;
    return ATOM_OK;
}

/* Each storage is an entry "ROOT/data/KEY". */
static atom_status place_entry(torch_file *t, const file_zip *z, const char *root, size_t n,
                               const uint64_t *places, storage *s)
{
    const file_pickle_value *v = s->value;
    char *name = atom_format("%.*sdata/%s", (int)n, root, v->text);
    if (!name)
        return atom_fail_memory("a name", n);
    const file_zip_entry *e = file_zip_find(z, name);
    atom_free(name);
    if (!e || (uint64_t)v->number > e->bytes / bytes_each(v->dtype))
        return atom_fail(ATOM_E_FORMAT, "%s: storage %.64s is missing or too short", t->file->path,
                         v->text);
    s->place = places[e - z->entries];
    return z->summed && e->bytes ? add_sum(t, e, s->place) : ATOM_OK;
}

static atom_status place_entries(torch_file *t, const file_zip *z, const char *root, size_t n,
                                 const uint64_t *places)
{
    file_sums *sums = t->file->sums = atom_alloc(1, sizeof *sums);
    if (sums)
        sums->all = atom_alloc(t->n_storages + 1, sizeof *sums->all);
    if (!sums || !sums->all)
        return atom_fail_memory(t->file->path, t->n_storages * sizeof *sums->all);
    for (size_t i = 0; i < t->n_storages; i++)
        ATOM_TRY(place_entry(t, z, root, n, places, &t->storages[i]));
    qsort(sums->all, sums->n, sizeof *sums->all, order_sums);
    return ATOM_OK;
}

static atom_status read_zip(torch_file *t)
{
    const file_zip_entry *e = NULL;
    file_zip *z = NULL;
    uint64_t *places = NULL;
    char *bytes = NULL;
    size_t root = 0, used;
    atom_status st;
    ATOM_TRY_CLEAN(file_zip_open(t->file->path, &z));
    places = atom_alloc((size_t)z->n_entries + 1, sizeof *places);
    if (!places)
        ATOM_TRY_CLEAN(atom_fail_memory("a zip directory", z->n_entries * sizeof *places));
    ATOM_TRY_CLEAN(find_pickle(t, z, &e, &root));
    ATOM_TRY_CLEAN(check_order(t, z, e->name, root));
    ATOM_TRY_CLEAN(file_zip_places(z, t->file->fd, t->file->file_bytes, places));
    ATOM_TRY_CLEAN(file_zip_load(z, e, PICKLE_BYTES_MAX, &bytes));
    ATOM_TRY_CLEAN(file_pickle_load(&t->pickle, bytes, (size_t)e->bytes, &used, &t->root));
    ATOM_TRY_CLEAN(list_storages(t));
    ATOM_TRY_CLEAN(place_entries(t, z, e->name, root, places));
cleanup:
    atom_free(bytes);
    atom_free(places);
    file_zip_close(&z);
    return st;
}

/* --- files older than PyTorch 1.6 ------------------------------------------------------------- */

/* Behind the pickles: for each key of the list the number of elements, and they. */
static atom_status place_behind(torch_file *t, const file_pickle_value *keys, uint64_t at)
{
    size_t placed = 0;
    if (keys->kind != FILE_PICKLE_LIST)
        return damaged(t, "has no list of its storages");
    for (size_t i = 0; i < keys->n; i++) {
        storage *s =
            keys->items[i]->kind == FILE_PICKLE_TEXT ? find_storage(t, keys->items[i]->text) : NULL;
        uint64_t n = 0, left = t->file->file_bytes - at;
        if (!s || s->place)
            return damaged(t, "lists a storage twice, or one that no tensor has");
        int error = left < sizeof n ? ENODATA : atom_fd_read(t->file->fd, at, &n, sizeof n);
        if (error || n != (uint64_t)s->value->number ||
            n > (left - sizeof n) / bytes_each(s->value->dtype))
            return atom_fail(ATOM_E_FORMAT, "%s: storage %.64s is missing or too short",
                             t->file->path, s->value->text);
        s->place = at + sizeof n;
        at = s->place + n * bytes_each(s->value->dtype);
        placed++;
    }
    return placed == t->n_storages ? ATOM_OK : damaged(t, "a storage is missing");
}

static atom_status read_old(torch_file *t)
{
    uint64_t n = t->file->file_bytes < PICKLE_BYTES_MAX ? t->file->file_bytes : PICKLE_BYTES_MAX;
    uint8_t *bytes = atom_alloc((size_t)n, 1);
    size_t at = sizeof OLD_START, used;
    const file_pickle_value *v, *little;
    atom_status st = ATOM_OK;
    if (!bytes)
        return atom_fail_memory(t->file->path, n);
    int error = atom_fd_read(t->file->fd, 0, bytes, n);
    if (error)
        ATOM_TRY_CLEAN(atom_fail_errno(error, "cannot read %s", t->file->path));
    ATOM_TRY_CLEAN(file_pickle_load(&t->pickle, bytes + at, n - at, &used, &v));
    little = file_pickle_get(v, "little_endian");
    if (!little || little->kind != FILE_PICKLE_BOOL || !little->number)
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_UNSUPPORTED,
                                 "%s was written with big-endian numbers; load and save it on this "
                                 "machine",
                                 t->file->path));
    at += used;
    ATOM_TRY_CLEAN(file_pickle_load(&t->pickle, bytes + at, n - at, &used, &t->root));
    ATOM_TRY_CLEAN(list_storages(t));
    at += used;
    ATOM_TRY_CLEAN(file_pickle_load(&t->pickle, bytes + at, n - at, &used, &v));
    ATOM_TRY_CLEAN(place_behind(t, v, at + used));
cleanup:
    atom_free(bytes);
    return st;
}

/* --- both ------------------------------------------------------------------------------------- */

static atom_status read_file(torch_file *t)
{
    uint8_t start[64] = {0};
    uint64_t n = t->file->file_bytes < sizeof start ? t->file->file_bytes : sizeof start;
    int error = atom_fd_read(t->file->fd, 0, start, n);
    if (error)
        return atom_fail_errno(error, "cannot read %s", t->file->path);
    if (atom_is_lfs_pointer(start, n))
        return atom_fail_lfs(t->file->path);
    if (memcmp(start, OLD_START, sizeof OLD_START) == 0)
        ATOM_TRY(read_old(t));
    else if (memcmp(start, "PK\3\4", 4) == 0)
        ATOM_TRY(read_zip(t));
    else
        return damaged(t, "it does not begin like such a file");
    return take_tensors(t);
}

atom_status file_torch_open(const char *path, file_safetensors **out)
{
    torch_file t = {.file = atom_alloc(1, sizeof *t.file)};
    atom_status st;
    if (!t.file)
        return atom_fail_memory(path, sizeof *t.file);
    t.file->fd = -1;
    t.file->path = atom_strdup(path);
    if (!t.file->path)
        ATOM_TRY_CLEAN(atom_fail_memory(path, strlen(path)));
    t.pickle.path = t.file->path;
    ATOM_TRY_CLEAN(file_open_regular(path, &t.file->fd, &t.file->file_bytes));
    ATOM_TRY_CLEAN(read_file(&t));
    *out = t.file;
    t.file = NULL;
cleanup:
    file_st_close(&t.file);
    file_pickle_free(&t.pickle);
    atom_free(t.storages);
    return st;
}
