/*
 * Owns where the entries of a zip archive lie in its file. One idea: libzip has read and checked the
 * directory and only does not tell where the entries begin, so the directory is walked once more, in
 * the same order, and must say the same names and sizes. Refuses archives of several disks, and what
 * libzip reads otherwise than this.
 */
#include "atom/file/zip.h"

#include "atom/base/bytes.h"
#include "atom/base/files.h"
#include "atom/base/mem.h"

#include <errno.h>
#include <string.h>

enum {
    LOCAL_BYTES = 30,
    CENTRAL_BYTES = 46,
    END_BYTES = 22,
    END64_BYTES = 56,
    LOCATOR_BYTES = 20,
    TAIL_BYTES = LOCATOR_BYTES + END_BYTES + 65535,
    DIRECTORY_BYTES_MAX = 1 << 27
};
static const uint32_t LOCAL_MARK = 0x04034b50, CENTRAL_MARK = 0x02014b50, END_MARK = 0x06054b50,
                      END64_MARK = 0x06064b50, LOCATOR_MARK = 0x07064b50;

static atom_status differs(const file_zip *z)
{
    return atom_fail(ATOM_E_FORMAT, "%s: its zip directory can be read in two ways; copy it again",
                     z->path);
}

static atom_status read_at(const file_zip *z, int fd, uint64_t at, void *out, uint64_t bytes)
{
    int error = atom_fd_read(fd, at, out, bytes);
    if (error == ENODATA)
        return differs(z);
    return error ? atom_fail_errno(error, "%s: reading", z->path) : ATOM_OK;
}

/* The directory's place: in the last end record whose comment ends with the file, or in the larger
 * record that a locator in front of it leads to. */
static atom_status find_directory(const file_zip *z, int fd, uint64_t file_bytes, uint64_t *first,
                                  uint64_t *bytes)
{
    uint64_t n = file_bytes < TAIL_BYTES ? file_bytes : TAIL_BYTES, at = n;
    uint8_t *tail = atom_alloc((size_t)n + 1, 1), end64[END64_BYTES];
    atom_reader r = {0};
    atom_status st;
    if (!tail)
        return atom_fail_memory("a zip directory", n);
    ATOM_TRY_CLEAN(read_at(z, fd, file_bytes - n, tail, n));
    for (at = n < END_BYTES ? 0 : n - END_BYTES + 1; at > 0; at--) {
        r = atom_reader_make(tail + at - 1, END_BYTES);
        atom_reader comment = atom_reader_make(tail + at - 1 + END_BYTES - 2, 2);
        if (atom_read_u32(&r) == END_MARK && at - 1 + END_BYTES + atom_read_u16(&comment) == n)
            break;
    }
    if (at == 0)
        ATOM_TRY_CLEAN(differs(z));
    r.at += 8; /* disks, numbers of entries */
    *bytes = atom_read_u32(&r);
    *first = atom_read_u32(&r);
    if (at > LOCATOR_BYTES) {
        atom_reader locator = atom_reader_make(tail + at - 1 - LOCATOR_BYTES, LOCATOR_BYTES);
        if (atom_read_u32(&locator) == LOCATOR_MARK) {
            locator.at += 4;
            ATOM_TRY_CLEAN(read_at(z, fd, atom_read_u64(&locator), end64, sizeof end64));
            r = atom_reader_make(end64, sizeof end64);
            if (atom_read_u32(&r) != END64_MARK)
                ATOM_TRY_CLEAN(differs(z));
            r.at += 36; /* its size, versions, disks, numbers of entries */
            *bytes = atom_read_u64(&r);
            *first = atom_read_u64(&r);
        }
    }
    if (*bytes > DIRECTORY_BYTES_MAX)
        st = differs(z);
cleanup:
    atom_free(tail);
    return st;
}

/* The 64-bit offset in the extra fields of an entry; it is behind the sizes that are there, too. */
static bool wide_offset(atom_reader extra, int before, uint64_t *out)
{
    while (atom_reader_left(&extra) >= 4) {
        uint16_t id = atom_read_u16(&extra), n = atom_read_u16(&extra);
        if (n > atom_reader_left(&extra))
            return false;
        atom_reader field = atom_reader_make(extra.at, n);
        extra.at += n;
        if (id != 1)
            continue;
        for (int i = 0; i < before; i++)
            atom_read_u64(&field);
        *out = atom_read_u64(&field);
        return atom_reader_ok(&field);
    }
    return false;
}

/* One record of the directory, which must be of this entry; *local: where its header is. */
static atom_status take_record(const file_zip *z, atom_reader *r, const file_zip_entry *e,
                               uint64_t *local)
{
    if (atom_read_u32(r) != CENTRAL_MARK || atom_reader_left(r) < CENTRAL_BYTES - 4)
        return differs(z);
    r->at += 16; /* versions, flags, method, time, checksum */
    uint32_t stored = atom_read_u32(r), size = atom_read_u32(r);
    uint16_t name = atom_read_u16(r), extra = atom_read_u16(r), comment = atom_read_u16(r);
    r->at += 8; /* disk, attributes */
    *local = atom_read_u32(r);
    if ((uint64_t)name + extra + comment > atom_reader_left(r) || name != strlen(e->name) ||
        memcmp(r->at, e->name, name) != 0 || (size != UINT32_MAX && size != e->bytes))
        return differs(z);
    int before = (size == UINT32_MAX) + (stored == UINT32_MAX);
    if (*local == UINT32_MAX && !wide_offset(atom_reader_make(r->at + name, extra), before, local))
        return differs(z);
    r->at += name + extra + comment;
    return ATOM_OK;
}

/* From the header in front of an entry to its bytes. */
static atom_status to_data(const file_zip *z, int fd, uint64_t file_bytes, const file_zip_entry *e,
                           uint64_t *at)
{
    uint8_t header[LOCAL_BYTES];
    if (*at > file_bytes)
        return differs(z);
    ATOM_TRY(read_at(z, fd, *at, header, sizeof header));
    atom_reader r = atom_reader_make(header, sizeof header);
    if (atom_read_u32(&r) != LOCAL_MARK)
        return differs(z);
    r.at += 22;
    *at += LOCAL_BYTES;
    *at += atom_read_u16(&r);
    *at += atom_read_u16(&r);
    return *at <= file_bytes && e->bytes <= file_bytes - *at ? ATOM_OK : differs(z);
}

atom_status file_zip_places(const file_zip *z, int fd, uint64_t file_bytes, uint64_t *places)
{
    uint64_t first = 0, bytes = 0;
    ATOM_TRY(find_directory(z, fd, file_bytes, &first, &bytes));
    uint8_t *directory = atom_alloc((size_t)bytes + 1, 1);
    atom_status st;
    if (!directory)
        return atom_fail_memory("a zip directory", bytes);
    ATOM_TRY_CLEAN(read_at(z, fd, first, directory, bytes));
    atom_reader r = atom_reader_make(directory, (size_t)bytes);
    for (uint32_t i = 0; i < z->n_entries; i++) {
        ATOM_TRY_CLEAN(take_record(z, &r, &z->entries[i], &places[i]));
        ATOM_TRY_CLEAN(to_data(z, fd, file_bytes, &z->entries[i], &places[i]));
    }
cleanup:
    atom_free(directory);
    return st;
}
