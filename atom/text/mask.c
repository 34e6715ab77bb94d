/*
 * Owns the files that say which tokens count. One idea: a bit per token, small enough (12.5 MB for
 * the largest shard) to be read and checked whole when the shard is opened, so that training never
 * runs on a wrong one. Refuses a mask that is not of this shard.
 */
#include "atom/text/mask.h"

#include "atom/base/bytes.h"
#include "atom/base/files.h"
#include "atom/base/hash.h"
#include "atom/base/mem.h"

#include <string.h>

static const char MAGIC[] = "atommask";
static const uint64_t FILE_BYTES_MAX = 1 << 30;

static char *beside(const char *shard_path, const char *kind)
{
    size_t n = strlen(shard_path);
    n -= n > 4 && strcmp(shard_path + n - 4, ".bin") == 0 ? 4 : 0;
    return atom_format("%.*s.%s", (int)n, shard_path, kind);
}

char *text_mask_path(const char *shard_path)
{
    return beside(shard_path, "mask");
}

char *text_begins_path(const char *shard_path)
{
    return beside(shard_path, "begins");
}

atom_status text_mask_write(const char *path, const uint8_t *bits, uint64_t tokens)
{
    size_t bytes = (size_t)((tokens + 7) / 8), all = TEXT_MASK_HEADER_BYTES + bytes;
    uint8_t *file = atom_alloc(all, 1);
    if (!file)
        return atom_fail_memory(path, all);
    memcpy(file, MAGIC, 8);
    atom_writer w = atom_writer_make(file + 8, TEXT_MASK_HEADER_BYTES - 8);
    atom_write_uint(&w, TEXT_MASK_VERSION, 4);
    atom_write_uint(&w, 0, 4);
    atom_write_uint(&w, tokens, 8);
    atom_write_uint(&w, atom_hash(ATOM_HASH_SEED, bits, bytes), 8);
    memcpy(file + TEXT_MASK_HEADER_BYTES, bits, bytes);
    atom_status st = atom_file_write(path, file, all);
    atom_free(file);
    return st;
}

atom_status text_mask_parse(const void *data, uint64_t bytes, uint64_t tokens, const char *name,
                            const uint8_t **bits, uint64_t *hash)
{
    const uint8_t *file = data;
    uint64_t need = TEXT_MASK_HEADER_BYTES + (tokens + 7) / 8;
    if (bytes < TEXT_MASK_HEADER_BYTES || memcmp(file, MAGIC, 8) != 0)
        return atom_fail(ATOM_E_FORMAT,
                         "%s is not a mask of a token shard; make the data again with 'atom data "
                         "prepare', or remove the file so that all tokens are learned",
                         name);
    atom_reader r = atom_reader_make(file + 8, TEXT_MASK_HEADER_BYTES - 8);
    uint32_t version = atom_read_u32(&r), zero = atom_read_u32(&r);
    uint64_t said = atom_read_u64(&r), hashed = atom_read_u64(&r);
    if (version != TEXT_MASK_VERSION || zero)
        return atom_fail(ATOM_E_FORMAT, "%s is a mask of version %u, but atom reads version %d",
                         name, version, TEXT_MASK_VERSION);
    if (said != tokens)
        return atom_fail(ATOM_E_FORMAT,
                         "%s is a mask of %llu tokens, but its shard has %llu tokens; they are "
                         "not from the same data set; make it again with 'atom data prepare'",
                         name, (unsigned long long)said, (unsigned long long)tokens);
    if (bytes != need)
        return atom_fail(ATOM_E_FORMAT,
                         "%s has %llu bytes, but its header says %llu; copy it again", name,
                         (unsigned long long)bytes, (unsigned long long)need);
    file += TEXT_MASK_HEADER_BYTES;
    bool tail = tokens % 8 && file[tokens / 8] >> tokens % 8;
    if (tail || atom_hash(ATOM_HASH_SEED, file, (size_t)((tokens + 7) / 8)) != hashed)
        return atom_fail(ATOM_E_FORMAT, "%s is damaged (its checksum is wrong); copy it again",
                         name);
    *bits = file;
    *hash = hashed;
    return ATOM_OK;
}

atom_status text_mask_read(const char *path, uint64_t tokens, uint8_t **bits, uint64_t *hash)
{
    char *data = NULL;
    uint64_t bytes = 0;
    const uint8_t *at = NULL;
    atom_status st = atom_file_read(path, FILE_BYTES_MAX, &data, &bytes);
    if (st == ATOM_OK)
        st = text_mask_parse(data, bytes, tokens, path, &at, hash);
    if (st != ATOM_OK) {
        atom_free(data);
        return st;
    }
    memmove(data, at, (size_t)((tokens + 7) / 8));
    *bits = (uint8_t *)data;
    return ATOM_OK;
}
