/*
 * Owns zip archives of stored entries. One idea: the directory at the end is the list, read once
 * and checked whole; after that an entry is a range of the file. Refuses compression, encryption,
 * several disks, and anything that would lie outside the file or over something else.
 */
#include "atom/file/zip.h"

#include "atom/base/assert.h"
#include "atom/base/bytes.h"
#include "atom/base/files.h"
#include "atom/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    LOCAL_BYTES = 30,
    CENTRAL_BYTES = 46,
    END_BYTES = 22,
    END64_BYTES = 56,
    LOCATOR_BYTES = 20,
    COMMENT_MAX = 65535,
    DIRECTORY_BYTES_MAX = 1 << 27
};
static const uint32_t LOCAL_MARK = 0x04034b50, CENTRAL_MARK = 0x02014b50, END_MARK = 0x06054b50,
                      END64_MARK = 0x06064b50, LOCATOR_MARK = 0x07064b50;

/* What the end of the file says of the directory. */
typedef struct directory {
    uint64_t n, bytes, offset;
} directory;

static atom_status read_at(const file_zip *z, uint64_t offset, uint64_t bytes, void *out)
{
    int error = atom_fd_read(z->fd, offset, out, bytes);
    if (error == ENODATA)
        return atom_fail(ATOM_E_FORMAT, "%s: ends early; copy the file again", z->path);
    return error ? atom_fail_errno(error, "%s: reading", z->path) : ATOM_OK;
}

static atom_status broken(const file_zip *z, const char *what)
{
    return atom_fail(ATOM_E_FORMAT, "%s: %s; is this a whole zip archive?", z->path, what);
}

/* The larger form, which stands in front of the end where its numbers are too large. */
static atom_status read_end64(const file_zip *z, uint64_t end, directory *d)
{
    uint8_t locator[LOCATOR_BYTES], data[END64_BYTES];
    if (end < LOCATOR_BYTES + END64_BYTES)
        return broken(z, "its directory is missing");
    ATOM_TRY(read_at(z, end - LOCATOR_BYTES, LOCATOR_BYTES, locator));
    atom_reader r = atom_reader_make(locator, sizeof locator);
    if (atom_read_u32(&r) != LOCATOR_MARK || atom_read_u32(&r) != 0)
        return broken(z, "the mark of its large directory is missing");
    uint64_t at = atom_read_u64(&r);
    if (at > end - LOCATOR_BYTES - END64_BYTES)
        return broken(z, "its directory lies outside");
    ATOM_TRY(read_at(z, at, END64_BYTES, data));
    r = atom_reader_make(data, sizeof data);
    if (atom_read_u32(&r) != END64_MARK)
        return broken(z, "its large directory is missing");
    r.at += 8 + 2 + 2 + 4 + 4; /* its size, versions, disks */
    uint64_t here = atom_read_u64(&r);
    d->n = atom_read_u64(&r);
    d->bytes = atom_read_u64(&r);
    d->offset = atom_read_u64(&r);
    if (here != d->n)
        return broken(z, "it is a part of several");
    return ATOM_OK;
}

/* Where the file's last END_MARK is that has as much comment behind it as it says. */
static atom_status find_end(const file_zip *z, directory *d, uint64_t *end)
{
    uint64_t n = z->file_bytes < END_BYTES + COMMENT_MAX ? z->file_bytes : END_BYTES + COMMENT_MAX;
    uint8_t *tail = atom_alloc((size_t)n + 1, 1);
    atom_status st = tail ? read_at(z, z->file_bytes - n, n, tail) : atom_fail_memory("a zip", n);
    uint64_t at = n >= END_BYTES ? n - END_BYTES + 1 : 0;
    bool found = false;
    while (st == ATOM_OK && at > 0 && !found) {
        at--;
        atom_reader r = atom_reader_make(tail + at, (size_t)(n - at));
        if (atom_read_u32(&r) != END_MARK)
            continue;
        uint16_t disk = atom_read_u16(&r), first = atom_read_u16(&r), here = atom_read_u16(&r);
        d->n = atom_read_u16(&r);
        d->bytes = atom_read_u32(&r);
        d->offset = atom_read_u32(&r);
        found = atom_read_u16(&r) == n - at - END_BYTES && disk == first && here == d->n;
    }
    atom_free(tail);
    if (st == ATOM_OK && !found)
        st = broken(z, "it has no zip directory at its end");
    *end = z->file_bytes - n + at;
    return st;
}

