"""Steps that the commands of `konvene explain` share: from logs to a warehouse with gold tables.

Logs are files, or `host:port` of a live broker, whose logs are fetched into a directory first (`_fetched` in
the warehouse) and then read like any others. Without `--warehouse` everything is built in a temporary
directory that the command deletes.

Errors that logs, disks, brokers and users can cause become one line and a hint (`reporting_failures`).
"""

from __future__ import annotations

import functools
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import click

from konvene.cli.explain.broker_log import broker_log_of, note_misfits
from konvene.cli.options import Failure, command_config_option, fail, failure_of
from konvene.cli.output import Progress, note
from konvene.internal_topics import AUDIT_TOPIC
from konvene.plurals import counted

if TYPE_CHECKING:
    from datetime import tzinfo

    from konvene.client.net.settings import ClientSettings
    from konvene.pipeline.answers import Cost, Gold, Rebalance
    from konvene.pipeline.answers.broker_log.evidence import BrokerLog
    from konvene.pipeline.answers.cost import Key as CostKey
    from konvene.pipeline.answers.observations.evidence import Observations
    from konvene.pipeline.engine import Engine
    from konvene.pipeline.progress import Progress as Step
    from konvene.pipeline.warehouse.warehouse import Warehouse

__all__ = [
    "NO_GROUPS",
    "PATIENCE_S",
    "PROCESSES_FROM_BYTES",
    "Work",
    "answers_of",
    "brokers_and_paths",
    "costs_of",
    "evidence_of",
    "fetched",
    "has_logs",
    "ingest_and_build",
    "logs_argument",
    "open_warehouse",
    "progress_bar",
    "reporting_failures",
    "require_groups",
    "spool_of",
    "warehouse_option",
    "work_options",
]  # fmt: skip

F = TypeVar("F", bound=Callable[..., object])

PATIENCE_S = 3600
"""How long `optimize` and `vacuum` wait for another writer of the warehouse."""
MAX_CLUSTERS = 10
"""At most so many clusters are listed in a message."""
PROCESSES_FROM_BYTES = 64 << 20
"""Size of the logs from which `--engine auto` and `local` use all cores."""
_BROKER = re.compile(r"(?:[\w.-]+|\[[0-9a-fA-F:.]+\]):\d{1,5}(?:,(?:[\w.-]+|\[[0-9a-fA-F:.]+\]):\d{1,5})*")


class Work(NamedTuple):
    """Options of all commands that read logs: the warehouse, the engine (`auto`, `local` or `spark`) and its
    Spark master, the cluster (empty for all), whether konvene's audit topic is read, the file with the
    settings for live brokers, and brokers' own logs with their time zone (None: this machine's)."""

    warehouse: Path | None
    engine: str
    master: str | None
    cluster: str
    audit: bool
    command_config: Path | None = None
    broker_logs: tuple[Path, ...] = ()
    broker_log_zone: tzinfo | None = None

    @property
    def client_settings(self) -> ClientSettings:
        """Return the settings for connections to live brokers. Raises `ClientError`."""
        from konvene.client.net.settings import ClientSettings, load_command_config

        return load_command_config(self.command_config) if self.command_config else ClientSettings()


def logs_argument(required: bool = False) -> Callable[[F], F]:
    return click.argument("logs", nargs=-1, required=required, metavar="LOGS...")


def warehouse_option(command: F) -> F:
    """Add --warehouse to a command."""
    return click.option(
        "--warehouse",
        type=click.Path(path_type=Path, file_okay=False),
        metavar="DIR",
        help="Directory that keeps the tables; a second run reads only new records.",
    )(command)


