"""Python environments for the workers of a cluster, made from links to the installed packages.

python = bare(folder)                     # everything but konvene
archive = packed(python, folder)          # with konvene, packed by venv-pack
zipped = zip_of_konvene(folder)           # for --py-files
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

SOURCES = Path(__file__).parents[3] / "src"
PACKAGES = ("konvene", "pyspark_konvene", "pyspark_konvene_log")
"""The packages of the wheel."""


def bare(folder: Path) -> Path:
    """Make a virtual environment without konvene; return its interpreter."""
    home = folder / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--symlinks", home], check=True)
    for entry in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if "konvene" not in entry.name and entry.suffix != ".pth":
            (_packages_of(home) / entry.name).symlink_to(entry)
    return home / "bin" / "python"


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
