"""`konvene serve`: start a broker from its options, and stop it in order.

One line on stdout has the address, the data directory and the result of log recovery. With `--log-format
json` it is JSON, as is every line on stderr. SIGTERM and SIGINT stop the broker after the requests that are
running.
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

from konvene.broker import log_output
from konvene.broker.advertised_address import (
    WILDCARDS,
    NoReachableAddress,
    parse_advertised,
    reachable_host,
    shown,
)
from konvene.broker.groups.assignors import SETTING as ASSIGNORS
from konvene.broker.groups.assignors import TASK_SETTING as TASK_ASSIGNORS
from konvene.broker.groups.assignors import load_assignors, load_task_assignors
from konvene.broker.net.authorization import standard_authorizer
from konvene.broker.net.socket_server import CannotListen
from konvene.broker.port_check import bind_error
from konvene.broker.startup_line import startup_line
from konvene.codec.uuid import Uuid
from konvene.configs import BrokerConfig, ConfigError
from konvene.configs.listeners import Listener, broker_listeners
from konvene.log.directory import META_NAME, Identity, LogDirectory
from konvene.log.disk.files import RealDisk
from konvene.log.errors import LogError
from konvene.runtime.environment import SYSTEM

if TYPE_CHECKING:
    from konvene.broker.broker import Broker
    from konvene.broker.health import Health
    from konvene.broker.metrics.server import MetricsServer
    from konvene.broker.net.socket_server import SocketServer

log = logging.getLogger("konvene")

PLAINTEXT = "PLAINTEXT"
DEFAULT_HOST = "localhost"
DEFAULT_PORT = 9092
STOP_SIGNALS = signal.SIGTERM, signal.SIGINT

Progress = Callable[[int], Callable[[str], None]]
"""Called with the number of partitions; returns a function to call with the name of each opened partition."""


Companion = Callable[[str, bool], contextlib.AbstractContextManager[None]]
"""Runs beside the broker: entered with its address, `host:port`, and whether that needs TLS or SASL, when it
accepts connections, and left before it stops."""


class ServeOptions(NamedTuple):
    """Command-line options of `konvene serve`. They override the settings of the properties file."""

    host: str | None = None
    port: int | None = None
    data_dir: Path | None = None
    ephemeral: bool = False
    """If True, the data directory is a temporary one, which is deleted when the broker stops."""
    config: Path | None = None
    """Properties file with settings."""
    overrides: Sequence[tuple[str, str]] = ()
    """Settings by name, which override the file."""
    assignors: Sequence[str] = ()
    """Server-side assignors in addition to those of the settings. Modules may be in the working directory."""
    metrics_port: int | None = None
    """Port of the metrics server; 0 for any free port, None for the port in the settings."""
    advertise: str | None = None
    """Address that clients connect to, as HOST or HOST:PORT; None for the one in the settings."""
    log_format: str = log_output.TEXT
    """Format of the process's output, of `log_output.FORMATS`."""


class Address(NamedTuple):
    """Host and port that the listener binds, and those that responses name for clients to connect to."""

    host: str
    port: int
    advertised_host: str
    advertised_port: int


class CannotStart(Exception):
    """The broker cannot start; the message is for its administrator."""


class WrongUsage(CannotStart):
    """An option or an environment variable is invalid; the exit status is 2."""


class Startup(NamedTuple):
    """Validated settings, listeners and data directory of a broker, computed before its event loop runs."""

    config: BrokerConfig
    listeners: tuple[Listener, ...]
    path: Path
    """The data directory."""
    ephemeral: bool
    began_s: float
    """Time at which the process began to start the broker, by `time.perf_counter`."""
    progress: Progress | None
    log_format: str
    companion: Companion | None


