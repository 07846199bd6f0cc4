"""Read a group's rebalance history from `konvene groups history`, tolerantly and in one place.

The command prints JSON: one array, or one object with an array in it, or one object a line. Each rebalance
has a `generation` (for a consumer group its epoch) and `causes`, each with a `kind` and, where one member
caused it, its `member_id` and `client_id`. Only this file knows these names.
"""

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from .brokers import Broker


@dataclass(frozen=True)
class Cause:
    kind: str
    client_id: str | None
    member_id: str | None = None
    instance_id: str | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Rebalance:
    generation: int
    causes: tuple[Cause, ...]

    def __repr__(self) -> str:
        return f"{self.generation}: " + ", ".join(f"{cause.kind} {cause.client_id}" for cause in self.causes)


def history(broker: Broker, group: str) -> list[Rebalance]:
    """All rebalances of a group, oldest first."""
    words = [sys.executable, "-m", "konvene", "groups", "history"]
    words += ["--bootstrap-server", broker.bootstrap, "--group", group, "--json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, f"{' '.join(words[1:])}\n{done.stdout}\n{done.stderr}"
    return sorted(map(_rebalance, _rows(done.stdout)), key=lambda rebalance: rebalance.generation)


def _rows(text: str) -> list[dict[str, Any]]:
    try:
        document = json.loads(text)
    except ValueError:
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    if isinstance(document, dict):
        if "causes" in document:
            return [document]
        document = next(value for value in document.values() if isinstance(value, list))
    return list(document)


def _rebalance(row: dict[str, Any]) -> Rebalance:
    generation = next(
        row[name] for name in ("generation", "epoch", "group_epoch") if row.get(name) is not None
    )
    return Rebalance(int(generation), tuple(map(_cause, row.get("causes") or [row.get("cause")])))


def _cause(row: Any) -> Cause:
    if isinstance(row, str):
        return Cause(row, None)
    return Cause(
        kind=row["kind"],
        client_id=row.get("client_id"),
        member_id=row.get("member_id"),
        instance_id=row.get("instance_id") or row.get("group_instance_id"),
        reason=row.get("reason"),
    )


def missing(rebalances: list[Rebalance], wanted: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the (kind, client id) pairs that the history does not contain in this order.

    One rebalance may match two pairs, since members that join together cause one.
    """
    causes = [{(cause.kind, cause.client_id) for cause in rebalance.causes} for rebalance in rebalances]
    at, unmet = 0, []
    for wish in wanted:
        found = next((i for i in range(at, len(causes)) if wish in causes[i]), None)
        if found is None:
            unmet.append(wish)
        else:
            at = found
    return unmet
