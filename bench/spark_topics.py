"""Users' topics on Spark, by CPU: `format("konvene")` beside Spark's own Kafka connector, in one session.

A topic of four partitions with records of 8 bytes of key and 100 of value, 130 to a batch, is read to `noop`
in turn by both, from each broker. CPU time is that of all processes of the session: the JVM and its Python
workers. The first passes compile code. Run `python -m bench.spark_topics`; it needs Java and Maven.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import Producer
from tests.against.spark_connector import FORMATS, load, session

from bench.pipeline_spark import seconds_of
from bench.systems import SYSTEMS, Running
from konvene.client import Admin, Cluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDS, PARTITIONS, PASSES, WARM = 1_000_000, 4, 10, 5
TOPIC = "bench"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.spark_topics", description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=RECORDS)
    parser.add_argument("--passes", type=int, default=PASSES, help="of each format [%(default)d]")
    parser.add_argument("--systems", default="konvene,kafka", help="brokers to read from [%(default)s]")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spark = session(2, folder / "spark")
        print(f"{'million records per CPU second':<44}{'first':>8}{'median of the later':>22}")
        for system in options.systems.split(","):
            broker = Running(SYSTEMS[system](folder / system))
            broker.start()
            try:
                fill(broker.broker.bootstrap, options.records)
                for what, rates in measured(spark, broker.broker.bootstrap, options).items():
                    later = statistics.median(rates[min(WARM, len(rates) - 1) :])
                    print(f"{f'{what}, from {system}':<44}{rates[0]:>8.2f}{later:>22.2f}", flush=True)
            finally:
                broker.kill()
        spark.stop()


def fill(bootstrap: str, records: int) -> None:
    """Create the topic and write its records."""
    asyncio.run(create(bootstrap))
    producer = Producer({
        "bootstrap.servers": bootstrap, "batch.num.messages": 130, "linger.ms": 50,
        "queue.buffering.max.messages": 200_000,
    })  # fmt: skip
    for n in range(records):
        while True:
            try:
                producer.produce(TOPIC, b"%0100d" % n, b"%08d" % n, partition=n // 130 % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()


async def create(bootstrap: str) -> None:
    async with Cluster(bootstrap) as cluster:
        await Admin(cluster).create_topic(TOPIC, partitions=PARTITIONS)


def measured(spark: SparkSession, bootstrap: str, options: argparse.Namespace) -> dict[str, list[float]]:
    """Return the rate of each pass, by format and columns."""
    narrow = spark.read.format("konvene").schema("key binary, value binary")
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": TOPIC}
    frames = {f"{name}, 7 columns": load(spark, name, bootstrap, TOPIC) for name in FORMATS}
    frames["konvene, key and value"] = narrow.options(**given).load()
    rates: dict[str, list[float]] = {what: [] for what in frames}
    for _ in range(options.passes):
        for what, frame in frames.items():
            _, cpu_s = seconds_of(partial(read, frame))
            rates[what].append(options.records / cpu_s / 1e6)
    return rates


def read(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


if __name__ == "__main__":
    main()
