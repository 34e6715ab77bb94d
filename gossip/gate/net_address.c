/*
 * Owns the text and bytes of addresses. Its one idea: IPv4 lives inside IPv6, so nobody else knows
 * two families. It refuses names, except in the one function that says that it may block.
 */
#include "gossip/gate/net_address.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint8_t V4_HEAD[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

static bool is_v4(const gsp_address *a)
{
    return memcmp(a->ip, V4_HEAD, sizeof V4_HEAD) == 0;
}

/* Splits "host:port", "[host]:port", "host", "host6"; the port's text is "" when there is none. */
static bool split(const char *text, char *host, size_t host_bytes, const char **port)
{
    const char *end, *begin = text;
    if (*text == '[') {
        begin = text + 1;
        end = strchr(begin, ']');
        if (!end || (end[1] != 0 && end[1] != ':'))
            return false;
        *port = end[1] ? end + 2 : "";
        if (end[1] && !end[2])
            return false; /* a colon without a port */
    } else {
        const char *colon = strchr(text, ':');
        if (colon && strchr(colon + 1, ':'))
            colon = NULL; /* bare IPv6 without a port */
        end = colon ? colon : text + strlen(text);
        *port = colon ? colon + 1 : "";
        if (colon && !colon[1])
            return false;
    }
    size_t n = (size_t)(end - begin);
    if (n == 0 || n >= host_bytes)
        return false;
    memcpy(host, begin, n);
    host[n] = 0;
    return true;
}

static bool parse_port(const char *text, uint16_t *port)
{
    uint32_t value = 0;
    if (!*text) {
        *port = GSP_ADDRESS_PORT_DEFAULT;
        return true;
    }
    for (; isdigit((unsigned char)*text) && value <= 65535; text++)
        value = value * 10 + (uint32_t)(*text - '0');
    *port = (uint16_t)value;
    return !*text && value <= 65535;
}

static bool parse_host(char *host, gsp_address *a)
{
    struct in_addr v4;
    struct in6_addr v6;
    if (strcmp(host, "*") == 0)
        return true; /* :: */
    if (inet_pton(AF_INET, host, &v4) == 1) {
        memcpy(a->ip, V4_HEAD, sizeof V4_HEAD);
        memcpy(a->ip + sizeof V4_HEAD, &v4, sizeof v4);
        return true;
    }
    char *zone = strchr(host, '%');
    if (zone) {
        *zone++ = 0;
        a->scope = if_nametoindex(zone);
        if (!a->scope)
            return false;
    }
    if (inet_pton(AF_INET6, host, &v6) != 1)
        return false;
    memcpy(a->ip, &v6, sizeof a->ip);
    return true;
}

atom_status gsp_address_parse(const char *text, gsp_address *out)
{
    gsp_address a = {0};
    char host[64];
    const char *port;
    if (!split(text, host, sizeof host, &port) || !parse_port(port, &a.port) ||
        !parse_host(host, &a))
        return atom_fail(ATOM_E_USAGE,
                         "'%.80s' is not an address; write it like 192.0.2.7:4400 or "
                         "[2001:db8::7]:4400",
                         text);
    *out = a;
    return ATOM_OK;
}

atom_status gsp_address_resolve(const char *text, gsp_address *out, size_t n_max, size_t *n)
{
    char host[256];
    const char *port;
    uint16_t number = 0;
    if (n_max == 0 || !split(text, host, sizeof host, &port) || !parse_port(port, &number))
        return atom_fail(ATOM_E_USAGE,
                         "'%.80s' is not an address; write it like "
                         "host.example:4400",
                         text);
    if (strlen(host) < 64 && gsp_address_parse(text, out) == ATOM_OK) {
        *n = 1;
        return ATOM_OK;
    }
    struct addrinfo *found = NULL, hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG};
    int code = getaddrinfo(host, NULL, &hints, &found);
    if (code != 0)
        return atom_fail(ATOM_E_RUNTIME, "%s: %s", host, gai_strerror(code));
    size_t got = 0;
    for (struct addrinfo *i = found; i && got < n_max; i = i->ai_next) {
        struct sockaddr_storage s = {0};
        gsp_address a;
        if (i->ai_addrlen > sizeof s)
            continue;
        memcpy(&s, i->ai_addr, i->ai_addrlen);
        if (!gsp_address_from_socket(&s, &a))
            continue;
        a.port = number;
        out[got++] = a;
    }
    freeaddrinfo(found);
    if (got == 0)
        return atom_fail(ATOM_E_RUNTIME, "%s has no IP address", host);
    *n = got;
    return ATOM_OK;
}

