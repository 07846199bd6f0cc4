"""One Spark session for all tests of this folder in a process, because it takes seconds to start.

Without Java or pyspark the tests are skipped with a reason.
"""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent


def missing() -> str | None:
    """Return the reason why these tests cannot run, or None."""
    if importlib.util.find_spec("pyspark") is None:
        return "pyspark is not installed: pip install 'konvene[spark]'"
    if shutil.which("java") is None:
        return "Spark needs Java 17 or newer, and there is no java in PATH"
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    why = missing()
    for item in items:
        if why is not None and HERE in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=why))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Return the session that all tests share; failed tasks are retried, as in a cluster."""
    from tests.pipeline.spark.cluster import SHORT_LIVED

    from konvene.pipeline.spark.session import build, settings

    java = settings()["spark.driver.extraJavaOptions"]
    folder = tmp_path_factory.mktemp("spark")
    (folder / "events").mkdir()
    session = build(
        "local[2]",
        app_name="konvene tests",
        spark_local_dir=str(folder / "local"),
        spark_eventLog_enabled="true",  # Secrets must not be in it.
        spark_eventLog_dir=(folder / "events").as_uri(),
        spark_eventLog_compress="false",
        spark_driver_extraJavaOptions=f"{java} {SHORT_LIVED}",
        spark_sql_adaptive_enabled="false",  # Small queries, of which each would be planned twice,
        spark_sql_codegen_wholeStage="false",  # and compiled for longer than they run.
        spark_sql_warehouse_dir=str(folder / "warehouse"),
    )
    yield session
    session.stop()
