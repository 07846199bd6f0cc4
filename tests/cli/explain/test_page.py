"""docs/explain.md: its transcripts equal the output, and its program and notebook run."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from konvene.pipeline.answers.advice import RULES
from konvene.pipeline.monitoring.alerts import RULES as ALERTS
from konvene.pipeline.monitoring.metrics import METRICS

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "explain.md"
NOTEBOOK = ROOT / "docs" / "notebooks" / "why-did-it-rebalance.ipynb"
BROKER_LOG = ROOT / "tests" / "vectors" / "broker_log"
LOGS = ROOT / "tests" / "vectors" / "logs" / "consumer"

TRANSCRIPTS = re.findall(
    r"<!-- transcript -->\n```console\n\$ "
    r"(.*?)\n(.*?)```",
    PAGE.read_text("utf-8"),
    re.DOTALL,
)


def matches(shown: list[str], printed: list[str]) -> bool:
    """Compare line by line; a line `…` stands for any number of lines."""
    if not shown:
        return not printed
    if shown[0] == "…":
        return any(matches(shown[1:], printed[i:]) for i in range(len(printed) + 1))
    return bool(printed) and shown[0] == printed[0].rstrip() and matches(shown[1:], printed[1:])


@pytest.mark.parametrize(("command", "shown"), TRANSCRIPTS, ids=[command[:60] for command, _ in TRANSCRIPTS])
def test_transcript_equals_the_output(command: str, shown: str) -> None:
    if "jq" in command:
        check_jq_fields(command, shown)
        return
    subcommand = command.partition(" /var/kafka ")[0].removeprefix("konvene explain").strip()
    logs = LOGS.parent / {"": "consumer", "transactions": "transactions", "deliveries": "share"}[subcommand]
    if "--broker-log" in command:
        logs = BROKER_LOG / "data"
    command = command.replace("/var/log/kafka", str(BROKER_LOG)).replace("/var/kafka", str(logs))
    args = command.split()[1:]
    process = subprocess.run(
        [sys.executable, "-m", "konvene", *args], env=os.environ | {"PYTHONIOENCODING": "utf-8"},
        capture_output=True, text=True, encoding="utf-8", check=True,
    )  # fmt: skip
    assert matches(shown.splitlines(), process.stdout.splitlines()), process.stdout


def check_jq_fields(command: str, shown: str) -> None:
    """Compare with what jq would print, so that jq need not be installed."""
    command_line, _, rest = command.partition(" | jq -c ")
    names = re.findall(r"\.(\w+)", rest)
    args = command_line.replace("/var/kafka", str(LOGS)).split()[1:]
    process = subprocess.run(
        [sys.executable, "-m", "konvene", *args], capture_output=True, text=True, check=True
    )
    rebalances = [json.loads(line) for line in process.stdout.splitlines()][:3]
    assert shown.splitlines() == [
        json.dumps([rebalance[name] for name in names], separators=(",", ":")) for rebalance in rebalances
    ]


def first_cells(heading: str) -> list[str]:
    """Return the first column of the table with this heading."""
    table = PAGE.read_text("utf-8").partition(f"| {heading} |")[2].splitlines()[2:]
    return [
        line.split("|")[1].strip() for line in itertools.takewhile(lambda row: row.startswith("|"), table)
    ]


def test_every_piece_of_advice_is_on_the_page() -> None:
    assert first_cells("Advice") == [name.replace("-", " ") for name in RULES]


def test_every_field_of_the_json_is_on_the_page() -> None:
    """Except log positions, fields of streams groups only, and self-explanatory ones."""
    args = [sys.executable, "-m", "konvene", "explain", str(LOGS), "--json", "--limit", "1"]
    process = subprocess.run(args, capture_output=True, text=True, check=True)
    printed = set(json.loads(process.stdout))
    documented = {name for cell in first_cells("Field") for name in re.findall(r"`(\w+)`", cell)}
    undocumented = {
        "log_partition", "base_offset", "last_offset", "standby_moved", "warmup_moved", "state",
        "cause_topic", "causes_left_out", "churn_ratio", "last_member_id",
    }  # fmt: skip
    assert documented | undocumented == printed and not documented & undocumented


def test_page_has_six_transcripts() -> None:
    assert len(TRANSCRIPTS) == 6


def test_program_of_the_page_runs(tmp_path: Path) -> None:
    *_, program = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    process = subprocess.run(
        [sys.executable, "-c", program.replace("/var/kafka", str(LOGS))], cwd=tmp_path, capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    assert process.stdout.startswith(
        "basic (consumer), epoch 10 → 11 ncqd… (client cas at /127.0.0.1) left, or"
    )
    assert len(process.stdout.splitlines()) == 10


def run_cells(notebook: Any) -> Iterator[tuple[Any, str]]:
    """Run the cells of a notebook in order, without Jupyter; yield each with what it printed."""
    namespace: dict[str, Any] = {}
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(cells, 1):
        stdout = io.StringIO()
        with contextlib.redirect_stdout(stdout):
            exec(compile("".join(cell["source"]), f"<cell {number}>", "exec"), namespace)
        yield cell, stdout.getvalue()


def test_notebook_prints_its_saved_output(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """KONVENE_REWRITE=1 saves the new output in the notebook."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KONVENE_LOGS", str(LOGS))
    notebook = json.loads(NOTEBOOK.read_text("utf-8"))
    for cell, printed in run_cells(notebook):
        if os.environ.get("KONVENE_REWRITE"):
            text = printed.splitlines(keepends=True)
            cell["outputs"] = [{"name": "stdout", "output_type": "stream", "text": text}] if text else []
        shown = "".join(line for output in cell["outputs"] for line in output["text"])
        assert printed == shown, "".join(cell["source"])
    if os.environ.get("KONVENE_REWRITE"):
        NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", "utf-8")


def test_copied_notebook_makes_its_own_logs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In a directory outside the repository it explains the log of a broker that it starts."""
    copy = tmp_path / "elsewhere" / NOTEBOOK.name
    copy.parent.mkdir()
    copy.write_bytes(NOTEBOOK.read_bytes())
    monkeypatch.chdir(copy.parent)
    monkeypatch.delenv("KONVENE_LOGS", raising=False)
    printed = [text for _, text in run_cells(json.loads(copy.read_text("utf-8")))]
    assert any("basic (consumer), epoch " in text for text in printed)
    assert any("reached its target assignment" in text for text in printed)
    assert (copy.parent / "report.html").read_text("utf-8").endswith("</html>\n")


def test_notebook_names_a_directory_that_does_not_exist(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KONVENE_LOGS", str(tmp_path / "absent"))
    with pytest.raises(FileNotFoundError, match=r"KONVENE_LOGS is .*absent, which does not exist"):
        next(run_cells(json.loads(NOTEBOOK.read_text("utf-8"))))


def test_every_metric_of_a_follower_is_on_the_page() -> None:
    """With type, labels and meaning."""
    rows = [
        f"| `{m.name}` | {m.type} | {', '.join(f'`{label}`' for label in m.labels)} | {m.sentence} |"
        for m in METRICS.values()
    ]
    assert "\n".join(rows) in PAGE.read_text("utf-8")


def test_every_alert_is_on_the_page() -> None:
    assert first_cells("Alert") == [f"`{name}`" for name in ALERTS]
