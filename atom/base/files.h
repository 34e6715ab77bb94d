/*
 * Files, directories and paths. What is written appears whole or not at all. Thread: any.
 * Errors: as stated; where nothing is, ATOM_E_RESOURCE (full disk) and ATOM_E_RUNTIME.
 */
#ifndef ATOM_BASE_FILES_H
#define ATOM_BASE_FILES_H

#include "atom/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Whole file into memory (NUL added, not counted). Free with atom_free. ATOM_E_FORMAT (a bad input
 * file) when it is missing, may not be read, is a directory or is larger than max_bytes.
 */
ATOM_MUST atom_status atom_file_read(const char *path, uint64_t max_bytes, char **data,
                                     uint64_t *bytes);
/* The first line of a file of the system, without its end; false: there is none. */
bool atom_file_line(const char *path, char *line, size_t room);
/*
 * May a file of ours take this place? Yes where nothing is there, an empty file, a device or pipe, or
 * a text that says near its beginning what ours say. what: "a plan".
 *
 * Errors: ATOM_E_USAGE where something else is there
 */
ATOM_MUST atom_status atom_file_check_place(const char *path, const char *says, const char *what);
/*
 * Opens a file for writing under a temporary name, empty and locked until *fd is closed; rename it before
 * that. A file that a killed process left there is written over. Waits patience_ms at most for another
 * process that is writing it.
 *
 * Errors: ATOM_E_USAGE where that goes on
 */
ATOM_MUST atom_status atom_temporary_open(const char *path, uint32_t patience_ms, int *fd);
enum { ATOM_TEMPORARY_MS = 1000 }; /* patience with a large file: a killed process may be ending */
/*
 * Writes path.tmp, fsyncs, renames over path, fsyncs the directory. Links are followed;
 * anything else that exists (/dev/stdout, a pipe) is written to directly.
 */
ATOM_MUST atom_status atom_file_write(const char *path, const void *data, uint64_t bytes);
/* mkdir -p. */
ATOM_MUST atom_status atom_dir_make(const char *path);
/* Makes names that were created or renamed in it survive a power cut. */
ATOM_MUST atom_status atom_dir_sync(const char *path);
/*
 * Locks a directory for one process, until *fd is closed or the process ends, however it ends. *fd
 * is -1 where another process holds it after a second, or after ten seconds if that process is
 * ending: a killed one keeps its locks until its memory is given back, and the log says that it is
 * waited for. *holder is then the number of that process, or 0 where the kernel does not say.
 * Nothing fails where the file system knows no locks.
 */
ATOM_MUST atom_status atom_dir_lock(const char *path, int *fd, int64_t *holder);
/* rm -r of a directory that we made. Refuses to follow links. */
ATOM_MUST atom_status atom_dir_remove(const char *path);
/* The same, but the directory itself stays. */
ATOM_MUST atom_status atom_dir_empty(const char *path);
/* All `bytes` of an open file from byte `at`, in as many system calls as it takes. 0, or the error
 * that is in errno too: ENODATA where the file ends early, ENOSPC where nothing more went in. */
ATOM_MUST int atom_fd_read(int fd, uint64_t at, void *out, uint64_t bytes);
ATOM_MUST int atom_fd_write(int fd, uint64_t at, const void *data, uint64_t bytes);
/*
 * Whoever can wait until a full disk has room again, for the writes of one thread: each write above and
 * below that finds the disk full asks `wait`, and tries again where it says true; false: it fails as
 * if nobody waited. fd: the file (-1: one that is only being made); bytes: what is still to be
 * written. NULL: nobody waits (so it is for each thread at first).
 */
typedef bool atom_room_wait(void *ctx, int fd, uint64_t bytes);
void atom_room_wait_by(atom_room_wait *wait, void *ctx);
/* For writes that are made elsewhere: true: there may be room now, try again. */
ATOM_MUST bool atom_room_waited(int error, int fd, uint64_t bytes);
/* open(2) for files of ours, which needs room too where it makes one. -1, and errno. */
ATOM_MUST int atom_fd_open(const char *path, int flags, unsigned mode);
/* Reserves the space of a file of so many bytes before any is written, where the file system can.
 * path: for the message. */
ATOM_MUST atom_status atom_fd_room(int fd, const char *path, uint64_t bytes);
/* Reports errno after a write to a file that is to have so many bytes: ATOM_E_RESOURCE, with the
 * space it needs, where the disk is full. */
atom_status atom_fail_write(int error, const char *path, uint64_t bytes);

/* Is this the first line of a Git LFS pointer, which stands where a file was not downloaded? */
bool atom_is_lfs_pointer(const void *data, uint64_t bytes);
/* Fails with ATOM_E_FORMAT: path is such a pointer, and how to get the file. */
atom_status atom_fail_lfs(const char *path);

bool atom_path_exists(const char *path);
/* Free bytes of the file system that holds dir, for users other than root. False if it cannot be
 * asked; errno says why. */
bool atom_dir_free_bytes(const char *dir, uint64_t *bytes);
bool atom_path_is_dir(const char *path);
/* dir + "/" + name in fresh memory; NULL when there is none. */
ATOM_MUST char *atom_path_join(const char *dir, const char *name);
/* $XDG_CACHE_HOME/atom or ~/.cache/atom, made if needed and owned by us. Free with atom_free. */
ATOM_MUST atom_status atom_cache_dir(char **path);

#endif
