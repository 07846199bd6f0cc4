"""Python environments for the workers of a cluster, made from links to the installed packages.

python = bare(folder)                     # what konvene[spark] requires
archive = packed(python, folder)          # with konvene, packed by venv-pack
zipped = zip_of_konvene(folder)           # for --py-files
"""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
SOURCES = ROOT / "src"
PACKAGES = ("konvene", "pyspark_konvene", "pyspark_konvene_log")
"""The packages of the wheel."""
EXTRAS = ("explain", "delta", "spark")


def bare(folder: Path) -> Path:
    """Make a virtual environment with what konvene[spark] requires; return its interpreter. It has no jars,
    since Spark's own processes have them; with all that is installed here it would be packed for a minute."""
    home = folder / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--symlinks", home], check=True)
    installed = Path(sysconfig.get_paths()["purelib"])
    for name in sorted(_required_entries()):
        if name != "pyspark":
            (_packages_of(home) / name).symlink_to(installed / name)
    pyspark = _packages_of(home) / "pyspark"
    pyspark.mkdir()
    for entry in (installed / "pyspark").iterdir():
        if entry.name != "jars":
            (pyspark / entry.name).symlink_to(entry)
    return home / "bin" / "python"


def _required_entries() -> set[str]:
    """Return the names in site-packages of all distributions that konvene[spark] requires."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    pending = [*project["dependencies"]]
    for extra in EXTRAS:
        pending += project["optional-dependencies"][extra]
    seen = {"konvene"}
    entries: set[str] = set()
    while pending:
        name = re.match(r"[\w.-]+", pending.pop())[0].lower()  # type: ignore[index]
        if name in seen:
            continue
        seen.add(name)
        try:
            found = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # Of another platform.
        pending += (line for line in found.requires or () if "extra ==" not in line)
        entries |= set(_entries_of(found))
    return entries


def _entries_of(distribution: importlib.metadata.Distribution) -> Iterator[str]:
    for file in distribution.files or ():
        if file.parts[0] not in ("..", "__pycache__"):
            yield file.parts[0]


def packed(python: Path, folder: Path) -> Path:
    """Add konvene to a copy of an environment, and pack it. Requires venv-pack."""
    import venv_pack

    home = folder / "packed"
    shutil.copytree(python.parents[1], home, symlinks=True)
    for package in PACKAGES:
        shutil.copytree(SOURCES / package, _packages_of(home) / package, ignore=_without_caches)
    made: str = venv_pack.pack(prefix=str(home), output=str(folder / "konvene.tar.gz"), compress_level=1)
    return Path(made)


def zip_of_konvene(folder: Path) -> Path:
    """Return a zip with the packages of konvene's wheel."""
    for package in PACKAGES:
        shutil.copytree(SOURCES / package, folder / "zipped" / package, ignore=_without_caches)
    return Path(shutil.make_archive(str(folder / "konvene"), "zip", folder / "zipped"))


def _packages_of(home: Path) -> Path:
    (found,) = home.glob("lib/python*/site-packages")
    return found


_without_caches = shutil.ignore_patterns("__pycache__")
