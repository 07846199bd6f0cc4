"""The hash of what a group reads, in the log beside each epoch, where expressions come and go."""

from __future__ import annotations

from tests.groups.consumer.room import Room

from konvene.groups.consumer.subscriptions import hash_of


def test_an_epoch_that_moves_while_an_expression_is_looked_at_has_the_hash_of_what_is_read_then() -> None:
    """`bob` changes from an expression that is known to one that nobody has looked at. Until somebody does,
    he reads nothing; an epoch that moves for another's sake must not keep the hash of what he read before.

    Found by the simulator: `migration`, seed 3, MetadataHashIsCurrent."""
    room = Room()
    room.stable("ann")
    room.beat("bob", subscribed_topic_regex="au.*")
    room.work()
    room.beat("bob", room.member("bob").current.epoch)
    both = room.group.metadata_hash
    assert both == hash_of({"orders", "audit"}, room.context())
    room.advance(20_000)
    room.beat("bob", room.member("bob").current.epoch, subscribed_topic_regex="no.*")
    assert (room.group.regexes, room.group.metadata_hash) == ({}, both)
    epoch = room.group.epoch
    room.beat("cid")
    assert room.group.epoch == epoch + 1
    assert room.group.metadata_hash == hash_of({"orders"}, room.context())
    room.work()
    assert room.group.metadata_hash == hash_of({"orders"}, room.context())
