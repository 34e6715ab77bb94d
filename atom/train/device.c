/*
 * Owns the choice of the device. One idea: below this file there are only a krn_table and a dev;
 * nobody else asks which device it is, except who must know whether device memory is host memory.
 */
#include "atom/train/device.h"

#include "atom/base/env.h"
#include "kernels/cuda_load.h"

#include <stdlib.h>
#include <string.h>

static bool card_of(const char *text, int *card)
{
    if (strcmp(text, "cuda") == 0) {
        *card = 0;
        return true;
    }
    char *end;
    long n = strncmp(text, "cuda:", 5) == 0 && text[5] ? strtol(text + 5, &end, 10) : -1;
    if (n < 0 || n > 255 || *end)
        return false;
    *card = (int)n;
    return true;
}

atom_status train_device_choose(const char *device, int *card)
{
    dev_cuda_info info;
    *card = -1;
    if (!device || strcmp(device, "cpu") == 0)
        return ATOM_OK;
    if (strcmp(device, "auto") == 0) {
        if (dev_cuda_describe(0, &info) == ATOM_OK)
            *card = 0;
        return ATOM_OK;
    }
    if (!card_of(device, card))
        return atom_fail(ATOM_E_USAGE, "device: '%s' is not a device; use auto, cpu or cuda[:N]",
                         device);
    atom_status st = dev_cuda_describe(*card, &info);
    return st == ATOM_OK ? st : atom_fail_in(st, "device: ");
}

atom_dtype train_device_dtype(int card, int32_t dtype)
{
    const krn_table *table;
    if (dtype == TRAIN_DTYPE_FP32)
        return ATOM_F32;
    if (dtype == TRAIN_DTYPE_BF16)
        return ATOM_BF16;
    if (card >= 0)
        return krn_cuda_table(card, ATOM_BF16, &table) == ATOM_OK ? ATOM_BF16 : ATOM_F32;
    return __builtin_cpu_supports("avx512bf16") ? ATOM_BF16 : ATOM_F32;
}

atom_status train_device_table(int card, atom_dtype dtype, const krn_table **out)
{
    if (card >= 0)
        return krn_cuda_table(card, dtype, out);
    *out = krn_cpu_table(dtype);
    if (!*out)
        return atom_fail(ATOM_E_UNSUPPORTED, "dtype: the CPU backend cannot compute in %s here",
                         atom_dtype_name(dtype));
    return ATOM_OK;
}

atom_status train_device_open(const train_workbench *bench, uint64_t budget_bytes, dev **out)
{
    double rate = (double)bench->config.link_bandwidth;
    if (bench->card >= 0)
        return dev_cuda_open(&(dev_cuda_config){.card = bench->card,
                                                .budget_bytes = budget_bytes,
                                                .link_bytes_per_second = rate},
                             bench->threads, out);
    return dev_cpu_open(
        &(dev_cpu_config){.budget_bytes = budget_bytes, .link_bytes_per_second = rate},
        bench->threads, out);
}

uint64_t train_device_bytes(const train_workbench *bench)
{
    dev_cuda_info info;
    if (bench->card < 0 || dev_cuda_describe(bench->card, &info) != ATOM_OK)
        return 0;
    /* The driver's context, the libraries' code, and who else draws on the screen. */
    uint64_t kept = info.memory_bytes / 16;
    kept = kept < (uint64_t)1 << 30 ? (uint64_t)1 << 30 : kept;
    return info.memory_bytes > 2 * kept ? info.memory_bytes - kept : info.memory_bytes / 2;
}
