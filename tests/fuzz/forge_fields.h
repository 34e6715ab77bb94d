/*
 * Messages of the agreement as lists of their fields, so that a fuzzer changes numbers, hashes,
 * members and counts instead of bytes (gossip/agree/types.h). Lists of a message are looked into for
 * their first entries only.
 */
#ifndef TESTS_FUZZ_FORGE_FIELDS_H
#define TESTS_FUZZ_FORGE_FIELDS_H

#include "gossip/agree/agree.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { FORGE_FIELDS_MAX = 2048, FORGE_ENTRIES = 8, FORGE_KEYS = 12 };

/* The fuzzer's input as a stream of draws; zeros when it is used up. */
typedef struct forge_script {
    const uint8_t *data;
    size_t left;
} forge_script;

static inline uint32_t forge_draw(forge_script *s, uint32_t below)
{
    uint32_t x = 0;
    for (uint32_t k = 0; k < (below > 256 ? 2u : 1u) && s->left; k++, s->left--)
        x = x << 8 | *s->data++;
    return below ? x % below : 0;
}

static inline uint64_t forge_draw_u64(forge_script *s)
{
    uint64_t x = 0;
    for (uint32_t k = 0; k < 8; k++)
        x = x << 8 | forge_draw(s, 256);
    return x;
}

/* Host i, and from the number of hosts on strangers, whose keys nobody admitted. */
static inline gsp_member forge_member(uint32_t i)
{
    return (gsp_member){.key = {{(uint8_t)(i + 1)}}, .incarnation = 1};
}

typedef enum forge_type {
    FORGE_NUMBER,
    FORGE_HASH,
    FORGE_MEMBER,
    FORGE_REAL,
    FORGE_LIST
} forge_type;

typedef struct forge_field {
    forge_type type;
    uint32_t bytes; /* NUMBER: its width; LIST: of one entry */
    void *at;       /* LIST: the first entry */
    uint32_t *n, max;
} forge_field;

typedef struct forge_fields {
    uint32_t n;
    forge_field field[FORGE_FIELDS_MAX];
} forge_fields;

static inline void forge_add(forge_fields *f, forge_field field)
{
    if (f->n < FORGE_FIELDS_MAX)
        f->field[f->n++] = field;
}

static inline void forge_number(forge_fields *f, void *at, uint32_t bytes)
{
    forge_add(f, (forge_field){.type = FORGE_NUMBER, .bytes = bytes, .at = at});
}

static inline void forge_hash(forge_fields *f, gsp_hash *at)
{
    forge_add(f, (forge_field){.type = FORGE_HASH, .at = at});
}

/* Returns how many entries to look into. */
static inline uint32_t forge_list(forge_fields *f, void *at, uint32_t bytes, uint32_t *n,
                                  uint32_t max)
{
    forge_add(f, (forge_field){.type = FORGE_LIST, .bytes = bytes, .at = at, .n = n, .max = max});
    return *n < FORGE_ENTRIES ? *n : FORGE_ENTRIES;
}

#define FORGE_NUMBER_OF(f, x) forge_number(f, &(x), sizeof(x))

static inline void forge_who(forge_fields *f, gsp_member *x)
{
    forge_add(f, (forge_field){.type = FORGE_MEMBER, .at = x});
    FORGE_NUMBER_OF(f, x->incarnation);
}

static inline void forge_rates(forge_fields *f, gsp_rates *x)
{
    FORGE_NUMBER_OF(f, x->up_bytes_per_s);
    FORGE_NUMBER_OF(f, x->down_bytes_per_s);
}

static inline void forge_statement(forge_fields *f, gsp_statement *x)
{
    FORGE_NUMBER_OF(f, x->kind);
    forge_hash(f, &x->lineage);
    FORGE_NUMBER_OF(f, x->version);
    FORGE_NUMBER_OF(f, x->ballot);
    FORGE_NUMBER_OF(f, x->item);
    FORGE_NUMBER_OF(f, x->voted);
    forge_hash(f, &x->subject);
    forge_hash(f, &x->root);
    forge_who(f, &x->signer);
}

static inline void forge_statements(forge_fields *f, uint32_t *n, gsp_statement *x)
{
    uint32_t n_here = forge_list(f, x, sizeof *x, n, GSP_MEMBERS_MAX);
    for (uint32_t i = 0; i < n_here; i++)
        forge_statement(f, &x[i]);
}

static inline void forge_contributors(forge_fields *f, uint32_t *n, gsp_contributor *x)
{
    uint32_t n_here = forge_list(f, x, sizeof *x, n, GSP_MEMBERS_MAX);
    for (uint32_t i = 0; i < n_here; i++) {
        FORGE_NUMBER_OF(f, x[i].member);
        forge_hash(f, &x[i].root);
        FORGE_NUMBER_OF(f, x[i].tokens);
        FORGE_NUMBER_OF(f, x[i].samples);
        FORGE_NUMBER_OF(f, x[i].weight);
    }
}

