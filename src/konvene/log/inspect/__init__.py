"""Offline tools for log files: dump, verify and repair."""
