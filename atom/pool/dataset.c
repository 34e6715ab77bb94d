/*
 * Owns what a member trains on: the list of files that a new pool's manifest names, and, for a
 * joiner, whether the data here is the pool's or has to be fetched. One idea: data that fits is
 * used where it lies, data that is missing goes to one place, DIR/data, and nothing is fetched
 * before the user was told how much. Refuses data that is not the pool's, unless the pool allows it.
 */
#include "atom/pool/dataset.h"
#include "atom/pool/advice.h"

#include "atom/base/files.h"
#include "atom/base/mem.h"
#include "atom/base/size.h"
#include "atom/text/dataset.h"

#include <stdio.h>
#include <string.h>

static const char COUNTS[] = "dataset.json"; /* says what is in the shards, and changes nothing */

atom_status pool_dataset_list(const char *data, gsp_pool_file *files, uint32_t n_max, uint32_t *n)
{
    text_file_list l = {0};
    atom_status st;
    ATOM_TRY_CLEAN(text_dataset_files(data, &l));
    if (l.n > n_max - *n)
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_USAGE,
                                 "%s has %u files, but a pool can have at most %u; prepare it "
                                 "with larger shards, or let every member bring its own data set "
                                 "(pool: data: own)",
                                 data, l.n, n_max - *n));
    for (uint32_t i = 0; i < l.n; i++) {
        char *name = atom_strdup(l.name[i]), *path = atom_path_join(data, l.name[i]);
        files[(*n)++] = (gsp_pool_file){.name = name, .path = path, .later = true};
        if (!name || !path)
            ATOM_TRY_CLEAN(atom_fail_memory("a path", 256));
    }
cleanup:
    text_file_list_free(&l);
    return st;
}

void pool_dataset_unlist(gsp_pool_file *files, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (files[i].later) {
            atom_free((char *)files[i].name);
            atom_free((char *)files[i].path);
        }
}

void pool_dataset_free(pool_dataset *d)
{
    atom_free(d->dir);
    d->dir = NULL;
}

/* A shard here that the pool does not have: it would be trained on. "": none. */
static atom_status find_foreign(gsp_pool *life, const char *data,
                                char name[GSP_MANIFEST_FILE_NAME_BYTES])
{
    text_file_list l = {0};
    atom_status st = text_dataset_files(data, &l);
    name[0] = 0;
    for (uint32_t i = 0; i < l.n && st == ATOM_OK && !name[0]; i++) {
        const gsp_manifest_file *f = gsp_manifest_find(gsp_pool_manifest(life), l.name[i]);
        if (!(f && f->later) && strcmp(l.name[i], COUNTS) != 0)
            snprintf(name, GSP_MANIFEST_FILE_NAME_BYTES, "%s", l.name[i]);
    }
    text_file_list_free(&l);
    return st;
}

/* Of data that lies elsewhere: what does not fit; "": it is the pool's. */
static atom_status judge(const pool_dataset *d, gsp_pool *life, const char *data, char why[400])
{
    const gsp_pool_data *found = &d->found;
    char foreign[GSP_MANIFEST_FILE_NAME_BYTES] = "";
    why[0] = 0;
    if (found->wrong[0] && strcmp(found->wrong, COUNTS) != 0)
        snprintf(why, 400, "%s in %s is not the same as the pool's", found->wrong, data);
    else if (found->missing[0] && strcmp(found->missing, COUNTS) != 0)
        snprintf(why, 400, "%s is missing in %s", found->missing, data);
    if (why[0])
        return ATOM_OK;
    ATOM_TRY(find_foreign(life, data, foreign));
    if (foreign[0])
        snprintf(why, 400, "the pool's data set has no %s, but %s has", foreign, data);
    return ATOM_OK;
}

/* One of the pool's small files that training looks for beside the shards. Another one that is
 * there already is somebody else's. */
