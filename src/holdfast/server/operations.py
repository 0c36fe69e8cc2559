"""An operation of the API: its path, its right, the types of what it takes and gives, and its function.

The OpenAPI document is made of these, so it says what the code does. A reading operation gets the `Api` and what was
asked; a changing one gets a `DecisionContext`, in the thread that its lane names, and answers once its records are on
disk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
# `public`: anybody; `any`: any token; `read`: any, an agent's for its own task only; `work`: an operator, or the agent
# whose task it is; `operate`: operators.
Right = Literal["public", "any", "read", "work", "operate"]
# Where it runs. `here`: at once, from memory. `aside`: in a thread of the pool, because it reads files or asks git.
# `batch`: changes that only append, by the batch writer, many for one sync. `loop`: changes that the run itself must
# make, in its thread.
Lane = Literal["here", "aside", "batch", "loop"]
Role = Literal["operator", "agent", "reader"]
# Whose MCP session is offered it as a tool. An agent's is about its own task.
ToolFor = Literal["person", "agent", "both"]
S = TypeVar("S", bound=msgspec.Struct)


class Principal(msgspec.Struct, frozen=True):
    """The owner of a token. An agent's token is for one attempt of one task."""

    role: Role
    name: str
    task: str = ""
    attempt: str = ""


class NoQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class NewestQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The newest ones, of one task or of all."""

    task: Annotated[str, Meta(max_length=200)] = ""
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class NoBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """One request, decoded. `key` is what nothing happens twice under; `match` is the If-Match of the request.

    `found` is what the operation has looked up before, where it does. `api` is the `Api`, for a change that needs more
    of the server than its `DecisionContext` has.
    """

    principal: Principal
    path: dict[str, str]
    query: Any
    body: Any
    key: str = ""
    match: str = ""
    headers: dict[str, str] = {}
    address: str = ""
    found: Any = None
    api: Any = None

    @property
    def client(self) -> str:
        """Whose streams are counted together."""
        return f"{self.principal.name}@{self.address}"

    @property
    def task(self) -> str:
        return self.path["task"]

    @property
    def attempt(self) -> str:
        return self.path["attempt"]


def row_from(kind: type[S], source: object, **more: Any) -> S:
    """A row of this kind: `more`, and of the source the other fields that the kind has."""
    names = (name for name in kind.__struct_fields__ if name not in more and hasattr(source, name))
    return kind(**{name: getattr(source, name) for name in names}, **more)


class Raw(msgspec.Struct, frozen=True):
    """An answer that is not JSON."""

    content: bytes
    media_type: str
    headers: dict[str, str] = {}


class Operation(msgspec.Struct, frozen=True):
    """`answer` is the type of the body; None where there is none. `problems` are statuses beside the usual ones.

    A `body` of bytes is taken as it comes. Several media types are separated by a comma and a space.
    `early`: it needs to know of no task file, and is done while those are still being read; `public` ones always are.
    `before`: what a change does first, in a thread of the pool, by the `Api` and what was asked: it asks git or writes
    files, and a change holds up all others. It refuses nothing: what was answered before is answered again.
    `admit`: it takes deliveries of others, which prove by their content who they are. It is asked before the body is
    read, with the `Api` and the path, and says how many bytes that may have; `before` gets every header, and refuses.
    `tool`: it is also a tool of the MCP server; `hint` tells a model, beside the summary, when and how to call it.
    """

    method: Method
    path: str
    name: str
    summary: str
    function: Callable[..., Any]
    answer: Any
    right: Right = "read"
    lane: Lane = "here"
    query: type[msgspec.Struct] = NoQuery
    body: type[msgspec.Struct] | type[bytes] | None = None
    status: int = 200
    tag: str = "tasks"
    problems: tuple[int, ...] = ()
    media_type: str = "application/json"
    early: bool = False
    before: Callable[..., Any] | None = None
    admit: Callable[..., int] | None = None
    tool: ToolFor | None = None
    hint: str = ""

    @property
    def changes(self) -> bool:
        return self.lane in ("batch", "loop")

    @property
    def parameters(self) -> list[str]:
        return [part[1:-1] for part in self.path.split("/") if part.startswith("{")]
