"""Where Spark looks for data sources by itself: packages whose names begin with `pyspark_`, with one each.

`spark.read.format("konvene")` works wherever this package can be imported, with nothing called first.
"""

from konvene.spark.source import Konvene as DefaultSource

__all__ = ["DefaultSource"]
