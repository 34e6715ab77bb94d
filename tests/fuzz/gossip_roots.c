/*
 * STATE_ROOTS against a fuzzer that owns all keys: whom a joiner believes (gossip/member/transfer.h).
 * Four members and two strangers each say what state they hold. The input is a script that changes
 * fields of what they say, signs it again, with the key of the one who says it or of somebody else,
 * and changes it once more now and then.
 *
 * What is approved was signed by its sender as it came. A state is fetched only if its certificate has
 * the votes of a quorum, and a quorum of its roster signed each of its roots.
 */
#include "atom/base/assert.h"
#include "gossip/agree/wire.h"
#include "gossip/member/transfer.h"
#include "tests/fuzz/forge_fields.h"
#include "tests/fuzz/forge_oracle.h"
#include "tests/fuzz/forge_seals.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HOSTS = 6, MEMBERS = 4, FRAGMENTS = 3, TOLD_MAX = 16, VERSION = 4 };
static const uint64_t N_FLOATS[FRAGMENTS] = {1000, 9, 0};

static gsp_identity host[HOSTS];
static gsp_key key[HOSTS];
static gsp_seals seals;
static gsp_chain_terms terms;
static gsp_chain chain; /* leads to version 4 */
static gsp_state_roots right;
static forge_fields fields;

/* What was approved, and by whom it was said. */
static struct {
    uint32_t from;
    gsp_state_roots roots;
} told[TOLD_MAX];
static uint32_t n_told;

static int by_key(const void *a, const void *b)
{
    const gsp_identity *x = a, *y = b;
    return memcmp(x->public_key, y->public_key, GSP_PUBLIC_BYTES);
}

static void vote(const gsp_roster *voters, gsp_certificate *c)
{
    gsp_statement s = {.kind = GSP_SAYS_VOTE,
                       .lineage = c->proposal.lineage,
                       .version = c->proposal.version,
                       .ballot = c->ballot};
    if (!gsp_proposal_fits(&c->proposal))
        return;
    gsp_proposal_hash(&seals, &c->proposal, &s.subject);
    for (uint32_t k = 0; k < c->n_votes && k < GSP_MEMBERS_MAX; k++) {
        if (c->vote[k].member >= voters->n)
            continue;
        s.signer = voters->member[c->vote[k].member];
        gsp_seals own = forge_seals(&s.signer.key);
        gsp_statement_seal(&own, &s);
        memcpy(c->vote[k].seal, s.seal, sizeof s.seal);
    }
}

/* A first lineage of host 0, version 4 by which it lets three others in, and its state. */
static void begin(void)
{
    gsp_certificate *c = &right.certificate;
    gsp_step step = {.is_genesis = true};
    for (uint32_t i = 0; i < HOSTS; i++) {
        const uint8_t seed[GSP_SEED_BYTES] = {(uint8_t)(i + 1)};
        ATOM_ASSERT(gsp_identity_from_seed(seed, &host[i]) == ATOM_OK);
    }
    qsort(host, HOSTS, sizeof host[0], by_key);
    for (uint32_t i = 0; i < HOSTS; i++)
        memcpy(key[i].byte, host[i].public_key, sizeof key[i].byte);
    seals = forge_seals(NULL);
    right.genesis.pool = (gsp_hash){{7}};
    right.genesis.founder = (gsp_member){.key = key[0], .incarnation = 1};
    terms = (gsp_chain_terms){.seals = &seals, .owner = key[0]};
    gsp_genesis_hash(&seals, &right.genesis, &terms.first);
    right.has_certificate = true;
    c->proposal = (gsp_proposal){.lineage = terms.first,
                                 .version = VERSION,
                                 .previous = {{3}},
                                 .tokens = 100,
                                 .made = VERSION,
                                 .next = {.n = MEMBERS}};
    for (uint32_t i = 0; i < MEMBERS; i++)
        c->proposal.next.member[i] = (gsp_member){.key = key[i], .incarnation = 1};
    c->ballot = 1;
    c->n_votes = 1;
    step.as.genesis = right.genesis;
    ATOM_ASSERT(!gsp_chain_take(&terms, &chain, &step, false));
    vote(&chain.roster, c);
    memset(&step, 0, sizeof step);
    gsp_chain_link_of(&seals, c, &step.as.link);
    ATOM_ASSERT(!gsp_chain_take(&terms, &chain, &step, false));
    right.n_fragments = FRAGMENTS;
    for (uint32_t f = 0; f < FRAGMENTS; f++) {
        right.fragment[f].version = f == 1 ? 4 : f == 0 ? 3 : 2;
        right.fragment[f].n_floats = N_FLOATS[f];
        right.fragment[f].root = (gsp_hash){{N_FLOATS[f] ? (uint8_t)(f + 1) : 0}};
    }
}

