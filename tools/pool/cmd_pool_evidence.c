/*
 * atom pool evidence: does the sum again that a file of evidence is about, and names the liar. One
 * idea: nobody is asked and nothing is believed but the pool's manifest; the file carries what the
 * accused signed and the contributions that it named. Refuses files of other pools.
 */
#include "tools/cli.h"

#include <sodium.h>
#include <string.h>

typedef struct evidence_values {
    char *manifest;
    bool json;
} evidence_values;

#define AT(member) .offset = offsetof(evidence_values, member)
/* clang-format off */
static const opt_spec specs[] = {
    {.name = "manifest", .type = OPT_TEXT, AT(manifest),
     .help = "The pool's manifest, if you do not have DIR."},
    PLAN_ROW_JSON(.help = "One JSON object on stdout."),
};
/* clang-format on */

static const opt_command options = {
    .name = "pool evidence",
    .summary = "check a file of evidence against a member",
    .description =
        "In each round every part is summed by one member, its owner, who signs the result. "
        "Other members repeat some of these sums. If one is false, they ban the owner and write "
        "a file of evidence. This command checks such a file. It needs only the file and the "
        "pool's manifest (in DIR, or --manifest); the pool need not be running. Of two statements "
        "that contradict each other it names the lineage if they were not made in the pool's "
        "first one: a manifest does not say what came after that. A member that "
        "withholds its contribution leaves no such file: it is taken off the roster for a while, "
        "and its log and the others' logs say so. Exit code 0: the file proves a lie; 3: it "
        "proves nothing.",
    .examples = "atom pool evidence run/pool/member/evidence-73672b20bcd66409-17-3 run\n",
    .positional = "FILE [DIR]",
    .positional_min = 1,
    .positional_max = 2,
    OPT_TABLE(specs, evidence_values),
};

static const uint64_t FILE_BYTES_MAX = (uint64_t)2 << 30;

static atom_status read_manifest(const evidence_values *v, const opt_parsed *parsed,
                                 gsp_manifest *out)
{
    const char *dir = parsed->n_positional > 1 ? parsed->positional[1] : ".";
    char *inner = atom_path_join(dir, "pool/manifest.json"), *text = NULL;
    char *outer = atom_path_join(dir, "manifest.json");
    uint64_t bytes = 0;
    atom_status st;
    if (!inner || !outer)
        ATOM_TRY_CLEAN(atom_fail_memory("a path", 256));
    const char *path = v->manifest ? v->manifest : atom_path_exists(inner) ? inner : outer;
    if (!v->manifest && !atom_path_exists(path))
        ATOM_TRY_CLEAN(
            atom_fail(ATOM_E_USAGE,
                      "%s holds no pool; name the directory of a member behind FILE, or the "
                      "pool's manifest with --manifest",
                      dir));
    ATOM_TRY_CLEAN(atom_file_read(path, GSP_MANIFEST_TEXT_BYTES_MAX, &text, &bytes));
    ATOM_TRY_CLEAN(gsp_manifest_parse(text, bytes, out));
cleanup:
    atom_free(text);
    atom_free(inner);
    atom_free(outer);
    return st;
}

static atom_status tell(const evidence_values *v, const gsp_manifest *m, const gsp_finding *f)
{
    char who[GSP_PUBLIC_TEXT_BYTES], why[200];
    gsp_public_text(f->claim.owner.key.byte, who);
    gsp_claim_text(&f->claim, why, sizeof why);
    bool lie = f->verdict == GSP_VERDICT_LIE;
    if (v->json) {
        ATOM_TRY(cli_print_json(
            json_pack("{s:s, s:s, s:b, s:I, s:i, s:i}", "pool", m->name, "member", who, "lied", lie,
                      "version", (json_int_t)f->claim.version, "part", (int)f->claim.number,
                      "contributions", __builtin_popcount(f->claim.part.included))));
    } else if (lie) {
        cli_print("member %s lied: %s\n", who, why);
    }
    if (lie)
        return ATOM_OK;
    return atom_fail(ATOM_E_FORMAT,
                     "this proves nothing: the sum of part %u of version %llu is right, as "
                     "member %s said",
                     f->claim.number, (unsigned long long)f->claim.version, who);
}

/* Two words name a lineage, and only the first one of a pool follows from its manifest. */
static bool is_first_lineage(const gsp_manifest *m, const gsp_evidence *e)
{
    gsp_genesis genesis;
    gsp_manifest_genesis(m, &genesis);
    return gsp_evidence_words_are_of(&genesis, e);
}

static atom_status tell_words(const evidence_values *v, const gsp_manifest *m,
                              const gsp_evidence *e)
{
    char who[GSP_PUBLIC_TEXT_BYTES], why[200], lineage[17];
    bool first = is_first_lineage(m, e);
    gsp_public_text(e->first.signer.key.byte, who);
    gsp_words_text(e, why, sizeof why);
    sodium_bin2hex(lineage, sizeof lineage, e->first.lineage.byte, 8);
    if (v->json)
        return cli_print_json(json_pack("{s:s?, s:s, s:s, s:b, s:I, s:i}", "pool",
                                        first ? m->name : NULL, "lineage", lineage, "member", who,
                                        "lied", true, "version", (json_int_t)e->first.version,
                                        "ballot", (int)e->first.ballot));
    cli_print("member %s lied: %s\n", who, why);
    if (!first)
        cli_print("that was in lineage %s, which is not the first one of this pool: it began there "
                  "with a fork or a reset, or it is of another pool. Those that members followed "
                  "are in their events.jsonl\n",
                  lineage);
    return ATOM_OK;
}

static atom_status judge(const evidence_values *v, const gsp_manifest *m, const char *data,
                         uint64_t bytes, gsp_finding *f)
{
    gsp_genesis genesis;
    gsp_evidence words;
    if (gsp_evidence_is_words(data, bytes)) {
        ATOM_TRY(gsp_evidence_judge_words(data, bytes, &words));
        return tell_words(v, m, &words);
    }
    gsp_manifest_genesis(m, &genesis);
    const gsp_terms terms = {.pool = genesis.pool,
                             .codec = m->codec,
                             .robust = m->robust,
                             .n_parts = m->n_parts,
                             .n_fragments = m->n_fragments,
                             .n_floats = m->n_floats};
    ATOM_TRY(gsp_evidence_judge(&terms, data, bytes, f));
    return tell(v, m, f);
}

static atom_status run(void *values, const opt_parsed *parsed)
{
    const evidence_values *v = values;
    gsp_manifest *m = atom_alloc(1, sizeof *m);
    gsp_finding *f = atom_alloc(1, sizeof *f);
    char *data = NULL;
    uint64_t bytes = 0;
    atom_status st;
    if (!m || !f)
        ATOM_TRY_CLEAN(atom_fail_memory("a manifest", sizeof *m));
    ATOM_TRY_CLEAN(gsp_crypto_start());
    ATOM_TRY_CLEAN(read_manifest(v, parsed, m));
    ATOM_TRY_CLEAN(atom_file_read(parsed->positional[0], FILE_BYTES_MAX, &data, &bytes));
    ATOM_TRY_CLEAN(judge(v, m, data, bytes, f));
cleanup:
    atom_free(data);
    atom_free(f);
    atom_free(m);
    return st;
}

const cli_command cli_pool_evidence = {&options, run};
