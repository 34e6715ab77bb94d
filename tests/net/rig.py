"""Hosts on a made-up network: namespaces of this machine, links with the rate, delay and loss that a test asks for.

Nothing that a rig makes is seen outside, and nothing survives it. `inside()` starts the test again in fresh
namespaces (network, mounts, processes; users too where we are not root): its first process is the test, and when
that ends, however it ends, the kernel ends all other processes and takes down all links and mounts. So no name can
collide and there is nothing to clean up. Where namespaces are not allowed the test ends with 77 and says why.

Two kinds of network:
  Rig("bridge")  veth pairs on one bridge, rates by tbf. The kernel's own speed; no delay, no loss.
  Rig("relay")   tests/net/relay.c carries every packet between TUN devices: delay, loss, rates and cuts per pair,
                 the same on every kernel (many lack netem).

Standard library only, iproute2 beside it. All waiting is bounded by the caller's timeouts.
"""
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

SKIP = 77
MARK = "ATOM_TEST_NET_INSIDE"


def skip(why):
    print(f"SKIP: {why}", flush=True)
    sys.exit(SKIP)


def call(*args, check=True, timeout=20):
    done = subprocess.run(args, capture_output=True, text=True, timeout=timeout, check=False)
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(args)}: {done.stderr.strip() or done.stdout.strip()}")
    return done


