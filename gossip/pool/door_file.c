/*
 * Owns what a host keeps of its right to be in a pool: keys, manifest, admission, ticket. Its one
 * idea: what is read is checked as if it had come from the wire. It refuses files that are damaged:
 * a host that guesses a key is somebody else.
 */
#include "atom/base/clock.h"
#include "atom/base/mem.h"
#include "gossip/pool/dir.h"
#include "gossip/pool/door.h"

#include <jansson.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- keys ---- */

static json_t *hex(const void *bytes, size_t n)
{
    char text[2 * 64 + 1];
    sodium_bin2hex(text, sizeof text, bytes, n);
    return json_string(text);
}

static bool unhex(const json_t *value, void *out, size_t bytes)
{
    size_t n = 0;
    const char *text = json_string_value(value);
    return text && strlen(text) == 2 * bytes &&
           sodium_hex2bin(out, bytes, text, 2 * bytes, NULL, &n, NULL) == 0 && n == bytes;
}

atom_status gsp_door_save_keys(const gsp_door *d)
{
    json_t *keys = json_array(), *hosts = json_array();
    for (uint32_t i = 0; i < d->n_psks; i++)
        json_array_append_new(keys, hex(d->psk[i], GSP_PSK_BYTES));
    for (uint32_t i = 0; i < d->hosts.n; i++)
        json_array_append_new(hosts, json_string(d->hosts.host[i]));
    json_t *o =
        json_pack("{s:i, s:o, s:o, s:b, s:I, s:o, s:o}", "format", 1, "pool",
                  hex(d->pool, sizeof d->pool), "owner", hex(d->owner, sizeof d->owner), "plain",
                  d->plain, "rotated_s", (json_int_t)d->rotated_s, "keys", keys, "hosts", hosts);
    char *text = o ? json_dumps(o, JSON_INDENT(1)) : NULL;
    json_decref(o);
    if (!text)
        return atom_fail_memory("the pool's keys", 0);
    atom_status st = gsp_dir_save(d->directory, "keys", text, strlen(text));
    sodium_memzero(text, strlen(text));
    free(text);
    return st;
}

static bool keys_read(const json_t *o, gsp_door *d)
{
    const json_t *keys = json_object_get(o, "keys"), *hosts = json_object_get(o, "hosts"),
                 *rotated = json_object_get(o, "rotated_s"), *plain = json_object_get(o, "plain");
    d->n_psks = (uint32_t)json_array_size(keys);
    d->hosts.n = (uint32_t)json_array_size(hosts);
    if (json_integer_value(json_object_get(o, "format")) != 1 || d->n_psks == 0 ||
        d->n_psks > GSP_PSKS_MAX || d->hosts.n > GSP_TICKET_HOSTS_MAX || !json_is_boolean(plain) ||
        !json_is_integer(rotated) || json_integer_value(rotated) < 0 ||
        !unhex(json_object_get(o, "pool"), d->pool, sizeof d->pool) ||
        !unhex(json_object_get(o, "owner"), d->owner, sizeof d->owner))
        return false;
    d->rotated_s = (uint64_t)json_integer_value(rotated);
    d->plain = json_is_true(plain);
    for (uint32_t i = 0; i < d->n_psks; i++)
        if (!unhex(json_array_get(keys, i), d->psk[i], GSP_PSK_BYTES))
            return false;
    for (uint32_t i = 0; i < d->hosts.n; i++) {
        const char *host = json_string_value(json_array_get(hosts, i));
        if (!host || strlen(host) >= GSP_TICKET_HOST_BYTES)
            return false;
        strcpy(d->hosts.host[i], host);
    }
    return true;
}

atom_status gsp_door_load_keys(gsp_door *d)
{
    char *text = NULL;
    uint64_t bytes = 0;
    json_error_t error;
    atom_status st = ATOM_OK;
    ATOM_TRY(gsp_dir_read(d->directory, "keys", &text, &bytes));
    json_t *o = json_loadb(text, (size_t)bytes, JSON_REJECT_DUPLICATES, &error);
    if (!o || !keys_read(o, d)) {
        d->n_psks = d->hosts.n = 0;
        st = atom_fail(ATOM_E_FORMAT, "%s/keys is damaged; join again with a ticket", d->directory);
    }
    json_decref(o);
    sodium_memzero(text, (size_t)bytes);
    atom_free(text);
    return st;
}

/* ---- manifest ---- */

atom_status gsp_door_save_manifest(const gsp_door *d)
{
    return gsp_dir_save(d->directory, "manifest.json", d->manifest_text, strlen(d->manifest_text));
}

