"""Rows 13 and 61 of the hostile inputs: what clients call themselves, their topics, groups and settings.

A name is text and nothing else: it never becomes a path unless it is a legal topic's, and is never run,
looked up or unpacked. The codes are Kafka's (`KONVENE_AGAINST=kafka`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.broker.hostile.wire import Target

from konvene.errors import Errors
from konvene.messages.api_versions import ApiVersionsRequest
from konvene.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from konvene.messages.create_topics import CreatableTopic, CreateTopicsRequest
from konvene.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from konvene.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from konvene.messages.describe_groups import DescribeGroupsRequest
from konvene.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from konvene.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from konvene.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from konvene.messages.metadata import MetadataRequest, MetadataRequestTopic
from konvene.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from konvene.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

NONE, UNKNOWN, INVALID = Errors.NONE, Errors.UNKNOWN_TOPIC_OR_PARTITION, Errors.INVALID_TOPIC_EXCEPTION
TOPIC = "hostile-names"
TOPIC_TYPE, BROKER_TYPE = 2, 4

ILLEGAL = [
    "../../etc/passwd", "..", ".", "a/b", "/etc/passwd", "a\\b", "nul\0byte", "ünïcode", "emoji🐘", " ",
    "$(touch pwned)", "`id`", "; rm -rf /", "http://169.254.169.254/", "%2e%2e%2f", "${env:HOME}", "a\nb",
    "a\n", "~", "b" * 250, "c" * 32_000,
]  # fmt: skip
LEGAL = ["...", "a..b", "-rf", "a" * 249]


def code_of(ask: Callable[[Target, str], Any], target: Target, name: str) -> Errors:
    return Errors(ask(target, name).error_code)


def create(target: Target, name: str) -> Any:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return target.ask(CreateTopicsRequest(timeout_ms=9000, topics=(topic,))).topics[0]


def create_by_asking(target: Target, name: str) -> Any:
    return target.ask(MetadataRequest(topics=(MetadataRequestTopic(name=name),))).topics[0]


def delete(target: Target, name: str) -> Any:
    return target.ask(DeleteTopicsRequest(timeout_ms=9000, topics=(DeleteTopicState(name=name),))).responses[
        0
    ]


def add_partitions(target: Target, name: str) -> Any:
    topic = CreatePartitionsTopic(name=name, count=3)
    return target.ask(CreatePartitionsRequest(timeout_ms=9000, topics=(topic,))).results[0]


def list_offsets(target: Target, name: str) -> Any:
    partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
    topic = ListOffsetsTopic(name=name, partitions=(partition,))
    return target.ask(ListOffsetsRequest(replica_id=-1, topics=(topic,))).topics[0].partitions[0]


def describe(target: Target, name: str) -> Any:
    resource = DescribeConfigsResource(resource_type=TOPIC_TYPE, resource_name=name)
    return target.ask(DescribeConfigsRequest(resources=(resource,))).results[0]


def alter(target: Target, name: str, kind: int = TOPIC_TYPE, config: str = "retention.ms") -> Any:
    change = AlterableConfig(name=config, config_operation=0, value="2000000")
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=(change,))
    return target.ask(IncrementalAlterConfigsRequest(resources=(resource,))).responses[0]


def commit(target: Target, topic: str, group: str = "hostile") -> Any:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
    wanted = OffsetCommitRequestTopic(name=topic, partitions=(partition,))
    return target.ask(OffsetCommitRequest(group_id=group, topics=(wanted,)), 9).topics[0].partitions[0]


TOPIC_CALLS: dict[Callable[[Target, str], Any], tuple[Errors, Errors]] = {
    create: (INVALID, NONE),
    delete: (UNKNOWN, NONE),
    create_by_asking: (INVALID, UNKNOWN),
    add_partitions: (UNKNOWN, UNKNOWN),
    list_offsets: (UNKNOWN, UNKNOWN),
    describe: (INVALID, UNKNOWN),
    alter: (INVALID, UNKNOWN),
    commit: (UNKNOWN, UNKNOWN),
}
"""What each call says of an illegal name, and of a legal one. They are made in this order."""


@pytest.fixture
def files(target: Target) -> Any:
    """The folders are the same afterwards, and no file was made of anybody's name."""
    target.topic(TOPIC)
    target.coordinator("hostile")
    root = target.broker.directory
    before = folders(root)
    yield
    assert folders(root) == before
    names = sorted(path.name for path in root.parent.rglob("*"))
    assert not [name for name in names if re.search("passwd|pwned|http|%|\\$|[^!-~]", name)]


def folders(root: Path) -> set[str]:
    return {path.name for path in root.rglob("*") if path.is_dir() and not path.name.endswith("-delete")}


@pytest.mark.usefixtures("files")
def test_row_61_topics(target: Target) -> None:
    """A topic of an illegal name is none: it is not made, and nothing else is done with it."""
    for number, names in enumerate((ILLEGAL, LEGAL)):
        for name in names:
            answered = {ask: code_of(ask, target, name) for ask in TOPIC_CALLS}
            assert answered == {ask: codes[number] for ask, codes in TOPIC_CALLS.items()}, name


