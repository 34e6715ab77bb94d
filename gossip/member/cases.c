/*
 * Owns cases. Its one idea: a verdict needs no trust in whoever brought the bytes. It refuses to
 * hold more than one case and one proof, or to wait for bytes for more than a minute.
 */
#include "gossip/member/cases.h"

#include "atom/base/clock.h"
#include "atom/base/mem.h"

#include <string.h>

static const uint64_t SECOND = 1000000000u, ASK_NS = 2000000000u, PATIENCE_NS = 20000000000u;
static const uint64_t CASE_BYTES_MAX = (uint64_t)1 << 30;

void gsp_cases_open(gsp_cases *cs, const gsp_terms *terms, const gsp_freezing *mine,
                    gsp_friends *friends, gsp_mix *mix)
{
    cs->terms = terms;
    cs->mine = mine;
    cs->friends = friends;
    cs->mix = mix;
}

static void case_close(gsp_case *c)
{
    for (uint32_t i = 0; i < GSP_MEMBERS_MAX; i++)
        gsp_blob_close(&c->input[i]);
    memset(c, 0, sizeof *c);
}

void gsp_cases_close(gsp_cases *cs)
{
    case_close(&cs->open);
    case_close(&cs->proof);
}

/* The owner says that it summed contribution i. */
static bool included(const gsp_case *c, uint32_t i)
{
    return i < c->claim.n_contributors && (c->claim.part.included >> i & 1);
}

static gsp_exhibit exhibit_of(const gsp_blob *b)
{
    gsp_exhibit e = {.data = b->data, .bytes = b->bytes, .n_path = b->n_path};
    memcpy(e.path, b->path, sizeof e.path);
    return e;
}

bool gsp_cases_exhibit(const gsp_cases *cs, uint64_t version, const gsp_hash *root, uint32_t part,
                       gsp_exhibit *out)
{
    const gsp_case *proof = &cs->proof;
    memset(out, 0, sizeof *out);
    if (part >= cs->terms->n_parts)
        return false;
    if (gsp_freezing_exhibit(cs->mine, version, root, part, out))
        return true;
    for (uint32_t i = 0; i < proof->claim.n_contributors; i++) {
        const gsp_blob *b = proof->input[i];
        if (!b || proof->claim.version != version || proof->claim.number != part ||
            !gsp_hash_equal(&b->root, root))
            continue;
        *out = exhibit_of(b);
        return true;
    }
    return false;
}

/* ---- a case ---- */

void gsp_cases_begin(gsp_cases *cs, const gsp_claim *claim, const gsp_key *accuser)
{
    static const gsp_key nobody;
    gsp_case *c = &cs->open;
    case_close(c);
    c->on = true;
    c->claim = *claim;
    c->accuser = *accuser;
    c->accused = gsp_key_compare(accuser, &nobody) != 0;
    c->began_ns = c->news_ns = atom_clock_ns();
    uint64_t bytes = gsp_terms_bytes(cs->terms, claim->version, claim->number);
    c->hopeless = bytes * (uint32_t)__builtin_popcount(claim->part.included) > CASE_BYTES_MAX;
    for (uint32_t i = 0; i < claim->n_contributors && !c->hopeless; i++) {
        gsp_exhibit here;
        const gsp_hash *root = &claim->contributor[i].root;
        if (included(c, i) && gsp_cases_exhibit(cs, claim->version, root, claim->number, &here))
            c->input[i] = gsp_blob_copy(root, &here);
    }
}

gsp_blob **gsp_cases_place(gsp_cases *cs, const gsp_message *m)
{
    gsp_case *c = &cs->open;
    const gsp_piece *p = &m->as.piece;
    if (!c->on || p->is_result || m->version != c->claim.version || p->part != c->claim.number)
        return NULL;
    for (uint32_t i = 0; i < c->claim.n_contributors; i++)
        if (included(c, i) && gsp_hash_equal(&c->claim.contributor[i].root, &p->root)) {
            c->news_ns = atom_clock_ns();
            return &c->input[i];
        }
    return NULL;
}

