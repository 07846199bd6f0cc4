"""The tables on disk: Parquet files, and the manifests that say which of them exist."""
