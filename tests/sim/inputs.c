/*
 * Owns what members give to those who check a part: contributions, as long as their makers keep
 * them. Its one idea: bytes have no content here, so whether they come is all there is to know. It
 * refuses to let a link that is cut count as somebody's fault.
 */
#include "tests/sim/sim.h"

#include <stdlib.h>
#include <string.h>

enum { LOOKS = 7 };

static bool both_ways(const sim_world *w, uint32_t a, uint32_t b)
{
    return a == b || (sim_reaches(w, a, b) && sim_reaches(w, b, a));
}

static bool got(const sim_host *h, const gsp_hash *root, uint32_t part)
{
    for (uint32_t k = 0; k < SIM_GOT_MAX && k < h->n_got; k++)
        if (h->got[k].root == sim_short(root) && h->got[k].part == part)
            return true;
    return false;
}

/* The host that made a contribution still has it, and gives it to h. */
static bool gives(sim_world *w, const sim_host *h, const gsp_hash *root, uint64_t version)
{
    const sim_span *span = sim_check_span(w, root);
    const sim_host *maker = span ? w->host[span->host] : NULL;
    if (!maker || !maker->running || !both_ways(w, h->index, maker->index) ||
        maker->agree.applied >= version + GSP_REPLAY_MAX || span->at_ns < maker->lost_ns)
        return false;
    if (maker != h && sim_hostile_withholds(maker, h)) {
        w->out->injected[SIM_WITHHELD]++;
        return false;
    }
    return true;
}

/* Somebody keeps it for h. */
static bool kept(const sim_world *w, const sim_host *h, const gsp_hash *root, uint32_t part)
{
    for (uint32_t k = 0; k < w->n_hosts; k++)
        if (w->host[k]->running && got(w->host[k], root, part) && both_ways(w, h->index, k) &&
            (k == h->index || !sim_hostile_withholds(w->host[k], h)))
            return true;
    return false;
}

static void look_again(sim_world *w, uint32_t host, uint64_t delay, const sim_wanted *x)
{
    sim_item *item = sim_push(w, SIM_LOOK, host, w->now_ns + delay);
    item->payload = malloc(sizeof *x);
    if (!item->payload)
        abort();
    memcpy(item->payload, x, sizeof *x);
}

void sim_audit(sim_world *w, sim_host *h, const gsp_action *a)
{
    static const gsp_key nobody;
    sim_wanted x = {.audit = true,
                    .accused = gsp_key_compare(&a->peer, &nobody) != 0,
                    .claim = *a->claim,
                    .version = a->claim->version,
                    .part = a->claim->number,
                    .wanted = a->claim->part.included,
                    .within_ns = a->within_ns,
                    .peer = a->peer};
    look_again(w, h->index, 2 * sim_delay(w), &x);
}

void sim_inputs(sim_world *w, sim_host *h, const gsp_action *a)
{
    sim_wanted x = {.version = a->version,
                    .part = a->part,
                    .wanted = a->included,
                    .within_ns = a->within_ns,
                    .peer = a->peer};
    look_again(w, h->index, 2 * sim_delay(w), &x);
}

static void audited(sim_world *w, sim_host *h, const sim_wanted *x, bool here, uint32_t withheld)
{
    const gsp_claim *c = &x->claim;
    gsp_part made;
    sim_made(&h->agree.lineage, c->version, c->number, c->contributor, c->n_contributors,
             c->part.included, &made);
    gsp_event event = {.kind = GSP_ON_AUDITED,
                       .version = c->version,
                       .part = c->number,
                       .withheld = withheld,
                       .verdict = here ? gsp_claim_judge(c, &made) : GSP_VERDICT_OPEN};
    sim_host_step(w, h->index, &event);
}

/* Which of the wanted contributions are to be had now; *linked: whose makers have a link. */
static uint32_t look(sim_world *w, sim_host *h, const sim_wanted *x, uint32_t *linked)
{
    const gsp_named *named = gsp_withheld_find(&h->agree, x->version);
    uint32_t here = 0;
    *linked = 0;
    for (uint32_t i = 0; i < GSP_MEMBERS_MAX; i++) {
        if (!(x->wanted >> i & 1) || (!x->audit && (!named || i >= named->n_contributors)))
            continue;
        const gsp_hash *root =
            x->audit ? &x->claim.contributor[i].root : &named->contributor[i].root;
        const gsp_member *who = named ? gsp_withheld_maker(named, i) : NULL;
        *linked |= who && both_ways(w, h->index, sim_host_of(w, &who->key)) ? 1u << i : 0;
        if (!got(h, root, x->part) && !gives(w, h, root, x->version) &&
            !(x->audit && x->looks > 0 && kept(w, h, root, x->part)))
            continue;
        here |= 1u << i;
        if (!x->audit && !got(h, root, x->part)) {
            uint32_t at = h->n_got++ % SIM_GOT_MAX;
            h->got[at].root = sim_short(root);
            h->got[at].part = x->part;
        }
    }
    return here;
}

void sim_look(sim_world *w, sim_item *item)
{
    sim_host *h = w->host[item->host];
    sim_wanted *x = item->payload;
    uint32_t linked, accuser = sim_host_of(w, &x->peer);
    if (x->accused) {
        audited(w, h, x, both_ways(w, h->index, accuser), 0);
        return;
    }
    uint32_t here = look(w, h, x, &linked);
    uint32_t lacks = x->looks > 1 ? x->wanted & ~here & linked & x->before : 0;
    if (x->audit && here == x->wanted) {
        audited(w, h, x, true, 0);
        return;
    }
    if (x->audit && x->looks == LOOKS) {
        audited(w, h, x, false, lacks);
        return;
    }
    gsp_event news = {.kind = GSP_ON_INPUTS,
                      .version = x->version,
                      .part = x->part,
                      .peer = x->audit ? h->self.key : x->peer,
                      .included = here,
                      .withheld = lacks};
    x->before = linked;
    sim_wanted next = *x;
    next.looks++;
    sim_host_step(w, h->index, &news);
    if (next.looks <= LOOKS && (x->audit || here != x->wanted))
        look_again(w, h->index, next.looks == 1 ? 1 : next.within_ns / (next.audit ? 1 : 2), &next);
}
