"""Learned rerankers: `light.py` over many candidates by cheap features, `evidence.py` over the top ten."""
