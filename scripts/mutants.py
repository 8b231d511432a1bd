#!/usr/bin/env python3
"""Mutates the locks and load managers, and counts the mutants that their tests catch.

    scripts/mutants.py [--sample 200] [--seed 1]

Needs cargo-mutants (`cargo install --locked cargo-mutants`), which lists the mutants of FILES. Each
mutant of the sample changes a worktree of the last commit in target/mutants/tree. STAGES are the
tests, the quick ones first; the first failure catches the mutant. A test that hangs ends at a limit
of processor time, or at a time-out if it also hangs the second time. Mutants that do not compile do
not count.

Prints each mutant's result, and the share of those caught with Wilson's interval of 95 %. An
interrupted run continues. `--survivors` tests the survivors of the last run again, on the last
commit.
"""

import argparse
import json
import math
import os
import pathlib
import random
import resource
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "target/mutants"
TREE = OUT / "tree"
LOCKS = "crates/locks"
PARTS = ("contention", "load", "parking", "queue")
FILES = [f"{LOCKS}/src/{part}/**/*.rs" for part in PARTS] + [f"{LOCKS}/src/lock.rs"]
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
STAGES = {
    "unit": (PROFILE + ["--lib"], {}),
    "tests": (PROFILE + [word for test in TESTS for word in ("--test", test)], {}),
    "suite": (PROFILE + ["--test", "suite"], {}),
    "loom": (["--release", "--test", "loom"],
             {"RUSTFLAGS": "--cfg loom", "LOOM_MAX_DURATION": "5"}),
}
PROCESSOR_SECONDS = 60
TIMEOUT_S = 300


def cargo(stage, words, environment):
    """Builds the tests of a stage; returns their programs, or None if they do not compile."""
    environment = dict(os.environ, CARGO_INCREMENTAL="1", **environment)
    environment["CARGO_TARGET_DIR"] = str(OUT / ("loom" if stage == "loom" else "build"))
    built = subprocess.run(
        ["cargo", "test", "--quiet", "--package", "unconvoy", "--no-run",
         "--message-format=json", *words],
        cwd=TREE, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if built.returncode:
        return None
    messages = [json.loads(line) for line in built.stdout.splitlines() if line.startswith("{")]
    return [message["executable"] for message in messages if message.get("executable")]


def limit_processor_time():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (PROCESSOR_SECONDS, PROCESSOR_SECONDS))


def failure(program, environment, log):
    """Why a test program fails; None if it passes."""
    for _ in range(2):
        try:
            run = subprocess.run([program, "--nocapture"], cwd=TREE / LOCKS, stdout=log,
                                 stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                 env=dict(os.environ, **environment), timeout=TIMEOUT_S,
                                 preexec_fn=limit_processor_time)
        except subprocess.TimeoutExpired:
            continue
        return f"status {run.returncode}" if run.returncode else None
    return "time-out"


def pairs(file):
    """The pairs of contention manager and load manager that use a file."""
    managers = MANAGERS.get(pathlib.Path(file).stem, MANAGERS[""])
    if "/load/" in file:
        return [f"{lock}+{load}" for lock in ("loiter", "tpmcs") for load in managers
                if load != "loiter"]
    return [f"{lock}+{load}" for lock in managers if lock != "control"
            for load in ("control", "park")]


def result(file, stages, log):
    """The result of the tests in TREE: what caught the mutant, `unviable` or `survived`."""
    for stage in stages:
        words, environment = STAGES[stage]
        environment = dict(environment, UNCONVOY_SUITE=",".join(pairs(file)))
        programs = cargo(stage, words, environment)
        if programs is None:
            return "unviable"
        for program in programs:
            log.write(f"\n== {program}\n")
            log.flush()
            why = failure(program, environment, log)
            if why:
                name = pathlib.Path(program).name.rsplit("-", 1)[0]
                return f"caught by {stage} {name}: {why}"
    return "survived"


def git(directory, *words):
    done = subprocess.run(["git", *words], cwd=directory, check=True, text=True,
                          stdout=subprocess.PIPE)
    return done.stdout.strip()


def check_out_last_commit():
    if not TREE.exists():
        git(ROOT, "worktree", "add", "--quiet", "--detach", str(TREE))
    git(TREE, "checkout", "--quiet", "--force", "--detach", git(ROOT, "rev-parse", "HEAD"))


def mutants():
    files = [word for file in FILES for word in ("--file", file)]
    listed = subprocess.run(
        ["cargo", "mutants", "--package", "unconvoy", "--list", "--json", "--diff", *files],
        cwd=TREE, check=True, stdout=subprocess.PIPE, text=True)
    found = [mutant for mutant in json.loads(listed.stdout)
             if not any(part in mutant["name"] for part in NOT_TESTED)]
    return sorted(found, key=lambda mutant: mutant["name"])


def test(mutant, stages, log):
    subprocess.run(["patch", "--quiet", mutant["file"]], cwd=TREE, input=mutant["diff"], text=True,
                   check=True)
    try:
        return result(mutant["file"], stages, log)
    finally:
        git(TREE, "checkout", "--quiet", ".")


def wilson(caught, count):
    """Wilson's interval of 95 % for a share."""
    z, share = 1.96, caught / count
    centre = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * math.sqrt(
        share * (1 - share) / count + z * z / (4 * count * count))
    return centre - half, centre + half


def summarize(results):
    viable = [found for found in results.values() if found != "unviable"]
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
    parser.add_argument("--stages", default=",".join(STAGES), help="[default: %(default)s]")
    parser.add_argument("--survivors", action="store_true", help="test the survivors again")
    options = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    check_out_last_commit()
    record = OUT / f"seed-{options.seed}.json"
    results = json.loads(record.read_text()) if record.exists() else {}
    listed = mutants()
    count = len(listed)
    random.Random(options.seed).shuffle(listed)
    sample = listed[:options.sample]
    print(f"{len(sample)} of {count} mutants, seed {options.seed}", flush=True)
    stages = options.stages.split(",")
    with open(OUT / "log", "w") as log:
        unchanged = result("", stages, log)
    if unchanged != "survived":
        sys.exit(f"without a mutant, the tests fail: {unchanged}")
    for mutant in sample:
        name = mutant["name"]
        if name in results and not (options.survivors and results[name] == "survived"):
            continue
        with open(OUT / "log", "w") as log:
            results[name] = test(mutant, stages, log)
        print(f"{results[name]}: {name}", flush=True)
        record.write_text(json.dumps(results, indent=1))
    summarize(results)


if __name__ == "__main__":
    main()
