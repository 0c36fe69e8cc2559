"""The engine: decides what is done next, does it, and finds out after a crash what was done."""
