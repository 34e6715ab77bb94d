/*
 * Owns nothing: it opens a window on a member's machine. Its one idea: who shows a member reads
 * what the member itself goes by. It refuses to change anything but who is linked.
 */
#include "gossip/member_look.h"
#include "gossip/member_inner.h"

#include <string.h>

const gsp_agree *gsp_member_look(const gsp_driver *driver)
{
    return &driver->agree;
}

void gsp_member_link(gsp_driver *driver, const uint8_t key[GSP_KEY_BYTES])
{
    gsp_event event = {.kind = GSP_ON_UP};
    memcpy(event.peer.byte, key, sizeof event.peer.byte);
    gsp_friend_up(driver, &event.peer);
    gsp_driver_step(driver, &event);
}

void gsp_member_unlink(gsp_driver *driver, const uint8_t key[GSP_KEY_BYTES])
{
    gsp_event event = {.kind = GSP_ON_DOWN};
    memcpy(event.peer.byte, key, sizeof event.peer.byte);
    gsp_friend_down(driver, &event.peer);
    gsp_driver_step(driver, &event);
}
