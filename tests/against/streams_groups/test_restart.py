"""The broker is killed under an application and comes back: what it answered, it remembers."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..clients import fleet_of
from ..conftest import a_broker
from .app import Application, Stage, active, names
from .conftest import SETTINGS

pytestmark = pytest.mark.java

TASKS = names(0, 4) | names(1, 4)
LINES = 400


@pytest.fixture
def own_stage(tmp_path: Path) -> Iterator[Stage]:
    broker = a_broker(tmp_path / "broker", SETTINGS)
    broker.start()
    try:
        with fleet_of(broker.bootstrap, tmp_path / "clients") as fleet:
            yield Stage(broker, fleet, tmp_path)
    finally:
        broker.kill9()


def test_an_application_outlives_its_broker(own_stage: Stage, tmp_path: Path) -> None:
    """Two instances count words when the broker is killed with unread lines. It is back within their
    sessions: no member is fenced, no task moves, no epoch changes, and no word is lost or counted twice. A
    third instance then gets its share."""
    app = Application("survivor", own_stage, tmp_path)
    app.does("words", lines=4, counts=1)
    one, two = app.start("one"), app.start("two")
    before = app.is_shared_by(one, two, tasks=TASKS)
    description = app.describe()
    app.write("lines", [(n % 4, None, "some words some more") for n in range(LINES)])
    own_stage.broker.kill9()
    own_stage.broker.start()
    app.has_counted(Counter({"some": 2 * LINES, "words": LINES, "more": LINES}), 60)
    assert {instance.name: instance.tasks() for instance in (one, two)} == before
    after = app.becomes("Stable", 2)
    assert active(after["members"]) == before
    assert epochs(after) == epochs(description)
    app.has_committed("lines", "words-repartition")
    assert sum(app.ends("counts-changelog").values()) == 4 * LINES
    three = app.start("three")
    app.is_shared_by(one, two, three, tasks=TASKS)
    app.end()
    assert "ERROR" not in one.states() + two.states() + three.states()


def epochs(description: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in description.items() if name.endswith("_epoch")}