def work_options(command: F) -> F:
    """Add --warehouse, --engine, --master, --cluster, --no-audit and --command-config, passed as the
    parameter `work`."""

    @warehouse_option
    @click.option("--engine", type=click.Choice(["auto", "local", "spark"]), default="auto",
                  show_default=True,
                  help="Engine that processes the logs; auto uses Spark with --master.")  # fmt: skip
    @click.option("--master", metavar="URL", help="Spark master, such as spark://host:7077; implies "
                  "--engine spark [default: this machine].")  # fmt: skip
    @click.option("--cluster", default="", metavar="NAME",
                  help="Only this cluster; also names the cluster of logs without "
                  "meta.properties.")  # fmt: skip
    @click.option("--no-audit", is_flag=True,
                  help="Ignore __konvene_audit: explain from Kafka's own records alone.")  # fmt: skip
    @command_config_option()
    @functools.wraps(command)
    def wrapped(
        *args: object, warehouse: Path | None, engine: str, master: str | None, cluster: str, no_audit: bool,
        command_config: Path | None, **kwargs: object,
    ) -> object:  # fmt: skip
        if master is not None and engine == "local":
            raise click.UsageError("--master requires Spark; --engine local does not use it.")
        chosen = "spark" if master is not None else engine
        work = Work(warehouse, chosen, master, cluster, not no_audit, command_config)
        return command(*args, work=work, **kwargs)

    return wrapped  # type: ignore[return-value]


# failures -------------------------------------------------------------------------------------


@contextmanager
def reporting_failures(logs: Sequence[str] = (), *, audit: bool = True) -> Iterator[None]:
    """Turn exceptions that a log, a disk, a broker or a user can cause within the block into one-line
    failures of the command. `audit` is False with --no-audit."""
    try:
        import numpy  # noqa: F401 (without these two nothing of the pipeline can be imported)
        import pyarrow  # noqa: F401
    except ImportError as error:
        fail(f"explaining logs needs {error.name}, which is not installed", "pip install 'konvene[explain]'")
    from concurrent.futures.process import BrokenProcessPool

    from konvene.client.errors import AuthenticationFailed, ClientError, KafkaError, Misconfigured
    from konvene.client.hints import SECURED
    from konvene.pipeline.ingest.ingest import WrongTables
    from konvene.pipeline.sources.files import NotALog
    from konvene.pipeline.warehouse.warehouse import Conflict, DamagedWarehouse, MissingDelta, OldFormat

    try:
        yield
    except NotALog as error:
        fail(
            f"no log: {error}",
            "Name data directories, partition directories, segments, or host:port of a broker.",
        )
    except Conflict as error:
        fail(
            f"the warehouse is in use: {error}", "Wait for the other command, or choose another --warehouse."
        )
    except WrongTables:
        hint = "Choose another --warehouse."
        fail("this warehouse was created " + ("without" if audit else "with") + f" {AUDIT_TOPIC}", hint)
    except DamagedWarehouse as error:
        fail(f"the warehouse is damaged: {error}", "Build it again from the logs in another directory.")
    except OldFormat as error:
        fail(str(error), "Build it again from the logs in another directory.")
    except MissingDelta as error:
        fail(str(error), "pip install 'konvene[delta]'")
    except BrokenProcessPool:
        hint = "Is there enough memory? What was read before is kept in --warehouse."
        fail("a worker process was killed", hint)
    except BrokenPipeError:
        raise  # The reader closed the pipe: click exits quietly.
    except FileNotFoundError as error:
        fail(f"there is no {error.filename or ' or '.join(logs)}")
    except PermissionError as error:
        fail(f"no permission to read {error.filename}", "Run it as a user who may read the broker's files.")
    except ClientError as error:
        hint = f"Name host:port of a Kafka listener; {SECURED}."
        if isinstance(error, (KafkaError, AuthenticationFailed, Misconfigured)):
            hint = failure_of(error).hint
        raise Failure(str(error), hint) from error
    except OSError as error:
        fail(f"{error.filename or 'reading or writing'}: {error.strerror or error}")


# groups ---------------------------------------------------------------------------------------


NO_GROUPS = "The logs contain no group: do they include __consumer_offsets?"


