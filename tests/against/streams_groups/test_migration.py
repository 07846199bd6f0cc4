"""A classic application becomes a streams group, and the other way round, once the group is empty: offsets
and counts stay. While it has members, the other protocol is rejected.
"""

from collections import Counter
from typing import Any

import pytest

from .app import Application, Instance, names

pytestmark = pytest.mark.java

TASKS = names(0, 2) | names(1, 2)
CLASSIC = {"group.protocol": "classic"}
ROUND = Counter({"some": 10, "words": 10})


def kind(app: Application) -> str:
    rows = {row["group"]: row["type"] for row in app.apps.call("list_groups")}
    return str(rows[app.name])


def counts_on(app: Application, name: str, rounds: int, **settings: Any) -> Instance:
    """An instance that counts another ten lines, on top of what was counted before."""
    app.write("lines", [(n % 2, None, "some words") for n in range(10)])
    instance = app.start(name, **settings)
    app.has_counted(Counter({word: rounds * n for word, n in ROUND.items()}))
    app.has_committed("lines", "words-repartition")
    return instance


def test_from_classic_to_streams_and_back(app: Application) -> None:
    """Each kind goes on from the offsets that the other has committed, with the counts of its changelog and
    the topics that it has made."""
    app.does("words", lines=2, counts=1)
    counts_on(app, "classic", 1, **CLASSIC).close()
    assert kind(app) == "Classic"
    streams = counts_on(app, "streams", 2)
    app.is_shared_by(streams, tasks=TASKS)
    assert kind(app) == "Streams"
    streams.close()
    app.becomes("Empty", 0)
    counts_on(app, "again", 3, **CLASSIC).close()
    assert kind(app) == "Classic"
    counts_on(app, "at-last", 4).close()
    assert kind(app) == "Streams"


def test_no_streams_member_in_a_classic_group(app: Application) -> None:
    app.does("words", lines=2, counts=1)
    classic = counts_on(app, "classic", 1, **CLASSIC)
    other = app.start("streams")
    assert "GroupIdNotFoundException" in other.fails()
    classic.runs()
    assert kind(app) == "Classic"


def test_no_classic_member_in_a_streams_group(app: Application) -> None:
    app.does("words", lines=2, counts=1)
    streams = counts_on(app, "streams", 1)
    other = app.start("classic", **CLASSIC)
    assert "InconsistentGroupProtocolException" in other.fails()
    app.is_shared_by(streams, tasks=TASKS)
    assert kind(app) == "Streams"
