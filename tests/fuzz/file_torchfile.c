/* Any bytes as a file of torch.save: refused with the file's name, or tensors that lie inside it. */
#include "atom/base/assert.h"
#include "atom/base/mem.h"
#include "atom/file/torchfile.h"
#include "tests/fuzz/file_sums.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_it(const uint8_t *data, size_t size, bool summed)
{
    char path[64], some[256];
    file_safetensors *file = NULL;
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    ATOM_ASSERT(fd >= 0 && (size == 0 || write(fd, data, size) == (ssize_t)size));
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (file_torch_open(path, &file) != ATOM_OK)
        ATOM_ASSERT(strstr(atom_fail_message(), path));
    for (uint32_t i = 0; file && i < file->n_tensors; i++) {
        const file_tensor *t = &file->tensors[i];
        uint64_t n = t->bytes < sizeof some ? t->bytes : sizeof some;
        ATOM_ASSERT(t->offset <= size && t->bytes <= size - t->offset);
        if (file_st_read(file, t, t->bytes - n, n, some) != ATOM_OK)
            ATOM_ASSERT(summed && strstr(atom_fail_message(), path));
        ATOM_ASSERT(file_st_find(file, t->name) == t);
    }
    file_st_close(&file);
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    read_with_and_without_sums(data, size, read_it);
    return 0;
}
