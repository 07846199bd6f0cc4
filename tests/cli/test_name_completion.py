"""Completion of names of groups, topics and profiles, as a shell requests it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from tests.client.scripted import ScriptedBroker

from konvene.cli.app import konvene
from konvene.messages.list_groups import ListedGroup, ListGroupsResponse


def list_groups(request: object) -> ListGroupsResponse:
    shared = ListedGroup(group_id="jobs", protocol_type="share", group_type="share", group_state="Empty")
    classic = [
        ListedGroup(group_id=name, protocol_type="consumer", group_type="classic", group_state="Empty")
        for name in ("readers", "reports")
    ]
    only_share = "share" in getattr(request, "types_filter", ())
    return ListGroupsResponse(groups=(shared,) if only_share else (shared, *classic))


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedBroker]:
    for name in ("KONVENE_PROFILE", "KONVENE_BOOTSTRAP_SERVER", "KONVENE_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    with ScriptedBroker(ListGroups=list_groups) as running:
        running.answers["Metadata"] = [running.metadata(orders=1, returns=2, payments=1)]
        yield running


def completed(*words: str) -> list[str]:
    """Complete the last word."""
    shell = ShellComplete(konvene, {}, "konvene", "_KONVENE_COMPLETE")
    return [item.value for item in shell.get_completions(list(words[:-1]), words[-1])]


@pytest.mark.parametrize(
    "words, names",
    [
        (["groups", "describe", "re"], ["readers", "reports"]),
        (["groups", "history", "--group", "rea"], ["readers"]),
        (["groups", "delete-offsets", "readers", "--topic", ""], ["orders", "payments", "returns"]),
        (
            ["groups", "reset-offsets", "a", "--input-topics", "orders,"],
            ["orders,payments", "orders,returns"],
        ),
        (["topics", "describe", "--topic", "ret"], ["returns"]),
        (["produce", "--topic", "pay"], ["payments"]),
        (["consume", "--topic", "orders", "--group", ""], ["jobs", "readers", "reports"]),
        (["consume", "--topic", "orders", "--share-group", ""], ["jobs"]),
        (["configs", "describe", "--entity-type", "groups", "--entity-name", "j"], ["jobs"]),
        (["configs", "alter", "--entity-type", "topics", "--entity-name", "o"], ["orders"]),
        (["configs", "describe", "--entity-type", "brokers", "--entity-name", ""], ["1"]),
    ],
)
def test_names_of_the_cluster(
    broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch, words: list[str], names: list[str]
) -> None:
    """The cluster is that of --bootstrap-server, or of the environment."""
    monkeypatch.setenv("KONVENE_BOOTSTRAP_SERVER", broker.address)
    assert completed(*words) == names
    monkeypatch.delenv("KONVENE_BOOTSTRAP_SERVER")
    first = next((i for i, word in enumerate(words) if word.startswith("--")), len(words) - 1)
    assert completed(*words[:first], "--bootstrap-server", broker.address, *words[first:]) == names


def test_cluster_of_a_profile(
    broker: ScriptedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config.toml"
    config.write_text(f'[profiles.prod]\nbootstrap-server = "{broker.address}"\n[profiles.test]\n')
    monkeypatch.setenv("KONVENE_CONFIG", str(config))
    assert completed("--profile", "prod", "groups", "describe", "rea") == ["readers"]
    assert completed("--profile", "") == ["prod", "test"]


def test_unreachable_cluster_and_broken_config_are_silent(
    broker: ScriptedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert completed("topics", "describe", "--bootstrap-server", "127.0.0.1:1", "--topic", "") == []
    broker.answers["Metadata"] = [None]  # It accepts connections, and does not answer.
    assert completed("topics", "describe", "--bootstrap-server", broker.address, "--topic", "") == []
    config = tmp_path / "config.toml"
    config.write_text("[")
    monkeypatch.setenv("KONVENE_CONFIG", str(config))
    assert completed("topics", "describe", "--bootstrap-server", "127.0.0.1:1", "--topic", "") == []
    assert completed("--profile", "") == []
    assert capfd.readouterr() == ("", "")


def test_request_of_bash(broker: ScriptedBroker) -> None:
    environment = {
        "_KONVENE_COMPLETE": "bash_complete", "COMP_WORDS": "konvene groups describe rep", "COMP_CWORD": "3",
        "KONVENE_BOOTSTRAP_SERVER": broker.address,
    }  # fmt: skip
    program = "from konvene.cli.app import konvene; konvene(prog_name='konvene')"
    process = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | environment, capture_output=True, text=True,
        check=False, timeout=60,
    )  # fmt: skip
    assert (process.stdout, process.stderr) == ("plain,reports\n", "")


def test_every_group_and_topic_is_completed() -> None:
    """In each command with --bootstrap-server, parameters for groups and topics have a completer.

    The exception is an option for types of groups."""

    def without_completer(command: click.Command, path: str) -> list[str]:
        found = []
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                child = command.get_command(context, name)
                assert child is not None
                found += without_completer(child, f"{path} {name}")
        if any("--bootstrap-server" in each.opts for each in command.params):
            for each in command.params:
                names = {*each.opts, each.metavar or ""}
                takes_name = any(word in name.lower() for name in names for word in ("group", "topic"))
                is_value = isinstance(each, click.Argument) or not getattr(each, "is_flag", False)
                if takes_name and is_value and each._custom_shell_complete is None:
                    found.append(f"{path} {each.opts[0]}")
        return found

    assert without_completer(konvene, "konvene") == ["konvene groups list --type"]
