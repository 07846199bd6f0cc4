"""Exports the warehouse's tables, which are Delta tables, as Iceberg tables.

`iceberg.export` brings a directory up to date with a warehouse: one exported table per
table, with the same Parquet files. Files that are already exported stay, files that the warehouse no longer
has are removed, and all changes of a table are one commit. An export can be repeated at any time, also after
it was killed: it completes what is missing and adds nothing twice.

It needs no JVM, and is an extra: `konvene[iceberg]`.
"""

from konvene.pipeline.export.files import Exported, ExportError, MissingExtra

__all__ = ["ExportError", "Exported", "MissingExtra"]
