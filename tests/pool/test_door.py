"""Room for the honest: a host that joins while a crowd of others with the same ticket dials, asks and stays.

The crowd (crowd.c) is one process that dials from 127.0.0.2; the hosts of the pool are at 127.0.0.1.
"""
import os
import signal
import time
import unittest

from life import PATIENCE_S, Host, PoolCase, elsewhere, free_port

CROWD, REFUSER = os.environ["CROWD"], os.environ["REFUSER"]
AT_ONCE = 4  # guests of one address (gossip/net/net_inner.h)


class Door(PoolCase):
    def crowd(self, ticket, n, seconds=120, *how):
        return Host(self, "crowd", node=[CROWD, ticket, str(n), str(seconds), *how])

    def test_a_crowd_of_guests(self):
        a, ticket = self.create(1)
        crowd = self.crowd(ticket, 64)
        crowd.wait_for("dialling")
        self.until(lambda: any(line.get("total", 0) >= 60 for line in crowd.lines()) or
                   any(line.get("most", 0) >= AT_ONCE for line in crowd.lines()), "the crowd is in", crowd)
        time.sleep(2)
        begun = time.monotonic()
        b = self.join("b", ticket)
        b.wait_for("started")
        took = time.monotonic() - begun
        self.assertIsNone(crowd.process.poll())
        print(f"joined beside 64 dialling keys in {took:.1f} s")
        self.assertLess(took, 20)
        self.go_on(a, b)
        self.assertLess(crowd.lines()[-1]["most"], 4 * AT_ONCE)  # who was ended counts until it knows

    def test_a_crowd_that_asks(self):
        """Each of them asks to be admitted, and may be; whoever has another ticket gets in all the same."""
        a, ticket = self.create(1)
        wide = a.ask(do="invite", count=1000, days=1)["ticket"]
        mine = a.ask(do="invite", count=1, days=1)["ticket"]
        crowd = self.crowd(wide, 64, 120, "ASK")
        self.until(lambda: any(line.get("total", 0) >= 2 * AT_ONCE for line in crowd.lines()), "the crowd asks", crowd)
        b = self.join("b", mine)
        b.wait_for("started")
        self.assertIsNone(crowd.process.poll())
        self.go_on(a, b)

    def test_old_tickets_serve_nobody(self):
        a, ticket = self.create(1)
        first = self.crowd(ticket, 1, 60)
        self.until(lambda: any(line.get("total") for line in first.lines()), "a guest is in", first)
        after = a.ask(do="rotate")["ticket"]
        self.until(lambda: first.lines()[-1].get("up") == 0, "who was here is out", first)
        total = first.lines()[-1]["total"]
        time.sleep(6)  # longer than any pause between two dials
        self.assertEqual((first.lines()[-1]["up"], first.lines()[-1]["total"]), (0, total))
        b = self.join("b", after)
        self.go_on(a, b)

    def test_a_member_comes_back_with_the_old_key(self):
        a, ticket = self.create(2)
        b = self.join("b", ticket)
        self.go_on(a, b)
        b.end(signal.SIGKILL)
        a.ask(do="rotate")
        again = Host(self, "b", "open", "127.0.0.1:0", "200")
        self.until(lambda: again.find("started") and again.status()["manifest"] == 2, "it learns the new key", again)
        self.go_on(a, again)

    def test_one_member_refuses(self):
        """While the owner does not answer, another member says that the newcomer is banned: the join goes on."""
        here, there = free_port(), free_port()
        a, ticket = self.create(1, here, POOL_NODE_ANNOUNCE=f"{there},{here}")
        liar = Host(self, "liar", "join", there, "200", ticket, node=REFUSER)
        self.go_on(a, liar)
        a.process.send_signal(signal.SIGSTOP)
        b = self.join("b", ticket)
        self.until(lambda: "banned from the pool" in b.words(), "the liar refuses", b)
        time.sleep(4)
        self.assertIsNone(b.process.poll(), b.words())
        self.assertIn(there, b.words())  # it says who said so
        a.process.send_signal(signal.SIGCONT)
        b.wait_for("started")
        self.go_on(a, b)

    def test_the_owners_word_is_passed_on(self):
        """A newcomer that reaches another member only learns from the owner's signed word that its ticket is used up."""
        here, there = free_port(), free_port()
        a, ticket = self.create(1, here)
        b = self.join("b", ticket, there)
        self.go_on(a, b)
        used = a.ask(do="invite", count=1, days=1)["ticket"]
        c = self.join("c", used)
        c.wait_for("started")
        d = self.join("d", elsewhere(used, here, there))
        self.assertEqual(d.process.wait(timeout=PATIENCE_S), 1)
        self.assertIn("the pool's owner says: the ticket or admission has expired, is used up or was ended", d.words())


if __name__ == "__main__":
    unittest.main()
