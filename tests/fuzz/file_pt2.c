/* Any bytes as a .pt2: refused with the file's name, or a model whose weights lie inside it. */
#include "atom/base/assert.h"
#include "atom/base/mem.h"
#include "atom/file/pt2.h"
#include "tests/fuzz/file_sums.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PARAMS_MAX = 1 << 18 };

static void load(const char *path, const graph_config *c)
{
    graph *g = NULL;
    ATOM_ASSERT(graph_model_check(c) == ATOM_OK);
    if (graph_model_params(c) > PARAMS_MAX || graph_model_build(c, ATOM_F32, 1, 1, &g) != ATOM_OK)
        return;
    float *vector = atom_alloc(g->param_extent, sizeof *vector);
    ATOM_ASSERT(vector);
    if (file_pt2_read_weights(path, g, file_vector_memory(vector)) != ATOM_OK)
        ATOM_ASSERT(strstr(atom_fail_message(), path));
    atom_free(vector);
    graph_close(&g);
}

static void read_it(const uint8_t *data, size_t size, bool summed)
{
    (void)summed;
    char path[64];
    graph_config config;
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    ATOM_ASSERT(fd >= 0 && (size == 0 || write(fd, data, size) == (ssize_t)size));
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (file_pt2_read_model(path, &config) == ATOM_OK) {
        load(path, &config);
        graph_config_free(&config);
    } else {
        ATOM_ASSERT(strstr(atom_fail_message(), path));
    }
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    read_with_and_without_sums(data, size, read_it);
    return 0;
}
