"""`make release`: what keeps a commit from being released, and the check of an installed broker."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from konvene import __version__

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def release() -> ModuleType:
    spec = importlib.util.spec_from_file_location("release", ROOT / ".ci" / "release.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def git(root: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "tag.gpgsign=false")
    subprocess.run(["git", *identity, *arguments], cwd=root, check=True, capture_output=True)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository whose only commit can be released as 1.2.0."""
    (tmp_path / "src/konvene").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "konvene"\nversion = "1.2.0"\n')
    (tmp_path / "src/konvene/__init__.py").write_text('"""A package."""\n\n__version__ = "1.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(
        "# Changes\n\n## Unreleased\n\n## 1.2.0 - 2026-11-24\n\n- A change.\n\n## 1.1.0 - 2026-01-01\n"
    )
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    git(tmp_path, "tag", "v1.2.0")
    return tmp_path


def commit(root: Path) -> None:
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--no-gpg-sign", "--message", "a commit")


def test_matching_version_changelog_and_tag_are_no_problem(release: ModuleType, project: Path) -> None:
    assert release.problems(project) == []


@pytest.mark.parametrize(
    ("file", "old", "new", "problem"),
    [
        (
            "src/konvene/__init__.py", "1.2.0", "1.1.0",
            "src/konvene/__init__.py: __version__ is 1.1.0, pyproject.toml has 1.2.0",
        ),
        (
            "CHANGELOG.md", "## 1.2.0 - 2026-11-24", "## 1.3.0 - 2026-11-24",
            "CHANGELOG.md: there is no heading '## 1.2.0 - YYYY-MM-DD'",
        ),
        (
            "CHANGELOG.md", "## 1.2.0 - 2026-11-24", "## 1.2.0",
            "CHANGELOG.md: there is no heading '## 1.2.0 - YYYY-MM-DD'",
        ),
        (
            "CHANGELOG.md", "## Unreleased\n", "## Unreleased\n\n- Another change.\n",
            "CHANGELOG.md: 'Unreleased' has entries; move them below 1.2.0",
        ),
    ],
    ids=["package", "changelog", "changelog-without-date", "unreleased"],
)  # fmt: skip
def test_mismatch_is_named(
    release: ModuleType, project: Path, file: str, old: str, new: str, problem: str
) -> None:
    path = project / file
    path.write_text(path.read_text().replace(old, new))
    commit(project)
    git(project, "tag", "--force", "v1.2.0")
    assert release.problems(project) == [problem]


def test_commit_without_its_tag_and_with_changes(release: ModuleType, project: Path) -> None:
    git(project, "tag", "--delete", "v1.2.0")
    git(project, "tag", "v9")
    (project / "new.txt").write_text("new")
    assert release.problems(project) == [
        "git: the commit has no tag v1.2.0 (its tags: v9)",
        "git: 1 files are not committed, such as new.txt",
    ]


def test_versions_of_this_tree_agree(release: ModuleType) -> None:
    """Between releases too."""
    assert release.version_of(ROOT) == __version__


def wrapper(folder: Path) -> list[str]:
    """Return a command that runs this tree's `konvene` as an installed one, without PYTHONPATH."""
    script = folder / "konvene.py"
    source = str(ROOT / "src")
    script.write_text(f"import sys\nsys.path[0] = {source!r}\nfrom konvene.cli import main\nmain()\n")
    return [sys.executable, str(script)]


def test_smoke_test_produces_and_consumes(release: ModuleType, tmp_path: Path) -> None:
    """With a broker of this tree."""
    release.smoke(wrapper(tmp_path), __version__, tmp_path)


def test_smoke_test_names_another_version(release: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(release.ReleaseError, match=rf"{re.escape(__version__)}, not 9\.9\.9"):
        release.smoke(wrapper(tmp_path), "9.9.9", tmp_path)


def test_workflow_builds_and_publishes_a_tag_without_a_token() -> None:
    text = (ROOT / ".github/workflows/release.yml").read_text("utf-8")
    workflow = yaml.safe_load(text)
    assert workflow[True] == {"push": {"tags": ["v*"]}}  # YAML 1.1 reads `on` as true.
    build, publish = workflow["jobs"]["build"], workflow["jobs"]["publish"]
    assert {"run": "make release"} in build["steps"]
    assert publish["needs"] == "build"
    assert publish["permissions"] == {"id-token": "write"}
    assert "permissions" not in build
    assert "secrets." not in text
    assert re.search(r"^release:", (ROOT / "Makefile").read_text(), re.MULTILINE)
