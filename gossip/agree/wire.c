/*
 * Owns how messages look as bytes. Its one idea: every field is named once, in one walk that reads
 * or writes by a flag, so that the two directions cannot drift apart. It refuses what is not
 * canonical: other versions, counts over their limits, odd bools, floats that are not finite, bytes
 * left over.
 */
#include "gossip/agree/wire_walk.h"

static void rates(walk *w, gsp_rates *x)
{
    u64(w, &x->up_bytes_per_s);
    u64(w, &x->down_bytes_per_s);
    flag(w, &x->accepts);
}

static void statement(walk *w, gsp_statement *x)
{
    u8(w, &x->kind);
    hash(w, &x->lineage);
    u64(w, &x->version);
    u32(w, &x->ballot);
    u32(w, &x->item);
    u32(w, &x->voted);
    hash(w, &x->subject);
    hash(w, &x->root);
    member(w, &x->signer);
    raw(w, x->seal, sizeof x->seal);
}

static void contributors(walk *w, uint32_t *n, gsp_contributor *x)
{
    uint32_t n_here = count(w, n, GSP_MEMBERS_MAX);
    for (uint32_t i = 0; i < n_here; i++) {
        u8(w, &x[i].member);
        hash(w, &x[i].root);
        u64(w, &x[i].tokens);
        u64(w, &x[i].samples);
        u64(w, &x[i].weight);
    }
}

static void part(walk *w, gsp_part *x)
{
    hash(w, &x->hash);
    u32(w, &x->included);
    u64(w, &x->weight);
    real(w, &x->norm);
    for (uint32_t i = 0; i < GSP_MEMBERS_MAX; i++)
        if (x->included >> i & 1)
            i8(w, &x->lean[i]);
    if (x->included) {
        u8(w, &x->owner);
        raw(w, x->seal, sizeof x->seal);
    }
}

static void claim(walk *w, gsp_claim *x)
{
    u64(w, &x->version);
    member(w, &x->owner);
    u32(w, &x->number);
    part(w, &x->part);
    contributors(w, &x->n_contributors, x->contributor);
}

static void proposal(walk *w, gsp_proposal *x)
{
    hash(w, &x->lineage);
    u64(w, &x->version);
    hash(w, &x->previous);
    u64(w, &x->tokens);
    u64(w, &x->samples);
    contributors(w, &x->n_contributors, x->contributor);
    uint32_t n = count(w, &x->n_parts, GSP_PARTS_MAX);
    for (uint32_t i = 0; i < n; i++)
        part(w, &x->part[i]);
    u64(w, &x->since);
    u64(w, &x->made);
    n = count(w, &x->next.n, GSP_MEMBERS_MAX);
    for (uint32_t i = 0; i < n; i++) {
        member(w, &x->next.member[i]);
        u8(w, &x->missed[i]);
        u8(w, &x->against[i]);
    }
    barred(w, &x->n_barred, x->barred);
}

static void certificate(walk *w, gsp_certificate *x)
{
    proposal(w, &x->proposal);
    u32(w, &x->ballot);
    gsp_walk_votes(w, &x->n_votes, x->vote);
}

static void statements(walk *w, uint32_t *n, gsp_statement *x)
{
    uint32_t n_here = count(w, n, GSP_MEMBERS_MAX);
    for (uint32_t i = 0; i < n_here; i++)
        statement(w, &x[i]);
}

static void entry(walk *w, gsp_entry *x)
{
    statement(w, &x->wish);
    raw(w, x->shown.data, count(w, &x->shown.bytes, GSP_SHOWN_BYTES_MAX));
}

static void changes(walk *w, gsp_changes *x)
{
    uint32_t n = count(w, &x->n_entries, GSP_MEMBERS_MAX);
    for (uint32_t i = 0; i < n; i++)
        entry(w, &x->entry[i]);
    n = count(w, &x->n_exits, GSP_MEMBERS_MAX);
    for (uint32_t i = 0; i < n; i++) {
        statement(w, &x->exit[i].first);
        statement(w, &x->exit[i].second);
    }
}

static void proof(walk *w, gsp_proof *x)
{
    changes(w, &x->changes);
    statements(w, &x->n, x->echo);
}

static void record(walk *w, gsp_record *x)
{
    member(w, &x->self);
    hash(w, &x->lineage);
    u64(w, &x->version);
    u32(w, &x->promised);
    u32(w, &x->echoed);
    u32(w, &x->voted);
    if (x->echoed)
        hash(w, &x->echo);
    if (!x->voted)
        return;
    proposal(w, &x->proposal);
    proof(w, &x->proof);
}

static void saved(walk *w, gsp_saved *x)
{
    gsp_walk_genesis(w, &x->genesis);
    flag(w, &x->has_certificate);
    if (x->has_certificate)
        certificate(w, &x->certificate);
    record(w, &x->record);
}

