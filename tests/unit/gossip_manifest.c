/* Manifests: one hash however written, nothing above its limits, nothing that is not signed. */
#include "gossip/member/pieces.h"
#include "gossip/pool/manifest.h"
#include "tests/lib/gossip_pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "atom/base/mem.h"

static gsp_manifest *make(const test_pool *p)
{
    gsp_manifest *m = test_calloc(1, sizeof *m);
    memcpy(m->pool, p->pool, sizeof m->pool);
    memcpy(m->owner, p->owner.public_key, sizeof m->owner);
    memcpy(m->founder, p->owner.public_key, sizeof m->founder);
    m->created_s = 1700000000;
    gsp_manifest_key_hash(p->psk, &m->key);
    strcpy(m->name, "a small pool");
    m->n_fragments = 3;
    m->n_floats[0] = 100;
    m->n_floats[1] = 1000000;
    m->n_floats[2] = 7;
    m->codec = GSP_CODEC_INT8;
    m->anchor.byte[3] = 9;
    m->time_due_s = 0.1 + 0.2; /* not a short decimal */
    strcpy(m->settings, "mode: parameters\nH: 20\n");
    m->n_files = 2;
    strcpy(m->file[0].name, "config.json");
    m->file[0].bytes = 700;
    m->file[0].hash.byte[0] = 1;
    strcpy(m->file[1].name, "shard_000.bin");
    m->file[1].bytes = (uint64_t)1 << 38;
    m->file[1].later = true;
    m->n_banned = 1;
    m->banned[0][5] = 5;
    test_must(gsp_manifest_complete(m));
    gsp_manifest_sign(m, &p->owner);
    return m;
}

static void text_and_back(void **state)
{
    (void)state;
    test_pool p;
    test_pool_make(&p, 1);
    gsp_manifest *m = make(&p), *back = test_calloc(1, sizeof *back);
    char *text = NULL, *again = NULL;
    assert_true(gsp_manifest_verify(m));
    test_must(gsp_manifest_text(m, &text));
    test_must(gsp_manifest_parse(text, strlen(text), back));
    assert_memory_equal(m, back, sizeof *m);
    test_must(gsp_manifest_text(back, &again));
    assert_string_equal(text, again);
    assert_int_equal(m->n_parts, 1); /* the smallest fragment has 7 floats */
    assert_non_null(gsp_manifest_find(back, "shard_000.bin"));
    assert_null(gsp_manifest_find(back, "shard"));
    assert_true(gsp_manifest_bans(back, m->banned[0]));
    assert_false(gsp_manifest_bans(back, p.owner.public_key));
    gsp_genesis g;
    gsp_rules r;
    gsp_manifest_genesis(back, &g);
    gsp_manifest_rules(back, &r);
    assert_memory_equal(g.founder.key.byte, p.owner.public_key, 32);
    assert_int_equal(g.founder.incarnation, 1);
    assert_int_equal(r.time_due_ns, 300000000);
    assert_int_equal(r.heartbeat_ns, 1000000000);
    atom_free(text);
    atom_free(again);
    test_free(m);
    test_free(back);
}

/* Any byte of the struct that is changed after signing breaks the signature; so every field is
 * under it. */