def inside(seconds=600):
    """Returns in the fresh namespaces; the outer process waits at most `seconds` and never returns."""
    if os.environ.get(MARK):
        # The first process of a namespace ignores signals that it has no handler for.
        signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
        try:
            if not os.path.isdir("/run/netns"):
                call("mount", "-t", "tmpfs", "-o", "size=1m", "none", "/run")
                os.mkdir("/run/netns")
            call("mount", "-t", "tmpfs", "-o", "size=1m", "none", "/run/netns")
            call("ip", "link", "set", "lo", "up")
        except RuntimeError as why:
            skip(f"namespaces are half allowed here: {why}")
        return
    for tool in ("unshare", "ip", "tc", "bridge", "mount"):
        if not shutil.which(tool) and not os.path.exists(f"/usr/sbin/{tool}"):
            skip(f"no {tool} here (util-linux, iproute2)")
    env = dict(os.environ, PATH=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    ours = ["unshare"] + ([] if os.geteuid() == 0 else ["-r"]) + ["-mnp", "--fork", "--kill-child", "--mount-proc"]
    probe = subprocess.run(ours + ["mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, text=True, env=env,
                           timeout=20, check=False)
    if probe.returncode:
        skip(f"namespaces are not allowed here: {probe.stderr.strip()}")
    env[MARK] = "1"
    child = subprocess.Popen(ours + [sys.executable] + sys.argv, env=env)
    try:
        code = child.wait(timeout=seconds)
    except (subprocess.TimeoutExpired, KeyboardInterrupt) as why:
        child.kill()
        child.wait()
        print(f"net: ended from outside ({type(why).__name__})", flush=True)
        code = 1
    sys.exit(code if code >= 0 else 1)


def main(seconds=240):
    """unittest.main inside; ends with 77 when something was skipped and the rest is right."""
    inside(seconds)
    done = unittest.main(verbosity=2, exit=False).result
    for test, why in done.skipped:
        print(f"SKIP: {test}: {why}", flush=True)
    sys.exit(1 if not done.wasSuccessful() else SKIP if done.skipped else 0)


class Host:
    """One host of a rig: a network namespace with one address on one link."""

    def __init__(self, rig, number):
        self.rig, self.number = rig, number
        self.name = f"r{rig.serial}h{number}"
        self.address = f"10.77.0.{number + 1}"
        self.device = "eth0"
        self.processes = []

    def start(self, args, **options):
        """Starts a program on this host; the Popen's pid is the program's own."""
        process = subprocess.Popen(["ip", "netns", "exec", self.name] + [str(a) for a in args], **options)
        self.processes.append(process)
        return process

    def run(self, args, timeout=60, check=True):
        done = subprocess.run(["ip", "netns", "exec", self.name] + [str(a) for a in args], capture_output=True,
                              text=True, timeout=timeout, check=False)
        if check and done.returncode:
            raise RuntimeError(f"{self.name}: {' '.join(map(str, args))}: exit {done.returncode}\n{done.stdout}"
                               f"{done.stderr}")
        return done

    def sysctl(self, key, value):
        """A setting of this host's own network; False where the kernel does not let us."""
        return self.run(["sysctl", "-q", "-w", f"{key}={value}"], check=False).returncode == 0

    def congestion_control(self, name):
        """Asks for one by name; which is in use then: a kernel may forbid it here (tcp_allowed_congestion_control)."""
        self.sysctl("net.ipv4.tcp_congestion_control", name)
        return self.run(["sysctl", "-n", "net.ipv4.tcp_congestion_control"]).stdout.strip()

    def wire(self):
        """(bytes sent, bytes received) on the link so far, headers included."""
        stats = json.loads(call("ip", "-n", self.name, "-s", "-j", "link", "show", "dev", self.device).stdout)
        stats = stats[0].get("stats64") or stats[0]["stats"]
        return stats["tx"]["bytes"], stats["rx"]["bytes"]

    # What can happen to a host. Each has its opposite.

    def shape(self, up_mbit, down_mbit=None, queue_ms=50):
        self.rig.shape(self, up_mbit, down_mbit or up_mbit, queue_ms)

    def cut(self):
        """Nothing gets in or out, and nobody is told: a pulled cable behind the modem."""
        self.rig.cut_host(self, True)

    def mend(self):
        self.rig.cut_host(self, False)


def kill(process):
    """kill -9: no goodbye from the program; the kernel still closes its sockets."""
    process.send_signal(signal.SIGKILL)
    process.wait()


def stop(process):
    """SIGSTOP: the host's kernel answers, the program does not."""
    process.send_signal(signal.SIGSTOP)


def resume(process):
    process.send_signal(signal.SIGCONT)


class SmallDisk:
    """A file system of bounded size, for disks that fill up."""

    def __init__(self, mib):
        self.path = tempfile.mkdtemp(prefix="atom-net-disk-")
        call("mount", "-t", "tmpfs", "-o", f"size={mib}m", "none", self.path)
        self.filler = os.path.join(self.path, "filler")

    def fill(self):
        """Until nothing more fits."""
        with open(self.filler, "wb", buffering=0) as file:
            for size in (1 << 20, 4096, 1):
                try:
                    while True:
                        file.write(bytes(size))
                except OSError:
                    pass

    def empty(self):
        os.unlink(self.filler)

    def close(self):
        call("umount", "-l", self.path)
        os.rmdir(self.path)


class Bridge:
    """veth pairs on one bridge."""

    def __init__(self, serial):
        self.name, self.serial = f"br{serial}", serial
        call("ip", "link", "add", self.name, "type", "bridge", "forward_delay", "0", "mcast_snooping", "0")
        call("ip", "link", "set", self.name, "up")

    def close(self):
        call("ip", "link", "del", self.name)

    def port(self, host):
        return f"p{self.serial}h{host.number}"

    def add(self, host, hosts):
        mac = f"02:00:00:00:00:{host.number + 1:02x}"
        port = self.port(host)
        call("ip", "link", "add", port, "type", "veth", "peer", "name", host.device, "netns", host.name)
        call("ip", "-n", host.name, "link", "set", host.device, "address", mac)
        call("ip", "link", "set", port, "master", self.name, "up")
        # Everybody is known, nothing is asked and nothing flooded: traffic is what the programs send.
        call("bridge", "link", "set", "dev", port, "flood", "off", "learning", "off")
        call("bridge", "fdb", "add", mac, "dev", port, "master", "static")
        call("ip", "-n", host.name, "addr", "add", f"{host.address}/24", "dev", host.device)
        call("ip", "-n", host.name, "link", "set", host.device, "up")
        for other in hosts:
            self.cut(host, other, False)
            self.cut(other, host, False)

    def shape(self, host, up_mbit, down_mbit, queue_ms):
        for where, rate in ((["-n", host.name], up_mbit), ([], down_mbit)):
            device = host.device if where else self.port(host)
            burst = max(16 * 1024, int(rate * 500))  # four milliseconds, as atom bench allreduce has it
            call("tc", *where, "qdisc", "replace", "dev", device, "root", "tbf", "rate", f"{rate}mbit", "burst",
                 str(burst), "latency", f"{queue_ms}ms")

    def cut(self, sender, receiver, yes):
        """A neighbour at an address that no port has: its packets are sent, and lost."""
        mac = "02:00:00:00:ff:ff" if yes else f"02:00:00:00:00:{receiver.number + 1:02x}"
        call("ip", "-n", sender.name, "neigh", "replace", receiver.address, "lladdr", mac, "nud", "permanent", "dev",
             sender.device)

    def cut_host(self, host, yes):
        call("bridge", "link", "set", "dev", self.port(host), "state", "0" if yes else "3")

    def delay(self, *_):
        raise RuntimeError("a bridge cannot delay or lose; take Rig('relay')")

    lose = delay


class Relay:
    """tests/net/relay.c in the middle, spoken to over its stdin."""

    def __init__(self, program):
        if not os.path.exists("/dev/net/tun"):
            raise unittest.SkipTest("no /dev/net/tun here")
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(timeout=20)

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        if not answer.startswith("ok"):
            raise RuntimeError(f"relay: {line}: {answer or 'it ended'}")
        return answer[2:].strip()

    def add(self, host, _):
        host.device = "tun0"
        try:
            self.say(f"host {host.number} /run/netns/{host.name} {host.device} {host.address}")
        except RuntimeError as why:
            raise unittest.SkipTest(f"TUN devices are not allowed here: {why}") from why
        call("ip", "-n", host.name, "addr", "add", f"{host.address}/24", "dev", host.device)
        call("ip", "-n", host.name, "link", "set", host.device, "mtu", "1500", "txqueuelen", "1000", "up")

    def shape(self, host, up_mbit, down_mbit, queue_ms):
        self.say(f"rate {host.number} {int(up_mbit * 1e6)} {int(down_mbit * 1e6)} {queue_ms}")

    def cut(self, sender, receiver, yes):
        self.say(f"cut {sender.number} {receiver.number} {int(yes)}")

    def cut_host(self, host, yes):
        self.say(f"cut {host.number} -1 {int(yes)}")
        self.say(f"cut -1 {host.number} {int(yes)}")

    def delay(self, sender, receiver, ms):
        self.say(f"delay {sender.number} {receiver.number} {int(ms * 1000)}")

    def lose(self, sender, receiver, share):
        self.say(f"lose {sender.number} {receiver.number} {int(share * 1e6)}")


class Rig:
    made = 0

    def __init__(self, kind, relay=None):
        Rig.made += 1
        self.serial = Rig.made
        self.net = Bridge(self.serial) if kind == "bridge" else Relay(relay or os.environ["RELAY"])
        self.hosts = []

    def host(self):
        host = Host(self, len(self.hosts))
        call("ip", "netns", "add", host.name)
        call("ip", "-n", host.name, "link", "set", "lo", "up")
        self.net.add(host, self.hosts)
        self.hosts.append(host)
        return host

    def shape(self, *args):
        self.net.shape(*args)

    def cut_host(self, *args):
        self.net.cut_host(*args)

    def delay(self, a, b, rtt_ms):
        """Round trip between two hosts, half of it each way. Relay only."""
        self.net.delay(a, b, rtt_ms / 2)
        self.net.delay(b, a, rtt_ms / 2)

    def lose(self, a, b, share):
        """Share of the packets that get lost, each way. Relay only."""
        self.net.lose(a, b, share)
        self.net.lose(b, a, share)

    def cut(self, sender, receiver):
        """One direction of one pair, silently."""
        self.net.cut(sender, receiver, True)

    def mend(self, sender, receiver):
        self.net.cut(sender, receiver, False)

    def partition(self, *groups, yes=True):
        """Hosts of different groups cannot reach each other, silently. heal() is the opposite."""
        for i, group in enumerate(groups):
            for other in groups[:i] + groups[i + 1:]:
                for a in group:
                    for b in other:
                        self.net.cut(a, b, yes)

    def heal(self, *groups):
        self.partition(*groups, yes=False)

    def close(self):
        """Ends what still runs on the hosts, then the hosts, so that a test can make the next rig."""
        for host in self.hosts:
            for process in host.processes:
                if process.poll() is None:
                    kill(process)
                for pipe in (process.stdin, process.stdout, process.stderr):
                    if pipe:
                        pipe.close()
            call("ip", "netns", "del", host.name)
        self.net.close()
        self.hosts = []


# Measuring the rig itself: what it promises, seen from programs on its hosts.

ECHO = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((sys.argv[1], 9007))
print("up", flush=True)
while True:
    data, peer = s.recvfrom(2048)
    s.sendto(data, peer)
"""
PING = """
import json, socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(float(sys.argv[3]))
times = []
for i in range(int(sys.argv[2])):
    start = time.monotonic()
    s.sendto(b"%d" % i, (sys.argv[1], 9007))
    try:
        while s.recv(2048) != b"%d" % i:
            pass
        times.append((time.monotonic() - start) * 1e3)
    except TimeoutError:
        pass
print(json.dumps(times))
"""


def ping(a, b, count=20, timeout=1.0):
    """Round trips in ms of the UDP packets that came back."""
    server = b.start([sys.executable, "-c", ECHO, b.address], stdout=subprocess.PIPE, text=True)
    server.stdout.readline()
    try:
        done = a.run([sys.executable, "-c", PING, b.address, count, timeout], timeout=count * timeout + 20)
        return json.loads(done.stdout)
    finally:
        kill(server)


def iperf(a, b, seconds=3, streams=1):
    """Mbit/s of TCP from a to b as the receiver counts it; None without iperf3."""
    if not shutil.which("iperf3"):
        return None
    server = b.start(["iperf3", "-s", "-1", "--forceflush"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                     text=True)
    server.stdout.readline()
    server.stdout.readline()  # "Server listening"
    drain = threading.Thread(target=server.stdout.read, daemon=True)
    drain.start()
    try:
        done = a.run(["iperf3", "-c", b.address, "-t", seconds, "-P", streams, "-J"], timeout=seconds + 30)
        return json.loads(done.stdout)["end"]["sum_received"]["bits_per_second"] / 1e6
    finally:
        if server.poll() is None:
            kill(server)
        drain.join(5)


def median(values):
    values = sorted(values)
    return values[len(values) // 2] if values else float("nan")


def wait_until(condition, seconds, pause=0.05):
    """The condition's value as soon as it is true; its last value when the time is over."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value or time.monotonic() > end:
            return value
        time.sleep(pause)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]
