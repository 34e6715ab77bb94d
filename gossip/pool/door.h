/*
 * Who gets into a pool (docs/design/pool.md#who-gets-in): this host's identity, the pool's keys,
 * our own right to be a member, the newest manifest, and, at the owner, the turning of invites into
 * admissions, bans and new keys. Each change is the next signed manifest, so nobody has to be
 * online when it is made. Delegates turn invites into admissions too, and renew them, so that a pool
 * outlives an owner that is away.
 *
 * On disk (in `directory`): identity, keys, manifest.json, admission; the owner's and delegates':
 * invites, ticket, delegations.
 *
 * Thread: one at a time (the pool's), but for what the gate's and the directory's threads ask
 * (may_enter of gsp_door_who: may this key come in?) and what the control's thread reads
 * (gsp_door_read_ticket, gsp_door_read_delegations): those take `lock`, and so do the few places that
 * change `manifest`, `ticket` or `delegation`. `shut` is atomic. Ownership: the door owns all it points
 * to but `directory`.
 */
#ifndef GOSSIP_POOL_DOOR_H
#define GOSSIP_POOL_DOOR_H

#include "gossip/gate/handshake.h"
#include "gossip/pool/manifest.h"
#include "gossip/pool/seek.h"
#include "gossip/pool/words.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum {
    GSP_INVITE_COUNT = 16, /* of the ticket that a new pool or a new key brings */
    GSP_INVITE_DAYS = 7,
    GSP_DELEGATES_MAX = 16, /* of a pool at a time */
};

/* What a member is told whose admission a ban made void (gsp_door_voids). */
#define GSP_DOOR_VOID                                                                              \
    "the delegate of the pool's owner that admitted this host has been banned, and its "           \
    "admissions "                                                                                  \
    "are void; join again with a new ticket, into the same directory"

/* A process of a member that is heard at the moment. */
typedef struct gsp_present {
    uint8_t key[GSP_PUBLIC_BYTES];
    uint64_t boot, until_ns; /* from then on it does not count as heard */
} gsp_present;

enum { GSP_PRESENT_MAX = 64 };

typedef struct gsp_door {
    const char *directory;
    gsp_identity identity;
    uint8_t pool[GSP_POOL_BYTES], owner[GSP_PUBLIC_BYTES];
    bool plain;      /* without a gate */
    gsp_hosts hosts; /* the ticket's: where to begin */

    uint8_t psk[GSP_PSKS_MAX][GSP_PSK_BYTES]; /* newest first */
    uint32_t n_psks;
    uint64_t rotated_s; /* since 1970: when the newest key began; older invites are void */
    uint8_t credential[GSP_CREDENTIAL_BYTES_MAX];
    uint32_t credential_bytes;
    bool is_guest; /* the credential is an invite */
    /* A guest's: its admission of before, by a delegate that may have been banned since; and while that is
     * shown, the invite, and the number of a manifest that would say so (gsp_door_show_earlier). */
    uint8_t spare[GSP_CREDENTIAL_BYTES_MAX];
    uint32_t spare_bytes, awaited, ticket_number;

    pthread_mutex_t lock;
    gsp_manifest *manifest;
    char *manifest_text;
    bool has_manifest;
    atomic_bool shut; /* nobody comes in: this host rests */
    gsp_present present[GSP_PRESENT_MAX];
    uint32_t n_present;

    /* The owner's: those it gave; a delegate's: its own; else none. */
    gsp_delegation delegation[GSP_DELEGATES_MAX];
    uint32_t n_delegations;
    gsp_ledger *ledger; /* of whoever admits; NULL: that is not this host, or it is not open */
    char ticket[GSP_TICKET_TEXT_BYTES];
} gsp_door;

/* An empty door with this host's identity, which is made where there is none. */
ATOM_MUST atom_status gsp_door_open(gsp_door *door, const char *directory);
/* Wipes all secrets. Zeros are fine. */
void gsp_door_close(gsp_door *door);

static inline bool gsp_door_is_owner(const gsp_door *door)
{
    return memcmp(door->identity.public_key, door->owner, sizeof door->owner) == 0;
}
/* Of the manifest; 0: it has not been read yet. */
static inline uint32_t gsp_door_number(const gsp_door *door)
{
    return door->has_manifest ? door->manifest->number : 0;
}
/* Who is heard now. Another process with one of these keys does not come in, so that a copy of a
 * member's directory cannot tear down the links of the original. */
