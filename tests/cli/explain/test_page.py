"""The page about `konvene explain`: what it shows is what comes out, and its program and its notebook run."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from konvene.pipeline.answers.advice import RULES

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "explain.md"
NOTEBOOK = ROOT / "docs" / "notebooks" / "why-did-it-rebalance.ipynb"
LOGS = ROOT / "tests" / "vectors" / "logs" / "consumer"

TRANSCRIPTS = re.findall(
    r"<!-- transcript -->\n```console\n\$ "
    r"(.*?)\n(.*?)```",
    PAGE.read_text("utf-8"),
    re.DOTALL,
)


def matches(shown: list[str], printed: list[str]) -> bool:
    """Line by line; a line with `…` alone stands for any number of lines."""
    if not shown:
        return not printed
    if shown[0] == "…":
        return any(matches(shown[1:], printed[i:]) for i in range(len(printed) + 1))
    return bool(printed) and shown[0] == printed[0].rstrip() and matches(shown[1:], printed[1:])


@pytest.mark.parametrize(("command", "shown"), TRANSCRIPTS, ids=[command[:60] for command, _ in TRANSCRIPTS])
def test_what_the_page_shows_is_what_comes_out(command: str, shown: str) -> None:
    """Every line of it, but for those that `…` stands for."""
    if "jq" in command:
        _fields(command, shown)
        return
    kind = command.partition(" /var/kafka ")[0].removeprefix("konvene explain").strip()
    logs = LOGS.parent / {"": "consumer", "transactions": "transactions", "deliveries": "share"}[kind]
    words = command.replace("/var/kafka", str(logs)).split()[1:]
    done = subprocess.run(
        [sys.executable, "-m", "konvene", *words], env=os.environ | {"PYTHONIOENCODING": "utf-8"},
        capture_output=True, text=True, encoding="utf-8", check=True,
    )  # fmt: skip
    assert matches(shown.splitlines(), done.stdout.splitlines()), done.stdout


def _fields(command: str, shown: str) -> None:
    """What jq would print: it need not be installed here."""
    words, _, rest = command.partition(" | jq -c ")
    names = re.findall(r"\.(\w+)", rest)
    lines = words.replace("/var/kafka", str(LOGS)).split()[1:]
    done = subprocess.run(
        [sys.executable, "-m", "konvene", *lines], capture_output=True, text=True, check=True
    )
    told = [json.loads(line) for line in done.stdout.splitlines()][:3]
    assert shown.splitlines() == [
        json.dumps([each[name] for name in names], separators=(",", ":")) for each in told
    ]


def first_cells(head: str) -> list[str]:
    """The first column of the table under this head."""
    table = PAGE.read_text("utf-8").partition(f"| {head} |")[2].splitlines()[2:]
    return [
        line.split("|")[1].strip() for line in itertools.takewhile(lambda each: each.startswith("|"), table)
    ]


def test_every_piece_of_advice_is_on_the_page() -> None:
    assert first_cells("Advice") == [name.replace("-", " ") for name in RULES]


def test_every_field_of_the_json_is_on_the_page() -> None:
    """But for those that say where in the log it stands, of streams groups, and that need no words."""
    words = [sys.executable, "-m", "konvene", "explain", str(LOGS), "--json", "--limit", "1"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    there = set(json.loads(done.stdout))
    told = {name for cell in first_cells("Field") for name in re.findall(r"`(\w+)`", cell)}
    left_out = {
        "log_partition", "base_offset", "last_offset", "standby_moved", "warmup_moved", "state",
        "cause_topic", "causes_left_out", "churn_ratio", "last_member_id",
    }  # fmt: skip
    assert told | left_out == there and not told & left_out


def test_there_are_transcripts() -> None:
    assert len(TRANSCRIPTS) == 5


def test_the_program_of_the_page_runs(tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", program.replace("/var/kafka", str(LOGS))], cwd=tmp_path, capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    assert done.stdout.startswith("basic (consumer), epoch 10 → 11 ncqd… (client cas at /127.0.0.1) left, or")
    assert len(done.stdout.splitlines()) == 10


def test_the_notebook_runs_and_prints_what_it_shows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its cells, one after the other, without Jupyter; the output that is saved in it is the output.
    KONVENE_REWRITE=1 saves it anew."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KONVENE_LOGS", str(LOGS))
    names: dict[str, Any] = {}
    notebook = json.loads(NOTEBOOK.read_text("utf-8"))
    cells = [each for each in notebook["cells"] if each["cell_type"] == "code"]
    for number, cell in enumerate(cells, 1):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile("".join(cell["source"]), f"<cell {number}>", "exec"), names)
        if os.environ.get("KONVENE_REWRITE"):
            text = said.getvalue().splitlines(keepends=True)
            cell["outputs"] = [{"name": "stdout", "output_type": "stream", "text": text}] if text else []
        shown = "".join(line for output in cell["outputs"] for line in output["text"])
        assert said.getvalue() == shown, f"cell {number}"
    if os.environ.get("KONVENE_REWRITE"):
        NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", "utf-8")
