/*
 * Owns the file of chosen algorithms. One idea: lines are only appended, under a lock, and the
 * first of a key counts, or the first that was measured; so processes that race agree afterwards. A
 * damaged line is skipped: it costs a new choice, never a wrong one, because the library checks every
 * algorithm that it is handed.
 */
#include "kernels/cuda/algos.h"

#include "atom/base/files.h"
#include "atom/base/hash.h"
#include "atom/base/mem.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static const uint64_t FILE_MAX_BYTES = 16u << 20;

struct krn_algos {
    char *path;
    int fd; /* -1: not kept */
    krn_algo *items;
    size_t n, capacity;
    uint64_t read_bytes; /* of the file, already in items */
};

static bool parse(const char *line, krn_algo *out)
{
    int used = 0, plain = 0;
    const char *bar = strchr(line, '|');
    size_t length = bar ? (size_t)(bar - line) : 0;
    if (length == 0 || length >= KRN_ALGO_KEY_MAX)
        return false;
    *out = (krn_algo){0};
    memcpy(out->key, line, length);
    const char *at = bar + 1;
    if (sscanf(at, "%" SCNu32 " %d %" SCNu64 " %lf%n", &out->left, &plain, &out->workspace_bytes,
               &out->seconds, &used) != 4)
        return false;
    out->plain = plain != 0;
    for (int i = 0; i < KRN_ALGO_WORDS; i++) {
        at += used;
        if (sscanf(at, " %" SCNx64 "%n", &out->word[i], &used) != 1)
            return false;
    }
    return true;
}

static krn_algo *find(const krn_algos *algos, const char *key)
{
    for (size_t i = 0; i < algos->n; i++) {
        if (strcmp(algos->items[i].key, key) == 0)
            return &algos->items[i];
    }
    return NULL;
}

const krn_algo *krn_algos_find(const krn_algos *algos, const char *key)
{
    return find(algos, key);
}

static atom_status keep(krn_algos *algos, const krn_algo *algo)
{
    krn_algo *there = find(algos, algo->key);
    if (there && krn_algo_is_makeshift(there) && !algo->plain && algo->seconds > 0)
        *there = *algo;
    if (there)
        return ATOM_OK;
    atom_status st = atom_grow(&algos->items, algos->n, &algos->capacity, sizeof *algos->items);
    if (st == ATOM_OK)
        algos->items[algos->n++] = *algo;
    return st;
}

/* Whole lines past what was read before. */
static void read_more(krn_algos *algos)
{
    char *text = NULL;
    uint64_t bytes = 0;
    if (atom_file_read(algos->path, FILE_MAX_BYTES, &text, &bytes) != ATOM_OK)
        return;
    for (char *line = text + (algos->read_bytes < bytes ? algos->read_bytes : bytes), *end;
         (end = strchr(line, '\n')); line = end + 1) {
        krn_algo algo;
        *end = '\0';
        algos->read_bytes = (uint64_t)(end + 1 - text);
        if (line[0] != '#' && parse(line, &algo) && keep(algos, &algo) != ATOM_OK)
            break;
    }
    atom_free(text);
}

static atom_status write_all(int fd, const char *text, size_t bytes)
{
    while (bytes) {
        ssize_t n = write(fd, text, bytes);
        if (n <= 0)
            return ATOM_E_RUNTIME;
        text += n;
        bytes -= (size_t)n;
    }
    return ATOM_OK;
}

static void open_file(krn_algos *algos, const char *dir, const char *identity)
{
    char *folder = atom_path_join(dir, "cuda");
    uint64_t hash = atom_hash(ATOM_HASH_SEED, identity, strlen(identity));
    algos->path = folder ? atom_format("%s/%016" PRIx64 ".algos", folder, hash) : NULL;
    if (algos->path && atom_dir_make(folder) == ATOM_OK)
        algos->fd = open(algos->path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    atom_free(folder);
    if (algos->fd < 0)
        return;
    krn_algos_lock(algos);
    if (algos->read_bytes == 0) {
        char *head = atom_format("# %s\n", identity);
        if (head)
            (void)write_all(algos->fd, head, strlen(head));
        atom_free(head);
    }
    krn_algos_unlock(algos);
}

atom_status krn_algos_open(const char *dir, const char *identity, krn_algos **out)
{
    krn_algos *algos = atom_alloc(1, sizeof *algos);
    if (!algos)
        return atom_fail_memory("the algorithm cache", sizeof *algos);
    algos->fd = -1;
    if (dir)
        open_file(algos, dir, identity);
    *out = algos;
    return ATOM_OK;
}

void krn_algos_close(krn_algos **ref)
{
    krn_algos *algos = *ref;
    if (!algos)
        return;
    if (algos->fd >= 0)
        (void)close(algos->fd);
    atom_free(algos->path);
    atom_free(algos->items);
    atom_free(algos);
    *ref = NULL;
}

bool krn_algos_kept(const krn_algos *algos)
{
    return algos->fd >= 0;
}

void krn_algos_lock(krn_algos *algos)
{
    if (algos->fd < 0)
        return;
    (void)flock(algos->fd, LOCK_EX);
    read_more(algos);
}

void krn_algos_unlock(krn_algos *algos)
{
    if (algos->fd >= 0)
        (void)flock(algos->fd, LOCK_UN);
}

atom_status krn_algos_add(krn_algos *algos, const krn_algo *algo)
{
    if (algos->fd >= 0) {
        char line[KRN_ALGO_KEY_MAX + 256];
        int n = snprintf(line, sizeof line, "%s|%" PRIu32 " %d %" PRIu64 " %.9g", algo->key,
                         algo->left, algo->plain, algo->workspace_bytes, algo->seconds);
        for (int i = 0; i < KRN_ALGO_WORDS; i++)
            n += snprintf(line + n, sizeof line - (size_t)n, " %" PRIx64, algo->word[i]);
        n += snprintf(line + n, sizeof line - (size_t)n, "\n");
        if (write_all(algos->fd, line, (size_t)n) != ATOM_OK) {
            (void)close(algos->fd); /* no more room there: from here on only in memory */
            algos->fd = -1;
        }
    }
    return keep(algos, algo);
}
