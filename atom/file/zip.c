/*
 * Owns zip archives of stored entries. One idea: libzip parses, we decide what is acceptable once
 * at opening; after that an entry is a range of bytes. Refuses compression, encryption, duplicate
 * names, entries that together claim more than the file has, and bytes that differ from their checksum.
 */
#include "atom/file/zip.h"

#include "atom/base/assert.h"
#include "atom/base/bytes.h"
#include "atom/base/files.h"
#include "atom/base/mem.h"
#include "atom/file/sums.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zip.h>

enum {
    LOCAL_BYTES = 30,
    CENTRAL_BYTES = 46,
    END_BYTES = 22,
    END64_BYTES = 56,
    LOCATOR_BYTES = 20,
    TAIL_BYTES = LOCATOR_BYTES + END_BYTES + 65535, /* with the longest comment */
    DIRECTORY_BYTES_MAX = 1 << 27,
    PIECE_BYTES = 1 << 18
};
static const uint32_t END_MARK = 0x06054b50, END64_MARK = 0x06064b50, LOCATOR_MARK = 0x07064b50;

/* Where libzip's error came from decides what kind it is; `what` names the entry. */
static atom_status fail_zip(const file_zip *z, zip_error_t *error, const char *what)
{
    int code = zip_error_code_zip(error);
    if (code == ZIP_ER_MEMORY)
        return atom_fail_memory(z->path, 0);
    if (code == ZIP_ER_EXISTS)
        return atom_fail(ATOM_E_FORMAT, "%s: two entries have the same name", z->path);
    if (zip_error_system_type(error) == ZIP_ET_SYS && zip_error_code_system(error) > 0)
        return atom_fail_errno(zip_error_code_system(error), "%s: reading%s", z->path, what);
    if (code == ZIP_ER_INCONS)
        return atom_fail(ATOM_E_FORMAT, "%s:%s %s; copy it again, or repack it with zip -0",
                         z->path, what, zip_error_strerror(error));
    return atom_fail(ATOM_E_FORMAT, "%s:%s this is not a complete zip archive (%s); copy it again",
                     z->path, what, zip_error_strerror(error));
}

static atom_status fail_entry(file_zip *z, const file_zip_entry *e, zip_error_t *error)
{
    char what[160];
    snprintf(what, sizeof what, " entry '%.128s':", e->name);
    return fail_zip(z, error, what);
}

/* left: bytes of the file that no entry before this one has claimed, with its headers. */
static atom_status take_entry(file_zip *z, uint64_t index, uint64_t *left)
{
    zip_stat_t s;
    file_zip_entry *e = &z->entries[index];
    if (zip_stat_index(z->zip, index, ZIP_FL_ENC_RAW, &s) < 0)
        return fail_zip(z, zip_get_error(z->zip), "");
    if (!s.name[0])
        return atom_fail(ATOM_E_FORMAT, "%s: an entry has no name", z->path);
    *e = (file_zip_entry){.name = s.name, .bytes = s.size, .sum = s.crc};
    z->summed = z->summed || e->sum != 0;
    if (s.encryption_method != ZIP_EM_NONE)
        return atom_fail(ATOM_E_UNSUPPORTED, "%s: entry '%.128s' is encrypted", z->path, e->name);
    if (s.comp_method != ZIP_CM_STORE)
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "%s: entry '%.128s' is compressed, but torch.export.save stores entries "
                         "uncompressed; save it again, or repack it with zip -0",
                         z->path, e->name);
    if (s.comp_size != s.size)
        return atom_fail(ATOM_E_FORMAT, "%s: entry '%.128s' is stored, but has two sizes", z->path,
                         e->name);
    uint64_t around = LOCAL_BYTES + CENTRAL_BYTES + 2 * strlen(e->name);
    if (around > *left || s.size > *left - around)
        return atom_fail(ATOM_E_FORMAT,
                         "%s: entry '%.128s' and those before it overlap: they are "
                         "larger than the file",
                         z->path, e->name);
    *left -= around + s.size;
    return ATOM_OK;
}

static atom_status check_claim(const file_zip *z, uint64_t n, uint64_t bytes, uint64_t most)
{
    if (n > FILE_ZIP_ENTRIES_MAX)
        return atom_fail(ATOM_E_FORMAT, "%s: %llu entries are more than %d", z->path,
                         (unsigned long long)n, FILE_ZIP_ENTRIES_MAX);
    if (bytes > most)
        return atom_fail(ATOM_E_FORMAT, "%s: a directory of %llu bytes is larger than %llu",
                         z->path, (unsigned long long)bytes, (unsigned long long)most);
    return ATOM_OK;
}

