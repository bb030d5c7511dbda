"""Everything under /lantern: health, metrics, a JSON API over the archive, and a page to look at it.

routes.py has all of it, for starlette; health.py is the one part that is asked of every server that starts.
"""
