"""Machines and commits of records, for the scripts that make records and tables."""

import os
import pathlib
import platform
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent


def machine():
    """This machine, as in the contexts of `unconvoy compare`."""
    cpu = re.search(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    return {
        "cpu": " ".join(cpu[1].split()) if cpu else platform.machine(),
        "processors": processors(),
        "kernel": f"{platform.system()} {platform.release()}",
        "libc": " ".join(platform.libc_ver()),
    }


def processors():
    """Processors that affinity mask and quotas (cgroup version 2) allow, rounded down."""
    own = re.search(r"^0::(.*)$", pathlib.Path("/proc/self/cgroup").read_text(), re.M)
    group = pathlib.Path("/sys/fs/cgroup" + (own[1] if own else "/"))
    least = len(os.sched_getaffinity(0))
    for limit in [folder / "cpu.max" for folder in [group, *group.parents]]:
        quota, *period = limit.read_text().split() if limit.is_file() else ["max"]
        if quota != "max":
            least = min(least, max(1, int(quota) // int(period[0])))
    return least


def commit():
    """The checked-out commit."""
    found = subprocess.run(
        ["git", "-C", ROOT, "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
    )
    return found.stdout.strip() or "unknown"


def difference(known, here):
    """Why measurements of `here` may not join those of `known`; None if they may."""
    for key, value in here.items():
        if key in known and known[key] != value:
            return f"its {key} was {known[key]}, and is {value}"
    return None


def described(context, note=None):
    """The machine of a record's context, in words."""
    parts = [context["cpu"], f"{context['processors']} processors"]
    if "memory_kib" in context:
        parts.append(f"{context['memory_kib'] / 2**20:.0f} GiB")
    parts += [note] if note else []
    return ", ".join([*parts, context["kernel"], context["libc"]])


def lines(described_commits):
    """A line for each machine, with its commits, from pairs of a description and a commit."""
    commits = {}
    for description, commit in described_commits:
        commits.setdefault(description, set()).update([commit] if commit else [])
    shown = []
    for description, of_it in commits.items():
        between = "; " if any(", " in commit for commit in of_it) else ", "
        shown.append(f"{description} ({between.join(sorted(of_it))})" if of_it else description)
    return ";\n".join(shown)
