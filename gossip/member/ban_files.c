/*
 * Owns the list of bans and their files. Its one idea: a ban rests on evidence that anybody can
 * check again, so it lies in a file of its own and is judged anew when it is read. It refuses to
 * believe a file that proves nothing.
 */
#include "gossip/member/ban_files.h"

#include "atom/base/files.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"
#include "gossip/agree/kept_out.h"
#include "gossip/trust/sign.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

static const uint64_t FILE_BYTES_MAX = ((uint64_t)1 << 30) + (1 << 20);
enum { FILES_MAX = GSP_BANNED_MAX, NAME_BYTES = 80 };

/* Takes the place of the oldest where there are many. */
static gsp_ban *add(gsp_ban_files *b, const gsp_key *key)
{
    gsp_ban *ban = &b->ban[b->n++ % GSP_BANS_SHOWN];
    memset(ban, 0, sizeof *ban);
    ban->key = *key;
    return ban;
}

/* What the names of files about this member begin with. */
static void name_key(const gsp_key *key, char name[NAME_BYTES])
{
    const uint8_t *k = key->byte;
    snprintf(name, NAME_BYTES, "evidence-%02x%02x%02x%02x%02x%02x%02x%02x-", k[0], k[1], k[2], k[3],
             k[4], k[5], k[6], k[7]);
}

static void name_file(const gsp_key *key, uint64_t version, uint32_t part, const char *kind,
                      char name[NAME_BYTES])
{
    name_key(key, name);
    size_t n = strlen(name);
    snprintf(name + n, NAME_BYTES - n, "%llu-%u%s", (unsigned long long)version, part, kind);
}

/* The path of the evidence about a member that is here already; NULL: none is, or no memory. */
static char *kept_file(const gsp_ban_files *b, const gsp_key *key)
{
    char name[NAME_BYTES], *path = NULL;
    name_key(key, name);
    DIR *dir = opendir(b->directory);
    for (struct dirent *e; !path && dir && (e = readdir(dir));)
        if (strncmp(e->d_name, name, strlen(name)) == 0 && !strchr(e->d_name, '.'))
            path = atom_path_join(b->directory, e->d_name);
    if (dir)
        closedir(dir);
    return path;
}

/* Says that a member is banned; st: whether the evidence was written to path. */
static void announce(gsp_ban *ban, const char *path, atom_status st)
{
    char who[GSP_PUBLIC_TEXT_BYTES];
    if (st == ATOM_OK)
        snprintf(ban->file, sizeof ban->file, "%s", path);
    else
        atom_log(ATOM_LOG_WARN, "cannot keep evidence against a member: %s", atom_fail_message());
    atom_log(ATOM_LOG_WARN, "member %s is banned: %s%s%s", gsp_public_text(ban->key.byte, who),
             ban->why, st == ATOM_OK ? "; evidence: " : "", st == ATOM_OK ? path : "");
}

void gsp_ban_files_statements(gsp_ban_files *b, const gsp_evidence *e)
{
    char name[NAME_BYTES];
    gsp_ban *ban = add(b, &e->first.signer.key);
    name_file(&ban->key, e->first.version, 0, "-words", name);
    gsp_words_text(e, ban->why, sizeof ban->why);
    char *path = kept_file(b, &ban->key);
    atom_status st = ATOM_OK;
    if (!path) {
        path = atom_path_join(b->directory, name);
        st = path ? gsp_evidence_write_words(path, e) : atom_fail_memory("a path", 256);
    }
    announce(ban, path, st);
    atom_free(path);
}

void gsp_ban_files_claim(gsp_ban_files *b, const gsp_genesis *genesis, const gsp_claim *claim,
                         const gsp_exhibit *exhibit)
{
    char name[NAME_BYTES];
    gsp_ban *ban = add(b, &claim->owner.key);
    name_file(&ban->key, claim->version, claim->number, "", name);
    gsp_claim_text(claim, ban->why, sizeof ban->why);
    char *path = kept_file(b, &ban->key);
    atom_status st = ATOM_OK;
    if (!path) {
        path = atom_path_join(b->directory, name);
        st = path ? gsp_evidence_write(path, genesis, claim, exhibit)
                  : atom_fail_memory("a path", 256);
    }
    announce(ban, path, st);
    atom_free(path);
}

