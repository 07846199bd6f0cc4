"""`konvene serve`: from options to a running broker, and down again.

One line tells where it listens and what it found; SIGTERM and SIGINT let what is under way finish.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from konvene import __version__
from konvene.broker.groups.assignors import SETTING as ASSIGNORS
from konvene.broker.groups.assignors import TASK_SETTING as TASK_ASSIGNORS
from konvene.broker.groups.assignors import load_assignors, load_task_assignors
from konvene.codec.uuid import Uuid
from konvene.configs import BrokerConfig, ConfigError
from konvene.log.directory import META_NAME, Identity, LogDirectory
from konvene.log.disk.files import RealDisk
from konvene.log.errors import LogError
from konvene.runtime.environment import SYSTEM

if TYPE_CHECKING:
    from konvene.broker.broker import Broker
    from konvene.broker.metrics.server import MetricsServer

DEFAULT_HOST = "localhost"
DEFAULT_PORT = 9092

Progress = Callable[[int], Callable[[str], None]]
"""Is told how many partitions there are, and gives whom to tell of each that is open."""


class Address(NamedTuple):
    """Where to listen, and what to tell clients."""

    host: str
    port: int
    advertised_host: str
    advertised_port: int


class CannotStart(Exception):
    """Why the broker cannot start, in words for whoever started it."""


def serve(
    host: str | None = None,
    port: int | None = None,
    data_dir: Path | None = None,
    ephemeral: bool = False,
    config: Path | None = None,
    overrides: list[tuple[str, str]] | None = None,
    progress: Progress | None = None,
    assignors: Sequence[str] = (),
    metrics_port: int | None = None,
) -> int:
    """Run a broker until it is told to stop. The exit status: 0, or 1 with a message on stderr.

    `assignors` are offered besides those of the settings; modules may lie where the broker is started."""
    began = time.perf_counter()
    logging.basicConfig(
        level=os.environ.get("KONVENE_LOG", "INFO").upper(),
        format="%(asctime)s %(levelname)-7s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    try:
        settings, notices = _configuration(config, overrides or [])
        said = _offered(settings, assignors)
        if metrics_port is not None:
            said.append(("konvene.metrics.port", str(metrics_port)))
        overrides = [*(overrides or []), *said]
        address = _address(settings, host, port)
        for notice in notices:
            logging.getLogger("konvene").warning("%s", notice)
        with _directory(settings, data_dir, ephemeral) as path:
            chosen = _chosen(settings, address, path, by_option=host is not None or port is not None)
            settings, _ = _configuration(config, [*overrides, *chosen])
            _can_be_measured(settings)
            return _run(settings, address, path, ephemeral, began, progress)
    except (CannotStart, ConfigError, LogError) as error:
        sys.stderr.write(f"konvene: {error}\n")
        return 1


def _configuration(
    file: Path | None, overrides: list[tuple[str, str]]
) -> tuple[BrokerConfig, tuple[str, ...]]:
    text = None
    if file is not None:
        try:
            text = file.read_text()
        except OSError as error:
            raise CannotStart(f"cannot read --config {file}: {error.strerror}") from None
    loaded, notices = BrokerConfig.load(text, overrides, file=str(file or "server.properties"))
    _no_security(loaded)
    return loaded, notices


def _offered(config: BrokerConfig, more: Sequence[str]) -> list[tuple[str, str]]:
    """The setting that offers these assignors as well. Raises `ConfigError` where one cannot be loaded."""
    if more:
        sys.path.append(str(Path.cwd()))
    offered = (*config[ASSIGNORS], *more)
    load_assignors(offered)
    load_task_assignors(config[TASK_ASSIGNORS])
    return [(ASSIGNORS, ",".join(offered))] if more else []


def _can_be_measured(config: BrokerConfig) -> None:
    """Metrics that are asked for can be served."""
    if config["konvene.metrics.port"] >= 0:
        from konvene.broker.metrics import exposition

        if not exposition.is_installed():
            raise CannotStart(exposition.MISSING)


def _chosen(config: BrokerConfig, address: Address, path: Path, *, by_option: bool) -> list[tuple[str, str]]:
    """What was settled by options and defaults of the command, as the settings that a client may describe."""
    chosen = [("log.dirs", str(path))]
    if by_option or "listeners" not in config.static:
        host = f"[{address.host}]" if ":" in address.host else address.host
        chosen.append(("listeners", f"PLAINTEXT://{host}:{address.port}"))
    return chosen


def _no_security(config: BrokerConfig) -> None:
    """Whoever asks for access control or encryption must not run without it unknowingly."""
    if config["authorizer.class.name"]:
        raise CannotStart("authorizer.class.name: this broker has no authorizer, everybody may do everything")
    if "listener.security.protocol.map" in config.static:
        for entry in config["listener.security.protocol.map"].split(","):
            name, _, protocol = entry.strip().partition(":")
            if name.upper() == "PLAINTEXT" and protocol.upper() != "PLAINTEXT":
                raise CannotStart(
                    f"listener.security.protocol.map={entry}: this broker speaks PLAINTEXT only"
                )


def _address(config: BrokerConfig, host: str | None, port: int | None) -> Address:
    """The listener: the options, else `listeners`, else loopback and Kafka's port."""
    listen = (DEFAULT_HOST, DEFAULT_PORT)
    if "listeners" in config.static:
        listen = _plaintext(config["listeners"], "listeners")
    listen = (host if host is not None else listen[0], port if port is not None else listen[1])
    told = listen
    if config["advertised.listeners"]:
        told = _plaintext(config["advertised.listeners"], "advertised.listeners")
    elif listen[0] in ("", "0.0.0.0", "::"):
        import socket

        told = (socket.gethostname(), listen[1])
    return Address(*listen, *told)


