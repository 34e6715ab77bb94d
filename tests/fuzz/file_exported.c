/*
 * Any three texts as the JSON of a .pt2 (the program, its weights, its constants, a NUL between),
 * with tensors of zeros of the sizes that they claim: refused, or a model that builds at another
 * length, whose config.json says it again.
 */
#include "atom/base/assert.h"
#include "atom/base/bytes.h"
#include "atom/base/mem.h"
#include "atom/file/hfdir.h"
#include "atom/file/pt2.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ROOM = 1 << 22, TENSOR_BYTES_MAX = 1 << 16, ENTRIES_MAX = 256 };

typedef struct packer {
    uint8_t *bytes;
    size_t used;
    struct {
        char name[128];
        uint32_t at, n;
    } entries[ENTRIES_MAX];
    uint32_t n;
} packer;

static void put(packer *p, uint64_t x, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        p->bytes[p->used++] = (uint8_t)(i < 8 ? x >> (8 * i) : 0);
}

static void put_bytes(packer *p, const void *data, size_t n)
{
    if (data)
        memcpy(p->bytes + p->used, data, n);
    else
        memset(p->bytes + p->used, 0, n);
    p->used += n;
}

/* A stored entry; data NULL: zeros. */
static void add(packer *p, const char *name, const void *data, size_t n)
{
    size_t length = strlen(name);
    if (p->n == ENTRIES_MAX || length >= sizeof p->entries[0].name ||
        p->used + n + length + 4096 > ROOM / 2)
        return;
    for (uint32_t i = 0; i < p->n; i++)
        if (strcmp(p->entries[i].name, name) == 0)
            return;
    memcpy(p->entries[p->n].name, name, length + 1);
    p->entries[p->n].at = (uint32_t)p->used;
    p->entries[p->n++].n = (uint32_t)n;
    put(p, 0x04034b50, 4);
    put(p, 0, 22);
    put(p, length, 2);
    put(p, 0, 2);
    put_bytes(p, name, length);
    put_bytes(p, data, n);
}

static void finish(packer *p)
{
    size_t from = p->used;
    for (uint32_t i = 0; i < p->n; i++) {
        put(p, 0x02014b50, 4);
        put(p, 0, 16);
        put(p, p->entries[i].n, 4);
        put(p, p->entries[i].n, 4);
        put(p, strlen(p->entries[i].name), 2);
        put(p, 0, 12);
        put(p, p->entries[i].at, 4);
        put_bytes(p, p->entries[i].name, strlen(p->entries[i].name));
    }
    size_t n = p->used - from;
    put(p, 0x06054b50, 4);
    put(p, 0, 4);
    put(p, p->n, 2);
    put(p, p->n, 2);
    put(p, n, 4);
    put(p, from, 4);
    put(p, 0, 2);
}

/* An entry for each tensor of a table, of the size it says it has. */
static void add_tensors(packer *p, const char *folder, const char *text, size_t n)
{
    json_t *root = json_loadb(text, n, 0, NULL);
    const char *key;
    json_t *row;
    json_object_foreach(json_object_get(root, "config"), key, row)
    {
        const char *file = json_string_value(json_object_get(row, "path_name"));
        const json_t *meta = json_object_get(row, "tensor_meta");
        json_int_t type = json_integer_value(json_object_get(meta, "dtype"));
        uint64_t bytes = type == 12 ? 1 : type == 7 ? 4 : type == 6 || type == 13 ? 2 : 8;
        for (size_t i = 0; i < json_array_size(json_object_get(meta, "sizes")); i++) {
            json_int_t d = json_integer_value(
                json_object_get(json_array_get(json_object_get(meta, "sizes"), i), "as_int"));
            bytes = d > 0 && d <= TENSOR_BYTES_MAX && bytes <= TENSOR_BYTES_MAX
                        ? bytes * (uint64_t)d
                        : 1 << 30;
        }
        char name[128];
        if (file && strlen(file) < 64 && bytes <= TENSOR_BYTES_MAX) {
            snprintf(name, sizeof name, "a/data/%s/%s", folder, file);
            add(p, name, NULL, (size_t)bytes);
        }
    }
    json_decref(root);
}

/* What was understood says itself again. */
static void check(const graph_config *c)
{
    graph *g = NULL;
    graph_config again;
    char *text = NULL, *a = NULL, *b = NULL;
    ATOM_ASSERT(graph_model_check(c) == ATOM_OK);
    if (graph_model_build(c, ATOM_BF16, 3, 1, &g) == ATOM_OK)
        graph_close(&g);
    ATOM_ASSERT(file_config_text(c, NULL, NULL, &text) == ATOM_OK);
    ATOM_ASSERT(file_config_parse("again", text, strlen(text), &again) == ATOM_OK);
    ATOM_ASSERT(graph_print(c->own, &a) == ATOM_OK && graph_print(again.own, &b) == ATOM_OK);
    ATOM_ASSERT(strcmp(a, b) == 0 && c->own->n_stored == again.own->n_stored);
    for (uint32_t i = 0; i < c->own->n_stored; i++)
        ATOM_ASSERT(memcmp(&c->own->stored[i], &again.own->stored[i], sizeof *again.own->stored) ==
                    0);
    graph_config_free(&again);
    atom_free(text);
    atom_free(a);
    atom_free(b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data, *end = text + size;
    const char *weights = memchr(text, 0, size);
    const char *constants = weights ? memchr(weights + 1, 0, (size_t)(end - weights - 1)) : NULL;
    packer p = {.bytes = atom_alloc(ROOM, 1)};
    char path[64];
    graph_config config;
    ATOM_ASSERT(p.bytes);
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (constants) {
        add(&p, "a/models/m.json", text, (size_t)(weights - text));
        add(&p, "a/data/weights/m_weights_config.json", weights + 1,
            (size_t)(constants - weights - 1));
        add(&p, "a/data/constants/m_constants_config.json", constants + 1,
            (size_t)(end - constants - 1));
        add_tensors(&p, "weights", weights + 1, (size_t)(constants - weights - 1));
        add_tensors(&p, "constants", constants + 1, (size_t)(end - constants - 1));
    }
    finish(&p);
    ATOM_ASSERT(fd >= 0 && write(fd, p.bytes, p.used) == (ssize_t)p.used);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (file_pt2_read_model(path, &config) == ATOM_OK) {
        check(&config);
        graph_config_free(&config);
    } else {
        ATOM_ASSERT(strstr(atom_fail_message(), path));
    }
    close(fd);
    atom_free(p.bytes);
    return 0;
}
