"""A file system that fails on demand: a directory shown again through FUSE, where the n-th read, write or fsync of a
file gives an error, or where the power goes: then any part of what was written since the last fsync, by sectors, is as
it was before, and nothing works any more.

It is the request `after` so many others that came after `synced` fsyncs of that file.

    python3 faultfs.py BACKING MOUNT FAULT      FAULT is JSON: {"op", "name" (a pattern), "synced", "after", "errno" or "cut": seed}

Runs in the foreground until it is unmounted. Exits with 77 where FUSE cannot be had."""
import errno
import fnmatch
import json
import os
import random
import sys

try:
    from fusepy import FUSE, FuseOSError, Operations
except ImportError:
    try:
        from fuse import FUSE, FuseOSError, Operations
    except (ImportError, OSError) as missing:
        print(f"no fusepy: {missing}", file=sys.stderr)
        sys.exit(77)

SECTOR = 512


class FaultFs(Operations):
    def __init__(self, root, fault):
        self.root, self.fault = root, fault
        self.seen = self.synced = 0
        self.dead = False
        self.undo = []  # (offset, what was there) of the file of the fault, since its last fsync

    def real(self, path):
        return os.path.join(self.root, path.lstrip("/"))

    def is_target(self, path):
        return fnmatch.fnmatch(os.path.basename(path), self.fault.get("name", ""))

    def lose_power(self, fd):
        """Every sector written since the last fsync either got there or did not."""
        pick = random.Random(self.fault["cut"])
        for offset, old in reversed(self.undo):
            for at in range(0, len(old), SECTOR):
                if pick.random() < 0.5:
                    os.pwrite(fd, old[at:at + SECTOR], offset + at)
        os.fsync(fd)
        self.dead = True

    def check(self, op, path, fd):
        if self.dead and self.is_target(path):
            raise FuseOSError(errno.EIO)
        if self.fault.get("op") != op or not self.is_target(path) or self.synced < self.fault["synced"]:
            return
        self.seen += 1
        if self.seen <= self.fault["after"]:
            return
        if "cut" in self.fault:
            self.lose_power(fd)
            raise FuseOSError(errno.EIO)
        raise FuseOSError(getattr(errno, self.fault["errno"]))

    # --- calls of the kernel

    def access(self, path, amode):
        if not os.access(self.real(path), amode):
            raise FuseOSError(errno.EACCES)

    def getattr(self, path, fh=None):
        try:
            st = os.fstat(fh) if fh else os.lstat(self.real(path))
        except OSError as error:
            raise FuseOSError(error.errno) from error
        return {key: getattr(st, key) for key in ("st_atime", "st_ctime", "st_gid", "st_mode", "st_mtime", "st_nlink",
                                                  "st_size", "st_uid", "st_blocks", "st_ino")}

    def readdir(self, path, fh):
        return [".", ".."] + os.listdir(self.real(path))

    def statfs(self, path):
        st = os.statvfs(self.real(path))
        return {key: getattr(st, key) for key in ("f_bavail", "f_bfree", "f_blocks", "f_bsize", "f_favail", "f_ffree",
                                                  "f_files", "f_flag", "f_frsize", "f_namemax")}

    def open(self, path, flags):
        return os.open(self.real(path), flags & ~os.O_DIRECT)

    def create(self, path, mode, fi=None):
        return os.open(self.real(path), os.O_RDWR | os.O_CREAT, mode)

    def read(self, path, size, offset, fh):
        self.check("read", path, fh)
        return os.pread(fh, size, offset)

    def write(self, path, data, offset, fh):
        if "cut" in self.fault and self.is_target(path) and not self.dead:
            self.undo.append((offset, os.pread(fh, len(data), offset)))
        self.check("write", path, fh)
        return os.pwrite(fh, data, offset)

    def fsync(self, path, fdatasync, fh):
        self.check("fsync", path, fh)
        os.fdatasync(fh)
        if self.is_target(path):
            self.synced += 1
            self.undo.clear()

    def truncate(self, path, length, fh=None):
        os.truncate(fh if fh else self.real(path), length)

    def release(self, path, fh):
        os.close(fh)

    def fsyncdir(self, path, fdatasync, fh):
        return 0

    def chmod(self, path, mode):
        os.chmod(self.real(path), mode)

    def mkdir(self, path, mode):
        os.mkdir(self.real(path), mode)

    def rmdir(self, path):
        os.rmdir(self.real(path))

    def unlink(self, path):
        os.unlink(self.real(path))

    def rename(self, old, new):
        os.rename(self.real(old), self.real(new))

    def utimens(self, path, times=None):
        os.utime(self.real(path), times)


if __name__ == "__main__":
    try:
        FUSE(FaultFs(os.path.abspath(sys.argv[1]), json.loads(sys.argv[3])), sys.argv[2], foreground=True, nothreads=True,
             big_writes=True, fsname="atom-faults")
    except (RuntimeError, OSError) as refused:
        print(f"cannot mount: {refused}", file=sys.stderr)
        sys.exit(77)
