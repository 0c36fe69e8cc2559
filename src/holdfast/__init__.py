"""Holdfast runs CLI coding agents over a backlog in a git repository, verifies what they made, and lands it."""

__version__ = "0.1.0"
