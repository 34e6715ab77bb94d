/*
 * How much memory the control groups of this process allow it. Containers and services often get
 * less than the machine has, and are killed instead of refused when they take more.
 *
 * Versions 1 and 2, this group and all above it. Source: Linux, admin-guide/cgroup-v1/memory and
 * admin-guide/cgroup-v2. Thread: any. Errors: none; what cannot be read does not limit.
 */
#ifndef ATOM_BASE_CGROUP_H
#define ATOM_BASE_CGROUP_H

#include <stdint.h>

/* Bytes left; UINT64_MAX: no limit. root: "/sys/fs/cgroup"; self: "/proc/self/cgroup". */
uint64_t atom_cgroup_left_bytes(const char *root, const char *self);

#endif
