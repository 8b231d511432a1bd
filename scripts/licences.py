#!/usr/bin/env python3
"""Prints the licences of the crates that are linked into programs of this project.

    scripts/licences.py PACKAGE...

First a table of crates, then each text once, with the crates that it is from, the licence of the
font that `unconvoy-png` contains, and the notices of Rust's standard library. Fails if a crate
brings neither a text nor the name of a licence."""
import html
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FONT = ROOT / "crates/png/assets/DejaVuSans.LICENSE.txt"
TEXT = re.compile(r"^(licen[cs]e|copying|unlicense|notice)", re.IGNORECASE)


def linked(packages):
    """The packages that `packages` link, from cargo's metadata. Build scripts, macros' own
    dependencies included, and tests are not linked."""
    host = re.search("host: (.*)", subprocess.check_output(["rustc", "-vV"], text=True))[1]
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", host]
    metadata = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    by_id = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    is_macro = {
        package["id"]: any("proc-macro" in target["kind"] for target in package["targets"])
        for package in metadata["packages"]
    }
    left = [it["id"] for it in metadata["packages"] if it["name"] in packages]
    if len(left) != len(packages):
        sys.exit(f"licences: not all of {', '.join(packages)} are packages")
    found = set()
    while left:
        package = left.pop()
        if package in found or is_macro[package]:
            continue
        found.add(package)
        for dependency in nodes[package]["deps"]:
            if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                left.append(dependency["pkg"])
    outside = (by_id[package] for package in found if by_id[package]["source"])
    return sorted(outside, key=lambda package: (package["name"], package["version"]))


def of_standard_library():
    """The notices that Rust's distribution brings for its standard library and what that links."""
    root = subprocess.check_output(["rustc", "--print", "sysroot"], text=True).strip()
    page = pathlib.Path(root, "share/doc/rust/COPYRIGHT-library.html")
    if not page.exists():
        sys.exit(f"licences: {page} is missing; install Rust from https://rustup.rs")
    text = html.unescape(re.sub(r"<(title>.*</title|[^>]*)>", "", page.read_text()))
    return re.sub(r"\n\s*\n", "\n\n", text).strip()


def main(packages):
    texts = {}
    print("These crates are linked into unconvoy's programs and libraries, besides Rust's standard")
    print("library (MIT or Apache-2.0), whose notices are at the end.\n")
    for package in linked(packages):
        name = f"{package['name']} {package['version']}"
        folder = pathlib.Path(package["manifest_path"]).parent
        # Crates for C libraries have these libraries in subfolders.
        within = folder.rglob("*") if package["name"].endswith("-sys") else folder.iterdir()
        files = sorted(path for path in within if TEXT.match(path.name) and path.is_file())
        if not files and not package["license"]:
            sys.exit(f"licences: {name} names no licence")
        print(f"{name}: {package['license'] or files[0].name}")
        for path in files:
            text = path.read_text(errors="replace").strip()
            texts.setdefault(text, []).append(name)
    if "unconvoy-png" in packages:
        texts[FONT.read_text().strip()] = ["DejaVu Sans, the font in unconvoy-png"]
    texts[of_standard_library()] = ["Rust's standard library"]
    for text, names in texts.items():
        print(f"\n{'-' * 80}\n{', '.join(names)}\n\n{text}")


if len(sys.argv) < 2:
    sys.exit(__doc__)
main(sys.argv[1:])
