"""Hostile input for everything that reads what others wrote: `python -m tools.fuzz TARGET`."""
