/*
 * A network in one process: carries IP packets between TUN devices of several namespaces, late,
 * slowly, or not at all, as it is told. One idea: one heap of packets by the time of their next
 * event; a packet passes its sender's uplink queue, the delay of its pair and its receiver's
 * downlink queue, each first in, first out. Loss is decided by a counter-based generator, so that a
 * run of the same packets loses the same ones. Refuses to be fast: one thread, one packet at a
 * time; good for some 60,000 packets a second.
 *
 * Commands on stdin, each answered by a line "ok" or "error ...":
 *   host N NETNS DEVICE ADDRESS   makes the device in that namespace; N counts up from 0
 *   rate N UP DOWN QUEUE_MS       bits per second of the packets' bytes; 0: not limited
 *   delay FROM TO US              one way; -1 for FROM or TO: all hosts
 *   lose FROM TO PPM              share of the packets
 *   cut FROM TO 0|1               silently
 *   stats                         packets carried, lost by chance, cut, dropped at full queues
 * It ends when stdin does.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { HOSTS_MAX = 40, PACKET_BYTES_MAX = 2048, WAITING_MAX = 200000, READS_PER_TURN = 64 };

typedef struct packet {
    uint64_t at_ns, order; /* of its next event; order breaks ties */
    bool arrives;          /* it leaves its receiver's queue then */
    uint8_t from, to;
    uint16_t bytes;
    uint8_t data[];
} packet;

typedef struct queue {
    uint64_t bits_per_s; /* 0: not limited */
    uint64_t free_ns;    /* when its last packet is through */
} queue;

typedef struct host {
    int fd;
    uint32_t address;
    queue up, down;
    uint64_t queue_ns;
} host;

typedef struct pair {
    uint32_t delay_us, lose_ppm;
    bool cut;
} pair;

typedef struct net {
    host host[HOSTS_MAX];
    int n;
    pair pair[HOSTS_MAX][HOSTS_MAX];
    packet **heap;
    uint32_t waiting;
    uint64_t order, dice;
    uint64_t carried, lost, cut, dropped;
} net;

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static bool before(const packet *a, const packet *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

static void heap_put(net *n, packet *p)
{
    uint32_t i = n->waiting++;
    p->order = n->order++;
    for (; i > 0 && before(p, n->heap[(i - 1) / 2]); i = (i - 1) / 2)
        n->heap[i] = n->heap[(i - 1) / 2];
    n->heap[i] = p;
}

static packet *heap_take(net *n)
{
    packet *top = n->heap[0], *last = n->heap[--n->waiting];
    uint32_t i = 0;
    for (;;) {
        uint32_t child = 2 * i + 1;
        if (child >= n->waiting)
            break;
        if (child + 1 < n->waiting && before(n->heap[child + 1], n->heap[child]))
            child++;
        if (!before(n->heap[child], last))
            break;
        n->heap[i] = n->heap[child];
        i = child;
    }
    n->heap[i] = last;
    return top;
}

/* When a packet that comes at `at` is through; 0: the queue is full. */
static uint64_t pass(queue *q, uint64_t at, uint64_t queue_ns, uint32_t bytes)
{
    if (q->bits_per_s == 0)
        return at;
    uint64_t start = q->free_ns > at ? q->free_ns : at;
    if (start - at > queue_ns)
        return 0;
    q->free_ns = start + (uint64_t)bytes * 8u * 1000000000u / q->bits_per_s;
    return q->free_ns;
}

/* splitmix64 */
static uint32_t roll(net *n)
{
    uint64_t z = n->dice += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ (z >> 31)) % 1000000u);
}

static int find(const net *n, uint32_t address)
{
    for (int i = 0; i < n->n; i++)
        if (n->host[i].address == address)
            return i;
    return -1;
}

static void accept_packet(net *n, int from, const uint8_t *data, size_t bytes, uint64_t now)
{
    uint32_t address;
    if (bytes < 20 || data[0] >> 4 != 4)
        return; /* not IPv4 */
    memcpy(&address, data + 16, 4);
    int to = find(n, address);
    if (to < 0 || n->waiting == WAITING_MAX)
        return;
    const pair *way = &n->pair[from][to];
    uint64_t at = pass(&n->host[from].up, now, n->host[from].queue_ns, (uint32_t)bytes);
    if (at == 0)
        n->dropped++;
    else if (way->cut)
        n->cut++;
    else if (way->lose_ppm && roll(n) < way->lose_ppm)
        n->lost++;
    else {
        packet *p = malloc(sizeof *p + bytes);
        if (!p)
            return;
        *p = (packet){.at_ns = at + way->delay_us * 1000ull,
                      .from = (uint8_t)from,
                      .to = (uint8_t)to,
                      .bytes = (uint16_t)bytes};
        memcpy(p->data, data, bytes);
        heap_put(n, p);
    }
}

/* Everything that is due. */
static void deliver(net *n, uint64_t now)
{
    while (n->waiting && n->heap[0]->at_ns <= now) {
        packet *p = heap_take(n);
        host *to = &n->host[p->to];
        uint64_t at = p->arrives ? p->at_ns : pass(&to->down, p->at_ns, to->queue_ns, p->bytes);
        if (at > now) {
            p->arrives = true;
            p->at_ns = at;
            heap_put(n, p);
            continue;
        }
        if (at == 0)
            n->dropped++;
        else if (n->pair[p->from][p->to].cut)
            n->cut++; /* it was on the way when the line was cut */
        else if (write(to->fd, p->data, p->bytes) == p->bytes)
            n->carried++;
        free(p);
    }
}

