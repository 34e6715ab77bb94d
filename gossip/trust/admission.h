/*
 * Who may enter a pool (docs/design/pool.md#who-gets-in). The owner's signature is the only source
 * of rights:
 *   admission   this key is a member, until a given time
 *   delegation  this key may sign admissions and invites for the owner, until a given time
 *   invite      so many holders of the ticket may become members, until a given time
 * A credential is what a host shows in the handshake: an admission or an invite, followed by the
 * delegation of its issuer if that is not the owner. The owner itself shows nothing.
 *
 * Times are seconds since 1970; clocks may differ by five minutes in either direction. Every
 * encoding has one fixed size, so decode(encode(x)) == x and nothing else decodes. Thread: any.
 */
#ifndef GOSSIP_TRUST_ADMISSION_H
#define GOSSIP_TRUST_ADMISSION_H

#include "gossip/trust/sign.h"

enum {
    GSP_POOL_BYTES = 32,
    GSP_INVITE_ID_BYTES = 16,
    GSP_SKEW_SECONDS = 300,
    GSP_ADMISSION_BYTES = 4 + 3 * 32 + 4 + 8 + 8 + GSP_SIGNATURE_BYTES,
    GSP_DELEGATION_BYTES = 4 + 2 * 32 + 8 + 8 + GSP_SIGNATURE_BYTES,
    GSP_INVITE_BYTES = 4 + 2 * 32 + 16 + 4 + 8 + 8 + GSP_SIGNATURE_BYTES,
    GSP_REFUSAL_BYTES = 8 + GSP_SIGNATURE_BYTES,
    GSP_CREDENTIAL_BYTES_MAX = 384,
    GSP_INVITE_COUNT_MAX = 100000,
};

typedef struct gsp_admission {
    uint8_t pool[GSP_POOL_BYTES];
    uint8_t member[GSP_PUBLIC_BYTES];
    uint8_t issuer[GSP_PUBLIC_BYTES];
    uint32_t manifest; /* number of the manifest it was given under */
    uint64_t issued_s, expires_s;
    uint8_t signature[GSP_SIGNATURE_BYTES];
} gsp_admission;

typedef struct gsp_delegation {
    uint8_t pool[GSP_POOL_BYTES];
    uint8_t delegate[GSP_PUBLIC_BYTES];
    uint64_t issued_s, expires_s;
    uint8_t signature[GSP_SIGNATURE_BYTES];
} gsp_delegation;

typedef struct gsp_invite {
    uint8_t pool[GSP_POOL_BYTES];
    uint8_t issuer[GSP_PUBLIC_BYTES];
    uint8_t id[GSP_INVITE_ID_BYTES];
    uint32_t count; /* how many hosts it may turn into members */
    uint64_t issued_s, expires_s;
    uint8_t signature[GSP_SIGNATURE_BYTES];
} gsp_invite;

/* Fill in all but the signature, then sign. The issuer is the signer. */
void gsp_admission_sign(gsp_admission *admission, const gsp_identity *issuer);
void gsp_delegation_sign(gsp_delegation *delegation, const gsp_identity *owner);
void gsp_invite_sign(gsp_invite *invite, const gsp_identity *issuer);

void gsp_admission_encode(const gsp_admission *admission, uint8_t out[GSP_ADMISSION_BYTES]);
void gsp_delegation_encode(const gsp_delegation *delegation, uint8_t out[GSP_DELEGATION_BYTES]);
/* False: not the form of one. What it says is not checked (gsp_credential_check). */
ATOM_MUST bool gsp_delegation_decode(const void *data, size_t bytes, gsp_delegation *out);
void gsp_invite_encode(const gsp_invite *invite, uint8_t out[GSP_INVITE_BYTES]);

/* Why a host is not let in. The numbers travel (sealed) and never change. */
typedef enum gsp_refusal {
    GSP_WELCOME = 0,
    GSP_REFUSED_VERSION = 1,    /* speaks another version of the handshake */
    GSP_REFUSED_CLOCK = 2,      /* clocks differ by more than five minutes, or a replay */
    GSP_REFUSED_CREDENTIAL = 3, /* none, damaged, forged, or for another key or pool */
    GSP_REFUSED_EXPIRED = 4,
    GSP_REFUSED_BANNED = 5,
    GSP_REFUSED_FULL = 6,
    GSP_REFUSED_SELF = 7,      /* that was ourselves */
    GSP_REFUSED_KEY = 8,       /* another member answered than the one that was dialled */
    GSP_REFUSED_HANDSHAKE = 9, /* not our handshake, another ticket, or damaged on the way */
    GSP_REFUSED_TWIN = 10,     /* another process with this key takes part at the moment */
    GSP_REFUSAL_N
} gsp_refusal;
/* What was wrong and what to do, in a sentence for the user. */
const char *gsp_refusal_text(gsp_refusal refusal);

