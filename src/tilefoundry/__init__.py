"""TileFoundry: an AI compiler whose user is a coding agent."""

import time

__version__ = "0.1.0"
BEGAN = time.time()
"""Seconds of the system's clock before any other file of ours was read here."""
