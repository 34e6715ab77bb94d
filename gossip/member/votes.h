/*
 * What a member must not forget, on disk (docs/design/pool.md#restarts): its incarnation, lineage
 * and certificate, and every promise and vote before it is said. One directory per member:
 *
 *   state      8 bytes "atomvst5", u64 epoch, u64 clock, u64 incarnation, u32 size, gsp_saved
 *              (wire.h), 32 bytes BLAKE2b of all before; written aside, fsynced, renamed
 *   votes.N    the journal of epoch N: 8 bytes "atomvjr3", u64 epoch, then entries: u32 size, the
 *              same again, u64 clock, gsp_record (wire.h), 16 bytes BLAKE2b of (epoch, entry's
 *              place, the entry)
 *   lock       held while open: two processes with one memory would be two members
 *
 * The newest record is the journal's last whole entry, else the state's. An entry is fsynced before
 * gsp_votes_record returns, so only the last can be torn, and a torn one was never acted upon: it
 * is cut off. Damage anywhere else means that a vote may be forgotten: the directory is refused,
 * and the member has to come back as a larger incarnation (gsp_votes_forget).
 *
 * Thread: one at a time. Clocks are ns since 1970, and never run backwards here.
 */
#ifndef GOSSIP_MEMBER_VOTES_H
#define GOSSIP_MEMBER_VOTES_H

#include "gossip/agree/agree.h"

typedef struct gsp_votes gsp_votes;

/*
 * Opens or makes the directory and reads what is there.
 * Errors  ATOM_E_FORMAT  damaged; ATOM_E_USAGE  another process has it; ATOM_E_RUNTIME,
 *         ATOM_E_RESOURCE  the disk
 */
ATOM_MUST atom_status gsp_votes_open(const char *directory, gsp_votes **out);
/* NULL is fine; sets *votes to NULL. */
void gsp_votes_close(gsp_votes **votes);
/* Takes everything in the directory away but the highest incarnation that can still be read; the
 * next one is larger. For a member whose memory is damaged, or that left. Not while it is open. */
ATOM_MUST atom_status gsp_votes_forget(const char *directory);

/* What was remembered; NULL: nothing, this member is new. Valid until the next call. */
const gsp_saved *gsp_votes_saved(const gsp_votes *votes);
/* The incarnation to open with: the remembered one; for a new member one larger than any before. */
uint64_t gsp_votes_incarnation(const gsp_votes *votes);
/* A clock that never runs backwards, not across restarts either: wall time, or a standstill. */
uint64_t gsp_votes_clock(gsp_votes *votes);

/* On disk when it returns. After an error nothing that depends on it may be said, and every later
 * call fails (ATOM_E_DEAD). */
ATOM_MUST atom_status gsp_votes_record(gsp_votes *votes, const gsp_record *record);
/* Replaces everything; `saved->record` is the newest record. On disk when it returns. */
ATOM_MUST atom_status gsp_votes_state(gsp_votes *votes, const gsp_saved *saved,
                                      uint64_t incarnation);

#endif
