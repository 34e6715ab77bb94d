/*
 * The results that a member holds: those of the version in progress and of the newest certified one
 * in memory, all of them and older ones on disk (results.h). Of one part there may be several,
 * because ballots may reduce it differently; GSP_HELD_MAX are kept.
 *
 * Thread: the member's. Errors: those of the disk.
 */
#ifndef GOSSIP_MEMBER_RECENT_RESULTS_H
#define GOSSIP_MEMBER_RECENT_RESULTS_H

#include "gossip/agree/agree.h"
#include "gossip/member/blob.h"
#include "gossip/member/results.h"

enum {
    GSP_HELD_OLD = 8,
    GSP_HELD_UNSAID_MAX =
        8, /* results of a part in one ballot that came before their owner's word */
};

typedef gsp_blob *gsp_recent_row[GSP_HELD_MAX];

typedef struct gsp_recent {
    gsp_results *results;
    gsp_recent_row fresh[GSP_PARTS_MAX];     /* of the version in progress; perhaps not whole */
    gsp_recent_row certified[GSP_PARTS_MAX]; /* of the newest certified version */
    gsp_blob *old[GSP_HELD_OLD];             /* read from disk for members that lag, in turn */
    uint32_t old_turn;
    struct {
        uint32_t ballot, n;
    } unsaid[GSP_PARTS_MAX]; /* of the version in progress */
} gsp_recent;

/* Opens the files of results; keep: how many versions stay on disk. */
ATOM_MUST atom_status gsp_recent_open(gsp_recent *held, const char *directory, uint32_t keep);
void gsp_recent_close(gsp_recent *held);

/* A result of the version in progress, perhaps not whole; NULL: not here. */
gsp_blob *gsp_recent_fresh(const gsp_recent *held, uint32_t part, const gsp_hash *hash);
/* A whole result, from memory or from disk; NULL: not here. Valid until the next call. */
gsp_blob *gsp_recent_find(gsp_recent *held, uint32_t part, const gsp_hash *hash);
/* How long such a result is, without a look at the disk: whoever only asks must not make this host read. False: not
 * here. */
bool gsp_recent_has(const gsp_recent *held, uint32_t part, const gsp_hash *hash, uint64_t *bytes);
/* After a restart: reads a result that a vote names back into the version in progress. False: it is
 * not here. */
bool gsp_recent_recall(gsp_recent *held, const gsp_agree *agree, uint32_t part,
                       const gsp_hash *hash);

/* Where a result of this version belongs, there already or a free place; NULL: the agreement may
 * still need all that are there. */
gsp_blob **gsp_recent_place(gsp_recent *held, const gsp_agree *agree, uint64_t version,
                            uint32_t part, const gsp_hash *hash);
/* Bytes of a result may come before the owner's word of it; an owner that sends ever new ones would
 * fill the disk. Whether one more is wanted in this ballot; and that one more is here. */
bool gsp_recent_wants_unsaid(const gsp_recent *held, uint32_t ballot, uint32_t part);
void gsp_recent_count_unsaid(gsp_recent *held, uint32_t ballot, uint32_t part);
/* The agreement may still need this result. */
bool gsp_recent_needs(const gsp_agree *agree, uint32_t part, const gsp_hash *hash);

/* Puts a whole result on disk. One of the version in progress takes the memory of the part's
 * certified one, where that is applied. */
ATOM_MUST atom_status gsp_recent_keep(gsp_recent *held, const gsp_agree *agree, uint64_t version,
                                      uint32_t part, const gsp_blob *blob);
/* Everything that a vote promises is on disk when it returns. */
ATOM_MUST atom_status gsp_recent_sync(gsp_recent *held, const gsp_record *record);

/* A version is over. next: it was certified, and its results are the newest certified ones. */
void gsp_recent_rotate(gsp_recent *held, bool next);

#endif