atom_status gsp_door_load_manifest(gsp_door *d)
{
    char *text = NULL;
    uint64_t bytes = 0;
    atom_status st;
    ATOM_TRY_CLEAN(gsp_dir_read(d->directory, "manifest.json", &text, &bytes));
    ATOM_TRY_CLEAN(gsp_manifest_parse(text, (size_t)bytes, d->manifest));
    if (memcmp(d->manifest->pool, d->pool, sizeof d->pool) != 0 ||
        memcmp(d->manifest->owner, d->owner, sizeof d->owner) != 0)
        ATOM_TRY_CLEAN(
            atom_fail(ATOM_E_FORMAT, "%s/manifest.json belongs to another pool", d->directory));
    atom_free(d->manifest_text);
    d->manifest_text = text;
    d->has_manifest = true;
    return ATOM_OK;
cleanup:
    atom_free(text);
    return st;
}

/* ---- admission ---- */

atom_status gsp_door_save_admission(const gsp_door *d)
{
    return gsp_dir_save(d->directory, "admission", d->credential, d->credential_bytes);
}

bool gsp_door_load_admission(gsp_door *d)
{
    char *data = NULL;
    uint64_t bytes = 0, now_s = (uint64_t)atom_wall_seconds();
    gsp_role role = GSP_GUEST;
    d->credential_bytes = 0;
    d->is_guest = false;
    if (gsp_door_is_owner(d))
        return true; /* the owner shows nothing */
    const bool delegate = gsp_door_delegation(d, d->identity.public_key, now_s);
    if (gsp_dir_read(d->directory, "admission", &data, &bytes) != ATOM_OK)
        return delegate;
    bool good = bytes >= GSP_ADMISSION_BYTES && bytes <= GSP_CREDENTIAL_BYTES_MAX &&
                gsp_credential_check(data, (size_t)bytes, d->pool, d->owner, d->identity.public_key,
                                     now_s, &role) == GSP_WELCOME &&
                role == GSP_MEMBER && !gsp_door_voids(d, (const uint8_t *)data, (uint32_t)bytes);
    if (good) {
        memcpy(d->credential, data, (size_t)bytes);
        d->credential_bytes = (uint32_t)bytes;
    }
    atom_free(data);
    return good || delegate;
}

atom_status gsp_door_fail_admission(const gsp_door *d, uint64_t now_s)
{
    char *data = NULL, text[240];
    uint64_t bytes = 0, from = 0, until = 0;
    gsp_role role = GSP_GUEST;
    gsp_refusal refusal = GSP_REFUSED_CREDENTIAL;
    bool is_void = false;
    bool any = gsp_dir_has(d->directory, "admission");
    if (any && gsp_dir_read(d->directory, "admission", &data, &bytes) == ATOM_OK) {
        refusal = gsp_credential_check(data, (size_t)bytes, d->pool, d->owner,
                                       d->identity.public_key, now_s, &role);
        gsp_admission_span((const uint8_t *)data, (uint32_t)bytes, &from, &until);
        is_void = gsp_door_voids(d, (const uint8_t *)data, (uint32_t)bytes);
    }
    atom_free(data);
    if (is_void)
        return atom_fail(ATOM_E_FORMAT, "%s: " GSP_DOOR_VOID, d->directory);
    if (refusal == GSP_REFUSED_EXPIRED || refusal == GSP_REFUSED_CLOCK)
        return atom_fail(ATOM_E_FORMAT,
                         "%s: this host's admission to the pool is %s; else join again with a "
                         "ticket, into the same directory",
                         d->directory, gsp_validity_text(from, until, now_s, text, sizeof text));
    return atom_fail(ATOM_E_FORMAT,
                     "%s: this host's admission to the pool is %s; join again with a ticket, into "
                     "the same directory",
                     d->directory, any ? "damaged, or not for this key" : "missing");
}

/* ---- whoever admits ---- */

atom_status gsp_door_load_owner(gsp_door *d)
{
    if (d->ledger)
        return ATOM_OK;
    char *book = atom_format("%s/invites", d->directory), *text = NULL;
    uint64_t bytes = 0;
    atom_status st = book ? gsp_ledger_open(book, &d->ledger) : atom_fail_memory("a path", 0);
    atom_free(book);
    if (st != ATOM_OK || !gsp_dir_has(d->directory, "ticket"))
        return st;
    if (gsp_dir_read(d->directory, "ticket", &text, &bytes) == ATOM_OK &&
        bytes <= GSP_TICKET_TEXT_BYTES) {
        pthread_mutex_lock(&d->lock);
        snprintf(d->ticket, sizeof d->ticket, "%s", text);
        d->ticket[strcspn(d->ticket, "\n")] = 0;
        pthread_mutex_unlock(&d->lock);
    }
    atom_free(text);
    return ATOM_OK;
}