static void fragments(gsp_state_roots *r)
{
    uint32_t n =
        forge_list(&fields, r->fragment, sizeof r->fragment[0], &r->n_fragments, GSP_FRAGMENTS_MAX);
    for (uint32_t f = 0; f < n; f++) {
        FORGE_NUMBER_OF(&fields, r->fragment[f].version);
        FORGE_NUMBER_OF(&fields, r->fragment[f].n_floats);
        forge_hash(&fields, &r->fragment[f].root);
    }
}

static void change_some(forge_script *s, uint32_t of)
{
    uint32_t changes = forge_draw(s, of);
    for (uint32_t k = 0; changes > 3 && k < changes - 3; k++)
        forge_change(&fields, s);
    fields.n = 0;
}

/* The state of a later version, which the same roster certified, or put others into the next. */
static void go_on(gsp_state_roots *r, forge_script *s)
{
    gsp_proposal *p = &r->certificate.proposal;
    uint32_t how = forge_draw(s, 4);
    p->previous = chain.newest;
    p->version = VERSION + 1 + forge_draw(s, 4);
    p->since = chain.made;
    if (how == 0)
        p->next.n--;
    if (how == 1)
        p->next.member[p->next.n++] = (gsp_member){.key = key[MEMBERS], .incarnation = 1};
    memset(&p->next.member[p->next.n], 0, sizeof p->next.member[0]);
    p->made = how < 2 ? p->version : chain.made;
    r->certificate.n_votes = 2 + forge_draw(s, 3);
    for (uint32_t k = 0; k < r->certificate.n_votes; k++)
        r->certificate.vote[k].member = (uint8_t)k;
    for (uint32_t f = 0; f < FRAGMENTS; f++)
        r->fragment[f].version = gsp_state_version(p->version, f, FRAGMENTS);
}

/* One host says what it holds. witness: what the joiner keeps of it. */
static void tell(gsp_witness *witness, uint32_t from, forge_script *s)
{
    static uint8_t bytes[GSP_WIRE_BYTES_MAX];
    static gsp_message m, arrives;
    static gsp_state_roots said;
    memset(&m, 0, sizeof m);
    m.kind = GSP_STATE_ROOTS;
    m.from = (gsp_member){.key = key[from], .incarnation = 1 + forge_draw(s, 16) / 15};
    m.lineage = chain.lineage;
    m.as.roots = right;
    bool later = forge_draw(s, 4) == 3;
    if (later)
        go_on(&m.as.roots, s);
    fragments(&m.as.roots);
    if (forge_draw(s, 2)) {
        FORGE_NUMBER_OF(&fields, m.as.roots.has_certificate);
        forge_genesis(&fields, &m.as.roots.genesis);
        forge_certificate(&fields, &m.as.roots.certificate);
    }
    change_some(s, 8);
    gsp_state_roots *r = &m.as.roots;
    r->has_certificate = *(const uint8_t *)&r->has_certificate & 1;
    const gsp_roster first = {.n = 1, .member = {right.genesis.founder}};
    if (forge_draw(s, 8))
        vote(later ? &right.certificate.proposal.next : &first, &r->certificate);
    if (r->n_fragments > GSP_FRAGMENTS_MAX || r->genesis.roster.n > GSP_MEMBERS_MAX ||
        !gsp_proposal_fits(&r->certificate.proposal))
        return;
    uint32_t signer = forge_draw(s, 16) ? from : forge_draw(s, HOSTS);
    gsp_roots_seal(r, &seals, &m.from, &host[signer]);
    said = *r;
    fragments(r);
    change_some(s, 5);
    bool whole = signer == from && memcmp(&said, r, sizeof said) == 0;
    size_t n = gsp_wire_encode(&m, bytes, sizeof bytes);
    if (n == 0 || !gsp_wire_decode(bytes, n, &m.from.key, &arrives, NULL, NULL) ||
        !gsp_roots_check(&arrives.as.roots, &seals, &arrives.from))
        return;
    ATOM_ASSERT(whole);
    gsp_witness_hear(witness, &seals, &arrives.from, &arrives.as.roots);
    gsp_witness_judge(witness, &terms, &chain);
    if (arrives.from.incarnation == 1) { /* as which the rosters know it */
        told[n_told].from = from;
        told[n_told++].roots = arrives.as.roots;
    }
}