static inline void forge_part(forge_fields *f, gsp_part *x)
{
    forge_hash(f, &x->hash);
    FORGE_NUMBER_OF(f, x->included);
    FORGE_NUMBER_OF(f, x->weight);
    forge_add(f, (forge_field){.type = FORGE_REAL, .at = &x->norm});
    for (uint32_t i = 0; i < FORGE_ENTRIES; i++)
        FORGE_NUMBER_OF(f, x->lean[i]);
    FORGE_NUMBER_OF(f, x->owner);
}

static inline void forge_claim(forge_fields *f, gsp_claim *x)
{
    FORGE_NUMBER_OF(f, x->version);
    forge_who(f, &x->owner);
    FORGE_NUMBER_OF(f, x->number);
    forge_part(f, &x->part);
    forge_contributors(f, &x->n_contributors, x->contributor);
}

static inline void forge_proposal(forge_fields *f, gsp_proposal *x)
{
    forge_hash(f, &x->lineage);
    FORGE_NUMBER_OF(f, x->version);
    forge_hash(f, &x->previous);
    FORGE_NUMBER_OF(f, x->tokens);
    FORGE_NUMBER_OF(f, x->samples);
    forge_contributors(f, &x->n_contributors, x->contributor);
    uint32_t n = forge_list(f, x->part, sizeof x->part[0], &x->n_parts, GSP_PARTS_MAX);
    for (uint32_t i = 0; i < n; i++)
        forge_part(f, &x->part[i]);
    FORGE_NUMBER_OF(f, x->since);
    FORGE_NUMBER_OF(f, x->made);
    n = forge_list(f, x->next.member, sizeof x->next.member[0], &x->next.n, GSP_MEMBERS_MAX);
    for (uint32_t i = 0; i < n; i++) {
        forge_who(f, &x->next.member[i]);
        FORGE_NUMBER_OF(f, x->missed[i]);
        FORGE_NUMBER_OF(f, x->against[i]);
    }
    n = forge_list(f, x->barred, sizeof x->barred[0], &x->n_barred, GSP_BARRED_MAX);
    for (uint32_t i = 0; i < n; i++)
        FORGE_NUMBER_OF(f, x->barred[i].versions);
}

static inline void forge_entry(forge_fields *f, gsp_entry *x)
{
    forge_statement(f, &x->wish);
    FORGE_NUMBER_OF(f, x->shown.bytes);
}

static inline void forge_proof(forge_fields *f, gsp_proof *x)
{
    gsp_changes *c = &x->changes;
    forge_statements(f, &x->n, x->echo);
    uint32_t n = forge_list(f, c->entry, sizeof c->entry[0], &c->n_entries, GSP_MEMBERS_MAX);
    for (uint32_t i = 0; i < n; i++)
        forge_entry(f, &c->entry[i]);
    n = forge_list(f, c->exit, sizeof c->exit[0], &c->n_exits, GSP_MEMBERS_MAX);
    for (uint32_t i = 0; i < n; i++) {
        forge_statement(f, &c->exit[i].first);
        forge_statement(f, &c->exit[i].second);
    }
}

static inline void forge_certificate(forge_fields *f, gsp_certificate *x)
{
    forge_proposal(f, &x->proposal);
    FORGE_NUMBER_OF(f, x->ballot);
    uint32_t n = forge_list(f, x->vote, sizeof x->vote[0], &x->n_votes, GSP_MEMBERS_MAX);
    for (uint32_t i = 0; i < n; i++)
        FORGE_NUMBER_OF(f, x->vote[i].member);
}

static inline void forge_genesis(forge_fields *f, gsp_genesis *x)
{
    forge_hash(f, &x->pool);
    FORGE_NUMBER_OF(f, x->cell);
    FORGE_NUMBER_OF(f, x->reset);
    FORGE_NUMBER_OF(f, x->generation);
    forge_hash(f, &x->parent);
    FORGE_NUMBER_OF(f, x->version);
    forge_hash(f, &x->previous);
    forge_hash(f, &x->anchor);
    FORGE_NUMBER_OF(f, x->tokens);
    FORGE_NUMBER_OF(f, x->samples);
    forge_who(f, &x->founder);
    uint32_t n =
        forge_list(f, x->roster.member, sizeof x->roster.member[0], &x->roster.n, GSP_MEMBERS_MAX);
    for (uint32_t i = 0; i < n; i++)
        forge_who(f, &x->roster.member[i]);
    n = forge_list(f, x->barred, sizeof x->barred[0], &x->n_barred, GSP_BARRED_MAX);
    for (uint32_t i = 0; i < n; i++)
        FORGE_NUMBER_OF(f, x->barred[i].versions);
    forge_hash(f, &x->order.parent);
    FORGE_NUMBER_OF(f, x->order.version);
}

