/*
 * A config.json of somebody's own model, a NUL, and any bytes as the buffers.safetensors beside it:
 * refused with the directory's name, or buffers of the types and sizes that config.json says, which
 * are written and read back as they were.
 */
#include "atom/base/assert.h"
#include "atom/base/files.h"
#include "atom/base/mem.h"
#include "atom/file/hfweights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void again(const char *dir, const char *path, const graph_config *c)
{
    file_model model;
    ATOM_ASSERT(file_buffers_write(dir, c) == ATOM_OK);
    ATOM_ASSERT(file_config_write(dir, c, NULL, NULL) == ATOM_OK);
    ATOM_ASSERT(file_model_resolve(path, &model) == ATOM_OK);
    const graph_buffers *a = c->own->buffers, *b = model.config.own->buffers;
    ATOM_ASSERT(a->n == b->n);
    for (uint32_t i = 0; i < a->n; i++)
        ATOM_ASSERT(strcmp(a->all[i].name, b->all[i].name) == 0 &&
                    a->all[i].dtype == b->all[i].dtype && a->all[i].bytes == b->all[i].bytes &&
                    memcmp(a->all[i].data, b->all[i].data, a->all[i].bytes) == 0);
    file_model_free(&model);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char dir[] = "/tmp/fuzz-buffers-XXXXXX";
    const uint8_t *end = memchr(data, 0, size);
    file_model model;
    if (!end || !mkdtemp(dir))
        return 0;
    size_t n = (size_t)(end - data);
    char *path = atom_path_join(dir, "config.json");
    char *alone = atom_path_join(dir, "buffers.safetensors");
    ATOM_ASSERT(path && alone && atom_file_write(path, data, n) == ATOM_OK);
    ATOM_ASSERT(atom_file_write(alone, end + 1, size - n - 1) == ATOM_OK);
    if (file_model_resolve(path, &model) == ATOM_OK) {
        if (model.config.own && model.config.own->buffers)
            again(dir, path, &model.config);
        file_model_free(&model);
    } else {
        ATOM_ASSERT(strstr(atom_fail_message(), dir));
    }
    ATOM_ASSERT(atom_dir_remove(dir) == ATOM_OK);
    atom_free(path);
    atom_free(alone);
    return 0;
}
