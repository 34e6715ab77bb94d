/*
 * Owns the local socket: one thread, one connection at a time, one line each way. Its one idea: the
 * socket is reached through its directory's descriptor, so no path is too long. It refuses other
 * users, long lines, and to wait for a slow one.
 */
#include "gossip/pool/control.h"

#include "atom/base/clock.h"
#include "atom/base/mem.h"
#include "gossip/pool/dir.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static const char NAME[] = "control.sock";
static const uint64_t SLOW_NS = 2000000000u;
enum {
    FULL_MS = 200, /* until the next look whether there is a descriptor again */
    AGAIN_MS = 50, /* and whether there is room in the queue */
};

struct gsp_control {
    int directory, listen, wake;
    bool bound, has_thread;
    gsp_control_answer *answer;
    void *context;
    pthread_t thread;
};

static socklen_t address_of(int directory, struct sockaddr_un *out)
{
    memset(out, 0, sizeof *out);
    out->sun_family = AF_UNIX;
    snprintf(out->sun_path, sizeof out->sun_path, "/proc/self/fd/%d/%s", directory, NAME);
    return (socklen_t)sizeof *out;
}

/* -1: errno says why; EAGAIN: somebody listens there, and has more callers than it has answered. */
static int connect_to(int directory)
{
    struct sockaddr_un at;
    socklen_t bytes = address_of(directory, &at);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&at, bytes) == 0)
        return fd;
    int error = errno;
    if (fd >= 0)
        close(fd);
    errno = error;
    return -1;
}

/* Who is stopped, or busy with an order, has the callers of before in its queue. */
static int connect_until(int directory, uint64_t until_ns)
{
    int fd;
    while ((fd = connect_to(directory)) < 0 && errno == EAGAIN && atom_clock_ns() < until_ns)
        (void)poll(NULL, 0, AGAIN_MS);
    return fd;
}

/* Waits for the descriptor until a moment; false: too late, or wake was written to. */
static bool ready(int fd, short what, int wake, uint64_t until_ns)
{
    uint64_t now = atom_clock_ns();
    struct pollfd p[2] = {{.fd = fd, .events = what}, {.fd = wake, .events = POLLIN}};
    if (now >= until_ns)
        return false;
    int n = poll(p, wake >= 0 ? 2 : 1, (int)((until_ns - now) / 1000000 + 1));
    return n > 0 && p[0].revents && !(wake >= 0 && p[1].revents);
}

