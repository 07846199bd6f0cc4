"""Settings of a Spark session, without starting one."""

from __future__ import annotations

import pytest

from konvene.pipeline.spark.session import CONF, cores, retrying, settings


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ("local", "local[1,4]"),
        ("local[3]", "local[3,4]"),
        ("local[2,1]", "local[2,1]"),
        ("spark://127.0.0.1:7077", "spark://127.0.0.1:7077"),
        ("yarn", "yarn"),
    ],
)
def test_local_master_retries_tasks_like_a_cluster(given: str, made: str) -> None:
    assert retrying(given) == made


def test_star_stands_for_the_available_cores() -> None:
    assert retrying("local[*]") == f"local[{cores('local[*]')},4]"
    assert cores("local[*]") >= 1


def test_explicit_settings_take_precedence() -> None:
    found = settings("local[2]", spark_driver_memory="2g", **{"spark.ui.enabled": "true"})
    assert found["spark.driver.memory"] == "2g"
    assert found["spark.ui.enabled"] == "true"
    assert found["spark.sql.shuffle.partitions"] == "2"


def test_cluster_keeps_its_own_addresses_and_shuffle_partitions() -> None:
    made = settings("spark://127.0.0.1:7077")
    assert "spark.driver.host" not in made
    assert "spark.sql.shuffle.partitions" not in made
    assert made["spark.master"] == "spark://127.0.0.1:7077"


def test_each_setting_is_unique_and_has_a_reason() -> None:
    keys = [row.key for row in CONF]
    assert len(keys) == len(set(keys))
    assert all(row.reason.endswith(".") for row in CONF)


def test_job_of_spark_submit_keeps_the_driver_as_it_was_started() -> None:
    made = settings(None, spark_executor_memory="1g")
    assert made["spark.executor.memory"] == "1g"
    assert made["spark.python.unix.domain.socket.enabled"] == "true"
    assert not {"spark.master", "spark.driver.memory", "spark.driver.host"} & made.keys()
