/*
 * What the layer above a member needs beside turns: a look at its machine's state, read only, and a
 * way to tell it of links that were up before it was opened. On the member's thread, between turns.
 */
#ifndef GOSSIP_MEMBER_NODE_LOOK_H
#define GOSSIP_MEMBER_NODE_LOOK_H

#include "gossip/member/node.h"

const gsp_agree *gsp_node_look(const gsp_node *node);
/* One of the newest certificates that were applied here since the start or since a state of others
 * was taken over, and bits of its contributors whose work counted (gsp_work.counted); NULL: it is not
 * kept. */
const gsp_certificate *gsp_node_certificate(const gsp_node *node, uint64_t version,
                                            uint32_t *counted);
/* Parts or results of a round wait to be sent: what can wait should. */
bool gsp_node_is_busy(const gsp_node *node);
/* Somebody else got BUSY for BULK on a member's link: the ROOM that follows goes to the member. */
void gsp_node_was_full(gsp_node *node, const uint8_t key[GSP_KEY_BYTES]);
bool gsp_node_is_full(gsp_node *node, const uint8_t key[GSP_KEY_BYTES]);
/* A link to this peer (no guest) is up, and its UP event went by before gsp_node_open. */
void gsp_node_link(gsp_node *node, const uint8_t key[GSP_KEY_BYTES]);
/* The link was dropped (gsp_net_drop), of which no event tells. */
void gsp_node_unlink(gsp_node *node, const uint8_t key[GSP_KEY_BYTES]);

#endif
