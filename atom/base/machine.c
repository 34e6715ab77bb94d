/*
 * Owns reading /proc. Refuses to fail: what cannot be read counts as nothing.
 */
#include "atom/base/machine.h"

#include "atom/base/cgroup.h"
#include "atom/base/files.h"

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The number behind a field of a /proc or cgroup table; 0 if there is none. */
static uint64_t field_value(const char *path, const char *field)
{
    char line[256];
    unsigned long long value = 0;
    FILE *f = fopen(path, "r");
    if (!f)
        return 0;
    while (fgets(line, sizeof line, f)) {
        if (strncmp(line, field, strlen(field)) == 0 &&
            sscanf(line + strlen(field), " %llu", &value) == 1)
            break;
    }
    fclose(f);
    return (uint64_t)value;
}

uint64_t atom_vm_peak_bytes(void)
{
    return field_value("/proc/self/status", "VmHWM:") * 1024;
}

uint64_t atom_host_available_bytes(void)
{
    uint64_t available = field_value("/proc/meminfo", "MemAvailable:") * 1024;
    uint64_t left = atom_cgroup_left_bytes("/sys/fs/cgroup", "/proc/self/cgroup");
    return left < available ? left : available;
}

/* Bytes of the highest cache of a core that no core with a lower number shares; 0: it has none of
 * its own. false: there is no such core, or nothing is said of its caches. */
static bool last_cache(const char *root, uint32_t cpu, uint64_t *bytes)
{
    enum { CACHES_MAX = 10 };
    char path[256], line[128];
    unsigned long level = 0, first = cpu;
    *bytes = 0;
    for (int i = 0; i < CACHES_MAX; i++) {
        snprintf(path, sizeof path, "%s/cpu%u/cache/index%d/level", root, cpu, i);
        if (!atom_file_line(path, line, sizeof line))
            break;
        if (strtoul(line, NULL, 10) < level)
            continue;
        level = strtoul(line, NULL, 10);
        snprintf(path, sizeof path, "%s/cpu%u/cache/index%d/size", root, cpu, i);
        *bytes = atom_file_line(path, line, sizeof line) ? 1024 * strtoull(line, NULL, 10) : 0;
        snprintf(path, sizeof path, "%s/cpu%u/cache/index%d/shared_cpu_list", root, cpu, i);
        first = atom_file_line(path, line, sizeof line) ? strtoul(line, NULL, 10) : cpu;
    }
    if (first != cpu)
        *bytes = 0;
    return level > 0;
}

uint64_t atom_cache_bytes(const char *root)
{
    enum { CPUS_MAX = 4096 };
    uint64_t all = 0, one;
    long said = sysconf(_SC_LEVEL3_CACHE_SIZE);
    for (uint32_t cpu = 0; cpu < CPUS_MAX && last_cache(root, cpu, &one); cpu++)
        all += one;
    return said > 0 && (uint64_t)said > all ? (uint64_t)said : all;
}

uint64_t atom_last_cache_bytes(const char *root)
{
    uint64_t bytes = 0;
    long said = sysconf(_SC_LEVEL3_CACHE_SIZE);
    if (last_cache(root, 0, &bytes) && bytes > 0)
        return bytes;
    return said > 0 ? (uint64_t)said : 0;
}

void atom_net_setting(const char *name, char *out, size_t room)
{
    char path[128];
    snprintf(path, sizeof path, "/proc/sys/net/%s", name);
    FILE *file = fopen(path, "r");
    if (!file || !fgets(out, (int)room, file))
        out[0] = 0;
    out[strcspn(out, "\n")] = 0;
    if (file)
        fclose(file);
}

uint32_t atom_cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        return (uint32_t)CPU_COUNT(&set);
    return 1;
}
