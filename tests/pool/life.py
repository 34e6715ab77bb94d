"""Hosts of a pool as processes of their own on loopback, for the tests of this folder.

What is asserted is what members hold and what they say; waiting has generous limits and ends as soon as there is
something to see.
"""
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest

from places import elsewhere, free_port  # noqa: F401

NODE = os.environ["NODE"]
PATIENCE_S = 60 * float(os.environ.get("PATIENCE", "1"))


class Host:
    """One process; its lines of JSON are read as they come. node: the program, or a whole command line."""

    def __init__(self, case, name, *args, node=NODE, **env):
        self.case, self.name, self.dir = case, name, os.path.join(case.place, name)
        self.log = open(os.path.join(case.place, f"{name}.{case.turn()}.log"), "w+b")
        line = [node, args[0], self.dir, *args[1:]] if isinstance(node, str) else node
        self.process = subprocess.Popen(line, stdout=self.log, stderr=subprocess.STDOUT, env={**os.environ, **env})
        case.hosts.append(self)

    def lines(self):
        self.log.flush()
        with open(self.log.name, "rb") as f:
            whole = f.read().decode(errors="replace").split("\n")[:-1]
        return [json.loads(line) for line in whole if line.startswith("{")]

    def words(self):
        with open(self.log.name, "rb") as f:
            return f.read().decode(errors="replace")

    def find(self, key):
        return next((line for line in self.lines() if key in line), None)

    def wait_for(self, key):
        self.case.until(lambda: self.find(key), f"{self.name} says '{key}'", self)
        return self.find(key)[key]

    def hashes(self):
        return {line["version"]: line["hash"] for line in self.lines() if "version" in line}

    def version(self):
        return max(self.hashes(), default=0)

    def ask(self, **request):
        place = os.open(self.dir, os.O_RDONLY | os.O_DIRECTORY)
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(20)
            s.connect(f"/proc/self/fd/{place}/control.sock")
            s.sendall(json.dumps(request).encode() + b"\n")
            answer = b"".join(iter(lambda: s.recv(65536), b""))
        os.close(place)
        return json.loads(answer)

    def event(self, name, **has):
        """The first event of that name that has these values; None."""
        with open(os.path.join(self.dir, "events.jsonl"), encoding="ascii") as f:
            return next((e for e in map(json.loads, f) if e["event"] == name and has.items() <= e.items()), None)

    def status(self):
        return self.ask(do="status")

    def told(self):
        """What it said last and, where it lives, what it answers, for whoever reads why a test failed."""
        status = ""
        if self.process.poll() is None:
            try:
                status = f"\nstatus: {json.dumps(self.status())}"
            except (OSError, ValueError) as e:
                status = f"\nstatus: no answer ({e})"
        return f"{self.name}:\n{self.words()[-1500:]}{status}"

    def end(self, signal_number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(signal_number)
        return self.process.wait(timeout=PATIENCE_S)


class PoolCase(unittest.TestCase):
    def setUp(self):
        self.place = tempfile.mkdtemp(prefix="atom-life-")
        self.hosts, self.turns = [], 0

    def tearDown(self):
        for host in self.hosts:
            if host.process.poll() is None:
                host.process.kill()
            host.process.wait()
            host.log.close()
        shutil.rmtree(self.place)

    def turn(self):
        self.turns += 1
        return self.turns

    def until(self, true, what, *hosts):
        end = time.monotonic() + PATIENCE_S
        while not true():
            for host in hosts:
                if host.process.poll() not in (None, 0) and not true():
                    self.fail(f"waiting for: {what}; {host.name} ended:\n{host.words()}")
            if time.monotonic() > end:
                self.fail(f"waited too long for: {what}\n" + "\n".join(h.told() for h in self.hosts))
            time.sleep(0.05)

    def create(self, wait, listen="127.0.0.1:0", **env):
        host = Host(self, "a", "create", listen, "200", str(wait), **env)
        host.wait_for("started")
        return host, host.wait_for("ticket")

    def join(self, name, ticket, listen="127.0.0.1:0", **how):
        return Host(self, name, "join", listen, "200", ticket, **how)

    def go_on(self, *hosts, by=3):
        """All of them apply `by` more versions than any has now."""
        target = max(h.version() for h in hosts) + by
        self.until(lambda: all(h.version() >= target for h in hosts), f"version {target} at all", *hosts)

    def equal(self, *hosts):
        seen, shared = {}, 0
        for host in hosts:
            for version, value in host.hashes().items():
                shared += version in seen
                self.assertEqual(seen.setdefault(version, value), value, f"version {version} differs at {host.name}")
        self.assertGreater(shared, 0)

    def roster(self, host, n):
        self.until(lambda: host.status()["roster"] == n, f"{n} on the roster at {host.name}", host)


def ticket_of(host):
    host.wait_for("started")
    return host.ask(do="ticket")["ticket"]
