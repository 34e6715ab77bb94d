/*
 * Owns the identity file. Its one idea: the secret is never on disk half written or readable by
 * others, because it is written under a name of its own with mode 0600 and then linked, which fails
 * where a file is already there. It refuses to read a file that others may read, and to replace
 * one.
 */
#include "gossip/trust/identity.h"

#include "atom/base/entropy.h"
#include "atom/base/files.h"
#include "atom/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(GSP_PUBLIC_BYTES == crypto_sign_PUBLICKEYBYTES, "Ed25519");
_Static_assert(GSP_SECRET_BYTES == crypto_sign_SECRETKEYBYTES, "Ed25519");
_Static_assert(GSP_SEED_BYTES == crypto_sign_SEEDBYTES, "Ed25519");

static const char HEAD[] = "atom identity 1\n";
enum {
    CHECK_BYTES = 4,
    BODY_BYTES = GSP_SEED_BYTES + CHECK_BYTES,
    TEXT_BYTES = sodium_base64_ENCODED_LEN(BODY_BYTES, sodium_base64_VARIANT_URLSAFE_NO_PADDING),
    FILE_BYTES_MAX = 256,
};

atom_status gsp_crypto_start(void)
{
    if (sodium_init() < 0)
        return atom_fail(ATOM_E_RUNTIME, "libsodium does not start; is there a source of entropy?");
    return ATOM_OK;
}

atom_status gsp_identity_from_seed(const uint8_t seed[GSP_SEED_BYTES], gsp_identity *out)
{
    ATOM_TRY(gsp_crypto_start());
    crypto_sign_seed_keypair(out->public_key, out->secret_key, seed);
    return ATOM_OK;
}

atom_status gsp_identity_make(gsp_identity *out)
{
    uint8_t seed[GSP_SEED_BYTES];
    atom_status st;
    ATOM_TRY_CLEAN(atom_entropy(seed, sizeof seed));
    ATOM_TRY_CLEAN(gsp_identity_from_seed(seed, out));
cleanup:
    explicit_bzero(seed, sizeof seed);
    return st;
}

void gsp_identity_wipe(gsp_identity *identity)
{
    explicit_bzero(identity, sizeof *identity);
}

static void checksum(const uint8_t seed[GSP_SEED_BYTES], uint8_t out[CHECK_BYTES])
{
    uint8_t hash[crypto_generichash_BYTES];
    crypto_generichash(hash, sizeof hash, seed, GSP_SEED_BYTES, (const uint8_t *)HEAD,
                       sizeof HEAD - 1);
    memcpy(out, hash, CHECK_BYTES);
    explicit_bzero(hash, sizeof hash);
}

/* Reads the file into text, after its mode and owner have been found right. */
static atom_status read_private(const char *path, char *text, size_t *bytes)
{
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return errno == ENOENT
                   ? atom_fail(ATOM_E_FORMAT, "%s: no such identity file", path)
                   : atom_fail(ATOM_E_FORMAT, "%s: %s (an identity file may not be a link)", path,
                               strerror(errno));
    ssize_t n = -1;
    atom_status st = ATOM_OK;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
        st = atom_fail(ATOM_E_FORMAT, "%s: not a regular file", path);
    else if (info.st_mode & (S_IRWXG | S_IRWXO))
        st = atom_fail(ATOM_E_FORMAT,
                       "%s: others can read this secret key (mode %03o); run: chmod 600 %s", path,
                       (unsigned)(info.st_mode & 0777), path);
    else if (info.st_uid != geteuid())
        st = atom_fail(ATOM_E_FORMAT, "%s: belongs to another user", path);
    else if ((n = read(fd, text, FILE_BYTES_MAX)) < 0)
        st = atom_fail_errno(errno, "%s", path);
    close(fd);
    if (st == ATOM_OK)
        *bytes = (size_t)n;
    return st;
}

atom_status gsp_identity_load(const char *path, gsp_identity *out)
{
    char text[FILE_BYTES_MAX];
    uint8_t body[BODY_BYTES], check[CHECK_BYTES];
    size_t bytes = 0, got = 0;
    atom_status st;
    ATOM_TRY_CLEAN(gsp_crypto_start());
    ATOM_TRY_CLEAN(read_private(path, text, &bytes));
    const size_t head = sizeof HEAD - 1;
    if (bytes != head + TEXT_BYTES || memcmp(text, HEAD, head) != 0 || text[bytes - 1] != '\n' ||
        sodium_base642bin(body, sizeof body, text + head, TEXT_BYTES - 1, NULL, &got, NULL,
                          sodium_base64_VARIANT_URLSAFE_NO_PADDING) != 0 ||
        got != sizeof body) {
        ATOM_TRY_CLEAN(atom_fail(
            ATOM_E_FORMAT, "%s: not an identity file, or damaged; restore it from a copy", path));
    }
    checksum(body, check);
    if (sodium_memcmp(check, body + GSP_SEED_BYTES, CHECK_BYTES) != 0) {
        ATOM_TRY_CLEAN(
            atom_fail(ATOM_E_FORMAT, "%s: the checksum is wrong; restore it from a copy", path));
    }
    st = gsp_identity_from_seed(body, out);
cleanup:
    explicit_bzero(text, sizeof text);
    explicit_bzero(body, sizeof body);
    return st;
}

