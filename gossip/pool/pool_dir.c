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

enum { EVENTS_BYTES_MAX = 32 << 20, SMALL_FILE_MAX = 1 << 20 };

char *life_path(const gsp_pool *p, const char *name)
{
    return atom_path_join(p->directory, name);
}

/* ---- secrets ---- */

static bool write_whole(int fd, const uint8_t *data, size_t bytes)
{
    while (bytes) {
        ssize_t n = write(fd, data, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        data += n;
        bytes -= (size_t)n;
    }
    return fsync(fd) == 0;
}

atom_status life_save_secret(const gsp_pool *p, const char *name, const void *data, size_t bytes)
{
    atom_status st = ATOM_OK;
    char *path = life_path(p, name), *aside = atom_format("%s/%s.tmp", p->directory, name);
    int fd = -1;
    if (!path || !aside)
        ATOM_TRY_CLEAN(atom_fail_memory("a path", 0));
    fd = open(aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || fchmod(fd, 0600) != 0 || !write_whole(fd, data, bytes) ||
        rename(aside, path) != 0)
        ATOM_TRY_CLEAN(atom_fail_errno(errno, "%s", path));
    st = atom_dir_sync(p->directory);
cleanup:
    if (fd >= 0)
        close(fd);
    atom_free(path);
    atom_free(aside);
    return st;
}

static atom_status read_small(const gsp_pool *p, const char *name, char **data, uint64_t *bytes)
{
    char *path = life_path(p, name);
    if (!path)
        return atom_fail_memory("a path", 0);
    atom_status st = atom_file_read(path, SMALL_FILE_MAX, data, bytes);
    atom_free(path);
    return st;
}

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
    atom_status st = life_save_secret(p, "keys", text, strlen(text));
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
    ATOM_TRY(read_small(p, "keys", &text, &bytes));
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
    return life_save_secret(p, "manifest.json", p->manifest_text, strlen(p->manifest_text));
}

atom_status life_load_manifest(gsp_pool *p)
{
    char *text = NULL;
    uint64_t bytes = 0;
    atom_status st = read_small(p, "manifest.json", &text, &bytes);
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
    return life_save_secret(p, "admission", p->credential, p->credential_bytes);
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
    if (read_small(p, "admission", &data, &bytes) != ATOM_OK)
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

/* ---- events ---- */

static bool events_open(gsp_pool *p)
{
    char *path = life_path(p, "events.jsonl"), *old = life_path(p, "events.jsonl.1");
    struct stat s;
    if (p->events && p->events_bytes < EVENTS_BYTES_MAX) {
        atom_free(path);
        atom_free(old);
        return true;
    }
    if (p->events)
        fclose(p->events);
    p->events = NULL;
    if (path && old) {
        if (stat(path, &s) == 0 && s.st_size >= EVENTS_BYTES_MAX)
            rename(path, old);
        p->events = fopen(path, "ae");
    }
    p->events_bytes = p->events && fstat(fileno(p->events), &s) == 0 ? (uint64_t)s.st_size : 0;
    atom_free(path);
    atom_free(old);
    return p->events != NULL;
}

void life_event(gsp_pool *p, const char *fmt, ...)
{
    va_list args;
    if (!events_open(p))
        return; /* a diary; the pool does without */
    int n = fprintf(p->events, "{\"time\":%.3f,", atom_wall_seconds());
    va_start(args, fmt);
    int m = vfprintf(p->events, fmt, args);
    va_end(args);
    fputs("}\n", p->events);
    fflush(p->events);
    p->events_bytes += (uint64_t)(n > 0 ? n : 0) + (uint64_t)(m > 0 ? m : 0) + 2;
}
