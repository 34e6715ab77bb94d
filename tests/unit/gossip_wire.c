/*
 * Messages as bytes: every kind with random content comes back equal, every cut is refused, and
 * damage is either refused or is another message that encodes to those very bytes.
 */
#include "gossip/agree/wire.h"
#include "tests/lib/sanitized.h"

#include <setjmp.h>
#include <sodium.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t state = 7;
static uint32_t draw(uint32_t below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % below;
}

static void fill(void *out, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        ((uint8_t *)out)[i] = (uint8_t)draw(256);
}

/* Random everywhere; then counts, flags and floats are made what they may be, and unused parts
 * zero, as types.h wants them. */
static void tidy_contributors(uint32_t *n, gsp_contributor *x)
{
    gsp_contributor kept[GSP_MEMBERS_MAX];
    *n = draw(GSP_MEMBERS_MAX + 1);
    memcpy(kept, x, sizeof kept);
    memset(x, 0, sizeof kept);
    for (uint32_t i = 0; i < *n; i++) {
        x[i].member = kept[i].member;
        x[i].root = kept[i].root;
        x[i].tokens = kept[i].tokens;
        x[i].samples = kept[i].samples;
        x[i].weight = kept[i].weight;
    }
}

static void make_proposal(gsp_proposal *p)
{
    memset(p, 0, sizeof *p);
    fill(&p->lineage, sizeof p->lineage);
    fill(&p->version, sizeof p->version);
    fill(&p->previous, sizeof p->previous);
    fill(&p->tokens, sizeof p->tokens);
    fill(&p->samples, sizeof p->samples);
    fill(p->contributor, sizeof p->contributor);
    tidy_contributors(&p->n_contributors, p->contributor);
    p->n_parts = draw(GSP_PARTS_MAX + 1);
    for (uint32_t i = 0; i < p->n_parts; i++) {
        fill(&p->part[i].hash, sizeof p->part[i].hash);
        fill(&p->part[i].included, sizeof p->part[i].included);
        fill(&p->part[i].weight, sizeof p->part[i].weight);
        p->part[i].norm = (float)draw(1000000) / 7.0f;
        for (uint32_t k = 0; k < GSP_MEMBERS_MAX; k++)
            p->part[i].lean[k] = p->part[i].included >> k & 1 ? (int8_t)draw(256) : 0;
        if (p->part[i].included) {
            p->part[i].owner = (uint8_t)draw(256);
            fill(p->part[i].seal, sizeof p->part[i].seal);
        }
    }
    fill(&p->since, sizeof p->since);
    fill(&p->made, sizeof p->made);
    p->next.n = draw(GSP_MEMBERS_MAX + 1);
    fill(p->next.member, p->next.n * sizeof *p->next.member);
    fill(p->missed, p->next.n);
    fill(p->against, p->next.n);
    p->n_barred = draw(GSP_BARRED_MAX + 1);
    for (uint32_t i = 0; i < p->n_barred; i++) {
        fill(&p->barred[i].key, sizeof p->barred[i].key);
        fill(&p->barred[i].versions, sizeof p->barred[i].versions);
    }
}

static void make_statement(gsp_statement *s)
{
    memset(s, 0, sizeof *s);
    s->kind = (uint8_t)draw(256);
    fill(&s->lineage, sizeof s->lineage);
    fill(&s->version, sizeof s->version);
    fill(&s->ballot, sizeof s->ballot);
    fill(&s->item, sizeof s->item);
    fill(&s->voted, sizeof s->voted);
    fill(&s->subject, sizeof s->subject);
    fill(&s->root, sizeof s->root);
    fill(&s->signer, sizeof s->signer);
    fill(s->seal, sizeof s->seal);
}

static void make_rates(gsp_rates *r)
{
    memset(r, 0, sizeof *r);
    fill(&r->up_bytes_per_s, 8);
    fill(&r->down_bytes_per_s, 8);
    r->accepts = draw(2);
}

static void make_certificate(gsp_certificate *c)
{
    memset(c, 0, sizeof *c);
    make_proposal(&c->proposal);
    fill(&c->ballot, 4);
    c->n_votes = draw(GSP_MEMBERS_MAX + 1);
    fill(c->vote, c->n_votes * sizeof *c->vote);
}

