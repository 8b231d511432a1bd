#!/usr/bin/env python3
"""Mutates the locks, load managers and interposer, and counts the mutants that tests catch.

    scripts/mutants.py [--sample 200] [--seed 1] [--jobs 1]

Needs cargo-mutants (`cargo install --locked cargo-mutants`), which lists the mutants of FILES. Each
job changes a worktree of the last commit in target/mutants/JOB/tree. STAGES are the tests, the
quick ones first; the first failure catches the mutant. A test that hangs ends at a limit of
processor time, or at a time-out if it also hangs the second time. Hanging mutants leave processors
idle, so that twice as many jobs as processors pay. Mutants that do not compile do not count.

The order of the sample depends on a mutant's file, function and change, and on the seed, so other
changes of the code leave it alone. Results are kept in docs/records/mutants.json, each with its
commit, and a run continues after the last one. `--survivors` tests the survivors again, on the last
commit. Prints each result, and the share of those caught with Wilson's interval of 95 %.
"""

import argparse
import hashlib
import json
import math
import os
import pathlib
import re
import resource
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "target/mutants"
RECORD = ROOT / "docs/records/mutants.json"
LOCKS = "crates/locks"
PARTS = ("contention", "load", "parking", "queue")
INTERPOSER = "crates/preload"
COMMAND = "crates/cli"
CALLS = ("aligned", "cancel", "cond", "dispatch", "held", "init", "mutex", "numbered", "object",
         "route", "rwlock", "spin", "time")
FILES = {
    "unconvoy": [f"{LOCKS}/src/{part}/**/*.rs" for part in PARTS] + [f"{LOCKS}/src/lock.rs"],
    "unconvoy-preload": [f"{INTERPOSER}/src/{call}{rest}" for call in CALLS
                         for rest in (".rs", "/*.rs")],
}
# Tests, and a type that the feature `ablation` adds.
NOT_TESTED = ("tests::", "tests.rs:", "one_thread.rs:", "chosen::")

# The generic suite runs these pairs for a mutant of a file; the last entry is for other files.
MANAGERS = {
    "mcs": ("mcs", "tpmcs"), "tpmcs": ("tpmcs", "tpmcs-yield", "tpmcs-slice"),
    "list": ("mcs", "tpmcs", "loiter"), "node": ("mcs", "clh"), "pool": ("mcs", "clh"),
    "ticket": ("ticket", "ticket-backoff", "requester"), "word": ("tas", "ttas", "loiter"),
    **{lock: (lock,) for lock in ("clh", "futex", "requester", "tas", "ttas")},
    "restrict": ("gcr", "malthus"), "passive": ("gcr", "malthus"),
    **{load: (load,) for load in ("adaptive", "backoff", "none", "park", "published", "yield")},
    "": ("loiter", "control"),
}

# Compiles faster than the release profile.
PROFILE = ["--release", "--config", "profile.release.opt-level=1",
           "--config", "profile.release.package.unconvoy.codegen-units=16"]
TESTS = ("biased_rw", "checkpoint", "elision", "first_use", "fork", "starvation", "system_calls",
         "wake_ups")
PROGRAMS = ("conformance", "regressions", "behaviour", "checkpoint", "differential", "profile",
            "waits", "watch")
# Tests that build the command, which takes longer than a test may.
NOT_RUN = ("--skip", "locks_of_different_pairs_in_one_process")


def test_words(names):
    return [word for name in names for word in ("--test", name)]