static bool lacks(const gsp_case *c, uint32_t i)
{
    return included(c, i) && (!c->input[i] || !c->input[i]->whole);
}

/* Whom to ask for contribution i: the accuser has all of them; else the member that made it, for as
 * long as it is known who that was. */
static gsp_friend *holder_of(gsp_cases *cs, const gsp_case *c, uint32_t i)
{
    const gsp_audits *u = &cs->friends->agree->audits;
    uint32_t member = c->claim.contributor[i].member;
    gsp_friend *to = NULL;
    if (u->version == c->claim.version && member < u->roster.n && (!c->accused || c->turn % 2 == 0))
        to = gsp_friends_find(cs->friends, &u->roster.member[member].key);
    if (!to && c->accused)
        to = gsp_friends_find(cs->friends, &c->accuser);
    return to;
}

static void pull_missing(gsp_cases *cs, gsp_case *c)
{
    c->asked_ns = atom_clock_ns();
    c->turn++;
    for (uint32_t i = 0; i < c->claim.n_contributors; i++) {
        gsp_friend *to = lacks(c, i) ? holder_of(cs, c, i) : NULL;
        if (!to)
            continue;
        gsp_message *m = gsp_friends_draft(cs->friends, GSP_PULL);
        m->version = c->claim.version;
        m->as.pull = (gsp_pull){.root = c->claim.contributor[i].root, .part = c->claim.number};
        gsp_friends_tell(cs->friends, to, m);
    }
}

/* ---- verdicts ---- */

/* All is here: the sum again. */
static gsp_verdict judge(gsp_cases *cs, const gsp_case *c)
{
    const void *input[GSP_MEMBERS_MAX] = {0};
    uint64_t first, n = gsp_terms_floats(cs->terms, c->claim.version, c->claim.number, &first);
    uint64_t bytes = gsp_codec_bytes(cs->terms->codec, n);
    gsp_part made;
    atom_status st;
    void *out = atom_alloc(1, bytes ? bytes : 1);
    if (!out)
        return GSP_VERDICT_OPEN;
    for (uint32_t i = 0; i < c->claim.n_contributors; i++)
        input[i] = included(c, i) ? c->input[i]->data : NULL;
    bool made_it =
        gsp_mix_part(cs->mix, c->claim.number, c->claim.contributor, c->claim.n_contributors, input,
                     c->claim.part.included, n, out, &made, &st);
    atom_free(out);
    return st != ATOM_OK ? GSP_VERDICT_OPEN : gsp_claim_judge(&c->claim, made_it ? &made : NULL);
}

bool gsp_cases_work(gsp_cases *cs, bool idle, gsp_verdict *verdict)
{
    gsp_case *c = &cs->open;
    uint64_t now = atom_clock_ns();
    bool whole = true;
    if (!c->on)
        return false;
    for (uint32_t i = 0; i < c->claim.n_contributors; i++)
        whole &= !lacks(c, i);
    if (whole) {
        if (idle)
            *verdict = judge(cs, c);
        return idle;
    }
    if (c->hopeless || now - c->news_ns > PATIENCE_NS || now - c->began_ns > 60 * SECOND) {
        *verdict = GSP_VERDICT_OPEN;
        return true;
    }
    if (c->asked_ns == 0 || now - c->asked_ns > ASK_NS)
        pull_missing(cs, c);
    return false;
}

void gsp_cases_exhibits(const gsp_cases *cs, gsp_exhibit *exhibit)
{
    const gsp_case *c = &cs->open;
    memset(exhibit, 0, GSP_MEMBERS_MAX * sizeof *exhibit);
    for (uint32_t i = 0; i < c->claim.n_contributors; i++)
        if (included(c, i) && c->input[i])
            exhibit[i] = exhibit_of(c->input[i]);
}

void gsp_cases_end(gsp_cases *cs, gsp_verdict verdict)
{
    if (verdict == GSP_VERDICT_LIE) {
        case_close(&cs->proof);
        cs->proof = cs->open;
        memset(cs->open.input, 0, sizeof cs->open.input); /* they are the proof's now */
    }
    case_close(&cs->open);
}
