/*
 * Owns what a member trains on: the list of files that a new pool's manifest names, and, for who
 * joins, whether the data here is the pool's or has to be fetched. One idea: data that fits is used
 * where it lies, data that is missing goes to one place, DIR/data, and nothing is fetched before
 * the user was told how much. Refuses data that is not the pool's, unless the pool allows it.
 */
#include "tools/pool/cmd_pool_train.h"

#include <string.h>

static const char COUNTS[] = "dataset.json"; /* says what is in the shards, and changes nothing */

atom_status pool_data_list(const pool_run *r, gsp_pool_file *files, uint32_t n_max, uint32_t *n)
{
    text_file_list l = {0};
    atom_status st = text_dataset_files(r->config.data, &l);
    if (st == ATOM_OK && l.n > n_max - *n)
        st = atom_fail(ATOM_E_USAGE,
                       "%s has %u files, and a pool names at most %u; prepare it with larger "
                       "shards, or let everybody bring a data set (pool: data: own)",
                       r->config.data, l.n, n_max - *n);
    for (uint32_t i = 0; i < l.n && st == ATOM_OK; i++) {
        char *name = atom_strdup(l.name[i]), *path = atom_path_join(r->config.data, l.name[i]);
        files[(*n)++] = (gsp_pool_file){.name = name, .path = path, .later = true};
        if (!name || !path)
            st = atom_fail_memory("a path", 256);
    }
    text_file_list_free(&l);
    return st;
}

void pool_data_free(gsp_pool_file *files, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (files[i].later) {
            atom_free((char *)files[i].name);
            atom_free((char *)files[i].path);
        }
}

atom_status pool_data_offer(pool_run *r)
{
    return r->settings.data == POOL_DATA_OWN
               ? ATOM_OK
               : gsp_pool_data_look(r->life, r->config.data, pool_run_watch, r, &r->data);
}

/* A shard here that the pool does not have: it would be trained on. "": none. */
static atom_status find_foreign(const pool_run *r, char name[GSP_MANIFEST_FILE_NAME_BYTES])
{
    text_file_list l = {0};
    atom_status st = text_dataset_files(r->config.data, &l);
    name[0] = 0;
    for (uint32_t i = 0; i < l.n && st == ATOM_OK && !name[0]; i++) {
        const gsp_manifest_file *f = gsp_manifest_find(gsp_pool_manifest(r->life), l.name[i]);
        if (!(f && f->later) && strcmp(l.name[i], COUNTS) != 0)
            snprintf(name, GSP_MANIFEST_FILE_NAME_BYTES, "%s", l.name[i]);
    }
    text_file_list_free(&l);
    return st;
}

/* Of data that lies elsewhere: what does not fit; "": it is the pool's. */
static atom_status judge(const pool_run *r, char why[400])
{
    const gsp_pool_data *d = &r->data;
    char foreign[GSP_MANIFEST_FILE_NAME_BYTES] = "";
    atom_status st;
    why[0] = 0;
    if (d->wrong[0] && strcmp(d->wrong, COUNTS) != 0)
        snprintf(why, 400, "%s in %s is not the pool's", d->wrong, r->config.data);
    else if (d->missing[0] && strcmp(d->missing, COUNTS) != 0)
        snprintf(why, 400, "%s is missing in %s", d->missing, r->config.data);
    if (why[0])
        return ATOM_OK;
    st = find_foreign(r, foreign);
    if (st == ATOM_OK && foreign[0])
        snprintf(why, 400, "the pool's data has no %s, %s has", foreign, r->config.data);
    return st;
}

/* The pool's tokenizer lies among its small files: training looks for it beside the shards. */
static atom_status install_tokenizer(const pool_run *r)
{
    char *from = atom_format("%s/pool/files/tokenizer.json", r->dir), *text = NULL;
    char *to = atom_path_join(r->data_dir, "tokenizer.json");
    uint64_t bytes = 0;
    atom_status st;
    if (!from || !to)
        ATOM_TRY_CLEAN(atom_fail_memory("a path", 256));
    ATOM_TRY_CLEAN(atom_dir_make(r->data_dir));
    if (!atom_path_exists(from))
        goto cleanup;
    ATOM_TRY_CLEAN(atom_file_read(from, 1 << 28, &text, &bytes));
    ATOM_TRY_CLEAN(atom_file_write(to, text, bytes));
cleanup:
    atom_free(from);
    atom_free(to);
    atom_free(text);
    return st;
}

static void tell(pool_run *r)
{
    uint64_t left = r->data.bytes - r->data.bytes_here, line = r->down_bytes_per_s;
    char here[64] = "", time[96] = "how long it takes is said when the first of it is here";
    if (r->data.bytes_here)
        snprintf(here, sizeof here, ", of which %s are here", cli_size(r->data.bytes_here));
    if (line)
        snprintf(time, sizeof time, "at %.0f Mbit/s about %s", (double)line * 8e-6,
                 cli_seconds((double)left / (double)line));
    pool_run_note(r, "the pool's data set: %u files, %s%s; the members give it, into %s; %s",
                  r->data.n_files, cli_size(r->data.bytes), here, r->data_dir, time);
}

atom_status pool_data_choose(pool_run *r, bool own, bool returns)
{
    char why[400];
    bool either = r->settings.data == POOL_DATA_EITHER;
    if (!r->has_data)
        return ATOM_OK;
    r->own_data = own;
    if (own)
        return either ? ATOM_OK
                      : atom_fail(ATOM_E_USAGE, "--own-data: the members of this pool train on the "
                                                "pool's data; leave --own-data and --data away");
    atom_status st = gsp_pool_data_look(r->life, r->config.data, pool_run_watch, r, &r->data);
    cli_progress_end();
    if (st != ATOM_OK)
        return st;
    if (strcmp(r->config.data, r->data_dir) == 0) {
        r->fetch_data = r->data.n_here < r->data.n_files;
        if (r->fetch_data)
            tell(r);
        return install_tokenizer(r);
    }
    st = judge(r, why);
    if (st != ATOM_OK || !why[0])
        return st;
    if (either && returns) { /* it was said the first time */
        r->own_data = true;
        return ATOM_OK;
    }
    return atom_fail(ATOM_E_USAGE,
                     "%s; leave --data away to fetch the pool's data from the members%s", why,
                     either ? ", or say --own-data to train on this" : "");
}