static inline void forge_heartbeat(forge_fields *f, gsp_heartbeat *x)
{
    FORGE_NUMBER_OF(f, x->sequence);
    FORGE_NUMBER_OF(f, x->applied);
    forge_hash(f, &x->anchor);
    FORGE_NUMBER_OF(f, x->tokens);
    FORGE_NUMBER_OF(f, x->samples);
    FORGE_NUMBER_OF(f, x->tokens_live);
    forge_rates(f, &x->rates);
    FORGE_NUMBER_OF(f, x->health);
    FORGE_NUMBER_OF(f, x->round_ms);
}

static inline void forge_promise(forge_fields *f, gsp_promise *x)
{
    forge_statement(f, &x->statement);
    forge_hash(f, &x->contribution.root);
    FORGE_NUMBER_OF(f, x->contribution.tokens);
    FORGE_NUMBER_OF(f, x->contribution.samples);
    forge_rates(f, &x->contribution.rates);
    if (!x->has_proposal)
        return;
    forge_proposal(f, &x->proposal);
    forge_proof(f, &x->proof);
}

static inline void forge_begin(forge_fields *f, gsp_begin *x)
{
    forge_hash(f, &x->previous);
    FORGE_NUMBER_OF(f, x->attempt);
    FORGE_NUMBER_OF(f, x->collect_ns);
    FORGE_NUMBER_OF(f, x->finish_ns);
    forge_contributors(f, &x->n_contributors, x->contributor);
    uint32_t n = forge_list(f, x->owner, sizeof x->owner[0], &x->n_parts, GSP_PARTS_MAX);
    for (uint32_t i = 0; i < n; i++)
        FORGE_NUMBER_OF(f, x->owner[i]);
}

static inline void forge_people(forge_fields *f, gsp_message *m)
{
    switch (m->kind) {
    case GSP_JOIN:
        forge_entry(f, &m->as.join.entry);
        forge_rates(f, &m->as.join.rates);
        break;
    case GSP_LEAVE:
        forge_statement(f, &m->as.leave.statement);
        break;
    case GSP_EVIDENCE:
        forge_statement(f, &m->as.evidence.first);
        forge_statement(f, &m->as.evidence.second);
        break;
    case GSP_ACCUSE:
        forge_claim(f, &m->as.accuse.claim);
        break;
    case GSP_LINEAGE:
        forge_genesis(f, &m->as.announce.genesis);
        break;
    case GSP_WITHHELD:
        FORGE_NUMBER_OF(f, m->as.withheld.version);
        FORGE_NUMBER_OF(f, m->as.withheld.part);
        FORGE_NUMBER_OF(f, m->as.withheld.missing);
        break;
    default:
        forge_heartbeat(f, &m->as.heartbeat);
    }
}

static inline void forge_message(forge_fields *f, gsp_message *m)
{
    f->n = 0;
    FORGE_NUMBER_OF(f, m->version);
    FORGE_NUMBER_OF(f, m->ballot);
    FORGE_NUMBER_OF(f, m->from.incarnation);
    forge_hash(f, &m->lineage);
    switch (m->kind) {
    case GSP_PREPARE:
        forge_hash(f, &m->as.prepare.previous);
        break;
    case GSP_PROMISE:
        forge_promise(f, &m->as.promise);
        break;
    case GSP_REFUSE:
        FORGE_NUMBER_OF(f, m->as.refuse.promised);
        break;
    case GSP_BEGIN:
        forge_begin(f, &m->as.begin);
        break;
    case GSP_REDUCED:
        forge_statement(f, &m->as.reduced.statement);
        forge_part(f, &m->as.reduced.part);
        break;
    case GSP_PROPOSE:
        forge_statement(f, &m->as.propose.statement);
        forge_proposal(f, &m->as.propose.proposal);
        forge_statements(f, &m->as.propose.n_promises, m->as.propose.promise);
        forge_proof(f, &m->as.propose.proof);
        break;
    case GSP_ECHO:
    case GSP_VOTE:
        forge_statement(f, &m->as.vote.statement);
        break;
    case GSP_CERTIFY:
        forge_certificate(f, &m->as.certify.certificate);
        break;
    case GSP_ASK:
        FORGE_NUMBER_OF(f, m->as.ask.version);
        break;
    default:
        forge_people(f, m);
    }
}

/* ---- changing one ---- */

