/*
 * Messages of every kind, and what is kept in files, with random content: as large as it can be, or
 * short. What the encoding does not carry is zero, so they come back equal. Nothing in them means
 * anything.
 */
#ifndef TESTS_LIB_RANDOM_MESSAGES_H
#define TESTS_LIB_RANDOM_MESSAGES_H

#include "gossip/agree/wire.h"

#include <stddef.h>
#include <string.h>

/* Counts are at most this, for short messages; 0: as many as there can be. */
static uint32_t at_most;
static uint64_t drawn = 7;

static inline uint32_t draw(uint32_t below)
{
    drawn = drawn * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(drawn >> 33) % below;
}

/* How many there are of what there can be `max` of. */
static inline uint32_t some(uint32_t max)
{
    return draw((at_most && at_most < max ? at_most : max) + 1);
}

static inline void fill(void *out, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        ((uint8_t *)out)[i] = (uint8_t)draw(256);
}

/* Random everywhere; then counts, flags and floats are made what they may be, and unused parts
 * zero, as types.h wants them. */
static inline void tidy_contributors(uint32_t *n, gsp_contributor *x)
{
    gsp_contributor kept[GSP_MEMBERS_MAX];
    *n = some(GSP_MEMBERS_MAX);
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

static inline void make_proposal(gsp_proposal *p)
{
    memset(p, 0, sizeof *p);
    fill(&p->lineage, sizeof p->lineage);
    fill(&p->version, sizeof p->version);
    fill(&p->previous, sizeof p->previous);
    fill(&p->tokens, sizeof p->tokens);
    fill(&p->samples, sizeof p->samples);
    fill(p->contributor, sizeof p->contributor);
    tidy_contributors(&p->n_contributors, p->contributor);
    p->n_parts = some(GSP_PARTS_MAX);
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
    p->next.n = some(GSP_MEMBERS_MAX);
    fill(p->next.member, p->next.n * sizeof *p->next.member);
    fill(p->missed, p->next.n);
    fill(p->against, p->next.n);
    p->n_barred = some(GSP_BARRED_MAX);
    for (uint32_t i = 0; i < p->n_barred; i++) {
        fill(&p->barred[i].key, sizeof p->barred[i].key);
        fill(&p->barred[i].versions, sizeof p->barred[i].versions);
    }
}

static inline void make_statement(gsp_statement *s)
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

static inline void make_rates(gsp_rates *r)
{
    memset(r, 0, sizeof *r);
    fill(&r->up_bytes_per_s, 8);
    fill(&r->down_bytes_per_s, 8);
    r->accepts = draw(2);
}

static inline void make_certificate(gsp_certificate *c)
{
    memset(c, 0, sizeof *c);
    make_proposal(&c->proposal);
    fill(&c->ballot, 4);
    c->n_votes = some(GSP_MEMBERS_MAX);
    fill(c->vote, c->n_votes * sizeof *c->vote);
}

static inline void make_genesis(gsp_genesis *g)
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
    g->roster.n = some(GSP_MEMBERS_MAX);
    fill(g->roster.member, g->roster.n * sizeof g->roster.member[0]);
    fill(g->consent, g->roster.n * sizeof g->consent[0]);
    fill(g->barred, (g->n_barred = some(GSP_BARRED_MAX)) * sizeof g->barred[0]);
}

static inline void make_step(gsp_step *x)
{
    gsp_chain_link *link = &x->as.link;
    *x = (gsp_step){.is_genesis = draw(3) == 0};
    if (x->is_genesis) {
        make_genesis(&x->as.genesis);
        return;
    }
    fill(&link->head, offsetof(gsp_head, next)); /* no gaps */
    link->head.next.n = some(GSP_MEMBERS_MAX);
    fill(link->head.next.member, link->head.next.n * sizeof link->head.next.member[0]);
    fill(&link->head.since, 16); /* and `made` */
    fill(&link->ballot, 4);
    link->n_votes = some(GSP_MEMBERS_MAX);
    fill(link->vote, link->n_votes * sizeof link->vote[0]);
}

