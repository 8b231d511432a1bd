#!/usr/bin/env python3
"""Builds and runs the image of docs/how-to/image.md without a container engine.

    unshare --mount scripts/tarball/image.py ROOT CONTEXT

The folder ROOT stands for the file system of the image that FROM names. The instructions of the
page's Dockerfile change it, with files from the folder CONTEXT. Then the image's program, and
commands of unconvoy, run in it as in a container without privileges: as an ordinary user, with a
quota of one processor, and without the system calls that engines refuse. Needs root, and a mount
namespace of its own."""
import contextlib
import ctypes
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys

PAGE = pathlib.Path(__file__).resolve().parent.parent.parent / "docs" / "how-to" / "image.md"
VARIABLES = {"PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/tmp"}
USER = 65534

# System calls (x86-64) that the default profiles refuse to a container without capabilities, and
# ptrace and its like, which older ones refuse too.
REFUSED = {
    "ptrace": 101, "syslog": 103, "mount": 165, "umount2": 166, "add_key": 248, "request_key": 249,
    "keyctl": 250, "unshare": 272, "perf_event_open": 298, "open_by_handle_at": 304, "setns": 308,
    "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312, "bpf": 321, "userfaultfd": 323,
    "io_uring_setup": 425, "pidfd_getfd": 438,
}  # fmt: skip
CLONE3 = 435
EPERM, ENOSYS = 1, 38

# Fields of <linux/filter.h>, <linux/seccomp.h> and <linux/prctl.h>.
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, FAIL = 0x7FFF0000, 0x00050000
SET_SECCOMP, FILTER, SET_NO_NEW_PRIVS = 22, 2, 38


def refuse_calls():
    """Makes the refused system calls of this process fail. glibc falls back from clone3 to clone
    only for ENOSYS, which the default profiles return."""
    code = [(LOAD, 0, 0, 0)]
    for call in REFUSED.values():
        code += [(JUMP_IF_EQUAL, 0, 1, call), (RETURN, 0, 0, FAIL | EPERM)]
    code += [(JUMP_IF_EQUAL, 0, 1, CLONE3), (RETURN, 0, 0, FAIL | ENOSYS), (RETURN, 0, 0, ALLOW)]
    text = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in code))
    program = ctypes.create_string_buffer(struct.pack("HP", len(code), ctypes.addressof(text)))
    libc = ctypes.CDLL(None, use_errno=True)
    none = ctypes.c_ulong(0)
    if libc.prctl(SET_NO_NEW_PRIVS, ctypes.c_ulong(1), none, none, none) != 0:
        raise OSError(ctypes.get_errno(), "no_new_privs")
    if libc.prctl(SET_SECCOMP, ctypes.c_ulong(FILTER), program, none, none) != 0:
        raise OSError(ctypes.get_errno(), "seccomp")


@contextlib.contextmanager
def quota():
    """A control group with a quota of one processor, or None where none can be made."""
    top = pathlib.Path("/sys/fs/cgroup")
    made = None
    for parent, file, value in (
        (top / "cpu", "cpu.cfs_quota_us", "100000"),
        (top, "cpu.max", "100000 100000"),
    ):
        group = parent / f"unconvoy-image-{os.getpid()}"
        with contextlib.suppress(OSError):
            group.mkdir()
            made = group
            (group / file).write_text(value)
            break
        if made:
            made.rmdir()
            made = None
    try:
        yield made
    finally:
        if made:
            made.rmdir()


def build(root, context):
    """Executes the page's Dockerfile in `root`. Returns the entry point and the command."""
    text = re.search(r"^```dockerfile\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)[1]
    entry_point = []
    command = []
    for line in text.splitlines():
        word, rest = line.split(maxsplit=1)
        if word == "ADD":
            archive, folder = rest.split()
            subprocess.run(["tar", "-C", root + folder, "-xzf", f"{context}/{archive}"], check=True)
        elif word == "COPY":
            source, folder = rest.split()
            shutil.copy(f"{context}/{source}", root + folder)
        elif word == "RUN":
            subprocess.run(["chroot", root, "sh", "-c", rest], check=True, env=VARIABLES)
        elif word == "ENTRYPOINT":
            entry_point = json.loads(rest)
        elif word == "CMD":
            command = json.loads(rest)
        elif word != "FROM":
            sys.exit(f"image: unknown instruction {word}")
    return entry_point, command


def main(root, context):
    entry_point, command = build(root, context)
    for folder in ("proc", "sys"):
        subprocess.run(["mount", "--rbind", f"/{folder}", f"{root}/{folder}"], check=True)

    with quota() as group:

        def contain():
            if group:
                (group / "cgroup.procs").write_text(str(os.getpid()))
            os.chroot(root)
            os.chdir("/tmp")
            os.setgroups([])
            os.setgid(USER)
            os.setuid(USER)
            refuse_calls()

        def output(*line):
            run = subprocess.run(
                line, env=VARIABLES, preexec_fn=contain, text=True, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, check=False,
            )  # fmt: skip
            if run.returncode != 0:
                sys.exit(f"image: {' '.join(line)}: status {run.returncode}: {run.stdout}")
            print(f"image: works: {' '.join(line)}")
            return run.stdout

        print(output(*entry_point, *command), end="")
        if output(*entry_point, "grep", "-c", "libunconvoy", "/proc/self/maps") == "0\n":
            sys.exit("image: the entry point adds no library")
        output("unconvoy", "doctor")
        output("unconvoy", "profile", "--", *command, "--threads", "8")
        output("unconvoy", "compare", "--runs", "3", "--", *command)
        output("unconvoy", "run", "--stats", "locks.json", "--", *command, "--threads", "8")
        stats = output("unconvoy", "stats", "--top", "3", "locks.json")
        print(stats, end="")
        if not group:
            print("skipped: the quota: no control group can be made here")
        elif "on 1.00 processors" not in stats:
            sys.exit("image: the library does not see the quota")


if len(sys.argv) != 3:
    sys.exit(__doc__)
main(sys.argv[1], sys.argv[2])
