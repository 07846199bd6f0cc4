"""The line on standard output that reports a started broker: its listeners, its data and the recovery."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from konvene import __version__
from konvene.broker import log_output
from konvene.broker.advertised_address import shown
from konvene.plurals import counted
from konvene.runtime.environment import SYSTEM

if TYPE_CHECKING:
    from konvene.broker.app import Startup
    from konvene.broker.broker import Broker
    from konvene.broker.metrics.server import MetricsServer
    from konvene.broker.net.socket_server import SocketServer
    from konvene.configs.listeners import Listener
    from konvene.log.directory import LogDirectory

__all__ = ["startup_line"]

PLAINTEXT = "PLAINTEXT"


def startup_line(
    startup: Startup, broker: Broker, server: SocketServer, metrics: MetricsServer | None
) -> str:
    """Return the line for standard output. It names the advertised address if it is another one."""
    elapsed_s = time.perf_counter() - startup.began_s
    ephemeral = " (ephemeral: deleted when the broker stops)" if startup.ephemeral else ""
    bound = {one.name: shown(one.host, server.listeners[one.name].port) for one in startup.listeners}
    listening, advertised = bound[startup.listeners[0].name], shown(*broker.catalogue.advertised)
    advertising = "" if listening == advertised else f", advertised as {advertised}"
    if len(startup.listeners) > 1 or startup.listeners[0].protocol != PLAINTEXT:
        listening = ", ".join(_shown_listener(one, bound[one.name]) for one in startup.listeners)
        advertising = ""
    recovery = _recovery_summary(broker.directory)
    metrics_address = "" if metrics is None else f", metrics at {metrics.url}"
    line = (
        f"konvene {__version__} listens on {listening}{advertising}, data in {startup.path}{ephemeral}:"
        f" {recovery}, {elapsed_s:.2f} s{metrics_address}"
    )
    if startup.log_format != log_output.JSON:
        return line + "\n"
    fields = {
        "event": "started",
        "version": __version__,
        "listener": listening,
        "advertised": advertised,
        "listeners": [
            {"name": one.name, "protocol": one.protocol, "address": bound[one.name]}
            for one in startup.listeners
        ],
        "data_dir": str(startup.path),
        "ephemeral": startup.ephemeral,
        "recovery": recovery,
        "startup_s": round(elapsed_s, 3),
        "metrics_url": None if metrics is None else metrics.url,
    }
    return log_output.json_line(line, fields, SYSTEM.wall_clock_ms() / 1000)


def _shown_listener(listener: Listener, address: str) -> str:
    """Return name, protocol and address of a listener as text."""
    protocol = "" if listener.name == listener.protocol else f" ({listener.protocol})"
    return f"{listener.name}://{address}{protocol}"


def _recovery_summary(directory: LogDirectory) -> str:
    """Return a phrase for the startup line: how many partitions there are, and what log recovery did."""
    partitions = counted(len(directory.logs) - 1, "partition")  # Without `__cluster_metadata`.
    if directory.clean:
        return f"{partitions}, clean shutdown"
    scanned = sum(r.scanned_bytes for r in directory.recovered.values())
    truncated = sum(r.cut_bytes for r in directory.recovered.values())
    damaged = f", {len(directory.damaged)} damaged and offline" if directory.damaged else ""
    if not scanned and not damaged:
        return partitions
    return f"{partitions} recovered ({counted(scanned, 'byte')} scanned, {truncated:,} truncated{damaged})"
