/*
 * Contributions that other members lack, asked of those who made them
 * (docs/design/pool.md#hostile-members): what comes is kept for the member that lacks it, and who
 * gives nothing although it has a link is told to the agreement. One question of each member, of
 * bounded size.
 *
 * Thread: the member's. Errors: none; what cannot be had stays away.
 */
#ifndef GOSSIP_MEMBER_QUESTIONS_H
#define GOSSIP_MEMBER_QUESTIONS_H

#include "gossip/member/friends.h"
#include "gossip/member/patience.h"

typedef struct gsp_question {
    bool on;
    gsp_key peer; /* who lacks them */
    uint64_t version, within_ns, began_ns, asked_ns;
    uint32_t part, wanted, told; /* bits of C(version)'s contributors; told: that they came */
    gsp_blob *input[GSP_MEMBERS_MAX];
    gsp_patience patience;
} gsp_question;

typedef struct gsp_questions {
    const gsp_terms *terms;
    gsp_friends *friends;
    gsp_question of[GSP_MEMBERS_MAX];
} gsp_questions;

/* The pointers stay as they are for as long as it is used. */
void gsp_questions_open(gsp_questions *questions, const gsp_terms *terms, gsp_friends *friends);
void gsp_questions_close(gsp_questions *questions);

/* An INPUTS of the agreement. A peer's next question takes the place of its last one. */
void gsp_questions_begin(gsp_questions *questions, const gsp_action *action);
/* Where a piece belongs that is lacked; NULL: nowhere here. */
gsp_blob **gsp_questions_place(gsp_questions *questions, const gsp_message *message);
/* A part that came. False: it is not here. */
ATOM_MUST bool gsp_questions_exhibit(const gsp_questions *questions, uint64_t version,
                                     const gsp_hash *root, uint32_t part, gsp_exhibit *out);
/* Asks again what is due. True: *event is news for the agreement, and there may be more. */
ATOM_MUST bool gsp_questions_work(gsp_questions *questions, gsp_event *event);

/* For those who ask for contributions to a part: the number of the link that the maker of each contribution
 * of `named` has; 0: none. */
void gsp_questions_links(gsp_friends *friends, const gsp_named *named,
                         uint64_t link[GSP_MEMBERS_MAX]);
/* A piece of contribution i is about to be taken: its maker, if it sent it, gains time. True: it did
 * for the first time. */
bool gsp_questions_answered(gsp_patience *patience, const gsp_named *named, uint32_t i,
                            const gsp_message *message);
/* Asks `to` (NULL: nobody) for contribution i. */
void gsp_questions_pull(gsp_friends *friends, gsp_friend *to, uint64_t version, uint32_t part,
                        const gsp_hash *root);

#endif