static atom_status read_directory(const file_zip *z, directory *d, uint8_t **data)
{
    uint64_t end = 0;
    atom_status st = find_end(z, d, &end);
    if (st == ATOM_OK && (d->n == 0xffff || d->bytes == 0xffffffff || d->offset == 0xffffffff))
        st = read_end64(z, end, d);
    if (st != ATOM_OK)
        return st;
    if (d->bytes > end || d->offset > end - d->bytes)
        return broken(z, "its directory lies outside");
    if (d->n > FILE_ZIP_ENTRIES_MAX || d->bytes > DIRECTORY_BYTES_MAX ||
        d->bytes < d->n * CENTRAL_BYTES)
        return broken(z, "its directory has an impossible size");
    *data = atom_alloc((size_t)d->bytes + 1, 1);
    if (!*data)
        return atom_fail_memory("a zip directory", d->bytes);
    return read_at(z, d->offset, d->bytes, *data);
}

/* Sizes that did not fit are in an extra field, in this order, those alone that are all ones. */
static void take_large(const uint8_t *extra, size_t n, uint64_t *plain, uint64_t *packed,
                       uint64_t *offset)
{
    uint64_t *const want[3] = {plain, packed, offset};
    atom_reader r = atom_reader_make(extra, n);
    while (atom_reader_left(&r) >= 4) {
        uint16_t id = atom_read_u16(&r), bytes = atom_read_u16(&r);
        if (bytes > atom_reader_left(&r))
            return;
        atom_reader field = atom_reader_make(r.at, bytes);
        r.at += bytes;
        for (int i = 0; id == 1 && i < 3; i++)
            if (*want[i] == 0xffffffff && atom_reader_left(&field) >= 8)
                *want[i] = atom_read_u64(&field);
    }
}

/* The header in front of the data must agree; what follows it is the entry. */
static atom_status check_local(const file_zip *z, file_zip_entry *e, uint64_t limit)
{
    uint8_t head[LOCAL_BYTES];
    size_t n = strlen(e->name);
    atom_status st = ATOM_OK;
    if (e->offset > limit || limit - e->offset < LOCAL_BYTES + n)
        return atom_fail(ATOM_E_FORMAT, "%s: entry '%.128s' lies outside", z->path, e->name);
    ATOM_TRY(read_at(z, e->offset, LOCAL_BYTES, head));
    atom_reader r = atom_reader_make(head, sizeof head);
    uint32_t mark = atom_read_u32(&r);
    r.at += 22; /* what the directory said already */
    uint16_t name = atom_read_u16(&r), extra = atom_read_u16(&r);
    if (mark != LOCAL_MARK || name != n)
        return atom_fail(ATOM_E_FORMAT, "%s: entry '%.128s' is not where the directory says",
                         z->path, e->name);
    char *again = atom_alloc(n + 1, 1);
    if (!again)
        return atom_fail_memory("a name", n);
    st = read_at(z, e->offset + LOCAL_BYTES, n, again);
    if (st == ATOM_OK && memcmp(again, e->name, n) != 0)
        st = atom_fail(ATOM_E_FORMAT, "%s: entry '%.128s' has another name at its place", z->path,
                       e->name);
    atom_free(again);
    if (st != ATOM_OK)
        return st;
    e->offset += LOCAL_BYTES + n + extra;
    if (e->offset > limit || e->bytes > limit - e->offset)
        return atom_fail(ATOM_E_FORMAT, "%s: entry '%.128s' lies outside", z->path, e->name);
    return ATOM_OK;
}

static atom_status take_entry(file_zip *z, atom_reader *r, uint64_t limit)
{
    file_zip_entry *e = &z->entries[z->n_entries];
    if (atom_reader_left(r) < CENTRAL_BYTES || atom_read_u32(r) != CENTRAL_MARK)
        return broken(z, "its directory is broken");
    r->at += 4; /* versions */
    uint16_t flags = atom_read_u16(r), method = atom_read_u16(r);
    r->at += 8; /* time, checksum */
    uint64_t packed = atom_read_u32(r), plain = atom_read_u32(r);
    uint16_t name = atom_read_u16(r), extra = atom_read_u16(r), comment = atom_read_u16(r);
    r->at += 8; /* disk, attributes */
    uint64_t offset = atom_read_u32(r);
    if (atom_reader_left(r) < (size_t)name + extra + comment || name == 0 || memchr(r->at, 0, name))
        return broken(z, "its directory is broken");
    e->name = atom_strndup((const char *)r->at, name);
    if (!e->name)
        return atom_fail_memory("a name", name);
    z->n_entries++;
    take_large(r->at + name, extra, &plain, &packed, &offset);
    r->at += (size_t)name + extra + comment;
    if (flags & 1)
        return atom_fail(ATOM_E_UNSUPPORTED, "%s: entry '%.128s' is encrypted", z->path, e->name);
    if (method != 0)
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "%s: entry '%.128s' is compressed; torch.export.save stores entries as "
                         "they are: save it again, or repack it with zip -0",
                         z->path, e->name);
    if (plain != packed)
        return broken(z, "a stored entry has two sizes");
    e->bytes = plain;
    e->offset = offset;
    return check_local(z, e, limit);
}