static void judge_plan(const gsp_plan *plan)
{
    const gsp_certificate *c = &plan->saved.certificate;
    gsp_hash lineage, id;
    gsp_genesis_hash(&seals, &plan->saved.genesis, &lineage);
    ATOM_ASSERT(plan->saved.has_certificate && forge_same(&lineage, &chain.lineage, sizeof id));
    gsp_proposal_hash(&seals, &c->proposal, &id);
    forge_before was = {.roster = {.n = 1, .member = {right.genesis.founder}}};
    if (!forge_same(&id, &chain.newest, sizeof id)) {
        ATOM_ASSERT(c->proposal.version > VERSION);
        was.roster = right.certificate.proposal.next;
    }
    forge_judge_votes_for(&was, terms.trust, c, &id);
    ATOM_ASSERT(plan->version == c->proposal.version);
    for (uint32_t f = 0; f < FRAGMENTS; f++) {
        uint32_t signers = 0;
        for (uint32_t k = 0; k < n_told; k++) {
            const gsp_state_root *root = &told[k].roots.fragment[f];
            const gsp_member *seat = forge_seat(&c->proposal.next, &key[told[k].from]);
            if (seat && seat->incarnation == 1 && root->version == plan->fragment[f].version &&
                forge_same(&root->root, &plan->fragment[f].root, sizeof root->root))
                signers |= 1u << (seat - c->proposal.next.member);
        }
        ATOM_ASSERT(plan->fragment[f].version % FRAGMENTS == f || !plan->fragment[f].version);
        ATOM_ASSERT(plan->fragment[f].version + FRAGMENTS > plan->version);
        ATOM_ASSERT(forge_quorum(terms.trust, c->proposal.next.n, signers));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool ready;
    static gsp_witness witness[HOSTS];
    static gsp_plan plan;
    gsp_witness *heard[HOSTS];
    forge_script script = {data, size}, *s = &script;
    if (!ready)
        begin();
    ready = true;
    memset(witness, 0, sizeof witness);
    n_told = 0;
    terms.trust = forge_draw(s, 2) ? GSP_STRANGERS : GSP_FRIENDS;
    for (uint32_t k = 0; k < TOLD_MAX && s->left; k++) {
        uint32_t from = k < HOSTS ? k : forge_draw(s, HOSTS);
        tell(&witness[from], from, s);
    }
    for (uint32_t i = 0; i < HOSTS; i++)
        heard[i] = gsp_hash_none(&witness[i].lineage) ? NULL : &witness[i];
    gsp_plan_choose(&plan, &terms, &chain, heard, HOSTS, N_FLOATS, FRAGMENTS);
    if (plan.found)
        judge_plan(&plan);
    return 0;
}
