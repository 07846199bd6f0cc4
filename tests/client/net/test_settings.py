"""Bootstrap servers and command config files, with the formats of Kafka's tools."""

from __future__ import annotations

from pathlib import Path

import pytest

from konvene.client.errors import Misconfigured
from konvene.client.net.settings import ClientSettings, load_command_config, parse_bootstrap


@pytest.mark.parametrize(
    "text, servers",
    [
        ("localhost:9092", [("localhost", 9092)]),
        ("a:1, b:2,", [("a", 1), ("b", 2)]),
        ("kafka.example.org", [("kafka.example.org", 9092)]),
        ("[::1]:9093", [("::1", 9093)]),
        ("PLAINTEXT://h:5", [("h", 5)]),
    ],
)
def test_servers(text: str, servers: list[tuple[str, int]]) -> None:
    assert parse_bootstrap(text) == servers


@pytest.mark.parametrize("text", ["", ",", "host:", "host:port", "host:0", "host:70000", "::1:9092", "a b:1"])
def test_invalid_servers_are_rejected(text: str) -> None:
    with pytest.raises(Misconfigured, match="write host:port"):
        parse_bootstrap(text)


def test_a_command_config_sets_supported_settings_and_ignores_others(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("client.id=me\nrequest.timeout.ms=5\nsecurity.protocol=PLAINTEXT\nfetch.min.bytes=1\n")
    assert load_command_config(file) == ClientSettings(client_id="me", request_timeout_ms=5)


@pytest.mark.parametrize(
    "text, message",
    [
        ("security.protocol=SASL_SSL", "sasl.mechanism is not set, and GSSAPI by default"),
        ("request.timeout.ms=soon", "request.timeout.ms=soon is not a number of milliseconds"),
    ],
)
def test_invalid_command_configs_are_rejected(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "client.properties"
    file.write_text(text)
    with pytest.raises(Misconfigured, match=message):
        load_command_config(file)


def test_the_error_names_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"none\.properties cannot be read"):
        load_command_config(tmp_path / "none.properties")
