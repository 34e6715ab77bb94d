/*
 * Owns the ticket's text. Its one idea: the layout has no choices, so each ticket has one text and
 * each text at most one ticket. It refuses to guess at damage: a wrong checksum is said, never
 * repaired.
 */
#include "gossip/trust/ticket.h"

#include "atom/base/bytes.h"

#include <ctype.h>
#include <sodium.h>
#include <string.h>

enum {
    CHECK_BYTES = 4,
    FLAG_INVITE = 1,
    FLAG_DELEGATION = 2,
    BODY_BYTES_MAX = 1400,
    VARIANT = sodium_base64_VARIANT_URLSAFE_NO_PADDING,
};
static const char PREFIX[] = "atom1-";
_Static_assert(sizeof PREFIX + sodium_base64_ENCODED_LEN(BODY_BYTES_MAX, VARIANT) <=
                   GSP_TICKET_TEXT_BYTES,
               "the longest ticket fits");

static void checksum(const uint8_t *body, size_t bytes, uint8_t out[CHECK_BYTES])
{
    uint8_t hash[crypto_generichash_BYTES];
    crypto_generichash(hash, sizeof hash, body, bytes, (const uint8_t *)"atom ticket checksum", 20);
    memcpy(out, hash, CHECK_BYTES);
}

/* Printable ASCII without blanks, 1 to 79 characters. */
static bool host_right(const char *host)
{
    size_t n = strnlen(host, GSP_TICKET_HOST_BYTES);
    if (n == 0 || n == GSP_TICKET_HOST_BYTES)
        return false;
    for (size_t i = 0; i < n; i++)
        if (host[i] <= ' ' || host[i] > '~')
            return false;
    return true;
}

static atom_status check_parts(const gsp_ticket *t)
{
    const uint8_t *issuer = t->has_delegation ? t->delegation.delegate : t->owner;
    if (t->n_hosts > GSP_TICKET_HOSTS_MAX)
        return atom_fail(ATOM_E_USAGE, "a ticket holds at most %d hosts", GSP_TICKET_HOSTS_MAX);
    for (uint32_t i = 0; i < t->n_hosts; i++)
        if (!host_right(t->hosts[i]))
            return atom_fail(ATOM_E_USAGE, "ticket: host %u is empty, too long or contains blanks",
                             i);
    if (t->has_delegation && !t->has_invite)
        return atom_fail(ATOM_E_USAGE, "ticket: a delegation is useless without an invite");
    if (t->has_invite && (memcmp(t->invite.pool, t->pool, GSP_POOL_BYTES) != 0 ||
                          memcmp(t->invite.issuer, issuer, GSP_PUBLIC_BYTES) != 0 ||
                          t->invite.count == 0 || t->invite.count > GSP_INVITE_COUNT_MAX))
        return atom_fail(ATOM_E_USAGE, "ticket: the invite is for another pool or issuer");
    if (t->has_delegation && memcmp(t->delegation.pool, t->pool, GSP_POOL_BYTES) != 0)
        return atom_fail(ATOM_E_USAGE, "ticket: the delegation is for another pool");
    return ATOM_OK;
}

