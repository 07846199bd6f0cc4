"""Every command that connects, against a secured broker: with --command-config, its aliases, the environment
and profiles; and what is wrong without them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.cli.commands import call
from tests.cli.secured import ALICE_PASSWORD, SecuredBroker, properties, secured_broker

COMMANDS = [
    ("topics", "list"),
    ("topics", "describe", "orders"),
    ("groups", "list"),
    ("groups", "describe", "billing"),
    ("groups", "describe", "billing", "--offsets"),
    ("configs", "describe", "--entity-type", "topics", "--entity-name", "orders"),
    ("configs", "describe", "--entity-type", "users"),
    ("acls", "list"),
    ("delegation-tokens", "describe"),
    ("transactions", "list"),
    ("consume", "orders", "--from-beginning", "--max-messages", "1"),
    ("consume", "orders", "--group", "billing", "--from-beginning", "--max-messages", "1"),
    ("consume", "orders", "--share-group", "workers", "--timeout-ms", "1"),
    ("migrate", "check", "billing"),
]


@pytest.fixture(scope="module")
def broker() -> Iterator[SecuredBroker]:
    with secured_broker({"group.initial.rebalance.delay.ms": "0"}) as broker:
        broker.run("topics", "create", "orders")
        broker.run("produce", "orders", stdin="one\ntwo\n")
        broker.run("consume", "orders", "--group", "billing", "--from-beginning", "--max-messages", "1")
        yield broker


@pytest.mark.parametrize("args", COMMANDS, ids=" ".join)
def test_a_command_with_the_file(broker: SecuredBroker, args: Sequence[str]) -> None:
    assert broker.call(*args).code in (0, 1 if args[0] == "migrate" else 0)


@pytest.mark.parametrize("args", [("topics", "list"), ("consume", "orders", "--max-messages", "1")])
def test_a_command_without_the_file_names_the_option(broker: SecuredBroker, args: Sequence[str]) -> None:
    result = call(broker, *args, "--timeout", "300")
    assert result.code == 1
    assert "--command-config FILE" in result.err


def test_the_names_of_kafkas_console_tools(broker: SecuredBroker) -> None:
    """`--consumer.config`, `--consumer-config` and `--producer.config`, deprecated there."""
    for option in ("--consumer.config", "--consumer-config"):
        args = ("consume", "orders", "--from-beginning", "--max-messages", "1", option, broker.file())
        assert call(broker, *args).out == "one\n"
    assert call(broker, "produce", "orders", "--producer.config", broker.file(), stdin="three\n").code == 0


def test_the_environment_and_a_profile(
    broker: SecuredBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KONVENE_COMMAND_CONFIG", broker.file())
    assert "orders" in call(broker, "topics", "list").out
    monkeypatch.delenv("KONVENE_COMMAND_CONFIG")
    (tmp_path / "config.toml").write_text(
        f'[profiles.secured]\nbootstrap-server = "{broker.address}"\ncommand-config = "{broker.file()}"\n'
    )
    monkeypatch.setenv("KONVENE_CONFIG", str(tmp_path / "config.toml"))
    assert "orders" in call(None, "--profile", "secured", "topics", "list").out


def test_the_file_names_the_cluster(
    broker: SecuredBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`bootstrap.servers`, unless an option or the environment does."""
    text = Path(broker.file()).read_text()
    file = properties(tmp_path / "a", f"{text}bootstrap.servers={broker.address}\n")
    assert "orders" in call(None, "topics", "list", "--command-config", file).out
    monkeypatch.setenv("KONVENE_BOOTSTRAP_SERVER", "localhost:1")
    assert "localhost:1" in call(None, "topics", "list", "--command-config", file).err


def test_settings_of_connections_as_properties(broker: SecuredBroker, tmp_path: Path) -> None:
    """They override the file; an unknown one is rejected with the nearest name."""
    pairs = [line.split("=", 1) for line in Path(broker.file()).read_text().splitlines()]
    given = [f"--command-property={name}={value}" for name, value in pairs]
    assert call(broker, "produce", "orders", *given, stdin="x\n").code == 0
    args = ("consume", "orders", "--from-beginning", "--max-messages", "1")
    assert call(broker, *args, *given).out == "one\n"
    misspelt = call(broker, *args, "--consumer-property", "sasl.mechanizm=PLAIN")
    assert "sasl.mechanizm is not supported; do you mean sasl.mechanism?" in misspelt.err
    wrong = call(
        broker, *args, "--consumer.config", broker.file(), "--command-property", "security.protocol=X"
    )
    assert wrong.code == 1
    assert call(broker, "produce", "orders", *given, "--producer-property", "linger.ms=1", stdin="").err == (
        "--producer-property linger.ms is unknown and ignored.\n"
    )


def test_denied_users_and_wrong_passwords_have_different_errors(
    broker: SecuredBroker, tmp_path: Path
) -> None:
    denied = broker.call("acls", "list", user="bob")
    assert (denied.code, "CLUSTER_AUTHORIZATION_FAILED" in denied.err) == (1, True)
    text = Path(broker.file()).read_text().replace(ALICE_PASSWORD, "wrong")
    wrong = call(broker, "topics", "list", "--command-config", properties(tmp_path / "wrong", text))
    assert wrong.code == 1
    assert "Invalid username or password" in wrong.err
    assert "Check the credentials and certificates" in wrong.err


def test_explain_reads_a_secured_cluster(broker: SecuredBroker, tmp_path: Path) -> None:
    where = (broker.address, "--command-config", broker.file())
    warehouse = ("--warehouse", str(tmp_path / "w"))
    shown = call(None, "explain", *where, *warehouse, "--json")
    assert shown.code == 0, shown
    assert {json.loads(line)["group"] for line in shown.out.splitlines()} >= {"billing"}
    for command in ("report", "tables", "transactions", "deliveries"):
        out = ("--out", str(tmp_path / command)) if command in ("report", "tables") else ()
        found = call(None, "explain", command, *where, *warehouse, *out)
        assert "cannot connect" not in found.err, found
        assert "Traceback" not in found.err
    impatient = properties(tmp_path / "plain", "default.api.timeout.ms=300")
    without = call(None, "explain", broker.address, "--command-config", impatient)
    assert without.code == 1
    assert "one with TLS or SASL needs --command-config FILE" in without.err


def run_until(command: Sequence[str], broker: SecuredBroker, expected: str) -> str:
    """Start a command as alice, end it once it has printed `expected`, and return what it printed."""
    environment = os.environ | {"KONVENE_COMMAND_CONFIG": broker.file(), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        [sys.executable, "-m", "konvene", *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, env=environment,
    ) as process:  # fmt: skip
        limit = threading.Timer(60, process.kill)
        limit.start()
        assert process.stdout is not None
        printed = []
        for line in process.stdout:
            printed.append(line)
            if expected in line:
                process.send_signal(signal.SIGTERM)
                break
        printed += process.stdout
        limit.cancel()
    return "".join(printed)


def test_commands_that_go_on_until_they_are_ended(broker: SecuredBroker) -> None:
    watch = ("groups", "describe", "billing", "--watch", "0.1", "--bootstrap-server", broker.address)
    assert "billing" in run_until(watch, broker, "orders")
    follow = ("explain", "follow", broker.address, "--interval", "0.1")
    assert "Following; " in run_until(follow, broker, "Following; ")
