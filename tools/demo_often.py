"""`make demo-often COUNT=100`: the demo many times with other seeds, the second half while every core is kept busy.

Ends with exit code 1 if one of them did not hold; its words and its folder are kept.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator

# It ends with its parent.
BURN = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"


@contextlib.contextmanager
def burning(cores: int) -> Iterator[None]:
    burners = [subprocess.Popen([sys.executable, "-c", BURN]) for _ in range(cores)]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


def holds(seed: int) -> bool:
    argv = [sys.executable, "-m", "holdfast", "demo", "--json", "--seed", str(seed)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"seed {seed} ended with code {done.returncode}:\n{done.stdout}{done.stderr}", flush=True)
        return False
    said = json.loads(done.stdout)
    print(f"seed {seed}: {said['kills']}, {said['figures']['seconds']} s", flush=True)
    return said["problems"] == [] and set(said["kills"]) == {"orchestrator", "agent", "runner"}


def main(count: int) -> int:
    seeds = [random.randrange(1_000_000) for _ in range(count)]
    quiet = [holds(seed) for seed in seeds[: count - count // 2]]
    with burning((os.cpu_count() or 1) if count > 1 else 0):
        busy = [holds(seed) for seed in seeds[count - count // 2 :]]
    print(f"{sum(quiet)} of {len(quiet)} held, and {sum(busy)} of {len(busy)} with every core busy")
    return 0 if all(quiet + busy) else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
