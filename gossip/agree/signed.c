/*
 * Owns what is hashed and signed. Its one idea: hashes run over a flat string of little-endian
 * fields that starts with a tag, so that no two kinds of things can have the same bytes. It refuses
 * to know how messages travel.
 */
#include "gossip/agree/signed.h"

#include "atom/base/assert.h"

#include <string.h>

enum { TEXT_BYTES_MAX = 64 * 1024, HEAD_BYTES_MAX = 4096, STATEMENT_BYTES_MAX = 256 };

typedef struct text {
    size_t n;
    uint8_t *at;
} text;

static void put(text *t, const void *data, size_t bytes)
{
    memcpy(t->at + t->n, data, bytes);
    t->n += bytes;
}

static void put_u8(text *t, uint8_t x)
{
    t->at[t->n++] = x;
}

static void put_u32(text *t, uint32_t x)
{
    for (int k = 0; k < 4; k++)
        put_u8(t, (uint8_t)(x >> (8 * k)));
}

static void put_u64(text *t, uint64_t x)
{
    put_u32(t, (uint32_t)x);
    put_u32(t, (uint32_t)(x >> 32));
}

static void put_hash(text *t, const gsp_hash *hash)
{
    put(t, hash->byte, sizeof hash->byte);
}

static void put_member(text *t, const gsp_member *member)
{
    put(t, member->key.byte, sizeof member->key.byte);
    put_u64(t, member->incarnation);
}

static void put_roster(text *t, const gsp_roster *roster)
{
    put_u32(t, roster->n);
    for (uint32_t i = 0; i < roster->n; i++)
        put_member(t, &roster->member[i]);
}

static void put_barred(text *t, const gsp_barred *barred, uint32_t n)
{
    put_u32(t, n);
    for (uint32_t i = 0; i < n; i++) {
        put(t, barred[i].key.byte, sizeof barred[i].key.byte);
        put_u32(t, barred[i].versions);
    }
}

static void put_tag(text *t, const char *tag)
{
    put(t, tag, 8);
}

int gsp_key_compare(const gsp_key *a, const gsp_key *b)
{
    return memcmp(a->byte, b->byte, sizeof a->byte);
}

bool gsp_hash_equal(const gsp_hash *a, const gsp_hash *b)
{
    return memcmp(a->byte, b->byte, sizeof a->byte) == 0;
}

bool gsp_hash_none(const gsp_hash *a)
{
    static const gsp_hash none;
    return gsp_hash_equal(a, &none);
}

bool gsp_member_equal(const gsp_member *a, const gsp_member *b)
{
    return a->incarnation == b->incarnation && gsp_key_compare(&a->key, &b->key) == 0;
}

uint32_t gsp_roster_find_key(const gsp_roster *roster, const gsp_key *key)
{
    for (uint32_t i = 0; i < roster->n; i++)
        if (gsp_key_compare(&roster->member[i].key, key) == 0)
            return i;
    return GSP_NOBODY;
}

uint32_t gsp_roster_find(const gsp_roster *roster, const gsp_member *member)
{
    uint32_t i = gsp_roster_find_key(roster, &member->key);
    return i != GSP_NOBODY && roster->member[i].incarnation == member->incarnation ? i : GSP_NOBODY;
}

