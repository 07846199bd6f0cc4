"""The metadata hash that a group logs with each epoch while regular expressions are resolved."""

from __future__ import annotations

from tests.groups.consumer.harness import GroupHarness

from konvene.groups.consumer.subscriptions import hash_of


def test_an_epoch_bumped_during_regex_resolution_has_the_hash_of_the_current_subscription() -> None:
    """`bob` changes from a resolved expression to one that is not resolved yet. Until it is resolved, bob
    subscribes to no topic; an epoch bumped for another reason must not keep the hash of bob's former topics.

    Found by the simulator: `migration`, seed 3, MetadataHashIsCurrent.
    """
    harness = GroupHarness()
    harness.stable("ann")
    harness.beat("bob", subscribed_topic_regex="au.*")
    harness.work()
    harness.beat("bob", harness.member("bob").current.epoch)
    hash_of_both = harness.group.metadata_hash
    assert hash_of_both == hash_of({"orders", "audit"}, harness.context())
    harness.advance(20_000)
    harness.beat("bob", harness.member("bob").current.epoch, subscribed_topic_regex="no.*")
    assert (harness.group.regexes, harness.group.metadata_hash) == ({}, hash_of_both)
    epoch = harness.group.epoch
    harness.beat("cid")
    assert harness.group.epoch == epoch + 1
    assert harness.group.metadata_hash == hash_of({"orders"}, harness.context())
    harness.work()
    assert harness.group.metadata_hash == hash_of({"orders"}, harness.context())