static void make_genesis(gsp_genesis *g)
{
    memset(g, 0, sizeof *g);
    fill(&g->pool, sizeof g->pool);
    fill(&g->cell, sizeof g->cell);
    fill(&g->reset, sizeof g->reset);
    fill(&g->generation, sizeof g->generation);
    fill(&g->parent, sizeof g->parent);
    fill(&g->version, sizeof g->version);
    fill(&g->previous, sizeof g->previous);
    fill(&g->anchor, sizeof g->anchor);
    fill(&g->tokens, sizeof g->tokens);
    fill(&g->samples, sizeof g->samples);
    fill(&g->founder, sizeof g->founder);
    fill(&g->order, sizeof g->order);
    fill(g->seal, sizeof g->seal);
    g->roster.n = draw(GSP_MEMBERS_MAX + 1);
    fill(g->roster.member, g->roster.n * sizeof g->roster.member[0]);
    fill(g->consent, g->roster.n * sizeof g->consent[0]);
    fill(g->barred, (g->n_barred = draw(GSP_BARRED_MAX + 1)) * sizeof g->barred[0]);
}

static void make_step(gsp_step *x)
{
    gsp_chain_link *link = &x->as.link;
    *x = (gsp_step){.is_genesis = draw(3) == 0};
    if (x->is_genesis) {
        make_genesis(&x->as.genesis);
        return;
    }
    fill(&link->head, offsetof(gsp_head, next)); /* no gaps */
    link->head.next.n = draw(GSP_MEMBERS_MAX + 1);
    fill(link->head.next.member, link->head.next.n * sizeof link->head.next.member[0]);
    fill(&link->head.since, 16); /* and `made` */
    fill(&link->ballot, 4);
    link->n_votes = draw(GSP_MEMBERS_MAX + 1);
    fill(link->vote, link->n_votes * sizeof link->vote[0]);
}

static void make_chain(gsp_message *m)
{
    if (m->kind == GSP_CHAIN_ASK) {
        m->as.chain_ask.n = draw(GSP_LOCATOR_MAX + 1);
        fill(m->as.chain_ask.known, m->as.chain_ask.n * sizeof m->as.chain_ask.known[0]);
        return;
    }
    gsp_chain_said *c = &m->as.chain;
    *c = (gsp_chain_said){.more = draw(2), .n = draw(GSP_CHAIN_SAID_MAX + 1)};
    for (uint32_t k = 0; k < c->n; k++)
        make_step(&c->step[k]);
}

static void make_entry(gsp_entry *e)
{
    make_statement(&e->wish);
    e->shown.bytes = draw(GSP_SHOWN_BYTES_MAX + 1);
    fill(e->shown.data, e->shown.bytes);
}

static void make_proof(gsp_proof *p)
{
    memset(p, 0, sizeof *p);
    p->n = draw(GSP_MEMBERS_MAX + 1);
    for (uint32_t k = 0; k < p->n; k++)
        make_statement(&p->echo[k]);
    p->changes.n_entries = draw(GSP_MEMBERS_MAX + 1);
    for (uint32_t k = 0; k < p->changes.n_entries; k++)
        make_entry(&p->changes.entry[k]);
    p->changes.n_exits = draw(GSP_MEMBERS_MAX + 1);
    for (uint32_t k = 0; k < p->changes.n_exits; k++) {
        make_statement(&p->changes.exit[k].first);
        make_statement(&p->changes.exit[k].second);
    }
}

static void make_round(gsp_message *m)
{
    gsp_begin *b = &m->as.begin;
    switch (m->kind) {
    case GSP_PROMISE:
        make_statement(&m->as.promise.statement);
        fill(&m->as.promise.contribution.root, sizeof(gsp_hash));
        fill(&m->as.promise.contribution.tokens, 8);
        fill(&m->as.promise.contribution.samples, 8);
        make_rates(&m->as.promise.contribution.rates);
        m->as.promise.has_proposal = draw(2);
        if (m->as.promise.has_proposal) {
            make_proposal(&m->as.promise.proposal);
            make_proof(&m->as.promise.proof);
        }
        break;
    case GSP_BEGIN:
        fill(&b->previous, sizeof b->previous);
        fill(&b->attempt, sizeof b->attempt);
        fill(&b->collect_ns, 8);
        fill(&b->finish_ns, 8);
        fill(b->contributor, sizeof b->contributor);
        tidy_contributors(&b->n_contributors, b->contributor);
        b->n_parts = draw(GSP_PARTS_MAX + 1);
        fill(b->owner, b->n_parts);
        break;
    case GSP_REDUCED:
        make_statement(&m->as.reduced.statement);
        fill(&m->as.reduced.part.hash, sizeof(gsp_hash));
        fill(&m->as.reduced.part.included, 4);
        fill(&m->as.reduced.part.weight, 8);
        m->as.reduced.part.norm = (float)draw(9);
        for (uint32_t k = 0; k < GSP_MEMBERS_MAX; k++)
            m->as.reduced.part.lean[k] =
                m->as.reduced.part.included >> k & 1 ? (int8_t)draw(256) : 0;
        break;
    case GSP_PROPOSE:
        make_statement(&m->as.propose.statement);
        make_proposal(&m->as.propose.proposal);
        m->as.propose.n_promises = draw(GSP_MEMBERS_MAX + 1);
        for (uint32_t i = 0; i < m->as.propose.n_promises; i++)
            make_statement(&m->as.propose.promise[i]);
        make_proof(&m->as.propose.proof);
        break;
    default:
        break;
    }
}

