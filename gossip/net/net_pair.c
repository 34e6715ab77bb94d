/*
 * Owns the calls to nanomsg for one stream. Its one idea: a PAIR serves one connection and is then
 * thrown away, so no message of an earlier connection can come out of it. It refuses to block.
 */
#include "gossip/net/net_pair.h"

#include <errno.h>
#include <nanomsg/nn.h>
#include <nanomsg/pair.h>
#include <poll.h>
#include <string.h>

static atom_status fail_nn(const char *what)
{
    return atom_fail(nn_errno() == EMFILE || nn_errno() == ENOMEM ? ATOM_E_RESOURCE
                                                                  : ATOM_E_RUNTIME,
                     "nanomsg: %s: %s", what, nn_strerror(nn_errno()));
}

static bool get_fd(int socket, int option, int *fd)
{
    size_t bytes = sizeof *fd;
    return nn_getsockopt(socket, NN_SOL_SOCKET, option, fd, &bytes) == 0;
}

atom_status net_pair_open(size_t bytes_max, int buffer_bytes, net_pair *out)
{
    int limit = (int)bytes_max, interval_ms = 50;
    net_pair pair = {.socket = nn_socket(AF_SP, NN_PAIR), -1, -1};
    if (pair.socket < 0)
        return fail_nn("a socket");
    if (nn_setsockopt(pair.socket, NN_SOL_SOCKET, NN_RCVMAXSIZE, &limit, sizeof limit) != 0 ||
        nn_setsockopt(pair.socket, NN_SOL_SOCKET, NN_RECONNECT_IVL, &interval_ms,
                      sizeof interval_ms) != 0 ||
        (buffer_bytes && (nn_setsockopt(pair.socket, NN_SOL_SOCKET, NN_SNDBUF, &buffer_bytes,
                                        sizeof buffer_bytes) != 0 ||
                          nn_setsockopt(pair.socket, NN_SOL_SOCKET, NN_RCVBUF, &buffer_bytes,
                                        sizeof buffer_bytes) != 0)) ||
        !get_fd(pair.socket, NN_SNDFD, &pair.can_send) ||
        !get_fd(pair.socket, NN_RCVFD, &pair.can_receive)) {
        atom_status st = fail_nn("a socket's options");
        net_pair_close(&pair);
        return st;
    }
    *out = pair;
    return ATOM_OK;
}

bool net_pair_bind(net_pair *pair, const char *url)
{
    return nn_bind(pair->socket, url) >= 0;
}

atom_status net_pair_connect(net_pair *pair, const char *url)
{
    return nn_connect(pair->socket, url) >= 0 ? ATOM_OK : fail_nn(url);
}

void net_pair_close(net_pair *pair)
{
    if (pair->socket >= 0)
        while (nn_close(pair->socket) != 0 && nn_errno() == EINTR)
            ;
    *pair = (net_pair){-1, -1, -1};
}

static bool ready(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, 0) > 0;
}

bool net_pair_can_send(const net_pair *pair)
{
    return ready(pair->can_send);
}

bool net_pair_can_receive(const net_pair *pair)
{
    return ready(pair->can_receive);
}

bool net_pair_send(net_pair *pair, const void *head, size_t head_bytes, const void *body,
                   size_t body_bytes, int tail)
{
    size_t bytes = head_bytes + body_bytes + (tail >= 0);
    if (!ready(pair->can_send))
        return false; /* before anything is copied */
    uint8_t *message = nn_allocmsg(bytes, 0);
    if (!message)
        return false;
    if (head_bytes)
        memcpy(message, head, head_bytes);
    if (body_bytes)
        memcpy(message + head_bytes, body, body_bytes);
    if (tail >= 0)
        message[bytes - 1] = (uint8_t)tail;
    if (nn_send(pair->socket, &message, NN_MSG, NN_DONTWAIT) >= 0)
        return true;
    nn_freemsg(message);
    return false;
}

void *net_pair_receive(net_pair *pair, size_t *bytes)
{
    void *message = NULL;
    int n = nn_recv(pair->socket, &message, NN_MSG, NN_DONTWAIT);
    if (n < 0)
        return NULL;
    *bytes = (size_t)n;
    return message;
}

void net_pair_free(void *data)
{
    if (data)
        nn_freemsg(data);
}

uint32_t net_pair_connections(const net_pair *pair)
{
    uint64_t n = nn_get_statistic(pair->socket, NN_STAT_CURRENT_CONNECTIONS);
    return n == (uint64_t)-1 ? 0 : (uint32_t)n;
}
