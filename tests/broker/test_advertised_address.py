"""The address that a broker advertises when it listens on all addresses."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from konvene.broker import advertised_address as addresses
from konvene.broker import app
from konvene.broker.advertised_address import NoReachableAddress, parse_advertised, reachable_host, shown
from konvene.configs import BrokerConfig


def machine(patch: pytest.MonkeyPatch, resolved: list[str], outbound: dict[int, str]) -> None:
    """Simulate a machine `box`: the addresses of its name, and its outbound address by family."""

    def getaddrinfo(name: str, *_: Any, **__: Any) -> list[Any]:
        assert name == "box"
        if not resolved:
            raise socket.gaierror("unknown name")
        return [
            (socket.AF_INET6 if ":" in each else socket.AF_INET, 1, 6, "", (each, 0)) for each in resolved
        ]

    patch.setattr(socket, "gethostname", lambda: "box")
    patch.setattr(socket, "getaddrinfo", getaddrinfo)
    patch.setattr(addresses, "_outbound_address", lambda family, _: outbound.get(family))


V4, V6 = socket.AF_INET, socket.AF_INET6


@pytest.mark.parametrize(
    ("listening", "resolved", "outbound", "expected"),
    [
        ("0.0.0.0", ["127.0.1.1", "10.1.2.3"], {V4: "10.9.9.9"}, "box"),
        ("0.0.0.0", ["127.0.1.1"], {V4: "10.9.9.9"}, "10.9.9.9"),
        ("0.0.0.0", [], {V4: "10.9.9.9"}, "10.9.9.9"),
        ("0.0.0.0", ["2001:4860::8"], {V4: "10.9.9.9", V6: "2001:4860::8"}, "10.9.9.9"),
        ("::", ["2001:4860::8"], {}, "box"),
        ("", ["::1", "fe80::1%eth0"], {V6: "2001:4860::8"}, "2001:4860::8"),
    ],
    ids=["name", "name-is-loopback", "unknown-name", "only-ipv6-name", "ipv6-name", "outbound-ipv6"],
)
def test_reachable_host(
    monkeypatch: pytest.MonkeyPatch,
    listening: str,
    resolved: list[str],
    outbound: dict[int, str],
    expected: str,
) -> None:
    """The host name if it resolves to an address of the network, else the outbound address."""
    machine(monkeypatch, resolved, outbound)
    assert reachable_host(listening) == expected


@pytest.mark.parametrize(
    ("resolved", "found"), [([], "does not resolve"), (["127.0.1.1"], "resolves to 127.0.1.1")]
)
def test_unknown_address_is_refused(monkeypatch: pytest.MonkeyPatch, resolved: list[str], found: str) -> None:
    machine(monkeypatch, resolved, {V4: "127.0.0.1"})
    with pytest.raises(NoReachableAddress) as raised:
        reachable_host("0.0.0.0")
    assert found in str(raised.value)
    assert "--advertise HOST[:PORT]" in str(raised.value)


def test_broker_without_known_address_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line with what to do, and no data directory."""
    machine(monkeypatch, [], {})
    assert app.serve(app.ServeOptions("0.0.0.0", 0, tmp_path / "data")) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("konvene: the address that clients connect to is not known: the host name box")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("broker", ("broker", 9092)),
        ("broker:19092", ("broker", 19092)),
        (" 10.0.0.1:1 ", ("10.0.0.1", 1)),
        ("[2001:db8::1]", ("2001:db8::1", 9092)),
        ("[2001:db8::1]:65535", ("2001:db8::1", 65535)),
    ],
)
def test_advertise_option(text: str, expected: tuple[str, int]) -> None:
    assert parse_advertised(text, 9092) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0.0.0.0", "no client can connect to 0.0.0.0"),
        ("[::]:9092", "no client can connect to ::"),
        ("", "no client can connect to an empty host"),
        (":9092", "no client can connect to an empty host"),
        ("broker:", "the port is a number from 1 to 65535"),
        ("broker:0", "the port is a number"),
        ("broker:65536", "the port is a number"),
        ("broker:x", "the port is a number"),
        ("2001:db8::1", "in brackets, as [2001:db8::1]:9092"),
        ("[2001:db8::1", "write [IPV6]:PORT"),
        ("[2001:db8::1]9092", "write [IPV6]:PORT"),
    ],
)
def test_invalid_advertise_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    """One line, exit code 2, and no data directory."""
    options = app.ServeOptions("0.0.0.0", 9092, tmp_path / "data", advertise=text)
    assert app.serve(options) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"konvene: --advertise {text}: ")
    assert message in line
    assert list(tmp_path.iterdir()) == []


def test_wildcard_cannot_be_advertised_by_a_setting(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in Kafka."""
    setting = ("advertised.listeners", "PLAINTEXT://0.0.0.0:9092")
    assert app.serve(app.ServeOptions(port=0, data_dir=tmp_path / "data", overrides=[setting])) == 1
    assert "advertised.listeners=PLAINTEXT://0.0.0.0:9092: no client can connect" in capsys.readouterr().err


def test_option_overrides_the_setting() -> None:
    config, _ = BrokerConfig.load(overrides=[("advertised.listeners", "PLAINTEXT://other:1")])
    assert app._address(config, "0.0.0.0", 9092, "broker") == ("0.0.0.0", 9092, "broker", 9092)
    assert app._address(config, "0.0.0.0", 9092) == ("0.0.0.0", 9092, "other", 1)
    assert app._address(config, None, None, "broker:5") == ("localhost", 9092, "broker", 5)


def test_addresses_as_text() -> None:
    assert [shown(host, 9092) for host in ("box", "", "0.0.0.0", "::1", "::")] == [
        "box:9092", "*:9092", "0.0.0.0:9092", "[::1]:9092", "[::]:9092",
    ]  # fmt: skip
