"""How tests call commands: as a shell would, without one."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from click.testing import CliRunner
from tests.client.scripted import ScriptedBroker

from konvene.cli.app import konvene


class Said(NamedTuple):
    """What a command printed and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[list[str]]:
        """The output's lines, each as its words."""
        return [line.split() for line in self.out.splitlines()]


def call(broker: ScriptedBroker | None, *words: str, stdin: bytes | str | None = None) -> Said:
    """Run `konvene` with these words, against `broker` where there is one."""
    where = [] if broker is None else ["--bootstrap-server", broker.address]
    result = CliRunner().invoke(konvene, [*words, *where], input=stdin, prog_name="konvene")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Said(result.exit_code, result.stdout, result.stderr)
