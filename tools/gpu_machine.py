"""The machine under tools/gpu-check: commands with a time limit, numbers that the kernel tells, and memory that is
touched beforehand so that a host which grows on demand has grown before anything is measured."""
import mmap
import multiprocessing
import os
import re
import signal
import subprocess
import time

from gpu_table import GIB

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
KIB = 1024
RUNNING = set()  # process groups of run_logged
TOUCHERS, TOUCH_BYTES, TOUCH_SECONDS, SPARE_BYTES = 16, 128 << 20, 60, 4 * GIB


def run_logged(command, log, env, limit):
    """Exit code; 124: out of time, and nothing of it runs any more."""
    with open(log, "w") as f:
        try:
            child = subprocess.Popen(command, stdout=f, stderr=subprocess.STDOUT, env=env, cwd=ROOT, start_new_session=True)
        except OSError as error:
            f.write(str(error))
            return 127
        RUNNING.add(child.pid)
        try:
            return child.wait(limit)
        except subprocess.TimeoutExpired:
            return 124
        finally:
            RUNNING.discard(child.pid)
            if child.returncode is None:
                os.killpg(child.pid, signal.SIGKILL)
                try:
                    child.wait(20)
                except subprocess.TimeoutExpired:
                    f.write("\nkilled, and still not gone: the driver holds it")


def end_all():
    """What run_logged has started on other threads ends."""
    for pid in list(RUNNING):
        try:
            os.killpg(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def first_line(command):
    try:
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout.strip()
    except OSError:
        return ""


def card_arch():
    """Of the first card, as nvcc writes it; an H100's where that is not known."""
    said = first_line(["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]).split("\n")[0]
    return said.replace(".", "") if re.fullmatch(r"\d+\.\d", said) else "90"


def read_number(path, pattern=r"(\d+)", scale=1):
    """None where the file does not say."""
    try:
        with open(path) as f:
            found = re.search(pattern, f.read())
    except OSError:
        return None
    return int(found.group(1)) * scale if found else None


def host_bytes(field):
    return read_number("/proc/meminfo", field + r":\s*(\d+)", KIB) or 0


def touch(share, deadline, pipe):
    """Takes share bytes as far as there are any, says how many, and holds them."""
    with open("/proc/self/oom_score_adj", "w") as f:  # if something must die, then this
        f.write("1000")
    held, waits = [], 0
    while len(held) * TOUCH_BYTES < share and time.time() < deadline and waits < 50:
        if host_bytes("MemAvailable") < SPARE_BYTES:  # wait for the machine to grow
            waits += 1
            time.sleep(0.2)
            continue
        waits = 0
        held.append(mmap.mmap(-1, TOUCH_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        held[-1][::4096] = b"1" * (TOUCH_BYTES // 4096)
    pipe.send(len(held) * TOUCH_BYTES)
    time.sleep(TOUCH_SECONDS)


def touch_memory(goal, seconds):
    """Bytes that all touchers held at once; what they hold is free again after this."""
    fork, deadline, touchers = multiprocessing.get_context("fork"), time.time() + seconds, []
    for _ in range(TOUCHERS):
        near, far = fork.Pipe(False)
        touchers.append((fork.Process(target=touch, args=(goal // TOUCHERS, deadline, far), daemon=True), near))
        touchers[-1][0].start()
        far.close()
    held = 0
    for _, near in touchers:
        try:
            held += near.recv() if near.poll(max(0, deadline + 5 - time.time())) else 0
        except EOFError:  # killed
            pass
    for process, _ in touchers:
        process.kill()
        process.join()
    return held
