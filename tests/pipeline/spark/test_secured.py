"""The data source with a secured cluster: where its settings come from, and that Spark shows no secret."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from tests.pipeline.sources.test_live import GROUPS

from konvene.pipeline.spark import stream
from konvene.pipeline.warehouse import read
from konvene.pipeline.warehouse.warehouse import Warehouse
from konvene.testing import Konvene

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SECRET = "marked-spark-secret"
JAAS = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="{SECRET}";'


@pytest.fixture(scope="module")
def secured() -> Iterator[Konvene]:
    """A broker with SASL_SSL that has an offset of each group."""
    with Konvene(
        {"offsets.topic.num.partitions": 2}, security="SASL_SSL", users={"alice": SECRET},
        acls=["alice ALL topic:*"],
    ) as konvene:  # fmt: skip
        konvene.create_topic("orders")
        for group in GROUPS:
            konvene.commit(group, {("orders", 0): 1})
        yield konvene


def load(spark: SparkSession, konvene: Konvene, **options: str) -> DataFrame:
    reader = spark.read.format("konvene-log").option("table", "offset_commit")
    return reader.options(**{"kafka.bootstrap.servers": konvene.bootstrap, **options}).load()


def plans_of(frame: DataFrame) -> str:
    """Return all descriptions that Spark prints of a frame before it runs."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        frame.explain(True)
        frame.explain("formatted")
    execution = frame._jdf.queryExecution()  # type: ignore[operator]
    return printed.getvalue() + execution.toString() + execution.logical().toJSON() + repr(frame)


def event_log(spark: SparkSession) -> str:
    """Return what the event log has so far."""
    folder = Path(urlsplit(spark.conf.get("spark.eventLog.dir") or "").path)
    return "".join(path.read_text(errors="replace") for path in folder.rglob("*") if path.is_file())


def test_the_file_is_on_each_machine_or_added(spark: SparkSession, secured: Konvene, tmp_path: Path) -> None:
    properties = secured.client_properties("alice").read_text()
    (tmp_path / "alice.properties").write_text(properties)
    groups = set(GROUPS)
    frames = [load(spark, secured, **{"command.config": str(tmp_path / "alice.properties")})]
    assert {row.group for row in frames[0].collect()} == groups
    spark.sparkContext.addFile(str(tmp_path / "alice.properties"))
    frames.append(load(spark, secured, **{"command.config": "alice.properties"}))
    assert {row.group for row in frames[1].collect()} == groups
    for frame in frames:
        assert SECRET not in plans_of(frame)
    assert "konvene-log" in event_log(spark)
    assert SECRET not in event_log(spark)


def test_settings_that_are_no_secrets_are_options(
    spark: SparkSession, secured: Konvene, tmp_path: Path
) -> None:
    """They override the file; the file has the rest."""
    lines = secured.client_properties("alice").read_text().splitlines()
    given = {f"kafka.{line.partition('=')[0]}": line.partition("=")[2] for line in lines}
    jaas = given.pop("kafka.sasl.jaas.config")
    (tmp_path / "secret.properties").write_text(f"sasl.jaas.config={jaas}\nsecurity.protocol=SSL\n")
    frame = load(spark, secured, **given, **{"command.config": str(tmp_path / "secret.properties")})
    assert frame.count() == len(GROUPS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kafka.sasl.jaas.config": JAAS}, "kafka.sasl.jaas.config=\\[hidden\\] is a secret"),
        ({"kafka.ssl.keystore.password": SECRET}, "put it into a properties file"),
        ({"kafka.security.protocl": "SSL"}, "do you mean security.protocol"),
        ({"kafka.linger.ms": "1"}, "konvene-log has no option kafka.linger.ms"),
    ],
)
def test_secrets_and_unknown_settings_are_refused(
    spark: SparkSession, secured: Konvene, options: dict[str, str], message: str
) -> None:
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException, match=message) as raised:
        load(spark, secured, **options)
    assert SECRET not in str(raised.value)


def test_a_failed_login_shows_no_secret(spark: SparkSession, secured: Konvene, tmp_path: Path) -> None:
    text = secured.client_properties("alice").read_text().replace('username="alice"', 'username="eve"')
    (tmp_path / "wrong.properties").write_text(text)
    frame = load(spark, secured, **{"command.config": str(tmp_path / "wrong.properties")})
    with pytest.raises(Exception, match="Invalid username or password") as raised:
        frame.count()
    assert SECRET not in str(raised.value)
    assert SECRET not in event_log(spark)


def test_a_stream_builds_gold_of_a_secured_cluster(
    spark: SparkSession, secured: Konvene, tmp_path: Path
) -> None:
    options: dict[str, Any] = {
        "kafka.bootstrap.servers": secured.bootstrap,
        "command.config": str(secured.client_properties("alice")),
    }
    query = stream.gold(
        spark, [], str(tmp_path / "w"), checkpoint=str(tmp_path / "checkpoint"), once=True, **options
    )
    query.awaitTermination()
    assert read.table(Warehouse(tmp_path / "w"), "coordinator_record", ["offset"]).num_rows == len(GROUPS)
    stored = [path.read_bytes() for path in (tmp_path / "checkpoint").rglob("*") if path.is_file()]
    assert SECRET.encode() not in b"".join(stored)
    assert SECRET not in event_log(spark)
