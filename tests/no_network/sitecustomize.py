"""Python imports this when it starts, and so does every process that a test starts: conftest.py puts this folder on PYTHONPATH."""

import loopback_only

loopback_only.install()
