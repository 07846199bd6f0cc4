"""The warehouse's tables as tables of Delta Lake and Iceberg, for engines that read those.

`delta.export` and `iceberg.export` bring a directory to what a warehouse is now: one table for each of its
tables, whose files are the warehouse's own, under the same bytes. What is there already stays, what the
warehouse has no more goes, and all of a table's changes are one commit. So an export can be run again at any
time, also after one that was killed: it does what is left to do, and nothing twice.

Neither needs a JVM. Both are extras: `konvene[delta]`, `konvene[iceberg]`.
"""

from konvene.pipeline.export.files import Exported, ExportError, MissingExtra

__all__ = ["ExportError", "Exported", "MissingExtra"]
