"""Learned orders of what was found: `light.py` in every restore that asks for it, `evidence.py` for its top ten."""
