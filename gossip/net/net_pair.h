/*
 * One stream's nanomsg PAIR. Only this file and net_carry_plain.c know nanomsg, and only net_*.c
 * include it. Thread: the endpoint's.
 */
#ifndef GOSSIP_NET_NET_PAIR_H
#define GOSSIP_NET_NET_PAIR_H

#include "atom/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct net_pair {
    int socket;                /* nanomsg's; -1: none */
    int can_send, can_receive; /* readable while a send or receive would not block */
} net_pair;

/* A PAIR that refuses messages above bytes_max; buffer_bytes 0 leaves nanomsg's default. */
ATOM_MUST atom_status net_pair_open(size_t bytes_max, int buffer_bytes, net_pair *out);
/* False: the address is in use; the PAIR can try another one. */
ATOM_MUST bool net_pair_bind(net_pair *pair, const char *url);
ATOM_MUST atom_status net_pair_connect(net_pair *pair, const char *url);
void net_pair_close(net_pair *pair); /* -1 is fine */
bool net_pair_can_send(const net_pair *pair);
bool net_pair_can_receive(const net_pair *pair);
/* Copies head, body and, unless it is negative, one last byte into one message. False: it would
 * block. */
ATOM_MUST bool net_pair_send(net_pair *pair, const void *head, size_t head_bytes, const void *body,
                             size_t body_bytes, int tail);
/* The next message, to be given back by net_pair_free; NULL: there is none now. */
ATOM_MUST void *net_pair_receive(net_pair *pair, size_t *bytes);
void net_pair_free(void *data);
/* Connections that are up now: 0 or 1. */
uint32_t net_pair_connections(const net_pair *pair);

#endif
