"""The root command: quick to start, complete in its help, plain in its errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from tests.cli.commands import call
from tests.client.scripted import HANG_UP, ScriptedBroker

from konvene.cli import serve as serve_file
from konvene.cli.app import COMMANDS, LateGroup, konvene
from konvene.cli.output import Table, iso, text_of

LATE = ("asyncio", "konvene.client", "konvene.broker", "konvene.messages", "rich", "cramjam")


def test_the_help_of_each_command_begins_as_the_table_says() -> None:
    context = click.Context(konvene)
    assert isinstance(konvene, LateGroup)
    for name, (_, line) in COMMANDS.items():
        command = konvene.get_command(context, name)
        assert command is not None and command.help is not None
        assert command.help.splitlines()[0] == line


def test_help_loads_nothing_that_only_a_command_needs() -> None:
    """It starts quickly because it is small; what is loaded does not depend on the machine."""
    code = (
        "import sys\nfrom konvene.cli.app import konvene\n"
        "try:\n konvene(['--help'], prog_name='konvene')\nexcept SystemExit:\n pass\n"
        f"print([m for m in {LATE!r} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"
    assert "Completion for your shell" in done.stdout


def test_python_m_konvene_is_konvene() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "konvene", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("konvene ")


def test_every_command_and_option_has_help() -> None:
    def walk(command: click.Command, path: str) -> list[str]:
        context = click.Context(command)
        missing = [] if command.help else [path]
        missing += [
            f"{path} {p.opts[0]}" for p in command.params if isinstance(p, click.Option) and not p.help
        ]
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                sub = command.get_command(context, name)
                assert sub is not None
                missing += walk(sub, f"{path} {name}")
        return missing

    assert walk(konvene, "konvene") == []


def test_a_word_that_is_no_command_is_answered_with_those_that_are() -> None:
    said = call(None, "topic")
    assert said.code == 2
    assert (
        "Commands: serve, groups, topics, configs, produce, consume, transactions, log, wire, sim, explain, "
        "migrate, completion." in said.err
    )


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_completes_commands_and_options(shell: str) -> None:
    said = call(None, "completion", shell)
    assert said.code == 0
    assert "_KONVENE_COMPLETE" in said.out
    assert call(None, "completion", "tcsh").code == 2


# failures -----------------------------------------------------------------------------------------


def test_nobody_there() -> None:
    with ScriptedBroker() as gone:
        pass
    assert call(gone, "topics", "list") == (
        1,
        "",
        f"konvene: cannot connect to {gone.address}: connection refused\n"
        "  Is a broker running there? Choose another one with --bootstrap-server HOST:PORT.\n",
    )


@pytest.mark.parametrize(
    "answer, said",
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "is it Kafka?"),
        (HANG_UP, "TLS and SASL listeners close plaintext connections"),
        (None, "did not answer ApiVersions within 300 ms"),
    ],
)
def test_somebody_else_there(answer: Any, said: str) -> None:
    with ScriptedBroker(ApiVersions=answer) as broker:
        result = call(broker, "topics", "list", "--timeout", "300")
    assert result.code == 1
    assert said in result.err


@pytest.mark.parametrize("server", ["", "host:port"])
def test_a_server_that_is_none(server: str) -> None:
    said = call(None, "topics", "list", "--bootstrap-server", server)
    assert said.code == 1
    assert "write host:port, such as localhost:9092" in said.err


def test_a_secure_cluster_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SASL_SSL\n")
    with ScriptedBroker() as broker:
        said = call(broker, "groups", "list", "--command-config", str(file))
    assert said.code == 1
    assert said.err == (
        f"konvene: {file}: security.protocol=SASL_SSL is not supported: this client speaks PLAINTEXT only\n"
    )
    assert broker.asked == []


# serve --------------------------------------------------------------------------------------------


def test_serve_hands_its_options_to_the_broker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import konvene.broker.app as app

    handed: list[Any] = []

    def serve(*given: Any) -> int:
        *options, progress, assignors, metrics_port = given
        handed.append((*options, assignors, metrics_port))
        progress(1)("orders-0")  # No terminal is there to be shown anything.
        return 3

    monkeypatch.setattr(app, "serve", serve)
    assert call(None, "serve").code == 3
    config = tmp_path / "server.properties"
    config.write_text("a=b")
    words = ["--host", "::1", "--port", "0", "--data-dir", str(tmp_path), "--config", str(config)]
    words += ["--assignor", "mine:assign", "--set", "a=1", "--set", "b = c=d", "--metrics-port", "9100"]
    assert call(None, "serve", *words).code == 3
    assert handed == [
        (None, None, None, False, None, [], (), None),
        ("::1", 0, tmp_path, False, config, [("a", "1"), ("b", "c=d")], ("mine:assign",), 9100),
    ]


@pytest.mark.parametrize(
    "words", [["--ephemeral", "--data-dir", "d"], ["--set", "novalue"], ["--port", "99999"]]
)
def test_serve_refuses_what_makes_no_sense(words: list[str]) -> None:
    assert call(None, "serve", *words).code == 2


def test_serve_is_documented_with_examples() -> None:
    assert serve_file.serve.help is not None
    assert "konvene serve --ephemeral" in serve_file.serve.help


# output -------------------------------------------------------------------------------------------


def test_a_table_is_as_wide_as_what_is_in_it() -> None:
    table = Table(("GROUP", "LAG"), [("billing", None), ("a", 10)])
    assert table.lines() == ["GROUP    LAG", "billing  -", "a        10"]


def test_a_name_cannot_move_the_cursor() -> None:
    assert text_of("evil\x1b[2Jname\n") == "evil\\x1b[2Jname\\n"
    assert text_of("größe") == "größe"


def test_times_are_utc_with_milliseconds() -> None:
    assert iso(1_700_000_000_007) == "2023-11-14 22:13:20.007"
    assert iso(-1) is None
    assert iso(2**62) == f"{2**62} ms"