static inline uint64_t forge_number_get(const forge_field *x)
{
    uint64_t v = 0;
    memcpy(&v, x->at, x->bytes);
    return v;
}

static inline void forge_change_number(const forge_fields *f, const forge_field *x, forge_script *s)
{
    uint64_t v = forge_number_get(x), top = x->bytes == 8 ? UINT64_MAX : (1ull << 8 * x->bytes) - 1;
    const forge_field *other = &f->field[forge_draw(s, f->n)];
    switch (forge_draw(s, 12)) {
    case 0:
        v = 0;
        break;
    case 1:
        v = 1;
        break;
    case 2:
        v = top;
        break;
    case 3:
        v = top - 1;
        break;
    case 4:
        v = v + 1;
        break;
    case 5:
        v = v - 1;
        break;
    case 6:
        v = top / 2 + forge_draw(s, 2);
        break;
    case 7:
        v ^= 1ull << forge_draw(s, 8 * x->bytes);
        break;
    case 8:
        v = forge_draw_u64(s);
        break;
    case 9:
        v = ((uint64_t)1 << 48) + forge_draw(s, 3) - 1;
        break;
    case 10:
        v = v * 2 + forge_draw(s, 3);
        break;
    default:
        v = other->type == FORGE_NUMBER ? forge_number_get(other) : forge_draw(s, 256);
    }
    memcpy(x->at, &v, x->bytes);
}

static inline void forge_change_hash(const forge_fields *f, gsp_hash *x, forge_script *s)
{
    const forge_field *other = &f->field[forge_draw(s, f->n)];
    switch (forge_draw(s, 3)) {
    case 0:
        *x = (gsp_hash){0};
        break;
    case 1:
        x->byte[forge_draw(s, 32)] ^= (uint8_t)(1u << forge_draw(s, 8));
        break;
    default:
        for (uint32_t k = 0; k < f->n && other->type != FORGE_HASH; k++)
            other = other + 1 < f->field + f->n ? other + 1 : f->field;
        if (other->type == FORGE_HASH)
            *x = *(const gsp_hash *)other->at;
    }
}

static inline void forge_change_list(const forge_field *x, forge_script *s)
{
    uint8_t *at = x->at, swap[sizeof(gsp_entry)];
    uint32_t n = *x->n, i = forge_draw(s, n ? n : 1), j = forge_draw(s, n ? n : 1);
    switch (forge_draw(s, 7)) {
    case 0:
        *x->n = 0;
        break;
    case 1:
        *x->n = n ? n - 1 : 0;
        break;
    case 2: /* one more, like another */
        if (n && n < x->max)
            memcpy(at + (size_t)n * x->bytes, at + (size_t)i * x->bytes, x->bytes);
        *x->n = n < x->max ? n + 1 : n;
        break;
    case 3: /* as many as there may be, all alike */
        for (uint32_t k = n; n && k < x->max; k++)
            memcpy(at + (size_t)k * x->bytes, at + (size_t)i * x->bytes, x->bytes);
        *x->n = x->max;
        break;
    case 4: /* one twice */
        memmove(at + (size_t)j * x->bytes, at + (size_t)i * x->bytes, n ? x->bytes : 0);
        break;
    case 5: /* one less, from the midst */
        if (n)
            memmove(at + (size_t)i * x->bytes, at + (size_t)(i + 1) * x->bytes,
                    (size_t)(n - i - 1) * x->bytes);
        *x->n = n ? n - 1 : 0;
        break;
    default: /* two swapped */
        if (n && x->bytes <= sizeof swap) {
            memcpy(swap, at + (size_t)i * x->bytes, x->bytes);
            memmove(at + (size_t)i * x->bytes, at + (size_t)j * x->bytes, x->bytes);
            memcpy(at + (size_t)j * x->bytes, swap, x->bytes);
        }
    }
}

/* One change of one field. */
static inline void forge_change(forge_fields *f, forge_script *s)
{
    static const float reals[] = {0, -0.0f, 1, -1, FLT_MAX, FLT_MIN / 2, INFINITY, NAN};
    forge_field *x = &f->field[forge_draw(s, f->n)];
    gsp_member other = forge_member(forge_draw(s, FORGE_KEYS));
    switch (x->type) {
    case FORGE_NUMBER:
        forge_change_number(f, x, s);
        break;
    case FORGE_HASH:
        forge_change_hash(f, x->at, s);
        break;
    case FORGE_MEMBER:
        memcpy(x->at, &other, sizeof other);
        break;
    case FORGE_REAL:
        memcpy(x->at, &reals[forge_draw(s, 8)], sizeof(float));
        break;
    case FORGE_LIST:
        forge_change_list(x, s);
        break;
    }
}

#endif
