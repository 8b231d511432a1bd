#!/usr/bin/env python3
"""Renews the records of docs/evaluation that are not of this machine and this code.

    scripts/evaluation.py [OPTIONS] [NAME...]   renew records of scripts/evaluation.toml

Run it through `make evaluation`, on a quiet machine. A record is current if it was made on this
machine, and if the files that it depends on are as they were then; docs/records/evaluation.json
says so, with its commit, dates and command. A command's results lie in .evaluation/NAME until it
succeeds. An interrupted run continues there, unless machine or code have changed since. If only
publishing failed, the next run does not measure again.

The exit status is 1 if a command fails, and 2 if files that a record depends on are not committed.
"""

import argparse
import datetime
import hashlib
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
PARTS = {part["name"]: part for part in tomllib.loads(
    (ROOT / "scripts/evaluation.toml").read_text())["record"]}
STATE = ROOT / "docs/records/evaluation.json"
WORK = ROOT / ".evaluation"


def git(*words):
    return subprocess.check_output(["git", *words], cwd=ROOT, text=True).strip()


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")


def machine():
    """What numbers of two records must have in common."""
    cpu = re.search(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    kernel = ".".join(platform.release().split(".")[:2])
    libc = " ".join(platform.libc_ver())
    processors = len(os.sched_getaffinity(0))
    return {"cpu": cpu[1] if cpu else platform.machine(), "processors": processors,
            "kernel": kernel, "libc": libc}


def digest(part):
    """A hash of the committed files that a record depends on."""
    files = git("ls-files", "-s", "--", *part["sources"])
    return hashlib.sha256(files.encode()).hexdigest()


def state_of(part, states, here):
    """Why a record must be renewed; None if it is current."""
    made = states.get(part["name"])
    if made is None:
        return "not measured by `make evaluation` yet"
    for key, value in here.items():
        if made["machine"].get(key) != value:
            return f"another machine: {key} was {made['machine'].get(key)}, and is {value}"
    if made["digest"] != digest(part):
        since = f"changed since {made['commit']}"
        # git does not know the commit in a shallow clone or after a rebase.
        command = ["git", "diff", "--name-only", made["commit"], "HEAD", "--", *part["sources"]]
        found = subprocess.run(command, cwd=ROOT, text=True, capture_output=True)
        if found.returncode != 0:
            return since
        return f"{since}: {found.stdout.splitlines()[0] if found.stdout else 'files'}"
    return None


def too_few(part, here):
    """Why this machine cannot make a record; None if it can."""
    needed = part.get("processors", 1)
    few = here["processors"] < needed
    return f"needs {needed} processors, and this machine has {here['processors']}" if few else None


def continues(out, begun):
    """Whether the results in `out` are an interrupted run's on this machine with this code."""
    note = out / "begun.json"
    if not note.exists():
        return False
    old = json.loads(note.read_text())
    return all(old[key] == begun[key] for key in ("machine", "digest", "command"))


def renew(part, states, here):
    """Measures, publishes, and notes what was done. Returns whether that succeeded."""
    out = WORK / part["name"]
    begun = {"commit": git("rev-parse", "--short", "HEAD"), "machine": here, "begun": now(),
             "command": part["command"], "digest": digest(part), "sources": part["sources"]}
    if continues(out, begun):
        print(f"{part['name']}: continues the run in {out.relative_to(ROOT)}", flush=True)
        old = json.loads((out / "begun.json").read_text())
        begun["begun"], begun["commit"] = old["begun"], old["commit"]
        is_measured = "measured" in old
    else:
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        (out / "begun.json").write_text(json.dumps(begun))
        is_measured = False
    results = out / "results"
    results.mkdir(exist_ok=True)
    environment = {**os.environ, "OUT": str(results.relative_to(ROOT))}
    for command in ([] if is_measured else [part["command"]]) + [part["publish"]]:
        print(f"+ {command}", flush=True)
        status = subprocess.run(["bash", "-euo", "pipefail", "-c", command], cwd=ROOT,
                                env=environment).returncode
        if status != 0:
            print(f"{part['name']}: `{command}` ended with status {status}", file=sys.stderr)
            return False
        (out / "begun.json").write_text(json.dumps({**begun, "measured": now()}))
    states[part["name"]] = {**begun, "ended": now()}
    STATE.write_text(json.dumps(states, indent=1, sort_keys=True) + "\n")
    shutil.rmtree(out)
    return True


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="say what would be renewed, and why")
    parser.add_argument("--force", action="store_true", help="renew current records, too")
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    for name in options.names:
        if name not in PARTS:
            parser.error(f"no record {name}: known are {', '.join(PARTS)}")
    states = json.loads(STATE.read_text()) if STATE.exists() else {}
    here = machine()
    wanted = [PARTS[name] for name in options.names or PARTS]
    reasons = {part["name"]: state_of(part, states, here) for part in wanted}
    if options.list:
        for part in wanted:
            name = part["name"]
            reason = too_few(part, here) or reasons[name] or "current"
            print(f"{name:12} {part['hours']:>5} h  {reason}")
        return 0
    skipped = {part["name"]: reason for part in wanted if (reason := too_few(part, here))}
    for name, reason in skipped.items():
        print(f"{name}: skipped: {reason}")
    wanted = [part for part in wanted if part["name"] not in skipped]
    renewed = [part for part in wanted if reasons[part["name"]] or options.force]
    for part in renewed:
        changed = git("status", "--porcelain", "--", *part["sources"])
        if changed:
            print(f"{part['name']}: commit first, because its record names a commit:\n{changed}",
                  file=sys.stderr)
            return 2
    failed = []
    for part in renewed:
        print(f"{part['name']}: {reasons[part['name']] or 'forced'}; about {part['hours']} h",
              flush=True)
        if not renew(part, states, here):
            failed.append(part["name"])
    print(f"{len(renewed) - len(failed)} renewed, {len(wanted) - len(renewed)} current")
    if failed:
        print(f"failed: {', '.join(failed)}; another run continues", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("\ninterrupted: another run continues", file=sys.stderr)
        sys.exit(130)
