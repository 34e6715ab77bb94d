/*
 * Owns reading /proc. Refuses to fail: what cannot be read counts as nothing.
 */
#include "atom/base/machine.h"

#include "atom/base/cgroup.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

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
