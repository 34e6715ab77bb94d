"""The newcomer's walk: README's pool section, its commands word for word, on three hosts of their own.

Changed is only what a test has no time for: the model (tiny) and its data. Everything else is as it is printed, the
commands that the program itself names included.
"""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import rig

ATOM = os.environ["ATOM"]
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PATIENCE = 90  # seconds; nothing here takes a tenth of it
MODEL = {"model_type": "gpt2", "vocab_size": 257, "n_positions": 48, "n_embd": 48, "n_layer": 2,
         "n_head": 3, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
SMALL = {"model": "model.json", "max_steps": "1000000", "sequence_len": "32", "micro_batch_size": "2", "threads": "1",
         "eval_steps": "0", "execute": "interpreted"}


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def private(path, flags):
    return os.open(path, flags, 0o600)


def blocks():
    """Of README's pool section: run.yml, and {what follows `atom pool`: the command}."""
    section = read(os.path.join(ROOT, "README.md"))
    section = section.partition("**3. Train one model with friends**")[2].partition("## How fast")[0]
    run = re.search(r"```yaml\n(.*?)```", section, re.S).group(1)
    lines = re.search(r"```sh\n(atom pool selftest.*?)```", section, re.S).group(1).splitlines()
    commands = [line.partition("#")[0].strip() for line in lines]
    return section, run, {" ".join(c.split()[2:4] if "join" in c else c.split()[2:3]): c for c in commands}


class Box:
    """A host with a shell in a directory of its own, where the newcomer's data lies."""

    def __init__(self, net, place, name):
        self.host, self.dir = net.host(), os.path.join(place, name)
        os.makedirs(os.path.join(self.dir, "bin"))
        os.symlink(ATOM, os.path.join(self.dir, "bin", "atom"))
        os.symlink(os.path.join(place, "data"), os.path.join(self.dir, "data"))
        self.env = dict(os.environ, PATH=f"{self.dir}/bin:{os.environ['PATH']}", XDG_CACHE_HOME=f"{place}/cache",
                        LC_ALL="C.UTF-8")
        self.n = 0

    def words(self, command):
        return ["bash", "-c", f"cd {self.dir} && exec {command}"]

    def begin(self, command):
        """In one shell; what it says goes to files."""
        self.n += 1
        out, err = (os.path.join(self.dir, f"{self.n}.{s}") for s in ("out", "err"))
        with open(out, "w", encoding="utf-8") as o, open(err, "w", encoding="utf-8") as e:
            process = self.host.start(self.words(command), env=self.env, stdin=subprocess.DEVNULL, stdout=o, stderr=e)
        process.said, process.told = lambda: read(out), lambda: read(err)
        return process

    def run(self, command):
        """In another one."""
        done = subprocess.run(["ip", "netns", "exec", self.host.name] + self.words(command), env=self.env,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE, check=False)
        return done.returncode, done.stdout, done.stderr


class Walk(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        place = tempfile.TemporaryDirectory(prefix="atom-walk-")
        self.addCleanup(place.cleanup)
        self.place = place.name
        self.section, run, self.say = blocks()
        with open(os.path.join(self.place, "book.txt"), "w", encoding="ascii") as f:
            f.write("In the beginning was the word, and the word was with the reader.\n" * 1000)
        subprocess.run([ATOM, "data", "prepare", "--input", f"{self.place}/book.txt", "--output", f"{self.place}/data"],
                       check=True, capture_output=True)
        net = rig.Rig("bridge")
        self.addCleanup(net.close)
        self.you, self.friend, self.third = (Box(net, self.place, name) for name in ("you", "friend", "third"))
        with open(os.path.join(self.you.dir, "model.json"), "w", encoding="ascii") as f:
            json.dump(MODEL, f)
        for key, value in SMALL.items():
            run, n = re.subn(rf"(?m)^{key}: \S+", f"{key}: {value}", run)
            run = run if n else f"{key}: {value}\n{run}"
        with open(os.path.join(self.you.dir, "run.yml"), "w", encoding="utf-8") as f:
            f.write(run)

    def until(self, what, test, *processes):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            for p in processes:
                self.assertIsNone(p.poll(), f"{what}: it ended\n{p.said()}{p.told()}")
            if test():
                return
            time.sleep(0.2)
        self.fail(f"{what}: not in time\n" + "\n".join(p.said() + p.told() for p in processes))

    def status(self, box):
        code, out, _ = box.run(self.say["status"] + " --json")
        return json.loads(out) if code == 0 else {"roster": 0, "version": 0}

    def ok(self, box, command):
        code, out, err = box.run(command)
        self.assertEqual(code, 0, f"{command}\n{out}{err}")
        return out

    def ends(self, process, code):
        process.wait(timeout=PATIENCE)
        self.assertEqual(process.returncode, code, process.said() + process.told())
        return process.said()

    def all_there(self, n, *processes):
        self.until(f"{n} members", lambda: self.status(self.you)["roster"] == n, *processes)

    def goes_on(self, box, *processes):
        seen = self.status(box)["version"]
        self.until("it goes on", lambda: self.status(box)["version"] >= seen + 3, *processes)

    def test_walk(self):
        you, friend, third, say = self.you, self.friend, self.third, self.say
        self.assertIn("This host can take part.", self.ok(you, say["selftest"]))
        first = you.begin(say["create"])
        self.until("a ticket", lambda: re.search(r"atom1-\S+\n", first.said()), first)
        ticket = re.search(r"atom1-\S+", first.said()).group(0)
        for box in (friend, third):
            with open(os.path.join(box.dir, "ticket.txt"), "w", encoding="ascii", opener=private) as f:
                f.write(ticket + "\n")
        self.assertRegex(first.told(), "mode [a-z]+: ")
        join = say["join ticket.txt"]
        second, last = friend.begin(join), third.begin(join)
        self.all_there(3, first, second, last)
        # Watched, in a terminal and as a page.
        self.assertIn("3 members\n", self.ok(you, say["status"]))
        watch = friend.begin(say["status"] + " --watch")
        self.until("a second look", lambda: watch.said().count("this host") >= 2, watch, first)
        watch.send_signal(signal.SIGINT)
        self.assertIn(watch.wait(timeout=PATIENCE), (0, 130))
        web = you.begin(say["web"])
        address = re.search(r"http://127.0.0.1:\d+", self.section).group(0)
        look = f"{sys.executable} -c 'import urllib.request as u; print(u.urlopen(\"{address}\").read().decode())'"
        self.until("a page", lambda: "<html" in you.run(look)[1], web, first)
        web.send_signal(signal.SIGINT)
        web.wait(timeout=PATIENCE)
        # One is killed: the others go on, and it comes back as itself.
        rig.kill(last)
        self.goes_on(you, first, second)
        last = third.begin(say["join -o"])
        self.until("it is back", lambda: self.status(third).get("is_member"), first, second, last)
        self.all_there(3, first, second, last)
        # One leaves, and goes on alone with the very words it was told.
        self.ok(friend, say["leave"])
        alone = re.search(r"continue alone: (atom train .*)", self.ends(second, 0)).group(1)
        self.assertRegex(self.section, "`" + re.sub(r"checkpoint-\d+", r"checkpoint-\\d+", alone).replace("data", "data/?"))
        self.ok(friend, alone + " --max-steps 2 --sequence-len 32 --micro-batch-size 2 --eval-steps 0 --quiet")
        self.all_there(2, first, last)
        self.assertIn("is no longer a member", first.told())
        # The owner goes away and comes back; nobody needed it.
        first.send_signal(signal.SIGINT)
        back = re.search(r"back to the pool: (atom pool join .*)", self.ends(first, 130)).group(1)
        self.assertEqual(back, say["join -o"])
        first = you.begin(back)
        self.all_there(2, first, last)
        self.goes_on(you, first, last)
        # What it was all for.
        self.ok(you, say["export"])
        self.assertTrue(self.ok(you, "atom generate --model model/ --prompt 'In the' --max-tokens 8").startswith("In the"))
        for box, process in ((third, last), (you, first)):
            self.ok(box, say["leave"])
            self.ends(process, 0)


if __name__ == "__main__":
    rig.main()