def _plaintext(listeners: tuple[str, ...], name: str) -> tuple[str, int]:
    """The one PLAINTEXT listener of a list. Controller listeners are nothing to a single node."""
    found = [entry for entry in listeners if not entry.upper().startswith("CONTROLLER://")]
    if len(found) != 1 or not found[0].upper().startswith("PLAINTEXT://"):
        raise CannotStart(f"{name}={','.join(listeners)}: this broker has one listener, of type PLAINTEXT")
    host, _, port = found[0][len("PLAINTEXT://") :].rpartition(":")
    try:
        return host.strip("[]"), int(port)
    except ValueError:
        raise CannotStart(f"{name}={found[0]}: the port is not a number") from None


@contextlib.contextmanager
def _directory(config: BrokerConfig, data_dir: Path | None, ephemeral: bool) -> Iterator[Path]:
    """Where the data is: the option, else log.dirs, else the user's state directory."""
    if ephemeral:
        if data_dir is not None:
            raise CannotStart("--ephemeral and --data-dir exclude each other")
        path = Path(tempfile.mkdtemp(prefix="konvene-"))
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)
        return
    if data_dir is None:
        if "log.dirs" in config.static or "log.dir" in config.static:
            dirs = config.log_dirs
            if len(dirs) != 1:
                raise CannotStart(f"log.dirs={','.join(dirs)}: this broker keeps its data in one directory")
            data_dir = Path(dirs[0])
        else:
            state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
            data_dir = Path(state).expanduser() / "konvene"
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotStart(f"cannot use {data_dir} for data: {error.strerror}") from None
    yield data_dir


def _run(
    config: BrokerConfig,
    address: Address,
    path: Path,
    ephemeral: bool,
    began: float,
    progress: Progress | None,
) -> int:
    _have_files()
    factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    with contextlib.suppress(ImportError):
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(_main(config, address, path, ephemeral, began, progress))
    return 0