size_t gsp_message_bytes(gsp_message_kind kind)
{
    static const size_t bytes[GSP_MESSAGE_N] = {
        [GSP_HEARTBEAT] = sizeof(gsp_heartbeat),
        [GSP_PREPARE] = sizeof(gsp_prepare),
        [GSP_PROMISE] = sizeof(gsp_promise),
        [GSP_REFUSE] = sizeof(gsp_refuse),
        [GSP_BEGIN] = sizeof(gsp_begin),
        [GSP_REDUCED] = sizeof(gsp_reduced),
        [GSP_PROPOSE] = sizeof(gsp_propose),
        [GSP_ECHO] = sizeof(gsp_vote),
        [GSP_VOTE] = sizeof(gsp_vote),
        [GSP_CERTIFY] = sizeof(gsp_certify),
        [GSP_ASK] = sizeof(gsp_ask),
        [GSP_JOIN] = sizeof(gsp_join),
        [GSP_WAIT] = sizeof(gsp_wait),
        [GSP_LEAVE] = sizeof(gsp_leave),
        [GSP_EVIDENCE] = sizeof(gsp_evidence),
        [GSP_ACCUSE] = sizeof(gsp_accuse),
        [GSP_LINEAGE] = sizeof(gsp_lineage),
        [GSP_WITHHELD] = sizeof(gsp_missing),
        [GSP_CONSENT] = sizeof(gsp_consent),
        [GSP_PIECE] = sizeof(gsp_piece),
        [GSP_PULL] = sizeof(gsp_pull),
        [GSP_STATE_ASK] = sizeof(uint64_t),
        [GSP_STATE_ROOTS] = sizeof(gsp_state_roots),
        [GSP_STATE_PULL] = sizeof(gsp_state_pull),
        [GSP_STATE_NONE] = sizeof(gsp_state_pull),
        [GSP_STATE_CHUNK] = sizeof(gsp_state_chunk),
        [GSP_CHAIN_ASK] = sizeof(gsp_chain_ask),
        [GSP_CHAIN] = sizeof(gsp_chain_said),
    };
    if (kind < GSP_HEARTBEAT || kind >= GSP_MESSAGE_N)
        return 0;
    return offsetof(gsp_message, as) + bytes[kind];
}

static void put_part(text *t, const gsp_part *part)
{
    uint32_t norm;
    memcpy(&norm, &part->norm, sizeof norm);
    put_hash(t, &part->hash);
    put_u32(t, part->included);
    put_u64(t, part->weight);
    put_u32(t, norm);
    for (uint32_t i = 0; i < GSP_MEMBERS_MAX; i++)
        if (part->included >> i & 1)
            put_u8(t, (uint8_t)part->lean[i]);
}

static void put_contributors(text *t, const gsp_contributor *contributor, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        put_u8(t, contributor[i].member);
        put_hash(t, &contributor[i].root);
        put_u64(t, contributor[i].tokens);
        put_u64(t, contributor[i].samples);
        put_u64(t, contributor[i].weight);
    }
}

bool gsp_proposal_fits(const gsp_proposal *p)
{
    return p->n_contributors <= GSP_MEMBERS_MAX && p->n_parts <= GSP_PARTS_MAX &&
           p->next.n <= GSP_MEMBERS_MAX && p->n_barred <= GSP_BARRED_MAX;
}

void gsp_contents_hash(const gsp_seals *seals, const gsp_proposal *p, gsp_hash *out)
{
    uint8_t bytes[TEXT_BYTES_MAX];
    text t = {.at = bytes};
    put_tag(&t, "contents");
    put_u32(&t, p->n_contributors);
    put_u32(&t, p->n_parts);
    put_u32(&t, p->next.n);
    put_contributors(&t, p->contributor, p->n_contributors);
    for (uint32_t i = 0; i < p->n_parts; i++) {
        put_part(&t, &p->part[i]);
        put_u8(&t, p->part[i].owner);
        put(&t, p->part[i].seal, sizeof p->part[i].seal);
    }
    for (uint32_t i = 0; i < p->next.n; i++) {
        put_u8(&t, p->missed[i]);
        put_u8(&t, p->against[i]);
    }
    put_barred(&t, p->barred, p->n_barred);
    ATOM_ASSERT(t.n <= sizeof bytes);
    seals->hash(seals->context, bytes, t.n, out);
}

void gsp_head_of(const gsp_seals *seals, const gsp_proposal *p, gsp_head *out)
{
    *out = (gsp_head){.lineage = p->lineage,
                      .version = p->version,
                      .previous = p->previous,
                      .tokens = p->tokens,
                      .samples = p->samples,
                      .next = p->next,
                      .since = p->since,
                      .made = p->made};
    gsp_contents_hash(seals, p, &out->contents);
}

void gsp_head_hash(const gsp_seals *seals, const gsp_head *h, gsp_hash *out)
{
    uint8_t bytes[HEAD_BYTES_MAX];
    text t = {.at = bytes};
    put_tag(&t, "proposal");
    put_hash(&t, &h->lineage);
    put_u64(&t, h->version);
    put_hash(&t, &h->previous);
    put_u64(&t, h->tokens);
    put_u64(&t, h->samples);
    put_hash(&t, &h->contents);
    put_roster(&t, &h->next);
    put_u64(&t, h->since);
    put_u64(&t, h->made);
    ATOM_ASSERT(t.n <= sizeof bytes);
    seals->hash(seals->context, bytes, t.n, out);
}

