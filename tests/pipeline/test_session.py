"""What a session is made of, without making one."""

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
def test_a_local_task_is_tried_as_often_as_a_clusters(given: str, made: str) -> None:
    assert retrying(given) == made


def test_a_star_is_as_many_cores_as_this_process_may_use() -> None:
    assert retrying("local[*]") == f"local[{cores('local[*]')},4]"
    assert cores("local[*]") >= 1


def test_what_is_given_wins() -> None:
    made = settings("local[2]", spark_driver_memory="2g", **{"spark.ui.enabled": "true"})
    assert made["spark.driver.memory"] == "2g"
    assert made["spark.ui.enabled"] == "true"
    assert made["spark.sql.shuffle.partitions"] == "2"


def test_a_cluster_is_left_its_own_addresses_and_shuffles() -> None:
    made = settings("spark://127.0.0.1:7077")
    assert "spark.driver.host" not in made
    assert "spark.sql.shuffle.partitions" not in made
    assert made["spark.master"] == "spark://127.0.0.1:7077"


def test_each_setting_has_its_reason_and_stands_once() -> None:
    keys = [row.key for row in CONF]
    assert len(keys) == len(set(keys))
    assert all(row.reason.endswith(".") for row in CONF)
