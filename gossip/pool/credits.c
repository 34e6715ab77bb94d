/*
 * Owns the count of what members brought. One idea: only what a certificate shows is counted, by
 * key, so a member's count does not begin anew with its process, and nobody's word adds to it. It
 * refuses to fail: a count that cannot be kept is logged.
 */
#include "gossip/pool/credits.h"

#include "atom/base/clock.h"
#include "atom/base/files.h"
#include "atom/base/hex.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"

#include <stdio.h>
#include <string.h>

enum { LINE_BYTES = 2 * GSP_KEY_BYTES + 64, TEXT_MAX = 1 << 16 };
static const uint64_t SAVE_NS = 10000000000u;

/* ---- the file ---- */

/* "credits 1\ntokens 5\n", then "key samples versions\n" of each. */
char *gsp_credits_text(const gsp_credits *c, uint64_t tokens)
{
    size_t room = (size_t)(c->n + 1) * LINE_BYTES;
    char *text = atom_alloc(room, 1), hex[2 * GSP_KEY_BYTES + 1];
    if (!text)
        return NULL;
    size_t at =
        (size_t)snprintf(text, room, "credits 1\ntokens %llu\n", (unsigned long long)tokens);
    for (uint32_t i = 0; i < c->n; i++)
        at += (size_t)snprintf(
            text + at, room - at, "%s %llu %llu\n", atom_hex(c->row[i].key, GSP_KEY_BYTES, hex),
            (unsigned long long)c->row[i].samples, (unsigned long long)c->row[i].versions);
    return text;
}

bool gsp_credits_parse(gsp_credits *c, const char *text)
{
    unsigned long long tokens, samples, versions;
    char hex[2 * GSP_KEY_BYTES + 1];
    int end = 0;
    uint32_t n = 0;
    if (sscanf(text, "credits 1\ntokens %19llu\n%n", &tokens, &end) != 1 || !end)
        return false;
    for (text += end; *text; text += end, n++) {
        end = 0;
        if (n == GSP_CREDITS_MAX ||
            sscanf(text, "%64[0-9a-f] %19llu %19llu\n%n", hex, &samples, &versions, &end) != 3 ||
            !end || text[end - 1] != '\n' || !atom_unhex(hex, c->row[n].key, GSP_KEY_BYTES))
            return false;
        c->row[n].samples = samples;
        c->row[n].versions = versions;
    }
    c->n = n;
    c->tokens = tokens;
    return true;
}

static void load(gsp_credits *c)
{
    char *text = NULL;
    uint64_t bytes;
    if (!atom_path_exists(c->path))
        return;
    if (atom_file_read(c->path, TEXT_MAX, &text, &bytes) != ATOM_OK) {
        atom_log(ATOM_LOG_WARN, "%s", atom_fail_message());
    } else if (!gsp_credits_parse(c, text)) {
        atom_log(ATOM_LOG_WARN,
                 "%s is damaged, so it is not known how much each member has contributed so far; "
                 "it is counted from zero",
                 c->path);
        *c = (gsp_credits){.path = c->path};
    }
    atom_free(text);
}

void gsp_credits_open(gsp_credits *c, const char *directory)
{
    *c = (gsp_credits){.path = atom_path_join(directory, "credits")};
    if (c->path)
        load(c);
    c->saved = c->tokens;
}

static void save(gsp_credits *c, uint64_t tokens)
{
    char *text = c->path && (c->changed || tokens != c->saved) ? gsp_credits_text(c, tokens) : NULL;
    if (text && atom_file_write(c->path, text, strlen(text)) != ATOM_OK)
        atom_log(ATOM_LOG_WARN, "%s", atom_fail_message());
    c->changed = false;
    c->saved = tokens;
    atom_free(text);
}

void gsp_credits_step(gsp_credits *c, uint64_t tokens)
{
    uint64_t now = atom_clock_ns();
    if (now < c->save_ns)
        return;
    c->save_ns = now + SAVE_NS;
    save(c, tokens);
}

void gsp_credits_close(gsp_credits *c, uint64_t tokens)
{
    save(c, tokens);
    atom_free(c->path);
    c->path = NULL;
}

/* ---- counts ---- */

static uint32_t place_of(const gsp_credits *c, const uint8_t key[GSP_KEY_BYTES])
{
    uint32_t i = 0;
    while (i < c->n && memcmp(c->row[i].key, key, GSP_KEY_BYTES) != 0)
        i++;
    return i;
}

const gsp_credit *gsp_credits_find(const gsp_credits *c, const uint8_t key[GSP_KEY_BYTES])
{
    uint32_t i = place_of(c, key);
    return i < c->n ? &c->row[i] : NULL;
}

uint64_t gsp_credits_samples(const gsp_credits *c)
{
    uint64_t all = 0;
    for (uint32_t i = 0; i < c->n; i++)
        all += c->row[i].samples;
    return all;
}

static gsp_credit *row_of(gsp_credits *c, const uint8_t key[GSP_KEY_BYTES])
{
    uint32_t i = place_of(c, key);
    if (i < c->n)
        return &c->row[i];
    if (c->n == GSP_CREDITS_MAX) {
        i = 0;
        for (uint32_t k = 1; k < c->n; k++)
            i = c->row[k].samples < c->row[i].samples ? k : i;
    } else {
        c->n++;
    }
    c->row[i] = (gsp_credit){.samples = 0};
    memcpy(c->row[i].key, key, GSP_KEY_BYTES);
    return &c->row[i];
}

void gsp_credits_count(gsp_credits *c, const gsp_roster *roster, const gsp_proposal *p,
                       uint32_t counted)
{
    for (uint32_t i = 0; i < p->n_contributors; i++) {
        if (!(counted >> i & 1) || p->contributor[i].member >= roster->n)
            continue;
        gsp_credit *row = row_of(c, roster->member[p->contributor[i].member].key.byte);
        row->samples += p->contributor[i].samples;
        row->versions++;
        c->changed = true;
    }
}
