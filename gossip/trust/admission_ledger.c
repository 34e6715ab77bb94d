/*
 * Owns the book of used invites: (invite, member) pairs in one file that is replaced whole, because
 * it is small and must never be half written. It refuses to admit before the book is on disk.
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
        ATOM_TRY_CLEAN(
            atom_fail(ATOM_E_FORMAT, "%s: not a book of invites; restore it", ledger->path));
    crypto_generichash(check, sizeof check, (const uint8_t *)data, bytes - CHECK_BYTES, NULL, 0);
    if (memcmp(check, data + bytes - CHECK_BYTES, CHECK_BYTES) != 0)
        ATOM_TRY_CLEAN(
            atom_fail(ATOM_E_FORMAT, "%s: the checksum is wrong; restore it", ledger->path));
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

atom_status gsp_ledger_admit(gsp_ledger *ledger, const gsp_identity *issuer,
                             const gsp_invite *invite, const uint8_t member[GSP_PUBLIC_BYTES],
                             uint32_t manifest, uint64_t now_s, uint64_t expires_s,
                             gsp_admission *out)
{
    uint32_t count = 0;
    bool known = false;
    for (size_t i = 0; i < ledger->n; i++) {
        bool here = memcmp(ledger->items[i].invite, invite->id, GSP_INVITE_ID_BYTES) == 0;
        count += here;
        known |= here && memcmp(ledger->items[i].member, member, GSP_PUBLIC_BYTES) == 0;
    }
    if (!known) {
        if (count >= invite->count)
            return atom_fail(ATOM_E_USAGE,
                             "the invite is used up (%u of %u); the owner can make a new ticket",
                             count, invite->count);
        atom_status st =
            atom_grow((void **)&ledger->items, ledger->n, &ledger->capacity, sizeof *ledger->items);
        if (st != ATOM_OK)
            return st;
        used *u = &ledger->items[ledger->n++];
        memcpy(u->invite, invite->id, sizeof u->invite);
        memcpy(u->member, member, sizeof u->member);
        st = ledger_write(ledger);
        if (st != ATOM_OK) {
            ledger->n--;
            return st;
        }
    }
    gsp_admission admission = {.manifest = manifest, .issued_s = now_s, .expires_s = expires_s};
    memcpy(admission.pool, invite->pool, sizeof admission.pool);
    memcpy(admission.member, member, sizeof admission.member);
    gsp_admission_sign(&admission, issuer);
    *out = admission;
    return ATOM_OK;
}