/* The end record of large archives, which the locator leads to. */
static atom_status check_end64(const file_zip *z, int fd, uint64_t file_bytes, atom_reader locator)
{
    uint8_t data[END64_BYTES];
    locator.at += 8; /* mark, disk */
    uint64_t at = atom_read_u64(&locator);
    if (file_bytes < END64_BYTES || at > file_bytes - END64_BYTES ||
        atom_fd_read(fd, at, data, sizeof data) != 0)
        return ATOM_OK;
    atom_reader r = atom_reader_make(data, sizeof data);
    if (atom_read_u32(&r) != END64_MARK)
        return ATOM_OK;
    r.at += 8 + 2 + 2 + 4 + 4; /* its size, versions, disks */
    uint64_t here = atom_read_u64(&r), n = atom_read_u64(&r), bytes = atom_read_u64(&r);
    return check_claim(z, here > n ? here : n, bytes, DIRECTORY_BYTES_MAX);
}

/* libzip reads a directory whole before it says how large it is: none that may be its end record
 * may claim more than we accept. One that is broken is left to libzip, which refuses it. */
static atom_status check_ends(const file_zip *z, int fd, uint64_t file_bytes)
{
    uint64_t n = file_bytes < TAIL_BYTES ? file_bytes : TAIL_BYTES;
    uint8_t *tail = atom_alloc((size_t)n + 1, 1);
    atom_status st = ATOM_OK;
    if (!tail)
        return atom_fail_memory("a zip directory", n);
    int error = atom_fd_read(fd, file_bytes - n, tail, n);
    if (error)
        st = atom_fail_errno(error, "%s: reading", z->path);
    for (uint64_t at = 0; st == ATOM_OK && at + END_BYTES <= n; at++) {
        atom_reader r = atom_reader_make(tail + at, END_BYTES);
        if (atom_read_u32(&r) != END_MARK || atom_read_u32(&r) != 0) /* mark, disks */
            continue;
        uint64_t before = file_bytes - n + at;
        uint16_t here = atom_read_u16(&r), entries = atom_read_u16(&r);
        uint64_t bytes = atom_read_u32(&r), offset = atom_read_u32(&r);
        atom_reader locator = {0};
        if (at >= LOCATOR_BYTES)
            locator = atom_reader_make(tail + at - LOCATOR_BYTES, LOCATOR_BYTES);
        atom_reader mark = locator;
        if (at >= LOCATOR_BYTES && atom_read_u32(&mark) == LOCATOR_MARK)
            st = check_end64(z, fd, file_bytes, locator);
        else if (bytes + offset <= before) /* 16 bits may be the rest of a larger number */
            st = check_claim(z, here > entries ? here : entries, bytes,
                             (uint64_t)FILE_ZIP_ENTRIES_MAX * CENTRAL_BYTES);
    }
    atom_free(tail);
    return st;
}

static atom_status check_size(const file_zip *z, uint64_t file_bytes)
{
    int fd = open(z->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return atom_fail_errno(errno, "%s", z->path);
    atom_status st = check_ends(z, fd, file_bytes);
    close(fd);
    return st;
}

static atom_status open_file(file_zip *z, const char *path, uint64_t *bytes)
{
    struct stat s;
    int code = 0;
    z->path = atom_strdup(path);
    if (!z->path)
        return atom_fail_memory("a path", strlen(path));
    if (stat(path, &s) != 0)
        return atom_fail_errno(errno, "%s", path);
    if (!S_ISREG(s.st_mode))
        return atom_fail(ATOM_E_FORMAT, "%s is not a file", path);
    ATOM_TRY(check_size(z, (uint64_t)s.st_size));
    z->zip = zip_open(path, ZIP_RDONLY | ZIP_CHECKCONS, &code);
    *bytes = (uint64_t)s.st_size - END_BYTES;
    if (z->zip)
        return ATOM_OK;
    zip_error_t error;
    zip_error_init_with_code(&error, code);
    atom_status st = fail_zip(z, &error, "");
    zip_error_fini(&error);
    return st;
}

atom_status file_zip_open(const char *path, file_zip **out)
{
    file_zip *z = atom_alloc(1, sizeof *z);
    uint64_t left = 0;
    atom_status st;
    if (!z)
        return atom_fail_memory("a zip archive", sizeof *z);
    ATOM_TRY_CLEAN(open_file(z, path, &left));
    int64_t n = zip_get_num_entries(z->zip, 0);
    if (n > FILE_ZIP_ENTRIES_MAX)
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_FORMAT, "%s: %lld entries are more than %d", path,
                                 (long long)n, FILE_ZIP_ENTRIES_MAX));
    z->entries = atom_alloc((size_t)n + 1, sizeof *z->entries);
    if (!z->entries)
        ATOM_TRY_CLEAN(atom_fail_memory("a zip directory", (uint64_t)n * sizeof *z->entries));
    for (; z->n_entries < n; z->n_entries++)
        ATOM_TRY_CLEAN(take_entry(z, z->n_entries, &left));
    *out = z;
    z = NULL;
