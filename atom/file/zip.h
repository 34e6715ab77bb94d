/*
 * Zip archives whose entries are stored as they are, which is how PyTorch writes: a strict reader.
 *
 * The directory at the end of the file says what is there; what it says is checked against the
 * file's length and against the header in front of each entry. Archives of more than 4 GiB (zip64)
 * are read. Compressed and encrypted entries are refused, and so are two entries of one name, two
 * that overlap, and more than ZIP_ENTRIES_MAX. Names are words to look up, never paths to write to.
 *
 * Ownership: what open returns, close frees. Thread: an open archive may be read from several.
 * Errors: ATOM_E_FORMAT names file and entry, ATOM_E_UNSUPPORTED for what zip can and this cannot,
 * ATOM_E_RESOURCE. Source: PKWARE APPNOTE 6.3.
 */
#ifndef ATOM_FILE_ZIP_H
#define ATOM_FILE_ZIP_H

#include "atom/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FILE_ZIP_ENTRIES_MAX = 1 << 18 };

typedef struct file_zip_entry {
    char *name;
    uint64_t bytes;
    uint64_t offset; /* of its first byte, from the start of the file */
} file_zip_entry;

typedef struct file_zip {
    char *path;
    int fd;
    uint64_t file_bytes;
    uint32_t n_entries;
    file_zip_entry *entries; /* ascending name */
} file_zip;

/* Does the file begin as a zip archive does? */
bool file_zip_is_file(const char *path);
ATOM_MUST atom_status file_zip_open(const char *path, file_zip **out);
void file_zip_close(file_zip **zip);
/* NULL if there is none. */
const file_zip_entry *file_zip_find(const file_zip *zip, const char *name);
/* `bytes` bytes of an entry from `first` on. The range must lie inside it. */
ATOM_MUST atom_status file_zip_read(const file_zip *zip, const file_zip_entry *entry,
                                    uint64_t first, uint64_t bytes, void *out);
/* A whole entry of at most `most` bytes, and a NUL behind it. Free with atom_free. */
ATOM_MUST atom_status file_zip_load(const file_zip *zip, const file_zip_entry *entry, uint64_t most,
                                    char **text);

#endif
