"""The examples in the help texts of `konvene sim` run as written; some with smaller numbers."""

from __future__ import annotations

import inspect
import re
import shlex
import shutil
from pathlib import Path

import click
import pytest
from tests.cli.commands import call
from tests.cli.sim.test_sim import FailsAtFortiethEvent

import konvene.sim.runs.run
from konvene.cli.sim.command import sim

ROOT = Path(__file__).parents[3]

SMALL_PLAN = ("--members", "3", "--partitions", "6", "--minutes", "2", "--jobs", "1")
SMALLER = {
    "run": ("--steps", "200"),
    "replay": ("--steps", "200"),
    "shrink": ("--steps", "200"),
    "soak": ("--steps", "200", "--seeds", "0..1", "--jobs", "1"),
    "model-check": ("--limit", "200"),
    "what-if": (*SMALL_PLAN, "--seeds", "0..0"),
    "sweep": (*SMALL_PLAN, "--seeds", "0..0"),
}
"""Options that are added to the examples, by command. They override those of the example."""
WITH_VIOLATION = ("konvene sim shrink", "--until-violation")
"""Parts of examples that need a run with a violation."""


def examples(command: click.Command) -> list[str]:
    """Return the lines with `konvene` in the help text, with their continuations."""
    text = re.sub(r" \\\n\s*", " ", inspect.cleandoc(command.help or ""))
    return [line.strip() for line in text.splitlines() if line.strip().startswith("konvene ")]


EXAMPLES = [(name, example) for name, command in sim.commands.items() for example in examples(command)]


def test_every_command_has_an_example() -> None:
    assert {name for name, _ in EXAMPLES} == set(sim.commands)


@pytest.mark.parametrize(("name", "example"), EXAMPLES, ids=[example for _, example in EXAMPLES])
def test_example_runs(name: str, example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "--plot" in example:
        pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    if "tests/scenarios" in example:
        shutil.copytree(ROOT / "tests" / "scenarios", tmp_path / "tests" / "scenarios")
    needs_violation = any(part in example for part in WITH_VIOLATION)
    if needs_violation:
        monkeypatch.setattr(konvene.sim.runs.run, "invariants_of", lambda kinds: [FailsAtFortiethEvent()])
    program, group, *args = shlex.split(example)
    assert (program, group, args[0]) == ("konvene", "sim", name)
    smaller = list(SMALLER.get(name, ()))
    if name == "run" and "--seeds" in args:
        smaller += ["--jobs", "1"]
        if not needs_violation:
            smaller += ["--seeds", "0..1"]
    result = call(None, group, *args, *smaller)
    assert result.code == (1 if "--until-violation" in example else 0), result
