"""Benchmarks against peers: `lantern bench ...`."""
