"""The declared dependencies are the ones that the source imports: none is installed for nothing, none is missing."""

from __future__ import annotations

import ast
import functools
import importlib.metadata
import importlib.util
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit import TOP

PROJECT = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
# Imported by a module of another package that we import, which has it as an extra of its own.
THROUGH = {"httptools": "uvicorn.protocols.http.httptools_impl"}
# No part of the source uses these yet; each is an extra, so that nobody has it who did not ask.
TO_COME = {"postgres"}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def named(requirements: list[str]) -> set[str]:
    return {normal(re.split(r"[\[<>=!~; ]", each, maxsplit=1)[0]) for each in requirements}


def imported(tree: ast.AST) -> Iterator[str]:
    """Modules that are imported, also by `import_module` of a literal or a constant of the module."""
    texts = {
        node.targets[0].id: node.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module") and node.args:
            named_by = node.args[0]
            value = named_by.value if isinstance(named_by, ast.Constant) else texts.get(ast.unparse(named_by))
            if isinstance(value, str):
                yield value


@functools.cache
def modules() -> frozenset[str]:
    """Read when a test asks: every worker imports this file, and one of them runs its tests."""
    return frozenset(name for path in (TOP / "src").rglob("*.py") for name in imported(ast.parse(path.read_text())))


def provided_by(dependency: str) -> set[str]:
    """The modules that a distribution brings, as deep as its files tell them apart from those of others."""
    files = importlib.metadata.files(dependency) or []
    tops = {path.parts[0].removesuffix(".py") for path in files if not path.parts[0].endswith((".dist-info", ".."))}
    deeper = {".".join(path.parts[:2]) for path in files if path.parts[0] == "backports" and len(path.parts) > 2}
    return deeper or {top.partition(".")[0] for top in tops}


def is_imported(module: str) -> bool:
    return any(each == module or each.startswith(f"{module}.") for each in modules())


@pytest.mark.parametrize("dependency", sorted(named(PROJECT["dependencies"])))
def test_every_runtime_dependency_is_imported(dependency: str) -> None:
    if dependency in THROUGH:
        through = THROUGH[dependency]
        assert is_imported(through)
        spec = importlib.util.find_spec(through)
        assert spec is not None and spec.origin is not None
        assert dependency in set(imported(ast.parse(Path(spec.origin).read_text())))
    else:
        assert any(map(is_imported, provided_by(dependency))), f"nothing in src imports {dependency}"


def test_every_import_is_declared() -> None:
    """What an extra brings may be imported, too; the module that imports it copes with its absence."""
    ours = {*named(PROJECT["dependencies"]), *(each for extra in EXTRAS.values() for each in named(extra))}
    known = {"holdfast", *sys.stdlib_module_names}
    brought = {
        module for each in ours - named(EXTRAS["otel"]) - named(EXTRAS["postgres"]) for module in provided_by(each)
    }
    tops = {name.partition(".")[0] for name in modules()} - known - {"backports", "opentelemetry"}
    assert tops <= brought, f"imported and not declared: {sorted(tops - brought)}"
    assert {name for name in modules() if name.startswith("backports.")} <= {"backports.zstd"} | {
        name for name in modules() if name.startswith("backports.zstd.")
    }


def test_extras_are_used_or_named_as_to_come() -> None:
    assert set(EXTRAS) == {"connect", "dev", "mcp", "otel", "speed", *TO_COME}
    assert all(map(is_imported, ("opentelemetry", "uvloop", "httpx", "mcp.server")))


def test_the_lock_has_what_is_declared_and_names_no_address() -> None:
    text = (TOP / "requirements.lock").read_text()
    pinned = {normal(each) for each in re.findall(r"^([A-Za-z0-9._-]+)==", text, re.MULTILINE)}
    # The tests need what the extra `connect` brings, which is named by our own name.
    asked = {*named(PROJECT["dependencies"]), *named(EXTRAS["dev"]), *named(EXTRAS["connect"])} - {"holdfast"}
    assert asked <= pinned
    assert "://" not in text and "--index" not in text and "--find-links" not in text


def test_the_check_can_say_no() -> None:
    """A dependency that is installed here and that the source does not use."""
    assert not any(map(is_imported, provided_by("pytest"))) and provided_by("pytest")
