/*
 * Who is connected, what each may still say, and whom this host keeps dialling. A link comes up and
 * goes down with the transport's events; a key that is wanted is dialled until its link is up, and
 * again after that. At most GSP_WANTED_MAX are wanted at once: a key that was dialled in vain for
 * two minutes makes room for the next.
 *
 * Nothing here knows what is said on a link: other parts keep what they know of one beside it, and
 * begin anew where gsp_link.born has changed.
 *
 * Thread: one at a time (the pool's). Ownership: a gsp_link is borrowed until the next event.
 */
#ifndef GOSSIP_POOL_LINKS_H
#define GOSSIP_POOL_LINKS_H

#include "atom/base/clock.h"
#include "gossip/directory/peers.h"
#include "gossip/net/net.h"
#include "gossip/net/tally.h"
#include "gossip/pool/words.h"

enum {
    GSP_WANTED_MAX = 48, /* keys that are dialled at once */
    GSP_SHUNNED_MAX =
        16, /* keys that are not listened to for a while; one more forgets the first */
    GSP_GIVEN_SECONDS = 3 * 3600,
    GSP_MEMBER_TEXT_BYTES = GSP_WORD_NAME_BYTES + 16,
};

typedef struct gsp_link {
    bool up, guest, inbound;
    bool old_key;  /* a guest because it knows only the key before */
    bool answered; /* a guest that got the answer to what it came for */
    bool greeted;  /* its HELLO was here */
    uint64_t born; /* of no other link, before or after */
    uint64_t boot; /* of the peer's process; 0: not known */
    uint8_t key[GSP_PUBLIC_BYTES];
    char name[GSP_WORD_NAME_BYTES];
    gsp_address address;
    gsp_address seen;   /* this host as it sees it; zeros: it has not said */
    uint32_t number;    /* of its manifest */
    uint64_t hello_ns;  /* when to say HELLO next */
    uint64_t doomed_ns; /* banned: to be ended then; 0: no */
    uint64_t second;    /* of its budget of words */
    uint32_t said;      /* in that second */
} gsp_link;

/* To be ended so much later: what it has to hear is on its way. */
static inline void gsp_link_doom(gsp_link *link, uint64_t after_ns)
{
    if (!link->doomed_ns)
        link->doomed_ns = atom_clock_ns() + after_ns;
}

typedef struct gsp_wanted {
    uint8_t key[GSP_PUBLIC_BYTES];
    bool used;
    uint64_t since_ns; /* when it was first dialled, or last up */
} gsp_wanted;

/* Zeros and a net are no links. */
typedef struct gsp_links {
    gsp_net *net;                     /* borrowed */
    gsp_link link[GSP_NET_LINKS_MAX]; /* members; after GSP_NET_PEERS_MAX guests */
    gsp_wanted wanted[GSP_WANTED_MAX];
    uint64_t n_born;
    gsp_tally words, guests_words; /* of a minute: by key; of guests by address */
    gsp_tally given;               /* bytes of files and manifests, by key, of GSP_GIVEN_SECONDS */
    gsp_tally judged;              /* contacts of a minute, by the key that brought them */
    gsp_tally notes;               /* questions for notes of a minute, by key */
    gsp_tally manifests;           /* that came in a minute, by key */
    struct {
        uint8_t key[GSP_PUBLIC_BYTES];
        uint64_t until_ns;
    } shunned[GSP_SHUNNED_MAX];
    uint32_t n_shunned;
} gsp_links;

/* A member for people: its name, if it said one, and in any case the start of its key, because two
 * may have one name. Returns text. */
const char *gsp_member_text(const char *name, const uint8_t *key, char text[GSP_MEMBER_TEXT_BYTES]);

/* The link to a key that is up, or NULL. */
gsp_link *gsp_links_find(gsp_links *links, const uint8_t *key);
/* Any link to a member that is up. NULL: none. */
gsp_link *gsp_links_member(gsp_links *links);
/* A link came up; again with the same key: it begins anew. Members and guests have places of their
 * own. NULL: there are too many. */
gsp_link *gsp_links_add(gsp_links *links, const gsp_net_event *up);
/* Ends a link, and the wish for it. */
void gsp_links_end(gsp_links *links, gsp_link *link);

/* Sends a word. False: there is no link, or it is full now. */
bool gsp_links_tell(gsp_links *links, const uint8_t *key, const gsp_word *word);
/*
 * Counts a word that came; false: it is not heard. A link may say so much in a second; and a key,
 * whatever links it comes with, so much in a minute (a guest: its address).
 */
bool gsp_links_may_speak(gsp_links *links, gsp_link *link, uint64_t now_ns);
/*
 * What a key may have of this host: bytes of files, pieces and manifests in three hours, at most
 * `most` (gsp_manifest_gives). False: it has had them. May: asks only; give: counts.
 */
bool gsp_links_may_give(gsp_links *links, const uint8_t *key, uint64_t bytes, uint64_t most,
                        uint64_t now_ns);
void gsp_links_give(gsp_links *links, const uint8_t *key, uint64_t bytes, uint64_t most,
                    uint64_t now_ns);
/* Counts a contact that a key brought and whose signature is about to be checked; false: it has
 * brought too many in this minute. */
bool gsp_links_may_bring(gsp_links *links, const uint8_t *key, uint64_t now_ns);
/* Counts a question for notes, whose answer may be long; false: it gets none in this minute. */
bool gsp_links_may_ask_notes(gsp_links *links, const uint8_t *key, uint64_t now_ns);
/* Counts a manifest that a key sent and that is about to be read; false: it has sent too many in this minute. */
bool gsp_links_may_send_manifest(gsp_links *links, const uint8_t *key, uint64_t now_ns);
/* Ends the link soon, and those with which the key comes back in the next ten minutes. */
void gsp_links_shun(gsp_links *links, gsp_link *link, uint64_t now_ns);

/* Dials the best of the book that are not wanted yet, and gives one up where all places are taken.
 * accepts: somebody can dial this host. */
void gsp_links_dial(gsp_links *links, gsp_peers *peers, bool accepts, uint64_t now_ns);
/* The address under which a member that accepts nowhere is dialled, so that a third one relays: that
 * nobody answers there is no news. */
bool gsp_links_in_vain(const gsp_address *at);
/* It may be elsewhere now: where it is not linked, it is dialled anew, with its newest
 * addresses. */
void gsp_links_moved(gsp_links *links, const uint8_t *key);
/* Says HELLO on all links no later than this. */
void gsp_links_hello_by(gsp_links *links, uint64_t ns);
/* Dials nobody any more, until gsp_links_dial. */
void gsp_links_rest(gsp_links *links);

#endif
