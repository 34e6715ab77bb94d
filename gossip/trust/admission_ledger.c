/*
 * Owns the book of used invites: (invite, member) pairs in one file that is replaced whole, because
 * it is small and must never be half written; a pair without a member (zeros) says that the invite
 * was ended. It refuses to admit before the book is on disk.
 */
#include "gossip/trust/admission.h"

#include "atom/base/bytes.h"
#include "atom/base/files.h"
#include "atom/base/mem.h"

#include <sodium.h>
#include <string.h>

enum { CHECK_BYTES = 16, LEDGER_BYTES_MAX = 64 << 20 };
static const char HEAD[16] = "atom invites 1\n";

typedef struct used {
    uint8_t invite[GSP_INVITE_ID_BYTES];
    uint8_t member[GSP_PUBLIC_BYTES];
} used;
_Static_assert(sizeof(used) == GSP_INVITE_ID_BYTES + GSP_PUBLIC_BYTES, "no holes");

struct gsp_ledger {
    char *path;
    used *items;
    size_t n, capacity;
};

static atom_status ledger_read(gsp_ledger *ledger)
{
    char *data = NULL;
    uint64_t bytes = 0;
    uint8_t check[CHECK_BYTES];
    atom_status st = ATOM_OK;
    if (!atom_path_exists(ledger->path))
        return ATOM_OK;
    ATOM_TRY_CLEAN(atom_file_read(ledger->path, LEDGER_BYTES_MAX, &data, &bytes));
    const size_t fixed = sizeof HEAD + CHECK_BYTES;
    if (bytes < fixed || (bytes - fixed) % sizeof(used) != 0 ||
        memcmp(data, HEAD, sizeof HEAD) != 0)
        ATOM_TRY_CLEAN(atom_fail(
            ATOM_E_FORMAT, "%s is not a book of invites; restore it from a copy", ledger->path));
    crypto_generichash(check, sizeof check, (const uint8_t *)data, bytes - CHECK_BYTES, NULL, 0);
    if (memcmp(check, data + bytes - CHECK_BYTES, CHECK_BYTES) != 0)
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_FORMAT, "%s: the checksum is wrong; restore it from a copy",
                                 ledger->path));
    size_t n = (bytes - fixed) / sizeof(used);
    if (n) {
        ledger->items = atom_alloc(n, sizeof(used));
        if (!ledger->items)
            ATOM_TRY_CLEAN(atom_fail_memory("the book of invites", bytes));
        memcpy(ledger->items, data + sizeof HEAD, n * sizeof(used));
    }
    ledger->n = ledger->capacity = n;
cleanup:
    atom_free(data);
    return st;
}

atom_status gsp_ledger_open(const char *path, gsp_ledger **out)
{
    atom_status st;
    gsp_ledger *ledger = NULL;
    ATOM_TRY_CLEAN(gsp_crypto_start());
    ledger = atom_alloc(1, sizeof *ledger);
    if (!ledger || !(ledger->path = atom_strdup(path)))
        ATOM_TRY_CLEAN(atom_fail_memory("the book of invites", sizeof *ledger));
    ATOM_TRY_CLEAN(ledger_read(ledger));
    *out = ledger;
    return ATOM_OK;
cleanup:
    gsp_ledger_close(&ledger);
    return st;
}

void gsp_ledger_close(gsp_ledger **ledger)
{
    if (*ledger) {
        atom_free((*ledger)->path);
        atom_free((*ledger)->items);
        atom_free(*ledger);
    }
    *ledger = NULL;
}

static atom_status ledger_write(const gsp_ledger *ledger)
{
    size_t items = ledger->n * sizeof(used), bytes = sizeof HEAD + items + CHECK_BYTES;
    uint8_t *data = atom_alloc(1, bytes);
    if (!data)
        return atom_fail_memory("the book of invites", bytes);
    memcpy(data, HEAD, sizeof HEAD);
    memcpy(data + sizeof HEAD, ledger->items, items);
    crypto_generichash(data + sizeof HEAD + items, CHECK_BYTES, data, bytes - CHECK_BYTES, NULL, 0);
    atom_status st = atom_file_write(ledger->path, data, bytes);
    atom_free(data);
    return st;
}

