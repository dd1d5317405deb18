"""Runs of cases: prepared, executed once, repeated, and judged by what the case expects."""
