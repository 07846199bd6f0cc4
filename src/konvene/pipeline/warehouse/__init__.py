"""The tables on disk: Parquet files, and the Delta logs that list them."""
