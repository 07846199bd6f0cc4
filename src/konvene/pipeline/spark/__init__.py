"""What the pipeline needs of Spark: sessions, frames and streaming sinks."""
