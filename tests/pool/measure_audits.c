/*
 * What audits cost a member, by hand: members on threads over links in memory, a version every
 * PACE_S seconds, and the CPU time that each member's thread spends in all and inside
 * gsp_node_audit, which the linker wraps for this program. What it gives others is in the whole.
 *
 *   MEMBERS=8 FLOATS=16777216 PARTS=64 ROUNDS=6 PACE_S=10 AUDIT=25 ROBUST=0 pool_measure_audits
 *
 * Prints one line of JSON. AUDIT=0 shows what the rest costs.
 */
#include "tests/lib/gossip_cell.h"

#include "gossip/member/node_inner.h"

#include <stdlib.h>
#include <time.h>

bool __wrap_gsp_node_audit(gsp_node *node);
bool __real_gsp_node_audit(gsp_node *node);

static _Thread_local uint64_t audit_ns;

static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

bool __wrap_gsp_node_audit(gsp_node *node)
{
    uint64_t began = cpu_ns();
    bool more = __real_gsp_node_audit(node);
    audit_ns += cpu_ns() - began;
    return more;
}

static uint64_t number(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

static cell the_cell;
static uint64_t pace_ns, all_ns[CELL_MEMBERS_MAX], spent_ns[CELL_MEMBERS_MAX];

static void *run(void *context)
{
    cell_member *m = context;
    cell *c = m->cell;
    bool done = false;
    uint64_t began = 0, audited = 0;
    cell_dial(m);
    while (!c->stop) {
        gsp_node_read_status(m->node, &m->status);
        bool joined = m->status.n_roster == c->n, due = atom_clock_ns() - m->applied_ns > pace_ns;
        if (joined && !began) {
            began = cpu_ns();
            audited = audit_ns;
        }
        gsp_node_report(m->node, !joined || due ? c->n : 0, 0);
        if (gsp_node_turn(m->node, 20000000) != ATOM_OK)
            abort();
        if (m->n_whole >= c->rounds && atom_clock_ns() - m->applied_ns > pace_ns / 2 && !done) {
            done = true;
            all_ns[m->i] = cpu_ns() - began;
            spent_ns[m->i] = audit_ns - audited;
            c->n_done++;
        }
    }
    return NULL;
}

int main(void)
{
    cell *c = &the_cell;
    unsigned members = (unsigned)number("MEMBERS", 8);
    pace_ns = number("PACE_S", 10) * 1000000000u;
    cell_make(c, members, GSP_CODEC_INT8, number("FLOATS", 1 << 24), (uint32_t)number("PARTS", 64),
              (unsigned)number("ROUNDS", 6));
    c->robust = number("ROBUST", 0);
    c->rules.audit_percent = (uint32_t)number("AUDIT", 25);
    test_must(gsp_sim_hub_open(&c->hub));
    for (unsigned i = 0; i < c->n; i++)
        cell_open_net(&c->member[i]);
    for (unsigned i = 0; i < c->n; i++)
        cell_open_node(&c->member[i]);
    uint64_t began = atom_clock_ns();
    for (unsigned i = 0; i < c->n; i++)
        if (pthread_create(&c->member[i].thread, NULL, run, &c->member[i]) != 0)
            abort();
    while (c->n_done < c->n)
        usleep(10000);
    c->stop = true;
    double all = 0, spent = 0, audits = 0, open = 0,
           seconds = (double)(atom_clock_ns() - began) / 1e9;
    for (unsigned i = 0; i < c->n; i++) {
        pthread_join(c->member[i].thread, NULL);
        all += (double)all_ns[i] / 1e9;
        spent += (double)spent_ns[i] / 1e9;
        audits += (double)c->member[i].status.audits;
        open += (double)c->member[i].status.audits_open;
        gsp_node_close(&c->member[i].node);
        gsp_net_close(&c->member[i].net);
    }
    double versions = (double)c->n * c->rounds;
    printf(
        "{\"members\": %u, \"versions\": %u, \"seconds\": %.1f, \"audits\": %.0f, \"open\": %.0f, "
        "\"cpu_s_per_version\": %.4f, \"audit_s_per_version\": %.4f}\n",
        c->n, c->rounds, seconds, audits, open, all / versions, spent / versions);
    cell_close(c);
    return 0;
}
