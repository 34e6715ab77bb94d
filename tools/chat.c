/*
 * Owns the terminal while a conversation runs. One idea: Ctrl-C sets a flag and nothing else; while
 * an answer is made the flag ends it, while a line is read it ends the line. Answers go to stdout,
 * everything about them to stderr. Lines may also come from a pipe or a file: then nothing is asked
 * for, and Ctrl-C ends it all. Refuses, on a terminal, nothing that can be said in a line.
 */
#include "tools/chat.h"
#include "tools/cli.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t interrupted;

static void on_interrupt(int number)
{
    (void)number;
    interrupted = 1;
}

static void emit(void *ctx, const char *text, size_t bytes)
{
    (void)ctx;
    fwrite(text, 1, bytes, stdout);
    fflush(stdout);
}

static bool stop(void *ctx)
{
    (void)ctx;
    return interrupted;
}

/* Waits for one; false: Ctrl-C. The flag is looked at now and then, because the signal may come
 * right before the call that it should interrupt, and the terminal forgets the line with it. */
static bool line_is_there(void)
{
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    int n = 0;
    while (!interrupted && (n == 0 || (n < 0 && errno == EINTR)))
        n = poll(&in, 1, 100);
    return !interrupted;
}

/* A line without its end; false: there are no more. An interrupted one is empty. *bytes: where it holds
 * a NUL it is longer than its text. */
static bool read_line(bool terminal, char **line, size_t *capacity, size_t *bytes)
{
    interrupted = 0;
    if (terminal)
        fputs("> ", stderr);
    fflush(stderr);
    errno = 0;
    ssize_t n = line_is_there() ? getline(line, capacity, stdin) : -1;
    if (n < 0 && terminal && (interrupted || errno == EINTR)) {
        clearerr(stdin);
        fputs("\n(Ctrl-D quits)\n", stderr);
        n = 0;
        if (!*line)
            *line = calloc(*capacity = 1, 1);
    }
    if (n < 0 || !*line)
        return false;
    while (n > 0 && ((*line)[n - 1] == '\n' || (*line)[n - 1] == '\r'))
        n--;
    (*line)[n] = 0;
    *bytes = (size_t)n;
    return true;
}

/* A file is read as it is or not at all; what a terminal sends of a key is repaired as it comes. */
static atom_status check_line(char *line, size_t bytes, size_t number)
{
    char where[64];
    snprintf(where, sizeof where, "standard input, line %zu", number);
    return cli_take_text(line, bytes, number == 1, where);
}

static void help(void)
{
    fputs("Each line is a message. Ctrl-C stops an answer, Ctrl-D quits.\n"
          "/reset  start over     /exit  quit     /help  this text\n",
          stderr);
}

static void tell(const generate_chat_result *r, size_t *forgotten)
{
    fputs("\n", stdout);
    fflush(stdout);
    if (r->stopped)
        fputs("(stopped)\n", stderr);
    if (r->full)
        fputs("(the answer stops here because the context is full; /reset starts over)\n", stderr);
    if (r->forgotten > *forgotten)
        fprintf(stderr, "(the first %zu messages no longer fit; the model does not see them)\n",
                r->forgotten);
    *forgotten = r->forgotten;
}

static atom_status answer(generate_chat *chat, bool terminal, const char *line, size_t *forgotten)
{
    generate_chat_result result;
    interrupted = 0;
    atom_status st = generate_chat_say(chat, line, stop, &result);
    if (st == ATOM_E_USAGE && terminal) {
        fprintf(stderr, "(%s)\n", atom_fail_message());
        return ATOM_OK;
    }
    if (st == ATOM_OK)
        tell(&result, forgotten);
    return st;
}

static atom_status converse(generate_chat *chat, bool terminal)
{
    bool asked = false;
    char *line = NULL;
    size_t capacity = 0, forgotten = 0, bytes = 0, number = 0;
    atom_status st = ATOM_OK;
    while (st == ATOM_OK && read_line(terminal, &line, &capacity, &bytes) &&
           strcmp(line, "/exit") != 0) {
        st = terminal ? ATOM_OK : check_line(line, bytes, ++number);
        if (st != ATOM_OK) {
            break;
        } else if (strcmp(line, "/reset") == 0) {
            generate_chat_reset(chat);
            forgotten = 0;
        } else if (line[0] == '/' && strcmp(line, "/help") != 0 && !strchr(line, ' ')) {
            fprintf(stderr, "(no such command: %s; /help lists them)\n", line);
        } else if (line[0] == '/' && strcmp(line, "/help") == 0) {
            help();
        } else if (line[0]) {
            st = answer(chat, terminal, line, &forgotten);
            asked = true;
            if (st == ATOM_OK && interrupted && !terminal)
                st = ATOM_E_INTERRUPTED;
        }
    }
    free(line);
    if (st == ATOM_OK && !terminal && interrupted)
        return ATOM_E_INTERRUPTED;
    if (st == ATOM_OK && !terminal && !asked)
        return atom_fail(ATOM_E_USAGE, "--chat: there was no message on standard input; give "
                                       "--prompt, or one message per line");
    return st;
}

atom_status cli_chat(const generate_request *request)
{
    bool terminal = isatty(STDIN_FILENO);
    struct sigaction action = {.sa_handler = on_interrupt}, before; /* getline must come back */
    generate_request r = *request;
    generate_chat *chat = NULL;
    r.emit = emit;
    atom_status st = ATOM_OK;
    ATOM_TRY(generate_chat_open(&r, &chat));
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, &before);
    if (terminal)
        help();
    st = converse(chat, terminal);
    if (terminal)
        fputs("\n", stderr);
    sigaction(SIGINT, &before, NULL);
    generate_chat_close(&chat);
    return st;
}
