/*
 * What a long chain of rosters costs, by hand: made with real keys, each step with the votes of
 * VOTES members of MEMBERS, who leave and come back one after the other. Then it is encoded,
 * written, read again, copied out in answers, and checked whole as a newcomer does.
 *
 *   MEMBERS=32 VOTES=17 LINKS=10000 pool_measure_chain
 *
 * Prints one line of JSON. Milliseconds are CPU time of the one thread, but for those of the disk.
 */
#include "gossip/agree/wire.h"
#include "gossip/member/inquiry.h"
#include "gossip/member/trail_file.h"
#include "gossip/trust/seals.h"
#include "tests/lib/gossip_pool.h"
#include "tests/scratch.h"

#include <stdio.h>
#include <time.h>

static test_pool pool;
static gsp_seals seals[TEST_MEMBERS_MAX];
static gsp_chain_terms terms;
static gsp_genesis genesis;
static uint32_t n_members, n_votes, n_links;

static double cpu_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static double wall_ms(void)
{
    return (double)atom_clock_ns() / 1e6;
}

static uint32_t number(const char *name, uint32_t otherwise, uint32_t most)
{
    const char *text = getenv(name);
    unsigned long x = text ? strtoul(text, NULL, 10) : otherwise;
    return (uint32_t)(x < most ? x : most);
}

static uint32_t who(const gsp_key *key)
{
    uint32_t i = 0;
    while (memcmp(pool.member[i].public_key, key->byte, sizeof key->byte) != 0)
        i++;
    return i;
}

static void insert(gsp_roster *r, uint32_t i, uint64_t incarnation)
{
    gsp_member m = {.incarnation = incarnation};
    uint32_t at = r->n++;
    memcpy(m.key.byte, pool.member[i].public_key, sizeof m.key.byte);
    for (; at > 0 && gsp_key_compare(&r->member[at - 1].key, &m.key) > 0; at--)
        r->member[at] = r->member[at - 1];
    r->member[at] = m;
}

/* The first who are needed vote. */
static void vote(const gsp_roster *roster, gsp_chain_link *link)
{
    gsp_statement s = {.kind = GSP_SAYS_VOTE,
                       .lineage = link->head.lineage,
                       .version = link->head.version,
                       .ballot = link->ballot};
    gsp_head_hash(&seals[0], &link->head, &s.subject);
    link->n_votes = n_votes < roster->n ? n_votes : roster->n;
    for (uint32_t i = 0; i < link->n_votes; i++) {
        s.signer = roster->member[i];
        gsp_statement_seal(&seals[who(&s.signer.key)], &s);
        link->vote[i].member = (uint8_t)i;
        memcpy(link->vote[i].seal, s.seal, sizeof s.seal);
    }
}

/* All come in; then one leaves and comes back, and the next. */
static void next_roster(const gsp_roster *now, uint32_t k, gsp_roster *out)
{
    static uint64_t incarnation = 1;
    *out = *now;
    for (uint32_t i = 0; i < n_members && now->n < n_members; i++) {
        bool known = false;
        for (uint32_t m = 0; m < now->n; m++)
            known |= who(&now->member[m].key) == i;
        if (!known) {
            insert(out, i, ++incarnation);
            return;
        }
    }
    uint32_t at = k / 2 % n_members;
    memmove(&out->member[at], &out->member[at + 1], (out->n - at - 1) * sizeof out->member[0]);
    memset(&out->member[--out->n], 0, sizeof out->member[0]);
}

static void make(gsp_trail *t)
{
    gsp_step step = {.is_genesis = true, .as.genesis = genesis};
    gsp_roster next;
    gsp_trail_open(t, &terms);
    test_must(gsp_trail_add(t, &step, true));
    for (uint32_t k = 1; k <= n_links; k++) {
        memset(&step, 0, sizeof step);
        next_roster(&t->end.roster, k, &next);
        step.as.link.ballot = 1;
        step.as.link.head = (gsp_head){.lineage = t->end.lineage,
                                       .version = k,
                                       .tokens = k,
                                       .next = next,
                                       .since = t->end.made,
                                       .made = k};
        vote(&t->end.roster, &step.as.link);
        test_must(gsp_trail_add(t, &step, true));
    }
}

