"""Advice counts patterns of rebalances; without a pattern there is none."""

from __future__ import annotations

from tests.pipeline.answers.sample import Client, Model, day, filled, together

from konvene.pipeline.answers.advice import Advice, Facts, stuck_client
from konvene.pipeline.answers.rebalance import Rebalance, Selection
from konvene.pipeline.answers.restarts import find_restarts, rebalances_of_restarts
from konvene.pipeline.answers.summary import summarise


def pods(count: int, instances: bool = False) -> list[Client]:
    return [Client(f"pod-{i}", f"/10.0.0.{i}", f"inst-{i}" if instances else None) for i in range(count)]


def advice(model: Model) -> dict[str, Advice]:
    """Return the model's advice by rule."""
    return {each.rule: each for each in summarise(together(model), Selection()).advice}


def restarted(away_ms: int, times: int = 4, *, instances: bool = False, group_type: str = "classic") -> Model:
    """Return a group of four members that restart one after another."""
    model, clients = Model("app", group_type, {"orders": 8}), pods(4, instances)
    model.join(*clients)
    for i in range(times):
        model.wait(900_000)
        model.leave(clients[i % 4].client_id)
        model.wait(away_ms - 2_000)
        model.join(clients[i % 4])
    return model


def test_restarts_are_counted_and_would_be_spared_by_static_membership() -> None:
    found = advice(restarted(10_000))["static-membership"]
    assert found.text.startswith(
        "8 of 9 rebalances were restarts under 30 s: static membership (a group.instance.id of its "
        "own for each "
        "member, and a session timeout above 10.0 s) would have avoided them; they cost "
    )
    assert found.text.endswith("Clients: pod-0, pod-1, pod-2, pod-3.")
    assert found.clients == ("pod-0", "pod-1", "pod-2", "pod-3")
    assert found.epochs == tuple(range(2, 10))
    assert found.numbers["rebalances"] == 8 and found.numbers["of"] == 9 and found.numbers["restarts"] == 4


def test_long_absence_or_static_member_is_no_restart() -> None:
    assert "static-membership" not in advice(restarted(31_000))
    assert "static-membership" not in advice(restarted(10_000, instances=True))
    assert "static-membership" not in advice(restarted(10_000, times=1))


def test_a_rebalance_with_another_cause_besides_is_not_counted() -> None:
    """Two leave together and only one rejoins: that rebalance would have happened anyway."""
    model, clients = Model("app", "classic", {"orders": 8}), pods(4)
    model.join(*clients)
    model.wait(60_000)
    model.leave("pod-0", "pod-1")
    model.wait(5_000)
    model.join(clients[0])
    rebalances = list(reversed(together(model).rebalances))
    found = find_restarts(rebalances)
    assert [(r.client_id, r.away_ms) for r in found] == [("pod-0", 7_000)]
    assert [r.to_epoch for r in rebalances_of_restarts(rebalances, found)] == [3]


def test_clients_that_share_an_id_are_distinguished_by_host() -> None:
    model = Model("app", "classic", {"orders": 8})
    model.join(Client("app", "/a"), Client("app", "/b"), Client("app", "/c"))
    model.wait(60_000)
    model.leave("app")  # All three.
    model.wait(3_000)
    model.join(Client("app", "/b"))
    model.wait(3_000)
    model.join(Client("app", "/z"))
    found = find_restarts(list(reversed(together(model).rebalances)))
    assert [(r.client_host, r.away_ms) for r in found] == [("/b", 5_000)], "which client /z was is unknown"


def test_eager_group_is_advised_about_needless_gaps() -> None:
    found = advice(restarted(10_000))["protocol"]
    assert (
        "In 8 of 9 rebalances members revoked partitions and were assigned the same ones again: "
        in found.text
    )
    gaps = restarted(10_000)
    gaps.finished_rows()
    idle = [g for g in gaps.rows["unavailability"] if g["from_member_id"] == g["to_member_id"]]
    assert found.numbers["partitions"] == len(idle)
    assert found.numbers["unavailable_ms"] == sum(g["gap_ms"] for g in idle)
    assert "protocol" not in advice(restarted(10_000, group_type="consumer"))


def test_expired_sessions_of_returning_members_are_too_short() -> None:
    model, clients = Model("app", "consumer", {"orders": 8}), pods(3)
    model.join(*clients)
    for _ in range(3):
        model.wait(600_000)
        model.leave("pod-1", kind="session-expired")
        model.wait(58_000)
        model.join(clients[1])
    found = advice(model)["session-timeout"]
    assert found.text.startswith(
        "3 times a member was removed for missing heartbeats and rejoined after 1 min 0 s (median), in 3 of "
        "7 rebalances"
    )
    assert found.clients == ("pod-1",)


def test_ambiguous_departure_is_not_counted_as_an_expired_session() -> None:
    model, clients = Model("app", "consumer", {"orders": 8}, evidence="inferred"), pods(3)
    model.join(*clients)
    for _ in range(5):
        model.wait(600_000)
        model.leave("pod-1", kind="member-left|session-expired")
        model.wait(58_000)
        model.join(clients[1])
    assert "session-timeout" not in advice(model)


def test_client_that_blocks_others_is_reported() -> None:
    found = {a.rule: a for a in summarise(day(), Selection(("invoices",))).advice}["stuck-client"]
    assert found.text.startswith("Others waited for inv-b in 9 of 10 rebalances, ")
    assert found.clients == ("inv-b",)


def test_members_with_one_client_id_count_once_for_each_rebalance() -> None:
    rebalances, members = [], []
    for epoch in range(3, 8):
        at = {"base_offset": epoch, "to_epoch": epoch}
        rebalances.append(Rebalance.from_row(filled("rebalance", at | {"group_type": "consumer"})))
        for member_id, ms in (("m1", 4_000), ("m2", 6_000)):
            waited = {
                "member_id": member_id,
                "client_id": "app",
                "acknowledged_ms": ms,
                "waited_for": ["m1", "m2"],
            }
            members.append(filled("rebalance_member", at | waited))
    found = stuck_client("g", Facts(rebalances, members, ()))
    assert found is not None
    assert found.text.startswith(
        "Others waited for app in 5 of 5 rebalances, 30.0 s in total, 6.0 s each time."
    )


def test_flapping_subscription_is_reported() -> None:
    model = Model("app", "consumer", {"orders": 8})
    model.join(*pods(3))
    for _ in range(5):
        model.wait(600_000)
        model.change("pod-2")
    found = advice(model)["flapping-subscriptions"]
    assert found.text.startswith(
        "5 of 6 rebalances were triggered by members that changed their subscription or assignor"
    )
    assert found.text.endswith("Clients: pod-2 (5×).")


def test_slowly_starting_group_is_advised_about_the_initial_delay() -> None:
    model = Model("app", "classic", {"orders": 8})
    for client in pods(5):
        model.join(client, took_ms=1_000)
        model.wait(1_000)
    found = advice(model)["slow-start"]
    assert found.text.startswith(
        "5 of 5 rebalances followed one another within 8.0 s while the group started with 5 mem"
    )
    assert "group.initial.rebalance.delay.ms of 8000 on the broker" in found.text


def test_stable_group_gets_no_advice() -> None:
    model = Model("app", "consumer", {"orders": 8})
    model.join(*pods(4))
    model.wait(7_200_000)
    model.leave("pod-3")
    assert advice(model) == {}