static void heartbeat(walk *w, gsp_heartbeat *x)
{
    u64(w, &x->sequence);
    u64(w, &x->applied);
    hash(w, &x->anchor);
    u64(w, &x->tokens);
    u64(w, &x->samples);
    u64(w, &x->tokens_live);
    rates(w, &x->rates);
    u8(w, &x->health);
    u32(w, &x->round_ms);
}

static void promise(walk *w, gsp_promise *x)
{
    statement(w, &x->statement);
    hash(w, &x->contribution.root);
    u64(w, &x->contribution.tokens);
    u64(w, &x->contribution.samples);
    rates(w, &x->contribution.rates);
    flag(w, &x->has_proposal);
    if (!x->has_proposal)
        return;
    proposal(w, &x->proposal);
    proof(w, &x->proof);
}

static void begin(walk *w, gsp_begin *x)
{
    hash(w, &x->previous);
    u32(w, &x->attempt);
    u64(w, &x->collect_ns);
    u64(w, &x->finish_ns);
    contributors(w, &x->n_contributors, x->contributor);
    raw(w, x->owner, count(w, &x->n_parts, GSP_PARTS_MAX));
}

static void propose(walk *w, gsp_propose *x)
{
    statement(w, &x->statement);
    proposal(w, &x->proposal);
    statements(w, &x->n_promises, x->promise);
    proof(w, &x->proof);
}

/* 72 bytes and the path, so that what follows is aligned. */
static void piece(walk *w, gsp_piece *x)
{
    hash(w, &x->root);
    flag(w, &x->is_result);
    u8(w, &x->codec);
    zeros(w, 2);
    u32(w, &x->part);
    u32(w, &x->sequence);
    u64(w, &x->offset);
    u64(w, &x->bytes);
    u64(w, &x->part_bytes);
    uint32_t n = count(w, &x->n_path, 8);
    for (uint32_t i = 0; i < n; i++)
        hash(w, &x->path[i]);
}

static void pull(walk *w, gsp_pull *x)
{
    hash(w, &x->root);
    flag(w, &x->is_result);
    u32(w, &x->part);
    u64(w, &x->offset);
}

static void roots(walk *w, gsp_state_roots *x)
{
    gsp_walk_genesis(w, &x->genesis);
    flag(w, &x->has_certificate);
    if (x->has_certificate)
        certificate(w, &x->certificate);
    uint32_t n = count(w, &x->n_fragments, GSP_FRAGMENTS_MAX);
    for (uint32_t i = 0; i < n; i++) {
        u64(w, &x->fragment[i].version);
        u64(w, &x->fragment[i].n_floats);
        hash(w, &x->fragment[i].root);
    }
    raw(w, x->seal, sizeof x->seal);
}

static void state_pull(walk *w, gsp_state_pull *x)
{
    u32(w, &x->fragment);
    u64(w, &x->version);
    hash(w, &x->root);
    u32(w, &x->first);
    u32(w, &x->n);
}

/* 56 bytes and the path, so that what follows is aligned. */
static void chunk(walk *w, gsp_state_chunk *x)
{
    u32(w, &x->fragment);
    u32(w, &x->chunk);
    u64(w, &x->version);
    hash(w, &x->root);
    u32(w, &x->bytes);
    uint32_t n = count(w, &x->n_path, GSP_STATE_PATH_MAX);
    for (uint32_t i = 0; i < n; i++)
        hash(w, &x->path[i]);
}

static void people(walk *w, gsp_message *m)
{
    switch (m->kind) {
    case GSP_JOIN:
        entry(w, &m->as.join.entry);
        rates(w, &m->as.join.rates);
        break;
    case GSP_WAIT:
        u32(w, &m->as.wait.place);
        u32(w, &m->as.wait.n_waiting);
        u32(w, &m->as.wait.n_members);
        break;
    case GSP_LEAVE:
        statement(w, &m->as.leave.statement);
        break;
    case GSP_EVIDENCE:
        statement(w, &m->as.evidence.first);
        statement(w, &m->as.evidence.second);
        break;
    case GSP_ACCUSE:
        claim(w, &m->as.accuse.claim);
        break;
    case GSP_LINEAGE:
        gsp_walk_genesis(w, &m->as.announce.genesis);
        break;
    case GSP_CONSENT:
        hash(w, &m->as.consent.lineage);
        raw(w, m->as.consent.seal, sizeof m->as.consent.seal);
        break;
    case GSP_CHAIN_ASK:
        gsp_walk_chain_ask(w, &m->as.chain_ask);
        break;
    case GSP_CHAIN:
        gsp_walk_chain(w, &m->as.chain);
        break;
    case GSP_WITHHELD:
        u64(w, &m->as.withheld.version);
        u32(w, &m->as.withheld.part);
        u32(w, &m->as.withheld.missing);
        break;
    case GSP_HEARTBEAT:
        heartbeat(w, &m->as.heartbeat);
        break;
    default:
        w->bad = true;
    }
}