static bool of_invite(const used *u, const uint8_t invite[GSP_INVITE_ID_BYTES])
{
    return memcmp(u->invite, invite, GSP_INVITE_ID_BYTES) == 0;
}

static bool of_member(const used *u, const uint8_t member[GSP_PUBLIC_BYTES])
{
    return memcmp(u->member, member, GSP_PUBLIC_BYTES) == 0;
}

static const uint8_t NOBODY[GSP_PUBLIC_BYTES];

/* One more pair, on disk; if that fails the book is as it was. */
static atom_status add(gsp_ledger *ledger, const uint8_t invite[GSP_INVITE_ID_BYTES],
                       const uint8_t member[GSP_PUBLIC_BYTES])
{
    ATOM_TRY(
        atom_grow((void **)&ledger->items, ledger->n, &ledger->capacity, sizeof *ledger->items));
    used *u = &ledger->items[ledger->n++];
    memcpy(u->invite, invite, sizeof u->invite);
    memcpy(u->member, member, sizeof u->member);
    atom_status st = ledger_write(ledger);
    ledger->n -= st != ATOM_OK;
    return st;
}

static bool has(const gsp_ledger *ledger, const uint8_t invite[GSP_INVITE_ID_BYTES],
                const uint8_t member[GSP_PUBLIC_BYTES])
{
    for (size_t i = 0; i < ledger->n; i++)
        if (of_invite(&ledger->items[i], invite) && of_member(&ledger->items[i], member))
            return true;
    return false;
}

bool gsp_ledger_invite_of(const gsp_ledger *ledger, const uint8_t member[GSP_PUBLIC_BYTES],
                          uint8_t invite[GSP_INVITE_ID_BYTES])
{
    for (size_t i = ledger->n; i-- > 0;)
        if (of_member(&ledger->items[i], member)) {
            memcpy(invite, ledger->items[i].invite, GSP_INVITE_ID_BYTES);
            return true;
        }
    return false;
}

uint32_t gsp_ledger_members(const gsp_ledger *ledger, const uint8_t invite[GSP_INVITE_ID_BYTES],
                            uint8_t out[][GSP_PUBLIC_BYTES], uint32_t n_max)
{
    uint32_t n = 0;
    for (size_t i = 0; i < ledger->n; i++) {
        const used *u = &ledger->items[i];
        if (!of_invite(u, invite) || of_member(u, NOBODY))
            continue;
        if (n < n_max)
            memcpy(out[n], u->member, GSP_PUBLIC_BYTES);
        n++;
    }
    return n;
}

atom_status gsp_ledger_end_invite(gsp_ledger *ledger, const uint8_t invite[GSP_INVITE_ID_BYTES])
{
    return has(ledger, invite, NOBODY) ? ATOM_OK : add(ledger, invite, NOBODY);
}

atom_status gsp_ledger_admit(gsp_ledger *ledger, const gsp_identity *issuer,
                             const gsp_invite *invite, const uint8_t member[GSP_PUBLIC_BYTES],
                             uint32_t manifest, uint64_t now_s, uint64_t expires_s,
                             gsp_admission *out)
{
    if (has(ledger, invite->id, NOBODY))
        return atom_fail(ATOM_E_USAGE, "the invite was ended; the owner can make a new ticket");
    if (!has(ledger, invite->id, member)) {
        uint32_t count = gsp_ledger_members(ledger, invite->id, NULL, 0);
        if (count >= invite->count)
            return atom_fail(ATOM_E_USAGE,
                             "the invite is used up (%u of %u); the owner can make a new ticket",
                             count, invite->count);
        ATOM_TRY(add(ledger, invite->id, member));
    }
    gsp_admission admission = {.manifest = manifest, .issued_s = now_s, .expires_s = expires_s};
    memcpy(admission.pool, invite->pool, sizeof admission.pool);
    memcpy(admission.member, member, sizeof admission.member);
    gsp_admission_sign(&admission, issuer);
    *out = admission;
    return ATOM_OK;
}