static void make_bytes(gsp_message *m, uint32_t body)
{
    gsp_piece *p = &m->as.piece;
    if (m->kind == GSP_PULL) {
        fill(&m->as.pull.root, sizeof(gsp_hash));
        m->as.pull.is_result = draw(2);
        fill(&m->as.pull.part, 4);
        fill(&m->as.pull.offset, 8);
    } else {
        fill(&p->root, sizeof p->root);
        p->is_result = draw(2);
        p->codec = (uint8_t)draw(256);
        fill(&p->part, 4);
        fill(&p->sequence, 4);
        p->offset = draw(1u << 20);
        p->bytes = body;
        p->part_bytes = p->offset + body + draw(100);
        p->n_path = draw(9);
        fill(p->path, p->n_path * sizeof *p->path);
    }
}

static void make_state(gsp_message *m, uint32_t body)
{
    gsp_state_roots *r = &m->as.roots;
    gsp_state_chunk *c = &m->as.chunk;
    switch (m->kind) {
    case GSP_STATE_ROOTS:
        make_genesis(&r->genesis);
        r->has_certificate = draw(2);
        if (r->has_certificate)
            make_certificate(&r->certificate);
        r->n_fragments = draw(GSP_FRAGMENTS_MAX + 1);
        fill(r->fragment, r->n_fragments * sizeof *r->fragment);
        fill(r->seal, sizeof r->seal);
        break;
    case GSP_STATE_CHUNK:
        fill(&c->fragment, 4);
        fill(&c->version, 8);
        fill(&c->root, sizeof c->root);
        fill(&c->chunk, 4);
        c->bytes = body;
        c->n_path = draw(GSP_STATE_PATH_MAX + 1);
        fill(c->path, c->n_path * sizeof *c->path);
        break;
    case GSP_STATE_PULL:
    case GSP_STATE_NONE:
        fill(&m->as.state_pull.fragment, 4);
        fill(&m->as.state_pull.version, 8);
        fill(&m->as.state_pull.root, sizeof(gsp_hash));
        fill(&m->as.state_pull.first, 4);
        fill(&m->as.state_pull.n, 4);
        break;
    default:
        break;
    }
}

static void make_claim(gsp_claim *c)
{
    static gsp_proposal p;
    do
        make_proposal(&p);
    while (p.n_parts == 0);
    fill(&c->version, sizeof c->version);
    fill(&c->owner, sizeof c->owner);
    fill(&c->number, sizeof c->number);
    c->part = p.part[0];
    c->n_contributors = p.n_contributors;
    memcpy(c->contributor, p.contributor, sizeof c->contributor);
}

