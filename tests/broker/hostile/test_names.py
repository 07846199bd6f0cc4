"""Rows 13 and 61 of the hostile inputs: names of clients, topics, groups and configs.

A name is only text: it becomes a path only if it is a legal topic name, and is never executed, resolved or
deserialized. The error codes are Kafka's; `KONVENE_AGAINST=kafka` checks them again.
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


def describe_topic(target: Target, name: str) -> Any:
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
    describe_topic: (INVALID, UNKNOWN),
    add_partitions: (UNKNOWN, UNKNOWN),
    list_offsets: (UNKNOWN, UNKNOWN),
    describe: (INVALID, UNKNOWN),
    alter: (INVALID, UNKNOWN),
    commit: (UNKNOWN, UNKNOWN),
}
"""The expected errors of each call for an illegal and for a legal name. The calls run in this order."""


@pytest.fixture
def files(target: Target) -> Any:
    """Check that a test leaves no new folder, and no file with a name that a client chose."""
    target.topic(TOPIC)
    target.coordinator("hostile")
    root = target.broker.directory
    before, others = folders(root), set(root.parent.rglob("*"))
    yield
    assert folders(root) == before
    names = sorted(path.name for path in set(root.parent.rglob("*")) - others)
    assert not [name for name in names if re.search("passwd|pwned|http|%|\\$|[^!-~]", name)]


def folders(root: Path) -> set[str]:
    return {path.name for path in root.rglob("*") if path.is_dir() and not path.name.endswith("-delete")}


@pytest.mark.usefixtures("files")
def test_row_61_topic_names(target: Target) -> None:
    """A topic with an illegal name is not created, and every other call rejects the name."""
    for number, names in enumerate((ILLEGAL, LEGAL)):
        for name in names:
            answered = {ask: code_of(ask, target, name) for ask in TOPIC_CALLS}
            assert answered == {ask: codes[number] for ask, codes in TOPIC_CALLS.items()}, name


def test_row_61_the_empty_topic_name_and_the_metadata_log(target: Target) -> None:
    """Neither the empty name nor `__cluster_metadata` is a topic that clients can create."""
    errors = {ask: code_of(ask, target, "") for ask in TOPIC_CALLS}
    expected = {ask: codes[0] for ask, codes in TOPIC_CALLS.items()}
    assert errors == expected | {alter: Errors.INVALID_REQUEST}
    assert code_of(create, target, "__cluster_metadata") is Errors.INVALID_REQUEST


@pytest.mark.usefixtures("files")
def test_row_61_group_ids(target: Target) -> None:
    """A group may have any id but the empty one, and is found again under its id."""
    for name in ILLEGAL + LEGAL:
        assert commit(target, TOPIC, name).error_code == NONE, name
        found = target.ask(
            OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=name, topics=None),)), 9
        ).groups[0]
        assert [(t.name, [p.committed_offset for p in t.partitions]) for t in found.topics] == [(TOPIC, [7])]
        assert target.ask(joining(name), 5).error_code == Errors.MEMBER_ID_REQUIRED
    assert target.ask(joining(""), 5).error_code == Errors.INVALID_GROUP_ID


@pytest.mark.usefixtures("files")
def test_row_61_config_and_broker_names(target: Target) -> None:
    """An unknown config name or an invalid broker id is rejected."""
    for name in ILLEGAL + LEGAL:
        assert alter(target, TOPIC, config=name).error_code == Errors.INVALID_CONFIG, name
        response = alter(target, name, BROKER_TYPE, "message.max.bytes")
        assert response.error_code == Errors.INVALID_REQUEST, name


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
    """A member id begins with the client id; one that is too long to encode is rejected."""
    group = f"hostile-client-{length}-{version}"
    target.coordinator(group)
    response = target.ask(joining(group), version, client_id="x" * length)
    if length > 32_730:
        assert (response.error_code, response.member_id) == (Errors.UNKNOWN_SERVER_ERROR, "")
        described = target.ask(DescribeGroupsRequest(groups=(group,)), 5).groups[0]
        assert described.members == ()
    else:
        assert response.error_code == (Errors.NONE if version < 4 else Errors.MEMBER_ID_REQUIRED)
        assert len(response.member_id) == 32_767


def test_row_13_the_longest_instance_id(target: Target) -> None:
    """A static member's id begins with its instance id, which has the same limit."""
    target.coordinator("hostile-instance")
    response = target.ask(joining("hostile-instance", "i" * 32_731), 5)
    assert (response.error_code, response.member_id) == (Errors.UNKNOWN_SERVER_ERROR, "")


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
    """Letters and digits, with dots and dashes between them; matching a long name takes linear time."""
    name, version = software
    request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
    assert target.ask(request, 3).error_code == SOFTWARE[software]


FORBIDDEN = {"pickle", "marshal", "shelve", "yaml", "dill", "jsonpickle"}


DESERIALIZES_OWN_DATA = (
    "pipeline/reduce/reducer.py",
    "pipeline/gold/resume.py",
    "pipeline/reduce/unpickler.py",
)
"""Modules that deserialize only bytes that they have written themselves (`test_unpickler.py`)."""


def test_row_61_no_module_deserializes_objects_or_evaluates_text() -> None:
    """No module imports a deserializer of objects or evaluates text; only the codec runs code, its own."""
    source = Path(__file__).parents[3] / "src" / "konvene"
    for path in sorted(source.rglob("*.py")):
        if path.relative_to(source).as_posix() in DESERIALIZES_OWN_DATA:
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