STAGES = {
    "unconvoy": {
        "unit": (PROFILE + ["--lib"], {}),
        "tests": (PROFILE + test_words(TESTS), {}),
        "suite": (PROFILE + ["--test", "suite"], {}),
        "loom": (["--release", "--test", "loom"],
                 {"RUSTFLAGS": "--cfg loom", "LOOM_MAX_DURATION": "5"}),
    },
    "unconvoy-preload": {
        "unit": (PROFILE + ["--lib"], {}),
        "programs": (PROFILE + test_words(PROGRAMS), {}),
        "command": (PROFILE + test_words(("inspect", "watchdog")), {}),
    },
}
# Of the command's tests, which load the interposer. The other stages test the mutant's package.
OF_COMMAND = ("unconvoy-cli", COMMAND)
# Seconds of processor time and of elapsed time of a test program. Loom's models are one program.
LIMITS = (60, 300)
LIMITS_OF_LOOM = (1200, 1200)


def limit_processor_time(seconds):
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))


def pairs(file):
    """The pairs of contention manager and load manager that use a file."""
    managers = MANAGERS.get(pathlib.Path(file).stem, MANAGERS[""])
    if "/load/" in file:
        return [f"{lock}+{load}" for lock in ("loiter", "tpmcs") for load in managers
                if load != "loiter"]
    return [f"{lock}+{load}" for lock in managers if lock != "control"
            for load in ("control", "park")]


def git(directory, *words):
    done = subprocess.run(["git", *words], cwd=directory, check=True, text=True,
                          stdout=subprocess.PIPE)
    return done.stdout.strip()