/* As a newcomer hears it: every answer encoded, decoded and checked; *bytes: of the answers. */
static double hear(const gsp_trail *of, uint64_t *bytes, uint32_t *pages)
{
    static gsp_message ask, said, back;
    static uint8_t wire[GSP_WIRE_BYTES_MAX];
    gsp_trail none;
    gsp_inquiry q = {0};
    gsp_key key = {{1}};
    gsp_inquiry_news news = GSP_INQUIRY_GOES;
    double began = cpu_ms();
    gsp_trail_open(&none, &terms);
    gsp_inquiry_begin(&q, &terms, &key, 1);
    for (*pages = 0, *bytes = 0; news == GSP_INQUIRY_GOES; ++*pages) {
        memset(&said, 0, sizeof said);
        gsp_inquiry_ask(&q, &none, &ask.as.chain_ask);
        gsp_trail_answer(of, NULL, &ask.as.chain_ask, &said.as.chain);
        said.kind = GSP_CHAIN;
        said.from.incarnation = 1;
        size_t size = gsp_wire_encode(&said, wire, sizeof wire);
        *bytes += size;
        if (size == 0 || !gsp_wire_decode(wire, size, &key, &back, NULL, NULL))
            abort();
        news = gsp_inquiry_heard(&q, &none, &back.as.chain, 1);
    }
    if (news != GSP_INQUIRY_WHOLE || q.theirs.n != of->n)
        abort();
    gsp_inquiry_close(&q);
    return cpu_ms() - began;
}

static double encode(const gsp_trail *t)
{
    static uint8_t wire[GSP_WIRE_STEP_BYTES_MAX];
    double began = cpu_ms(), decoded;
    gsp_step step;
    for (uint32_t i = 0; i < t->n; i++)
        gsp_trail_read(t, i, &step);
    decoded = cpu_ms();
    for (uint32_t i = 0; i < t->n; i++) {
        gsp_trail_read(t, i, &step);
        if (gsp_wire_put_step(&step, wire, sizeof wire) != t->step[i].bytes)
            abort();
    }
    return cpu_ms() - decoded - (decoded - began);
}

static double verify(const gsp_trail *t)
{
    gsp_chain chain = {0};
    gsp_step step;
    double began = cpu_ms();
    for (uint32_t i = 0; i < t->n; i++) {
        gsp_trail_read(t, i, &step);
        if (gsp_chain_take(&terms, &chain, &step, false))
            abort();
    }
    return cpu_ms() - began;
}

int main(void)
{
    gsp_trail t, again;
    scratch place;
    uint64_t bytes, file;
    uint32_t pages;
    char *data;
    n_members = number("MEMBERS", 32, GSP_MEMBERS_MAX);
    n_votes = number("VOTES", n_members / 2 + 1, n_members);
    n_links = number("LINKS", 10000, GSP_CHAIN_STEPS_MAX - 1);
    test_must(gsp_crypto_start());
    test_pool_make(&pool, 9);
    for (uint32_t i = 0; i < TEST_MEMBERS_MAX; i++)
        seals[i] = gsp_seals_real(&pool.member[i]);
    genesis = (gsp_genesis){.pool = {{7}}, .founder = {.incarnation = 1}};
    memcpy(genesis.founder.key.byte, pool.member[0].public_key, sizeof genesis.founder.key.byte);
    terms = (gsp_chain_terms){.seals = &seals[0]};
    gsp_genesis_hash(&seals[0], &genesis, &terms.first);
    make(&t);
    scratch_open(&place);
    double encoded = encode(&t), verified = verify(&t), heard = hear(&t, &bytes, &pages);
    double began = wall_ms();
    test_must(gsp_trail_save(&t, place.dir, 0));
    double written = wall_ms() - began;
    gsp_trail_open(&again, &terms);
    began = wall_ms();
    test_must(gsp_trail_load(&again, place.dir));
    double read = wall_ms() - began;
    test_must(atom_file_read(scratch_path(&place, "chain"), UINT32_MAX, &data, &file));
    atom_free(data);
    if (again.n != t.n)
        abort();
    printf(
        "{\"members\": %u, \"votes\": %u, \"steps\": %u, \"bytes\": %zu, \"bytes_per_step\": %zu, "
        "\"file_bytes\": %llu, \"encode_ms\": %.1f, \"verify_ms\": %.0f, \"write_ms\": %.0f, "
        "\"read_ms\": %.0f, \"answers\": %u, \"answer_bytes\": %llu, \"hear_ms\": %.0f}\n",
        n_members, n_votes, t.n, t.bytes, t.bytes / t.n, (unsigned long long)file, encoded,
        verified, written, read, pages, (unsigned long long)bytes, heard);
    gsp_trail_close(&t);
    gsp_trail_close(&again);
    scratch_close(&place);
    return 0;
}
