"""Measurements beside peers: `lantern bench ...`."""