void gsp_proposal_hash(const gsp_seals *seals, const gsp_proposal *p, gsp_hash *out)
{
    gsp_head head;
    gsp_head_of(seals, p, &head);
    gsp_head_hash(seals, &head, out);
}

void gsp_contribution_hash(const gsp_seals *seals, const gsp_contribution *c, gsp_hash *out)
{
    uint8_t bytes[128];
    text t = {.at = bytes};
    put_tag(&t, "contrib.");
    put_hash(&t, &c->root);
    put_u64(&t, c->tokens);
    put_u64(&t, c->samples);
    seals->hash(seals->context, bytes, t.n, out);
}

void gsp_part_hash(const gsp_seals *seals, uint32_t number, const gsp_part *part, gsp_hash *out)
{
    uint8_t bytes[160];
    text t = {.at = bytes};
    put_tag(&t, "reduced.");
    put_u32(&t, number);
    put_part(&t, part);
    seals->hash(seals->context, bytes, t.n, out);
}

void gsp_contributors_hash(const gsp_seals *seals, const gsp_contributor *contributor, uint32_t n,
                           gsp_hash *out)
{
    uint8_t bytes[16 + GSP_MEMBERS_MAX * (1 + GSP_HASH_BYTES + 24)];
    text t = {.at = bytes};
    ATOM_ASSERT(n <= GSP_MEMBERS_MAX);
    put_tag(&t, "brought.");
    put_u32(&t, n);
    put_contributors(&t, contributor, n);
    seals->hash(seals->context, bytes, t.n, out);
}

void gsp_reduced_statement(const gsp_seals *seals, const gsp_hash *lineage, uint64_t version,
                           uint32_t number, const gsp_part *part, const gsp_hash *contributors,
                           const gsp_member *owner, gsp_statement *out)
{
    *out = (gsp_statement){.kind = GSP_SAYS_REDUCED,
                           .lineage = *lineage,
                           .version = version,
                           .item = number,
                           .root = *contributors,
                           .signer = *owner};
    gsp_part_hash(seals, number, part, &out->subject);
    memcpy(out->seal, part->seal, sizeof out->seal);
}

void gsp_genesis_hash(const gsp_seals *seals, const gsp_genesis *g, gsp_hash *out)
{
    uint8_t bytes[HEAD_BYTES_MAX];
    text t = {.at = bytes};
    ATOM_ASSERT(g->roster.n <= GSP_MEMBERS_MAX && g->n_barred <= GSP_BARRED_MAX);
    put_tag(&t, "genesis.");
    put_hash(&t, &g->pool);
    put_u32(&t, g->cell);
    put_u32(&t, g->reset);
    put_u32(&t, g->generation);
    put_hash(&t, &g->parent);
    put_u64(&t, g->version);
    put_hash(&t, &g->previous);
    put_hash(&t, &g->anchor);
    put_u64(&t, g->tokens);
    put_u64(&t, g->samples);
    put_member(&t, &g->founder);
    put_roster(&t, &g->roster);
    put_barred(&t, g->barred, g->n_barred);
    put_hash(&t, &g->order.parent);
    put_u64(&t, g->order.version);
    seals->hash(seals->context, bytes, t.n, out);
}

void gsp_genesis_roster(const gsp_genesis *g, gsp_roster *out)
{
    const gsp_roster alone = {.n = 1, .member = {g->founder}};
    *out = g->roster.n ? g->roster : alone;
}

static size_t order_text(const gsp_genesis *g, uint8_t *bytes)
{
    text t = {.at = bytes};
    put_tag(&t, "reset...");
    put_hash(&t, &g->pool);
    put_u32(&t, g->cell);
    put_u32(&t, g->reset);
    put_hash(&t, &g->order.parent);
    put_u64(&t, g->order.version);
    return t.n;
}

void gsp_order_seal(const gsp_seals *seals, gsp_genesis *g)
{
    uint8_t bytes[128];
    g->order.parent = g->parent;
    g->order.version = g->version;
    size_t n = order_text(g, bytes);
    seals->seal(seals->context, bytes, n, g->order.seal);
}

