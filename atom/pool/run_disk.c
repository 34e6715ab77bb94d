/*
 * Owns whether there is disk for a pool, asked before anything of it is fetched. One idea: all that
 * a member will ever keep is counted at once, and held against what is free and what this host's
 * user gives. Refuses to count files in DIR that are not the pool's as if they were.
 */
#include "atom/pool/asks.h"
#include "atom/pool/run_inner.h"

#include "atom/base/files.h"
#include "atom/base/mem.h"
#include "atom/base/size.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

/* Is this entry of DIR what a member leaves there? Any entry below is. */
static bool is_members(const char *name)
{
    static const char CHECKPOINT[] = "checkpoint-";
    return strcmp(name, "pool") == 0 || strcmp(name, "data") == 0 ||
           strcmp(name, "optimizer.store") == 0 ||
           strncmp(name, CHECKPOINT, sizeof CHECKPOINT - 1) == 0;
}

/* Files below dir as they lie on the disk; what cannot be read counts as nothing. */
static uint64_t bytes_below(const char *dir, int depth, bool all)
{
    uint64_t bytes = 0;
    DIR *d = depth > 0 ? opendir(dir) : NULL;
    for (struct dirent *entry; d && (entry = readdir(d));) {
        struct stat s;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            !(all || is_members(entry->d_name)) ||
            fstatat(dirfd(d), entry->d_name, &s, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        char *below = S_ISDIR(s.st_mode) ? atom_path_join(dir, entry->d_name) : NULL;
        bytes += below ? bytes_below(below, depth - 1, true) : (uint64_t)s.st_blocks * 512;
        atom_free(below);
    }
    if (d)
        closedir(d);
    return bytes;
}

/* what: that takes so much. */
static atom_status check(const pool_run *r, uint64_t need, const char *what)
{
    uint64_t room;
    char all[24], free_now[24], lacking[24];
    if (r->disk_max && need > r->disk_max)
        return atom_fail(ATOM_E_RESOURCE,
                         "%s: %s for this pool take %s, but --max-disk allows only %s. Nothing "
                         "was fetched. Allow more, or leave this pool",
                         r->dir, what, atom_size_text(need, all),
                         atom_size_text(r->disk_max, free_now));
    ATOM_TRY(atom_dir_make(r->dir));
    if (!atom_dir_free_bytes(r->dir, &room))
        return atom_fail_errno(errno, "cannot find out how much space is free in %s", r->dir);
    uint64_t here = bytes_below(r->dir, 4, false); /* a member that comes back has most of it */
    if (room >= need || room + here >= need)
        return ATOM_OK;
    return atom_fail(
        ATOM_E_RESOURCE,
        "%s: %s for this pool take %s, but only %s are free; %s more are needed. Nothing was "
        "fetched. %s",
        r->dir, what, atom_size_text(need, all), atom_size_text(room, free_now),
        atom_size_text(need - room - here, lacking),
        r->genesis ? "Name another directory with -o"
                   : "Free some space, or move the directory to a larger disk and name it with -o");
}

/* Products and sums that end at the top instead of wrapping. */
static uint64_t times(uint64_t a, uint64_t b)
{
    return b && a > UINT64_MAX / b ? UINT64_MAX : a * b;
}

static uint64_t plus(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* Anchor and rounds, and so many checkpoints of so many bytes. */
static uint64_t model_bytes(const pool_run *r, uint64_t n_floats, bool on_disk,
                            uint64_t checkpoints, uint64_t bytes)
{
    return plus(pool_run_disk_bytes(r, n_floats, on_disk), times(checkpoints, bytes));
}

/* Of master weights and Muon's momentum of so many parameters: what a checkpoint has at least. */
static uint64_t least_bytes(uint64_t n_floats, atom_dtype moments)
{
    return times(n_floats, atom_state_bytes(moments) - atom_dtype_bytes(moments));
}

uint64_t pool_run_checkpoint_bytes(const pool_run *r, const trainer *t, uint64_t n_floats)
{
    atom_dtype moments = (atom_dtype)r->config.moments_dtype;
    if (t)
        return trainer_checkpoint_bytes(t);
    return r->config.optimizer == GRAPH_MUON ? least_bytes(n_floats, moments)
                                             : times(n_floats, atom_state_bytes(moments));
}

/* Is there room for the optimizer's state where --store-dir says? What a run left there is its own. */
static atom_status check_store(const pool_run *r, uint64_t need)
{
    const char *dir = r->config.store_dir;
    uint64_t room;
    char all[24], free_now[24];
    ATOM_TRY(atom_dir_make(dir));
    if (!atom_dir_free_bytes(dir, &room))
        return atom_fail_errno(errno, "cannot find out how much space is free in %s", dir);
    if (room >= need || room + bytes_below(dir, 1, false) >= need)
        return ATOM_OK;
    return atom_fail(
        ATOM_E_RESOURCE,
        "%s: the optimizer's state takes %s, but only %s are free. Nothing was fetched. Name "
        "another directory with --store-dir",
        dir, atom_size_text(need, all), atom_size_text(room, free_now));
}

static atom_status check_all(const pool_run *r, const trainer *t, uint64_t n_floats)
{
    uint64_t checkpoints =
        (uint64_t)(r->config.save_total_limit > 0 ? r->config.save_total_limit : 1) + 1;
    uint64_t each = pool_run_checkpoint_bytes(r, t, n_floats);
    bool stored = t ? trainer_plan(t)->disk : r->config.optimizer_state == PLAN_STATE_ON_DISK;
    bool on_disk = t ? trainer_seam_on_disk(t) : stored, here = stored && !r->config.store_dir;
    uint64_t state = t ? graph_state_bytes(trainer_workbench(t)->g) : each;
    uint64_t kept = stored ? times(SWAP_GENERATIONS, state) : 0;
    uint64_t need =
        plus(plus(model_bytes(r, n_floats, on_disk, checkpoints, each), here ? kept : 0),
             r->data.fetch ? r->data.found.bytes : 0);
    if (stored && !here)
        ATOM_TRY(check_store(r, kept));
    return check(r, need,
                 here ? "the anchor, the optimizer's state, checkpoints and what is being fetched"
                 : r->data.fetch ? "the anchor, the data set, checkpoints and what is being fetched"
                                 : "the anchor, checkpoints and what is being fetched");
}

atom_status pool_run_check_disk(const pool_run *r, const trainer *t)
{
    return check_all(r, t, trainer_floats(t));
}

atom_status pool_run_check_disk_early(const pool_run *r, uint64_t n_floats)
{
    return check_all(r, NULL, n_floats);
}

atom_status pool_run_check_manifest_disk(const pool_run *r, const gsp_manifest *m, bool with_data)
{
    uint64_t n_floats = 0;
    for (uint32_t f = 0; f < m->n_fragments; f++)
        n_floats += m->n_floats[f];
    uint64_t least = least_bytes(n_floats, ATOM_BF16); /* it may come to such checkpoints */
    uint64_t need = plus(model_bytes(r, n_floats, false, 2, least),
                         plus(pool_asks_small_bytes(m), with_data ? pool_asks_data_bytes(m) : 0));
    return check(r, need,
                 with_data ? "the anchor, the data set and checkpoints"
                           : "the anchor and checkpoints");
}