def serve(
    options: ServeOptions,
    progress: Progress | None = None,
    companion: Companion | None = None,
) -> int:
    """Run a broker, with a `companion` beside it, until a signal stops it.

    Return the exit status: 0, 1 after an error, 2 after wrong usage; the error is written to stderr."""
    began_s = time.perf_counter()
    if options.log_format == log_output.JSON:
        progress = None
    try:
        _configure_log(options.log_format)
        overrides = list(options.overrides)
        settings, notices = _configuration(options.config, overrides)
        overrides += _assignor_settings(settings, options.assignors)
        if options.metrics_port is not None:
            overrides.append(("konvene.metrics.port", str(options.metrics_port)))
        listeners = _listeners(settings, options)
        _check_ports(listeners, settings, options.metrics_port)
        for notice in notices:
            log.warning("%s", notice)
        with _data_directory(settings, options) as path:
            overrides += _resolved_settings(settings, listeners, path, options)
            settings, _ = _configuration(options.config, overrides)
            _check_metrics(settings)
            output = progress, options.log_format
            _run(Startup(settings, listeners, path, options.ephemeral, began_s, *output, companion))
    except (CannotStart, ConfigError, LogError) as error:
        if options.log_format == log_output.JSON:
            log.critical("%s", error)
        else:
            sys.stderr.write(f"konvene: {error}\n")
        return 2 if isinstance(error, WrongUsage) else 1
    return 0


def _configure_log(log_format: str) -> None:
    try:
        log_output.configure(log_format, os.environ.get("KONVENE_LOG", ""))
    except ValueError as error:
        raise WrongUsage(f"KONVENE_LOG: {error}") from None


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
    standard_authorizer(loaded)
    return loaded, notices


def _assignor_settings(config: BrokerConfig, additional: Sequence[str]) -> list[tuple[str, str]]:
    """Return `group.consumer.assignors` with the `additional` ones appended, as a (name, value) override.

    The list is empty if `additional` is. Raises `ConfigError` if an assignor cannot be loaded."""
    if additional:
        sys.path.append(str(Path.cwd()))
    assignors = (*config[ASSIGNORS], *additional)
    load_assignors(assignors)
    load_task_assignors(config[TASK_ASSIGNORS])
    return [(ASSIGNORS, ",".join(assignors))] if additional else []


def _check_metrics(config: BrokerConfig) -> None:
    """Log a warning if metrics are enabled and their library is not installed: only health is served then."""
    if config["konvene.metrics.port"] >= 0:
        from konvene.broker.metrics import exposition

        if not exposition.is_installed():
            log.warning(
                "%s; the metrics port answers /health/live and /health/ready only", exposition.MISSING
            )


def _resolved_settings(
    config: BrokerConfig, listeners: tuple[Listener, ...], path: Path, options: ServeOptions
) -> list[tuple[str, str]]:
    """Return the actual values of `log.dirs` and of the listeners that no setting names.

    DescribeConfigs shows them to clients."""
    resolved = [("log.dirs", str(path))]
    by_option = options.host is not None or options.port is not None
    if by_option or "listeners" not in config.static:
        host = f"[{listeners[0].host}]" if ":" in listeners[0].host else listeners[0].host
        resolved.append(("listeners", f"PLAINTEXT://{host}:{listeners[0].port}"))
    if options.advertise is not None:
        advertised = shown(listeners[0].advertised_host, listeners[0].advertised_port)
        resolved.append(("advertised.listeners", f"PLAINTEXT://{advertised}"))
    return resolved


def _listeners(config: BrokerConfig, options: ServeOptions) -> tuple[Listener, ...]:
    """Return the listeners to open: those of `listeners`, or one on the address of the options.

    Raises `ConfigError` and `CannotStart`."""
    by_option = options.host is not None or options.port is not None
    if not by_option and "listeners" in config.static:
        listeners = broker_listeners(config)
        if len(listeners) > 1 or listeners[0].protocol != PLAINTEXT:
            if options.advertise is not None:
                raise WrongUsage("--advertise is for a single PLAINTEXT listener; set advertised.listeners")
            return tuple(map(_reachable, listeners))
    address = _address(config, options.host, options.port, options.advertise)
    return (Listener(PLAINTEXT, PLAINTEXT, address.host, address.port, True, *address[2:]),)


def _reachable(listener: Listener) -> Listener:
    """Return the listener with an advertised host, if it listens on all addresses and none is set."""
    if listener.advertised_host or listener.host not in WILDCARDS or not listener.is_advertised:
        return listener
    try:
        return listener._replace(advertised_host=reachable_host(listener.host))
    except NoReachableAddress as error:
        raise CannotStart(str(error)) from None