static atom_status install(const pool_dataset *d, const char *name)
{
    char *from = atom_format("%s/pool/files/%s", d->run_dir, name), *text = NULL;
    char *to = atom_path_join(d->dir, name), *there = NULL;
    uint64_t bytes = 0, bytes_there = 0;
    atom_status st;
    if (!from || !to)
        ATOM_TRY_CLEAN(atom_fail_memory("a path", 256));
    ATOM_TRY_CLEAN(atom_dir_make(d->dir));
    if (!atom_path_exists(from))
        goto cleanup;
    ATOM_TRY_CLEAN(atom_file_read(from, 1 << 28, &text, &bytes));
    if (atom_path_exists(to)) {
        ATOM_TRY_CLEAN(atom_file_read(to, 1 << 28, &there, &bytes_there));
        if (bytes != bytes_there || memcmp(text, there, bytes) != 0)
            ATOM_TRY_CLEAN(
                atom_fail(ATOM_E_USAGE,
                          "%s is not the pool's file, so it is not replaced; move it away, or "
                          "name another directory with -o",
                          to));
        goto cleanup;
    }
    ATOM_TRY_CLEAN(atom_file_write(to, text, bytes));
cleanup:
    atom_free(from);
    atom_free(to);
    atom_free(text);
    atom_free(there);
    return st;
}

/* Nothing here is replaced that is not the pool's. */
static atom_status check_way(const pool_dataset *d)
{
    if (!d->found.in_the_way[0])
        return ATOM_OK;
    return atom_fail(ATOM_E_USAGE,
                     "%s/%s is not the pool's file and did not come from the pool, so it is not "
                     "replaced. Move it away, or name another directory with -o",
                     d->dir, d->found.in_the_way);
}

static void announce(const pool_dataset *d)
{
    const gsp_pool_data *found = &d->found;
    uint64_t left = found->bytes - found->bytes_here, line = d->down_bytes_per_s;
    char size[24], part[24], here[64] = "", time[96], seconds[POOL_FIGURE_BYTES];
    if (found->bytes_here)
        snprintf(here, sizeof here, ", of which %s are already here",
                 atom_size_text(found->bytes_here, part));
    if (line)
        snprintf(time, sizeof time, "at %.0f Mbit/s it takes about %s", (double)line * 8e-6,
                 pool_seconds_text((double)left / (double)line, seconds));
    else
        snprintf(time, sizeof time,
                 "how long that takes will be known once the download has "
                 "begun");
    pool_note(d->hooks,
              "the pool's data set: %u files, %s%s; the members send it, and it is "
              "stored in %s; %s",
              found->n_files, atom_size_text(found->bytes, size), here, d->dir, time);
}

atom_status pool_dataset_choose(pool_dataset *d, gsp_pool *life, const char *data, bool own,
                                bool returns)
{
    char why[400];
    if (!d->named)
        return ATOM_OK;
    if (own)
        return d->either ? ATOM_OK
                         : atom_fail(ATOM_E_USAGE,
                                     "--own-data: in this pool all members train on the pool's "
                                     "data; leave out --own-data and --data");
    ATOM_TRY(gsp_pool_data_look(life, data, d->hooks->watch, d->hooks->ctx, &d->found));
    if (strcmp(data, d->dir) == 0) {
        ATOM_TRY(check_way(d));
        d->fetch = d->found.n_here < d->found.n_files;
        if (d->fetch)
            announce(d);
        ATOM_TRY(install(d, "tokenizer.json"));
        return install(d, "chat_template.jinja");
    }
    ATOM_TRY(judge(d, life, data, why));
    if (!why[0] || (d->either && returns)) /* a host that returns said so the first time */
        return ATOM_OK;
    if (returns) /* the directory is that of last time: there is no option to leave out */
        return atom_fail(ATOM_E_USAGE,
                         "%s; name a copy of the pool's data with --data, or fetch it from the "
                         "members with --data %s",
                         why, d->dir);
    return atom_fail(ATOM_E_USAGE,
                     "%s; leave out --data to fetch the pool's data from the members%s", why,
                     d->either ? ", or add --own-data to train on this" : "");
}

atom_status pool_dataset_fetch(const pool_dataset *d, gsp_pool *life)
{
    if (!d->fetch)
        return ATOM_OK;
    return gsp_pool_data_fetch(life, d->dir, d->patience_s, d->hooks->watch, d->hooks->ctx);
}