static void make_people(gsp_message *m)
{
    gsp_heartbeat *h = &m->as.heartbeat;
    switch (m->kind) {
    case GSP_HEARTBEAT:
        fill(&h->sequence, 8);
        fill(&h->applied, 8);
        fill(&h->anchor, sizeof h->anchor);
        fill(&h->tokens, 8);
        fill(&h->samples, 8);
        fill(&h->tokens_live, 8);
        make_rates(&h->rates);
        h->health = (uint8_t)draw(256);
        fill(&h->round_ms, 4);
        break;
    case GSP_JOIN:
        make_entry(&m->as.join.entry);
        make_rates(&m->as.join.rates);
        break;
    case GSP_WAIT:
        fill(&m->as.wait, sizeof m->as.wait);
        break;
    case GSP_LEAVE:
        make_statement(&m->as.leave.statement);
        break;
    case GSP_EVIDENCE:
        make_statement(&m->as.evidence.first);
        make_statement(&m->as.evidence.second);
        break;
    case GSP_ACCUSE:
        make_claim(&m->as.accuse.claim);
        break;
    case GSP_LINEAGE:
        make_genesis(&m->as.announce.genesis);
        break;
    case GSP_WITHHELD:
        fill(&m->as.withheld.version, 8);
        fill(&m->as.withheld.part, 4);
        fill(&m->as.withheld.missing, 4);
        break;
    case GSP_CONSENT:
        fill(&m->as.consent, sizeof m->as.consent);
        break;
    default:
        make_round(m);
    }
}

static void make(gsp_message *m, gsp_message_kind kind, uint32_t body)
{
    memset(m, 0, sizeof *m);
    m->kind = kind;
    fill(&m->from.key, sizeof m->from.key);
    fill(&m->from.incarnation, 8);
    fill(&m->lineage, sizeof m->lineage);
    fill(&m->version, 8);
    fill(&m->ballot, 4);
    if (kind == GSP_PREPARE)
        fill(&m->as.prepare, sizeof m->as.prepare);
    else if (kind == GSP_REFUSE)
        fill(&m->as.refuse, sizeof m->as.refuse);
    else if (kind == GSP_ECHO || kind == GSP_VOTE)
        make_statement(&m->as.vote.statement);
    else if (kind == GSP_CERTIFY)
        make_certificate(&m->as.certify.certificate);
    else if (kind == GSP_ASK)
        fill(&m->as.ask, sizeof m->as.ask);
    else if (kind == GSP_PIECE || kind == GSP_PULL)
        make_bytes(m, body);
    else if (kind == GSP_CHAIN_ASK || kind == GSP_CHAIN)
        make_chain(m);
    else if (kind >= GSP_STATE_ASK)
        make_state(m, body);
    else
        make_people(m);
}

enum { BODY_MAX = 40, ROUNDS = SANITIZED ? 20 : 200, DAMAGED = SANITIZED ? 1000 : 3000, STEP = 13 };
static gsp_message one, two;
static uint8_t wire[GSP_WIRE_BYTES_MAX + BODY_MAX], back[GSP_WIRE_BYTES_MAX];

/* Bytes follow. */
static bool heads(unsigned kind)
{
    return kind == GSP_PIECE || kind == GSP_STATE_CHUNK;
}

/* Encodes `one` with a body behind a PIECE; returns all bytes. */
static size_t encode(uint32_t body)
{
    size_t bytes = gsp_wire_encode(&one, wire, GSP_WIRE_BYTES_MAX);
    assert_true(bytes >= GSP_WIRE_HEAD_BYTES);
    if (!heads(one.kind))
        return bytes;
    assert_true(bytes % 8 == 0);
    assert_true(one.kind == GSP_STATE_CHUNK || bytes <= GSP_WIRE_PIECE_BYTES_MAX);
    fill(wire + bytes, body);
    return bytes + body;
}

static bool decode(const void *data, size_t bytes, const void **body, size_t *body_bytes)
{
    memset(&two, 0, sizeof two);
    return gsp_wire_decode(data, bytes, &one.from.key, &two, body, body_bytes);
}

static void every_kind_comes_back(void **unused)
{
    (void)unused;
    const void *rest;
    size_t rest_bytes;
    for (int round = 0; round < ROUNDS; round++)
        for (unsigned kind = GSP_HEARTBEAT; kind < GSP_MESSAGE_N; kind++) {
            uint32_t body = draw(BODY_MAX + 1);
            make(&one, (gsp_message_kind)kind, body);
            size_t bytes = encode(body);
            assert_true(decode(wire, bytes, &rest, &rest_bytes));
            assert_memory_equal(&one, &two, gsp_message_bytes((gsp_message_kind)kind));
            if (heads(kind))
                assert_true(rest == wire + bytes - body && rest_bytes == body);
            else
                assert_true(rest == NULL && rest_bytes == 0);
            assert_true(gsp_wire_encode(&two, back, sizeof back) == bytes - rest_bytes);
            assert_memory_equal(wire, back, bytes - rest_bytes);
        }
}

