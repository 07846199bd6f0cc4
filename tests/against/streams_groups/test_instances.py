"""Instances and threads come, leave, die and are rolled, and the counts stay right; standbys take over; an
application that asks for its own end is ended everywhere."""

from collections import Counter

import pytest

from ..clients import eventually
from .app import SESSION_MS, Application, Instance, active, instance_of, names

pytestmark = pytest.mark.java

PARTITIONS = 6
TASKS = names(0, PARTITIONS)


class Counting:
    """An application that counts keys, and the truth that it is to find."""

    def __init__(self, app: Application) -> None:
        self.app = app
        self.truth: Counter[str] = Counter()
        app.does("keys", lines=PARTITIONS, counts=1)

    def more(self, records: int = 60) -> None:
        rows = [(None, f"k{n % 25}", f"{n}") for n in range(records)]
        self.truth.update(key for _, key, _ in rows)
        self.app.write("lines", rows)

    def is_right(self) -> None:
        self.app.has_counted(self.truth)
        self.app.has_committed("lines")


@pytest.fixture
def counting(app: Application) -> Counting:
    return Counting(app)


def test_one_becomes_three_and_one_again(counting: Counting, app: Application) -> None:
    """Each time the tasks are shared evenly and the counts go on. A clean leave is sent to the broker, so
    that no one waits for the session timeout of 45 seconds."""
    counting.more()
    one = app.start("one")
    app.is_shared_by(one, tasks=TASKS)
    counting.is_right()
    two, three = app.start("two"), app.start("three")
    app.is_shared_by(one, two, three, tasks=TASKS)
    counting.more()
    counting.is_right()
    one.close()
    app.is_shared_by(two, three, tasks=TASKS, within_s=20)
    two.close()
    app.is_shared_by(three, tasks=TASKS, within_s=20)
    counting.more()
    counting.is_right()
    three.close()
    description = app.becomes("Empty", 0)
    assert [subtopology["id"] for subtopology in description["subtopologies"]] == ["0"]
    app.is_explained(
        ("member-joined", one), ("topology-initialized", one), ("member-joined", two),
        ("member-left", one), ("member-left", two), ("member-left", three),
    )  # fmt: skip


def test_a_newcomer_moves_no_more_than_it_is_given(counting: Counting, app: Application) -> None:
    """Tasks are sticky: of two instances with three tasks each, each gives one to a third."""
    one, two = app.start("one"), app.start("two")
    before = app.is_shared_by(one, two, tasks=TASKS)
    three = app.start("three")
    after = app.is_shared_by(one, two, three, tasks=TASKS)
    assert after[one.name] < before[one.name]
    assert after[two.name] < before[two.name]
    assert [len(held) for held in after.values()] == [2, 2, 2]


def test_those_who_start_together_wait_for_each_other(counting: Counting, app: Application) -> None:
    """With an initial delay no member has a task until it is over; then each has its share, and no task has
    moved."""
    app.is_set(initial_rebalance_delay_ms=4000)
    instances = [app.start(name) for name in ("one", "two", "three")]
    description = app.becomes("Assigning", 3)
    assert [member["assignment"]["active"] for member in description["members"]] == [[], [], []]
    assert app.describe()["target_epoch"] < description["group_epoch"]
    shares = app.is_shared_by(*instances, tasks=TASKS)
    assert [len(held) for held in shares.values()] == [2, 2, 2]
    assert app.describe()["group_epoch"] == description["group_epoch"]


