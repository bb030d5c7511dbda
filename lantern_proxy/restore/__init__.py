"""From a request that lacks something to the block that gives it back; `restorer.py` leads."""
