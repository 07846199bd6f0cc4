"""The root command: start-up imports, help, completion, connection errors, `serve`, output helpers."""

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

LAZY_MODULES = ("asyncio", "konvene.client", "konvene.broker", "konvene.messages", "rich", "cramjam")


def test_command_help_begins_with_its_summary() -> None:
    context = click.Context(konvene)
    assert isinstance(konvene, LateGroup)
    for name, (_, summary) in COMMANDS.items():
        command = konvene.get_command(context, name)
        assert command is not None and command.help is not None
        assert command.help.splitlines()[0] == summary


def test_help_imports_no_command_modules() -> None:
    """Measured by imported modules, since that does not depend on the machine's speed."""
    code = (
        "import sys\nfrom konvene.cli.app import konvene\n"
        "try:\n konvene(['--help'], prog_name='konvene')\nexcept SystemExit:\n pass\n"
        f"print([m for m in {LAZY_MODULES!r} if m in sys.modules], file=sys.stderr)"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stderr == "[]\n"
    assert "Completion for your shell" in process.stdout


def test_python_m_konvene_runs_the_command() -> None:
    process = subprocess.run(
        [sys.executable, "-m", "konvene", "--version"], capture_output=True, text=True, check=True
    )
    assert process.stdout.startswith("konvene ")


def test_every_command_and_option_has_help() -> None:
    def without_help(command: click.Command, path: str) -> list[str]:
        context = click.Context(command)
        missing = [] if command.help else [path]
        missing += [
            f"{path} {p.opts[0]}" for p in command.params if isinstance(p, click.Option) and not p.help
        ]
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                sub = command.get_command(context, name)
                assert sub is not None
                missing += without_help(sub, f"{path} {name}")
        return missing

    assert without_help(konvene, "konvene") == []


def test_unknown_command_error_lists_the_commands() -> None:
    result = call(None, "topic")
    assert result.code == 2
    assert (
        "Commands: serve, console, groups, topics, configs, acls, delegation-tokens, produce, consume, "
        "transactions, log, wire, sim, explain, migrate, completion." in result.err
    )


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_for_each_shell(shell: str) -> None:
    result = call(None, "completion", shell)
    assert result.code == 0
    assert "_KONVENE_COMPLETE" in result.out
    assert call(None, "completion", "tcsh").code == 2


# failures -----------------------------------------------------------------------------------------


def test_refused_connection_is_explained() -> None:
    with ScriptedBroker() as stopped:
        pass
    assert call(stopped, "topics", "list") == (
        1,
        "",
        f"konvene: cannot connect to {stopped.address}: connection refused\n"
        "  Is a broker running there? Choose another one with --bootstrap-server HOST:PORT.\n",
    )


@pytest.mark.parametrize(
    "response, message",
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "is it Kafka?"),
        (HANG_UP, "one with TLS or SASL needs --command-config FILE"),
        (None, "did not answer ApiVersions within 300 ms"),
    ],
)
def test_server_that_is_not_kafka_is_explained(response: Any, message: str) -> None:
    with ScriptedBroker(ApiVersions=response) as broker:
        result = call(broker, "topics", "list", "--timeout", "300")
    assert result.code == 1
    assert message in result.err


@pytest.mark.parametrize("server", ["", "host:port"])
def test_invalid_bootstrap_server_is_rejected(server: str) -> None:
    result = call(None, "topics", "list", "--bootstrap-server", server)
    assert result.code == 1
    assert "write host:port, such as localhost:9092" in result.err


def test_unsupported_mechanism_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SASL_SSL\nsasl.mechanism=EXTERNAL\n")
    with ScriptedBroker() as broker:
        result = call(broker, "groups", "list", "--command-config", str(file))
    assert result.code == 1
    assert result.err == (
        f"konvene: {file}: sasl.mechanism=EXTERNAL is not supported; use PLAIN, SCRAM-SHA-256, SCRAM-SHA-512,"
        " OAUTHBEARER, GSSAPI\n"
    )
    assert broker.request_log == []


# serve --------------------------------------------------------------------------------------------


def test_serve_passes_its_options_to_the_broker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import konvene.broker.app as app

    received: list[Any] = []

    def serve(options: app.ServeOptions, progress: Any, companion: Any) -> int:
        received.append((tuple(options), companion is not None))
        progress(1)("orders-0")  # Output is not a terminal, so nothing is printed.
        return 3

    monkeypatch.setattr(app, "serve", serve)
    assert call(None, "serve").code == 3
    config = tmp_path / "server.properties"
    config.write_text("a=b")
    args = ["--host", "::1", "--port", "0", "--data-dir", str(tmp_path), "--config", str(config)]
    args += ["--assignor", "mine:assign", "--set", "a=1", "--set", "b = c=d", "--metrics-port", "9100"]
    args += ["--advertise", "::1:9", "--log-format", "json", "--console-port", "0"]
    assert call(None, "serve", *args).code == 3
    assert received == [
        ((None, None, None, False, None, [], (), None, None, "text"), False),
        (
            ("::1", 0, tmp_path, False, config, [("a", "1"), ("b", "c=d")], ("mine:assign",), 9100,
             "::1:9", "json"),
            True,
        ),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "args",
    [["--ephemeral", "--data-dir", "d"], ["--set", "novalue"], ["--port", "99999"], ["--log-format", "xml"]],
)
def test_invalid_serve_options_are_usage_errors(args: list[str]) -> None:
    assert call(None, "serve", *args).code == 2


def test_serve_is_documented_with_examples() -> None:
    assert serve_file.serve.help is not None
    assert "konvene serve --ephemeral" in serve_file.serve.help


# output -------------------------------------------------------------------------------------------


def test_table_columns_fit_their_content() -> None:
    table = Table(("GROUP", "LAG"), [("billing", None), ("a", 10)])
    assert table.lines() == ["GROUP    LAG", "billing  -", "a        10"]


def test_control_characters_are_escaped() -> None:
    assert text_of("evil\x1b[2Jname\n") == "evil\\x1b[2Jname\\n"
    assert text_of("größe") == "größe"


def test_times_are_utc_with_milliseconds() -> None:
    assert iso(1_700_000_000_007) == "2023-11-14 22:13:20.007"
    assert iso(-1) is None
    assert iso(2**62) == f"{2**62} ms"