def test_threads_are_members(counting: Counting, app: Application) -> None:
    """Three threads of one instance and one of another are four members of two processes, with at most two of
    six tasks each. Whether a thread has none depends on the order of joins, as in Kafka: tasks move to the
    process with the fewest tasks per thread."""
    counting.more()
    one = app.start("one", **{"num.stream.threads": 3})
    two = app.start("two")
    description = app.becomes("Stable", 4)

    def spread() -> bool:
        nonlocal description
        description = app.describe()
        sizes = sorted(len(member["assignment"]["active"]) for member in description["members"])
        return description["state"] == "Stable" and sizes in ([1, 1, 2, 2], [0, 2, 2, 2])

    eventually("fair shares", spread, 20, among=[app.apps])
    processes = {instance_of(member): member["process_id"] for member in description["members"]}
    assert len(set(processes.values())) == 2
    assert all(member["process_id"] == processes[instance_of(member)] for member in description["members"])
    held = active(description["members"])
    assert set().union(*held.values()) == TASKS

    def at_work() -> bool:
        return {instance.name: instance.tasks() for instance in (one, two)} == held

    eventually("work on what was given", at_work, 20, among=[app.apps])
    counting.is_right()


def test_a_rolling_restart(counting: Counting, app: Application) -> None:
    """Each of three instances in turn is closed and replaced while records come in: nothing is lost, nothing
    is counted twice, and in the end all tasks are shared again."""
    instances = [app.start(name) for name in ("a", "b", "c")]
    app.is_shared_by(*instances, tasks=TASKS)
    for number, instance in enumerate(list(instances)):
        counting.more()
        instance.close()
        counting.more()
        instances[number] = app.start(f"{instance.name[-1]}-again")
        instances[number].runs()
    counting.more()
    app.is_shared_by(*instances, tasks=TASKS)
    counting.is_right()
    assert sum(app.ends("counts-changelog").values()) == sum(counting.truth.values())


def test_a_killed_instance_is_missed_when_its_session_is_over(counting: Counting, app: Application) -> None:
    """A killed instance sends no leave: the other one takes over its tasks after the group's session timeout,
    restores their state, and counts on."""
    app.is_set(session_timeout_ms=SESSION_MS)
    counting.more()
    one, two = app.start("one", alone=True), app.start("two")
    app.is_shared_by(one, two, tasks=TASKS)
    counting.is_right()
    one.kill()
    app.is_shared_by(two, tasks=TASKS)
    counting.more()
    counting.is_right()
    app.is_explained(("member-joined", two), ("session-expired", one))


def test_nothing_is_lost_when_an_instance_is_killed_at_work(counting: Counting, app: Application) -> None:
    """At least once: records that were read but not committed are read again by the task's next owner, so
    that no key has a lower count than its records."""
    app.is_set(session_timeout_ms=SESSION_MS)
    one, two = app.start("one", alone=True), app.start("two")
    app.is_shared_by(one, two, tasks=TASKS)
    counting.more(2000)
    eventually("first counts", lambda: app.counts().total() > 0, 20, among=[one.process, app.apps])
    counting.more(2000)
    one.kill()
    counting.more(500)
    app.is_shared_by(two, tasks=TASKS)
    app.has_committed("lines")
    counted = app.counts()
    assert {key: counted[key] for key, n in counting.truth.items() if counted[key] < n} == {}
    assert set(counted) == set(counting.truth)


def test_an_instance_that_slept_too_long(counting: Counting, app: Application) -> None:
    """Its session ends while its whole machine stands still, and the other one has its tasks. When it wakes
    it is fenced, gives up what it had and is given a share again: nothing is lost, and what it had read and
    committed before is not counted again."""
    app.is_set(session_timeout_ms=SESSION_MS)
    one, two = app.start("one", alone=True), app.start("two")
    app.is_shared_by(one, two, tasks=TASKS)
    counting.more()
    counting.is_right()
    one.process.sleep()
    app.is_shared_by(two, tasks=TASKS)
    counting.more()
    counting.is_right()
    one.process.wake()
    app.is_shared_by(one, two, tasks=TASKS)
    counting.more()
    counting.is_right()
    assert one.of("error") == []
    app.is_explained(("session-expired", one), ("member-joined", one))