def test_row_61_no_name_and_the_brokers_own(target: Target) -> None:
    """The name of nothing, and that of the metadata log."""
    told = {ask: code_of(ask, target, "") for ask in TOPIC_CALLS}
    expected = {ask: codes[0] for ask, codes in TOPIC_CALLS.items()}
    assert told == expected | {alter: Errors.INVALID_REQUEST}
    assert code_of(create, target, "__cluster_metadata") is Errors.INVALID_REQUEST


@pytest.mark.usefixtures("files")
def test_row_61_groups(target: Target) -> None:
    """A group may be called anything but nothing, and is found again under that name."""
    for name in ILLEGAL + LEGAL:
        assert commit(target, TOPIC, name).error_code == NONE, name
        found = target.ask(
            OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=name, topics=None),)), 9
        ).groups[0]
        assert [(t.name, [p.committed_offset for p in t.partitions]) for t in found.topics] == [(TOPIC, [7])]
        assert target.ask(joining(name), 5).error_code == Errors.MEMBER_ID_REQUIRED
    assert target.ask(joining(""), 5).error_code == Errors.INVALID_GROUP_ID


@pytest.mark.usefixtures("files")
def test_row_61_settings(target: Target) -> None:
    """Neither the name of a setting nor that of a broker leads anywhere."""
    for name in ILLEGAL + LEGAL:
        assert alter(target, TOPIC, config=name).error_code == Errors.INVALID_CONFIG, name
        told = alter(target, name, BROKER_TYPE, "message.max.bytes")
        assert told.error_code == Errors.INVALID_REQUEST, name


def joining(group: str, instance_id: str | None = None) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        group_instance_id=instance_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=(JoinGroupRequestProtocol(name="range", metadata=b""),),
    )


@pytest.mark.parametrize("version", [2, 5, 9])
@pytest.mark.parametrize("length", [32_730, 32_731, 32_767])
def test_row_13_the_longest_client_id(length: int, version: int, target: Target) -> None:
    """A member's id begins with its client's and must be one that can be told and written down."""
    group = f"hostile-client-{length}-{version}"
    target.coordinator(group)
    told = target.ask(joining(group), version, client_id="x" * length)
    if length > 32_730:
        assert (told.error_code, told.member_id) == (Errors.UNKNOWN_SERVER_ERROR, "")
        described = target.ask(DescribeGroupsRequest(groups=(group,)), 5).groups[0]
        assert described.members == ()
    else:
        assert told.error_code == (Errors.NONE if version < 4 else Errors.MEMBER_ID_REQUIRED)
        assert len(told.member_id) == 32_767


def test_row_13_the_longest_instance_id(target: Target) -> None:
    """The same of a static member, whose id begins with its instance id."""
    target.coordinator("hostile-instance")
    told = target.ask(joining("hostile-instance", "i" * 32_731), 5)
    assert (told.error_code, told.member_id) == (Errors.UNKNOWN_SERVER_ERROR, "")


SOFTWARE = {
    ("", "1"): Errors.INVALID_REQUEST,
    ("a", ""): Errors.INVALID_REQUEST,
    ("-a", "1"): Errors.INVALID_REQUEST,
    ("a b", "1"): Errors.INVALID_REQUEST,
    ("a_b", "1"): Errors.INVALID_REQUEST,
    ("ä", "1"): Errors.INVALID_REQUEST,
    ("a\n", "1"): Errors.INVALID_REQUEST,
    ("a", "1\n"): Errors.INVALID_REQUEST,
    ("a", "1-"): Errors.INVALID_REQUEST,
    (".", "1"): Errors.INVALID_REQUEST,
    ("a.b-c", "1.0"): Errors.NONE,
    ("a" * 32_767, "1"): Errors.NONE,
    ("a" + "-" * 32_765 + "!", "1"): Errors.INVALID_REQUEST,
}


@pytest.mark.parametrize("software", SOFTWARE, ids=lambda pair: repr(pair)[:30])
def test_row_13_the_name_of_a_clients_software(software: tuple[str, str], target: Target) -> None:
    """Letters, digits, and dots and dashes between them; the longest is looked at once."""
    name, version = software
    asked = ApiVersionsRequest(client_software_name=name, client_software_version=version)
    assert target.ask(asked, 3).error_code == SOFTWARE[software]


FORBIDDEN = {"pickle", "marshal", "shelve", "yaml", "dill", "jsonpickle"}


PACKS_ITSELF = ("pipeline/reduce/reducer.py", "pipeline/gold/resume.py", "pipeline/reduce/unpickler.py")
"""What makes values of bytes that it made itself, and reads no others (`test_unpickler.py`)."""


def test_row_61_nothing_is_unpacked_into_code() -> None:
    """No module imports what makes objects of bytes, or runs text; the codec's generator runs its own."""
    source = Path(__file__).parents[3] / "src" / "konvene"
    for path in sorted(source.rglob("*.py")):
        if path.relative_to(source).as_posix() in PACKS_ITSELF:
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                assert not FORBIDDEN & {alias.name.partition(".")[0] for alias in node.names}, path
            elif isinstance(node, ast.ImportFrom):
                assert (node.module or "").partition(".")[0] not in FORBIDDEN, path
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                runs = node.func.id == "eval" or (node.func.id == "exec" and path.parent.name != "codec")
                assert not runs, f"{path}:{node.lineno}"
            elif (
                isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os"
            ):
                assert node.attr not in ("system", "popen"), f"{path}:{node.lineno}"