/* Since 1970, when the admission of a credential was given and ends; false, and zeros: it has none. */
bool gsp_admission_span(const uint8_t *credential, uint32_t bytes, uint64_t *from, uint64_t *until);
/* Since 1970, when a credential ends: its admission or the delegation of whoever signed that, whichever is
 * first, or the delegation that it is alone; 0: it is neither. */
uint64_t gsp_credential_ends(const uint8_t *credential, uint32_t bytes);
/* Who signed the admission or invite of a credential, within it; NULL: it has neither. */
const uint8_t *gsp_credential_issuer(const uint8_t *credential, size_t bytes);
/* "... from A to B, but this host's clock says C": of what a host's clock says it is too early or too late
 * for; a clock that is wrong is the likely reason where it is days. */
const char *gsp_validity_text(uint64_t issued_s, uint64_t expires_s, uint64_t now_s, char *text,
                              size_t bytes);

/* The owner's word that it does not admit a key that showed a credential, in a form that others can
 * pass on: the time, and a signature over pool, key, credential, refusal and time. */
void gsp_refusal_sign(const gsp_identity *owner, const uint8_t pool[GSP_POOL_BYTES],
                      const uint8_t key[GSP_PUBLIC_BYTES], const void *shown, size_t shown_bytes,
                      gsp_refusal refusal, uint64_t now_s, uint8_t out[GSP_REFUSAL_BYTES]);
/* Whether it is the owner's word, about this, and of the last minutes. */
ATOM_MUST bool gsp_refusal_verify(const uint8_t owner[GSP_PUBLIC_BYTES],
                                  const uint8_t pool[GSP_POOL_BYTES],
                                  const uint8_t key[GSP_PUBLIC_BYTES], const void *shown,
                                  size_t shown_bytes, gsp_refusal refusal, uint64_t now_s,
                                  const void *word, size_t bytes);

typedef enum gsp_role { GSP_GUEST, GSP_MEMBER, GSP_DELEGATE, GSP_OWNER } gsp_role;

/*
 * Judges a credential that `key` shows at time now_s. role is written if the answer is WELCOME; it
 * is GUEST for an invite. bytes 0 is right for the owner only.
 */
ATOM_MUST gsp_refusal gsp_credential_check(const void *credential, size_t bytes,
                                           const uint8_t pool[GSP_POOL_BYTES],
                                           const uint8_t owner[GSP_PUBLIC_BYTES],
                                           const uint8_t key[GSP_PUBLIC_BYTES], uint64_t now_s,
                                           gsp_role *role);
/* The invite of a credential that was welcome as GUEST; false if it holds none. */
ATOM_MUST bool gsp_credential_invite(const void *credential, size_t bytes, gsp_invite *out);

/*
 * The owner's (or a delegate's) book of used invites, one file; turns invites into admissions.
 * Thread: one at a time.
 */
typedef struct gsp_ledger gsp_ledger;
/* Reads the book, or starts an empty one if there is no file. ATOM_E_FORMAT: it is damaged. */
ATOM_MUST atom_status gsp_ledger_open(const char *path, gsp_ledger **out);
void gsp_ledger_close(gsp_ledger **ledger);
/*
 * Turns an invite into an admission of `member` until expires_s. The book is on disk before this
 * returns. Admitting the same member again does not use up the invite. The caller has found the
 * credential welcome (gsp_credential_check); here only the count is checked, and that the invite
 * was not ended.
 * Errors  ATOM_E_USAGE  the invite is used up or ended; ATOM_E_RUNTIME, ATOM_E_RESOURCE  the book cannot be
 *         written, and nobody was admitted
 */
ATOM_MUST atom_status gsp_ledger_admit(gsp_ledger *ledger, const gsp_identity *issuer,
                                       const gsp_invite *invite,
                                       const uint8_t member[GSP_PUBLIC_BYTES], uint32_t manifest,
                                       uint64_t now_s, uint64_t expires_s, gsp_admission *out);
/* The invite that a member came with last; false: none of this book. */
ATOM_MUST bool gsp_ledger_invite_of(const gsp_ledger *ledger,
                                    const uint8_t member[GSP_PUBLIC_BYTES],
                                    uint8_t invite[GSP_INVITE_ID_BYTES]);
/* Writes the keys that an invite admitted, n_max at most; returns how many there are. */
uint32_t gsp_ledger_members(const gsp_ledger *ledger, const uint8_t invite[GSP_INVITE_ID_BYTES],
                            uint8_t out[][GSP_PUBLIC_BYTES], uint32_t n_max);
/* From now on the invite admits nobody. The book is on disk before this returns; errors as above. */
ATOM_MUST atom_status gsp_ledger_end_invite(gsp_ledger *ledger,
                                            const uint8_t invite[GSP_INVITE_ID_BYTES]);

#endif
