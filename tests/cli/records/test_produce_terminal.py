"""`konvene produce` in a terminal: prompts, Ctrl-D and Ctrl-C."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from typing import Any

from tests.cli.records.test_produce_consume import produce_response, produced_records, producing_broker
from tests.cli.terminal import CTRL_D, TIMEOUT_S, Terminal, terminal
from tests.client.scripted import ScriptedBroker


def produce(broker: ScriptedBroker, *args: str) -> Any:
    return terminal("produce", "--bootstrap-server", broker.address, "--topic", "t", *args)


def type_record(shell: Terminal, text: str) -> None:
    """Type a line at the prompt."""
    shell.wait_for(">")
    shell.type(f"{text}\n")


def test_each_record_has_a_prompt_and_ctrl_d_ends_the_input() -> None:
    with producing_broker() as broker, produce(broker, "--json") as shell:
        type_record(shell, "one")
        type_record(shell, "two")
        shell.wait_for(">")
        shell.type(CTRL_D)
        assert shell.wait() == 0
        assert shell.process.stdout is not None
        assert json.loads(shell.process.stdout.read())["records"] == 2
        assert produced_records(broker) == [(None, b"one"), (None, b"two")]
    assert shell.screen == ">one\n>two\n>\n"


def test_ctrl_c_at_the_prompt_keeps_the_written_records() -> None:
    """The reading thread still waits for input when the process ends."""
    with producing_broker() as broker:
        acknowledged = threading.Event()

        def respond(request: Any) -> Any:
            acknowledged.set()
            return produce_response(request)

        broker.answers["Produce"] = [respond]
        with produce(broker) as shell:
            type_record(shell, "one")
            shell.wait_for(">")
            assert acknowledged.wait(TIMEOUT_S)
            shell.interrupt()
            assert shell.wait() == 130
        assert produced_records(broker) == [(None, b"one")]
    assert shell.screen.endswith("Interrupted: 1 record written to t.\n")
    assert "Fatal" not in shell.screen


def test_ctrl_c_before_any_record_exits_cleanly() -> None:
    with producing_broker() as broker, produce(broker) as shell:
        shell.wait_for(">")
        shell.interrupt()
        assert shell.wait() == 130
    assert shell.screen == ">\nInterrupted: 0 records written to t.\n"


def test_ctrl_c_waits_for_the_records_in_flight() -> None:
    """The response arrives after the interrupt: its record counts as written."""
    requested, release = threading.Event(), threading.Event()

    def respond(request: Any) -> Any:
        requested.set()
        assert release.wait(TIMEOUT_S)
        return produce_response(request)

    with producing_broker() as broker:
        broker.answers["Produce"] = [respond]
        with produce(broker) as shell:
            type_record(shell, "one")
            assert requested.wait(TIMEOUT_S)
            shell.interrupt()
            shell.wait_for("waiting for 1 acknowledgement;")
            release.set()
            assert shell.wait() == 130
    assert shell.screen.endswith("Interrupted: 1 record written to t.\n")


def test_second_ctrl_c_reports_the_records_without_an_acknowledgement() -> None:
    """The second line waits for the first one."""
    requested = threading.Event()

    def respond(request: Any) -> None:
        requested.set()

    with producing_broker() as broker:
        broker.answers["Produce"] = [respond]
        with produce(broker) as shell:
            type_record(shell, "one")
            type_record(shell, "two")
            shell.wait_for(">")
            assert requested.wait(TIMEOUT_S)
            shell.interrupt()
            shell.wait_for("waiting for 1 acknowledgement;")
            shell.interrupt()
            assert shell.wait() == 130
    assert shell.screen.endswith(
        "Interrupted: 0 records written to t. 1 line not sent. 1 record without an acknowledgement may be "
        "lost.\n"
    )
    assert "Traceback" not in shell.screen and "never retrieved" not in shell.screen


def test_interrupt_while_a_pipe_is_open_exits_cleanly() -> None:
    """Standard input is a pipe whose writer is silent; there is no prompt."""
    with producing_broker() as broker:
        acknowledged = threading.Event()

        def respond(request: Any) -> Any:
            acknowledged.set()
            return produce_response(request)

        broker.answers["Produce"] = [respond]
        args = ["produce", "--bootstrap-server", broker.address, "--topic", "t"]
        with subprocess.Popen(
            [sys.executable, "-m", "konvene", *args],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        ) as process:  # fmt: skip
            assert process.stdin is not None and process.stdout is not None and process.stderr is not None
            process.stdin.write(b"one\n")
            process.stdin.flush()
            assert acknowledged.wait(TIMEOUT_S)
            process.send_signal(2)
            error = process.stderr.read()
            assert process.wait(TIMEOUT_S) == 130
    assert error.endswith(b"Interrupted: 1 record written to t.\n")


def test_closed_standard_input_is_an_error() -> None:
    completed = subprocess.run(
        ["bash", "-c", f'exec "{sys.executable}" -m konvene produce --topic t <&-'],
        capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    assert completed.returncode == 1
    assert completed.stderr.startswith("konvene: standard input is closed\n")
