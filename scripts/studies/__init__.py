"""The small-budget findings: what is trained, what is measured of it, and the page (scripts/findings.py)."""
