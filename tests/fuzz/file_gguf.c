/* Any bytes as a GGUF file: refused with the file's name, or its tensors lie inside it, and a model
 * that is in it has numbers, all of them read. */
#include "atom/base/assert.h"
#include "atom/base/mem.h"
#include "atom/file/ggufmodel.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PARAMS_MAX = 1 << 18 };

/* The same bytes as a file, for reads. */
static int file_of(const uint8_t *data, size_t size)
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    ATOM_ASSERT(fd >= 0 && (size == 0 || write(fd, data, size) == (ssize_t)size));
    return fd;
}

static void load(const file_gguf_in *f, const graph_config *c)
{
    graph *g = NULL;
    if (graph_model_params(c) > PARAMS_MAX || graph_model_build(c, ATOM_F32, 1, 1, &g) != ATOM_OK)
        return;
    float *vector = atom_alloc(g->param_extent, sizeof *vector);
    ATOM_ASSERT(vector);
    if (file_gguf_take_tensors(f, c, g, file_vector_memory(vector)) != ATOM_OK)
        ATOM_ASSERT(strstr(atom_fail_message(), "fuzz"));
    atom_free(vector);
    graph_close(&g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    file_gguf_in *f = NULL;
    graph_config config;
    bool more = true;
    if (file_gguf_parse("fuzz", data, size, size, &more, &f) != ATOM_OK) {
        ATOM_ASSERT(!f && !more && strncmp(atom_fail_message(), "fuzz", 4) == 0);
        return 0;
    }
    for (uint32_t i = 0; i < f->n_tensors; i++) {
        const file_gguf_in_tensor *t = &f->tensors[i];
        ATOM_ASSERT(t->offset <= size && t->bytes <= size - t->offset);
        ATOM_ASSERT(file_gguf_find_tensor(f, t->name) == t);
    }
    for (uint32_t i = 0; i < f->n_values; i++)
        ATOM_ASSERT(file_gguf_find(f, f->values[i].key) == &f->values[i]);
    f->fd = file_of(data, size);
    if (file_gguf_take_model(f, &config) == ATOM_OK) {
        ATOM_ASSERT(graph_model_check(&config) == ATOM_OK);
        load(f, &config);
    }
    file_gguf_in_close(&f);
    return 0;
}
