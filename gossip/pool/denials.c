/*
 * Owns what members said who would not let this host in. Its one idea: a refusal is a sentence of
 * one member about us, so several are weighed and none is believed alone. It refuses to end a join
 * while there is somebody left to ask.
 */
#include "gossip/pool/denials.h"

#include <stdio.h>
#include <string.h>

enum { SEVERAL = 2 };
static const uint64_t QUIET_NS = 10u * 1000000000ull;

static const gsp_denial *find(const gsp_denials *v, const uint8_t *key)
{
    for (uint32_t i = 0; i < v->n; i++)
        if (memcmp(v->of[i].key, key, GSP_PUBLIC_BYTES) == 0)
            return &v->of[i];
    return NULL;
}

void gsp_denials_add(gsp_denials *v, const uint8_t *key, const gsp_address *address,
                     gsp_refusal refusal, uint64_t now)
{
    static const gsp_address nowhere;
    gsp_denial *to = (gsp_denial *)find(v, key);
    if (!to) {
        if (v->n == GSP_DENIALS_MAX)
            memmove(v->of, v->of + 1, --v->n * sizeof *v->of);
        to = &v->of[v->n++];
        v->newest_ns = now;
    }
    *to = (gsp_denial){.refusal = refusal};
    memcpy(to->key, key, sizeof to->key);
    if (gsp_address_equal(address, &nowhere)) {
        char text[GSP_PUBLIC_TEXT_BYTES];
        snprintf(to->who, sizeof to->who, "%.8s", gsp_public_text(key, text));
    } else {
        gsp_address_text(address, to->who);
    }
}

bool gsp_denials_are_all(const gsp_denials *v, const gsp_links *links, uint64_t now)
{
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++)
        if (links->link[i].up && !find(v, links->link[i].key))
            return false;
    return v->n >= SEVERAL && now - v->newest_ns > QUIET_NS;
}

const char *gsp_denials_text(const gsp_denials *v, char *text, size_t bytes)
{
    text[0] = 0;
    for (uint32_t i = 0; i < v->n; i++) {
        size_t at = strlen(text);
        snprintf(text + at, bytes - at, "%s%s says: %s", i ? "; " : "", v->of[i].who,
                 gsp_refusal_text(v->of[i].refusal));
    }
    return text;
}

bool gsp_refusal_is_final(int refusal)
{
    return refusal == GSP_REFUSED_CREDENTIAL || refusal == GSP_REFUSED_EXPIRED ||
           refusal == GSP_REFUSED_BANNED;
}
