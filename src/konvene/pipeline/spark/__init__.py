"""The pipeline's use of Spark: sessions, data frames and streaming sinks."""