/* A line into fresh memory, without its end. NULL: too long, cut off or too slow. */
static char *read_line(int fd, size_t bytes_max, int wake, uint64_t until_ns)
{
    size_t n = 0, capacity = 4096;
    char *line = atom_alloc(capacity, 1);
    while (line && ready(fd, POLLIN, wake, until_ns)) {
        if (n + 1 >= capacity) {
            char *more = capacity < bytes_max ? atom_realloc(line, 2 * capacity, 1) : NULL;
            if (!more)
                break;
            line = more;
            capacity *= 2;
        }
        ssize_t got = read(fd, line + n, capacity - 1 - n);
        if (got < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (got <= 0)
            break;
        char *end = memchr(line + n, '\n', (size_t)got);
        n += (size_t)got;
        line[n] = 0;
        if (end) {
            *end = 0;
            return line;
        }
    }
    atom_free(line);
    return NULL;
}

static bool write_all(int fd, const char *data, size_t bytes, int wake, uint64_t until_ns)
{
    while (bytes && ready(fd, POLLOUT, wake, until_ns)) {
        ssize_t n = send(fd, data, bytes, MSG_NOSIGNAL);
        if (n < 0 && errno != EINTR && errno != EAGAIN)
            return false;
        if (n > 0) {
            data += n;
            bytes -= (size_t)n;
        }
    }
    return bytes == 0;
}

static bool same_user(int fd)
{
    struct ucred peer;
    socklen_t bytes = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 &&
           (peer.uid == geteuid() || peer.uid == 0);
}

static void serve(gsp_control *c, int fd)
{
    char *request = same_user(fd)
                        ? read_line(fd, GSP_CONTROL_REQUEST_MAX, c->wake, atom_clock_ns() + SLOW_NS)
                        : NULL;
    char *answer = request ? c->answer(c->context, request) : NULL;
    if (answer) {
        uint64_t until = atom_clock_ns() + SLOW_NS;
        if (write_all(fd, answer, strlen(answer), c->wake, until))
            (void)write_all(fd, "\n", 1, c->wake, until);
    }
    atom_free(request);
    atom_free(answer);
    close(fd);
}

/* A connection that cannot be accepted stays in the queue, and poll reports it again at once: without a
 * descriptor for it this thread would do nothing else. */
static bool stays_in_the_queue(int error)
{
    return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS;
}

static void *run(void *context)
{
    gsp_control *c = context;
    for (;;) {
        struct pollfd p[2] = {{.fd = c->listen, .events = POLLIN},
                              {.fd = c->wake, .events = POLLIN}};
        if (poll(p, 2, -1) < 0 && errno != EINTR)
            return NULL;
        if (p[1].revents)
            return NULL;
        int fd = p[0].revents ? accept4(c->listen, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK) : -1;
        if (fd >= 0)
            serve(c, fd);
        else if (p[0].revents && stays_in_the_queue(errno))
            (void)poll(&p[1], 1, FULL_MS);
    }
}

static atom_status open_socket(gsp_control *c, const char *directory)
{
    struct sockaddr_un at;
    c->directory = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (c->directory < 0)
        return atom_fail_errno(errno, "%s", directory);
    int other = connect_to(c->directory);
    if (other >= 0 || errno == EAGAIN) {
        if (other >= 0)
            close(other);
        return atom_fail(ATOM_E_USAGE, "%s: another process already runs in this directory",
                         directory);
    }
    unlinkat(c->directory, NAME, 0);
    c->listen = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    c->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (c->listen < 0 || c->wake < 0)
        return atom_fail_errno(errno, "a local socket");
    socklen_t bytes = address_of(c->directory, &at);
    if (bind(c->listen, (struct sockaddr *)&at, bytes) != 0)
        return atom_fail_errno(errno, "%s/%s", directory, NAME);
    c->bound = true; /* nobody gets through before listen */
    if (fchmodat(c->directory, NAME, 0600, 0) != 0 || listen(c->listen, 8) != 0)
        return atom_fail_errno(errno, "%s/%s", directory, NAME);
    return ATOM_OK;
}

atom_status gsp_control_open(const char *directory, gsp_control_answer *answer, void *context,
                             gsp_control **out)
{
    atom_status st;
    gsp_control *c = atom_alloc(1, sizeof *c);
    if (!c)
        return atom_fail_memory("a control socket", sizeof *c);
    *c = (gsp_control){
        .directory = -1, .listen = -1, .wake = -1, .answer = answer, .context = context};
    ATOM_TRY_CLEAN(open_socket(c, directory));
    int error = pthread_create(&c->thread, NULL, run, c);
    if (error)
        ATOM_TRY_CLEAN(atom_fail_errno(error, "a thread for the control socket"));
    c->has_thread = true;
    *out = c;
    return ATOM_OK;
cleanup:
    gsp_control_close(&c);
    return st;
}

void gsp_control_close(gsp_control **control)
{
    gsp_control *c = *control;
    uint64_t one = 1;
    *control = NULL;
    if (!c)
        return;
    if (c->has_thread) {
        ssize_t n = write(c->wake, &one, sizeof one);
        (void)n;
        pthread_join(c->thread, NULL);
    }
    if (c->bound)
        unlinkat(c->directory, NAME, 0);
    if (c->listen >= 0)
        close(c->listen);
    if (c->wake >= 0)
        close(c->wake);
    if (c->directory >= 0)
        close(c->directory);
    atom_free(c);
}

/* A member's directory in a run's, or another one. */
static atom_status nobody(const char *directory)
{
    static const char inner[] = "/pool";
    size_t n = strlen(directory), m = sizeof inner - 1;
    if (!gsp_dir_has(directory, "identity"))
        return atom_fail(ATOM_E_RUNTIME,
                         "%s: nobody answers here; is this the directory of pool create or join?",
                         directory);
    n -= n > m && strcmp(directory + n - m, inner) == 0 ? m : 0;
    return atom_fail(ATOM_E_RUNTIME,
                     "%.*s: no member runs here now; to start it: atom pool join -o %.*s", (int)n,
                     directory, (int)n, directory);
}

atom_status gsp_control_ask(const char *directory, const char *request, double timeout_s,
                            char **answer)
{
    uint64_t until = atom_clock_ns() + (uint64_t)(timeout_s * 1e9);
    ATOM_TRY(gsp_dir_check_rights(directory));
    int place = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (place < 0)
        return atom_fail(ATOM_E_USAGE, "%s: no such directory", directory);
    int fd = connect_until(place, until), error = errno;
    close(place);
    if (fd < 0 && error != EAGAIN)
        return nobody(directory);
    bool sent = fd >= 0 && write_all(fd, request, strlen(request), -1, until) &&
                write_all(fd, "\n", 1, -1, until);
    char *line = sent ? read_line(fd, GSP_CONTROL_ANSWER_MAX, -1, until) : NULL;
    if (fd >= 0)
        close(fd);
    if (!line)
        return atom_fail(
            ATOM_E_RUNTIME,
            "%s: the member that runs here gave no answer within %.0f s; its process may "
            "be stopped (Ctrl-Z), or this machine is overloaded",
            directory, timeout_s);
    *answer = line;
    return ATOM_OK;
}
