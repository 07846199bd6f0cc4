"""A group of members of different libraries lives its life once (stories.py), and many tests ask about it.

All who ask are in this file, so that one worker plays the stories and no other one has to.
"""

from collections.abc import Iterable

import pytest

from .brokers import Broker
from .conftest import java_is_missing
from .history import history, missing
from .stories import (
    CASTS,
    Cast,
    Stories,
    Story,
    commits,
    delivered,
    gaps,
    moves_within,
    read_again,
    shared_holds,
    steps_back,
)

EACH_CAST = [
    pytest.param(cast, id=str(cast), marks=[pytest.mark.java] if "java" in cast.libraries else [])
    for cast in CASTS
]


def selected_casts(items: Iterable[pytest.Item]) -> list[Cast]:
    """Return the casts of the selected tests that are available here, in their order."""
    calls = [getattr(item, "callspec", None) for item in items if item.path.samefile(__file__)]
    casts = {call.params["cast"]: None for call in calls if call and "cast" in call.params}
    return [cast for cast in casts if "java" not in cast.libraries or not java_is_missing()]


@pytest.fixture(scope="module", autouse=True)
def _begin_stories(stories: Stories, request: pytest.FixtureRequest) -> None:
    """All begin at once, since most of a story is waiting."""
    stories.begin(selected_casts(request.session.items))


@pytest.fixture
def story(cast: Cast, stories: Stories, request: pytest.FixtureRequest) -> Story:
    return stories.of(cast, request)


@pytest.mark.parametrize("cast", EACH_CAST)
class TestAStory:
    """Three come one by one, one leaves, one is killed with its session of six seconds."""

    def test_each_step_leaves_the_group_whole(self, story: Story) -> None:
        """After each change the living soon hold all partitions, evenly: the story waits for that."""
        assert len(story.members) == 3

    def test_no_acknowledged_value_is_lost(self, story: Story) -> None:
        """Each value acknowledged to a producer has been delivered to some member."""
        assert len(story.producer.acked()) > 500
        assert set(story.producer.acked()) - delivered(story) == set()
        assert story.producer.of("failed") == []

    def test_the_log_is_read_without_gaps(self, story: Story) -> None:
        """Within one assignment offsets follow each other; together the members have read each offset."""
        assert gaps(story.members) == []
        read = {(r["topic"], r["partition"], r["offset"]) for m in story.members for r in m.records()}
        assert {(t, p, o) for (t, p), end in story.log_ends.items() for o in range(end)} - read == set()

    def test_nothing_committed_is_read_again(self, story: Story) -> None:
        """A new owner begins at the group's commit: only what was not yet committed may come twice."""
        assert read_again(story.members) == []

    def test_no_partition_has_two_owners(self, story: Story) -> None:
        """A partition is assigned only after its former owner gave it up, left or was declared dead."""
        assert shared_holds(story.members) == []

    def test_commits_never_go_back(self, story: Story) -> None:
        assert steps_back(story.members) == []

    def test_a_confirmed_commit_is_kept(self, story: Story) -> None:
        """The group's committed offsets are not below any confirmed commit."""
        confirmed = {
            partition: max(row[1] for row in rows) for partition, rows in commits(story.members).items()
        }
        assert [p for p, offset in confirmed.items() if story.kept[p] < offset] == []

    def test_all_is_committed_in_the_end(self, story: Story) -> None:
        """Once the last member has committed its positions, the group's offsets are the ends of the logs."""
        assert story.final == story.log_ends

    def test_a_steady_group_is_left_alone(self, story: Story) -> None:
        """While no member joins or leaves, nothing is assigned or revoked, and nothing is read twice."""
        begin, end = story.steady_ns
        assert moves_within(story.members, begin, end) == []
        seen = [
            (record["partition"], record["offset"])
            for member in story.members
            for event in member.of("records")
            if begin < event["at"] < end
            for record in event["records"]
        ]
        assert len(seen) > 100
        assert len(seen) == len(set(seen))


@pytest.mark.parametrize("cast", EACH_CAST)
class TestItsHistory:
    """konvene's rebalance history of the same scenarios."""

    @pytest.fixture(autouse=True)
    def _the_broker_explains(self, broker: Broker) -> None:
        if not broker.explains:
            pytest.skip(f"{broker.name} does not tell why a group rebalances")

    def test_each_change_is_explained(self, story: Story, broker: Broker) -> None:
        """Joins, the clean leave and the expiration are recorded in order, each with the client that caused
        it."""
        rebalances = history(broker, story.group)
        assert missing(rebalances, story.rebalances) == [], rebalances

    def test_no_rebalance_is_without_a_cause(self, story: Story, broker: Broker) -> None:
        """Every generation is recorded once, with at least one cause."""
        rebalances = history(broker, story.group)
        assert [rebalance for rebalance in rebalances if not rebalance.causes] == []
        generations = [rebalance.generation for rebalance in rebalances]
        assert generations == sorted(set(generations))

    def test_departures_name_only_departed_members(self, story: Story, broker: Broker) -> None:
        """Only the closed member is recorded as left, and only the killed one as expired."""
        causes = [cause for rebalance in history(broker, story.group) for cause in rebalance.causes]
        stayer = story.members[1].name
        left = {cause.client_id for cause in causes if cause.kind == "member-left"}
        expired = {cause.client_id for cause in causes if cause.kind == "session-expired"}
        assert left - {stayer} == {name for kind, name in story.rebalances if kind == "member-left"}
        assert expired == {name for kind, name in story.rebalances if kind == "session-expired"}