cleanup:
    file_zip_close(&z);
    return st;
}

void file_zip_close(file_zip **ref)
{
    file_zip *z = *ref;
    if (!z)
        return;
    if (z->open)
        zip_fclose(z->open);
    if (z->zip)
        zip_discard(z->zip);
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
    int64_t i = zip_name_locate(z->zip, name, ZIP_FL_ENC_RAW);
    /* libzip's table has names that are not UTF-8 as CP437 would read them: not theirs */
    return i < 0 || strcmp(z->entries[i].name, name) != 0 ? NULL : &z->entries[i];
}

/* Leaves the entry open at byte `first`: the next range is mostly the one behind this. */
static atom_status go_to(file_zip *z, const file_zip_entry *e, uint64_t first)
{
    uint64_t index = (uint64_t)(e - z->entries);
    if (z->open && z->open_index != index) {
        zip_fclose(z->open);
        z->open = NULL;
    }
    if (!z->open) {
        z->open =
            zip_fopen_index(z->zip, index, ZIP_FL_COMPRESSED); /* as stored: libzip sums nothing */
        if (!z->open)
            return fail_entry(z, e, zip_get_error(z->zip));
        z->open_index = index;
        z->open_at = 0;
    }
    if (z->open_at != first && zip_fseek(z->open, (zip_int64_t)first, SEEK_SET) < 0)
        return fail_entry(z, e, zip_file_get_error(z->open));
    z->open_at = first;
    return ATOM_OK;
}

static atom_status read_range(file_zip *z, const file_zip_entry *e, uint64_t first, uint64_t bytes,
                              void *out)
{
    char *to = out;
    ATOM_TRY(go_to(z, e, first));
    while (bytes) {
        zip_int64_t n = zip_fread(z->open, to, bytes);
        if (n < 0)
            return fail_entry(z, e, zip_file_get_error(z->open));
        if (n == 0)
            return atom_fail(ATOM_E_FORMAT, "%s ends too early; copy the file again", z->path);
        to += n;
        bytes -= (uint64_t)n;
        z->open_at += (uint64_t)n;
    }
    return ATOM_OK;
}

static atom_status see(file_zip *z, const file_zip_entry *e, uint32_t sum)
{
    if (sum != e->sum)
        return file_sum_differs(z->path, e->name);
    z->entries[e - z->entries].seen = true;
    return ATOM_OK;
}

static atom_status see_all(file_zip *z, const file_zip_entry *e)
{
    void *piece = atom_alloc(PIECE_BYTES, 1);
    uint32_t sum = 0;
    atom_status st = ATOM_OK;
    if (!piece)
        return atom_fail_memory("a checksum", PIECE_BYTES);
    for (uint64_t at = 0, some; at < e->bytes && st == ATOM_OK; at += some) {
        some = e->bytes - at < PIECE_BYTES ? e->bytes - at : PIECE_BYTES;
        st = read_range(z, e, at, some, piece);
        sum = file_sum_add(sum, piece, some);
    }
    atom_free(piece);
    return st == ATOM_OK ? see(z, e, sum) : st;
}

atom_status file_zip_read(file_zip *z, const file_zip_entry *e, uint64_t first, uint64_t bytes,
                          void *out)
{
    bool all = bytes == e->bytes, unseen = z->summed && !e->seen;
    ATOM_ASSERT(first <= e->bytes && bytes <= e->bytes - first);
    if (unseen && !all)
        ATOM_TRY(see_all(z, e));
    ATOM_TRY(read_range(z, e, first, bytes, out));
    return unseen && all ? see(z, e, file_sum_add(0, out, bytes)) : ATOM_OK;
}

atom_status file_zip_load(file_zip *z, const file_zip_entry *e, uint64_t most, char **text)
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
