/*
 * Owns the strangers of atom bench allreduce: one more host, which has no ticket, and floods the
 * peers' gates with connections that close at once, send garbage, or hold on and send a byte now
 * and then. Its one idea: it floods in every second round only, so that rounds with and without it
 * can be compared in one run, on whatever machine. It refuses to know any secret.
 */
#include "tools/bench/bench_allreduce.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HELD = 512, CLOSES = 0, GARBAGE = 1, LORIS = 2, HELLO = 3, KINDS = 4, HELLO_BYTES = 200 };

typedef struct stranger {
    int fd; /* 0: none */
    uint32_t kind;
    bool spoke;
} stranger;

typedef struct strangers {
    const allreduce_plan *plan;
    allreduce_shared *shared;
    stranger held[HELD];
    uint32_t next;
    uint64_t random;
} strangers;

static uint32_t draw(strangers *s, uint32_t below)
{
    s->random = s->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(s->random >> 33) % below;
}

static void garbage(strangers *s, int fd, size_t bytes)
{
    uint8_t data[HELLO_BYTES];
    for (size_t k = 0; k < bytes; k++)
        data[k] = (uint8_t)draw(s, 256);
    ssize_t n = send(fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)n;
}

/* What a gate said to it belongs to the count: it should be nothing. */
static void end(strangers *s, stranger *x)
{
    uint8_t data[512];
    ssize_t n;
    while ((n = recv(x->fd, data, sizeof data, MSG_DONTWAIT)) > 0)
        s->shared->answered_bytes += (uint64_t)n;
    close(x->fd);
    x->fd = 0;
}

static void begin(strangers *s, stranger *x)
{
    uint32_t peer = draw(s, s->plan->peers);
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(ALLREDUCE_PORT),
                             .sin_addr.s_addr = htonl(0x0a4d0000u + peer + 1)};
    struct linger at_once = {.l_onoff = 1};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once); /* ports are used again */
    *x = (stranger){.fd = fd, .kind = draw(s, KINDS)};
    s->shared->strangers++;
    if (connect(fd, (struct sockaddr *)&to, sizeof to) != 0 && errno != EINPROGRESS)
        end(s, x);
}

/* Those that began a while ago do what they came for. */
static void speak(strangers *s, stranger *x)
{
    if (x->fd == 0 || (x->spoke && x->kind != LORIS))
        return;
    if (x->kind == CLOSES)
        end(s, x);
    else
        garbage(s, x->fd, x->kind == LORIS ? 1 : x->kind == HELLO ? HELLO_BYTES : 1 + draw(s, 64));
    x->spoke = true;
}

atom_status allreduce_strangers_run(const allreduce_plan *plan, allreduce_shared *shared)
{
    strangers *s = atom_alloc(1, sizeof *s);
    if (!s)
        return atom_fail_memory("strangers", sizeof *s);
    *s = (strangers){.plan = plan, .shared = shared, .random = 5};
    double due = atom_clock_seconds(), pause = 1.0 / plan->strangers_per_second;
    while (!shared->stop) {
        double now = atom_clock_seconds();
        if (!shared->flood || now < due) {
            due = shared->flood ? due : now;
            usleep(shared->flood ? 200 : 5000);
            continue;
        }
        due = now - due > 0.1 ? now : due + pause;
        stranger *x = &s->held[s->next];
        if (x->fd)
            end(s, x);
        begin(s, x);
        speak(s, &s->held[(s->next + HELD - 20) % HELD]);
        speak(s, &s->held[draw(s, HELD)]);
        s->next = (s->next + 1) % HELD;
    }
    for (uint32_t i = 0; i < HELD; i++)
        if (s->held[i].fd)
            end(s, &s->held[i]);
    atom_free(s);
    return ATOM_OK;
}
