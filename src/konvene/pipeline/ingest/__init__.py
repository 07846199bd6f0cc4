"""Ingest: from segments to bronze and silver tables, each offset once."""
