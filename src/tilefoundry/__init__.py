"""TileFoundry: an AI compiler whose user is a coding agent."""

__version__ = "0.1.0"
