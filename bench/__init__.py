"""Benchmarks; `make bench` runs them all. Figures include CPU time per request besides wall time, since
machines are noisy.
"""
