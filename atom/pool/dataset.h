/*
 * What a member trains on: the files of a data set that a new pool's manifest names, and, for a
 * joiner, whether the data here is the pool's or has to be fetched.
 *
 * Ownership: the caller's object, zero at first; its pointers are borrowed but for `dir`, which
 * pool_dataset_free frees. Thread: the run's.
 */
#ifndef ATOM_POOL_DATASET_H
#define ATOM_POOL_DATASET_H

#include "atom/pool/hooks.h"

typedef struct pool_dataset {
    const pool_hooks *hooks;
    const char *run_dir;       /* of the member; the pool's small files are in run_dir/pool/files */
    char *dir;                 /* where fetched data goes: run_dir/data */
    uint64_t down_bytes_per_s; /* this host's own limit; 0: none */
    double patience_s;         /* without news while data is fetched; 0: for ever */
    bool named;                /* the manifest names the data */
    bool either;               /* the pool allows other data */
    bool fetch;                /* some of it is missing in dir */
    gsp_pool_data found;       /* of the manifest's files, what lies here */
} pool_dataset;

/* The files of the data set in `data`, added behind files[*n]; at most n_max in all.
 * pool_dataset_unlist frees what was added. */
ATOM_MUST atom_status pool_dataset_list(const char *data, gsp_pool_file *files, uint32_t n_max,
                                        uint32_t *n);
void pool_dataset_unlist(gsp_pool_file *files, uint32_t n);

/*
 * Is `data` the pool's data, or is it to be fetched? own: it is other data, on purpose; returns:
 * this host was here before. Says how much there is to fetch.
 * Errors  ATOM_E_USAGE  names the file that does not fit, and what to do; those of
 *         gsp_pool_data_look
 */
ATOM_MUST atom_status pool_dataset_choose(pool_dataset *d, gsp_pool *life, const char *data,
                                          bool own, bool returns);
/* Fetches what is missing, if anything is. */
ATOM_MUST atom_status pool_dataset_fetch(const pool_dataset *d, gsp_pool *life);
void pool_dataset_free(pool_dataset *d);

#endif
