"""Benchmarks: each row is a ratio against a reference measured in the same run, alternating with it, median of rounds."""
