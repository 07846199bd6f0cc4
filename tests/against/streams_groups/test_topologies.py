"""What applications can do: no state, counts behind a repartition topic, joins, several subtopologies."""

from collections import Counter

import pytest

from .app import Application, names

pytestmark = pytest.mark.java

LINES = ["epoch", "epoch member", "member epoch task", "task", "epoch"]


def words(lines: list[str]) -> Counter[str]:
    return Counter(word for line in lines for word in line.split())


def test_no_state(app: Application) -> None:
    """A line in, a line out: one subtopology, a task for each partition, and no topic but those that there
    were."""
    app.does("upper", lines=4, capitals=1)
    app.write("lines", [(n % 4, None, f"line {n}") for n in range(100)])
    one = app.start("one")
    app.makes("capitals", [f"LINE {n}" for n in range(100)])
    app.is_shared_by(one, tasks=names(0, 4))
    app.has_committed("lines")
    internal = set(app.apps.call("list_topics")) - {app.topic("lines"), app.topic("capitals")}
    assert [topic for topic in internal if topic.startswith(app.name)] == []


def test_words_are_counted(app: Application) -> None:
    """Two subtopologies with a topic between them: every word of every line is counted once, those written
    before the application began and those after."""
    app.does("words", lines=4, counts=1)
    app.write("lines", [(n % 4, None, line) for n, line in enumerate(LINES * 8)])
    one = app.start("one")
    app.has_counted(words(LINES * 8))
    app.is_shared_by(one, tasks=names(0, 4) | names(1, 4))
    app.write("lines", [(n % 4, None, line) for n, line in enumerate(LINES * 12)])
    app.has_counted(words(LINES * 20))
    app.has_committed("lines", "words-repartition")


def test_a_join(app: Application) -> None:
    """Each left value meets each right value of its key, once: a task reads the same partition of both
    topics."""
    app.does("pairs", left=3, right=3, pairs=1)
    app.write("left", [(None, f"k{n % 7}", f"l{n}") for n in range(35)])
    app.write("right", [(None, f"k{n % 7}", f"r{n}") for n in range(21)])
    one, two = app.start("one"), app.start("two")
    app.makes("pairs", [f"l{a}+r{b}" for a in range(35) for b in range(21) if a % 7 == b % 7])
    app.is_shared_by(one, two, tasks=names(0, 3))


def test_a_join_with_a_topic_that_is_made_for_it(app: Application) -> None:
    """The left records need a key first. The topic between is given as many partitions as the topic that it
    is joined with has, which is more than its own source has; so each pair is made."""
    app.does("orders", left=2, right=5, pairs=1)
    app.write("left", [(n % 2, None, f"c{n % 6}:order{n}") for n in range(24)])
    app.write("right", [(None, f"c{n}", f"name{n}") for n in range(6)])
    one = app.start("one")
    app.makes("pairs", [f"c{n % 6}:order{n}+name{n % 6}" for n in range(24)])
    app.is_shared_by(one, tasks=names(0, 2) | names(1, 5))
    made = app.apps.call("describe_topics", topics=[app.topic("by-customer-repartition")])
    assert [topic["partitions"] for topic in made.values()] == [5]


def test_two_subtopologies_of_different_sizes(app: Application) -> None:
    """Each has as many tasks as its own topic has partitions, and both instances work on both."""
    app.does("both", lines=2, more=5, capitals=1, counts=1)
    app.write("lines", [(n % 2, None, f"line {n}") for n in range(20)])
    app.write("more", [(None, f"k{n % 3}", "x") for n in range(30)])
    one, two = app.start("one"), app.start("two")
    app.is_shared_by(one, two, tasks=names(0, 2) | names(1, 5))
    app.makes("capitals", [f"LINE {n}" for n in range(20)])
    app.has_counted(Counter({f"k{n}": 10 for n in range(3)}))
