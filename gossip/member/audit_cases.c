/*
 * Owns cases. Its one idea: a verdict needs no trust in whoever brought the bytes. It refuses to
 * hold more than one case and one proof, or to wait for bytes for ever.
 */
#include "gossip/member/audit_cases.h"

#include "atom/base/clock.h"
#include "atom/base/mem.h"

#include <string.h>

static const uint64_t SECOND = 1000000000u, ASK_NS = 2000000000u, PATIENCE_NS = 20000000000u;
enum {
    LATE_TIMES = 6,  /* within_ns after the last news, until a case of my own choice stays open */
    CASE_TIMES = 24, /* within_ns, until it does though pieces still come */
};
static const uint64_t CASE_BYTES_MAX = (uint64_t)1 << 30;

void gsp_audit_cases_open(gsp_audit_cases *cs, const gsp_terms *terms, const gsp_freezing *mine,
                          gsp_own_inputs *kept, const gsp_questions *questions,
                          gsp_friends *friends, gsp_mix *mix)
{
    cs->terms = terms;
    cs->mine = mine;
    cs->kept = kept;
    cs->questions = questions;
    cs->friends = friends;
    cs->mix = mix;
}

static void case_close(gsp_audit_case *c)
{
    for (uint32_t i = 0; i < GSP_MEMBERS_MAX; i++)
        gsp_blob_close(&c->input[i]);
    memset(c, 0, sizeof *c);
}

void gsp_audit_cases_close(gsp_audit_cases *cs)
{
    case_close(&cs->open);
    case_close(&cs->proof);
}

/* The owner says that it summed contribution i. */
static bool included(const gsp_audit_case *c, uint32_t i)
{
    return i < c->claim.n_contributors && (c->claim.part.included >> i & 1);
}

static gsp_exhibit exhibit_of(const gsp_blob *b)
{
    gsp_exhibit e = {.data = b->data, .bytes = b->bytes, .n_path = b->n_path};
    memcpy(e.path, b->path, sizeof e.path);
    return e;
}

