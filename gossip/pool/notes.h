/*
 * Notes: small texts that members leave for each other under a key whose meaning is the callers'.
 * Every member hands its own to all it is linked with, keeps a few of each of them, and shows what
 * it has to whoever asks. A note is advice: it comes from somebody who was admitted and from nobody
 * in particular, so it is not signed, and whoever uses one checks it as if an enemy had written it.
 *
 * Our own are files in directory/notes, one each, named by their key.
 *
 * Thread: one at a time (the pool's).
 */
#ifndef GOSSIP_POOL_NOTES_H
#define GOSSIP_POOL_NOTES_H

#include "gossip/pool/links.h"

typedef struct gsp_notes gsp_notes;

/* directory (the pool's), self (our key) and links are borrowed and must outlive it. Reads our own
 * notes of last time. NULL: no memory. */
gsp_notes *gsp_notes_open(const char *directory, const uint8_t *self, gsp_links *links);
void gsp_notes_close(gsp_notes **notes);

/* Leaves a note of ours; it is on disk when this returns.
 * Errors  ATOM_E_USAGE  empty or too long; ATOM_E_RUNTIME  the disk */
ATOM_MUST atom_status gsp_notes_leave(gsp_notes *notes, const gsp_hash *key, const char *text);
/* Gives ours to links that lack them; one note for each link and call. */
void gsp_notes_step(gsp_notes *notes);

/* Words of a link. False: malformed. */
void gsp_notes_asked(gsp_notes *notes, const gsp_link *from, const gsp_word *word);
ATOM_MUST bool gsp_notes_came(gsp_notes *notes, const gsp_link *from, const gsp_word *word);

/* One note; who: the name of the member that handed it over ("": ourselves). text has no NUL at its
 * end, nor within. True: it will do, look no further. */
typedef bool gsp_notes_look(void *context, const char *who, const char *text, size_t bytes);
/* Begins a question: shows what is here. Then call step until it says that all is over (`look` took
 * one, or everybody who is linked has answered), and end, which says whether one was taken. */
void gsp_notes_ask_begin(gsp_notes *notes, const gsp_hash *key, gsp_notes_look *look,
                         void *context);
bool gsp_notes_ask_step(gsp_notes *notes, uint64_t now_ns);
bool gsp_notes_ask_end(gsp_notes *notes);

#endif
