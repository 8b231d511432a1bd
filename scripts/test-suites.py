#!/usr/bin/env python3
"""Runs other projects' test suites without and with the library, and compares test by test.

    scripts/test-suites.py [OPTIONS] [SUITE...]   run suites of scripts/suites.toml, by default all

Run `make build` first. Missing packages are installed; source packages are fetched by `apt-get
source` and built in OUT/SUITE/source. A suite runs twice under glibc, which finds unstable tests,
and once in each variant. A part with a difference runs once more under both. An
interrupted run continues, because OUT/SUITE/VARIANT.json keeps each finished part; VARIANT.log
beside it has the output.

A difference is a test whose result under the library never came under glibc. The exit status is 1
if there is one, or if a suite fails to build.
"""

import argparse
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
RELEASE = ROOT / "target/release"
SUITES = tomllib.loads((ROOT / "scripts/suites.toml").read_text())
# Options of `unconvoy run`; none for glibc. {strategy} is the suite's strategy file.
VARIANTS = {
    "glibc": None,
    "glibc-again": None,
    "default": "",
    "tpmcs+control": "--lock tpmcs --load control",
    "published": "--load published",
    "elided": "--lock elided",
    "confine": "--confine",
    "strategy": "--strategy {strategy}",
}
GLIBC = ("glibc", "glibc-again")
TAIL_LINES = 40
# Suits any program: the locks that no entry names get another pair than the default.
STRATEGY = """
[process]
lock = "ttas"
load = "park"
"""


# ---- Formats: output of a part to (test, result) ----


def unittest_results(text):
    """unittest -v: a header per test, whose result may stand some lines below it."""
    header = re.compile(r"^ *(\w+ \([\w.<>]+\)(?: [(\[].*?[)\]])?)(?=\n| \.\.\. )", re.M)
    result = re.compile(r"(?:^|\.\.\. .*?)\b(ok|FAIL|ERROR|skipped|expected failure)\b", re.M)
    text = text.partition("\n======")[0] + "\n"
    found = list(header.finditer(text))
    for this, following in zip(found, [*found[1:], None]):
        end = following.start() if following else len(text)
        results = result.findall(text, this.end(), end)
        yield this[1], results[0] if results else "no result"


def tap_results(text):
    line = re.compile(r"^(not ok|ok) \d+ *-? *(.*?)(?: # *(SKIP|TODO).*)?$", re.M)
    for result, name, remark in line.findall(text):
        yield name, remark or result


def gtest_results(text):
    line = re.compile(r"^\[ +(OK|FAILED|SKIPPED) +\] (\S+)(?:, where .*)? \(\d+ ms\)$", re.M)
    for result, name in line.findall(text):
        yield name, result


def libtest_results(text):
    """Rust's `cargo test`."""
    yield from re.findall(r"^test (\S+) \.\.\. (ok|FAILED|ignored)\b", text, re.M)


def junit_results(text):
    """JUnit's XML, which doctest prints too, among other output."""
    case = re.compile(r"<testcase [^>]*?\bname=\"([^\"]*)\"[^>]*?(?:/>|>(.*?)</testcase>)", re.S)
    for name, body in case.findall(text):
        yield name, "failed" if re.search("<(failure|error)", body) else "passed"


def sqlite_results(text):
    """SQLite's Tcl tests: `NAME... Ok`; other output may stand between the two."""
    text = text.partition("errors out of")[0]
    found = re.compile(r"^(?:Time: |! )?([\w.-]+)\.\.\.", re.M)
    headers = list(found.finditer(text))
    for this, following in zip(headers, [*headers[1:], None]):
        body = text[this.end():following.start() if following else len(text)]
        yield this[1], "Ok" if re.match(r"\s*Ok\b", body) else "failed"


def mtr_results(text):
    """MariaDB's mysql-test-run."""
    line = re.compile(r"^([\w.-]+\.[\w-]+(?: '[^']*')?) +(?:w\d+ +)?\[ ([a-z-]+) \]", re.M)
    yield from line.findall(text)


FORMATS = {
    "unittest": unittest_results,
    "tap": tap_results,
    "gtest": gtest_results,
    "junit": junit_results,
    "libtest": libtest_results,
    "sqlite": sqlite_results,
    "mtr": mtr_results,
    # Only the exit status.
    "status": lambda text: (),
}