/* A sanitizer sees every cut near the ends, and each place of the fields of long lists. */
static size_t next_cut(size_t cut, size_t bytes)
{
    bool middle = SANITIZED && cut >= 700 && cut + STEP + 100 < bytes;
    return cut + (middle ? STEP : 1);
}

static void cuts_and_tails_are_refused(void **unused)
{
    (void)unused;
    const void *rest;
    size_t rest_bytes;
    for (unsigned kind = GSP_HEARTBEAT; kind < GSP_MESSAGE_N; kind++) {
        make(&one, (gsp_message_kind)kind, 5);
        size_t bytes = encode(5);
        for (size_t cut = 0; cut < bytes; cut = next_cut(cut, bytes)) {
            uint8_t *exact = malloc(cut + 1); /* a sanitizer sees one byte too many */
            assert_non_null(exact);
            memcpy(exact, wire, cut);
            assert_false(decode(exact, cut, &rest, &rest_bytes));
            free(exact);
            if (cut < bytes - (heads(kind) ? 5 : 0))
                assert_true(gsp_wire_encode(&one, back, cut) == 0);
        }
        wire[bytes] = 0;
        assert_false(decode(wire, bytes + 1, &rest, &rest_bytes));
        if (heads(kind))
            assert_false(decode(wire, bytes, NULL, NULL));
    }
}

static void damage_is_refused_or_is_canonical(void **unused)
{
    (void)unused;
    const void *rest;
    size_t rest_bytes, refused = 0, other = 0;
    for (int round = 0; round < DAMAGED; round++) {
        make(&one, (gsp_message_kind)(GSP_HEARTBEAT + draw(GSP_MESSAGE_N - 1)), 8);
        size_t bytes = encode(8);
        for (uint32_t k = draw(4) + 1; k > 0; k--)
            wire[draw(2) ? draw((uint32_t)bytes) : draw(160) % bytes] ^= (uint8_t)(1 + draw(255));
        if (!decode(wire, bytes, &rest, &rest_bytes)) {
            refused++;
            continue;
        }
        other++;
        assert_true(gsp_wire_encode(&two, back, sizeof back) == bytes - rest_bytes);
        assert_memory_equal(wire, back, bytes - rest_bytes);
    }
    assert_true(refused > DAMAGED / 20 && other > DAMAGED / 20);
}

static void what_may_not_be_is_not_written(void **unused)
{
    (void)unused;
    make(&one, GSP_REDUCED, 0);
    one.as.reduced.part.norm = -1.0f;
    assert_true(gsp_wire_encode(&one, wire, sizeof wire) == 0);
    one.as.reduced.part.norm = (float)(1.0 / (double)(one.ballot & 0u));
    assert_true(gsp_wire_encode(&one, wire, sizeof wire) == 0);
    make(&one, GSP_BEGIN, 0);
    one.as.begin.n_contributors = GSP_MEMBERS_MAX + 1;
    assert_true(gsp_wire_encode(&one, wire, sizeof wire) == 0);
    make(&one, GSP_ASK, 0);
    one.kind = GSP_MESSAGE_N;
    assert_true(gsp_wire_encode(&one, wire, sizeof wire) == 0);
    one.kind = GSP_ASK;
    size_t bytes = gsp_wire_encode(&one, wire, sizeof wire);
    wire[0]++; /* another version of types.h */
    assert_false(decode(wire, bytes, NULL, NULL));
}

static void files_come_back(void **unused)
{
    (void)unused;
    static gsp_saved saved, read;
    static uint8_t bytes[GSP_WIRE_SAVED_BYTES_MAX];
    for (int round = 0; round < 100; round++) {
        memset(&saved, 0, sizeof saved);
        make_genesis(&saved.genesis);
        saved.has_certificate = draw(2);
        if (saved.has_certificate)
            make_certificate(&saved.certificate);
        fill(&saved.record.self, sizeof saved.record.self);
        fill(&saved.record.lineage, sizeof saved.record.lineage);
        saved.record.version = draw(100);
        saved.record.promised = draw(100);
        saved.record.echoed = draw(2) ? draw(100) : 0;
        if (saved.record.echoed)
            fill(&saved.record.echo, sizeof saved.record.echo);
        saved.record.voted = draw(2) ? draw(100) : 0;
        if (saved.record.voted) {
            make_proposal(&saved.record.proposal);
            make_proof(&saved.record.proof);
        }
        size_t n = gsp_wire_put_saved(&saved, bytes, sizeof bytes);
        assert_true(n > 0 && gsp_wire_get_saved(bytes, n, &read));
        assert_memory_equal(&saved, &read, sizeof saved);
        assert_false(gsp_wire_get_saved(bytes, n - 1, &read));
        n = gsp_wire_put_record(&saved.record, bytes, sizeof bytes);
        assert_true(n > 0 && gsp_wire_get_record(bytes, n, &read.record));
        assert_memory_equal(&saved.record, &read.record, sizeof saved.record);
        assert_false(gsp_wire_get_record(bytes, n - 1, &read.record));
    }
}

