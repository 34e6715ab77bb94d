/*
 * Owns the choice of the device. One idea: below this file there are only a krn_table and a dev;
 * nobody else asks which device it is, except code that must know whether device memory is host
 * memory.
 */
#include "atom/plan/device.h"

#include "atom/base/log.h"
#include "atom/base/machine.h"
#include "atom/base/size.h"
#include "kernels/cuda_load.h"

#include <math.h>
#include <stdio.h>
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

/* Where somebody would expect a card, the CPU is not taken without a word: it is much slower. */
static void tell_cpu(const char *why)
{
    if (dev_cuda_driver_there() || getenv("ATOM_CUDA_MODULE"))
        atom_log(ATOM_LOG_WARN, "the CPU is used instead of a card. %s", why);
}

atom_status plan_device_choose(const char *device, int *card)
{
    dev_cuda_info info;
    *card = -1;
    if (!device || strcmp(device, "cpu") == 0)
        return ATOM_OK;
    if (strcmp(device, "auto") == 0) {
        if (dev_cuda_describe(0, &info) == ATOM_OK)
            *card = 0;
        else
            tell_cpu(atom_fail_message());
        return ATOM_OK;
    }
    if (!card_of(device, card))
        return atom_fail(ATOM_E_USAGE, "device: '%s' is not a device; use auto, cpu or cuda[:N]",
                         device);
    atom_status st = dev_cuda_describe(*card, &info);
    return st == ATOM_OK ? st : atom_fail_in(st, "device: ");
}

atom_status plan_device_several(int card, int64_t n)
{
    dev_cuda_info first, info;
    if (card < 0 || n <= 1)
        return ATOM_OK;
    ATOM_TRY(dev_cuda_describe(card, &first));
    if (card + n > first.cards)
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "devices: cuda:%d and the %lld after it were asked for, but this "
                         "machine has %d card%s; lower devices",
                         card, (long long)n - 1, first.cards, first.cards == 1 ? "" : "s");
    for (int i = card + 1; i < card + n; i++) {
        ATOM_TRY(dev_cuda_describe(i, &info));
        if (strcmp(info.name, first.name) != 0 || info.memory_bytes != first.memory_bytes)
            return atom_fail(ATOM_E_UNSUPPORTED,
                             "devices: cards that train together must be of one kind, but "
                             "cuda:%d is a %s with %llu MiB and cuda:%d a %s with %llu MiB",
                             card, first.name, (unsigned long long)(first.memory_bytes >> 20), i,
                             info.name, (unsigned long long)(info.memory_bytes >> 20));
    }
    return ATOM_OK;
}

atom_dtype plan_dtype_settle(int32_t dtype, bool native_bf16)
{
    bool bf16 = dtype == PLAN_DTYPE_AUTO ? native_bf16 : dtype == PLAN_DTYPE_BF16;
    return bf16 ? ATOM_BF16 : ATOM_F32;
}

atom_dtype plan_device_dtype(int card, int32_t dtype)
{
    const krn_table *table;
    if (dtype == PLAN_DTYPE_AUTO && card >= 0)
        return plan_dtype_settle(dtype, krn_cuda_table(card, ATOM_BF16, &table) == ATOM_OK);
    return plan_dtype_settle(dtype, __builtin_cpu_supports("avx512bf16"));
}

atom_status plan_device_table(int card, atom_dtype dtype, const krn_table **out)
{
    if (card >= 0)
        return krn_cuda_table(card, dtype, out);
    *out = krn_cpu_table(dtype);
    if (!*out)
        return atom_fail(ATOM_E_UNSUPPORTED, "dtype: the CPU backend cannot compute in %s here",
                         atom_dtype_name(dtype));
    return ATOM_OK;
}

atom_status plan_device_open(const plan_workbench *bench, uint32_t number, uint64_t budget_bytes,
                             dev **out)
{
    double rate = (double)bench->config.link_bandwidth;
    if (bench->card >= 0)
        return dev_cuda_open(&(dev_cuda_config){.card = bench->card + (int)number,
                                                .budget_bytes = budget_bytes,
                                                .link_bytes_per_second = rate},
                             bench->threads, out);
    return dev_cpu_open(
        &(dev_cpu_config){.budget_bytes = budget_bytes, .link_bytes_per_second = rate},
        bench->threads, out);
}

static void cpu_name(char *out, size_t bytes, uint32_t threads)
{
    char line[256], name[48] = "unknown";
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon)
            continue;
        snprintf(name, sizeof name, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
        break;
    }
    if (f)
        fclose(f);
    snprintf(out, bytes, "cpu: %.40s, %u threads", name, threads);
}

