"""Clients that could exist, drawn by number and played through a real proxy: see play.py, scripts/possible-clients."""