static const char *add_host(net *n, int number, const char *path, const char *device,
                            const char *address)
{
    struct ifreq want = {.ifr_flags = IFF_TUN | IFF_NO_PI};
    host *h = &n->host[n->n];
    if (number != n->n || n->n == HOSTS_MAX || strlen(device) >= IFNAMSIZ)
        return "bad host";
    int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    int there = open(path, O_RDONLY | O_CLOEXEC);
    const char *why = NULL;
    int fd = -1;
    if (home < 0 || there < 0 || setns(there, CLONE_NEWNET) != 0)
        why = strerror(errno);
    if (!why) {
        fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
        memcpy(want.ifr_name, device, strlen(device) + 1);
        if (fd < 0 || ioctl(fd, TUNSETIFF, &want) != 0)
            why = strerror(errno);
        if (setns(home, CLONE_NEWNET) != 0)
            abort();
    }
    close(home);
    close(there);
    if (why)
        return why;
    *h = (host){.fd = fd, .address = inet_addr(address), .queue_ns = 50000000};
    n->n++;
    return NULL;
}

/* Sets one field of the pairs FROM, TO; -1 is everybody. */
static const char *set_pairs(net *n, const char *what, int from, int to, uint32_t value)
{
    if (from < -1 || to < -1 || from >= n->n || to >= n->n)
        return "no such host";
    for (int i = 0; i < HOSTS_MAX; i++)
        for (int j = 0; j < HOSTS_MAX; j++) {
            pair *p = &n->pair[i][j];
            if ((from >= 0 && from != i) || (to >= 0 && to != j))
                continue;
            if (strcmp(what, "delay") == 0)
                p->delay_us = value;
            else if (strcmp(what, "lose") == 0)
                p->lose_ppm = value;
            else
                p->cut = value != 0;
        }
    return NULL;
}

static void obey(net *n, const char *line)
{
    char what[16], path[256], device[32], address[64];
    int a, b;
    unsigned long long x, y, z;
    const char *why = "not understood";
    if (sscanf(line, "host %d %255s %31s %63s", &a, path, device, address) == 4) {
        why = add_host(n, a, path, device, address);
    } else if (sscanf(line, "rate %d %llu %llu %llu", &a, &x, &y, &z) == 4) {
        if (a >= 0 && a < n->n) {
            n->host[a].up.bits_per_s = x;
            n->host[a].down.bits_per_s = y;
            n->host[a].queue_ns = z * 1000000u;
            why = NULL;
        }
    } else if (sscanf(line, "%15s %d %d %llu", what, &a, &b, &x) == 4 &&
               (strcmp(what, "delay") == 0 || strcmp(what, "lose") == 0 ||
                strcmp(what, "cut") == 0)) {
        why = set_pairs(n, what, a, b, (uint32_t)x);
    } else if (strcmp(line, "stats") == 0) {
        printf("ok %llu %llu %llu %llu\n", (unsigned long long)n->carried,
               (unsigned long long)n->lost, (unsigned long long)n->cut,
               (unsigned long long)n->dropped);
        return;
    }
    if (why)
        printf("error %s\n", why);
    else
        printf("ok\n");
}

/* False at the end of stdin. */
static bool read_commands(net *n)
{
    static char text[4096];
    static size_t have;
    ssize_t got = read(0, text + have, sizeof text - have);
    if (got <= 0)
        return got < 0 && errno == EINTR;
    have += (size_t)got;
    char *end;
    while ((end = memchr(text, '\n', have))) {
        *end = 0;
        obey(n, text);
        size_t used = (size_t)(end - text) + 1;
        memmove(text, end + 1, have -= used);
    }
    fflush(stdout);
    return have < sizeof text;
}

int main(void)
{
    static net n;
    struct pollfd poll_fds[HOSTS_MAX + 1];
    uint8_t data[PACKET_BYTES_MAX];
    n.heap = calloc(WAITING_MAX, sizeof *n.heap);
    if (!n.heap)
        return 1;
    for (;;) {
        uint64_t now = now_ns(), wait = 1000000000;
        deliver(&n, now);
        if (n.waiting)
            wait = n.heap[0]->at_ns > now ? n.heap[0]->at_ns - now : 0;
        struct timespec timeout = {.tv_sec = (time_t)(wait / 1000000000),
                                   .tv_nsec = (long)(wait % 1000000000)};
        poll_fds[0] = (struct pollfd){.fd = 0, .events = POLLIN};
        for (int i = 0; i < n.n; i++)
            poll_fds[1 + i] = (struct pollfd){.fd = n.host[i].fd, .events = POLLIN};
        int hosts = n.n;
        if (ppoll(poll_fds, (nfds_t)hosts + 1, &timeout, NULL) < 0 && errno != EINTR)
            return 1;
        for (int i = 0; i < hosts; i++)
            for (int k = 0; poll_fds[1 + i].revents & POLLIN && k < READS_PER_TURN; k++) {
                ssize_t got = read(n.host[i].fd, data, sizeof data);
                if (got <= 0)
                    break;
                accept_packet(&n, i, data, (size_t)got, now_ns());
            }
        if (poll_fds[0].revents && !read_commands(&n))
            return 0;
    }
}