static atom_status write_all(int fd, const char *path, const char *text, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        ssize_t n = write(fd, text + at, bytes - at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return atom_fail_errno(n < 0 ? errno : ENOSPC, "%s", path);
        at += (size_t)n;
    }
    return fsync(fd) == 0 ? ATOM_OK : atom_fail_errno(errno, "%s", path);
}

/* Writes text under a new private name beside path and links it to path; EEXIST is *exists. */
static atom_status place(const char *path, const char *text, size_t bytes, bool *exists)
{
    uint64_t salt = 0;
    char *temporary = NULL;
    int fd = -1;
    atom_status st;
    *exists = false;
    ATOM_TRY_CLEAN(atom_entropy(&salt, sizeof salt));
    temporary = atom_format("%s.%016llx.tmp", path, (unsigned long long)salt);
    if (!temporary)
        return atom_fail_memory("a file name", strlen(path));
    fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        ATOM_TRY_CLEAN(atom_fail_errno(errno, "%s", temporary));
    ATOM_TRY_CLEAN(write_all(fd, temporary, text, bytes));
    if (link(temporary, path) != 0) {
        *exists = errno == EEXIST;
        if (*exists)
            ATOM_TRY_CLEAN(
                atom_fail(ATOM_E_USAGE, "%s already exists; an identity is never replaced", path));
        ATOM_TRY_CLEAN(atom_fail_errno(errno, "%s", path));
    }
cleanup:
    if (fd >= 0) {
        close(fd);
        unlink(temporary);
    }
    atom_free(temporary);
    return st;
}

static atom_status save(const char *path, const gsp_identity *identity, bool *exists)
{
    uint8_t body[BODY_BYTES];
    char text[sizeof HEAD + TEXT_BYTES + 1];
    const char *slash = strrchr(path, '/');
    char *dir = NULL;
    *exists = false;
    atom_status st = ATOM_OK;
    ATOM_TRY(gsp_crypto_start());
    memcpy(body, identity->secret_key, GSP_SEED_BYTES);
    checksum(body, body + GSP_SEED_BYTES);
    memcpy(text, HEAD, sizeof HEAD - 1);
    sodium_bin2base64(text + sizeof HEAD - 1, TEXT_BYTES, body, sizeof body,
                      sodium_base64_VARIANT_URLSAFE_NO_PADDING);
    size_t bytes = sizeof HEAD - 1 + TEXT_BYTES;
    text[bytes - 1] = '\n';
    ATOM_TRY_CLEAN(place(path, text, bytes, exists));
    dir = slash ? atom_strndup(path, slash == path ? 1 : (size_t)(slash - path)) : atom_strdup(".");
    if (!dir)
        ATOM_TRY_CLEAN(atom_fail_memory("a file name", strlen(path)));
    ATOM_TRY_CLEAN(atom_dir_sync(dir));
cleanup:
    explicit_bzero(body, sizeof body);
    explicit_bzero(text, sizeof text);
    atom_free(dir);
    return st;
}

atom_status gsp_identity_save(const char *path, const gsp_identity *identity)
{
    bool exists = false;
    return save(path, identity, &exists);
}

atom_status gsp_identity_open(const char *path, gsp_identity *out)
{
    struct stat info;
    gsp_identity made = {0};
    bool exists = false;
    if (lstat(path, &info) == 0 || errno != ENOENT)
        return gsp_identity_load(path, out);
    atom_status st = gsp_identity_make(&made);
    if (st == ATOM_OK)
        st = save(path, &made, &exists);
    if (st == ATOM_OK)
        *out = made;
    else if (exists) /* another process was faster: its identity is ours */
        st = gsp_identity_load(path, out);
    gsp_identity_wipe(&made);
    return st;
}

char *gsp_public_text(const uint8_t key[GSP_PUBLIC_BYTES], char *buf)
{
    return sodium_bin2base64(buf, GSP_PUBLIC_TEXT_BYTES, key, GSP_PUBLIC_BYTES,
                             sodium_base64_VARIANT_URLSAFE_NO_PADDING);
}

atom_status gsp_public_parse(const char *text, uint8_t out[GSP_PUBLIC_BYTES])
{
    uint8_t key[GSP_PUBLIC_BYTES];
    size_t got = 0, length = strlen(text);
    if (length != GSP_PUBLIC_TEXT_BYTES - 1 ||
        sodium_base642bin(key, sizeof key, text, length, NULL, &got, NULL,
                          sodium_base64_VARIANT_URLSAFE_NO_PADDING) != 0 ||
        got != sizeof key)
        return atom_fail(ATOM_E_USAGE, "'%.60s' is not a member's key; it has 43 characters", text);
    memcpy(out, key, sizeof key);
    return ATOM_OK;
}
