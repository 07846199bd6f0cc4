"""Kafka's tools with `--command-config` over SASL_SSL print the same for konvene as for Kafka.

The transcripts, `tools/*.txt`, are those of tests/against/tools.py. AS_dora is the properties file of dora,
AS_TOKEN that of the delegation token that was created last, whose HMAC is HMAC. The broker is killed between
the two transcripts.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from difflib import unified_diff
from pathlib import Path
from typing import Any

import pytest

from ..brokers import HOST, Broker
from ..test_tools import tools_are_missing
from ..tools import ToolResult, Tools, read, replay, written
from .cluster import SecuredCluster, secured_cluster

pytestmark = pytest.mark.java

TRANSCRIPTS = Path(__file__).parent / "tools"
RIGHTS = {
    "operator": ("ALL cluster", "ALL topic:*", "ALL group:*"),
    "dora": ("READ,WRITE topic:sales", "READ group:workers"),
}
TOKEN = re.compile(r"^(?P<id>[\w-]{22})\s+(?P<hmac>\S+)\s+User:", re.MULTILINE)
DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d")
REQUEST = re.compile(r"Request Request\(.*\) needs \w+ permission\.")
"""Kafka's controller describes a forwarded request, with its addresses in memory."""
DENIED = "Cluster authorization failed."
SPACES = re.compile(r"(?<=\S) {2,}(?=\S)")


@dataclass
class Door:
    """The broker as its SASL_SSL listener's clients see it."""

    broker: Broker
    port: int

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.port}"

    def __getattr__(self, name: str) -> Any:
        return getattr(self.broker, name)


class SecuredTools(Tools):
    """Tools of users; a token's values have placeholders in what they print."""

    def __init__(self, log: Path, cluster: SecuredCluster) -> None:
        super().__init__(log)
        self.cluster = cluster
        self.token = {"id": "", "hmac": ""}

    def run(self, broker: Broker, line: str, given: str = "") -> ToolResult:
        result = super().run(broker, line, given)
        found = TOKEN.search(result.out)
        if found and "--create" in line:
            self.token = found.groupdict()
        return ToolResult(self._plain(result.out), self._plain(result.err), result.status)

    def _plain(self, text: str) -> str:
        for name, value in self.token.items():
            text = text.replace(value, name.upper()) if value else text
        text = text.replace(f"{self.cluster.directory}/", "")
        return SPACES.sub(" ", REQUEST.sub(DENIED, DATE.sub("DATE", text)))

    def _meant(self, arg: str, broker: Broker) -> str:
        if arg == "HMAC":
            return self.token["hmac"]
        if not arg.startswith("AS_"):
            return super()._meant(arg, broker)
        user = arg.removeprefix("AS_")
        options = self.cluster.scram(user).given
        if user == "TOKEN":
            options = replace(options, username=self.token["id"], password=self.token["hmac"])
        path = self.cluster.directory / f"{user}.properties"
        text = options.properties
        path.write_text(text.replace('";', '" tokenauth="true";') if user == "TOKEN" else text)
        return str(path)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SecuredCluster]:
    missing = tools_are_missing()
    if missing:
        pytest.skip(f"Kafka's tools are missing: {missing}")
    with secured_cluster(tmp_path / "cluster") as cluster:
        cluster.add_users("operator")
        for user, rights in RIGHTS.items():
            cluster.allow(user, *rights)
        yield cluster


def test_tools_of_users_print_what_they_print_for_kafka(cluster: SecuredCluster, tmp_path: Path) -> None:
    """Credentials and tokens that they make are used, also after the broker is killed, and end when they are
    deleted."""
    door: Any = Door(cluster.broker, cluster.ports["CLIENTS"])
    tools = SecuredTools(tmp_path / "tools.log", cluster)
    differences: list[str] = []
    try:
        for path in sorted(TRANSCRIPTS.glob("*.txt")):
            prose, steps = read(path)
            replayed = replay(steps, tools, door, 5 if cluster.broker.name == "kafka" else 0)
            if os.environ.get("KONVENE_REWRITE"):
                path.write_text(written(prose, replayed))
            expected, now = written(prose, steps).splitlines(), written(prose, replayed).splitlines()
            differences += unified_diff(expected, now, "kafka", cluster.broker.name, lineterm="", n=2)
            cluster.broker.kill9()
            cluster.broker.start(120)
    finally:
        tools.end()
    if differences and not os.environ.get("KONVENE_REWRITE"):
        pytest.fail("\n".join(differences), pytrace=False)
