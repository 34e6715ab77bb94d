/*
 * Owns what a host keeps of its pool on disk: keys, manifest, admission, events. Its one idea:
 * every file is written aside and renamed, so a host that is killed at any moment comes back as
 * itself. It refuses files that are damaged: whoever guesses a key is somebody else.
 */
#include "gossip/pool/pool_inner.h"

#include "atom/base/clock.h"
#include "atom/base/files.h"
#include "atom/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

atom_status life_save_keys(const gsp_pool *p)
{
    json_t *keys = json_array(), *hosts = json_array();
    for (uint32_t i = 0; i < p->n_psks; i++)
        json_array_append_new(keys, hex(p->psk[i], GSP_PSK_BYTES));
    for (uint32_t i = 0; i < p->n_hosts; i++)
        json_array_append_new(hosts, json_string(p->hosts[i]));
    json_t *o =
        json_pack("{s:i, s:o, s:o, s:b, s:I, s:o, s:o}", "format", 1, "pool",
                  hex(p->pool, sizeof p->pool), "owner", hex(p->owner, sizeof p->owner), "plain",
                  p->plain, "rotated_s", (json_int_t)p->rotated_s, "keys", keys, "hosts", hosts);
    char *text = o ? json_dumps(o, JSON_INDENT(1)) : NULL;
    json_decref(o);
    if (!text)
        return atom_fail_memory("the pool's keys", 0);
    atom_status st = gsp_dir_save(p->directory, "keys", text, strlen(text));
    sodium_memzero(text, strlen(text));
    free(text);
    return st;
}

static bool keys_read(const json_t *o, gsp_pool *p)
{
    const json_t *keys = json_object_get(o, "keys"), *hosts = json_object_get(o, "hosts"),
                 *rotated = json_object_get(o, "rotated_s"), *plain = json_object_get(o, "plain");
    p->n_psks = (uint32_t)json_array_size(keys);
    p->n_hosts = (uint32_t)json_array_size(hosts);
    if (json_integer_value(json_object_get(o, "format")) != 1 || p->n_psks == 0 ||
        p->n_psks > GSP_PSKS_MAX || p->n_hosts > GSP_TICKET_HOSTS_MAX || !json_is_boolean(plain) ||
        !json_is_integer(rotated) || json_integer_value(rotated) < 0 ||
        !unhex(json_object_get(o, "pool"), p->pool, sizeof p->pool) ||
        !unhex(json_object_get(o, "owner"), p->owner, sizeof p->owner))
        return false;
    p->rotated_s = (uint64_t)json_integer_value(rotated);
    p->plain = json_is_true(plain);
    for (uint32_t i = 0; i < p->n_psks; i++)
        if (!unhex(json_array_get(keys, i), p->psk[i], GSP_PSK_BYTES))
            return false;
    for (uint32_t i = 0; i < p->n_hosts; i++) {
        const char *host = json_string_value(json_array_get(hosts, i));
        if (!host || strlen(host) >= GSP_TICKET_HOST_BYTES)
            return false;
        strcpy(p->hosts[i], host);
    }
    return true;
}

atom_status life_load_keys(gsp_pool *p)
{
    char *text = NULL;
    uint64_t bytes = 0;
    json_error_t error;
    atom_status st = ATOM_OK;
    ATOM_TRY(gsp_dir_read(p->directory, "keys", &text, &bytes));
    json_t *o = json_loadb(text, (size_t)bytes, JSON_REJECT_DUPLICATES, &error);
    if (!o || !keys_read(o, p)) {
        p->n_psks = p->n_hosts = 0;
        st = atom_fail(ATOM_E_FORMAT, "%s/keys: damaged; join again with a ticket", p->directory);
    }
    json_decref(o);
    sodium_memzero(text, (size_t)bytes);
    atom_free(text);
    return st;
}

/* ---- manifest ---- */

atom_status life_save_manifest(const gsp_pool *p)
{
    return gsp_dir_save(p->directory, "manifest.json", p->manifest_text, strlen(p->manifest_text));
}

atom_status life_load_manifest(gsp_pool *p)
{
    char *text = NULL;
    uint64_t bytes = 0;
    atom_status st = gsp_dir_read(p->directory, "manifest.json", &text, &bytes);
    if (st == ATOM_OK)
        st = gsp_manifest_parse(text, (size_t)bytes, p->manifest);
    if (st == ATOM_OK && (memcmp(p->manifest->pool, p->pool, sizeof p->pool) != 0 ||
                          memcmp(p->manifest->owner, p->owner, sizeof p->owner) != 0))
        st = atom_fail(ATOM_E_FORMAT, "%s/manifest.json: it is another pool's", p->directory);
    if (st != ATOM_OK) {
        atom_free(text);
        return st;
    }
    atom_free(p->manifest_text);
    p->manifest_text = text;
    p->has_manifest = true;
    return ATOM_OK;
}

/* ---- admission ---- */

atom_status life_save_admission(const gsp_pool *p)
{
    return gsp_dir_save(p->directory, "admission", p->credential, p->credential_bytes);
}

bool life_load_admission(gsp_pool *p)
{
    char *data = NULL;
    uint64_t bytes = 0;
    gsp_role role = GSP_GUEST;
    if (memcmp(p->identity.public_key, p->owner, sizeof p->owner) == 0) {
        p->credential_bytes = 0;
        return true; /* the owner shows nothing */
    }
    if (gsp_dir_read(p->directory, "admission", &data, &bytes) != ATOM_OK)
        return false;
    uint64_t now_s = (uint64_t)atom_wall_seconds();
    bool good = bytes >= GSP_ADMISSION_BYTES && bytes <= GSP_CREDENTIAL_BYTES_MAX &&
                gsp_credential_check(data, (size_t)bytes, p->pool, p->owner, p->identity.public_key,
                                     now_s, &role) == GSP_WELCOME &&
                role == GSP_MEMBER;
    if (good) {
        memcpy(p->credential, data, (size_t)bytes);
        p->credential_bytes = (uint32_t)bytes;
        p->is_guest = false;
    }
    atom_free(data);
    return good;
}
