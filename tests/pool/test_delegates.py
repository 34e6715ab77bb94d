"""A pool whose owner is away: a delegate lets others in. A ban makes void what a delegate signed. Real processes on loopback."""
import signal
import unittest

from life import PATIENCE_S, Host, PoolCase, elsewhere, ticket_of


def address(host):
    return f"127.0.0.1:{host.find('started')['port']}"


class Delegates(PoolCase):
    def named(self, owner, host, days=365):
        """The owner names a host, which knows it soon."""
        key = host.status()["key"]
        self.until(lambda: any(m["key"] == key and m["up"] for m in owner.status()["members"]), "the owner is linked with it", owner, host)
        answer = owner.ask(do="delegate", key=key[:12], days=days)
        self.assertTrue(answer["ok"], answer)
        self.assertIn("it has been told", answer["note"])
        self.assertNotIn("ticket", answer)
        self.until(lambda: host.ask(do="ticket")["ok"], "it has a ticket", host)
        self.assertEqual([d["key"] for d in host.status()["delegates"]], [key])
        return key

    def test_without_the_owner(self):
        a, ticket = self.create(3)
        b, c = self.join("b", ticket), self.join("c", ticket)
        self.go_on(a, b, c)
        self.roster(a, 3)
        refused = b.ask(do="delegate", key=c.status()["key"], days=9)
        self.assertFalse(refused["ok"])
        self.assertIn("only the pool's owner", refused["error"])
        self.assertFalse(b.ask(do="ticket")["ok"])
        key = self.named(a, b)
        self.assertEqual([d["key"] for d in a.status()["delegates"]], [key])
        self.assertTrue(b.event("delegated"))
        mine = b.ask(do="ticket")["ticket"]
        a.end(signal.SIGKILL)
        # With the delegate's ticket; and with the owner's at the other member, which passes the question on.
        d = self.join("d", mine)
        self.go_on(b, c, d)
        self.assertTrue(b.event("admitted", key=d.status()["key"]))
        e = self.join("e", elsewhere(ticket, address(a), address(c)))
        self.go_on(b, c, d, e)
        # The delegate restarts and still is one; its ticket says the new port.
        b.end(signal.SIGKILL)
        b = Host(self, "b", "open", "127.0.0.1:0", "200")
        again = ticket_of(b)
        self.assertEqual(len(b.status()["delegates"]), 1)
        f = self.join("f", again)
        self.go_on(b, c, d, e, f)
        # The owner comes back and goes on with them.
        a = Host(self, "a", "open", "127.0.0.1:0", "200")
        self.go_on(a, b, c, d, e, f)
        self.equal(a, b, c, d, e, f)
        self.assertTrue(b.ask(do="invite", count=3, days=1)["ok"])
        self.assertFalse(b.ask(do="ban", key=c.status()["key"])["ok"])
        # Whoever was away while the key was changed gets a newer ticket, which nobody is there to admit it with: it shows
        # what the delegate signed.
        d.end()
        self.roster(a, 5)
        newer = a.ask(do="rotate")["ticket"]
        self.until(lambda: all(h.status()["manifest"] == 2 for h in (c, e, f)), "the new key is known", c, e, f)
        for host in (a, b):
            host.end(signal.SIGKILL)
        d = self.join("d", elsewhere(newer, address(a), address(c)))
        self.go_on(c, d, e, f)
        self.assertEqual(d.status()["manifest"], 2)

    def test_a_delegate_that_nobody_can_dial(self):
        """Its ticket names others."""
        a, ticket = self.create(3)
        b, c = self.join("b", ticket, "-"), self.join("c", ticket)
        self.go_on(a, b, c)
        self.named(a, b)
        a.end(signal.SIGKILL)
        self.until(lambda: any(m["key"] == c.status()["key"] and m["up"] for m in b.status()["members"]), "b is linked with c", b, c)
        self.assertTrue(b.ask(do="invite", count=2, days=1)["ok"])
        d = self.join("d", ticket_of(b))
        self.go_on(b, c, d)

    def test_a_delegate_is_banned(self):
        a, ticket = self.create(4)
        b, c, e = (self.join(name, ticket) for name in "bce")  # without b and d they still are a quorum
        self.go_on(a, b, c, e)
        self.roster(a, 4)
        self.named(a, b)
        mine = b.ask(do="ticket")["ticket"]
        a.end(signal.SIGKILL)  # away: b admits by itself
        d = self.join("d", mine)
        self.until(lambda: d.find("started") and b.event("admitted", key=d.status()["key"]), "b admits d", b, d)
        g = self.join("g", mine)
        self.go_on(b, c, d, e, g)
        a = Host(self, "a", "open", "127.0.0.1:0", "200")
        self.go_on(a, b, c, d, e, g)
        self.assertTrue(g.ask(do="leave")["ok"])
        self.assertEqual(g.process.wait(timeout=PATIENCE_S), 0, g.words())
        self.roster(a, 5)
        answer = a.ask(do="ban", key=b.status()["key"])
        self.assertTrue(answer["ok"], answer)
        self.assertIn("admitted as a delegate", answer["note"])
        self.assertEqual(b.process.wait(timeout=PATIENCE_S), 1)
        self.assertEqual(d.process.wait(timeout=PATIENCE_S), 1)
        self.assertIn("has been banned, and its admissions are void", d.words())
        self.go_on(a, c, e)
        self.assertEqual(a.status()["delegates"], [])
        # Nor does it come back, or anybody with the delegate's ticket; with the owner's it does.
        again = Host(self, "d", "open", "127.0.0.1:0", "5")
        self.assertEqual(again.process.wait(timeout=PATIENCE_S), 3)
        self.assertIn("join again with a new ticket", again.words())
        f = self.join("f", elsewhere(mine, address(b), address(a)))
        self.assertEqual(f.process.wait(timeout=PATIENCE_S), 1)
        # Also one that was away when its admission became void, and so does not know.
        back = [self.join(name, answer["ticket"]) for name in "dg"]
        self.go_on(a, c, e, *back)


if __name__ == "__main__":
    unittest.main()