/* Of four messages of each kind with the same content every time: what other builds of this version
 * of the protocol write and expect. A new layout is a new GSP_TYPES_VERSION, and new values here. */
static void every_kind_has_the_bytes_that_others_expect(void **unused)
{
    (void)unused;
    static const uint64_t expected[GSP_MESSAGE_N] = {
        [GSP_HEARTBEAT] = 0xfe418b9899b1470cu,   [GSP_PREPARE] = 0xe1e02ef9fec439ebu,
        [GSP_PROMISE] = 0x6fa9c209857f7576u,     [GSP_REFUSE] = 0xdae76775aae7c9aeu,
        [GSP_BEGIN] = 0xb34c80d12e279b60u,       [GSP_REDUCED] = 0x560dfb55114613c8u,
        [GSP_PROPOSE] = 0xddad570a52c929dfu,     [GSP_ECHO] = 0x3afea5910137e611u,
        [GSP_VOTE] = 0x31b680fb8dc71690u,        [GSP_CERTIFY] = 0x52cf0d7cbf08c0c1u,
        [GSP_ASK] = 0x58c522aa1c94de4bu,         [GSP_JOIN] = 0x5f0c19dee1c14c09u,
        [GSP_WAIT] = 0x5a7acc5174e6b4dau,        [GSP_LEAVE] = 0xcfb58354fcbf849du,
        [GSP_EVIDENCE] = 0xe41c18d602ba1808u,    [GSP_ACCUSE] = 0xeefdcd3ea2e35302u,
        [GSP_LINEAGE] = 0x09420410ff35dca3u,     [GSP_CONSENT] = 0x95a67f3cda9adde7u,
        [GSP_WITHHELD] = 0x2e521970639a64fau,    [GSP_PIECE] = 0xb0bbd28609a065bau,
        [GSP_PULL] = 0x51827c7b784becd1u,        [GSP_STATE_ASK] = 0x0989ec9fb2442b56u,
        [GSP_STATE_ROOTS] = 0x7c0826b9e74a96a7u, [GSP_STATE_PULL] = 0x1001f951e477bf6du,
        [GSP_STATE_NONE] = 0x85d9fa2874ba45ccu,  [GSP_STATE_CHUNK] = 0x2e8da370bc3ef707u,
        [GSP_CHAIN_ASK] = 0x2834dcd2191a760eu,   [GSP_CHAIN] = 0x3145212de938cf89u,
    };
    bool all_equal = true;
    for (unsigned kind = GSP_HEARTBEAT; kind < GSP_MESSAGE_N; kind++) {
        uint8_t digest[32];
        uint64_t found = 0;
        crypto_generichash_state all;
        crypto_generichash_init(&all, NULL, 0, sizeof digest);
        state = 1000 + kind;
        for (int round = 0; round < 4; round++) {
            make(&one, (gsp_message_kind)kind, 24);
            size_t bytes = gsp_wire_encode(&one, wire, sizeof wire);
            assert_true(bytes >= GSP_WIRE_HEAD_BYTES);
            crypto_generichash_update(&all, wire, bytes);
        }
        crypto_generichash_final(&all, digest, sizeof digest);
        for (int k = 0; k < 8; k++)
            found = found << 8 | digest[k];
        if (found != expected[kind])
            print_message("kind %u: 0x%016llxu\n", kind, (unsigned long long)found);
        all_equal &= found == expected[kind];
    }
    assert_true(all_equal);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_comes_back),
        cmocka_unit_test(cuts_and_tails_are_refused),
        cmocka_unit_test(damage_is_refused_or_is_canonical),
        cmocka_unit_test(what_may_not_be_is_not_written),
        cmocka_unit_test(files_come_back),
        cmocka_unit_test(every_kind_has_the_bytes_that_others_expect),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