def require_groups(gold: Gold, groups: Sequence[str]) -> None:
    """Fail for the first group that the tables do not contain, suggesting similar ids."""
    for group in groups:
        if group in gold.groups:
            continue
        similar = gold.similar_groups(group)
        if similar:
            fail(f"group {group} not found in the logs", f"Did you mean {' or '.join(similar)}?")
        some = ", ".join(gold.groups[:5])
        hint = f"Groups in the logs: {some}{', …' if len(gold.groups) > 5 else ''}." if some else NO_GROUPS
        fail(f"group {group} not found in the logs", hint)


# the steps ------------------------------------------------------------------------------------


@contextmanager
def open_warehouse(work: Work) -> Iterator[Warehouse]:
    """Open the warehouse of `--warehouse`, or a temporary one that is deleted after the block."""
    from konvene.pipeline.warehouse.memory import InMemory
    from konvene.pipeline.warehouse.warehouse import Warehouse

    if work.warehouse is not None:
        yield Warehouse(work.warehouse)
        return
    path = tempfile.mkdtemp(prefix="konvene-explain-")
    try:
        yield Warehouse(path, InMemory(path))
    finally:
        try:
            shutil.rmtree(path, ignore_errors=True)
        except KeyboardInterrupt:  # A second Ctrl-C does not leave half of it behind.
            shutil.rmtree(path, ignore_errors=True)
            raise


@contextmanager
def answers_of(logs: Sequence[str], work: Work) -> Iterator[Gold]:
    """Read what is new in the logs into the warehouse, and yield its gold tables, which have the answers.

    Without logs, yields the tables of the warehouse as they are.
    """
    with reporting_failures(logs, audit=work.audit):
        if not logs and work.warehouse is None:
            raise click.UsageError("name logs to read, or an existing --warehouse.")
        if not logs and work.warehouse is not None and not work.warehouse.is_dir():
            fail(f"there is no warehouse {work.warehouse}", "Name logs to build it from.")
        from konvene.pipeline.answers import Gold

        with open_warehouse(work) as warehouse:
            if logs:
                ingest_and_build(warehouse, fetched(warehouse, logs, work), work)
            clusters = Gold(warehouse=warehouse).clusters
            if work.cluster and clusters and work.cluster not in clusters:
                fail(
                    f"cluster {work.cluster} not found in the logs",
                    f"Clusters in the logs: {_listed(clusters)}.",
                )
            if not work.cluster and len(clusters) > 1:
                note(
                    f"The logs are of {len(clusters)} clusters: {_listed(clusters)}; --cluster NAME selects "
                    "one."
                )
            log = broker_log_of(work)
            evidence = evidence_of(log, warehouse, logs)
            yield Gold(warehouse=warehouse, cluster=work.cluster or None, evidence=evidence)
            note_misfits(log)


def _listed(clusters: Sequence[str]) -> str:
    names = [each or "unnamed" for each in clusters]
    return ", ".join(names[:MAX_CLUSTERS]) + (", …" if len(names) > MAX_CLUSTERS else "")


