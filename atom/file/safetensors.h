/*
 * safetensors files: a strict reader and a streaming writer.
 *
 *   [ u64 N ][ header: N bytes of JSON, padded with spaces ][ data of all tensors, packed ]
 *
 * The reader trusts nothing: it checks every length with overflow in mind, refuses duplicates,
 * holes, overlaps and trailing bytes, and reads with pread (a mapped file that shrinks would kill
 * us) or through a source. The writer appears whole or not at all: temporary name, fsync, rename,
 * fsync of the directory.
 *
 * Ownership: what open returns, close frees. Thread: an open reader may be read from several
 * threads, but for one with a source or checksums, from one at a time. Errors: ATOM_E_FORMAT names file and
 * tensor; ATOM_E_RESOURCE for memory and full disks. Source: docs/design/files.md#safetensors.
 */
#ifndef ATOM_FILE_SAFETENSORS_H
#define ATOM_FILE_SAFETENSORS_H

#include "atom/base/dtype.h"
#include "atom/base/status.h"
#include "atom/file/source.h"
#include "atom/file/sums.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* In the writer's order of alignment, low to high. */
typedef enum file_dtype {
    FILE_BOOL,
    FILE_F4,
    FILE_F6_E2M3,
    FILE_F6_E3M2,
    FILE_U8,
    FILE_I8,
    FILE_F8_E5M2,
    FILE_F8_E4M3,
    FILE_F8_E8M0,
    FILE_F8_E4M3FNUZ,
    FILE_F8_E5M2FNUZ,
    FILE_I16,
    FILE_U16,
    FILE_F16,
    FILE_BF16,
    FILE_I32,
    FILE_U32,
    FILE_F32,
    FILE_C64,
    FILE_F64,
    FILE_I64,
    FILE_U64,
    FILE_DTYPE_N
} file_dtype;

enum { FILE_TENSOR_NAME_MAX = 512, FILE_RANK_MAX = 8, FILE_HEADER_BYTES_MAX = 100000000 };

const char *file_dtype_name(file_dtype dtype); /* "BF16" */
uint32_t file_dtype_bits(file_dtype dtype);

typedef struct file_tensor {
    char *name; /* owned by the file object; any UTF-8, never a path */
    file_dtype dtype;
    uint32_t rank;
    uint64_t dims[FILE_RANK_MAX];
    uint64_t elements;
    uint64_t bytes;
    uint64_t offset; /* of the first byte, from the start of the file */
} file_tensor;

/* --- reading --------------------------------------------------------------------------------- */

typedef struct file_pair {
    char *key, *value;
} file_pair;

typedef struct file_safetensors {
    char *path;
    int fd;
    uint64_t file_bytes;
    uint64_t header_bytes;
    uint32_t n_tensors, n_metadata;
    file_tensor *tensors; /* ascending offset */
    uint32_t *by_name;    /* indices into tensors, ascending name */
    file_pair *metadata;  /* __metadata__, in file order */
    const file_source *source;
    void *reader; /* the source's; NULL: plain reads */
    file_sums
        *sums; /* of other formats: what is read is compared with them; NULL: there are none */
} file_safetensors;

ATOM_MUST atom_status file_st_open(const char *path, file_safetensors **out);
/* From now on the data comes through `source`, if that wants this file, and through none before it;
 * NULL: read the plain way. */
ATOM_MUST atom_status file_st_through(file_safetensors *file, const file_source *source);
void file_st_close(file_safetensors **file);
/* NULL if there is none. */
const file_tensor *file_st_find(const file_safetensors *file, const char *name);
/* NULL if there is no such key. */
const char *file_st_metadata(const file_safetensors *file, const char *key);
/* `bytes` bytes of a tensor from `first` on, as stored. The range must lie inside the tensor. */
ATOM_MUST atom_status file_st_read(const file_safetensors *file, const file_tensor *tensor,
                                   uint64_t first, uint64_t bytes, void *out);
/* `count` elements from `first` on, as f32. F32, F16 and BF16 only; others are
 * named and refused. */
ATOM_MUST atom_status file_st_read_f32(const file_safetensors *file, const file_tensor *tensor,
                                       uint64_t first, uint64_t count, float *out);

/*
 * Checks a header by itself, as open does with a file of file_bytes: `header` is what follows the
 * length word. For fuzzing; fd of the result is -1.
 */
ATOM_MUST atom_status file_st_parse(const char *path, const char *header, uint64_t header_bytes,
                                    uint64_t file_bytes, file_safetensors **out);

/* For readers of other formats, whose tensors lie in a file as these do (torchfile.h): brings
 * tensors and by_name in order; refuses two of one name. */
ATOM_MUST atom_status file_st_sort(file_safetensors *file);
/* Opens a file for reading and says how long it is; refuses what is not a regular file. */
ATOM_MUST atom_status file_open_regular(const char *path, int *fd, uint64_t *bytes);

/* --- writing --------------------------------------------------------------------------------- */

/*
 *     file_st_create(path, &w);
 *     for each tensor: file_st_declare(w, name, dtype, rank, dims);
 *     file_st_begin(w);
 *     while (file_st_next(w, &i))
 *         file_st_write(w, data, bytes);    of the tensor declared i-th, whole or in pieces
 *     file_st_finish(w);                    fsync, rename
 *     file_st_writer_close(&w);             removes the temporary unless finished
 *
 * Order of data: dtype alignment descending, then name. Every file carries {"format":"pt"}.
 */
typedef struct file_st_writer file_st_writer;

ATOM_MUST atom_status file_st_create(const char *path, file_st_writer **out);
ATOM_MUST atom_status file_st_declare(file_st_writer *w, const char *name, file_dtype dtype,
                                      uint32_t rank, const uint64_t *dims);
/* The file is written through `sink` (NULL-safe; before begin), if that wants it. */
void file_st_into(file_st_writer *w, const file_sink *sink);
/* Reserves the disk space (so that a full disk is noticed first) and writes the header. */
ATOM_MUST atom_status file_st_begin(file_st_writer *w);
/* The tensor whose data comes next, as its number in order of declaration; false when all is
 * written. */
bool file_st_next(const file_st_writer *w, uint32_t *declared);
/* Appends to the tensor that file_st_next names; at most what is left of it. */
ATOM_MUST atom_status file_st_write(file_st_writer *w, const void *data, uint64_t bytes);
ATOM_MUST atom_status file_st_finish(file_st_writer *w);
void file_st_writer_close(file_st_writer **w);

#endif
