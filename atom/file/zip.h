/*
 * Zip archives whose entries are stored without compression, which is how PyTorch writes them.
 *
 * libzip reads the directory and checks it against the header in front of each entry. What it would
 * accept and we do not: compressed and encrypted entries, nameless ones, more than
 * FILE_ZIP_ENTRIES_MAX of them or a directory over 128 MiB (both before libzip reads it), and
 * entries that together, with their headers, are larger than the file. Names are only looked up,
 * never written to. The checksum of an entry (that of the directory: the header in front of it may leave it to
 * what follows) is compared before anything of it is used. PyTorch may be told to leave checksums out, and
 * writes 0 for all of them then: where no entry has another, there is none to compare.
 *
 * Ownership: what open returns, close frees. Thread: one at a time. Errors: ATOM_E_FORMAT names
 * file and entry; ATOM_E_UNSUPPORTED for compression and encryption; ATOM_E_RESOURCE.
 * Source: PKWARE APPNOTE 6.3; libzip.
 */
#ifndef ATOM_FILE_ZIP_H
#define ATOM_FILE_ZIP_H

#include "atom/base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { FILE_ZIP_ENTRIES_MAX = 1 << 18 };

typedef struct file_zip_entry {
    const char *name; /* libzip's */
    uint64_t bytes;
    uint32_t sum;
    bool seen; /* compared with its bytes, and right */
} file_zip_entry;

typedef struct file_zip {
    char *path;
    struct zip *zip;
    struct zip_file *open; /* the entry that was read last, or NULL */
    uint64_t open_index, open_at;
    uint32_t n_entries;
    file_zip_entry *entries; /* in the order of the directory */
    bool summed;             /* they have checksums */
} file_zip;

/* Does the file begin as a zip archive does? */
bool file_zip_is_file(const char *path);
ATOM_MUST atom_status file_zip_open(const char *path, file_zip **out);
void file_zip_close(file_zip **zip);
/* NULL if there is none. */
const file_zip_entry *file_zip_find(const file_zip *zip, const char *name);
/* `bytes` bytes of an entry from `first` on. The range must lie inside it. An entry of which not all is
 * wanted is read whole the first time. */
ATOM_MUST atom_status file_zip_read(file_zip *zip, const file_zip_entry *entry, uint64_t first,
                                    uint64_t bytes, void *out);
/* A whole entry of at most `most` bytes, and a NUL behind it. Free with atom_free. */
ATOM_MUST atom_status file_zip_load(file_zip *zip, const file_zip_entry *entry, uint64_t most,
                                    char **text);
/*
 * Where the bytes of each entry begin in the file, which is open as fd: zip->n_entries places. Each
 * entry lies inside the file. For those who read it themselves.
 */
ATOM_MUST atom_status file_zip_places(const file_zip *zip, int fd, uint64_t file_bytes,
                                      uint64_t *places);

#endif
