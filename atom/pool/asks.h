/*
 * What a pool asks of a host that joins it (docs/design/pool.md#what-a-pool-decides), checked before
 * any of its files is fetched: names and sizes of the manifest's files, numbers of its settings. A
 * pool is its owner's word, and nothing of that word is believed.
 *
 * Thread: any. Errors: ATOM_E_FORMAT names the file or key; only the pool's owner can correct it.
 */
#ifndef ATOM_POOL_ASKS_H
#define ATOM_POOL_ASKS_H

#include "atom/pool/settings.h"
#include "gossip/pool/manifest.h"

/* The files are those that a trainer reads: run.yml, config.json, tokenizer.json and
 * chat_template.jinja, none larger than such a file is; and as data, shards with their masks and
 * dataset.json. */
ATOM_MUST atom_status pool_asks_files(const gsp_manifest *manifest);
/* Fills *settings with the manifest's. Free with opt_free in any case. */
ATOM_MUST atom_status pool_asks_settings(const gsp_manifest *manifest, pool_settings *settings);
/* The fetched config.json is a JSON object: a model's weights under that name are refused unread. */
ATOM_MUST atom_status pool_asks_config(const char *path);
/* Bytes of the manifest's small files, and of its data. */
uint64_t pool_asks_small_bytes(const gsp_manifest *manifest);
uint64_t pool_asks_data_bytes(const gsp_manifest *manifest);

#endif