bool gsp_roster_equal(const gsp_roster *a, const gsp_roster *b)
{
    return a->n == b->n && memcmp(a->member, b->member, a->n * sizeof a->member[0]) == 0;
}

bool gsp_roster_sane(const gsp_roster *r)
{
    if (r->n == 0 || r->n > GSP_MEMBERS_MAX)
        return false;
    for (uint32_t i = 0; i < r->n; i++)
        if (r->member[i].incarnation == 0 ||
            (i > 0 && gsp_key_compare(&r->member[i - 1].key, &r->member[i].key) >= 0))
            return false;
    return true;
}

/* Everybody on the roster of a fork signed its id. A founder alone has no roster. */
static const char *founders_wrong(const gsp_seals *seals, const gsp_genesis *g, const gsp_hash *id)
{
    static const uint8_t none[GSP_SEAL_BYTES];
    if (!seals->verify(seals->context, &g->founder.key, id->byte, sizeof id->byte, g->seal))
        return "a lineage that its founder did not sign";
    if (g->roster.n == 0)
        return NULL;
    uint32_t founder = gsp_roster_find(&g->roster, &g->founder);
    if (!gsp_roster_sane(&g->roster) || g->roster.n < 2 || founder == GSP_NOBODY ||
        memcmp(g->consent[founder], none, sizeof none) != 0)
        return "a fork whose roster is not in order";
    for (uint32_t i = 0; i < g->roster.n; i++)
        if (i != founder && !seals->verify(seals->context, &g->roster.member[i].key, id->byte,
                                           sizeof id->byte, g->consent[i]))
            return "a fork that one of its roster did not sign";
    return NULL;
}

/* One of those who begin it is to stay out. */
static bool lets_in(const gsp_genesis *g)
{
    gsp_roster roster;
    gsp_genesis_roster(g, &roster);
    for (uint32_t k = 0; k < g->n_barred; k++)
        if (gsp_roster_find_key(&roster, &g->barred[k].key) != GSP_NOBODY)
            return true;
    return false;
}

const char *gsp_genesis_wrong(const gsp_seals *seals, const gsp_key *owner, const gsp_genesis *g)
{
    static const gsp_order none;
    uint8_t bytes[128];
    gsp_hash id;
    if (g->version > GSP_VERSION_MAX || g->tokens > GSP_CERTIFIED_MAX ||
        g->samples > GSP_CERTIFIED_MAX)
        return "numbers that cannot be";
    if (g->roster.n > GSP_MEMBERS_MAX || (g->generation == 0 && (g->roster.n || g->n_barred)))
        return "a roster where none may be";
    if (g->n_barred > GSP_BARRED_MAX || lets_in(g))
        return "a lineage that begins with a member that is to stay out";
    if (g->reset == 0 && memcmp(&g->order, &none, sizeof none) != 0)
        return "an order without a reset";
    if (g->generation == 0)
        return g->reset ? "a reset of nothing" : NULL;
    size_t n = order_text(g, bytes);
    if (g->reset && !seals->verify(seals->context, owner, bytes, n, g->order.seal))
        return "a reset that the owner did not order";
    gsp_genesis_hash(seals, g, &id);
    return founders_wrong(seals, g, &id);
}

static size_t statement_text(const gsp_statement *s, uint8_t *bytes)
{
    text t = {.at = bytes};
    put_tag(&t, "says....");
    put_u8(&t, s->kind);
    put_hash(&t, &s->lineage);
    put_u64(&t, s->version);
    put_u32(&t, s->ballot);
    put_u32(&t, s->item);
    put_u32(&t, s->voted);
    put_hash(&t, &s->subject);
    put_hash(&t, &s->root);
    put_member(&t, &s->signer);
    return t.n;
}

void gsp_statement_seal(const gsp_seals *seals, gsp_statement *statement)
{
    uint8_t bytes[STATEMENT_BYTES_MAX];
    size_t n = statement_text(statement, bytes);
    seals->seal(seals->context, bytes, n, statement->seal);
}

/* Nothing stands in a field that the kind does not use. A certificate repeats seals and not those
 * fields, so a vote with something in them would be one that nobody else can check. */
