"""The examples of docs/security.md run against a secured broker of the fixture."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.commands import call
from tests.cli.secured import ALICE_PASSWORD, SecuredBroker, secured_broker
from tests.docs.pages import ROOT, blocks

from konvene.client import Cluster
from konvene.client.security import client_security
from konvene.configs import BrokerConfig
from konvene.configs.listeners import broker_listeners
from konvene.properties import properties_mapping

PAGE = ROOT / "docs" / "security.md"
EXAMPLES = [block for block in blocks() if block.page == PAGE]


@pytest.fixture(scope="module")
def broker() -> Iterator[SecuredBroker]:
    with secured_broker({"group.initial.rebalance.delay.ms": "0"}) as broker:
        broker.run("topics", "create", "orders")
        broker.run("produce", "orders", stdin="one\n")
        broker.run("consume", "orders", "--group", "billing", "--from-beginning", "--max-messages", "1")
        yield broker


def commands() -> list[str]:
    """Return the konvene commands of the page's shell examples, one by one."""
    examples = [block.text for block in EXAMPLES if block.language == "sh"]
    examples.append(PAGE.read_text("utf-8").partition("  ```sh\n")[2].partition("  ```")[0])
    lines = [line.strip() for text in examples for line in text.splitlines()]
    return [line for line in dict.fromkeys(lines) if line.startswith("konvene ")]


@pytest.mark.parametrize("line", commands())
def test_a_command_of_the_page(broker: SecuredBroker, line: str, tmp_path: Path) -> None:
    """As written, but for the address and the file."""
    words = shlex.split(line)[1:]
    words = [broker.address if word == "broker.example.org:9094" else word for word in words]
    words = [broker.file() if word == "client.properties" else word for word in words]
    result = call(None, *words) if broker.address in words else broker.call(*words)
    assert result.code == 0, result


def test_the_page_has_the_commands() -> None:
    assert len(commands()) >= 6


def test_properties_of_the_page() -> None:
    """Those of clients are accepted, those of the broker are settings that it has."""
    seen = 0
    for block in EXAMPLES:
        if block.language != "properties":
            continue
        given = properties_mapping(block.text, str(PAGE))
        seen += 1
        if "listeners" in given:
            assert broker_listeners(BrokerConfig.load(overrides=list(given.items()))[0])
        else:
            assert client_security(given).has_sasl
    assert seen == 4


def test_programs_of_the_page(broker: SecuredBroker) -> None:
    """The values of the examples connect, with the address, the password and the authority of the test."""
    authority = str(Path(broker.file()).parent / "ca.pem")
    made = 0
    for block in EXAMPLES:
        if block.language != "python" or "client_settings" not in block.text:
            continue
        text = block.text.replace("broker.example.org:9094", broker.address)
        text = text.replace("/etc/kafka/ca.pem", authority).replace("…", ALICE_PASSWORD)
        namespace: dict[str, object] = {}
        exec(compile(text, str(block), "exec"), namespace)
        assert isinstance(namespace["cluster"], Cluster)
        made += 1
    assert made == 2
