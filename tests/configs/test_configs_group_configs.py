"""What groups run with, as a value: made once, the same object at each look, another one after a change."""

from __future__ import annotations

from konvene.configs import BrokerConfig
from konvene.configs.effective import group_defaults, group_values
from konvene.configs.group_configs import GroupConfigs

BROKER = BrokerConfig.load(None, [("group.consumer.session.timeout.ms", "50000")])[0]
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


def test_groups_that_say_nothing_share_one_mapping() -> None:
    """It is the broker's defaults, and whoever asks gets the very same object."""
    configs = GroupConfigs(BROKER, {"own": {SESSION: "48000"}})
    assert configs.of("a") == group_defaults(BROKER)
    assert configs.of("a") is configs.of("b") is configs.defaults
    assert configs.of("a")[SESSION] == 50_000


def test_a_groups_own_words_count() -> None:
    """They are worked out once, and the others of its settings are the defaults."""
    configs = GroupConfigs(BROKER, {"own": {SESSION: "48000"}})
    assert configs.of("own") == group_values(BROKER, {SESSION: "48000"})[0]
    assert configs.of("own") is configs.of("own")
    assert repr(configs) == "<GroupConfigs: 1 groups of their own>"


def test_one_group_changes_and_the_others_are_what_they_were() -> None:
    """A change makes another value; nothing is left of settings that are taken back."""
    before = GroupConfigs(BROKER, {"a": {SESSION: "48000"}, "b": {HEARTBEAT: "6000"}})
    after = before.with_group("a", {SESSION: "49000"})
    assert (before.of("a")[SESSION], after.of("a")[SESSION]) == (48_000, 49_000)
    assert after.of("b") is before.of("b")
    assert after.of("c") is before.of("c")
    gone = after.with_group("a", {})
    assert gone.of("a") is gone.defaults
    assert gone.of("b") is before.of("b")


def test_what_is_held_to_a_limit_is_told_when_the_value_is_made() -> None:
    """Once, with the group that it is about; not again when another group changes."""
    configs = GroupConfigs(BROKER, {"slow": {SESSION: "600000"}})
    assert configs.of("slow")[SESSION] == 60_000
    assert configs.warnings == (
        "group 'slow': consumer.session.timeout.ms is 600000, beyond the broker's limit of 60000;"
        " 60000 is used",
    )
    assert configs.with_group("other", {HEARTBEAT: "6000"}).warnings == ()


def test_settings_that_cannot_be_used_any_more_leave_a_group_at_the_defaults() -> None:
    """With a warning; every other group is as it was."""
    configs = GroupConfigs(BROKER, {"bad": {SESSION: "soon"}, "good": {HEARTBEAT: "6000"}})
    assert configs.of("bad") is configs.defaults
    assert configs.of("good")[HEARTBEAT] == 6000
    (warning,) = configs.warnings
    assert warning.startswith("group 'bad' runs at the defaults: ")
    assert SESSION in warning


def test_the_values_of_a_broker_will_do() -> None:
    """A mapping of settings by name is as good as the configuration that it came from."""
    assert GroupConfigs(BROKER.values).of("g") == GroupConfigs(BROKER).of("g")
