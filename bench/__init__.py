"""Benchmarks: each row is a ratio against a reference of the same run, alternating with it, median of rounds."""
