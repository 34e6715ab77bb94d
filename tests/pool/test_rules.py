"""Members that break the rules of proposals, among honest ones: on loopback, real processes."""
import os
import signal
import unittest

from life import PoolCase


class Rules(PoolCase):
    def test_invented_members(self):
        """One of four puts a key that it made up on every roster that it proposes: nobody takes one."""
        a, ticket = self.create(4)
        b, c = self.join("b", ticket), self.join("c", ticket)
        liar = self.join("d", ticket, node=os.environ["INVENTOR"])
        self.roster(a, 4)
        self.go_on(a, b, c, by=2)

        def inventions():
            return sum("invented" in line for line in liar.lines())

        before = inventions()
        self.until(lambda: inventions() >= before + 4, "it invents members", liar)
        self.go_on(a, b, c, by=4)
        most = max(line["roster"] for host in (a, b, c) for line in host.lines() if "roster" in line)
        self.assertLessEqual(most, 4, "somebody invented was let in")
        known = {m["key"] for m in a.status()["members"] if m["on_roster"]}
        self.assertLessEqual(known, {h.status()["key"] for h in (a, b, c, liar)})
        self.equal(a, b, c)
        liar.end(signal.SIGKILL)
        self.go_on(a, b, c)
        for host in (a, b, c):
            self.assertEqual(host.end(), 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
