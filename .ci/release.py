"""Builds a release and checks it: `make release`. Needs git, and an index for `build`, `twine` and the rest.

1. The version in pyproject.toml is that of the package, of a dated heading in CHANGELOG.md with nothing left
   under "Unreleased", and of the tag `vVERSION` at the commit that is checked out, without local changes.
2. `build` makes the sdist, and the wheel from it, in a virtual environment of its own; `twine check --strict`
   accepts both.
3. The wheel, installed in an empty virtual environment, has that version, and its broker serves: a topic is
   created, a record is written, and a group reads it.

With `--untagged` the first step is left out, to try the others on any commit. Nothing is uploaded: the
workflow `.github/workflows/release.yml` does that, for a tag.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

QUICK = ("--set", "group.initial.rebalance.delay.ms=0", "--set", "offsets.topic.num.partitions=1")
TIMEOUT_S = 60


class ReleaseError(Exception):
    """The release is not ready; the message names what to correct."""


# --- 1. version, changelog, tag ---


def version_of(root: Path) -> str:
    """Return the version in pyproject.toml."""
    version: str = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    return version


def problems(root: Path) -> list[str]:
    """Return what has to be corrected before this commit can be released."""
    version = version_of(root)
    found = []
    package = re.search(
        r'^__version__ = "(.+)"$', (root / "src/konvene/__init__.py").read_text("utf-8"), re.MULTILINE
    )
    if package is None or package[1] != version:
        shown = "none" if package is None else package[1]
        found.append(f"src/konvene/__init__.py: __version__ is {shown}, pyproject.toml has {version}")
    changes = (root / "CHANGELOG.md").read_text("utf-8")
    if not re.search(rf"^## \[?{re.escape(version)}\]? - \d{{4}}-\d\d-\d\d$", changes, re.MULTILINE):
        found.append(f"CHANGELOG.md: there is no heading '## {version} - YYYY-MM-DD'")
    unreleased = re.search(r"^## \[?Unreleased\]?\n(.*?)(?=^## |\Z)", changes, re.MULTILINE | re.DOTALL)
    if unreleased is not None and unreleased[1].strip():
        found.append(f"CHANGELOG.md: 'Unreleased' has entries; move them below {version}")
    tags = _git(root, "tag", "--points-at", "HEAD").split()
    if f"v{version}" not in tags:
        found.append(f"git: the commit has no tag v{version} (its tags: {', '.join(tags) or 'none'})")
    changed = _git(root, "status", "--porcelain").splitlines()
    if changed:
        found.append(f"git: {len(changed)} files are not committed, such as {changed[0][3:]}")
    return found


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True).stdout


# --- 2. sdist and wheel ---


def build(root: Path, out: Path, folder: Path) -> tuple[Path, Path]:
    """Build the sdist and the wheel in `out`; return their paths. `folder` gets the virtual environment."""
    python = _environment(folder / "build")
    _run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "build", "twine")
    for old in out.glob("konvene-*"):
        old.unlink()
    _run(python, "-m", "build", "--outdir", out, root)
    version = version_of(root)
    expected = out / f"konvene-{version}.tar.gz", out / f"konvene-{version}-py3-none-any.whl"
    built = sorted(out.glob("konvene-*"))
    if sorted(expected) != built:
        raise ReleaseError(
            f"{out} has {', '.join(path.name for path in built)}, not both of version {version}"
        )
    _run(python, "-m", "twine", "check", "--strict", *expected)
    return expected


# --- 3. the installed wheel ---


def check_wheel(wheel: Path, version: str, folder: Path) -> None:
    """Install the wheel in a new virtual environment, and use it."""
    python = _environment(folder / "installed")
    _run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel)
    smoke([str(python.parent / "konvene")], version, folder)


def smoke(konvene: Sequence[str], version: str, folder: Path) -> None:
    """Check the version of a `konvene` command, and produce and consume with its broker.

    The commands run in `folder`, where no source tree is found. Raises `ReleaseError`."""
    if _output(konvene, folder, "--version") != f"konvene {version}\n":
        raise ReleaseError(
            f"konvene --version: {_output(konvene, folder, '--version').strip()}, not {version}"
        )
    broker = subprocess.Popen(
        [*konvene, "serve", "--port", "0", "--ephemeral", *QUICK],
        stdout=subprocess.PIPE, text=True, cwd=folder, env=_clean_environment() | {"KONVENE_LOG": "error"},
    )  # fmt: skip
    try:
        assert broker.stdout is not None
        line = broker.stdout.readline()
        listening = re.search(r"listens on (\S+:\d+)", line)
        if listening is None:
            raise ReleaseError(f"konvene serve: {line.strip() or 'no startup line'}")
        server = ("--bootstrap-server", listening[1])
        _output(konvene, folder, "topics", "create", "--topic", "orders", *server)
        _output(konvene, folder, "produce", "--topic", "orders", *server, stdin="one\n")
        group = ("--group", "readers", "--from-beginning", "--max-messages", "1")
        consumed = _output(konvene, folder, "consume", "--topic", "orders", *group, *server)
        if consumed != "one\n":
            raise ReleaseError(f"konvene consume: {consumed!r} instead of the produced record")
    finally:
        broker.terminate()
        code = broker.wait(TIMEOUT_S)
    if code:
        raise ReleaseError(f"konvene serve ended with exit code {code}")


# --- processes ---


def _environment(folder: Path) -> Path:
    """Create a virtual environment; return its Python."""
    venv.create(folder, with_pip=True)
    return folder / "bin" / "python"


def _clean_environment() -> dict[str, str]:
    """Return the environment variables without those that would find a source tree or another broker."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "KONVENE"))}


def _run(*command: str | Path) -> None:
    try:
        subprocess.run(command, check=True, env=_clean_environment())
    except subprocess.CalledProcessError as error:
        raise ReleaseError(f"{' '.join(map(str, command[1:4]))} ended with {error.returncode}") from None


def _output(konvene: Sequence[str], folder: Path, *arguments: str, stdin: str | None = None) -> str:
    done = subprocess.run(
        [*konvene, *arguments], input=stdin, capture_output=True, text=True, cwd=folder,
        env=_clean_environment(), timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    if done.returncode:
        raise ReleaseError(f"konvene {arguments[0]} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all steps; return the exit status."""
    parser = argparse.ArgumentParser(description="Build and check a release; nothing is uploaded.")
    parser.add_argument("--untagged", action="store_true", help="do not check version, changelog and tag")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="where the files go (default: dist)")
    options = parser.parse_args(arguments)
    found = [] if options.untagged else problems(ROOT)
    for problem in found:
        sys.stderr.write(f"release: {problem}\n")
    if found:
        return 1
    version = version_of(ROOT)
    try:
        with tempfile.TemporaryDirectory(prefix="konvene-release-") as folder:
            sdist, wheel = build(ROOT, options.out, Path(folder))
            check_wheel(wheel, version, Path(folder))
    except ReleaseError as error:
        sys.stderr.write(f"release: {error}\n")
        return 1
    for path in (sdist, wheel):
        sys.stdout.write(f"{path}  {path.stat().st_size >> 10} KiB\n")
    sys.stdout.write(f"konvene {version} is ready: its wheel was installed, and its broker served a group.\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
