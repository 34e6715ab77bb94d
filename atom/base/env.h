/*
 * The outside world: clock, entropy, log, sizes as people write them, small files, paths.
 * Results go to stdout by their producer; everything here that prints goes to stderr.
 */
#ifndef ATOM_BASE_ENV_H
#define ATOM_BASE_ENV_H

#include "atom/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

uint64_t atom_clock_ns(void);    /* monotonic */
double atom_clock_seconds(void); /* monotonic */
double atom_wall_seconds(void);  /* since 1970 */
ATOM_MUST atom_status atom_entropy(void *out, size_t bytes);

typedef enum atom_log_level {
    ATOM_LOG_ERROR,
    ATOM_LOG_WARN,
    ATOM_LOG_INFO,
    ATOM_LOG_DEBUG
} atom_log_level;
void atom_log_set_level(atom_log_level level);
/* "atom: error: text\n" and so on; info has no level word. Thread-safe, one write per line. */
void atom_log(atom_log_level level, const char *fmt, ...) ATOM_PRINTF(2, 3);

/* "8GiB", "1.5 GB", "4096": binary and decimal units (docs/design/files.md#options). ATOM_E_USAGE otherwise. */
ATOM_MUST atom_status atom_size_parse(const char *text, uint64_t *bytes);
/* "7.9 GiB", "512 B". buf holds at least 24 bytes; returns buf. */
char *atom_size_text(uint64_t bytes, char *buf);

/*
 * Whole file into memory (NUL added, not counted). Free with atom_free. ATOM_E_FORMAT (a bad input
 * file) when it is missing, may not be read, is a directory or is larger than max_bytes.
 */
ATOM_MUST atom_status atom_file_read(const char *path, uint64_t max_bytes, char **data,
                                     uint64_t *bytes);
/*
 * Writes path.tmp, fsyncs, renames over path, fsyncs the directory. Links are followed; what exists
 * and is not a regular file (/dev/stdout, a pipe) is written to as it is.
 */
ATOM_MUST atom_status atom_file_write(const char *path, const void *data, uint64_t bytes);
/* mkdir -p. */
ATOM_MUST atom_status atom_dir_make(const char *path);
ATOM_MUST atom_status atom_dir_sync(const char *path);
/* rm -r of a directory that we made. Refuses to follow links. */
ATOM_MUST atom_status atom_dir_remove(const char *path);
/* All `bytes` of an open file from byte `at`, interrupted or in pieces as it may be. 0, or what
 * errno says too; read: ENODATA where the file ends before that, write: ENOSPC where nothing more
 * went in. */
ATOM_MUST int atom_fd_read(int fd, uint64_t at, void *out, uint64_t bytes);
ATOM_MUST int atom_fd_write(int fd, uint64_t at, const void *data, uint64_t bytes);
/* Takes the room of a file of so many bytes before any is written, where the file system can.
 * path: as the user knows it. */
ATOM_MUST atom_status atom_fd_room(int fd, const char *path, uint64_t bytes);
/* What errno says of a write to a file that is to have so many bytes: where there is no room,
 * ATOM_E_RESOURCE with what it needs. */
atom_status atom_fail_write(int error, const char *path, uint64_t bytes);

bool atom_path_exists(const char *path);
/* Of the file system that holds it, for who is not root; false: it cannot be asked, and errno
 * says why. */
bool atom_dir_free_bytes(const char *dir, uint64_t *bytes);
bool atom_path_is_dir(const char *path);
/* dir + "/" + name in fresh memory; NULL when there is none. */
ATOM_MUST char *atom_path_join(const char *dir, const char *name);
/* $XDG_CACHE_HOME/atom or ~/.cache/atom, made if needed and owned by us. Free with atom_free. */
ATOM_MUST atom_status atom_cache_dir(char **path);

/* Peak resident set of this process in bytes (VmHWM). */
uint64_t atom_vm_peak_bytes(void);
/* MemAvailable, capped by the cgroup's limit. */
uint64_t atom_host_available_bytes(void);
/* Cores this process may run on. */
uint32_t atom_cores(void);
/* The line in /proc/sys/net/<name>, of this process's network; empty where it cannot be read. */
void atom_net_setting(const char *name, char *out, size_t room);

/* Edit distance for "did you mean"; returns the nearest of n names or NULL if none is near. */
const char *atom_did_you_mean(const char *word, const char *const *names, size_t n);

/* 64-bit FNV-1a, for cache keys (not for security). Start with ATOM_HASH_SEED. */
#define ATOM_HASH_SEED 0xcbf29ce484222325u
uint64_t atom_hash(uint64_t hash, const void *data, size_t bytes);

#endif