def brokers_and_paths(logs: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split command-line arguments into broker addresses (`host:port`) and paths. An argument that exists as
    a file is a path."""
    brokers = [each for each in logs if _BROKER.fullmatch(each) and not Path(each).exists()]
    return brokers, [each for each in logs if each not in brokers]


def fetched(warehouse: Warehouse, logs: Sequence[str], work: Work) -> list[str]:
    """Return the paths to read, after fetching the logs of live brokers up to their current end."""
    brokers, paths = brokers_and_paths(logs)
    for broker in brokers:
        from konvene.pipeline.sources.live import LiveReader

        directory = spool_of(warehouse, broker)
        with LiveReader(broker, directory, settings=work.client_settings) as reader:
            reader.catch_up()
        if has_logs(directory):
            paths.append(str(directory))
        else:
            note(f"{broker} has no group logs: it has never had a group.")
    if not paths:
        raise click.exceptions.Exit(1)
    return paths


def has_logs(directory: Path) -> bool:
    """Return True if any log was fetched into this directory."""
    return any(directory.glob("*-*/*.log"))


def spool_of(warehouse: Warehouse, broker: str) -> Path:
    """Return the directory for the fetched logs of a live broker."""
    return warehouse.path / "_fetched" / re.sub(r"[^\w.-]", "_", broker)


def evidence_of(
    log: BrokerLog | None, warehouse: Warehouse, paths: Sequence[str], followed: Sequence[Path] = ()
) -> list[BrokerLog | Observations]:
    """Return the evidence beside the records: brokers' logs, if any, and observations of groups that
    followers left in the warehouse or beside the logs in `paths`, or will write into `followed`."""
    from konvene.pipeline.answers.observations.evidence import (
        OBSERVATIONS_NAME,
        Observations,
        observation_files,
    )

    found = observation_files([*paths, *warehouse.path.glob("_fetched/*")])
    found += [path for each in followed if (path := each / OBSERVATIONS_NAME) not in found]
    evidence: list[BrokerLog | Observations] = [] if log is None else [log]
    return [*evidence, Observations(found)] if found else evidence


def ingest_and_build(warehouse: Warehouse, paths: Sequence[str], work: Work, *, quiet: bool = False) -> None:
    """Ingest new records of the logs and build the gold tables from them. Progress is shown on a terminal
    unless `quiet`."""
    from konvene.pipeline.gold.build import build
    from konvene.pipeline.ingest.ingest import ingest

    engine = engine_of(work, paths)
    tables = None if work.audit else all_but("audit_event")
    with progress_bar("reading", quiet) as on_progress:
        report = ingest(warehouse, paths, engine, cluster=work.cluster, tables=tables, progress=on_progress)
    for each in report.left:
        note(each)
    with progress_bar("explaining", quiet) as on_progress:
        build(warehouse, engine, progress=on_progress)


def all_but(name: str) -> list[str]:
    """Return the names of all tables of the pipeline except the table `name`."""
    from konvene.pipeline.codec.typed import TYPED
    from konvene.pipeline.tables import TABLES

    return sorted(({*TABLES} | {each.name for each in TYPED.values()}) - {name})


@contextmanager
def progress_bar(name: str, quiet: bool = False) -> Iterator[Callable[[Step], None] | None]:
    """Yield a function that shows the progress of a step on a terminal; None with `quiet`."""
    bar = Progress(0, beside_output=True)

    def show(now: Step) -> None:
        bar.total = now.bytes
        bar.add(now.bytes_done - bar.done, f"{name}, {counted(now.rows, 'row')}")

    try:
        yield None if quiet else show
    finally:
        bar.clear()


def engine_of(work: Work, paths: Sequence[str]) -> Engine:
    """Return the engine of `--engine`. `auto` uses processes of this machine, which are faster here than
    Spark; with `--master`, the engine is Spark."""
    from konvene.pipeline.engine import Local, Processes, Spark

    if work.engine != "spark":
        return Local() if _total_bytes(paths) < PROCESSES_FROM_BYTES else Processes()
    if not _has_spark():
        fail(
            "Spark is not installed", "pip install 'konvene[spark]', and Java 17 or newer; or --engine local."
        )
    from konvene.pipeline.spark import session

    try:
        return Spark(session.build(work.master or "local[*]"))
    except RuntimeError as error:
        fail(str(error), "--engine local works without Spark.")


def _has_spark() -> bool:
    from importlib.util import find_spec

    return find_spec("pyspark") is not None


def _total_bytes(paths: Sequence[str]) -> int:
    from konvene.pipeline.sources.files import find

    return sum(segment.size for copy in find(paths).copies for segment in copy.segments)


def costs_of(gold: Gold, shown: Sequence[Rebalance]) -> dict[CostKey, Cost]:
    """Return the cost of each rebalance in `shown` by its key, reading only the tables of their groups."""
    from konvene.pipeline.answers import Ends, costs
    from konvene.pipeline.answers.cost import LAG_COLUMNS

    groups = sorted({each.group_id for each in shown})
    if not groups:
        return {}
    return costs(shown, gold.rows("unavailability", groups), Ends(gold.rows("lag", groups, LAG_COLUMNS)))
