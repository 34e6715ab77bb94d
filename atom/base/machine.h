/*
 * What this machine provides for our process: memory, cores, network settings. Thread: any.
 * Source: Linux, proc(5).
 */
#ifndef ATOM_BASE_MACHINE_H
#define ATOM_BASE_MACHINE_H

#include <stddef.h>
#include <stdint.h>

/* Peak resident set of this process in bytes (VmHWM). */
uint64_t atom_vm_peak_bytes(void);
/* MemAvailable, or what the control groups leave (cgroup.h) where that is less. */
uint64_t atom_host_available_bytes(void);
/* All last-level caches of the machine together, bytes; what the C library says where that is more;
 * 0: not known. root: ATOM_CPUS. */
#define ATOM_CPUS "/sys/devices/system/cpu"
uint64_t atom_cache_bytes(const char *root);
/* The one last-level cache that the first core has, alone or with others; what the C library says where
 * nothing else does; 0: not known. */
uint64_t atom_last_cache_bytes(const char *root);
/* Cores this process may run on, at least 1. */
uint32_t atom_cores(void);
/* The line in /proc/sys/net/<name>, of this process's network; empty where it cannot be read. */
void atom_net_setting(const char *name, char *out, size_t room);

#endif
