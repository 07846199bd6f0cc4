"""Scenarios: each command works as `docs/scenarios.md` describes, and an invalid line is rejected."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from konvene.sim.transcript.scenario import COMMANDS, Scenario, ScenarioError, run_file

PAGE = Path(__file__).parents[3] / "docs" / "scenarios.md"
STABLE = [
    "config group.initial.rebalance.delay.ms=0",
    "join ann",
    "join ann",
    "advance 10",
    "sync ann assign=ann:%00all",
]


def play(*commands: str) -> list[str]:
    """Return the lines that the last of these commands adds, with a stable group of one member."""
    scenario = Scenario()
    scenario.run([*STABLE, *commands[:-1]])
    lines = scenario.run([commands[-1]])
    assert scenario.broken is None
    return lines


def test_example_of_the_page_runs_as_shown() -> None:
    """The output of the example equals the page."""
    (example,) = re.findall(r"```text\n(.*?)```", PAGE.read_text(), re.S)
    assert run_file(example) == example


def test_page_describes_each_command() -> None:
    """Each command is described with all its options."""
    _, tables = PAGE.read_text().split("## Clients")
    rows = {row.split("`")[1].split()[0]: row for row in tables.splitlines() if row.startswith("| `")}
    assert set(rows) == set(COMMANDS)
    for verb, command in COMMANDS.items():
        for option in command.options.split():
            assert re.search(rf"\b{option}\b", rows[verb]) or option == "version", f"{verb} {option}"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("jion ann", "no such command, expected one of join, sync"),
        ("join", "expected WHO"),
        ("join ann bob", "expected WHO"),
        ("join ann sesion=1", "no option sesion, expected one of version, group"),
        ("join ann session=long", "session is a number, not 'long'"),
        ("join ann version=99", "not possible in this version"),
        ("commit ann orders", "expected topic-partition, not 'orders'"),
        ("commit ann orders-0", "an offset is a number, not ''"),
        ("streams-targets ann=0:0/-/-/-", "expected ACTIVE/STANDBY/WARMUP, not '0:0/-/-/-'"),
        ("config", "expected KEY=VALUE"),
        ("config no.such=1", "no.such"),
        ("config group.max.size=many", "group.max.size"),
        ("topic orders anew", "expected recreate, not 'anew'"),
        ("advance soon", "MS is a number, not 'soon'"),
        ("compact tombstones=maybe", "tombstones are kept, yes or no"),
        ("hold on", "expected no more words"),
        ("restart now=1", "no option now, it has no options"),
    ],
)
def test_invalid_line_is_rejected(line: str, why: str) -> None:
    """The error has the number of the line, and what was expected."""
    with pytest.raises(ScenarioError, match=re.escape(why)) as error:
        run_file(f"# a remark\n\nlist\n----\n\n{line}\n")
    assert str(error.value).startswith("line 6: ")
    assert str(error.value).endswith(f": {line}")


def test_block_without_dashes_gets_its_output() -> None:
    """Comments and settings stay as they are."""
    assert run_file("# nothing\nconfig group.max.size=7\n\nlist") == (
        "# nothing\nconfig group.max.size=7\n\nlist\n----\nadmin <- ListGroups NONE\n"
    )


def test_member_ids_do_not_depend_on_other_clients() -> None:
    """Each client numbers its own ids, so that lines of other clients can be removed."""
    alone = Scenario().run(["join bob", "restart", "join bob member=-"])
    among = Scenario().run(["join ann", "join bob", "join cas", "restart", "join ann", "join bob member=-"])
    assert alone[-1] == among[-1] == "bob <- JoinGroup MEMBER_ID_REQUIRED generation_id=-1 member_id=bob-2"


def test_options_override_the_state_of_a_client() -> None:
    """Member id, generation, instance id, group and raw bytes, in any command."""
    assert play("show g")[0] == "<classic g Stable generation 1, 1 members>"
    assert play("heartbeat ann") == ["ann <- Heartbeat NONE"]
    assert play("heartbeat bob member=ann-1 generation=1") == ["bob <- Heartbeat NONE"]
    assert play("heartbeat ann generation=7") == ["ann <- ILLEGAL_GENERATION"]
    assert play("heartbeat ann instance=i") == ["ann <- UNKNOWN_MEMBER_ID"]
    assert play("heartbeat ann group=other") == ["ann <- UNKNOWN_MEMBER_ID"]
    assert play("sync ann")[-1].endswith("assignment=\\x00all")
    assert play("leave ann version=0")[-2] == "ann <- LeaveGroup NONE"
    assert play("commit ann orders-0:3 metadata=%C3%A9", "fetch x version=10 topics=orders-0")[-1].endswith(
        "committed_offset=3 committed_leader_epoch=-1 metadata=é}]}]}]"
    )


def test_responses_wait_until_records_are_durable() -> None:
    """`hold` holds responses back; `durable` releases them."""
    assert play("hold", "commit ann orders-0:3") == ["record offset g orders-0 offset 3"]
    assert play("hold", "commit ann orders-0:3", "heartbeat ann") == []
    assert play("hold", "commit ann orders-0:3", "heartbeat ann", "durable") == [
        "ann <- OffsetCommit topics=[{name=orders partitions=[{NONE}]}]",
        "ann <- Heartbeat NONE",
    ]
    assert play("hold", "commit ann orders-0:3", "commit ann orders-1:4", "durable but=1") == [
        "ann <- OffsetCommit topics=[{name=orders partitions=[{NONE}]}]",
    ]


@pytest.mark.parametrize(("crash", "offset"), [("crash", 3), ("crash keep=1", 4), ("restart", 5)])
def test_crash_loses_records_that_are_not_durable(crash: str, offset: int) -> None:
    """`keep` keeps some batches; a restart loses none."""
    held = ["commit ann orders-0:3", "hold", "commit ann orders-0:4", "commit ann orders-0:5"]
    assert f"committed_offset={offset} " in play(*held, crash, "fetch x")[-1]


def test_next_append_fails_or_is_too_large() -> None:
    """`fail` and `too-large` affect the next append only."""
    assert play("fail", "commit ann orders-0:3") == ["ann <- NOT_COORDINATOR"]
    assert play("too-large", "commit ann orders-0:3") == ["ann <- UNKNOWN_SERVER_ERROR"]
    assert len(play("fail", "commit ann orders-0:3", "commit ann orders-0:3")) == 2


def test_time_the_clock_and_timers() -> None:
    """Sessions follow elapsed time, offsets the wall clock; `expire` expires a timer."""
    assert "timer session g ann-1" in play("advance 10000")
    assert play("clock 3600000", "heartbeat ann") == ["ann <- Heartbeat NONE"]
    assert "timer session g ann-1 in 10000" in play("clock -3600000", "show g")
    assert play("expire session g ann-1")[0] == "timer session g ann-1"
    assert play("expire session g nobody") == ["no timer session g nobody"]
    commands = ["commit tool orders-0:3 group=s", "clock 604800000", "expire retention"]
    assert play(*commands)[-2:] == ["record offset s orders-0 deleted", "record group s deleted"]


def test_topics_are_created_grow_and_are_recreated() -> None:
    """A recreated topic has another id: a fetch by id does not return earlier commits."""
    assert "UNKNOWN_TOPIC_OR_PARTITION" in play("commit ann new-0:1")[-1]
    assert "NONE" in play("topic new partitions=1", "commit ann new-0:1")[-1]
    assert "UNKNOWN_TOPIC_OR_PARTITION" in play("topic new partitions=1", "commit ann new-1:1")[-1]
    assert "NONE" in play("topic new partitions=1", "topic new partitions=2", "commit ann new-1:1")[-1]
    assert "UNKNOWN_TOPIC_OR_PARTITION" in play("topic orders partitions=0", "commit ann orders-0:1")[-1]
    again = ["commit ann orders-0:1", "topic orders recreate", "fetch x version=10 topics=orders-0"]
    assert "committed_offset=-1 " in play(*again)[-1]
    assert play("commit ann orders-0:1", "untopic orders")[0] == "record offset g orders-0 deleted"


@pytest.mark.parametrize("tombstones", ["yes", "no"])
def test_compaction_changes_no_response(tombstones: str) -> None:
    """Committed offsets remain, deleted ones do not return."""
    written = ["commit ann orders-0:1", "commit ann orders-0:2", "commit tool audit-0:9 group=s", "delete s"]
    lines = play(*written, f"compact tombstones={tombstones}", "list")
    assert lines == [
        "admin <- ListGroups NONE groups=[{group_id=g protocol_type=consumer group_state=Stable "
        "group_type=classic}]"
    ]
    assert "committed_offset=2 " in play(*written, f"compact tombstones={tombstones}", "fetch x")[-1]


def test_violation_ends_the_scenario(monkeypatch: pytest.MonkeyPatch) -> None:
    """The violation is the last line of the output, and in `broken`."""
    from konvene.groups.classic.decision import Decision

    monkeypatch.setattr(Decision, "audit_generation", lambda step, state: None)
    output = run_file("\n".join([*STABLE, "list"]) + "\n\nlist\n")
    assert "broken EveryGenerationHasATrace: no trace explains <classic g Stable" in output
    assert "ListGroups" not in output
    scenario = Scenario()
    scenario.run(STABLE)
    assert "EveryGenerationHasATrace" in str(scenario.broken)
