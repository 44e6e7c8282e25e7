"""Two bodies of English prose and verse out of packages: what is fetched, how it is read, and how it is cut (scripts/get_classics.py)."""
