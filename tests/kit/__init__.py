"""What the tests share: repositories, the program, disks, clocks, servers. A test imports it as `kit.<name>`."""

from pathlib import Path

# The folder of the tests, and the repository's own.
TESTS = Path(__file__).parent.parent
TOP = TESTS.parent