static void every_byte_is_signed(void **state)
{
    (void)state;
    test_pool p;
    test_pool_make(&p, 2);
    gsp_manifest *m = make(&p);
    static const struct {
        size_t at, bytes;
    } span[] = {
#define SPAN(member) {offsetof(gsp_manifest, member), sizeof((gsp_manifest *)0)->member}
        SPAN(number),
        SPAN(pool),
        SPAN(owner),
        SPAN(founder),
        SPAN(created_s),
        SPAN(key),
        SPAN(name),
        SPAN(n_floats[1]),
        SPAN(codec),
        SPAN(trust),
        SPAN(anchor),
        SPAN(settings[0]),
        SPAN(tokens_per_sample),
        SPAN(file[1].hash),
        SPAN(file[0].bytes),
        SPAN(file[0].name[0]),
        SPAN(samples_due),
        SPAN(time_due_s),
        SPAN(fork_s),
        SPAN(heartbeat_s),
        SPAN(round_s),
        SPAN(silent_rounds),
        SPAN(n_parts),
        SPAN(n_banned),
        SPAN(banned[0]),
        SPAN(signature),
        SPAN(n_fragments),
        SPAN(n_files),
    };
    for (size_t i = 0; i < sizeof span / sizeof *span; i++)
        for (size_t k = 0; k < span[i].bytes && k < 12; k++) {
            uint8_t *byte = (uint8_t *)m + span[i].at + k;
            *byte ^= 1;
            assert_false(gsp_manifest_verify(m));
            *byte ^= 1;
        }
    m->plain = true;
    assert_false(gsp_manifest_verify(m));
    m->plain = false;
    m->robust = true;
    assert_false(gsp_manifest_verify(m));
    m->robust = false;
    m->clips_sums = true; /* without robust it is no manifest */
    assert_false(gsp_manifest_verify(m));
    m->robust = true;
    gsp_manifest_sign(m, &p.owner);
    assert_true(gsp_manifest_verify(m));
    m->clips_sums = false;
    assert_false(gsp_manifest_verify(m));
    m->clips_sums = m->shares_return = true;
    assert_false(gsp_manifest_verify(m));
    m->shares_return = false;
    m->passes_on = true;
    assert_false(gsp_manifest_verify(m));
    m->passes_on = false;
    m->drifts = true;
    assert_false(gsp_manifest_verify(m));
    m->clips_sums = m->drifts = false;
    m->robust = false;
    gsp_manifest_sign(m, &p.owner);
    m->file[1].later = false;
    assert_false(gsp_manifest_verify(m));
    m->file[1].later = true;
    assert_true(gsp_manifest_verify(m));
    test_free(m);
}

static void data_has_bounds(void **state)
{
    (void)state;
    test_pool p;
    test_pool_make(&p, 1);
    gsp_manifest *m = make(&p);
    for (int i = 0; i < 2; i++) {
        m->file[1].bytes = i ? 0 : (uint64_t)GSP_PIECES_MAX * GSP_PIECE_BYTES + 1;
        assert_int_equal(gsp_manifest_complete(m), ATOM_E_USAGE);
        m->file[1].later = false; /* any other file may be that large, but none is empty */
        assert_int_equal(gsp_manifest_complete(m), i ? ATOM_E_USAGE : ATOM_OK);
        m->file[1].later = true;
    }
    test_free(m);
}

