/*
 * What hosts of a pool say to each other, beside the agreement's messages: who they are and whom
 * they know, may I come in, here is the manifest, give me a file. A word is one message on a link
 * (net.h); its first byte is GSP_WORD_MARK, which neither the agreement (GSP_TYPES_VERSION) nor
 * probes (GSP_PROBE_MARK) use.
 *
 *   u8 mark, u8 version, u8 kind, then by kind (little endian):
 *   HELLO         u32 manifest, name[32], address seen, u16 n; n x (u16 bytes, contact body)
 *   ASK_ADMISSION key, u16 bytes, credential      an invite, or an admission that grows old
 *   ADMISSION     key, u8 refusal, u16 bytes, credential        or the owner's word (gsp_refusal_sign)
 *   ASK_MANIFEST  (nothing)
 *   MANIFEST      pre-shared key (zeros: not for you), text
 *   ASK_FILE      hash, u64 offset, u32 bytes
 *   FILE          hash, u64 offset, u64 of_bytes, data     (on BULK)
 *   ASK_NOTE      hash                                     notes under a key
 *   NOTE          hash, text                               one of them; no text: there are no more
 *   ASK_PIECES    root, u32 first, u16 n                   of a file of data (pieces.h)
 *   PIECE         root, u32 piece, u8 n; n hashes of its proof, data     (on BULK)
 *   NO_PIECE      root, u32 piece                          it is not here; ask somebody else
 *
 * ASK_ADMISSION and ADMISSION of another key than the link's are passed on by members between a
 * guest and somebody who may admit. Decoding checks everything but signatures. Thread: any.
 */
#ifndef GOSSIP_POOL_WORDS_H
#define GOSSIP_POOL_WORDS_H

#include "gossip/directory/contact.h"
#include "gossip/member/pieces.h"
#include "gossip/net/net.h"
#include "gossip/pool/manifest.h"

enum {
    GSP_WORD_MARK = 0xe0,
    GSP_WORD_VERSION = 1,
    GSP_WORD_NAME_BYTES = 32, /* with the NUL */
    GSP_WORD_CONTACTS_MAX = 48,
    GSP_WORD_CHUNK_BYTES = 256 * 1024, /* of a file */
    GSP_WORD_NOTE_BYTES_MAX = 64 * 1024,
    GSP_WORD_HEAD_BYTES = 1024, /* all but contacts, text and data */
    GSP_WORD_PIECES_MAX = 64,   /* asked for in one word */
    GSP_WORD_HELLO_BYTES_MAX =
        GSP_WORD_HEAD_BYTES + GSP_WORD_CONTACTS_MAX * (GSP_CONTACT_BODY_BYTES_MAX + 2),
    GSP_WORD_AWAY = 200, /* instead of a gsp_refusal: the owner, who admits, is not there now */
};

typedef enum gsp_word_kind {
    GSP_WORD_HELLO = 1,
    GSP_WORD_ASK_ADMISSION,
    GSP_WORD_ADMISSION,
    GSP_WORD_ASK_MANIFEST,
    GSP_WORD_MANIFEST,
    GSP_WORD_ASK_FILE,
    GSP_WORD_FILE,
    GSP_WORD_ASK_NOTE,
    GSP_WORD_NOTE,
    GSP_WORD_ASK_PIECES,
    GSP_WORD_PIECE,
    GSP_WORD_NO_PIECE,
    GSP_WORD_N
} gsp_word_kind;

typedef struct gsp_word {
    gsp_word_kind kind;
    uint32_t number;                /* HELLO: of the sender's manifest */
    char name[GSP_WORD_NAME_BYTES]; /* HELLO: printable ASCII */
    gsp_address seen;               /* HELLO: the receiver's end, as the sender sees it */
    uint32_t n_contacts;            /* HELLO: in body */
    uint8_t key[GSP_PUBLIC_BYTES];  /* ASK_ADMISSION, ADMISSION */
    uint8_t refusal;                /* ADMISSION: gsp_refusal or GSP_WORD_AWAY */
    uint32_t credential_bytes;
    uint8_t credential[GSP_CREDENTIAL_BYTES_MAX];
    uint8_t psk[GSP_PSK_BYTES]; /* MANIFEST */
    gsp_hash hash; /* ASK_FILE, FILE, the file's root for pieces; ASK_NOTE, NOTE: the key */
    uint64_t offset, of_bytes;
    uint32_t bytes;           /* ASK_FILE */
    uint32_t piece, n_pieces; /* the first; ASK_PIECES: how many */
    uint32_t n_path;          /* PIECE */
    gsp_hash path[GSP_STATE_PATH_MAX];
    /* HELLO: contacts; MANIFEST, NOTE: text; FILE, PIECE: data. Points into the message that was
     * decoded, or is the sender's. */
    const uint8_t *body;
    size_t body_bytes;
} gsp_word;

/* The channel that a word travels on. */
gsp_net_channel gsp_word_channel(gsp_word_kind kind);
/* Writes all but the body; returns its bytes. */
size_t gsp_word_encode(const gsp_word *m, uint8_t out[GSP_WORD_HEAD_BYTES]);
/* False: not a word, or malformed. */
ATOM_MUST bool gsp_word_decode(const void *data, size_t bytes, gsp_word *out);

/* Appends one contact to a HELLO's body of `used` bytes; returns what is used then (unchanged: no
 * room). */
size_t gsp_word_add_contact(uint8_t *body, size_t used, size_t bytes, const gsp_contact *contact);
/* The next contact of a HELLO's body at *at; false at the end. Signatures are not checked. */
ATOM_MUST bool gsp_word_next_contact(const gsp_word *m, size_t *at, gsp_contact *out);

#endif
