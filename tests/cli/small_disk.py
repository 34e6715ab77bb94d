"""A file system of bounded size that can be filled."""
import os
import subprocess
import unittest


class SmallDisk:
    """At "small" in the directory of a test, which is skipped where nothing can be mounted."""

    def __init__(self, case, mib):
        self.path = case.path("small")
        os.mkdir(self.path)
        made = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mib}m", "none", self.path], check=False,
                              stderr=subprocess.PIPE, text=True)
        if made.returncode:
            raise unittest.SkipTest("no file system can be mounted here: " + made.stderr.strip())
        case.addCleanup(subprocess.run, ["umount", "-l", self.path], check=False)

    def fill(self, leave=0):
        """Until only so many bytes are left."""
        with open(os.path.join(self.path, "filler"), "wb", buffering=0) as file:
            for size in (1 << 20, 4096, 1):
                try:
                    while os.statvfs(self.path).f_bavail * os.statvfs(self.path).f_bsize >= leave + size:
                        file.write(bytes(size))
                except OSError:
                    pass

    def empty(self):
        os.unlink(os.path.join(self.path, "filler"))
