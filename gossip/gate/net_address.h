/*
 * Where a peer can be reached: an IP address and a TCP port, both numeric. Names are resolved when
 * a ticket is read (gsp_address_resolve), never on the thread that serves the network.
 */
#ifndef GOSSIP_GATE_NET_ADDRESS_H
#define GOSSIP_GATE_NET_ADDRESS_H

#include "atom/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

enum { GSP_ADDRESS_TEXT_BYTES = 64, GSP_ADDRESS_PORT_DEFAULT = 4400 };

/* IPv4 is kept mapped (::ffff:a.b.c.d), so that equal addresses are equal bytes. */
typedef struct gsp_address {
    uint8_t ip[16];
    uint16_t port;  /* host byte order */
    uint32_t scope; /* link-local IPv6: interface index; else 0 */
} gsp_address;

/*
 * "192.0.2.7:4400", "[2001:db8::7]:4400", "192.0.2.7" (default port), "*:4400" (any address).
 * Errors  ATOM_E_USAGE; *out untouched.
 */
ATOM_MUST atom_status gsp_address_parse(const char *text, gsp_address *out);
/* The same for "host.example:4400": asks the resolver, which may block for seconds. Writes *n
 * addresses, 1 to n_max of them. ATOM_E_RUNTIME: the name is unknown. */
ATOM_MUST atom_status gsp_address_resolve(const char *text, gsp_address *out, size_t n_max,
                                          size_t *n);
/* Is this "host.example:4222", "192.0.2.7:4222" or "[2001:db8::7]:4222", of fewer than `bytes` bytes
 * and nothing strange? Asks no resolver. Errors  ATOM_E_USAGE: it is not. */
ATOM_MUST atom_status gsp_address_check(const char *text, size_t bytes);
/* Writes what gsp_address_parse reads; buf holds GSP_ADDRESS_TEXT_BYTES; returns buf. */
char *gsp_address_text(const gsp_address *address, char *buf);
bool gsp_address_same_host(const gsp_address *a, const gsp_address *b);
/* One customer of a provider, as far as addresses tell: the same IPv4 address, or the same /64 of
 * IPv6. */
bool gsp_address_same_customer(const gsp_address *a, const gsp_address *b);
/* "*": no host in particular, of IPv4 or IPv6. */
bool gsp_address_is_any(const gsp_address *a);
bool gsp_address_equal(const gsp_address *a, const gsp_address *b);

/* To and from the kernel's form; an IPv4 address gives a sockaddr_in. */
socklen_t gsp_address_to_socket(const gsp_address *a, struct sockaddr_storage *out);
bool gsp_address_from_socket(const struct sockaddr_storage *in, gsp_address *out);

#endif