static bool plain(const gsp_statement *s)
{
    bool promise = s->kind == GSP_SAYS_PROMISE, reduced = s->kind == GSP_SAYS_REDUCED;
    bool leave = s->kind == GSP_SAYS_LEAVE, join = s->kind == GSP_SAYS_JOIN;
    if (s->kind < GSP_SAYS_PROMISE || s->kind >= GSP_SAYS_N)
        return false;
    return (reduced || promise || s->item == 0) && (promise || s->voted == 0) &&
           (promise || reduced || gsp_hash_none(&s->root)) &&
           (!promise || (s->voted != 0) == !gsp_hash_none(&s->subject)) &&
           (!(reduced || leave || join) || s->ballot == 0) &&
           (!leave || (s->version == 0 && gsp_hash_none(&s->subject)));
}

bool gsp_statement_verify(const gsp_seals *seals, const gsp_statement *s)
{
    uint8_t bytes[STATEMENT_BYTES_MAX];
    if (!plain(s))
        return false;
    size_t n = statement_text(s, bytes);
    return seals->verify(seals->context, &s->signer.key, bytes, n, s->seal);
}

/* a is a promise, b a vote cast before it that it does not admit. */
static bool denies(const gsp_statement *a, const gsp_statement *b)
{
    return a->kind == GSP_SAYS_PROMISE && b->kind == GSP_SAYS_VOTE && b->ballot < a->ballot &&
           (a->voted < b->ballot ||
            (a->voted == b->ballot && !gsp_hash_equal(&a->subject, &b->subject)));
}

bool gsp_statements_convict(const gsp_seals *seals, const gsp_statement *a, const gsp_statement *b)
{
    if (!gsp_member_equal(&a->signer, &b->signer) || !gsp_hash_equal(&a->lineage, &b->lineage) ||
        a->version != b->version)
        return false;
    bool same = a->kind == b->kind && a->ballot == b->ballot && a->item == b->item;
    bool twice = same && (a->kind == GSP_SAYS_PROPOSE || a->kind == GSP_SAYS_ECHO ||
                          a->kind == GSP_SAYS_VOTE);
    bool differ = twice && !gsp_hash_equal(&a->subject, &b->subject);
    if (!differ && !denies(a, b) && !denies(b, a))
        return false;
    return gsp_statement_verify(seals, a) && gsp_statement_verify(seals, b);
}

bool gsp_quorum(gsp_trust trust, uint32_t n, uint32_t voters)
{
    uint32_t count = (uint32_t)__builtin_popcount(voters);
    if (trust == GSP_STRANGERS)
        return 3 * count > 2 * n;
    return 2 * count > n || (2 * count == n && (voters & 1));
}

uint32_t gsp_liars_max(gsp_trust trust, uint32_t n)
{
    if (trust == GSP_STRANGERS)
        return n ? (n - 1) / 3 : 0;
    return n >= 3;
}

static const char *const trust_names[GSP_TRUST_N] = {"friends", "strangers"};

const char *gsp_trust_name(gsp_trust trust)
{
    return trust_names[trust];
}

bool gsp_trust_parse(const char *name, gsp_trust *out)
{
    for (int k = 0; k < GSP_TRUST_N; k++)
        if (strcmp(name, trust_names[k]) == 0) {
            *out = (gsp_trust)k;
            return true;
        }
    return false;
}

bool gsp_certificate_check(const gsp_seals *seals, gsp_trust trust, const gsp_roster *roster,
                           const gsp_hash *previous, const gsp_certificate *c)
{
    if (!gsp_proposal_fits(&c->proposal) || c->n_votes > roster->n ||
        !gsp_hash_equal(&c->proposal.previous, previous))
        return false;
    gsp_statement vote = {.kind = GSP_SAYS_VOTE,
                          .lineage = c->proposal.lineage,
                          .version = c->proposal.version,
                          .ballot = c->ballot};
    gsp_proposal_hash(seals, &c->proposal, &vote.subject);
    uint32_t voters = 0;
    for (uint32_t i = 0; i < c->n_votes; i++) {
        uint32_t m = c->vote[i].member;
        if (m >= roster->n || (voters >> m) != 0)
            return false;
        voters |= 1u << m;
        vote.signer = roster->member[m];
        memcpy(vote.seal, c->vote[i].seal, sizeof vote.seal);
        if (!gsp_statement_verify(seals, &vote))
            return false;
    }
    return gsp_quorum(trust, roster->n, voters);
}
