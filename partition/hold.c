/*
 * Owns what a sub-model repeats when it holds some of its nodes. One idea: backward reads certain
 * tensors, and repeating one of them costs its node and those nodes in front of it whose output is
 * read by nobody else; so what is repeated falls into groups whose costs add up. Refuses to choose
 * groups: some.c does.
 */
#include "partition/model.h"

#include "atom/base/assert.h"

/* Which nodes of [first, last) make what backward reads. */
static void mark_kept(const part_model *m, int32_t first, int32_t last)
{
    for (int32_t i = first; i < last; i++)
        m->marks[i] = (part_mark){.group = GRAPH_NONE};
    for (int32_t i = first; i < last; i++) {
        for (uint32_t k = m->nodes[i].kept_first; k < m->nodes[i].kept_last; k++) {
            const part_kept *kept = &m->kept[k];
            if (kept->producer < first)
                continue;
            part_mark *mark = &m->marks[kept->producer];
            mark->any_kept = true;
            mark->out_kept |= m->g->nodes[kept->producer].out[0] == kept->tensor;
            mark->bytes += kept->bytes;
        }
    }
}

/* The node of the range that makes input j of node i, or -1. */
static int32_t maker(const part_model *m, int32_t first, int32_t i, int j)
{
    int32_t producer = m->g->tensors[m->g->nodes[i].in[j]].producer;
    return producer >= first ? producer : GRAPH_NONE;
}

static bool is_terminal(const part_model *m, int32_t i)
{
    return atom_op_get(m->g->nodes[i].op)->flags & ATOM_OP_TERMINAL;
}

void part_range_hold(const part_model *m, const uint8_t *holds, part_range *r)
{
    mark_kept(m, r->first, r->last);
    r->again_ps = r->again_gain_ps = 0;
    r->held_bytes = r->sent_bytes = 0;
    for (int32_t i = r->last; i-- > r->first;) {
        part_mark *mark = &m->marks[i];
        r->held_bytes += holds[i] == PART_HOLD_DEVICE ? mark->bytes : 0;
        r->sent_bytes += holds[i] == PART_HOLD_HOST ? mark->bytes : 0;
        mark->again |= mark->any_kept && !holds[i];
        if (!mark->again || is_terminal(m, i))
            continue;
        r->again_ps += m->nodes[i].fwd_ps;
        r->again_gain_ps += m->fwd_gain_ps[i + 1] - m->fwd_gain_ps[i];
        for (int j = 0; j < atom_op_get(m->g->nodes[i].op)->ins; j++) {
            int32_t p = maker(m, r->first, i, j);
            if (p >= 0 && !(holds[p] && m->marks[p].out_kept))
                m->marks[p].again = true;
        }
    }
}

int32_t part_group_root(const part_model *m, int32_t i)
{
    while (m->marks[i].group != i)
        i = m->marks[i].group;
    return i;
}

/* Puts node p, which is repeated for node i, into its group. */
static void join(const part_model *m, int32_t p, int32_t i)
{
    int32_t root = part_group_root(m, i);
    if (m->marks[p].group < 0)
        m->marks[p].group = root;
    else
        m->marks[part_group_root(m, p)].group = root;
}

void part_groups(const part_model *m, int32_t first, int32_t last)
{
    mark_kept(m, first, last);
    for (int32_t i = last; i-- > first;) {
        part_mark *mark = &m->marks[i];
        if (is_terminal(m, i))
            continue;
        if (mark->any_kept && mark->group < 0)
            mark->group = i;
        for (int j = 0; mark->group >= 0 && j < atom_op_get(m->g->nodes[i].op)->ins; j++) {
            int32_t p = maker(m, first, i, j);
            if (p >= 0 && !m->marks[p].out_kept)
                join(m, p, i);
        }
    }
    for (int32_t i = first; i < last; i++) {
        if (m->marks[i].group < 0)
            continue;
        part_mark *root = &m->marks[part_group_root(m, i)];
        root->ps += m->nodes[i].fwd_ps;
        if (root != &m->marks[i])
            root->bytes += m->marks[i].bytes;
    }
}