atom_status gsp_ticket_text(const gsp_ticket *t, char out[GSP_TICKET_TEXT_BYTES])
{
    uint8_t body[BODY_BYTES_MAX];
    ATOM_TRY(gsp_crypto_start());
    ATOM_TRY(check_parts(t));
    atom_writer w = atom_writer_make(body, sizeof body);
    atom_write_uint(
        &w, (t->has_invite ? FLAG_INVITE : 0u) | (t->has_delegation ? FLAG_DELEGATION : 0u), 1);
    atom_write_bytes(&w, t->owner, sizeof t->owner);
    atom_write_bytes(&w, t->pool, sizeof t->pool);
    atom_write_bytes(&w, t->psk, sizeof t->psk);
    atom_write_uint(&w, t->manifest, 4);
    if (t->has_invite) {
        atom_write_bytes(&w, t->invite.id, sizeof t->invite.id);
        atom_write_uint(&w, t->invite.count, 4);
        atom_write_uint(&w, t->invite.issued_s, 8);
        atom_write_uint(&w, t->invite.expires_s, 8);
        atom_write_bytes(&w, t->invite.signature, sizeof t->invite.signature);
    }
    if (t->has_delegation) {
        atom_write_bytes(&w, t->delegation.delegate, sizeof t->delegation.delegate);
        atom_write_uint(&w, t->delegation.issued_s, 8);
        atom_write_uint(&w, t->delegation.expires_s, 8);
        atom_write_bytes(&w, t->delegation.signature, sizeof t->delegation.signature);
    }
    atom_write_uint(&w, t->n_hosts, 1);
    for (uint32_t i = 0; i < t->n_hosts; i++) {
        size_t n = strlen(t->hosts[i]);
        atom_write_uint(&w, n, 1);
        atom_write_bytes(&w, t->hosts[i], n);
    }
    size_t bytes = (size_t)(w.at - body);
    uint8_t check[CHECK_BYTES];
    checksum(body, bytes, check);
    atom_write_bytes(&w, check, sizeof check);
    memcpy(out, PREFIX, sizeof PREFIX - 1);
    sodium_bin2base64(out + sizeof PREFIX - 1, GSP_TICKET_TEXT_BYTES - sizeof PREFIX, body,
                      bytes + CHECK_BYTES, VARIANT);
    explicit_bzero(body, sizeof body);
    return ATOM_OK;
}

static void read_invite(atom_reader *r, gsp_ticket *t)
{
    atom_read_bytes(r, t->invite.id, sizeof t->invite.id);
    t->invite.count = atom_read_u32(r);
    t->invite.issued_s = atom_read_u64(r);
    t->invite.expires_s = atom_read_u64(r);
    atom_read_bytes(r, t->invite.signature, sizeof t->invite.signature);
    memcpy(t->invite.pool, t->pool, sizeof t->pool);
    memcpy(t->invite.issuer, t->owner, sizeof t->owner);
}

static void read_delegation(atom_reader *r, gsp_ticket *t)
{
    atom_read_bytes(r, t->delegation.delegate, sizeof t->delegation.delegate);
    t->delegation.issued_s = atom_read_u64(r);
    t->delegation.expires_s = atom_read_u64(r);
    atom_read_bytes(r, t->delegation.signature, sizeof t->delegation.signature);
    memcpy(t->delegation.pool, t->pool, sizeof t->pool);
    memcpy(t->invite.issuer, t->delegation.delegate, sizeof t->invite.issuer);
}

/* The layout, after the checksum has been found right. */
static bool read_body(const uint8_t *body, size_t bytes, gsp_ticket *t)
{
    atom_reader r = atom_reader_make(body, bytes);
    uint8_t flags = atom_read_u8(&r);
    if (flags & ~(FLAG_INVITE | FLAG_DELEGATION))
        return false;
    t->has_invite = flags & FLAG_INVITE;
    t->has_delegation = flags & FLAG_DELEGATION;
    atom_read_bytes(&r, t->owner, sizeof t->owner);
    atom_read_bytes(&r, t->pool, sizeof t->pool);
    atom_read_bytes(&r, t->psk, sizeof t->psk);
    t->manifest = atom_read_u32(&r);
    if (t->has_invite)
        read_invite(&r, t);
    if (t->has_delegation)
        read_delegation(&r, t);
    t->n_hosts = atom_read_u8(&r);
    if (t->n_hosts > GSP_TICKET_HOSTS_MAX)
        return false;
    for (uint32_t i = 0; i < t->n_hosts; i++) {
        size_t n = atom_read_u8(&r);
        if (n >= GSP_TICKET_HOST_BYTES)
            return false;
        atom_read_bytes(&r, t->hosts[i], n);
        if (strlen(t->hosts[i]) != n)
            return false;
    }
    return atom_reader_ok(&r) && atom_reader_left(&r) == 0;
}