void gsp_ban_files_follow(gsp_ban_files *b, const gsp_agree *agree, uint64_t n_before)
{
    char who[GSP_PUBLIC_TEXT_BYTES];
    uint64_t news = agree->stats.bans - n_before, n = agree->n_banned;
    for (uint64_t k = news < n ? n - news : 0; k < n; k++) {
        const gsp_key *key = &agree->banned[k];
        bool known = false;
        for (uint32_t i = 0; i < b->n && i < GSP_BANS_SHOWN; i++)
            known |= gsp_key_compare(&b->ban[i].key, key) == 0;
        if (known)
            continue;
        gsp_ban *ban = add(b, key);
        snprintf(ban->why, sizeof ban->why, "it signed two contradictory statements");
        atom_log(ATOM_LOG_WARN, "member %s is banned: %s", gsp_public_text(key->byte, who),
                 ban->why);
    }
}

void gsp_ban_files_barred(const gsp_agree *agree)
{
    char who[GSP_PUBLIC_TEXT_BYTES];
    const gsp_proposal *p = &agree->certificate.proposal;
    uint32_t all = gsp_kept_out_versions(agree->rules.withheld_ns, agree->rules.time_due_ns);
    for (uint32_t k = 0; k < p->n_barred; k++)
        if (p->barred[k].versions == all)
            atom_log(ATOM_LOG_WARN,
                     "member %s is off the roster for %u versions, because enough members say "
                     "that it withholds its contribution, or have banned it",
                     gsp_public_text(p->barred[k].key.byte, who), all);
}

/* ---- after a restart ---- */

/* The member that the file convicts goes to *ban. Errors: the file proves nothing, or cannot be
 * read. */
static atom_status judge(const gsp_terms *terms, const char *data, uint64_t bytes, gsp_ban *ban)
{
    gsp_evidence words;
    if (gsp_evidence_is_words(data, bytes)) {
        ATOM_TRY(gsp_evidence_judge_words(data, bytes, &words));
        ban->key = words.first.signer.key;
        gsp_words_text(&words, ban->why, sizeof ban->why);
        return ATOM_OK;
    }
    gsp_finding *f = atom_alloc(1, sizeof *f);
    atom_status st =
        f ? gsp_evidence_judge(terms, data, bytes, f) : atom_fail_memory("evidence", sizeof *f);
    if (st == ATOM_OK && f->verdict != GSP_VERDICT_LIE)
        st = atom_fail(ATOM_E_FORMAT, "this proves nothing: what the owner of the part said is "
                                      "true");
    if (st == ATOM_OK) {
        ban->key = f->claim.owner.key;
        gsp_claim_text(&f->claim, ban->why, sizeof ban->why);
    }
    atom_free(f);
    return st;
}

static bool recall(gsp_ban_files *b, const gsp_terms *terms, const char *path, gsp_key *key)
{
    char *data = NULL, who[GSP_PUBLIC_TEXT_BYTES];
    uint64_t bytes = 0;
    gsp_ban found = {0};
    atom_status st = atom_file_read(path, FILE_BYTES_MAX, &data, &bytes);
    if (st == ATOM_OK)
        st = judge(terms, data, bytes, &found);
    atom_free(data);
    if (st != ATOM_OK) {
        atom_log(ATOM_LOG_WARN, "%s: %s", path, atom_fail_message());
        return false;
    }
    *key = found.key;
    snprintf(found.file, sizeof found.file, "%s", path);
    *add(b, key) = found;
    atom_log(ATOM_LOG_INFO, "member %s stays banned; evidence: %s", gsp_public_text(key->byte, who),
             path);
    return true;
}

void gsp_ban_files_recall(gsp_ban_files *b, const gsp_terms *terms,
                          void (*found)(void *context, const gsp_key *key), void *context)
{
    DIR *dir = opendir(b->directory);
    struct dirent *e;
    for (uint32_t n = 0; dir && n < FILES_MAX && (e = readdir(dir));) {
        gsp_key key;
        if (strncmp(e->d_name, "evidence-", 9) != 0 || strchr(e->d_name + 9, '.'))
            continue;
        char *path = atom_path_join(b->directory, e->d_name);
        if (path && recall(b, terms, path, &key))
            found(context, &key);
        atom_free(path);
        n++;
    }
    if (dir)
        closedir(dir);
}
