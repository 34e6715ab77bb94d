/*
 * Owns where a user's ticket comes from: the standard input, a file, or the command line itself.
 * Its one idea: a ticket is a secret, and what stands on a command line can be read by everybody on
 * the machine (ps), so there are two other ways. It refuses to wait for more than a line of somebody
 * who types.
 */
#include "gossip/trust/ticket.h"

#include "atom/base/log.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What is not blank of at most this much is a ticket, or too long for one. */
enum { READ_BYTES_MAX = 4 * GSP_TICKET_TEXT_BYTES };

static const char BEGINS[] = "atom1-", BLANKS[] = " \t\n\v\f\r";
static const char MARK[] = "\xef\xbb\xbf"; /* with which some editors begin a file in UTF-8 */

/* What was pasted is only the beginning: the ticket is broken into lines, and the next one is there. If it
 * were left, the shell would take it for a command. */
static bool goes_on(FILE *in, const char *text)
{
    struct pollfd p = {.fd = fileno(in), .events = POLLIN};
    gsp_ticket ticket;
    bool whole = gsp_ticket_parse(text, &ticket) == ATOM_OK;
    explicit_bzero(&ticket, sizeof ticket);
    return !whole && poll(&p, 1, 200) > 0;
}

static atom_status read_line(FILE *in, const char *name, char out[GSP_TICKET_TEXT_BYTES])
{
    size_t n = 0;
    int c = 0;
    for (size_t i = 0; (c = getc(in)) != EOF; i++) {
        out[n] = 0;
        if (c == '\n' && n && !goes_on(in, out))
            break;
        if (c == ' ' || (c >= '\t' && c <= '\r'))
            c = 0;
        if (i == READ_BYTES_MAX || n + 1 == GSP_TICKET_TEXT_BYTES)
            return atom_fail(ATOM_E_USAGE, "%s: this is too long to be a ticket", name);
        if (c)
            out[n++] = (char)c;
    }
    out[n] = 0;
    if (c == EOF && ferror(in))
        return atom_fail_errno(errno, "%s", name);
    return n ? ATOM_OK : atom_fail(ATOM_E_USAGE, "%s: there is no ticket in it", name);
}

/* The ticket that stands among other words, as `atom pool create` prints it: it comes first then. */
static atom_status find_word(const char *name, char text[READ_BYTES_MAX + 1],
                             char out[GSP_TICKET_TEXT_BYTES])
{
    char *at = text, *word = NULL;
    while (!word && (at = strstr(at, BEGINS)) != NULL) {
        bool starts = at == text || strchr(BLANKS, at[-1]);
        word = starts ? at : NULL;
        at += strlen(BEGINS);
    }
    if (!word)
        return atom_fail(ATOM_E_USAGE, "%s: there is no ticket in it; a ticket begins with atom1-",
                         name);
    size_t n = strcspn(word, BLANKS);
    if (n >= GSP_TICKET_TEXT_BYTES)
        return atom_fail(ATOM_E_USAGE, "%s: this is too long to be a ticket", name);
    memcpy(out, word, n);
    out[n] = 0;
    return ATOM_OK;
}

/* Text of two bytes per character, which PowerShell writes, becomes one of one byte: a ticket has no others. */
static size_t narrowed(char *text, size_t bytes)
{
    size_t n = 0;
    if (bytes < 2 || (memcmp(text, "\xff\xfe", 2) != 0 && memcmp(text, "\xfe\xff", 2) != 0))
        return bytes;
    for (size_t i = 2; i < bytes; i++)
        if (text[i])
            text[n++] = text[i];
    memset(text + n, 0, bytes - n);
    return n;
}

/* A ticket, perhaps broken into lines; or words of which one is a ticket. */
static atom_status read_whole(FILE *in, const char *name, char out[GSP_TICKET_TEXT_BYTES])
{
    char text[READ_BYTES_MAX + 1];
    size_t bytes = fread(text, 1, READ_BYTES_MAX, in), n = 0;
    bool more = bytes == READ_BYTES_MAX && getc(in) != EOF;
    atom_status st = ATOM_OK;
    text[bytes] = 0;
    bytes = narrowed(text, bytes);
    if (strncmp(text, MARK, strlen(MARK)) == 0)
        memset(text, ' ', strlen(MARK));
    size_t blank = strspn(text, BLANKS);
    if (ferror(in)) {
        st = atom_fail_errno(errno, "%s", name);
    } else if (strncmp(text + blank, BEGINS, strlen(BEGINS)) != 0 && text[blank]) {
        st = find_word(name, text, out);
    } else {
        for (size_t i = 0; i < bytes && n < GSP_TICKET_TEXT_BYTES; i++)
            if (!strchr(BLANKS, text[i]))
                out[n++] = text[i];
        if (n == GSP_TICKET_TEXT_BYTES || more)
            st = atom_fail(ATOM_E_USAGE, "%s: this is too long to be a ticket", name);
        else if (!n)
            st = atom_fail(ATOM_E_USAGE, "%s: there is no ticket in it", name);
        out[st == ATOM_OK ? n : 0] = 0;
    }
    explicit_bzero(text, sizeof text);
    return st;
}

static atom_status read_file(const char *path, char out[GSP_TICKET_TEXT_BYTES])
{
    struct stat s;
    FILE *in = fopen(path, "re");
    if (!in)
        return atom_fail(
            ATOM_E_USAGE,
            "ticket: '%.60s' is neither a file (%s) nor a ticket, which begins with atom1-; use "
            "- to read it from standard input",
            path, strerror(errno));
    if (fstat(fileno(in), &s) == 0 && S_ISREG(s.st_mode) && (s.st_mode & 077))
        atom_log(ATOM_LOG_WARN,
                 "others can read %s, and anybody with the ticket can join; run: chmod 600 %s",
                 path, path);
    atom_status st = read_whole(in, path, out);
    (void)fclose(in);
    return st;
}

atom_status gsp_ticket_read(const char *where, char out[GSP_TICKET_TEXT_BYTES])
{
    atom_status st = ATOM_OK;
    if (strcmp(where, "-") == 0) {
        bool types = isatty(STDIN_FILENO);
        if (types)
            (void)fputs("paste the ticket: ", stderr);
        st = types ? read_line(stdin, "the standard input", out)
                   : read_whole(stdin, "the standard input", out);
    } else if (strncmp(where, "atom", 4) == 0 && access(where, F_OK) != 0) {
        size_t n = strlen(where);
        if (n >= GSP_TICKET_TEXT_BYTES)
            return atom_fail(ATOM_E_USAGE, "ticket: this is too long to be a ticket");
        memcpy(out, where, n + 1);
    } else {
        st = read_file(where, out);
    }
    if (st != ATOM_OK)
        explicit_bzero(out, GSP_TICKET_TEXT_BYTES);
    return st;
}