static void body(walk *w, gsp_message *m)
{
    switch (m->kind) {
    case GSP_PREPARE:
        hash(w, &m->as.prepare.previous);
        break;
    case GSP_PROMISE:
        promise(w, &m->as.promise);
        break;
    case GSP_REFUSE:
        u32(w, &m->as.refuse.promised);
        break;
    case GSP_BEGIN:
        begin(w, &m->as.begin);
        break;
    case GSP_REDUCED:
        statement(w, &m->as.reduced.statement);
        part(w, &m->as.reduced.part);
        break;
    case GSP_PROPOSE:
        propose(w, &m->as.propose);
        break;
    case GSP_ECHO:
    case GSP_VOTE:
        statement(w, &m->as.vote.statement);
        break;
    case GSP_CERTIFY:
        certificate(w, &m->as.certify.certificate);
        break;
    case GSP_ASK:
        u64(w, &m->as.ask.version);
        break;
    case GSP_PIECE:
        piece(w, &m->as.piece);
        break;
    case GSP_PULL:
        pull(w, &m->as.pull);
        break;
    case GSP_STATE_ASK:
        break;
    case GSP_STATE_ROOTS:
        roots(w, &m->as.roots);
        break;
    case GSP_STATE_PULL:
    case GSP_STATE_NONE:
        state_pull(w, &m->as.state_pull);
        break;
    case GSP_STATE_CHUNK:
        chunk(w, &m->as.chunk);
        break;
    default:
        people(w, m);
    }
}

static void message(walk *w, gsp_message *m)
{
    w->bad = w->bad || number(w, GSP_TYPES_VERSION, 1) != GSP_TYPES_VERSION;
    m->kind = (gsp_message_kind)number(w, m->kind, 1);
    zeros(w, 2);
    u32(w, &m->ballot);
    u64(w, &m->from.incarnation);
    u64(w, &m->version);
    hash(w, &m->lineage);
    if (!w->writing && gsp_message_bytes(m->kind))
        memset(&m->as, 0, gsp_message_bytes(m->kind) - offsetof(gsp_message, as));
    if (!w->bad)
        body(w, m);
}

/* The walk takes what it writes by a plain pointer and does not change it. */
size_t gsp_wire_encode(const gsp_message *m, void *out, size_t room)
{
    walk w = writer(out, room);
    message(&w, (gsp_message *)(uintptr_t)m);
    return written(&w, out);
}

bool gsp_wire_decode(const void *data, size_t bytes, const gsp_key *from, gsp_message *out,
                     const void **rest, size_t *rest_bytes)
{
    walk w = reader(data, bytes);
    if (rest) {
        *rest = NULL;
        *rest_bytes = 0;
    }
    message(&w, out);
    out->from.key = *from;
    bool heads = out->kind == GSP_PIECE || out->kind == GSP_STATE_CHUNK;
    if (w.bad || !atom_reader_ok(&w.in) || !heads)
        return ended(&w);
    const gsp_piece *p = &out->as.piece;
    size_t left = atom_reader_left(&w.in);
    if (!rest || (out->kind == GSP_STATE_CHUNK && left != out->as.chunk.bytes) ||
        (out->kind == GSP_PIECE &&
         (left != p->bytes || p->bytes > p->part_bytes || p->offset > p->part_bytes - p->bytes)))
        return false;
    *rest = w.in.at;
    *rest_bytes = left;
    return true;
}

size_t gsp_wire_put_claim(const gsp_genesis *g, const gsp_claim *x, void *out, size_t room)
{
    walk w = writer(out, room);
    gsp_walk_genesis(&w, (gsp_genesis *)(uintptr_t)g);
    claim(&w, (gsp_claim *)(uintptr_t)x);
    return written(&w, out);
}

bool gsp_wire_get_claim(const void *data, size_t bytes, gsp_genesis *g, gsp_claim *x)
{
    walk w = reader(data, bytes);
    memset(g, 0, sizeof *g);
    memset(x, 0, sizeof *x);
    gsp_walk_genesis(&w, g);
    claim(&w, x);
    return ended(&w);
}

size_t gsp_wire_put_record(const gsp_record *x, void *out, size_t room)
{
    walk w = writer(out, room);
    record(&w, (gsp_record *)(uintptr_t)x);
    return written(&w, out);
}

bool gsp_wire_get_record(const void *data, size_t bytes, gsp_record *out)
{
    walk w = reader(data, bytes);
    memset(out, 0, sizeof *out);
    record(&w, out);
    return ended(&w);
}

size_t gsp_wire_put_saved(const gsp_saved *x, void *out, size_t room)
{
    walk w = writer(out, room);
    saved(&w, (gsp_saved *)(uintptr_t)x);
    return written(&w, out);
}

bool gsp_wire_get_saved(const void *data, size_t bytes, gsp_saved *out)
{
    walk w = reader(data, bytes);
    memset(out, 0, sizeof *out);
    saved(&w, out);
    return ended(&w);
}
