"""Shared parts of the benchmarks that run whole processes: starting them, reading their CPU, loading them, reporting."""
