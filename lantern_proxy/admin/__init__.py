"""Everything under /lantern: health, metrics, a JSON API over the archive, and a web page.

routes.py lists all of it, for starlette; health.py is the only part that every starting server is asked for.
"""