def _address(
    config: BrokerConfig, host: str | None, port: int | None, advertise: str | None = None
) -> Address:
    """Return the address: from `host` and `port` if set, else from `listeners`, else localhost:9092.

    Clients connect to `advertise` if set, else to `advertised.listeners`, else to the same address or, if
    that means all addresses, to one that other machines reach (`advertised_address`)."""
    listen = (DEFAULT_HOST, DEFAULT_PORT)
    if "listeners" in config.static:
        listen = _plaintext(config["listeners"], "listeners")
    listen = (host if host is not None else listen[0], port if port is not None else listen[1])
    advertised = listen
    if advertise is not None:
        try:
            advertised = parse_advertised(advertise, listen[1])
        except ValueError as error:
            raise WrongUsage(f"--advertise {error}") from None
    elif config["advertised.listeners"]:
        advertised = _plaintext(config["advertised.listeners"], "advertised.listeners")
        if advertised[0] in WILDCARDS:
            raise CannotStart(
                f"advertised.listeners={','.join(config['advertised.listeners'])}: no client can connect to"
                " this address; name a host or an address"
            )
    elif listen[0] in WILDCARDS:
        try:
            advertised = (reachable_host(listen[0]), listen[1])
        except NoReachableAddress as error:
            raise CannotStart(str(error)) from None
    return Address(*listen, *advertised)


def _plaintext(listeners: tuple[str, ...], name: str) -> tuple[str, int]:
    """Return host and port of the PLAINTEXT listener in `listeners`, the value of the setting `name`.

    CONTROLLER listeners are ignored. Raises `CannotStart` unless exactly one other listener is left."""
    entries = [entry for entry in listeners if not entry.upper().startswith("CONTROLLER://")]
    if len(entries) != 1 or not entries[0].upper().startswith("PLAINTEXT://"):
        raise CannotStart(f"{name}={','.join(listeners)}: exactly one PLAINTEXT listener is supported")
    host, _, port = entries[0][len("PLAINTEXT://") :].rpartition(":")
    try:
        return host.strip("[]"), int(port)
    except ValueError:
        raise CannotStart(f"{name}={entries[0]}: the port is not a number") from None


def _check_ports(listeners: tuple[Listener, ...], config: BrokerConfig, metrics_port: int | None) -> None:
    """Raise `CannotStart` if a listener's port or that of metrics cannot be bound, before a data directory is
    created."""
    for listener in listeners:
        error = bind_error(listener.host, listener.port)
        if error is not None:
            raise _cannot_listen(listener, error)
    host = config["konvene.metrics.host"]
    port = config["konvene.metrics.port"] if metrics_port is None else metrics_port
    error = bind_error(host, port)
    if error is not None:
        raise _cannot_serve_metrics(host, port, error)


def _cannot_listen(listener: Listener, error: OSError) -> CannotStart:
    return CannotStart(
        f"cannot listen on {listener.host}:{listener.port}: {error.strerror or error}"
        " (another broker may be running; choose another port with --port)"
    )


def _cannot_serve_metrics(host: str, port: int, error: OSError) -> CannotStart:
    reason = os.strerror(error.errno) if error.errno else error  # asyncio repeats the address in `strerror`.
    return CannotStart(
        f"cannot serve metrics on {host}:{port}: {reason} (choose another port with --metrics-port)"
    )


@contextlib.contextmanager
def _data_directory(config: BrokerConfig, options: ServeOptions) -> Iterator[Path]:
    """Yield the data directory: `--data-dir`, else `log.dirs`, else one in the user's state directory.

    It is created if it does not exist. With `--ephemeral` it is temporary and deleted on exit."""
    data_dir = options.data_dir
    if options.ephemeral:
        if data_dir is not None:
            raise CannotStart("--ephemeral and --data-dir cannot be used together")
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
                raise CannotStart(f"log.dirs={','.join(dirs)}: exactly one directory is supported")
            data_dir = Path(dirs[0])
        else:
            state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
            data_dir = Path(state).expanduser() / "konvene"
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotStart(f"cannot use {data_dir} for data: {error.strerror}") from None
    yield data_dir