static int by_offset(const void *a, const void *b)
{
    const file_zip_entry *x = a, *y = b;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static int by_name(const void *a, const void *b)
{
    const file_zip_entry *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static atom_status check_all(file_zip *z)
{
    file_zip_entry *e = z->entries;
    if (z->n_entries == 0)
        return ATOM_OK;
    qsort(e, z->n_entries, sizeof *e, by_offset);
    for (uint32_t i = 1; i < z->n_entries; i++)
        if (e[i].offset - LOCAL_BYTES - strlen(e[i].name) < e[i - 1].offset + e[i - 1].bytes)
            return atom_fail(ATOM_E_FORMAT, "%s: entries '%.128s' and '%.128s' overlap", z->path,
                             e[i - 1].name, e[i].name);
    qsort(e, z->n_entries, sizeof *e, by_name);
    for (uint32_t i = 1; i < z->n_entries; i++)
        if (strcmp(e[i].name, e[i - 1].name) == 0)
            return atom_fail(ATOM_E_FORMAT, "%s: entry '%.128s' is there twice", z->path,
                             e[i].name);
    return ATOM_OK;
}

static atom_status open_file(file_zip *z, const char *path)
{
    struct stat s;
    z->path = atom_strdup(path);
    if (!z->path)
        return atom_fail_memory("a path", strlen(path));
    z->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (z->fd < 0 || fstat(z->fd, &s) != 0)
        return atom_fail_errno(errno, "%s", path);
    if (!S_ISREG(s.st_mode))
        return atom_fail(ATOM_E_FORMAT, "%s is no file", path);
    z->file_bytes = (uint64_t)s.st_size;
    return ATOM_OK;
}

atom_status file_zip_open(const char *path, file_zip **out)
{
    file_zip *z = atom_alloc(1, sizeof *z);
    uint8_t *data = NULL;
    directory d = {0};
    atom_status st;
    if (!z)
        return atom_fail_memory("a zip archive", sizeof *z);
    z->fd = -1;
    ATOM_TRY_CLEAN(open_file(z, path));
    ATOM_TRY_CLEAN(read_directory(z, &d, &data));
    z->entries = atom_alloc((size_t)d.n + 1, sizeof *z->entries);
    if (!z->entries) {
        st = atom_fail_memory("a zip directory", d.n * sizeof *z->entries);
        goto cleanup;
    }
    atom_reader r = atom_reader_make(data, (size_t)d.bytes);
    for (uint64_t i = 0; i < d.n; i++)
        ATOM_TRY_CLEAN(take_entry(z, &r, d.offset));
    ATOM_TRY_CLEAN(check_all(z));
    *out = z;
    z = NULL;
cleanup:
    atom_free(data);
    file_zip_close(&z);
    return st;
}

void file_zip_close(file_zip **ref)
{
    file_zip *z = *ref;
    if (!z)
        return;
    for (uint32_t i = 0; i < z->n_entries; i++)
        atom_free(z->entries[i].name);
    if (z->fd >= 0)
        close(z->fd);
    atom_free(z->entries);
    atom_free(z->path);
    atom_free(z);
    *ref = NULL;
}

bool file_zip_is_file(const char *path)
{
    uint8_t mark[4] = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool is = fd >= 0 && read(fd, mark, 4) == 4 && memcmp(mark, "PK\3\4", 4) == 0;
    if (fd >= 0)
        close(fd);
    return is;
}

const file_zip_entry *file_zip_find(const file_zip *z, const char *name)
{
    file_zip_entry key = {.name = (char *)(uintptr_t)name};
    return z->n_entries ? bsearch(&key, z->entries, z->n_entries, sizeof key, by_name) : NULL;
}

atom_status file_zip_read(const file_zip *z, const file_zip_entry *e, uint64_t first,
                          uint64_t bytes, void *out)
{
    ATOM_ASSERT(first <= e->bytes && bytes <= e->bytes - first);
    return read_at(z, e->offset + first, bytes, out);
}

atom_status file_zip_load(const file_zip *z, const file_zip_entry *e, uint64_t most, char **text)
{
    if (e->bytes > most)
        return atom_fail(ATOM_E_FORMAT, "%s: entry '%.128s' has %llu bytes, more than %llu",
                         z->path, e->name, (unsigned long long)e->bytes, (unsigned long long)most);
    char *data = atom_alloc((size_t)e->bytes + 1, 1);
    if (!data)
        return atom_fail_memory(z->path, e->bytes);
    atom_status st = file_zip_read(z, e, 0, e->bytes, data);
    if (st == ATOM_OK)
        *text = data;
    else
        atom_free(data);
    return st;
}
