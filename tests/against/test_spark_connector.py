"""`format("konvene")` has the rows of Spark's own Kafka connector: codecs, headers, transactions."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from .brokers import HERE, Broker, Unavailable
from .spark_connector import connector_jars
from .test_spark_source import CODECS, send, send_transactions
from .tries import own_name


@pytest.mark.skipif(importlib.util.find_spec("pyspark") is None, reason="pip install 'konvene[spark]'")
@pytest.mark.java
def test_rows_equal_those_of_sparks_connector(broker: Broker, request: pytest.FixtureRequest) -> None:
    try:
        connector_jars()
    except Unavailable as missing:
        pytest.skip(f"Spark's connector is missing: {missing}")
    topic = own_name(request)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 3)])[topic].result(30)
    for codec in CODECS:
        send(broker, topic, 60, **{"compression.type": codec})
    send_transactions(broker, topic, 3)
    words = [sys.executable, "-m", "tests.against.spark_connector", broker.bootstrap, topic, "read_committed"]
    done = subprocess.run(words, cwd=HERE.parents[1], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    theirs, ours = map(json.loads, done.stdout.splitlines()[-2:])
    assert ours == theirs
    assert len(ours[1]) == 300 + 9
