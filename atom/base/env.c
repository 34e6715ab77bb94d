/*
 * Owns the contact with the operating system that is not memory, threads or devices: time, entropy,
 * the log, sizes. Refuses policy: what to log and where to save is decided by the callers.
 */
#include "atom/base/env.h"

#include "atom/base/cgroup.h"
#include "atom/base/mem.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

static _Atomic int log_level = ATOM_LOG_INFO;

static uint64_t now_ns(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t atom_clock_ns(void)
{
    return now_ns(CLOCK_MONOTONIC);
}

double atom_clock_seconds(void)
{
    return (double)atom_clock_ns() * 1e-9;
}

double atom_wall_seconds(void)
{
    return (double)now_ns(CLOCK_REALTIME) * 1e-9;
}

atom_status atom_entropy(void *out, size_t bytes)
{
    uint8_t *at = out;
    while (bytes) {
        ssize_t n = getrandom(at, bytes, 0);
        if (n < 0 && errno != EINTR)
            return atom_fail_errno(errno, "no entropy from the kernel");
        if (n > 0) {
            at += n;
            bytes -= (size_t)n;
        }
    }
    return ATOM_OK;
}

void atom_log_set_level(atom_log_level level)
{
    atomic_store(&log_level, (int)level);
}

void atom_log(atom_log_level level, const char *fmt, ...)
{
    static const char *const words[] = {"atom: error: ", "atom: warning: ", "", "atom: debug: "};
    char line[2048];
    va_list args;
    if ((int)level > atomic_load(&log_level))
        return;
    int n = snprintf(line, sizeof line, "%s", words[level]);
    va_start(args, fmt);
    int m = vsnprintf(line + n, sizeof line - (size_t)n - 1, fmt, args);
    va_end(args);
    if (m < 0)
        return;
    size_t length = strlen(line);
    line[length++] = '\n';
    fwrite(line, 1, length, stderr);
}

static double unit_bytes(const char *unit)
{
    static const struct {
        const char *name;
        double bytes;
    } units[] = {{"", 1},
                 {"B", 1},
                 {"kB", 1e3},
                 {"KB", 1e3},
                 {"MB", 1e6},
                 {"GB", 1e9},
                 {"TB", 1e12},
                 {"KiB", 1024.0},
                 {"MiB", 1048576.0},
                 {"GiB", 1073741824.0},
                 {"TiB", 1099511627776.0}};
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strcasecmp(unit, units[i].name) == 0)
            return units[i].bytes;
    }
    return 0;
}

atom_status atom_size_parse(const char *text, uint64_t *bytes)
{
    char *end = NULL;
    errno = 0;
    double value = strtod(text, &end);
    bool number = end != text;
    while (isspace((unsigned char)*end))
        end++;
    double unit = number ? unit_bytes(end) : 0;
    double total = value * unit;
    if (unit == 0 || !isfinite(total) || total < 0 || total >= 0x1p63)
        return atom_fail(ATOM_E_USAGE, "'%s' is not a size; write for example 8GiB, 512MiB or 2GB",
                         text);
    *bytes = (uint64_t)total;
    return ATOM_OK;
}

char *atom_size_text(uint64_t bytes, char *buf)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    int unit = 0;
    while (value >= 1024 && unit < 6) {
        value /= 1024;
        unit++;
    }
    snprintf(buf, 24, unit && value < 100 ? "%.1f %s" : "%.0f %s", value, units[unit]);
    return buf;
}

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

static size_t edit_distance(const char *a, const char *b)
{
    size_t n = strlen(b), row[64];
    if (n >= 64 || strlen(a) >= 64)
        return 99;
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 1; a[i - 1]; i++) {
        size_t corner = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t best = corner + (a[i - 1] != b[j - 1]);
            corner = row[j];
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[n];
}

const char *atom_did_you_mean(const char *word, const char *const *names, size_t n)
{
    size_t best = 2 + strlen(word) / 4;
    const char *found = NULL;
    for (size_t i = 0; i < n; i++) {
        size_t d = edit_distance(word, names[i]);
        if (d < best) {
            best = d;
            found = names[i];
        }
    }
    for (size_t i = 0; i < n && !found && strlen(word) > 2; i++) /* a word that ends early */
        found = strncmp(word, names[i], strlen(word)) == 0 ? names[i] : NULL;
    return found;
}

uint64_t atom_hash(uint64_t hash, const void *data, size_t bytes)
{
    const uint8_t *at = data;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ at[i]) * 0x100000001b3u;
    return hash;
}
