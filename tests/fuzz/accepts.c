/*
 * Seeds rot where they are refused at their first byte, since a fuzzer then begins with nothing and
 * says so nowhere. This demands of each seed of gossip_wire that it is read as what it is, and that
 * every kind of message is among them; and of those of gossip_evidence that they prove what their
 * names say.
 */
#include "atom/base/files.h"
#include "atom/base/mem.h"
#include "gossip/agree/wire.h"
#include "gossip/member/evidence.h"
#include "gossip/trust/identity.h"
#include "tests/fuzz/evidence_terms.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

static const char *folder;
static unsigned n_wrong;

static void wrong(const char *name, const char *what)
{
    fprintf(stderr, "fuzz_accepts: %s/%s: %s\n", folder, name, what);
    n_wrong++;
}

/* NULL: it cannot be read. */
static char *read_seed(const char *name, uint64_t *bytes)
{
    char path[4096], *data = NULL;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (atom_file_read(path, 1 << 20, &data, bytes) == ATOM_OK && *bytes > 1)
        return data;
    atom_free(data);
    wrong(name, "it cannot be read, or is empty");
    return NULL;
}

/* Returns a bit: 0 a record, 1 a saved state, 1 + kind a message; -1: refused. */
static int read_as(const uint8_t *data, size_t bytes)
{
    static gsp_message m;
    static gsp_record record;
    static gsp_saved saved;
    const gsp_key from = {{1}};
    const void *body;
    size_t body_bytes;
    if (data[0] % 3 == 1)
        return gsp_wire_get_record(data + 1, bytes - 1, &record) ? 0 : -1;
    if (data[0] % 3 == 2)
        return gsp_wire_get_saved(data + 1, bytes - 1, &saved) ? 1 : -1;
    return gsp_wire_decode(data + 1, bytes - 1, &from, &m, &body, &body_bytes) ? 1 + (int)m.kind
                                                                               : -1;
}

static void messages(void)
{
    uint64_t seen = 0, bytes, all = ((uint64_t)1 << (1 + GSP_MESSAGE_N)) - 1;
    DIR *dir = opendir(folder);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        char *data = e->d_name[0] == '.' ? NULL : read_seed(e->d_name, &bytes);
        int bit = data ? read_as((const uint8_t *)data, bytes) : 0;
        if (bit < 0)
            wrong(e->d_name, "today's decoder refuses it");
        else if (data)
            seen |= (uint64_t)1 << bit;
        atom_free(data);
    }
    if (dir)
        closedir(dir);
    all &= ~(((uint64_t)1 << (1 + GSP_HEARTBEAT)) - 4); /* kinds begin at HEARTBEAT */
    if (seen != all)
        wrong("", "a kind of message, a record or a saved state is missing");
}

static void judged(const char *name, gsp_verdict verdict)
{
    static gsp_finding f;
    const gsp_terms terms = evidence_terms(0);
    uint64_t bytes = 0;
    char *data = read_seed(name, &bytes);
    if (data && (gsp_evidence_judge(&terms, data, bytes, &f) != ATOM_OK || f.verdict != verdict))
        wrong(name, "it does not prove what its name says");
    atom_free(data);
}

static void evidence(void)
{
    gsp_evidence words;
    uint64_t bytes = 0;
    judged("right", GSP_VERDICT_RIGHT);
    judged("lie", GSP_VERDICT_LIE);
    char *data = read_seed("words", &bytes);
    if (data && gsp_evidence_judge_words(data, bytes, &words) != ATOM_OK)
        wrong("words", "it convicts nobody");
    atom_free(data);
}

int main(int argc, char **argv)
{
    if (argc != 3 || gsp_crypto_start() != ATOM_OK) {
        fprintf(stderr, "usage: fuzz_accepts wire|evidence FOLDER\n");
        return 2;
    }
    folder = argv[2];
    if (strcmp(argv[1], "wire") == 0)
        messages();
    else
        evidence();
    return n_wrong != 0;
}