bool gsp_audit_cases_exhibit(const gsp_audit_cases *cs, uint64_t version, const gsp_hash *root,
                             uint32_t part, gsp_exhibit *out)
{
    const gsp_audit_case *proof = &cs->proof;
    memset(out, 0, sizeof *out);
    if (part >= cs->terms->n_parts)
        return false;
    if (gsp_freezing_exhibit(cs->mine, version, root, part, out) ||
        gsp_own_inputs_exhibit(cs->kept, version, root, part, out) ||
        gsp_questions_exhibit(cs->questions, version, root, part, out))
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

void gsp_audit_cases_begin(gsp_audit_cases *cs, const gsp_claim *claim, const gsp_key *accuser,
                           uint64_t within_ns)
{
    static const gsp_key nobody;
    gsp_audit_case *c = &cs->open;
    case_close(c);
    c->on = true;
    c->claim = *claim;
    c->accuser = *accuser;
    c->accused = gsp_key_compare(accuser, &nobody) != 0;
    c->began_ns = c->news_ns = c->given_ns = atom_clock_ns();
    c->within_ns = within_ns;
    uint64_t bytes = gsp_terms_bytes(cs->terms, claim->version, claim->number);
    c->hopeless = bytes * (uint32_t)__builtin_popcount(claim->part.included) > CASE_BYTES_MAX;
    for (uint32_t i = 0; i < claim->n_contributors && !c->hopeless; i++) {
        gsp_exhibit here;
        const gsp_hash *root = &claim->contributor[i].root;
        if (included(c, i) &&
            gsp_audit_cases_exhibit(cs, claim->version, root, claim->number, &here))
            c->input[i] = gsp_blob_copy(root, &here);
    }
}

gsp_blob **gsp_audit_cases_place(gsp_audit_cases *cs, const gsp_message *m)
{
    gsp_audit_case *c = &cs->open;
    const gsp_piece *p = &m->as.piece;
    if (!c->on || p->is_result || m->version != c->claim.version || p->part != c->claim.number)
        return NULL;
    for (uint32_t i = 0; i < c->claim.n_contributors; i++)
        if (included(c, i) && gsp_hash_equal(&c->claim.contributor[i].root, &p->root) &&
            gsp_blob_lacks(c->input[i], p->sequence)) {
            const gsp_named *named = gsp_withheld_find(cs->friends->agree, c->claim.version);
            c->news_ns = atom_clock_ns();
            if (gsp_questions_answered(&c->patience, named, i, m))
                c->given_ns = c->news_ns;
            return &c->input[i];
        }
    return NULL;
}

static bool lacks(const gsp_audit_case *c, uint32_t i)
{
    return included(c, i) && (!c->input[i] || !c->input[i]->whole);
}

/* Whoever made contribution i; NULL: it has no link. */
static gsp_friend *maker_of(gsp_audit_cases *cs, const gsp_audit_case *c, uint32_t i)
{
    const gsp_named *named = gsp_withheld_find(cs->friends->agree, c->claim.version);
    const gsp_member *maker = named ? gsp_withheld_maker(named, i) : NULL;
    return maker ? gsp_friends_find(cs->friends, &maker->key) : NULL;
}

/* Whom to ask for contribution i: the accuser has all of them, or the member that made it. What that
 * one has not given in time may be had from anybody: others ask for it. */
static gsp_friend *holder_of(gsp_audit_cases *cs, const gsp_audit_case *c, uint32_t i)
{
    const gsp_roster *roster = gsp_agree_roster(cs->friends->agree);
    gsp_friend *to = NULL;
    if (c->late && c->turn % 2 && roster->n)
        to = gsp_friends_find(cs->friends, &roster->member[(c->turn / 2 + i) % roster->n].key);
    if (!to && (!c->accused || c->turn % 2 == 0))
        to = maker_of(cs, c, i);
    if (!to && c->accused)
        to = gsp_friends_find(cs->friends, &c->accuser);
    return to;
}

/* Asks `to` for contribution i. Its maker's time begins when it is asked itself. */
static void pull_one(gsp_audit_cases *cs, gsp_audit_case *c, uint32_t i, gsp_friend *to)
{
    if (to && to == maker_of(cs, c, i))
        gsp_patience_asked(&c->patience, i);
    gsp_questions_pull(cs->friends, to, c->claim.version, c->claim.number,
                       &c->claim.contributor[i].root);
}

static void pull_missing(gsp_audit_cases *cs, gsp_audit_case *c)
{
    c->asked_ns = atom_clock_ns();
    c->turn++;
    for (uint32_t i = 0; i < c->claim.n_contributors; i++)
        if (lacks(c, i))
            pull_one(cs, c, i, holder_of(cs, c, i));
}

/* Makers that have a new link, over which nobody has asked them yet. */
static void pull_unasked(gsp_audit_cases *cs, gsp_audit_case *c)
{
    uint32_t unasked = c->accused ? 0 : gsp_patience_unasked(&c->patience);
    for (uint32_t i = 0; i < c->claim.n_contributors; i++)
        if (lacks(c, i) && (unasked >> i & 1))
            pull_one(cs, c, i, maker_of(cs, c, i));
}

/* ---- verdicts ---- */

/* All is here: the sum again. */
static gsp_verdict judge(gsp_audit_cases *cs, const gsp_audit_case *c)
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

/* What others were given for me meanwhile, or for themselves. */
static uint32_t missing(gsp_audit_cases *cs, gsp_audit_case *c)
{
    uint32_t bits = 0;
    for (uint32_t i = 0; i < c->claim.n_contributors; i++) {
        const gsp_hash *root = &c->claim.contributor[i].root;
        gsp_exhibit here;
        if (lacks(c, i) &&
            gsp_questions_exhibit(cs->questions, c->claim.version, root, c->claim.number, &here)) {
            gsp_blob_close(&c->input[i]);
            c->input[i] = gsp_blob_copy(root, &here);
        }
        bits |= lacks(c, i) ? 1u << i : 0;
    }
    return bits;
}

static bool over(const gsp_audit_case *c, uint64_t now)
{
    if (c->accused)
        return c->hopeless || now - c->began_ns > 60 * SECOND || now - c->news_ns > PATIENCE_NS;
    return c->hopeless || now - c->given_ns > LATE_TIMES * c->within_ns ||
           now - c->began_ns > CASE_TIMES * c->within_ns;
}

bool gsp_audit_cases_work(gsp_audit_cases *cs, bool idle, gsp_event *event)
{
    gsp_audit_case *c = &cs->open;
    uint64_t now = atom_clock_ns(), link[GSP_MEMBERS_MAX];
    if (!c->on)
        return false;
    *event = (gsp_event){.kind = GSP_ON_AUDITED,
                         .version = c->claim.version,
                         .part = c->claim.number,
                         .peer = cs->friends->agree->self.key,
                         .verdict = GSP_VERDICT_OPEN};
    uint32_t lacked = missing(cs, c);
    if (lacked == 0) {
        if (idle)
            event->verdict = judge(cs, c);
        return idle;
    }
    const gsp_named *named = gsp_withheld_find(cs->friends->agree, c->claim.version);
    gsp_questions_links(cs->friends, named, link);
    gsp_patience_look(&c->patience, link, now);
    event->withheld = lacked & gsp_patience_late(&c->patience, c->within_ns);
    if (over(c, now)) {
        event->withheld &= gsp_patience_late(&c->patience, LATE_TIMES / 2 * c->within_ns);
        return true;
    }
    if (c->asked_ns && now - c->asked_ns <= ASK_NS) {
        pull_unasked(cs, c);
        return false;
    }
    pull_missing(cs, c);
    event->kind = GSP_ON_INPUTS;
    c->late = event->withheld;
    return c->late != 0;
}

void gsp_audit_cases_exhibits(const gsp_audit_cases *cs, gsp_exhibit *exhibit)
{
    const gsp_audit_case *c = &cs->open;
    memset(exhibit, 0, GSP_MEMBERS_MAX * sizeof *exhibit);
    for (uint32_t i = 0; i < c->claim.n_contributors; i++)
        if (included(c, i) && c->input[i])
            exhibit[i] = exhibit_of(c->input[i]);
}

void gsp_audit_cases_end(gsp_audit_cases *cs, gsp_verdict verdict)
{
    if (verdict == GSP_VERDICT_LIE) {
        case_close(&cs->proof);
        cs->proof = cs->open;
        memset(cs->open.input, 0, sizeof cs->open.input); /* they are the proof's now */
    }
    case_close(&cs->open);
}
