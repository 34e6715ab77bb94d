#!/usr/bin/python3
"""Compiles the CUDA module with nvcc for one architecture, links it, looks at its symbols and loads it.

Device code is compiled without optimisation, in half the time: that it is accepted, and what the module needs and shows, does not
depend on it. --optimise compiles it as kernels/cuda/CMakeLists.txt does.

Exit 0: good; 1: not; 77: there is no nvcc here.
"""
import argparse
import glob
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

CUDA_FLAGS = ["-std=c++17", "-fmad=false", "-Xcompiler=-fPIC,-fvisibility=hidden,-Wall", "-D_GNU_SOURCE"]
C_FLAGS = ["-std=gnu11", "-D_GNU_SOURCE", "-O2", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off", "-Wall",
           "-Wextra", "-Wshadow", "-Wconversion", "-Wvla", "-Werror"]


def newer(target, sources):
    if not os.path.exists(target):
        return True
    made = os.path.getmtime(target)
    return any(os.path.getmtime(s) > made for s in sources)


def run(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


def main():
    parser = argparse.ArgumentParser()
    for name in ("nvcc", "cc", "root", "arch", "out", "base", "load"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--optimise", action="store_true")
    a = parser.parse_args()
    quality = ["-O3"] if a.optimise else ["-O1", "-G"]
    if not os.path.exists(a.nvcc):
        print("cuda.build: skipped: there is no nvcc on this machine")
        return 77
    home = os.path.dirname(os.path.dirname(os.path.realpath(a.nvcc)))
    libraries = next((p for p in (home + "/lib64", home + "/targets/x86_64-linux/lib") if os.path.isdir(p)), home + "/lib")
    os.makedirs(a.out, exist_ok=True)
    os.chdir(a.root)
    headers = glob.glob("kernels/*.h") + glob.glob("kernels/cuda/*.*h") + glob.glob("atom/base/*.h") + ["atom/base/ops.def"]
    jobs, objects = [], []
    # The longest first.
    sources = sorted(glob.glob("kernels/cuda/*.cu"), key=os.path.getsize, reverse=True)
    for source in sources + sorted(glob.glob("kernels/cuda/*.c")) + ["kernels/dev.c", "kernels/dev_queue.c"]:
        target = f"{a.out}/{os.path.basename(source)}.{a.arch}.o"
        objects.append(target)
        if not newer(target, headers + [source]):
            continue
        if source.endswith(".cu"):
            jobs.append([a.nvcc, "-c", *CUDA_FLAGS, *quality, f"-gencode=arch=compute_{a.arch},code=sm_{a.arch}", "-I.", source, "-o", target])
        else:
            jobs.append([a.cc, "-c", *C_FLAGS, "-I.", "-isystem", home + "/include", source, "-o", target])
    with ThreadPoolExecutor(max_workers=2) as pool:
        for job, (code, text) in zip(jobs, pool.map(run, jobs)):
            if text.strip():
                print(text)
            if code:
                print("cuda.build: failed:", " ".join(job))
                return 1
    module = f"{a.out}/libatom_cuda.so"
    code, text = run([a.cc, "-shared", "-o", module, *objects, a.base, "-Wl,--no-undefined", "-Wl,--exclude-libs,ALL",
                      "-L" + libraries, "-Wl,-rpath," + libraries, "-lcublasLt", "-lcudart_static", "-lpthread", "-ldl", "-lrt", "-lm",
                      "-lstdc++"])
    print(text, end="")
    if code:
        print("cuda.build: the module does not link")
        return 1
    shown = [line.split()[-1] for line in run(["nm", "-D", "--defined-only", module])[1].splitlines()]
    if shown != ["atom_cuda_module"]:
        print("cuda.build: the module shows", " ".join(shown), "instead of atom_cuda_module alone")
        return 1
    said = subprocess.run([a.load], env={**os.environ, "ATOM_CUDA_MODULE": module}, stdout=subprocess.PIPE, text=True)
    print("loaded:", said.stdout.strip())
    good = said.returncode == 0 or (said.returncode == 3 and any(
        why in said.stdout for why in ("no NVIDIA driver", "no card", "newer driver", "compute capability", "CUDA is not used: ")))
    bad = any(why in said.stdout for why in ("is from another build", "cannot open", "undefined symbol", "no libatom_cuda"))
    if not good or bad:
        print("cuda.build: the module does not load")
        return 1
    print(f"cuda.build: {len(jobs)} files compiled for sm_{a.arch}, linked and loaded")
    return 0


if __name__ == "__main__":
    sys.exit(main())