static inline void make_chain(gsp_message *m)
{
    if (m->kind == GSP_CHAIN_ASK) {
        m->as.chain_ask.n = some(GSP_LOCATOR_MAX);
        fill(m->as.chain_ask.known, m->as.chain_ask.n * sizeof m->as.chain_ask.known[0]);
        return;
    }
    gsp_chain_said *c = &m->as.chain;
    *c = (gsp_chain_said){.more = draw(2), .n = some(GSP_CHAIN_SAID_MAX)};
    for (uint32_t k = 0; k < c->n; k++)
        make_step(&c->step[k]);
}

static inline void make_entry(gsp_entry *e)
{
    make_statement(&e->wish);
    e->shown.bytes = some(GSP_SHOWN_BYTES_MAX);
    fill(e->shown.data, e->shown.bytes);
}

static inline void make_proof(gsp_proof *p)
{
    memset(p, 0, sizeof *p);
    p->n = some(GSP_MEMBERS_MAX);
    for (uint32_t k = 0; k < p->n; k++)
        make_statement(&p->echo[k]);
    p->changes.n_entries = some(GSP_MEMBERS_MAX);
    for (uint32_t k = 0; k < p->changes.n_entries; k++)
        make_entry(&p->changes.entry[k]);
    p->changes.n_exits = some(GSP_MEMBERS_MAX);
    for (uint32_t k = 0; k < p->changes.n_exits; k++) {
        make_statement(&p->changes.exit[k].first);
        make_statement(&p->changes.exit[k].second);
    }
}

static inline void make_round(gsp_message *m)
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
        b->n_parts = some(GSP_PARTS_MAX);
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
        m->as.propose.n_promises = some(GSP_MEMBERS_MAX);
        for (uint32_t i = 0; i < m->as.propose.n_promises; i++)
            make_statement(&m->as.propose.promise[i]);
        make_proof(&m->as.propose.proof);
        break;
    default:
        break;
    }
}

static inline void make_bytes(gsp_message *m, uint32_t body)
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
        p->n_path = some(8);
        fill(p->path, p->n_path * sizeof *p->path);
    }
}

static inline void make_state(gsp_message *m, uint32_t body)
{
    gsp_state_roots *r = &m->as.roots;
    gsp_state_chunk *c = &m->as.chunk;
    switch (m->kind) {
    case GSP_STATE_ROOTS:
        make_genesis(&r->genesis);
        r->has_certificate = draw(2);
        if (r->has_certificate)
            make_certificate(&r->certificate);
        r->n_fragments = some(GSP_FRAGMENTS_MAX);
        fill(r->fragment, r->n_fragments * sizeof *r->fragment);
        fill(r->seal, sizeof r->seal);
        break;
    case GSP_STATE_CHUNK:
        fill(&c->fragment, 4);
        fill(&c->version, 8);
        fill(&c->root, sizeof c->root);
        fill(&c->chunk, 4);
        c->bytes = body;
        c->n_path = some(GSP_STATE_PATH_MAX);
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

static inline void make_claim(gsp_claim *c)
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

static inline void make_people(gsp_message *m)
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

/* A message of this kind, and if it is one of those that bytes follow, of `body` of them. */
static inline void make(gsp_message *m, gsp_message_kind kind, uint32_t body)
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

static inline void make_saved(gsp_saved *saved)
{
    gsp_record *r = &saved->record;
    memset(saved, 0, sizeof *saved);
    make_genesis(&saved->genesis);
    saved->has_certificate = draw(2);
    if (saved->has_certificate)
        make_certificate(&saved->certificate);
    fill(&r->self, sizeof r->self);
    fill(&r->lineage, sizeof r->lineage);
    r->version = draw(100);
    r->promised = draw(100);
    r->echoed = draw(2) ? draw(100) : 0;
    if (r->echoed)
        fill(&r->echo, sizeof r->echo);
    r->voted = draw(2) ? draw(100) : 0;
    if (r->voted) {
        make_proposal(&r->proposal);
        make_proof(&r->proof);
    }
}

#endif