void gsp_door_show_present(gsp_door *door, const gsp_present *present, uint32_t n);
/* What handshakes and contacts are judged by; a copy with secrets. The door must outlive it. */
void gsp_door_who(gsp_door *door, gsp_handshake_config *out);

/* ---- on disk (door_file.c) ---- */

ATOM_MUST atom_status gsp_door_save_keys(const gsp_door *door);
ATOM_MUST atom_status gsp_door_load_keys(gsp_door *door);
ATOM_MUST atom_status gsp_door_save_manifest(const gsp_door *door);
ATOM_MUST atom_status gsp_door_load_manifest(gsp_door *door);
ATOM_MUST atom_status gsp_door_save_admission(const gsp_door *door);
/* False: there is none, or it is of no use any more. */
bool gsp_door_load_admission(gsp_door *door);
/* Fails with the reason for that: ATOM_E_FORMAT. */
atom_status gsp_door_fail_admission(const gsp_door *door, uint64_t now_s);
/* The book of invites of whoever admits, and its ticket, where it has one. */
ATOM_MUST atom_status gsp_door_load_owner(gsp_door *door);
/* Those of the file that still hold, after the keys. ATOM_E_FORMAT: it is damaged. */
ATOM_MUST atom_status gsp_door_load_delegations(gsp_door *door);

/* ---- coming in (door.c) ---- */

/*
 * Before joining: takes pool, owner, key and hosts of a ticket, with what an earlier membership
 * left here (a key that is newer than the ticket's stays), and the admission, else the ticket's
 * invite.
 * Errors  ATOM_E_USAGE  the directory is of another pool or the owner's own, or there is no invite;
 *         ATOM_E_FORMAT  a file here is damaged
 */
ATOM_MUST atom_status gsp_door_take_ticket(gsp_door *door, const gsp_ticket *ticket);
/* Nobody is there who could admit this guest: it shows its admission of before, until a manifest as new as
 * its ticket is here. False: it has none, or that was refused before. */
bool gsp_door_show_earlier(gsp_door *door);
static inline bool gsp_door_awaits_manifest(const gsp_door *door)
{
    return door->awaited > gsp_door_number(door);
}
/* That was refused: it is a guest again, and remains one. */
void gsp_door_show_invite(gsp_door *door);
/* The owner's word about us, whoever passed it on: it refused what we show now. */
ATOM_MUST bool gsp_door_is_owners_word(const gsp_door *door, const gsp_word *refusal,
                                       uint64_t now_s);
/* An admission of ours came: true if it is good, and better than what we have: the owner's is better than
 * a delegate's, and a later end than an earlier one, if ours is good at all. Then it is ours from now on. */
ATOM_MUST bool gsp_door_take_admission(gsp_door *door, const void *credential, uint32_t bytes,
                                       uint64_t now_s);
/* We are a member by what a delegate signed: a ban of it would make that void. */
bool gsp_door_leans_on_delegate(const gsp_door *door);
/* Half of our admission's time is over, a delegate gave it a day ago, or it is void or lost: ask for the
 * next one. */
bool gsp_door_wants_admission(const gsp_door *door, uint64_t now_s);
/* Ten days before our admission ends, and after it, while nobody has renewed it: true, and a sentence that
 * says so. */
bool gsp_door_lacks_admission(const gsp_door *door, uint64_t now_s, char *text, size_t bytes);
/*
 * Takes a newer manifest with its text and the key that goes with it (zeros: not for us, we are
 * banned), and keeps both on disk. Errors ATOM_E_FORMAT: it does not follow the one we have, or its
 * key is missing; the door stays as it was.
 */
ATOM_MUST atom_status gsp_door_adopt(gsp_door *door, const gsp_manifest *next, const char *text,
                                     const uint8_t *psk);
/* We have the key of the manifest that we have: it did not shut us out. */
bool gsp_door_knows_key(const gsp_door *door);
/* We are banned by the manifest that we have. */
bool gsp_door_bans_us(const gsp_door *door);
/* The key before the newest one is a day old: forgets it. True: the keys have changed. */
bool gsp_door_forget_old_key(gsp_door *door, uint64_t now_s);

