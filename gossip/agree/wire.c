/*
 * Owns how messages look as bytes. Its one idea: every field is named once, in one walk that reads
 * or writes by a flag, so that the two directions cannot drift apart. It refuses what is not
 * canonical: other versions, counts over their limits, odd bools, floats that are not finite, bytes
 * left over.
 */
#include "gossip/agree/wire.h"

#include "atom/base/bytes.h"

#include <math.h>
#include <string.h>

typedef struct walk {
    bool writing, bad;
    atom_reader in;
    atom_writer out;
} walk;

static void raw(walk *w, void *x, size_t bytes)
{
    if (w->writing)
        atom_write_bytes(&w->out, x, bytes);
    else
        atom_read_bytes(&w->in, x, bytes);
}

static uint64_t number(walk *w, uint64_t x, unsigned bytes)
{
    if (!w->writing)
        return atom_read_uint(&w->in, bytes);
    atom_write_uint(&w->out, x, bytes);
    return x;
}

static void u8(walk *w, uint8_t *x)
{
    *x = (uint8_t)number(w, *x, 1);
}

static void i8(walk *w, int8_t *x)
{
    *x = (int8_t)number(w, (uint8_t)*x, 1);
}

static void u32(walk *w, uint32_t *x)
{
    *x = (uint32_t)number(w, *x, 4);
}

static void u64(walk *w, uint64_t *x)
{
    *x = number(w, *x, 8);
}

static void flag(walk *w, bool *x)
{
    uint64_t bit = number(w, *x, 1);
    w->bad = w->bad || bit > 1;
    *x = bit == 1;
}

/* Zeros that make room for alignment and for later. */
static void zeros(walk *w, unsigned bytes)
{
    w->bad = w->bad || number(w, 0, bytes) != 0;
}

/* How many follow; 0 when it is more than there may be. */
static uint32_t count(walk *w, uint32_t *n, uint32_t max)
{
    u32(w, n);
    if (*n <= max)
        return *n;
    w->bad = true;
    if (!w->writing)
        *n = 0;
    return 0;
}

static void real(walk *w, float *x)
{
    uint32_t bits;
    memcpy(&bits, x, sizeof bits);
    u32(w, &bits);
    if (!w->writing)
        memcpy(x, &bits, sizeof bits);
    w->bad = w->bad || !isfinite(*x) || (bits & 0x80000000u);
}

static void hash(walk *w, gsp_hash *x)
{
    raw(w, x->byte, sizeof x->byte);
}

static void member(walk *w, gsp_member *x)
{
    raw(w, x->key.byte, sizeof x->key.byte);
    u64(w, &x->incarnation);
}

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
    n = count(w, &x->next.n, GSP_MEMBERS_MAX);
    for (uint32_t i = 0; i < n; i++) {
        member(w, &x->next.member[i]);
        u8(w, &x->missed[i]);
        u8(w, &x->against[i]);
    }
}

static void certificate(walk *w, gsp_certificate *x)
{
    proposal(w, &x->proposal);
    u32(w, &x->ballot);
    uint32_t n = count(w, &x->n_votes, GSP_MEMBERS_MAX);
    for (uint32_t i = 0; i < n; i++) {
        u8(w, &x->vote[i].member);
        raw(w, x->vote[i].seal, sizeof x->vote[i].seal);
    }
}

static void genesis(walk *w, gsp_genesis *x)
{
    hash(w, &x->pool);
    u32(w, &x->cell);
    u32(w, &x->reset);
    u32(w, &x->generation);
    hash(w, &x->parent);
    u64(w, &x->version);
    hash(w, &x->previous);
    hash(w, &x->anchor);
    u64(w, &x->tokens);
    member(w, &x->founder);
    hash(w, &x->order.parent);
    u64(w, &x->order.version);
    raw(w, x->order.seal, sizeof x->order.seal);
    raw(w, x->seal, sizeof x->seal);
}

static void statements(walk *w, uint32_t *n, gsp_statement *x)
{
    uint32_t n_here = count(w, n, GSP_MEMBERS_MAX);
    for (uint32_t i = 0; i < n_here; i++)
        statement(w, &x[i]);
}

static void proof(walk *w, gsp_proof *x)
{
    uint32_t n = count(w, &x->n, GSP_GROUNDS_MAX);
    for (uint32_t i = 0; i < n; i++) {
        statement(w, &x->ground[i].statement);
        statements(w, &x->ground[i].n_promises, x->ground[i].promise);
    }
}

static void record(walk *w, gsp_record *x)
{
    member(w, &x->self);
    hash(w, &x->lineage);
    u64(w, &x->version);
    u32(w, &x->promised);
    u32(w, &x->voted);
    if (!x->voted)
        return;
    proposal(w, &x->proposal);
    proof(w, &x->proof);
}

static void saved(walk *w, gsp_saved *x)
{
    genesis(w, &x->genesis);
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
    u32(w, &x->n_votes);
    u32(w, &x->reset);
    u32(w, &x->generation);
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
    genesis(w, &x->genesis);
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
        u64(w, &m->as.join.applied);
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
        genesis(w, &m->as.announce.genesis);
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

static walk writer(void *out, size_t room)
{
    return (walk){.writing = true, .out = atom_writer_make(out, room)};
}

static walk reader(const void *data, size_t bytes)
{
    return (walk){.in = atom_reader_make(data, bytes)};
}

static size_t written(const walk *w, const void *out)
{
    return w->bad || w->out.bad ? 0 : (size_t)(w->out.at - (const uint8_t *)out);
}

static bool ended(const walk *w)
{
    return !w->bad && atom_reader_ok(&w->in) && atom_reader_left(&w->in) == 0;
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
    genesis(&w, (gsp_genesis *)(uintptr_t)g);
    claim(&w, (gsp_claim *)(uintptr_t)x);
    return written(&w, out);
}

bool gsp_wire_get_claim(const void *data, size_t bytes, gsp_genesis *g, gsp_claim *x)
{
    walk w = reader(data, bytes);
    memset(g, 0, sizeof *g);
    memset(x, 0, sizeof *x);
    genesis(&w, g);
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