static void refuse(const char *text, const char *from, const char *to, const char *word)
{
    gsp_manifest *out = test_calloc(1, sizeof *out);
    const char *at = strstr(text, from);
    assert_non_null(at);
    char *changed = atom_format("%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    assert_non_null(changed);
    assert_int_equal(gsp_manifest_parse(changed, strlen(changed), out), ATOM_E_FORMAT);
    if (!strstr(atom_fail_message(), word))
        fail_msg("'%s' does not say '%s'", atom_fail_message(), word);
    assert_int_equal(out->number, 0); /* untouched */
    atom_free(changed);
    test_free(out);
}

static void a_rule_has_its_format(int format)
{
    test_pool p;
    test_pool_make(&p, 3);
    gsp_manifest *m = make(&p), *back = test_calloc(1, sizeof *back);
    char *text = NULL, *again = NULL, said[32];
    snprintf(said, sizeof said, "\"format\": %d", format);
    m->clips_sums = (format - 3) & 1;
    m->drifts = (format - 3) & 8;
    m->robust = m->clips_sums || m->drifts;
    m->shares_return = (format - 3) & 2;
    m->passes_on = (format - 3) & 4;
    gsp_manifest_sign(m, &p.owner);
    test_must(gsp_manifest_text(m, &text));
    assert_non_null(strstr(text, said));
    test_must(gsp_manifest_parse(text, strlen(text), back));
    assert_int_equal(back->clips_sums, m->clips_sums);
    assert_int_equal(back->shares_return, m->shares_return);
    assert_int_equal(back->passes_on, m->passes_on);
    assert_int_equal(back->drifts, m->drifts);
    test_must(gsp_manifest_text(back, &again));
    assert_string_equal(text, again);
    refuse(text, said, "\"format\": 3", "sign");
    back->number++;
    assert_null(gsp_manifest_follows(m, back));
    back->clips_sums = back->shares_return = back->passes_on = back->drifts = false;
    assert_non_null(gsp_manifest_follows(m, back));
    atom_free(text);
    atom_free(again);
    test_free(m);
    test_free(back);
}

/* Builds before these rules read format 3 alone, or up to 4, 6 or 10. */
static void later_rules_have_formats_of_their_own(void **state)
{
    (void)state;
    for (int format = 4; format <= 18; format++)
        a_rule_has_its_format(format);
}

static void bad_texts(void **state)
{
    (void)state;
    test_pool p;
    test_pool_make(&p, 3);
    gsp_manifest *m = make(&p);
    char *text = NULL;
    test_must(gsp_manifest_text(m, &text));
    refuse(text, "\"format\": 3", "\"format\": 1", "version");
    refuse(text, "\"format\": 3", "\"format\": 3, \"more\": 1", "keys");
    refuse(text, "\"format\": 3,", "", "format");
    refuse(text, "\"format\": 3", "\"format\": 19", "version");
    refuse(text, "\"format\": 3", "\"format\": 4", "robust");
    refuse(text, "\"format\": 3", "\"format\": 11", "robust");
    refuse(text, "\"number\": 1", "\"number\": 2", "sign");
    refuse(text, "\"number\": 1", "\"number\": -1", "number");
    refuse(text, "\"number\": 1", "\"number\": 1.0", "number");
    refuse(text, "\"number\": 1", "\"number\": 1, \"number\": 1", "duplicate");
    refuse(text, "int8", "int9", "codec");
    refuse(text, "\"trust\": \"friends\"", "\"trust\": \"family\"", "trust");
    refuse(text, "config.json", "../config.json", "name");
    refuse(text, "config.json", "shard_000.bin", "one name");
    refuse(text, "a small pool", "a smal\\u0000 pool", "");
    refuse(text, "a small pool", "a smal\\u0007 pool", "name");
    refuse(text, "1000000", "0", "fragment");
    refuse(text, "\"time_due_s\": 0.3", "\"time_due_s\": 1e9, \"x\": 0.3", "keys");
    refuse(text, "{", "[", "manifest:2:10: ");
    gsp_manifest *out = test_calloc(1, sizeof *out);
    for (size_t n = 0; n < strlen(text) - 1; n += 13)
        assert_int_equal(gsp_manifest_parse(text, n, out), ATOM_E_FORMAT);
    /* Blanks and order do not matter. */
    char *wide = atom_format("  %s\n\n ", text);
    test_must(gsp_manifest_parse(wide, strlen(wide), out));
    test_free(out);
    atom_free(wide);
    atom_free(text);
    test_free(m);
}

static void what_may_follow(void **state)
{
    (void)state;
    test_pool p, q;
    test_pool_make(&p, 4);
    test_pool_make(&q, 5);
    gsp_manifest *m = make(&p), *next = make(&p), *other = make(&q);
    assert_non_null(gsp_manifest_follows(m, next)); /* the same number */
    next->number = 2;
    next->n_banned = 2;
    next->key.byte[0] ^= 1;
    assert_null(gsp_manifest_follows(m, next));
    next->n_floats[0]++;
    assert_non_null(gsp_manifest_follows(m, next));
    other->number = 2;
    assert_non_null(gsp_manifest_follows(m, other));
    test_free(m);
    test_free(next);
    test_free(other);
}

static void drafts_out_of_bounds(void **state)
{
    (void)state;
    test_pool p;
    test_pool_make(&p, 6);
    gsp_manifest *m = make(&p);
    m->n_fragments = 0;
    assert_int_equal(gsp_manifest_complete(m), ATOM_E_USAGE);
    m->n_fragments = 65;
    assert_int_equal(gsp_manifest_complete(m), ATOM_E_USAGE);
    m->n_fragments = 1;
    test_must(gsp_manifest_complete(m));
    m->round_s = -1;
    assert_int_equal(gsp_manifest_complete(m), ATOM_E_USAGE);
    m->round_s = 0;
    strcpy(m->file[0].name, ".hidden");
    assert_int_equal(gsp_manifest_complete(m), ATOM_E_USAGE);
    /* As many files as fit make a text that fits. */
    strcpy(m->file[0].name, "config.json");
    m->n_files = GSP_MANIFEST_FILES_MAX;
    for (uint32_t i = 0; i < m->n_files; i++) {
        m->file[i].bytes = (uint64_t)1 << 52;
        m->file[i].later = false;
        snprintf(m->file[i].name, sizeof m->file[i].name, "shard_of_the_data_set_%05u.bin", i);
    }
    m->n_banned = GSP_MANIFEST_BANNED_MAX;
    memset(m->settings, 's', sizeof m->settings - 1);
    test_must(gsp_manifest_complete(m));
    char *text = NULL;
    test_must(gsp_manifest_text(m, &text));
    atom_free(text);
    test_free(m);
}

/* Parts: of a useful size, none empty, few where fragments are small. */
static void parts(void **state)
{
    static const struct {
        uint64_t n, parts;
    } cases[] = {{7, 1},        {4096, 1},        {4097, 2},       {20000, 5},       {131072, 32},
                 {1000000, 31}, {100 << 20, 256}, {10000000, 153}, {1000000000, 256}};
    (void)state;
    gsp_manifest *m = test_calloc(1, sizeof *m);
    m->n_fragments = 2;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        m->n_floats[0] = m->n_floats[1] = cases[i].n;
        m->n_parts = 0;
        test_must(gsp_manifest_complete(m));
        if (m->n_parts != cases[i].parts)
            fail_msg("%llu floats: %u parts", (unsigned long long)cases[i].n, m->n_parts);
    }
    /* One tiny fragment beside a large one: parts must not become too large. */
    m->n_floats[0] = 100;
    m->n_parts = 0;
    test_must(gsp_manifest_complete(m));
    assert_true(m->n_parts >= 239);
    test_free(m);
}