def _run(startup: Startup) -> None:
    _raise_file_limit()
    factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    with contextlib.suppress(ImportError):
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(_main(startup))


def _raise_file_limit() -> None:
    """Raise the limit of open files to the hard limit, as the JVM does: each log keeps at least one open."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _main(startup: Startup) -> None:
    from konvene.broker.broker import Broker
    from konvene.broker.health import Health

    loop = asyncio.get_running_loop()
    directory = open_directory(startup.path, startup.config["node.id"])
    if startup.progress is not None:
        report_opened = startup.progress(len(directory.partitions()))
        directory.on_loaded = lambda partition: report_opened(str(partition))
    broker = Broker(startup.config, directory, loop)
    server = broker.socket_server()
    health = Health(broker, server)
    metrics: MetricsServer | None = None
    stop = asyncio.Event()
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, stop.set)
    gc.disable()
    try:
        await broker.start()
        enabling_gc = loop.create_task(_enable_gc_when_loaded(broker))
        directory.on_loaded = lambda _partition: None
        try:
            await server.listen_on(startup.listeners)
        except CannotListen as failure:
            raise _cannot_listen(failure.listener, failure.error) from None
        metrics = await _start_metrics(broker, health)
        sys.stdout.write(startup_line(startup, broker, server, metrics))
        sys.stdout.flush()
        companion = startup.companion
        with (
            companion(*_companion_address(startup, server))
            if companion is not None
            else contextlib.nullcontext()
        ):
            await stop.wait()
        enabling_gc.cancel()
    finally:
        health.stopping = True
        await server.close()
        await broker.stop()
        if metrics is not None:
            await metrics.close()
        for number in STOP_SIGNALS:  # uvloop leaves the handlers of a closed loop in place.
            loop.remove_signal_handler(number)


def _companion_address(startup: Startup, server: SocketServer) -> tuple[str, bool]:
    """Return the address by which a companion connects, a plaintext listener's if there is one, and whether
    it is secured."""
    listeners = startup.listeners
    chosen = next((each for each in listeners if each.protocol == "PLAINTEXT"), listeners[0])
    port = server.listeners[chosen.name].port
    return shown(_local_host(chosen.host), port), chosen.protocol != "PLAINTEXT"


def _local_host(host: str) -> str:
    """Return the host by which programs on this machine connect to a listener on `host`."""
    return "localhost" if host in WILDCARDS else host


async def _start_metrics(broker: Broker, health: Health) -> MetricsServer | None:
    """Start the server of metrics and health if metrics are enabled."""
    if broker.meter is None:
        return None
    from konvene.broker.metrics.server import MetricsServer

    config = broker.settings.config
    host, port = config["konvene.metrics.host"], config["konvene.metrics.port"]
    metrics = MetricsServer(broker, broker.meter, health)
    try:
        await metrics.listen(host, port)
    except OSError as error:
        raise _cannot_serve_metrics(host, port, error) from None
    return metrics


GC_THRESHOLDS = (50_000, 20, 20)
"""Thresholds of Python's garbage collector. Reference counting frees nearly all of a broker's objects. With
the default thresholds the collector scans all members of a large group twice for each one that joins, which
takes a tenth of a second each time."""


async def _enable_gc_when_loaded(broker: Broker) -> None:
    """Enable the garbage collector once the coordinators have loaded their logs.

    The loaded objects are frozen (`gc.freeze`), so that no collection scans them: they stay alive, and
    scanning them would take as long as loading them."""
    await broker.groups.loaded()
    await broker.transactions.loaded()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    gc.enable()


def open_directory(path: Path, node_id: int) -> LogDirectory:
    """Open and lock a data directory. A new one gets a cluster id and a directory id of its own."""
    is_new = not (path / META_NAME).exists()
    ids = [str(Uuid(SYSTEM.fresh_uuid().bytes)) if is_new else "" for _ in range(2)]
    return LogDirectory.open(RealDisk(), str(path), Identity(ids[0], node_id, ids[1]))
