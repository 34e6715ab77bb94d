/*
 * Owns the steps of a chain in memory. Its one idea: a step is encoded once and known by its id, so
 * that two trails are compared and answered for without decoding what they share. It refuses steps
 * that do not follow, whoever they come from.
 */
#include "gossip/member/trail.h"

#include "atom/base/assert.h"
#include "atom/base/mem.h"
#include "gossip/agree/wire.h"

#include <string.h>

void gsp_trail_open(gsp_trail *t, const gsp_chain_terms *terms)
{
    *t = (gsp_trail){.terms = terms};
}

void gsp_trail_close(gsp_trail *t)
{
    gsp_trail_cut(t, 0);
    atom_free(t->step);
    t->step = NULL;
    t->room = 0;
}

void gsp_trail_read(const gsp_trail *t, uint32_t i, gsp_step *out)
{
    bool right = gsp_wire_get_step(t->step[i].data, t->step[i].bytes, out);
    ATOM_ASSERT(right); /* it was encoded here */
}

void gsp_trail_lead(const gsp_trail *t, uint32_t n, gsp_chain *out)
{
    gsp_step step;
    memset(out, 0, sizeof *out);
    for (uint32_t i = 0; i < n; i++) {
        gsp_trail_read(t, i, &step);
        const char *wrong = gsp_chain_take(t->terms, out, &step, true);
        ATOM_ASSERT(!wrong);
    }
}

void gsp_trail_cut(gsp_trail *t, uint32_t n)
{
    if (n >= t->n)
        return;
    while (t->n > n) {
        t->bytes -= t->step[--t->n].bytes;
        atom_free(t->step[t->n].data);
    }
    gsp_trail_lead(t, n, &t->end);
}

static atom_status put(gsp_trail *t, const void *data, uint32_t bytes, const gsp_hash *id)
{
    if (t->bytes + bytes > GSP_TRAIL_BYTES_MAX)
        return atom_fail(ATOM_E_RESOURCE, "a chain of more than %d bytes", GSP_TRAIL_BYTES_MAX);
    if (t->n == t->room) {
        uint32_t room = t->room ? 2 * t->room : 16;
        void *more = atom_alloc(room, sizeof *t->step);
        if (!more)
            return atom_fail_memory("a chain", room * sizeof *t->step);
        if (t->n)
            memcpy(more, t->step, t->n * sizeof *t->step);
        atom_free(t->step);
        t->step = more;
        t->room = room;
    }
    uint8_t *copy = atom_alloc(bytes, 1);
    if (!copy)
        return atom_fail_memory("a step of a chain", bytes);
    memcpy(copy, data, bytes);
    t->step[t->n].id = *id;
    t->step[t->n].data = copy;
    t->step[t->n++].bytes = bytes;
    t->bytes += bytes;
    return ATOM_OK;
}

static bool is_reset(const gsp_trail *t, const gsp_genesis *genesis)
{
    return t->n && genesis->reset > t->end.reset;
}

atom_status gsp_trail_add(gsp_trail *t, const gsp_step *step, bool known)
{
    uint8_t data[GSP_WIRE_STEP_BYTES_MAX];
    gsp_hash id;
    gsp_chain end = t->end;
    bool resets = step->is_genesis && is_reset(t, &step->as.genesis);
    if (resets)
        gsp_trail_lead(t, 1, &end);
    const char *wrong = gsp_chain_take(t->terms, &end, step, known);
    size_t bytes = wrong ? 0 : gsp_wire_put_step(step, data, sizeof data);
    if (bytes == 0)
        return atom_fail(ATOM_E_FORMAT, "%s", wrong ? wrong : "a step without meaning");
    gsp_step_id(t->terms->seals, step, &id);
    if (resets)
        gsp_trail_cut(t, 1);
    ATOM_TRY(put(t, data, (uint32_t)bytes, &id));
    t->end = end;
    return ATOM_OK;
}

atom_status gsp_trail_copy(gsp_trail *to, const gsp_trail *from)
{
    gsp_trail_close(to);
    gsp_trail_open(to, from->terms);
    for (uint32_t i = 0; i < from->n; i++)
        ATOM_TRY(put(to, from->step[i].data, from->step[i].bytes, &from->step[i].id));
    to->end = from->end;
    return ATOM_OK;
}

uint32_t gsp_trail_find(const gsp_trail *t, const gsp_hash *id)
{
    for (uint32_t i = t->n; i-- > 0;)
        if (gsp_hash_equal(&t->step[i].id, id))
            return i;
    return t->n;
}

/* ---- growing ---- */

bool gsp_trail_tail(const gsp_trail *t, const gsp_saved *saved, gsp_step *out)
{
    gsp_hash id;
    if (!saved || !saved->has_certificate || t->n == 0)
        return false;
    memset(out, 0, sizeof *out);
    gsp_chain_link_of(t->terms->seals, &saved->certificate, &out->as.link);
    gsp_step_id(t->terms->seals, out, &id);
    return gsp_hash_equal(&out->as.link.head.lineage, &t->end.lineage) &&
           out->as.link.head.since == t->end.made && !gsp_hash_equal(&id, &t->end.newest) &&
           out->as.link.head.version > t->end.version;
}

bool gsp_trail_is_full(const gsp_trail *t)
{
    enum { STEPS = 2 }; /* a fork needs the certificate that it continues */
    return t->n + STEPS > GSP_CHAIN_STEPS_MAX ||
           t->bytes + (size_t)STEPS * GSP_WIRE_STEP_BYTES_MAX > GSP_TRAIL_BYTES_MAX;
}