/* ---- delegates (door_delegate.c) ---- */

/* Owner: lets a key admit and renew for so many days. ATOM_E_USAGE: we are not the owner, or it cannot
 * be one. */
ATOM_MUST atom_status gsp_door_delegate(gsp_door *door, const uint8_t *key, double days,
                                        gsp_delegation *out);
/* The delegation of a key that holds now, where this host knows it; NULL: none. */
const gsp_delegation *gsp_door_delegation(const gsp_door *door, const uint8_t *key, uint64_t now_s);
/* For other threads; returns how many. */
uint32_t gsp_door_read_delegations(gsp_door *door, gsp_delegation out[GSP_DELEGATES_MAX]);
/* We were told of one that is ours: true if it is good and later than what we have. */
ATOM_MUST bool gsp_door_take_delegation(gsp_door *door, const void *data, uint32_t bytes,
                                        uint64_t now_s);
/* Forgets delegations of keys that the manifest bans; false: there are none. */
bool gsp_door_end_delegations(gsp_door *door);
/* This host turns invites into admissions and renews them: as the owner or as a delegate. */
bool gsp_door_admits(const gsp_door *door, uint64_t now_s);
/* What we show to others; returns its bytes. Our delegation where we have one, else our admission or
 * invite. */
uint32_t gsp_door_shows(const gsp_door *door, uint64_t now_s,
                        uint8_t out[GSP_CREDENTIAL_BYTES_MAX]);
/* It was signed by a delegate that has been banned since, and so is worth nothing. */
bool gsp_door_voids(const gsp_door *door, const uint8_t *credential, uint32_t bytes);

/* ---- whoever admits, and the owner (door_owner.c) ---- */

/*
 * Somebody asks for an admission: the answer, with it or with a refusal. True: a new member. A
 * delegate's admission ends with its delegation at the latest.
 */
bool gsp_door_admit(gsp_door *door, const gsp_word *ask, gsp_word *answer);
/* Owner: a new admission for a member whose own a ban may make void, if this host's book knows it from
 * before; false: it does not. */
bool gsp_door_readmit(gsp_door *door, const uint8_t *key, gsp_word *answer);
/* A ticket with a new invite, kept on disk. ATOM_E_USAGE: count or days are out of bounds, or this
 * host is neither the owner nor a delegate. */
ATOM_MUST atom_status gsp_door_new_ticket(gsp_door *door, const gsp_hosts *hosts, uint32_t count,
                                          double days);
/* The same invite with other hosts; a new ticket where there is none. */
ATOM_MUST atom_status gsp_door_refresh_ticket(gsp_door *door, const gsp_hosts *hosts);
/* This host admits nobody any more: its ticket is of no use. */
void gsp_door_forget_ticket(gsp_door *door);
/* For other threads. "": none. */
void gsp_door_read_ticket(gsp_door *door, char out[GSP_TICKET_TEXT_BYTES]);
/*
 * Makes and adopts the next manifest, with a new pre-shared key and perhaps one key banned (NULL:
 * none). Errors ATOM_E_USAGE: not the owner, no gate, ourselves, or too many are banned.
 */
ATOM_MUST atom_status gsp_door_rotate(gsp_door *door, const uint8_t *ban);

typedef struct gsp_door_ban {
    bool has_invite; /* this owner's book knows how the key came in */
    uint8_t invite[GSP_INVITE_ID_BYTES];
    uint32_t n_others; /* further keys that came with it */
    bool already;      /* all of them were banned before: manifest, key and tickets stay */
    bool delegate;     /* one of them was a delegate */
} gsp_door_ban;
/*
 * Bans a key as gsp_door_rotate does, and ends the invite that admitted it, so that no next key made
 * from the same ticket is let in. with_others: all keys of that invite are banned with it.
 * Errors  those of gsp_door_rotate; ATOM_E_USAGE: with_others, and no invite is known; those of the
 *         book
 */
ATOM_MUST atom_status gsp_door_ban_key(gsp_door *door, const uint8_t *key, bool with_others,
                                       gsp_door_ban *out);

#endif
