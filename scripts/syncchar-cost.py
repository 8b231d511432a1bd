#!/usr/bin/env python3
"""Measures the overhead of sampling: processor time under QEMU's user mode with and without
unconvoy's plug-in.

    scripts/syncchar-cost.py [--out FILE.json] [--repeats 5] [NAME...]

Runs the named programs, or all of them, and prints the table of all programs in FILE. Run
`make build` first, and install the packages in scripts/packages-syncchar.txt and
scripts/packages-programs.txt. A program that is not installed is skipped with a message.

Runs are interleaved: each repeat runs plain QEMU, then QEMU with the plug-in at its default rate of
one section in ten, and reads the plug-in's stream as `unconvoy predict` does. The measure is
user time for programs with a fixed amount of work, and user time per operation for programs with a
fixed duration. Other load on the machine changes caches and clock speed, but is not counted.
"""

import argparse
import datetime
import json
import os
import pathlib
import re
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import origins

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILT = pathlib.Path(os.environ.get("BUILT", ROOT / "target/release"))
WORKLOADS = pathlib.Path(os.environ.get("WORKLOADS", ROOT / "target/workloads"))
SECONDS = "2"

# Name: description, command with placeholders INPUT, FILM and SOCKET, fixed duration or not.
PROGRAMS = {
    "leveldb-write": (
        "LevelDB, 8 readers and a writer",
        [
            WORKLOADS / "leveldb_bench",
            "--workload",
            "readwhilewriting",
            "--threads",
            "8",
            "--num",
            "20000",
            "--seconds",
            SECONDS,
        ],
        True,
    ),
    "leveldb-read": (
        "LevelDB, 4 readers",
        [
            WORKLOADS / "leveldb_bench",
            "--workload",
            "readrandom",
            "--threads",
            "4",
            "--num",
            "20000",
            "--seconds",
            SECONDS,
        ],
        True,
    ),
    "hashtable": (
        "hash table of 100 locks, 4 threads",
        [WORKLOADS / "hashtable", "--threads", "4", "--seconds", SECONDS],
        True,
    ),
    "optimistic": (
        "a red-black tree under one lock, 4 threads",
        [WORKLOADS / "optimistic", "--program", "rb-tree", "--threads", "4", "--seconds", SECONDS],
        True,
    ),
    "raytrace": (
        "ray tracer, 4 threads",
        [WORKLOADS / "raytrace", "--size", "300x200", "--threads", "4"],
        False,
    ),
    "pigz": ("pigz -p 4, 24 MB", ["pigz", "-p", "4", "-c", "INPUT"], False),
    "zstd": ("zstd -T4 -9, 24 MB", ["zstd", "-q", "-T4", "-9", "-c", "INPUT"], False),
    "x265": (
        "x265, 4 threads, 12 frames",
        [
            "x265",
            "--input",
            "FILM",
            "--input-res",
            "320x240",
            "--fps",
            "25",
            "--frames",
            "12",
            "--pools",
            "4",
            "--preset",
            "fast",
            "-o",
            "/dev/null",
        ],
        False,
    ),
    "memcached": (
        "memcached, 4 threads, 9 gets to a set",
        ["memcached", "-u", "root", "-s", "SOCKET", "-t", "4", "-m", "64"],
        True,
    ),
}


