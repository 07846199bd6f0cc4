"""Figures: `make bench` prints them all. CPU per request stands beside wall time, for machines are noisy."""
