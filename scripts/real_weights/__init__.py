"""A model that nobody here trained, read far beyond its context: what is fetched, what is measured, the page (scripts/showcase.py)."""