def test_standbys_take_over(counting: Counting, app: Application) -> None:
    """With one standby for each task, no instance has both copies of a task. When an instance is killed, its
    tasks go to instances with standbys, as far as shares stay even. The counts are right, and lost standbys
    are replaced."""
    app.is_set(session_timeout_ms=SESSION_MS, num_standby_replicas=1)
    counting.more()
    instances = [app.start("one", alone=True), app.start("two"), app.start("three")]
    app.is_shared_by(*instances, tasks=TASKS)
    have_standbys(instances)
    counting.is_right()
    one, *others = instances
    lost, kept = one.tasks(), {other.name: other.tasks() | other.standbys() for other in others}
    eventually("copies without lag", lambda: all(caught_up(each) for each in instances), 20, among=[app.apps])
    one.kill()
    app.is_shared_by(*others, tasks=TASKS)
    for other in others:
        assert other.tasks() & lost & kept[other.name] or not lost & kept[other.name]
    have_standbys(others)
    counting.more()
    counting.is_right()


def test_standbys_for_a_group_at_work(counting: Counting, app: Application) -> None:
    """The group's setting is changed while instances work: each makes its copies, and when they are no longer
    wanted, gives them up. No task moves for that."""
    one, two = app.start("one"), app.start("two")
    before = app.is_shared_by(one, two, tasks=TASKS)
    counting.more()
    app.is_set(num_standby_replicas=1)
    have_standbys([one, two])
    app.is_set(num_standby_replicas=0)
    eventually("no standbys", lambda: not one.standbys() | two.standbys(), 20, among=[app.apps])
    assert app.is_shared_by(one, two, tasks=TASKS) == before
    counting.is_right()
    app.is_explained(("assignment-configs-changed", None), ("assignment-configs-changed", None))


def have_standbys(instances: list[Instance]) -> None:
    """Wait until each task has one standby, in another process than its own."""

    def spread() -> bool:
        standbys = [instance.standbys() for instance in instances]
        once = sorted(task for held in standbys for task in held) == sorted(TASKS)
        apart = all(not held & instance.tasks() for held, instance in zip(standbys, instances, strict=True))
        return once and apart

    eventually("standby of each task", spread, 30, among=[instance.process for instance in instances])


def caught_up(instance: Instance) -> bool:
    lags = instance.ask("lags")
    return len(lags) >= len(instance.tasks() | instance.standbys()) and not any(lags.values())


def test_one_that_fails_may_end_all(app: Application) -> None:
    """An instance fails on a record and requests the shutdown of the application: the broker notifies the
    others, and all end. An instance started later works if the record was deleted."""
    app.does("upper", lines=3, capitals=1)
    instances = [app.start(name, on_error="SHUTDOWN_APPLICATION") for name in ("one", "two", "three")]
    shares = app.is_shared_by(*instances, tasks=names(0, 3))
    (whose,) = (name for name, held in shares.items() if "0_1" in held)
    app.write("lines", [(1, None, "poison")])
    for instance in instances:
        instance.fails()
    assert [instance.name for instance in instances if instance.of("error")] == [whose]
    app.becomes("Empty", 0)
    app.apps.call("delete_records", offsets=[[app.topic("lines"), 1, 1, ""]])
    later = app.start("later")
    app.is_shared_by(later, tasks=names(0, 3))
    app.write("lines", [(1, None, "food")])
    app.makes("capitals", ["FOOD"])


def test_one_that_fails_alone_leaves_its_tasks_to_others(app: Application) -> None:
    """The failing instance's client ends and the others take over its tasks; the record ends them in turn,
    and the last one leaves the group empty."""
    app.does("upper", lines=2, capitals=1)
    one, two = app.start("one"), app.start("two")
    app.is_shared_by(one, two, tasks=names(0, 2))
    app.write("lines", [(0, None, "poison")])
    assert "this was poison" in one.fails()
    assert "this was poison" in two.fails()
    app.becomes("Empty", 0)
