"""A member that wants to be followed: lineages that it makes up, offered to members and to a joiner that meets it first,
and heartbeats that claim a far better lineage with nothing behind them. On loopback, real processes (usurper.c).
"""
import os
import signal
import unittest

from life import Host, PoolCase, elsewhere, free_port

USURPER = os.environ["USURPER"]
KINDS = 4  # of lineages that it makes up


def most(host, key):
    return max((line[key] for line in host.lines() if key in line), default=0)


def adoptions(host):
    return [line["adopted"] for line in host.lines() if "adopted" in line]


class Lineages(PoolCase):
    def pool(self, **how):
        """Three honest members and the liar, all on the roster; the ticket's address and the liar's."""
        here, self.there = free_port(), free_port()
        self.a, self.ticket = self.create(4, here)
        self.elsewhere = elsewhere(self.ticket, here, self.there)
        b, c = self.join("b", self.ticket), self.join("c", self.ticket)
        liar = Host(self, "d", "join", self.there, "200", self.ticket, node=USURPER, **how)
        self.roster(self.a, 4)
        self.go_on(self.a, b, c, by=1)
        return self.a, b, c, liar

    def unmoved(self, honest, true, what, liar):
        """While waiting, all of them are members, stay in their lineage and fetch no state; which lineage."""
        lineage = honest[0].status()["lineage"]
        before = [adoptions(host) for host in honest]

        def looked():
            for host in honest:
                now = host.status()
                self.assertEqual(now["lineage"], lineage, f"{host.name} went to another lineage")
                self.assertTrue(now["is_member"], host.name)
                self.assertNotIn("state", now["text"], f"{host.name} fetches a state")
            return true()

        self.until(looked, what, *honest, liar)
        self.assertEqual([adoptions(host) for host in honest], before, "a state was adopted")
        return lineage

    def test_a_lineage_of_ones_own(self):
        """Every kind of lineage is told to all three as chain and state, and they go on certifying their own."""
        a, b, c, liar = honest = self.pool()
        honest = honest[:3]
        begun = max(host.version() for host in honest)
        self.unmoved(honest, lambda: most(liar, "told") >= 6 and most(liar, "made") > KINDS and
                     min(host.version() for host in honest) >= begun + 6, "its chains are told", liar)
        self.equal(*honest)

        e = Host(self, "e", "join", "127.0.0.1:0", "200", self.elsewhere)  # its ticket names the liar alone
        e.wait_for("started")
        for host in honest:
            host.process.send_signal(signal.SIGSTOP)
        told, made = most(liar, "told"), most(liar, "made")
        self.until(lambda: most(liar, "made") >= made + KINDS and most(liar, "told") > told, "it tells the joiner", e)
        for host in honest:
            host.process.send_signal(signal.SIGCONT)
        self.until(lambda: e.status()["lineage"] == a.status()["lineage"] and e.status()["is_member"],
                   "the joiner is in the pool's lineage", e)
        self.go_on(*honest, e)
        self.equal(*honest, e)
        for host in (*honest, e):
            self.assertEqual(host.end(), 0)

    def test_heartbeats_alone(self):
        """It claims far better lineages and serves nothing: a joiner comes in within as many versions as before."""
        a, b, c, liar = honest = self.pool(USURPER_SILENT="1")
        honest = honest[:3]
        begun = max(host.version() for host in honest)
        self.unmoved(honest, lambda: most(liar, "kept silent") >= 3 and most(liar, "made") > KINDS and
                     min(host.version() for host in honest) >= begun + 6, "it is asked, and keeps silent", liar)
        made = most(liar, "made")
        e = self.join("e", self.ticket)
        e.wait_for("started")
        begun = a.version()
        self.unmoved(honest, lambda: e.version() and e.status()["is_member"], "the joiner is in", liar)
        took = e.version() - begun
        print(f"in after {took} versions beside {most(liar, 'made') - made} claims")
        self.assertLess(took, 40)  # about 5 without the liar
        self.go_on(*honest, e)
        self.equal(*honest, e)
        self.assertEqual(e.status()["lineage"], a.status()["lineage"])
        for host in (*honest, e):
            self.assertEqual(host.end(), 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