void plan_device_name(const plan_workbench *bench, char *out, size_t bytes)
{
    dev_cuda_info info;
    if (bench->card >= 0 && dev_cuda_describe(bench->card, &info) == ATOM_OK)
        snprintf(out, bytes, "%.63s", info.name);
    else
        cpu_name(out, bytes, atom_threads_count(bench->threads));
}

uint64_t plan_host_bytes(void)
{
    return atom_host_available_bytes() + dev_cuda_kept_bytes();
}

uint64_t plan_device_bytes(const plan_workbench *bench)
{
    dev_cuda_info info;
    if (bench->card < 0 || dev_cuda_describe(bench->card, &info) != ATOM_OK)
        return 0;
    /* The driver's context, the libraries' code, and who else draws on the screen. */
    uint64_t kept = info.memory_bytes / 16;
    kept = kept < (uint64_t)1 << 30 ? (uint64_t)1 << 30 : kept;
    return info.memory_bytes > 2 * kept ? info.memory_bytes - kept : info.memory_bytes / 2;
}

uint64_t plan_device_left(const plan_workbench *bench, uint32_t n, uint64_t has)
{
    /* the libraries' code and recorded call lists, which come later; whole parts, so that plans do
     * not follow every window that opens */
    const uint64_t room = (uint64_t)512 << 20, part = (uint64_t)256 << 20;
    uint64_t least = has;
    for (uint32_t i = 0; i < n && bench->card >= 0; i++) {
        uint64_t left = dev_cuda_free_bytes(bench->card + (int)i);
        if (left == 0)
            continue;
        left = left > room + part ? (left - room) / part * part : part;
        least = left < least ? left : least;
    }
    return least < has ? least : 0;
}

uint64_t plan_device_limit(const plan_workbench *bench, uint32_t n, uint64_t asked, uint64_t has,
                           const char *purpose)
{
    char left_text[24], has_text[24];
    uint64_t left = asked ? 0 : plan_device_left(bench, n, has);
    if (left)
        atom_log(ATOM_LOG_WARN,
                 "only %s of the card's memory are free for %s, instead of %s: close other "
                 "programs that use the card, or set --device-memory",
                 atom_size_text(left, left_text), purpose, atom_size_text(has, has_text));
    return asked ? asked : left;
}

part_device plan_device_guess(const plan_workbench *bench)
{
    part_device d = {.name = "cpu",
                     .unified = true,
                     .modelled = true,
                     .cores = atom_threads_count(bench->threads),
                     .host_bytes = atom_host_available_bytes(),
                     .flops_fp32 = 1e11,
                     .flops_bf16 = 2e11,
                     .device_bytes_per_second = 2e10,
                     .h2d_bytes_per_second = 5e9,
                     .d2h_bytes_per_second = 5e9,
                     .h2d_both_bytes_per_second = 4e9,
                     .d2h_both_bytes_per_second = 4e9,
                     .copy_latency_seconds = 1e-5,
                     .host_bytes_per_second = 2e10,
                     .adamw_params_per_second = 5e8,
                     .launch_seconds = 2e-6};
    snprintf(d.isa, sizeof d.isa, "%s", bench->table->isa);
    if (bench->config.link_bandwidth) { /* which slows a link down, but makes none faster */
        double rate = (double)bench->config.link_bandwidth;
        d.h2d_bytes_per_second = d.d2h_bytes_per_second = fmin(rate, d.h2d_bytes_per_second);
        d.h2d_both_bytes_per_second = fmin(rate, d.h2d_both_bytes_per_second);
        d.d2h_both_bytes_per_second = d.h2d_both_bytes_per_second;
    }
    if (bench->card >= 0) {
        d.unified = false;
        d.device_bytes = plan_device_bytes(bench);
    }
    return d;
}

bool plan_cpu_line(char *line, size_t bytes)
{
    FILE *f = fopen("/proc/cpuinfo", "r");
    bool found = false;
    while (f && !found && fgets(line, (int)bytes, f))
        found = strncmp(line, "model name", 10) == 0;
    if (f)
        fclose(f);
    return found;
}

void plan_device_model(const plan_workbench *bench, char *out, size_t bytes)
{
    char line[256];
    dev_cuda_info info;
    snprintf(out, bytes, "unknown");
    if (bench->card >= 0) {
        if (dev_cuda_describe(bench->card, &info) == ATOM_OK)
            snprintf(out, bytes, "%.100s, %llu MiB", info.name,
                     (unsigned long long)(info.memory_bytes >> 20));
        return;
    }
    const char *name = plan_cpu_line(line, sizeof line) ? strstr(line, ": ") : NULL;
    if (name)
        snprintf(out, bytes, "%.*s", (int)strcspn(name + 2, "\n"), name + 2);
}
