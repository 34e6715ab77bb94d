/*
 * Owns the disk's rates, for plans that put the optimizer's state there. One idea: measure with the
 * very blocks, lanes and calls that training uses, reading and writing alone and together. Refuses
 * to leave its file behind.
 */
#include "atom/base/clock.h"
#include "atom/base/files.h"
#include "atom/base/mem.h"
#include "atom/base/size.h"
#include "atom/plan/workbench.h"
#include "swap/disk.h"

#include <inttypes.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum { PROBE_BLOCKS = 8, PROBE_BLOCKS_MIN = 2 };
/* Length of each of the three passes, and the rate at which small states shorten it. */
static const double PROBE_SECONDS = 0.4, PROBE_BYTES_PER_SECOND = 1e8;

typedef struct probe {
    swap_disk *disk;
    swap_blocks blocks;
    char *memory;
    bool write;
    double seconds; /* at least */
    atom_status status;
    double bytes_per_second;
} probe;

/* Blocks of one generation, round and round, for a while. */
static void *pass(void *arg)
{
    probe *p = arg;
    double begin = atom_clock_seconds(), seconds = 0;
    uint64_t bytes = swap_block_bytes(p->blocks, 0), blocks = swap_blocks_n(p->blocks), n = 0;
    p->status = ATOM_OK;
    for (; p->status == ATOM_OK && (seconds < p->seconds || n < blocks); n++) {
        uint64_t at = swap_block_offset(p->blocks, n % blocks);
        p->status = p->write ? swap_disk_save(p->disk, at, p->memory, bytes)
                             : swap_disk_load(p->disk, at, p->memory, bytes);
        seconds = atom_clock_seconds() - begin;
    }
    p->bytes_per_second = (double)(n * bytes) / seconds;
    return NULL;
}

static atom_status together(probe *in, probe *out)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, pass, out))
        return atom_fail(ATOM_E_RESOURCE, "cannot start a thread to measure the disk");
    pass(in);
    pthread_join(thread, NULL);
    return in->status != ATOM_OK ? in->status : out->status;
}

/* Space that was only reserved costs nothing to read, and more to write and to sync than what was
 * written before, as all of it is from the third step on. */
static atom_status fill(swap_disk *disk, swap_blocks blocks, const char *memory)
{
    for (uint64_t step = 1; step <= SWAP_GENERATIONS; step++) {
        for (uint64_t i = 0; i < swap_blocks_n(blocks); i++)
            ATOM_TRY(swap_disk_save(disk, swap_block_offset(blocks, i), memory,
                                    swap_block_bytes(blocks, i)));
        ATOM_TRY(swap_disk_commit(disk, step));
    }
    return ATOM_OK;
}

static atom_status measure(swap_disk *disk, swap_blocks blocks, char *memory, double seconds,
                           part_device *d)
{
    uint64_t half = swap_block_bytes(blocks, 0);
    probe in = {.disk = disk, .blocks = blocks, .memory = memory, .seconds = seconds}, out = in;
    out.memory = memory + half;
    out.write = true;
    ATOM_TRY(fill(disk, blocks, memory));
    pass(&out);
    ATOM_TRY(out.status);
    double begin = atom_clock_seconds();
    ATOM_TRY(swap_disk_commit(disk, SWAP_GENERATIONS + 1));
    d->disk_sync_seconds = atom_clock_seconds() - begin;
    pass(&in);
    ATOM_TRY(in.status);
    d->disk_write_bytes_per_second = out.bytes_per_second;
    d->disk_read_bytes_per_second = in.bytes_per_second;
    ATOM_TRY(together(&in, &out));
    d->disk_write_both_bytes_per_second = out.bytes_per_second;
    d->disk_read_both_bytes_per_second = in.bytes_per_second;
    return ATOM_OK;
}

/* The file of the probe is nobody's business: the directory is too small. */
static atom_status no_room(const char *dir, uint64_t need)
{
    uint64_t left = 0;
    char size[24], have[24];
    if (!atom_dir_free_bytes(dir, &left) || left >= need)
        return atom_fail(ATOM_E_RESOURCE,
                         "%s: not enough disk space: measuring the disk takes %s (%" PRIu64 " "
                         "bytes), but a quota or a limit of file sizes allows less; raise it, or "
                         "name another directory with --store-dir",
                         dir, atom_size_text(need, size), need);
    return atom_fail(ATOM_E_RESOURCE,
                     "%s: not enough disk space: measuring the disk takes %s, but there is only "
                     "%s: %" PRIu64 " bytes are missing; free some space, or name another "
                     "directory with --store-dir",
                     dir, atom_size_text(need, size), atom_size_text(left, have), need - left);
}

atom_status plan_disk_measure(const char *dir, store_kind kind, const graph *g, part_device *device)
{
    atom_status st;
    swap_disk *disk = NULL;
    uint64_t n = g->trained_extent / SWAP_BLOCK_ELEMENTS;
    double worth =
        (double)g->trained_extent * atom_state_bytes(g->moments) / PROBE_BYTES_PER_SECOND;
    n = n < PROBE_BLOCKS_MIN ? PROBE_BLOCKS_MIN : n < PROBE_BLOCKS ? n : PROBE_BLOCKS;
    swap_blocks blocks = {
        .extent = n * SWAP_BLOCK_ELEMENTS, .each = SWAP_BLOCK_ELEMENTS, .moments = g->moments};
    uint64_t bytes = 2 * swap_block_bytes(blocks, 0);
    char *memory = atom_pages_take(bytes);
    char *path = atom_format("%s/atom-probe-%ld.store", dir, (long)getpid());
    if (!memory || !path)
        ATOM_TRY_CLEAN(atom_fail_memory("measuring the disk", bytes));
    swap_disk_config config = {.path = path,
                               .kind = kind,
                               .create = true,
                               .blocks = blocks,
                               .ring = memory,
                               .ring_bytes = bytes};
    uint64_t need = SWAP_GENERATIONS * swap_blocks_bytes(blocks);
    uint64_t left = need;
    if (atom_dir_free_bytes(dir, &left) && left < need)
        st = no_room(dir, need);
    else if ((st = swap_disk_open(&config, &disk)) == ATOM_E_RESOURCE &&
             strstr(atom_fail_message(), path)) /* of the file, not of memory */
        st = no_room(dir, need);
    (void)unlink(path); /* from here on a process that is killed leaves nothing either */
    ATOM_TRY_CLEAN(st);
    ATOM_TRY_CLEAN(
        measure(disk, blocks, memory, worth < PROBE_SECONDS ? worth : PROBE_SECONDS, device));
cleanup:
    swap_disk_close(&disk);
    if (memory)
        atom_pages_give(memory, bytes);
    atom_free(path);
    return st;
}
