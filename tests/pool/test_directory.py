"""A pool that is found by its directory alone: real processes, no local network, and no address of old that still answers."""
import signal
import socket
import unittest

import life


def free_udp_port():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])


class Directory(life.PoolCase):
    def seen(self, host):
        """What a host shows of the directory names the one other member."""
        self.until(lambda: host.status()["directory"], f"{host.name} shows what the directory says", host)
        directory = host.status()["directory"]
        self.assertEqual(directory["members"], 1)
        self.assertRegex(directory["text"], r"^1 member, version \d+.* seen in the directory$")

    def test_found_again(self):
        port, old = free_udp_port(), life.free_port()
        a, ticket = self.create(1, old, POOL_NODE_DIRECTORY=port)
        b = self.join("b", ticket, "-", POOL_NODE_DIRECTORY="0")
        self.roster(a, 2)
        self.go_on(a, b)
        for host in (b, a):
            host.end(signal.SIGKILL)
        # The owner is back at another port; the other one knows the old port alone, and the owner's node.
        a = life.Host(self, "a", "open", life.free_port(), "200", POOL_NODE_DIRECTORY=port)
        a.wait_for("started")
        b = life.Host(self, "b", "open", "-", "200", POOL_NODE_DIRECTORY="0")
        self.until(lambda: b.find("started") and b.status()["links"] > 0, "b finds a again", a, b)
        self.go_on(a, b)
        self.seen(b)

    def test_ticket_is_stale(self):
        port, here = free_udp_port(), life.free_port()
        a, ticket = self.create(1, here, POOL_NODE_DIRECTORY=port)
        stale = life.elsewhere(ticket, here, life.free_port())
        b = self.join("b", stale, "-", POOL_NODE_DIRECTORY="0", POOL_NODE_BOOTSTRAP=f"127.0.0.1:{port}")
        self.roster(a, 2)
        self.go_on(a, b)
        self.seen(b)


if __name__ == "__main__":
    unittest.main()
