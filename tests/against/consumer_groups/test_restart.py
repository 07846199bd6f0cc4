"""The broker is killed under a consumer group and comes back: what it answered, it remembers."""

from pathlib import Path

import pytest

from ..clients import fleet_of
from ..conftest import Admins, a_broker
from ..stories import moves_within
from .conftest import SETTINGS
from .group import CONFLUENT, JAVA, KAFKA_PYTHON, Group


@pytest.mark.java
def test_a_group_outlives_its_broker(tmp_path: Path) -> None:
    """Members of both protocols are at work when the broker is killed. It is back within their sessions, and
    they go on with their epochs and partitions: no member is fenced, nothing moves, and nothing acknowledged
    or committed is lost."""
    broker = a_broker(tmp_path / "broker", SETTINGS)
    broker.start()
    try:
        with fleet_of(broker.bootstrap, tmp_path / "clients") as fleet:
            group = Group("survivor", fleet, Admins(fleet), broker)
            group.has()
            group.is_fed()
            members = [group.join(JAVA, "java"), group.join(CONFLUENT, "confluent", instance_id="desk-1")]
            members.append(group.join(KAFKA_PYTHON, "classic", protocol="classic"))
            group.share(*members)
            before = group.settled(3)
            began_ns = max(member.events[-1]["at"] for member in members)
            broker.kill9()
            broker.start()
            group.is_read_by(*members)
            after = group.settled(3)
            assert after == before
            assert moves_within(members, began_ns, max(m.events[-1]["at"] for m in members)) == []
            group.admin = fleet.admin(KAFKA_PYTHON, "admin-later")  # the other does not come back
            group.keeps()
    finally:
        broker.kill9()
