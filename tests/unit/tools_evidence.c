/* What `atom pool evidence` prints of two words, and of which pool it says that they are. */
#include "gossip/trust/seals.h"
#include "tests/lib/gossip_pool.h"
#include "tests/scratch.h"
#include "tools/cli.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

void cli_signals_catch(void) {}

int cli_signal(void)
{
    return 0;
}

static test_pool pool;

static void write_manifest(const char *path, const char *name, uint8_t salt)
{
    gsp_manifest *m = test_calloc(1, sizeof *m);
    char *text = NULL;
    test_pool_make(&pool, salt);
    memcpy(m->pool, pool.pool, sizeof m->pool);
    memcpy(m->owner, pool.owner.public_key, sizeof m->owner);
    memcpy(m->founder, pool.owner.public_key, sizeof m->founder);
    m->created_s = 1700000000;
    gsp_manifest_key_hash(pool.psk, &m->key);
    strcpy(m->name, name);
    m->n_fragments = 1;
    m->n_floats[0] = 100;
    strcpy(m->settings, "work: vector\n");
    test_must(gsp_manifest_complete(m));
    gsp_manifest_sign(m, &pool.owner);
    test_must(gsp_manifest_text(m, &text));
    test_must(atom_file_write(path, text, strlen(text)));
    atom_free(text);
    test_free(m);
}

/* Two votes of member 3 in the first lineage of a pool, which is *lineage. */
static void write_words(const char *path, const char *manifest, gsp_hash *lineage)
{
    gsp_seals seals = gsp_seals_real(&pool.member[3]);
    gsp_evidence e = {.first = {.kind = GSP_SAYS_VOTE, .version = 17, .ballot = 2}};
    gsp_manifest *m = test_calloc(1, sizeof *m);
    gsp_genesis genesis;
    char *text = NULL;
    uint64_t bytes = 0;
    test_must(atom_file_read(manifest, 1 << 20, &text, &bytes));
    test_must(gsp_manifest_parse(text, bytes, m));
    gsp_manifest_genesis(m, &genesis);
    gsp_genesis_hash(&seals, &genesis, &e.first.lineage);
    *lineage = e.first.lineage;
    e.first.signer.incarnation = 1;
    memcpy(e.first.signer.key.byte, pool.member[3].public_key, GSP_KEY_BYTES);
    e.first.subject.byte[0] = 1;
    e.second = e.first;
    e.second.subject.byte[0] = 2;
    gsp_statement_seal(&seals, &e.first);
    gsp_statement_seal(&seals, &e.second);
    test_must(gsp_evidence_write_words(path, &e));
    atom_free(text);
    test_free(m);
}

/* What is printed, to be freed. */
static char *run(const char *file, const char *manifest, bool json)
{
    const opt_command *c = cli_pool_evidence.options;
    void *values = calloc(1, c->values_bytes);
    char words[3][300] = {"", "--manifest", ""}, last[] = "--json";
    char *argv[] = {words[0], words[1], words[2], last};
    snprintf(words[0], sizeof words[0], "%s", file);
    snprintf(words[2], sizeof words[2], "%s", manifest);
    opt_parsed parsed = {0};
    FILE *out = stdout;
    char *text = NULL;
    size_t bytes = 0;
    test_must(opt_parse(c, json ? 4 : 3, argv, values, &parsed));
    stdout = open_memstream(&text, &bytes);
    atom_status st = cli_pool_evidence.run(values, &parsed);
    fclose(stdout);
    stdout = out;
    if (st != ATOM_OK)
        fail_msg("%s", atom_fail_message());
    opt_free(c, values);
    free(values);
    return text;
}

static void words_are_of_the_pool_whose_lineage_they_name(void **state)
{
    (void)state;
    scratch place;
    char ours[300], others[300], file[300], digits[17];
    gsp_hash lineage;
    scratch_open(&place);
    snprintf(ours, sizeof ours, "%s", scratch_path(&place, "ours.json"));
    snprintf(others, sizeof others, "%s", scratch_path(&place, "others.json"));
    snprintf(file, sizeof file, "%s", scratch_path(&place, "words"));
    write_manifest(others, "another pool", 8);
    write_manifest(ours, "ours", 7);
    write_words(file, ours, &lineage);
    char *text = run(file, ours, false);
    assert_non_null(strstr(text, "lied: it signed two votes in ballot 2 of version 17\n"));
    assert_null(strstr(text, "lineage"));
    free(text);
    text = run(file, ours, true);
    assert_non_null(strstr(text, "\"ours\""));
    free(text);
    /* By the same owner or not: it is no word about that pool. */
    text = run(file, others, false);
    assert_non_null(strstr(text, "which is not the first one of this pool"));
    free(text);
    text = run(file, others, true);
    json_t *o = json_loads(text, 0, NULL);
    assert_true(json_is_null(json_object_get(o, "pool")));
    for (int i = 0; i < 8; i++)
        snprintf(digits + 2 * i, 3, "%02x", lineage.byte[i]);
    assert_string_equal(json_string_value(json_object_get(o, "lineage")), digits);
    json_decref(o);
    free(text);
    scratch_close(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_are_of_the_pool_whose_lineage_they_name),
    };
    test_must(gsp_crypto_start());
    return cmocka_run_group_tests(tests, NULL, NULL);
}