atom_status gsp_ticket_parse(const char *text, gsp_ticket *out)
{
    char plain[GSP_TICKET_TEXT_BYTES];
    uint8_t body[BODY_BYTES_MAX], check[CHECK_BYTES];
    size_t n = 0, bytes = 0;
    gsp_ticket t = {0};
    atom_status st;
    ATOM_TRY_CLEAN(gsp_crypto_start());
    for (; *text; text++) {
        if (isspace((unsigned char)*text))
            continue;
        if (n + 1 >= sizeof plain)
            ATOM_TRY_CLEAN(atom_fail(ATOM_E_USAGE, "ticket: this is too long to be a ticket"));
        plain[n++] = *text;
    }
    plain[n] = 0;
    const size_t prefix = sizeof PREFIX - 1;
    if (strncmp(plain, PREFIX, prefix) != 0) {
        bool newer = strncmp(plain, "atom", 4) == 0 && isdigit((unsigned char)plain[4]);
        ATOM_TRY_CLEAN(newer ? atom_fail(ATOM_E_USAGE,
                                         "ticket: it was made by a newer version of atom; "
                                         "upgrade this one")
                             : atom_fail(ATOM_E_USAGE, "ticket: a ticket begins with %s", PREFIX));
    }
    if (sodium_base642bin(body, sizeof body, plain + prefix, n - prefix, NULL, &bytes, NULL,
                          VARIANT) != 0 ||
        bytes <= CHECK_BYTES)
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_USAGE,
                                 "ticket: it is incomplete, or contains a character that no "
                                 "ticket has; copy it again completely"));
    bytes -= CHECK_BYTES;
    checksum(body, bytes, check);
    if (memcmp(check, body + bytes, CHECK_BYTES) != 0)
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_USAGE,
                                 "ticket: a character is wrong or missing (the checksum does not "
                                 "fit); copy it again completely"));
    if (!read_body(body, bytes, &t) || check_parts(&t) != ATOM_OK)
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_USAGE,
                                 "ticket: it contains something that this version of atom does not "
                                 "know; upgrade"));
    *out = t;
cleanup:
    explicit_bzero(plain, sizeof plain);
    explicit_bzero(body, sizeof body);
    explicit_bzero(&t, sizeof t);
    return st;
}

size_t gsp_ticket_credential(const gsp_ticket *ticket, uint8_t out[GSP_CREDENTIAL_BYTES_MAX])
{
    if (!ticket->has_invite)
        return 0;
    gsp_invite_encode(&ticket->invite, out);
    if (!ticket->has_delegation)
        return GSP_INVITE_BYTES;
    gsp_delegation_encode(&ticket->delegation, out + GSP_INVITE_BYTES);
    return GSP_INVITE_BYTES + GSP_DELEGATION_BYTES;
}

atom_status gsp_ticket_check(const gsp_ticket *ticket, uint64_t now_s)
{
    uint8_t credential[GSP_CREDENTIAL_BYTES_MAX];
    static const uint8_t nobody[GSP_PUBLIC_BYTES];
    gsp_role role;
    size_t bytes = gsp_ticket_credential(ticket, credential);
    if (bytes == 0)
        return ATOM_OK;
    gsp_refusal refusal =
        gsp_credential_check(credential, bytes, ticket->pool, ticket->owner, nobody, now_s, &role);
    if (refusal == GSP_REFUSED_EXPIRED || refusal == GSP_REFUSED_CLOCK) {
        /* Valid while both are. */
        uint64_t from = ticket->invite.issued_s, until = ticket->invite.expires_s;
        if (ticket->has_delegation && ticket->delegation.issued_s > from)
            from = ticket->delegation.issued_s;
        if (ticket->has_delegation && ticket->delegation.expires_s < until)
            until = ticket->delegation.expires_s;
        char text[240];
        return atom_fail(ATOM_E_USAGE, "the ticket is %s; else ask for a new ticket",
                         gsp_validity_text(from, until, now_s, text, sizeof text));
    }
    if (refusal != GSP_WELCOME)
        return atom_fail(ATOM_E_USAGE, "ticket: %s", gsp_refusal_text(refusal));
    return ATOM_OK;
}
