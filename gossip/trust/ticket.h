/*
 * The ticket: one line of text that is all a volunteer needs to join a pool
 * (docs/design/pool.md#who-gets-in). It is a secret, for it carries the pre-shared key. The text is
 * "atom1-" and the base64url of a fixed layout that ends in a checksum. Blanks and line breaks
 * inside are ignored, because mail programs add them.
 *
 * Thread: any.
 */
#ifndef GOSSIP_TRUST_TICKET_H
#define GOSSIP_TRUST_TICKET_H

#include "gossip/trust/admission.h"

enum {
    GSP_PSK_BYTES = 32,
    GSP_TICKET_HOSTS_MAX = 8,
    GSP_TICKET_HOST_BYTES = 80, /* "host.example:4400" and a NUL */
    GSP_TICKET_TEXT_BYTES = 2048,
};

typedef struct gsp_ticket {
    uint8_t owner[GSP_PUBLIC_BYTES];
    uint8_t pool[GSP_POOL_BYTES];
    uint8_t psk[GSP_PSK_BYTES];
    uint32_t manifest; /* number of the manifest whose key this is */
    uint32_t n_hosts;  /* where to begin; may be 0 if the directory or the LAN is enough */
    char hosts[GSP_TICKET_HOSTS_MAX][GSP_TICKET_HOST_BYTES];
    bool has_invite;     /* else the host must have an admission already */
    bool has_delegation; /* the invite's issuer is a delegate */
    gsp_invite invite;
    gsp_delegation delegation;
} gsp_ticket;

/*
 * Writes the ticket's text and its NUL. Equal tickets give equal text.
 * Errors  ATOM_E_USAGE  too many hosts, an empty or overlong host, or an invite or delegation for
 *         another pool or by another issuer than the ticket says
 */
ATOM_MUST atom_status gsp_ticket_text(const gsp_ticket *ticket, char out[GSP_TICKET_TEXT_BYTES]);
/*
 * Reads a ticket; gsp_ticket_text of the result is the input without blanks. Signatures are not
 * checked here (gsp_ticket_check).
 * Errors  ATOM_E_USAGE  not a ticket, cut off, mistyped, or of a newer atom; the message says which
 */
ATOM_MUST atom_status gsp_ticket_parse(const char *text, gsp_ticket *out);
/*
 * Finds a ticket's text where a user says that it is: "-" is the standard input (a line of it, where
 * somebody types), "atom1-..." the ticket itself, anything else a file; a file that others can read
 * is warned of. Blanks are left out, and so are words around it; what is in it is for gsp_ticket_parse. The caller wipes `out`.
 * Errors  ATOM_E_USAGE  no such file, nothing in it, too long; ATOM_E_RUNTIME  it cannot be read
 */
ATOM_MUST atom_status gsp_ticket_read(const char *where, char out[GSP_TICKET_TEXT_BYTES]);
/* Whether its invite is the owner's and still valid at now_s. ATOM_E_USAGE says why not. */
ATOM_MUST atom_status gsp_ticket_check(const gsp_ticket *ticket, uint64_t now_s);
/* The credential to show with its invite; returns its size, 0 without an invite. */
size_t gsp_ticket_credential(const gsp_ticket *ticket, uint8_t out[GSP_CREDENTIAL_BYTES_MAX]);

#endif
