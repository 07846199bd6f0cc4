"""Architecture rules: import contracts, modules forbidden in cores, tables that must agree, file sizes."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from importlib import import_module
from inspect import signature
from pathlib import Path

import pytest

import konvene
from konvene.broker.net.router import HANDLERS
from konvene.broker.services import Services, service_parameters
from konvene.groups.classic.group import ClassicGroupSnapshot
from konvene.groups.consumer.work import AssignmentComputed, RegexesResolved
from konvene.groups.modern.leave import Disconnected
from konvene.groups.modern.rebalance_trace import SoftStateRecord
from konvene.groups.shard import HANDLERS as GROUP_HANDLERS
from konvene.groups.shard import REPLAYS, TIMERS
from konvene.groups.share.work import (
    BeginDeletion,
    DeletedTopics,
    InitializedPartitions,
    StateDeleted,
    StateInitialized,
)
from konvene.groups.streams.classic.changelog_ends import EndsFound
from konvene.groups.streams.topology.internal_topics import TopicsNotCreated
from konvene.messages import API_KEYS
from konvene.records.commits import COMMIT_KEYS, OffsetCommitted, OffsetsCommitted
from konvene.records.coordinator import GROUP_RECORDS, SHARE_STATE_RECORDS
from konvene.records.transactional import InTransaction, TransactionEnded
from konvene.shard.contract import Ending
from konvene.share_state.shard import HANDLERS as SHARE_STATE_HANDLERS
from konvene.share_state.shard import REPLAYS as SHARE_STATE_REPLAYS
from konvene.share_state.shard import TIMERS as SHARE_STATE_TIMERS
from konvene.transactions.markers import MarkersWritten, ProducerIdFetched
from konvene.transactions.shard import HANDLERS as TRANSACTION_HANDLERS
from konvene.transactions.shard import TIMERS as TRANSACTION_TIMERS

SOURCE = Path(konvene.__file__).parent
ROOT = Path(__file__).parents[1]
CORES = ("shard", "groups", "transactions", "share_state", "delivery", "cluster")
PACKAGES = {
    "broker", "cli", "client", "cluster", "codec", "configs", "console", "delivery", "groups", "log",
    "messages", "pipeline", "records", "runtime", "security", "shard", "share_state", "sim", "spark",
    "testing", "transactions",
}  # fmt: skip
"""The packages that the import contracts in `pyproject.toml` cover."""

MODULES = sorted(SOURCE.rglob("*.py"))

FORBIDDEN_IN_CORES = {
    "asyncio", "datetime", "logging", "os", "pathlib", "random", "secrets", "socket", "subprocess",
    "threading", "time", "uuid",
}  # fmt: skip

MAX_LINES = 500
LONG_FILES = {
    "src/konvene/codec/batches.py": "one format, read and written side by side; both ways share its layout",
    "src/konvene/codec/compile.py": "the reader and the writer of each kind of field stand side by side",
    "src/konvene/sim/world/world.py": "one world: members, network, disk and coordinators share an agenda",
    "src/konvene/log/partition.py": "append, read, truncate and roll guard one set of invariants",
}


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def imported(module: ast.Module) -> Iterator[str]:
    """Yield the name of each imported module, including imports within functions."""
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def test_import_contracts_are_kept() -> None:
    """`lint-imports` reports no broken contract."""
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()"]
    completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stdout + completed.stderr


def test_every_package_has_its_contract() -> None:
    """Each package is in `PACKAGES` and in a contract of pyproject.toml."""
    assert {path.parent.name for path in SOURCE.glob("*/__init__.py")} == PACKAGES
    contracts = (ROOT / "pyproject.toml").read_text("utf-8").partition("[tool.importlinter]")[2]
    assert all(f'"konvene.{name}"' in contracts for name in PACKAGES)


@pytest.mark.parametrize("core", CORES)
def test_cores_do_not_import_io_time_or_randomness(core: str) -> None:
    """Cores are deterministic: no clock, random numbers, files, sockets or logging."""
    for path in sorted((SOURCE / core).rglob("*.py")):
        roots = {name.partition(".")[0] for name in imported(tree(path))}
        assert not roots & FORBIDDEN_IN_CORES, path.name


def test_only_environment_reads_the_clock_and_entropy() -> None:
    """In the broker and runtime only `runtime.environment` reads the wall clock and random numbers."""
    forbidden = {
        ("time", "time"), ("time", "time_ns"), ("datetime", "now"), ("os", "urandom"),
        ("uuid", "uuid1"), ("uuid", "uuid4"),
    }  # fmt: skip
    for path in sorted([*(SOURCE / "broker").rglob("*.py"), *(SOURCE / "runtime").rglob("*.py")]):
        if path.name == "environment.py":
            continue
        module = tree(path)
        assert not {"random", "secrets"} & set(imported(module)), path.name
        for node in ast.walk(module):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                assert (node.value.id, node.attr) not in forbidden, f"{path.name}:{node.lineno}"
            if isinstance(node, ast.ImportFrom):
                names = {(node.module or "", alias.name) for alias in node.names}
                assert not names & forbidden, f"{path.name}:{node.lineno}"


def test_modules_have_docstrings_and_specific_names() -> None:
    """Every module has a docstring; no module is named util, helper or misc, and no class a Manager."""
    for path in MODULES:
        module = tree(path)
        assert ast.get_docstring(module), path
        assert not path.stem.startswith(("util", "helper", "misc")), path
        for node in ast.walk(module):
            if isinstance(node, ast.ClassDef):
                assert not node.name.endswith("Manager"), f"{path}: {node.name}"


def test_every_record_type_is_replayed() -> None:
    """Each record type of the group log and of the share state log has a replay function."""
    assert OffsetCommitted in REPLAYS
    replayed = {
        kind.name for kind in GROUP_RECORDS.values() if kind.key in REPLAYS or kind.key in COMMIT_KEYS
    }
    assert replayed == {kind.name for kind in GROUP_RECORDS.values()}
    others = {
        ClassicGroupSnapshot,
        SoftStateRecord,
        OffsetCommitted,
        OffsetsCommitted,
        InTransaction,
        TransactionEnded,
    }
    assert set(REPLAYS) - others <= {kind.key for kind in GROUP_RECORDS.values()}
    assert set(SHARE_STATE_REPLAYS) == {kind.key for kind in SHARE_STATE_RECORDS.values()}


def test_shard_handlers_timers_and_replays_are_callable() -> None:
    """Each handled type is a request of an API or a result of asynchronous work."""
    requests = {api.request for api in API_KEYS.values()}
    assert set(TRANSACTION_HANDLERS) - {MarkersWritten, ProducerIdFetched} <= requests
    assert all(map(callable, [*TRANSACTION_HANDLERS.values(), *TRANSACTION_TIMERS.values()]))
    assert all(map(callable, [*SHARE_STATE_HANDLERS.values(), *SHARE_STATE_TIMERS.values()]))
    completed_work = {RegexesResolved, AssignmentComputed, Disconnected, EndsFound, TopicsNotCreated, Ending}
    share_group_work = {BeginDeletion, InitializedPartitions, StateDeleted, StateInitialized, DeletedTopics}
    assert set(GROUP_HANDLERS) - completed_work - share_group_work <= requests
    assert all(map(callable, [*GROUP_HANDLERS.values(), *TIMERS.values(), *REPLAYS.values()]))


@pytest.mark.parametrize("key", sorted(HANDLERS))
def test_routed_api_has_a_handler(key: int) -> None:
    """The handler module defines `handle_<api>` or `handle`."""
    module = import_module(f"konvene.broker.handlers.{HANDLERS[key]}")
    handler = getattr(module, f"handle_{API_KEYS[key].module}", None) or getattr(module, "handle", None)
    assert callable(handler), f"{module.__name__} has neither handle nor handle_{API_KEYS[key].module}"


@pytest.mark.parametrize("key", sorted(HANDLERS))
def test_handler_parameters_are_services(key: int) -> None:
    """A handler's first parameters are fields of `Services`; the request and its context follow."""
    module = import_module(f"konvene.broker.handlers.{HANDLERS[key]}")
    handler = getattr(module, f"handle_{API_KEYS[key].module}", None) or module.handle
    offered = {field.name: field.type for field in fields(Services)}
    found = {parameter.name: parameter.annotation for parameter in service_parameters(handler)}
    assert found.items() <= offered.items()
    request, context = [
        p.annotation for p in signature(handler).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD
    ][-2:]
    assert request == API_KEYS[key].request.__name__
    assert context == "RequestContext"


def test_tests_are_not_nested() -> None:
    """A test function within another function is never collected, and so never runs."""
    nested = [
        f"{path.relative_to(ROOT)}:{inner.lineno}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for outer in ast.walk(tree(path))
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef)
        for inner in ast.walk(outer)
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef)
        and inner is not outer
        and inner.name.startswith("test_")
    ]
    assert nested == []


def test_every_handler_module_is_routed() -> None:
    """Each module of `broker/handlers` with a handle function is in the router's table."""
    for path in sorted((SOURCE / "broker" / "handlers").glob("*.py")):
        names = {
            node.name for node in tree(path).body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        if any(name == "handle" or name.startswith("handle_") for name in names):
            assert path.stem in HANDLERS.values(), path.name


def test_files_have_at_most_500_lines() -> None:
    """Longer files are listed in `LONG_FILES` with a reason."""
    found = {
        str(path.relative_to(ROOT))
        for home in ("src", "tests", "bench")
        for path in (ROOT / home).rglob("*.py")
        if "vectors" not in path.parts and path.read_text("utf-8").count("\n") > MAX_LINES
    }
    assert found <= set(LONG_FILES)
