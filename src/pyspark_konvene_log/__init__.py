"""Where Spark looks for data sources by itself: packages whose names begin with `pyspark_`.

`spark.read.format("konvene-log")` works wherever this package can be imported, with nothing called first.
"""

from konvene.pipeline.sources.konvene_log import KonveneLog as DefaultSource

__all__ = ["DefaultSource"]