# ---- Running a part ----


def processes(session):
    """The processes of a session."""
    out = subprocess.run(["ps", "-o", "pid=", "-s", str(session)], capture_output=True, text=True)
    return [int(pid) for pid in out.stdout.split()]


def stacks(session):
    """The stacks of the session's processes, from gdb."""
    text = ""
    for pid in processes(session):
        gdb = ["gdb", "-p", str(pid), "-batch", "-nx", "-ex", "thread apply all backtrace 20"]
        try:
            out = subprocess.run(gdb, capture_output=True, text=True, errors="replace", timeout=60)
            text += f"--- stacks of process {pid}\n{out.stdout}"
        except (OSError, subprocess.TimeoutExpired) as error:
            text += f"--- no stacks of process {pid}: {error}\n"
    return text


def execute(command, limit_s, log):
    """Runs a command in a session and a directory of its own. Returns its status and its output,
    which it appends to `log`."""
    with tempfile.TemporaryDirectory() as directory, tempfile.TemporaryFile() as output:
        child = subprocess.Popen(
            command, cwd=directory, stdin=subprocess.DEVNULL, stdout=output,
            stderr=subprocess.STDOUT, start_new_session=True,
        )
        more = ""
        try:
            status = str(child.wait(limit_s))
        except subprocess.TimeoutExpired:
            status, more = "time-out", stacks(child.pid)
        for pid in processes(child.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        child.wait()
        output.seek(0)
        text = output.read().decode(errors="replace").replace("\r\n", "\n") + more
    with log.open("a") as file:
        file.write(f"=== {shlex.join(command)}: {status}\n{text}\n")
    return status, text


class Suite:
    """A suite, and its records below `out`."""

    def __init__(self, name, out):
        self.name, self.row, self.out = name, SUITES[name], out / name
        self.out.mkdir(parents=True, exist_ok=True)
        self.format = FORMATS[self.row["format"]]
        self.strategy = self.out / "strategy.toml"
        self.strategy.write_text("version = 1\n" + self.row.get("strategy", STRATEGY))
        self.source = self.out / "source"

    def parts(self):
        """The names in the table; its patterns stand for files of the source, less their suffix."""
        parts = []
        for word in self.row["parts"].split():
            if "*" in word:
                files = [file.relative_to(self.source) for file in self.source.glob(word)]
                parts += sorted(str(file.with_suffix("")) for file in files)
            else:
                parts.append(word)
        skipped = self.row.get("skip", "").split()
        return [part for part in dict.fromkeys(parts) if part not in skipped]

    def command(self, part, variant):
        side = "without" if VARIANTS[variant] is None else "with"
        run = self.row["run"].replace("{source}", str(self.source)).replace("{side}", side)
        words = [word.replace("{part}", part) for word in shlex.split(run)]
        options = VARIANTS[variant]
        if options is None:
            return words
        options = options.replace("{strategy}", str(self.strategy))
        return [str(RELEASE / "unconvoy"), "run", *options.split(), "--", *words]

    def forget(self):
        for variant in VARIANTS:
            for end in ("json", "log"):
                (self.out / f"{variant}.{end}").unlink(missing_ok=True)

    def record(self, variant):
        path = self.out / f"{variant}.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def run(self, part, variant, again=False):
        """Runs a part in a variant, unless its record has it, and adds the results to it."""
        record = self.record(variant)
        if part in record and not again:
            return
        start = time.monotonic()
        log = self.out / f"{variant}.log"
        status, text = execute(self.command(part, variant), self.row.get("limit", 300), log)
        results = {}
        for test, result in self.format(text):
            results.setdefault(f"{part}: {test}", set()).add(result)
        results = {test: "+".join(sorted(found)) for test, found in results.items()}
        results[f"{part}: exit status"] = status
        took_s = time.monotonic() - start
        print(f"{self.name} {variant} {part}: {len(results) - 1} tests, status {status}, "
              f"{took_s:.0f} s", file=sys.stderr, flush=True)
        record.setdefault(part, []).append({"results": results, "took_s": round(took_s, 1)})
        new = self.out / f"{variant}.new"
        new.write_text(json.dumps(record, indent=0) + "\n")
        new.rename(self.out / f"{variant}.json")

    def seen(self, variants, parts):
        """Each test's results in all runs of the variants."""
        seen = {}
        for variant in variants:
            record = self.record(variant)
            for part in parts:
                runs = record.get(part, [])
                names = {name for run in runs for name in run["results"]}
                for name in names:
                    seen.setdefault(name, set()).update(
                        run["results"].get(name, "absent") for run in runs)
        return seen

    def differences(self, variant, parts):
        """(test, results under glibc, results in the variant) of each test that differs."""
        parts = [part for part in parts if part in self.record(variant)]
        glibc, own = self.seen(GLIBC, parts), self.seen([variant], parts)
        absent = {"absent"}
        return [
            (test, sorted(glibc.get(test, absent)), sorted(own.get(test, absent)))
            for test in sorted({*glibc, *own})
            if not own.get(test, absent) <= glibc.get(test, absent)
        ]

    def unstable(self, parts):
        return sorted(name for name, found in self.seen(GLIBC, parts).items() if len(found) > 1)


# ---- Setting up ----


def install(suite):
    """Installs the suite's packages, and builds its source package."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(suite.row["packages"]) + "\n")
        file.flush()
        subprocess.run([ROOT / "scripts/setup.sh", file.name], check=True)
    if "source" in suite.row and not suite.source.exists():
        unpacked = suite.out / "unpacked"
        shutil.rmtree(unpacked, ignore_errors=True)
        if "@" in suite.row["source"]:
            fetch_crate(*suite.row["source"].split("@"), unpacked)
        else:
            fetch(suite.row["source"], suite.row.get("unpack", "*").split(), unpacked)
        unpacked.rename(suite.source)
    built = suite.out / "built"
    if "build" in suite.row and not built.exists():
        build = suite.row["build"].replace("{parts}", shlex.join(suite.parts()))
        build = build.replace("{root}", str(ROOT))
        subprocess.run(build, shell=True, check=True, cwd=suite.source)
        built.touch()


def fetch(package, members, directory):
    """Unpacks a source package, from the mirror that apt already uses, without Debian's patches.

    apt gets a list of sources of this function's own, because machines often have none. Security
    updates, which have another label, are left out: mirrors drop their superseded sources.
    """
    targets = ["apt-get", "indextargets", "--format", "deb-src $(REPO_URI) $(RELEASE) $(COMPONENT)",
               "Created-By: Packages", "Origin: Debian", "Label: Debian"]
    lines = subprocess.check_output(targets, text=True)
    with tempfile.TemporaryDirectory() as name:
        own = pathlib.Path(name)
        (own / "sources.list").write_text("\n".join(sorted(set(lines.splitlines()))) + "\n")
        (own / "lists/partial").mkdir(parents=True)
        options = [f"Dir::Etc::SourceList={own}/sources.list", "Dir::Etc::SourceParts=-",
                   f"Dir::State::Lists={own}/lists", "APT::Sandbox::User=root"]
        apt = ["apt-get", "-qq", *(word for option in options for word in ("-o", option))]
        subprocess.run([*apt, "update"], check=True)
        subprocess.run([*apt, "source", "--download-only", package], check=True, cwd=own)
        directory.mkdir()
        for archive in own.glob("*.orig.tar.*"):
            subprocess.run(["tar", "--extract", "--file", archive, "--strip-components=1",
                            "--directory", directory, "--wildcards", *members], check=True)


def fetch_crate(name, version, directory):
    """Copies a crate's source out of cargo's registry."""
    with tempfile.TemporaryDirectory() as own:
        package = '[package]\nname = "fetch"\nversion = "0.0.0"\nedition = "2021"\n'
        manifest = pathlib.Path(own) / "Cargo.toml"
        manifest.write_text(f'{package}[dependencies]\n{name} = "={version}"\n')
        (pathlib.Path(own) / "src").mkdir()
        (pathlib.Path(own) / "src/lib.rs").touch()
        metadata = ["cargo", "metadata", "--format-version=1", "--quiet"]
        packages = json.loads(subprocess.check_output(metadata, cwd=own))["packages"]
        [found] = [row["manifest_path"] for row in packages if row["name"] == name]
        shutil.copytree(pathlib.Path(found).parent, directory)


def elided_commits():
    out = subprocess.run([RELEASE / "unconvoy", "doctor"], capture_output=True, text=True)
    return bool(re.search(r"^ *yes +elided locks", out.stdout, re.M))


def variants(names):
    for name in names or VARIANTS:
        if name not in VARIANTS:
            sys.exit(f"test-suites: {name}: no such variant; there are {', '.join(VARIANTS)}")
        if name == "elided" and not elided_commits():
            print("skipped: elided: this machine has no hardware transactions", file=sys.stderr)
            continue
        yield name


def tail(log, part):
    """The end of the last run of a part in a log."""
    runs = [run for run in log.read_text().split("\n=== ") if part in run.partition("\n")[0]]
    return "\n".join(runs[-1].splitlines()[-TAIL_LINES:]) if runs else ""


def check(suite, chosen, parts):
    """Runs a suite. Returns the number of differences."""
    count = 0
    for variant in chosen:
        for part in parts:
            suite.run(part, variant)
            if variant in GLIBC or not suite.differences(variant, [part]):
                continue
            # Either way once more: an unstable test may have had the same luck twice.
            if len(suite.record(variant)[part]) == 1:
                for again in ("glibc", variant):
                    suite.run(part, again, again=True)
            for test, glibc, own in suite.differences(variant, [part]):
                count += 1
                print(f"DIFFERENCE {suite.name} {variant} {test}: {', '.join(own)}; "
                      f"glibc: {', '.join(glibc)}\n{tail(suite.out / f'{variant}.log', part)}")
    return count


def summary(suite, parts):
    """A row of a Markdown table: tests and differences in each variant, and unstable tests."""
    cells = []
    for variant in VARIANTS:
        record = suite.record(variant)
        tests = {test for part in parts for run in record.get(part, []) for test in run["results"]}
        done = sum(part in record for part in parts)
        cell = str(len(tests)) if done == len(parts) else f"{len(tests)} ({done} parts)"
        if variant not in GLIBC and done:
            cell += f", {len(suite.differences(variant, parts))} differ"
        cells.append(cell if done else "")
    return f"| {suite.name} | {len(parts)} | {' | '.join(cells)} | {len(suite.unstable(parts))} |"


def context():
    """The machine, the commit and the date."""
    machine = subprocess.check_output([RELEASE / "unconvoy", "doctor"], text=True).splitlines()[0]
    commit = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], text=True, cwd=ROOT)
    date = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    return f"{machine}, commit {commit.strip()}, {date}"


def main():
    usage, _, more = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(
        description=usage, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "target/suites")
    parser.add_argument("--variant", action="append", help="only this variant")
    parser.add_argument("--part", action="append", help="only this part")
    parser.add_argument("--fresh", action="store_true", help="forget the record of earlier runs")
    parser.add_argument("--summary", action="store_true", help="only print the table of results")
    parser.add_argument("names", nargs="*", metavar="SUITE")
    options = parser.parse_args()
    os.environ["UNCONVOY_LIBRARY"] = str(RELEASE / "libunconvoy.so")
    os.environ["LC_ALL"] = "C.UTF-8"
    count = 0
    rows = []
    for name in options.names or SUITES:
        if name not in SUITES:
            sys.exit(f"test-suites: {name}: no such suite; there are {', '.join(SUITES)}")
        suite = Suite(name, options.out.resolve())
        if options.fresh:
            suite.forget()
        try:
            if not options.summary:
                install(suite)
        except subprocess.CalledProcessError as error:
            print(f"FAILED {name}: {error}", file=sys.stderr)
            count += 1
            continue
        parts = options.part or suite.parts()
        if not options.summary:
            own = options.variant or suite.row.get("variants", "").split()
            count += check(suite, list(variants(own)), parts)
        rows.append(summary(suite, parts))
    print(f"{context()}\n")
    print(f"| suite | parts | {' | '.join(VARIANTS)} | unstable |")
    print("| --- " * (len(VARIANTS) + 3) + "|")
    print("\n".join(rows))
    if count:
        sys.exit(f"test-suites: {count} differences and suites that failed to build")


if __name__ == "__main__":
    main()