def _have_files() -> None:
    """As many open files as the system lets a process have, as Java does: every log has one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _main(
    config: BrokerConfig,
    address: Address,
    path: Path,
    ephemeral: bool,
    began: float,
    progress: Progress | None,
) -> None:
    from konvene.broker.broker import Broker

    loop = asyncio.get_running_loop()
    directory = open_directory(path, config["node.id"])
    if progress is not None:
        told = progress(len(directory.partitions()))
        directory.on_loaded = lambda partition: told(str(partition))
    broker = Broker(config, directory, loop)
    server = broker.listener()
    metrics: MetricsServer | None = None
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    gc.disable()
    try:
        await broker.start()
        settling = loop.create_task(_settle(broker))
        directory.on_loaded = lambda _partition: None
        _advertise(broker, address, address.port)  # Some are quick, and not all places are listened at.
        try:
            await server.listen(address.host, address.port)
        except OSError as error:
            raise CannotStart(
                f"cannot listen on {address.host}:{address.port}: {error.strerror or error}"
                " (another broker may run there; --port chooses another port)"
            ) from None
        metrics = await _metrics(broker)
        _advertise(broker, address, server.port)
        took = time.perf_counter() - began
        kept = " (ephemeral: gone when it stops)" if ephemeral else ""
        advertised_host, _ = broker.catalogue.advertised
        sys.stdout.write(
            f"konvene {__version__} listens on {advertised_host}:{server.port}, data in {path}{kept}:"
            f" {_found(directory)}, {took:.2f} s{_told(metrics)}\n"
        )
        sys.stdout.flush()
        await stop.wait()
        settling.cancel()
    finally:
        if metrics is not None:
            await metrics.close()
        await server.close()
        await broker.stop()


def _advertise(broker: Broker, address: Address, port: int) -> None:
    """Say where clients are to come: at this port, unless they were told another one."""
    broker.catalogue.advertised = (address.advertised_host or "localhost", address.advertised_port or port)


async def _metrics(broker: Broker) -> MetricsServer | None:
    """Serve metrics, if they are asked for."""
    if broker.meter is None:
        return None
    from konvene.broker.metrics.server import MetricsServer

    config = broker.settings.config
    host, port = config["konvene.metrics.host"], config["konvene.metrics.port"]
    metrics = MetricsServer(broker, broker.meter)
    try:
        await metrics.listen(host, port)
    except OSError as error:
        raise CannotStart(
            f"cannot serve metrics on {host}:{port}: {error.strerror or error}"
            " (--metrics-port chooses another port)"
        ) from None
    return metrics


def _told(metrics: MetricsServer | None) -> str:
    """Where metrics are."""
    return "" if metrics is None else f", metrics at {metrics.url}"


LOOK_FOR_GARBAGE = (50_000, 20, 20)
"""Nearly all that a broker lets go of is gone at once, without being looked for. With Python's own thresholds
it looked through all members of a large group twice for each that joins, a tenth of a second each time."""


async def _settle(broker: Broker) -> None:
    """What was read from the logs stays: looking for garbage in it would take as long as reading it."""
    await broker.groups.loaded()
    await broker.transactions.loaded()
    gc.freeze()
    gc.set_threshold(*LOOK_FOR_GARBAGE)
    gc.enable()


def open_directory(path: Path, node_id: int) -> LogDirectory:
    """Lock the data directory; a new one becomes a cluster of its own."""
    new = not (path / META_NAME).exists()
    fresh = [str(Uuid(SYSTEM.fresh_uuid().bytes)) if new else "" for _ in range(2)]
    return LogDirectory.open(RealDisk(), str(path), Identity(fresh[0], node_id, fresh[1]))


def _found(directory: LogDirectory) -> str:
    """What the data directory held and what had to be done about it."""
    partitions = len(directory.logs) - 1  # The cluster's own log is no topic's.
    if directory.clean:
        return f"{partitions} partitions, closed properly"
    scanned = sum(r.scanned_bytes for r in directory.recovered.values())
    cut = sum(r.cut_bytes for r in directory.recovered.values())
    damaged = f", {len(directory.damaged)} damaged and offline" if directory.damaged else ""
    if not scanned and not damaged:
        return f"{partitions} partitions"
    return f"{partitions} partitions recovered ({scanned} bytes read, {cut} torn bytes cut{damaged})"