def make_input(folder):
    """Writes text that compresses like real text, and a film of moving gradients."""
    path = folder / "input"
    state, words = 1, [f"word{n * 7919 % 9973}" for n in range(4000)]
    with open(path, "w") as out:
        while out.tell() < 24_000_000:
            line = []
            for _ in range(2000):
                state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
                line.append(words[(state >> 33) % 4000 * ((state >> 50) % 64) // 64])
            out.write(" ".join(line) + "\n")
    film = folder / "film.yuv"
    with open(film, "wb") as out:
        for frame in range(12):
            out.write(
                bytes((x * 3 + y * 2 + frame * 5) & 255 for y in range(240) for x in range(320))
            )
            out.write(bytes([128 + frame]) * (320 * 240 // 2))
    return path, film


class Drain(threading.Thread):
    """A thread that reads a pipe to its end and counts the bytes."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.path, self.bytes = path, 0

    def run(self):
        with open(self.path, "rb") as stream:
            while piece := stream.read(1 << 16):
                self.bytes += len(piece)


def user_time_of(process):
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return int(fields[11]) / os.sysconf("SC_CLK_TCK")


def serve(command, path):
    """Returns the server's user time per request of the client, in ns."""
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        for _ in range(300):
            try:
                with socket.socket(socket.AF_UNIX) as probe:
                    probe.connect(str(path))
                break
            except OSError:
                time.sleep(0.1)
        before = user_time_of(server)
        client = subprocess.run(
            [
                WORKLOADS / "kv_load",
                "--protocol",
                "memcached",
                "--socket",
                path,
                "--connections",
                "32",
                "--depth",
                "16",
                "--warm-up",
                "0",
                "--seconds",
                SECONDS,
            ],
            check=True,
            capture_output=True,
            text=True,
        )
        used = user_time_of(server) - before
        return (
            used
            / float(re.search(r"^rate ([\d.]+)", client.stdout, re.M)[1])
            / float(SECONDS)
            * 1e9
        )
    finally:
        server.terminate()
        server.wait()


def measure(command, fixed_time, options, folder):
    """Returns user time: ns per operation, or seconds."""
    socket_path = folder / "socket"
    socket_path.unlink(missing_ok=True)
    command = [str(socket_path) if word == "SOCKET" else str(word) for word in command]
    command[0] = shutil.which(command[0])
    command = ["qemu-x86_64", *options, *command]
    if str(socket_path) in command:
        return serve(command, socket_path)
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    if fixed_time:
        return used / float(re.search(rb"^ops (\d+)", done.stdout, re.M)[1]) * 1e9
    return used


def run(name, repeats, folder, inputs):
    what, command, fixed_time = PROGRAMS[name]
    if not shutil.which(str(command[0])):
        print(f"skipped: {name}: {command[0]} is not installed", file=sys.stderr)
        return None
    command = [{"INPUT": inputs[0], "FILM": inputs[1]}.get(word, word) for word in command]
    plain, sampled, volume = [], [], []
    for _ in range(repeats):
        plain.append(measure(command, fixed_time, [], folder))
        pipe = folder / "stream"
        pipe.unlink(missing_ok=True)
        os.mkfifo(pipe)
        drain = Drain(pipe)
        drain.start()
        plugin = str(BUILT / "libunconvoy_plugin_user.so").replace(",", ",,")
        sampled.append(
            measure(command, fixed_time, ["-plugin", f"{plugin},out={pipe},rate=10"], folder)
        )
        drain.join(20)
        volume.append(drain.bytes)
    return {
        "what": what,
        "unit": "ns/operation" if fixed_time else "s",
        "plain": plain,
        "sampled": sampled,
        "bytes": volume,
    }


def digits(value):
    """Four significant digits, without an exponent."""
    return f"{float(f'{value:.4g}'):g}"


def table(record):
    machine = record["machine"]
    dates = sorted({row["date"] for row in record["programs"].values()})
    commits = sorted({row["commit"] for row in record["programs"].values() if "commit" in row})
    of_commits = f", commit {', '.join(commits)}" if commits else ""
    yield (
        f"{machine['cpu']}, {machine['processors']} processors, Linux {machine['kernel']}, "
        f"{machine['qemu']}{of_commits}; {', '.join(dates)}."
    )
    yield ""
    yield "| program | plain QEMU | with the plug-in | slowdown (min to max of the repeats) |"
    yield "| --- | --- | --- | --- |"
    for row in record["programs"].values():
        spread = (
            lambda values: f"{digits(statistics.median(values))} ({digits(min(values))} to "
            f"{digits(max(values))}) {row['unit']}"
        )
        ratios = [after / before for before, after in zip(row["plain"], row["sampled"])]
        ratio = statistics.median(ratios)
        yield (
            f"| {row['what']} | {spread(row['plain'])} | {spread(row['sampled'])} | "
            f"{ratio:.2f} ({min(ratios):.2f} to {max(ratios):.2f}) |"
        )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--out", type=pathlib.Path, help="file of measurements; keeps those of other programs"
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"program to run: {', '.join(PROGRAMS)} [default: all]",
    )
    args = parser.parse_args()
    for name in args.names:
        if name not in PROGRAMS:
            parser.error(f"unknown program {name}; choose from {', '.join(PROGRAMS)}")
    if not shutil.which("qemu-x86_64"):
        print("skipped: qemu-x86_64 is missing (scripts/packages-syncchar.txt)", file=sys.stderr)
        return
    version = subprocess.run(
        ["qemu-x86_64", "--version"], capture_output=True, text=True
    ).stdout.splitlines()[0]
    here = origins.machine()
    here = {
        "cpu": here["cpu"],
        "processors": os.cpu_count(),
        "kernel": here["kernel"].removeprefix("Linux "),
        "qemu": version,
    }
    record = {"machine": here, "programs": {}}
    if args.out and args.out.exists():
        record = json.loads(args.out.read_text())
        if why := origins.difference(record["machine"], here):
            sys.exit(f"{args.out} is of another machine: {why}; choose another --out")
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        inputs = make_input(folder)
        for name in args.names or PROGRAMS:
            row = run(name, args.repeats, folder, inputs)
            if row:
                row["date"] = datetime.date.today().isoformat()
                row["commit"] = origins.commit()
                record["programs"][name] = row
                if args.out:
                    args.out.write_text(json.dumps(record, indent=1) + "\n")
    print("\n".join(table(record)))


if __name__ == "__main__":
    main()
