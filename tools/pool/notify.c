/*
 * Owns the datagram to the service manager. Refuses socket names that are neither a path nor of the
 * abstract kind.
 */
#include "tools/pool/notify.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

bool notify_manager(const char *words)
{
    const char *name = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    size_t bytes = name ? strlen(name) : 0;
    if (bytes < 2 || bytes >= sizeof to.sun_path || (name[0] != '/' && name[0] != '@'))
        return false;
    memcpy(to.sun_path, name, bytes);
    if (name[0] == '@')
        to.sun_path[0] = 0;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    ssize_t sent =
        sendto(fd, words, strlen(words), MSG_NOSIGNAL | MSG_DONTWAIT, (struct sockaddr *)&to,
               (socklen_t)(offsetof(struct sockaddr_un, sun_path) + bytes));
    close(fd);
    return sent == (ssize_t)strlen(words);
}