atom_status gsp_trail_certify(gsp_trail *t, const gsp_certificate *c)
{
    gsp_step step = {.is_genesis = false};
    if (t->n == 0 || gsp_roster_equal(&c->proposal.next, &t->end.roster))
        return ATOM_OK;
    gsp_chain_link_of(t->terms->seals, c, &step.as.link);
    return gsp_trail_add(t, &step, true);
}

atom_status gsp_trail_begin(gsp_trail *t, const gsp_certificate *newest, const gsp_genesis *genesis)
{
    gsp_step step = {.is_genesis = false};
    gsp_hash id;
    if (newest && !is_reset(t, genesis)) {
        gsp_chain_link_of(t->terms->seals, newest, &step.as.link);
        gsp_step_id(t->terms->seals, &step, &id);
        if (!gsp_hash_equal(&id, &t->end.newest))
            ATOM_TRY(gsp_trail_add(t, &step, true));
    }
    memset(&step, 0, sizeof step);
    step.is_genesis = true;
    step.as.genesis = *genesis;
    return gsp_trail_add(t, &step, true);
}

atom_status gsp_trail_settle(gsp_trail *t, const gsp_saved *saved)
{
    gsp_hash id;
    if (t->n && t->end.still)
        gsp_trail_cut(t, t->n - 1);
    if (!saved->has_certificate)
        return ATOM_OK;
    gsp_proposal_hash(t->terms->seals, &saved->certificate.proposal, &id);
    if (gsp_hash_equal(&id, &t->end.newest))
        return ATOM_OK;
    return gsp_trail_certify(t, &saved->certificate);
}

bool gsp_trail_back(gsp_trail *t, const gsp_saved *saved)
{
    gsp_hash lineage;
    const gsp_proposal *p = &saved->certificate.proposal;
    uint64_t version = saved->has_certificate ? p->version : saved->genesis.version;
    gsp_roster roster;
    gsp_genesis_hash(t->terms->seals, &saved->genesis, &lineage);
    uint32_t at = gsp_trail_find(t, &lineage);
    if (at == t->n)
        return false;
    uint32_t n = at + 1;
    for (gsp_step step; n < t->n; n++) {
        gsp_trail_read(t, n, &step);
        if (step.is_genesis || step.as.link.head.version > version)
            break;
    }
    gsp_trail_cut(t, n);
    if (t->end.still)
        gsp_trail_cut(t, n - 1);
    gsp_genesis_roster(&saved->genesis, &roster);
    return gsp_roster_equal(&t->end.roster, saved->has_certificate ? &p->next : &roster) &&
           (!saved->has_certificate || t->end.made == p->made);
}

/* ---- talking ---- */

void gsp_trail_ask(const gsp_trail *t, gsp_chain_ask *out)
{
    memset(out, 0, sizeof *out);
    for (uint32_t back = 1; back <= t->n && out->n < GSP_LOCATOR_MAX; back += out->n < 4 ? 1 : back)
        out->known[out->n++] = t->step[t->n - back].id;
}

void gsp_trail_answer(const gsp_trail *t, const gsp_saved *saved, const gsp_chain_ask *ask,
                      gsp_chain_said *out)
{
    uint32_t at = t->n;
    bool tail, ended = false;
    gsp_step newest;
    gsp_hash id = {{0}};
    memset(out, 0, sizeof *out);
    tail = gsp_trail_tail(t, saved, &newest);
    if (tail)
        gsp_step_id(t->terms->seals, &newest, &id);
    for (uint32_t k = 0; k < ask->n && !ended; k++) {
        uint32_t here = gsp_trail_find(t, &ask->known[k]);
        ended = tail && gsp_hash_equal(&ask->known[k], &id);
        if (!ended && (here == t->n || (at < t->n && here <= at)))
            continue;
        at = here; /* the newest of those that both have */
        out->after = ask->known[k];
    }
    at = at < t->n ? at + 1 : ended ? t->n : 0;
    for (; at < t->n && out->n < GSP_CHAIN_SAID_MAX; at++)
        gsp_trail_read(t, at, &out->step[out->n++]);
    if (at == t->n && tail && !ended && out->n < GSP_CHAIN_SAID_MAX)
        out->step[out->n++] = newest;
    else
        out->more = at < t->n || (tail && !ended);
}

void gsp_trail_match(const gsp_trail *mine, const gsp_saved *saved, const gsp_trail *theirs,
                     gsp_match *out)
{
    gsp_step step;
    gsp_chain chain;
    uint32_t k = 0;
    const char *wrong = NULL;
    while (k < mine->n && k < theirs->n && gsp_hash_equal(&mine->step[k].id, &theirs->step[k].id))
        k++;
    gsp_trail_lead(mine, k, &chain);
    gsp_match_begin(out, &chain);
    gsp_trail_lead(theirs, k, &out->theirs.chain); /* the same ids may come with other signatures */
    for (uint32_t i = k; i < theirs->n && !wrong; i++) {
        gsp_trail_read(theirs, i, &step);
        wrong = gsp_match_take(mine->terms, &out->theirs, &step, true);
    }
    for (uint32_t i = k; i < mine->n && !wrong; i++) {
        gsp_trail_read(mine, i, &step);
        wrong = gsp_match_take(mine->terms, &out->mine, &step, true);
    }
    ATOM_ASSERT(!wrong); /* both were taken before */
    if (gsp_trail_tail(mine, saved, &step))
        wrong = gsp_match_take(mine->terms, &out->mine, &step, true);
    (void)wrong; /* a tail that does not follow says nothing */
}
