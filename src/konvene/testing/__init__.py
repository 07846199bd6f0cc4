"""A Kafka broker in the test's own process, with fault injection for group coordination.

    with konvene.testing.broker(topics={"orders": 6}) as konvene:
        client = Producer({"bootstrap.servers": konvene.bootstrap})
        konvene.faults.run("lose the next heartbeat response of instance a")

With pytest, use the fixture `konvene` (`plugin`). `broker` runs in real time and serves any Kafka client;
`virtual` runs a broker and code that uses `konvene.client` on one event loop in virtual time.

The names below can be imported from here. Each file is loaded when its first name is used, so that the plugin
costs nothing in test runs without a broker. No other package of konvene may import this one.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from konvene.testing.fault import Fault, FaultEvent
    from konvene.testing.faults import Faults
    from konvene.testing.group import GroupView, MemberView, RebalanceView, TasksView
    from konvene.testing.konvene import Konvene, broker
    from konvene.testing.records import Record
    from konvene.testing.script import FaultScriptError
    from konvene.testing.virtual_konvene import VirtualKonvene, virtual

__all__ = [
    "Fault",
    "FaultEvent",
    "FaultScriptError",
    "Faults",
    "GroupView",
    "Konvene",
    "MemberView",
    "RebalanceView",
    "Record",
    "TasksView",
    "VirtualKonvene",
    "broker",
    "virtual",
]  # fmt: skip

_FILES = {
    "Fault": "fault", "FaultScriptError": "script", "Faults": "faults", "GroupView": "group",
    "FaultEvent": "fault", "Konvene": "konvene", "MemberView": "group", "RebalanceView": "group",
    "Record": "records",
    "TasksView": "group", "VirtualKonvene": "virtual_konvene", "broker": "konvene",
    "virtual": "virtual_konvene",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _FILES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"konvene.testing.{_FILES[name]}"), name)