/* What members of different trust wait for, and what one of them may bring. */
static void rules_follow_from_trust_and_samples(void **state)
{
    (void)state;
    gsp_rules r;
    gsp_manifest *m = test_calloc(1, sizeof *m);
    m->n_fragments = 2;
    m->n_floats[0] = m->n_floats[1] = 100;
    m->samples_due = 40;
    m->tokens_per_sample = 1000;
    test_must(gsp_manifest_complete(m));
    gsp_manifest_rules(m, &r);
    assert_int_equal(r.silent_rounds, 3);
    assert_int_equal(r.samples_max, 40 * 1024);
    assert_int_equal(r.tokens_per_sample, 2000);
    m->silent_rounds = 0;
    m->trust = GSP_STRANGERS;
    m->samples_due = (uint64_t)1 << 50;
    test_must(gsp_manifest_complete(m));
    gsp_manifest_rules(m, &r);
    assert_int_equal(r.silent_rounds, 8);
    assert_int_equal(r.trust, GSP_STRANGERS);
    assert_true(r.samples_max == GSP_TOKENS_MAX);
    m->silent_rounds = 5; /* as the owner says */
    test_must(gsp_manifest_complete(m));
    assert_int_equal(m->silent_rounds, 5);
    test_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(data_has_bounds),
        cmocka_unit_test(text_and_back),
        cmocka_unit_test(every_byte_is_signed),
        cmocka_unit_test(later_rules_have_formats_of_their_own),
        cmocka_unit_test(bad_texts),
        cmocka_unit_test(what_may_follow),
        cmocka_unit_test(drafts_out_of_bounds),
        cmocka_unit_test(parts),
        cmocka_unit_test(rules_follow_from_trust_and_samples),
    };
    test_must(gsp_crypto_start());
    return cmocka_run_group_tests(tests, NULL, NULL);
}
