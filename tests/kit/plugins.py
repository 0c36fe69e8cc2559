"""Installed plugins for tests: packages in a folder of their own, and the example of the repository."""

from __future__ import annotations

import functools
import subprocess
import sys
import tempfile
from pathlib import Path

from kit import TOP

EXAMPLE = TOP / "examples" / "plugin"


def install(site: Path, name: str, source: str, *, version: str = "1.0", module: str = "") -> Path:
    """A package as pip leaves it: one module, and the folder that names its entry point. Returns the module's file."""
    module = module or f"plugin_{name.replace('-', '_')}"
    info = site / f"{module}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(f"[holdfast.plugins]\n{name} = {module}\n")
    (site / f"{module}.py").write_text(f"import pluggy\nhookimpl = pluggy.HookimplMarker('holdfast')\n{source}")
    return site / f"{module}.py"


@functools.cache
def installed_example() -> Path:
    """The folder in which pip has installed the example, from its source and without a network."""
    site = Path(tempfile.mkdtemp(prefix="holdfast-example-"))
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", "--target", str(site), str(EXAMPLE)], check=True)
    return site
