"""`konvene transactions`: describe, find hanging and abort transactions."""