class Job:
    """A worktree of the last commit, and what is built from it."""

    def __init__(self, number):
        self.folder = OUT / str(number)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.tree = self.folder / "tree"
        if not self.tree.exists():
            git(ROOT, "worktree", "prune")
            git(ROOT, "worktree", "add", "--quiet", "--detach", str(self.tree))
        self.commit = git(ROOT, "rev-parse", "--short=12", "HEAD")
        git(self.tree, "checkout", "--quiet", "--force", "--detach", self.commit)

    def cargo(self, target, words, environment):
        """Runs cargo; returns its messages, or None if the code does not compile."""
        environment = dict(os.environ, CARGO_INCREMENTAL="1", **environment)
        environment["CARGO_TARGET_DIR"] = str(self.folder / target)
        built = subprocess.run(
            ["cargo", *words, "--quiet", "--message-format=json"], cwd=self.tree,
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if built.returncode:
            return None
        return [json.loads(line) for line in built.stdout.splitlines() if line.startswith("{")]

    def test_programs(self, package, stage, words, environment):
        """The test programs of a stage; None if they do not compile."""
        target = "loom" if stage == "loom" else "build"
        messages = self.cargo(
            target, ["test", "--package", package, "--no-run", *words], environment)
        if messages is None:
            return None
        return [message["executable"] for message in messages
                if message.get("executable") and message["profile"]["test"]]

    def library(self):
        """The interposer."""
        messages = self.cargo("build", ["build", "--package", "unconvoy-preload", *PROFILE], {})
        files = [file for message in messages for file in message.get("filenames", ())]
        return next(file for file in files if file.endswith("libunconvoy.so"))

    def failure(self, directory, program, environment, limits, log):
        """Why a test program fails; None if it passes."""
        for _ in range(2):
            try:
                run = subprocess.run(
                    [program, "--nocapture", *NOT_RUN], cwd=self.tree / directory, stdout=log,
                    stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                    env=dict(os.environ, **environment), timeout=limits[1],
                    preexec_fn=lambda: limit_processor_time(limits[0]))
            except subprocess.TimeoutExpired:
                continue
            return f"status {run.returncode}" if run.returncode else None
        return "time-out"

    def result(self, package, file):
        """The result of the tests in the tree: what caught the mutant, `unviable`, `survived`."""
        of_interposer = package == "unconvoy-preload"
        suite = "loiter+control" if of_interposer else ",".join(pairs(file))
        own = (package, INTERPOSER if of_interposer else LOCKS)
        with open(self.folder / "log", "w") as log:
            for stage, (words, environment) in STAGES[package].items():
                limits = LIMITS_OF_LOOM if stage == "loom" else LIMITS
                tested, directory = OF_COMMAND if stage == "command" else own
                environment = dict(environment, UNCONVOY_SUITE=suite)
                programs = self.test_programs(tested, stage, words, environment)
                if programs is None:
                    return "unviable"
                if stage in ("programs", "command"):
                    environment["UNCONVOY_LIBRARY"] = self.library()
                for program in programs:
                    log.write(f"\n== {program}\n")
                    log.flush()
                    why = self.failure(directory, program, environment, limits, log)
                    if why:
                        name = pathlib.Path(program).name.rsplit("-", 1)[0]
                        return f"caught by {stage} {name}: {why}"
        return "survived"

    def test(self, mutant):
        subprocess.run(["patch", "--quiet", mutant["file"]], cwd=self.tree, input=mutant["diff"],
                       text=True, check=True)
        try:
            return self.result(mutant["package"], mutant["file"])
        finally:
            git(self.tree, "checkout", "--quiet", ".")


def mutants(tree, seed):
    """The mutants in the order of the seed, each with its package and an `id` without lines."""
    found, seen = [], {}
    for package, files in FILES.items():
        words = [word for file in files for word in ("--file", file)]
        listed = subprocess.run(
            ["cargo", "mutants", "--package", package, "--list", "--json", "--diff", *words],
            cwd=tree, check=True, stdout=subprocess.PIPE, text=True)
        for mutant in json.loads(listed.stdout):
            if any(part in mutant["name"] for part in NOT_TESTED):
                continue
            name = re.sub(r":\d+:\d+:", ":", mutant["name"])
            seen[name] = seen.get(name, 0) + 1
            mutant["id"] = name if seen[name] == 1 else f"{name} ({seen[name]})"
            found.append(dict(mutant, package=package))
    rank = lambda mutant: hashlib.sha256(f"{seed} {mutant['id']}".encode()).digest()
    return sorted(found, key=rank)


def wilson(caught, count):
    """Wilson's interval of 95 % for a share."""
    z, share = 1.96, caught / count
    centre = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * math.sqrt(
        share * (1 - share) / count + z * z / (4 * count * count))
    return centre - half, centre + half


def summarize(results):
    viable = [found for found in results if found != "unviable"]
    if not viable:
        sys.exit("no mutant was tested")
    caught = sum(found.startswith("caught") for found in viable)
    low, high = wilson(caught, len(viable))
    print(f"{len(results) - len(viable)} do not compile; {caught} of {len(viable)} caught: "
          f"{caught / len(viable):.3f} ({low:.3f} to {high:.3f})")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=200, help="number of mutants [default: 200]")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="mutants at a time [default: 1]")
    parser.add_argument("--survivors", action="store_true", help="test the survivors again")
    options = parser.parse_args()
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    if record.get("seed") != options.seed:
        record = {"seed": options.seed, "results": {}}
    results = record["results"]
    jobs = [Job(number) for number in range(options.jobs)]
    listed = mutants(jobs[0].tree, options.seed)
    sample = listed[:options.sample]
    record["mutants"] = len(listed)
    print(f"{len(sample)} of {len(listed)} mutants, seed {options.seed}", flush=True)
    for package in FILES:
        unchanged = jobs[0].result(package, "")
        if unchanged != "survived":
            sys.exit(f"without a mutant, the tests fail: {unchanged}")
    left = [mutant for mutant in sample if mutant["id"] not in results
            or options.survivors and results[mutant["id"]][0] == "survived"]
    changing = threading.Lock()

    def work(job):
        while True:
            with changing:
                if not left:
                    return
                mutant = left.pop(0)
            found = job.test(mutant)
            with changing:
                results[mutant["id"]] = [found, job.commit]
                print(f"{found}: {mutant['name']}", flush=True)
                RECORD.write_text(json.dumps(record, indent=1) + "\n")

    with ThreadPoolExecutor(len(jobs)) as pool:
        list(pool.map(work, jobs))
    summarize([results[mutant["id"]][0] for mutant in sample])


if __name__ == "__main__":
    main()
