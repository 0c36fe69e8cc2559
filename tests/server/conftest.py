from __future__ import annotations

from collections.abc import Iterator

import pytest

from kit.project import make_repo
from kit.server import Server, served


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of a repository without tasks, for all tests of a module."""
    with served(make_repo(tmp_path_factory.mktemp("server") / "repo")) as serving:
        yield serving


@pytest.fixture(scope="module")
def task_t(server: Server) -> None:
    server.operator.post("/tasks", {"id": "t", "goal": "x"})
