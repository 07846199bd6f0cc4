"""GroupConfigs: immutable effective configs of all groups, computed once and replaced on a change."""

from __future__ import annotations

from konvene.configs import BrokerConfig
from konvene.configs.effective import group_defaults, group_values
from konvene.configs.group_configs import GroupConfigs

BROKER = BrokerConfig.load(None, [("group.consumer.session.timeout.ms", "50000")])[0]
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


def test_groups_without_configs_share_the_default_mapping() -> None:
    """Each such group gets the same mapping object, the broker's defaults."""
    configs = GroupConfigs(BROKER, {"own": {SESSION: "48000"}})
    assert configs.of("a") == group_defaults(BROKER)
    assert configs.of("a") is configs.of("b") is configs.defaults
    assert configs.of("a")[SESSION] == 50_000


def test_a_groups_own_configs_take_effect() -> None:
    """The mapping is computed once; configs that the group does not set have the defaults."""
    configs = GroupConfigs(BROKER, {"own": {SESSION: "48000"}})
    assert configs.of("own") == group_values(BROKER, {SESSION: "48000"})[0]
    assert configs.of("own") is configs.of("own")
    assert repr(configs) == "<GroupConfigs: 1 groups of their own>"


def test_a_change_to_one_group_leaves_the_others_unchanged() -> None:
    """A change returns a new GroupConfigs; deleting a group's configs restores the defaults."""
    before = GroupConfigs(BROKER, {"a": {SESSION: "48000"}, "b": {HEARTBEAT: "6000"}})
    after = before.with_group("a", {SESSION: "49000"})
    assert (before.of("a")[SESSION], after.of("a")[SESSION]) == (48_000, 49_000)
    assert after.of("b") is before.of("b")
    assert after.of("c") is before.of("c")
    deleted = after.with_group("a", {})
    assert deleted.of("a") is deleted.defaults
    assert deleted.of("b") is before.of("b")


def test_clamping_warns_once_when_the_configs_are_computed() -> None:
    """The warning names the group and is not repeated when another group changes."""
    configs = GroupConfigs(BROKER, {"slow": {SESSION: "600000"}})
    assert configs.of("slow")[SESSION] == 60_000
    assert configs.warnings == (
        "group 'slow': consumer.session.timeout.ms is 600000, beyond the broker's limit of 60000;"
        " 60000 is used",
    )
    assert configs.with_group("other", {HEARTBEAT: "6000"}).warnings == ()


def test_a_group_with_invalid_configs_has_the_defaults() -> None:
    """A warning names the group; the other groups are unaffected."""
    configs = GroupConfigs(BROKER, {"bad": {SESSION: "soon"}, "good": {HEARTBEAT: "6000"}})
    assert configs.of("bad") is configs.defaults
    assert configs.of("good")[HEARTBEAT] == 6000
    (warning,) = configs.warnings
    assert warning.startswith("group 'bad' runs at the defaults: ")
    assert SESSION in warning


def test_a_mapping_of_broker_values_is_accepted() -> None:
    """A mapping of broker values gives the same configs as the BrokerConfig itself."""
    assert GroupConfigs(BROKER.values).of("g") == GroupConfigs(BROKER).of("g")
