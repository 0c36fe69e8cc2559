"""Doubles that ship: real parts for tests of Holdfast, and of anything built on it."""
