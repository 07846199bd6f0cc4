"""The tables on disk: Parquet files, and the manifests that list them."""
