/*
 * Owns the reading of memory limits of control groups. One idea: every group on the way to the root
 * has a limit and a use; the least that one of them leaves is what there is. Refuses to guess where
 * a file is missing.
 */
#include "atom/base/cgroup.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { PATH_BYTES = 1024 };

typedef struct hierarchy {
    const char *mounts[3]; /* where it may be, below the root; NULL ends */
    const char *limit, *used, *cache;
} hierarchy;

static const hierarchy V1 = {
    {"/memory", NULL}, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "};
static const hierarchy V2 = {
    {"", "/unified", NULL}, "memory.max", "memory.current", "inactive_file "};

/* The number in a file of one number, or behind `field`. "max" is not a number. */
static bool read_number(const char *group, const char *file, const char *field, uint64_t *out)
{
    char path[PATH_BYTES], line[256];
    size_t skip = field ? strlen(field) : 0;
    bool found = false;
    if (snprintf(path, sizeof path, "%s/%s", group, file) >= (int)sizeof path)
        return false;
    FILE *f = fopen(path, "r");
    while (f && !found && fgets(line, sizeof line, f)) {
        if (field && strncmp(line, field, skip) != 0)
            continue;
        found = sscanf(line + skip, "%" SCNu64, out) == 1;
    }
    if (f)
        fclose(f);
    return found;
}

/* Of one group. Page cache that has not been touched for a while is given back on demand. */
static uint64_t group_left(const hierarchy *h, const char *group)
{
    uint64_t limit, used, cache = 0;
    if (!read_number(group, h->limit, NULL, &limit) || !read_number(group, h->used, NULL, &used))
        return UINT64_MAX;
    if (!read_number(group, "memory.stat", h->cache, &cache) || cache > used)
        cache = 0;
    used -= cache;
    return limit > used ? limit - used : 0;
}

/* Of a group and all above it. In a container the path is often that of the host and leads nowhere;
 * what the container sees as the root is its own group. */
static uint64_t path_left(const hierarchy *h, const char *root, const char *mount, const char *path)
{
    char group[PATH_BYTES];
    uint64_t least = UINT64_MAX;
    size_t base = strlen(root) + strlen(mount);
    if (snprintf(group, sizeof group, "%s%s%s", root, mount, path) >= (int)sizeof group)
        return least;
    for (;;) {
        uint64_t left = group_left(h, group);
        least = left < least ? left : least;
        char *slash = strrchr(group, '/');
        if (!slash || (size_t)(slash - group) < base)
            return least;
        *slash = 0;
    }
}

uint64_t atom_cgroup_left_bytes(const char *root, const char *self)
{
    char line[PATH_BYTES];
    uint64_t least = UINT64_MAX;
    FILE *f = fopen(self, "r");
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL;
        if (!path || path[1] != '/')
            continue;
        *path++ = 0;
        names++;
        bool v2 = strncmp(line, "0:", 1) == 0 && *names == 0;
        if (!v2 && strcmp(names, "memory") != 0)
            continue;
        const hierarchy *h = v2 ? &V2 : &V1;
        for (int i = 0; h->mounts[i]; i++) {
            uint64_t left = path_left(h, root, h->mounts[i], strcmp(path, "/") == 0 ? "" : path);
            least = left < least ? left : least;
        }
    }
    if (f)
        fclose(f);
    return least;
}
