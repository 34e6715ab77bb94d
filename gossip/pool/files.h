/*
 * The manifest's small files (config, tokenizer, run.yml): given to others from directory/files, and
 * fetched into it, one at a time, from all members that have it.
 *
 * Thread: one at a time (the pool's).
 */
#ifndef GOSSIP_POOL_FILES_H
#define GOSSIP_POOL_FILES_H

#include "gossip/pool/event_log.h"
#include "gossip/pool/links.h"

enum { GSP_FILE_BYTES_MAX = 1 << 28 }; /* of one that is fetched */

typedef struct gsp_files gsp_files;

/* directory (the pool's), manifest (empty: none yet), links and diary are borrowed and must outlive
 * it. NULL: no memory. */
gsp_files *gsp_files_open(const char *directory, const gsp_manifest *manifest, gsp_links *links,
                          gsp_event_log *diary);
void gsp_files_close(gsp_files **files);

/* Words of a link. */
void gsp_files_asked(gsp_files *files, const gsp_link *from, const gsp_word *word);
void gsp_files_came(gsp_files *files, const gsp_link *from, const gsp_word *word);
/* Gives, asks and writes; call often. */
void gsp_files_step(gsp_files *files, uint64_t now_ns);

/*
 * Fetches a file of the manifest: begin, then turn until it is finished (steps and the words of
 * links come between), then end in any case. What has come stays on disk for the next time.
 * Errors  ATOM_E_RESOURCE, ATOM_E_RUNTIME  the disk, or no memory
 */
ATOM_MUST atom_status gsp_files_fetch_begin(gsp_files *files, const gsp_manifest_file *file);
ATOM_MUST atom_status gsp_files_fetch_turn(gsp_files *files, bool *finished);
void gsp_files_fetch_end(gsp_files *files);
/* Of the file that is being fetched: bytes that are on disk. */
uint64_t gsp_files_fetched(const gsp_files *files);

/* The hash of a whole file, as the manifest names it. ATOM_E_FORMAT: it cannot be read. */
ATOM_MUST atom_status gsp_files_hash(const char *path, uint64_t *bytes, gsp_hash *hash);

#endif