char *gsp_address_text(const gsp_address *a, char *buf)
{
    char ip[INET6_ADDRSTRLEN] = "?";
    if (is_v4(a)) {
        inet_ntop(AF_INET, a->ip + sizeof V4_HEAD, ip, sizeof ip);
        snprintf(buf, GSP_ADDRESS_TEXT_BYTES, "%s:%u", ip, a->port);
        return buf;
    }
    char name[IF_NAMESIZE + 1] = "%";
    inet_ntop(AF_INET6, a->ip, ip, sizeof ip);
    bool zone = a->scope && if_indextoname(a->scope, name + 1);
    int n = snprintf(buf, GSP_ADDRESS_TEXT_BYTES, "[%.45s%.16s]:%u", ip, zone ? name : "", a->port);
    if (n >= GSP_ADDRESS_TEXT_BYTES) /* the longest of both at once: the zone goes */
        snprintf(buf, GSP_ADDRESS_TEXT_BYTES, "[%.45s]:%u", ip, a->port);
    return buf;
}

bool gsp_address_same_host(const gsp_address *a, const gsp_address *b)
{
    return memcmp(a->ip, b->ip, sizeof a->ip) == 0 && a->scope == b->scope;
}

bool gsp_address_same_customer(const gsp_address *a, const gsp_address *b)
{
    return is_v4(a) || is_v4(b) ? gsp_address_same_host(a, b)
                                : memcmp(a->ip, b->ip, 8) == 0 && a->scope == b->scope;
}

bool gsp_address_is_any(const gsp_address *a)
{
    static const uint8_t zeros[16], mapped[16] = {[10] = 0xff, [11] = 0xff};
    return memcmp(a->ip, zeros, 16) == 0 || memcmp(a->ip, mapped, 16) == 0;
}

bool gsp_address_equal(const gsp_address *a, const gsp_address *b)
{
    return gsp_address_same_host(a, b) && a->port == b->port;
}

socklen_t gsp_address_to_socket(const gsp_address *a, struct sockaddr_storage *out)
{
    memset(out, 0, sizeof *out);
    if (is_v4(a)) {
        struct sockaddr_in *v4 = (struct sockaddr_in *)out;
        v4->sin_family = AF_INET;
        v4->sin_port = htons(a->port);
        memcpy(&v4->sin_addr, a->ip + sizeof V4_HEAD, sizeof v4->sin_addr);
        return sizeof *v4;
    }
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)out;
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(a->port);
    v6->sin6_scope_id = a->scope;
    memcpy(&v6->sin6_addr, a->ip, sizeof v6->sin6_addr);
    return sizeof *v6;
}

bool gsp_address_from_socket(const struct sockaddr_storage *in, gsp_address *out)
{
    gsp_address a = {0};
    if (in->ss_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)in;
        memcpy(a.ip, V4_HEAD, sizeof V4_HEAD);
        memcpy(a.ip + sizeof V4_HEAD, &v4->sin_addr, sizeof v4->sin_addr);
        a.port = ntohs(v4->sin_port);
    } else if (in->ss_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)in;
        memcpy(a.ip, &v6->sin6_addr, sizeof a.ip);
        a.port = ntohs(v6->sin6_port);
        a.scope = v6->sin6_scope_id;
    } else {
        return false;
    }
    *out = a;
    return true;
}

static bool form_right(const char *host, size_t bytes)
{
    size_t n = strnlen(host, bytes);
    const char *colon = n < bytes ? strrchr(host, ':') : NULL;
    size_t digits = colon ? strspn(colon + 1, "0123456789") : 0;
    if (!colon || colon == host || digits < 1 || digits > 5 || colon[1 + digits] ||
        strtol(colon + 1, NULL, 10) < 1 || strtol(colon + 1, NULL, 10) > 65535)
        return false;
    for (const char *c = host; c < colon; c++)
        if (*c <= ' ' || *c > '~')
            return false;
    if (host[0] == '[')
        return colon - host > 3 && colon[-1] == ']';
    return memchr(host, ':', (size_t)(colon - host)) == NULL;
}

atom_status gsp_address_check(const char *text, size_t bytes)
{
    if (form_right(text, bytes))
        return ATOM_OK;
    return atom_fail(ATOM_E_USAGE, "'%.80s' is not an address of the form HOST:PORT", text);
}
