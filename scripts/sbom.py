#!/usr/bin/env python3
"""Prints a software bill of materials (CycloneDX, JSON) of packages of this project.

    scripts/sbom.py PACKAGE...

cargo-cyclonedx makes one for each package; this merges them, and removes what depends on the folder
of the sources. It adds the font that `unconvoy-png` contains. With SOURCE_DATE_EPOCH, the output is
the same each time."""
import json
import os
import pathlib
import subprocess
import sys

VERSION = "0.5.9"
ROOT = pathlib.Path(__file__).resolve().parent.parent
TOOLS = ROOT / "target" / "tools" / f"cargo-cyclonedx-{VERSION}"
NAME = "unconvoy-sbom"
FONT = {
    "type": "file",
    "bom-ref": "DejaVuSans.ttf",
    "name": "DejaVu Sans",
    "version": "2.37",
    "licenses": [{"license": {"name": "Bitstream Vera"}}],
}


def installed():
    """The path of cargo-cyclonedx, which is built if it is missing."""
    tool = TOOLS / "bin" / "cargo-cyclonedx"
    if not tool.exists():
        # The flags of a build for other systems are not meant for this tool.
        other = {"RUSTFLAGS", "CFLAGS", "CARGO_TARGET_DIR"}
        environment = {name: value for name, value in os.environ.items() if name not in other}
        command = ["cargo", "install", "--quiet", "--locked", "--root", TOOLS]
        command += ["cargo-cyclonedx", "--version", VERSION]
        subprocess.run(command, check=True, env=environment, stdout=sys.stderr)
    return tool


def written():
    """The files that cargo-cyclonedx writes, beside the manifests."""
    return [path for top in ("crates", "papers") for path in (ROOT / top).rglob(f"{NAME}.json")]


def of_members():
    """The bill of each package of the workspace, as text."""
    try:
        command = [installed(), "cyclonedx", "-q", "--manifest-path", ROOT / "Cargo.toml"]
        command += ["--format", "json", "--override-filename", NAME, "--no-build-deps"]
        command += ["--spec-version", "1.5"]
        subprocess.run(command, check=True, stdout=sys.stderr)
        return [path.read_text() for path in written()]
    finally:
        for path in written():
            path.unlink()


def licence(bills):
    """The licence of all packages together, as an SPDX expression."""
    of_each = {bill["metadata"]["component"]["licenses"][0]["expression"] for bill in bills}
    if len(of_each) == 1:
        return of_each.pop()
    return " AND ".join(f"({it})" if " " in it else it for it in sorted(of_each))


def main(packages):
    texts = [text.replace(f"file://{ROOT}", "file:///unconvoy") for text in of_members()]
    bills = [json.loads(text) for text in texts]
    by_name = {bill["metadata"]["component"]["name"]: bill for bill in bills}
    missing = [package for package in packages if package not in by_name]
    if missing:
        sys.exit(f"sbom: not a package: {', '.join(missing)}")
    chosen = [by_name[package] for package in packages]
    components = {}
    depends_on = {}
    for bill in chosen:
        for component in [bill["metadata"]["component"], *bill.get("components", [])]:
            components.setdefault(component["bom-ref"], component)
        for dependency in bill.get("dependencies", []):
            found = depends_on.setdefault(dependency["ref"], set())
            found.update(dependency.get("dependsOn", []))
    if "unconvoy-png" in packages:
        components[FONT["bom-ref"]] = FONT
        depends_on[FONT["bom-ref"]] = set()
        png = by_name["unconvoy-png"]["metadata"]["component"]["bom-ref"]
        depends_on.setdefault(png, set()).add(FONT["bom-ref"])
    first = chosen[0]
    whole = {
        "type": "application",
        "bom-ref": "unconvoy",
        "name": "unconvoy",
        "version": first["metadata"]["component"]["version"],
        "licenses": [{"expression": licence(chosen)}],
    }
    depends_on["unconvoy"] = {bill["metadata"]["component"]["bom-ref"] for bill in chosen}
    merged = {
        "bomFormat": first["bomFormat"],
        "specVersion": first["specVersion"],
        "version": 1,
        "metadata": {**first["metadata"], "component": whole},
        "components": [components[ref] for ref in sorted(components)],
        "dependencies": [
            {"ref": ref, "dependsOn": sorted(depends_on[ref])} for ref in sorted(depends_on)
        ],
    }
    print(json.dumps(merged, indent=1))


if len(sys.argv) < 2:
    sys.exit(__doc__)
main(sys.argv[1:])
