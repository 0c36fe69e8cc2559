"""The API as an ASGI application: every request goes through the same steps, in this order.

Name and origin → token → rights → path, query and body by type → carried out → answered. Whatever is refused on the
way is a problem document, and has changed nothing.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import re
import secrets
import time
import traceback
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from holdfast.errors import HoldfastError
from holdfast.server.access.auth import permit
from holdfast.server.access.denials import STRANGER
from holdfast.server.batch_writer import INTERNAL, Job, answer_of
from holdfast.server.observability.logs import Level
from holdfast.server.operations import Ask, Operation, Principal, Raw
from holdfast.server.problems import TITLES, Problem, problem_of, response

if TYPE_CHECKING:
    from holdfast.server.api_state import Api

BODY_BYTES_MAX = 1 << 20
KEY_LENGTH_MAX = 200
# No definition needs more, and what reads and writes YAML goes down one call for each.
DEPTH_MAX = 64
KEY_HEADER = "idempotency-key"
# Where a request carries its principal's name, for the log.
BY = "holdfast.by"
NOBODY = Principal("reader", STRANGER)
_encode = msgspec.json.Encoder(enc_hook=str).encode


def build(api: Api, operations: list[Operation], more: list[BaseRoute]) -> Starlette:
    routes = [Route(each.path, _endpoint(api, each), methods=[each.method], name=each.name) for each in operations]
    handlers = dict.fromkeys((Problem, HTTPException, HoldfastError, Exception), _error_response)
    app = Starlette(routes=[*routes, *more], exception_handlers=handlers)
    # A path has one spelling; a redirection would repeat the name in the Host header, whatever it is.
    app.router.redirect_slashes = False
    return app


async def _error_response(request: Request, error: Exception) -> Response:
    if isinstance(error, Problem):
        return response(error)
    if isinstance(error, HoldfastError):
        return response(problem_of(error))
    if isinstance(error, HTTPException):
        code = {404: "no_such_path", 405: "no_such_method"}.get(error.status_code, "refused")
        detail = f"{request.method} {request.url.path}: {TITLES.get(error.status_code, error.detail)}. See /docs."
        headers = {name.replace("-", "_"): value for name, value in (error.headers or {}).items()}
        return response(Problem(error.status_code, code, detail, **headers))
    # Without the error's text, which is in the log: it may hold more than the client should know.
    return response(Problem(500, "internal_fault", INTERNAL.format(kind=type(error).__name__)))


def _endpoint(api: Api, operation: Operation) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        began = time.perf_counter()
        status = 500
        error: Exception | None = None
        try:
            answer = await _answer(api, operation, request)
            status = answer.status_code
            return answer
        except (Problem, HoldfastError) as refused:
            error = refused if isinstance(refused, Problem) else problem_of(refused)
            status = error.document.status
            raise
        except Exception as broken:
            error = broken
            raise
        finally:
            seconds = time.perf_counter() - began
            api.metrics.answered(operation.name, status, seconds)
            if operation.changes or status >= 400:
                _log(api, operation, request, status, seconds, error=error)

    return endpoint


def _log(
    api: Api, operation: Operation, request: Request, status: int, seconds: float, error: BaseException | None
) -> None:
    level: Level = "info" if status < 400 else "warning" if status < 500 else "error"
    told = {name: str(request.path_params.get(name, "")) for name in ("task", "attempt")}
    if isinstance(error, Problem):
        told["code"] = error.document.code
    elif error is not None:
        told["error"] = f"{type(error).__name__}: {error}"
    by = request.scope.get(BY, STRANGER)
    api.logs.write("request", level, operation=operation.name, status=status, seconds=round(seconds, 6), by=by, **told)


async def _answer(api: Api, operation: Operation, request: Request) -> Response:
    path = {name: str(value) for name, value in request.path_params.items()}
    by, principal = STRANGER, NOBODY
    try:
        api.guard.check(request)
        if operation.right != "public":
            principal = api.authenticate(request)
            by = principal.name
            permit(operation, principal, path)
    except Problem as problem:
        api.deny(by, request, problem)
        raise
    finally:
        request.scope[BY] = by
    if operation.admit is None:
        return await _carry_out(api, operation, request, path, principal, most=BODY_BYTES_MAX)
    most = operation.admit(api, path)
    with api.delivery_quotas.holding(request.headers.get("content-length", ""), most):
        return await _carry_out(api, operation, request, path, principal, most=most)


async def _carry_out(
    api: Api, operation: Operation, request: Request, path: dict[str, str], principal: Principal, *, most: int
) -> Response:
    """`most`: how many bytes the body may have."""
    content = await read_body(request, most) if operation.body is not None or operation.changes else b""
    # Of a delivery its own id counts: a header of this name is its sender's, for purposes of its own.
    given = request.headers.get(KEY_HEADER, "") if operation.admit is None else ""
    names = ("last-event-id", "content-type") if operation.admit is None else request.headers.keys()
    ask = Ask(
        principal=principal,
        path=path,
        query=_decoded_query(operation, request),
        body=_decoded_body(operation, content),
        key=_key(principal, given) if given else secrets.token_hex(16),
        match=request.headers.get("if-match", "").strip(),
        headers={name: request.headers.get(name, "") for name in names},
        address=request.client.host if request.client else "",
        api=api,
    )
    if not operation.early and operation.right != "public":
        await api.until_prepared()
    if operation.changes:
        fingerprint = hashlib.sha256(f"{request.method} {request.url.path}\n".encode() + content).hexdigest()
        if operation.before is not None:
            ask = msgspec.structs.replace(ask, found=await _prepared(api, operation, ask, request))
        job = Job(operation, ask, fingerprint, bool(given), api.answers)
        api.post(job)
        try:
            done = await answer_of(job)
        finally:
            if job.fault is not None:
                trace = "".join(traceback.format_exception(job.fault))[-4000:]
                api.logs.write("fault", "error", operation=operation.name, error=trace)
        return _response(operation, done.body, done.status)
    if inspect.iscoroutinefunction(operation.function):
        # It waits for something else than a thread.
        result = await operation.function(api, ask)
    elif operation.lane == "aside":
        result = await run_in_threadpool(operation.function, api, ask)
    else:
        result = operation.function(api, ask)
    if operation.right != "public":
        await api.batch_writer.settled()
    return _response(operation, result, operation.status)


async def _prepared(api: Api, operation: Operation, ask: Ask, request: Request) -> Any:
    """What `before` gives. A delivery that does not prove whose it is, is a denial."""
    assert operation.before is not None
    try:
        return await run_in_threadpool(operation.before, api, ask)
    except Problem as problem:
        if operation.admit is not None and problem.document.status == 401:
            api.deny(STRANGER, request, problem)
        raise


def _response(operation: Operation, result: Any, status: int) -> Response:
    if isinstance(result, Response):
        return result
    if isinstance(result, Raw):
        return Response(result.content, status, media_type=result.media_type, headers=result.headers)
    if result is None:
        return Response(status_code=204)
    # One that was kept under a key comes back as plain values.
    tag = result.get("etag") if isinstance(result, dict) else getattr(result, "etag", "")
    headers = {"etag": f'"{tag}"'} if tag else None
    media_type = operation.media_type.partition(", ")[0]
    return Response(_encode(result), status, media_type=media_type, headers=headers)


async def read_body(request: Request, most: int = BODY_BYTES_MAX) -> bytes:
    """The body, as long as it is not longer than allowed; a longer one is not read to its end."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > most:
            detail = f"The body is longer than {most:,} bytes. Nothing was changed; send less at a time."
            raise Problem(413, "body_too_large", detail, Connection="close")
        parts.append(part)
    return b"".join(parts)


def _decoded_body(operation: Operation, content: bytes) -> Any:
    if operation.body is None or operation.body is bytes:
        return None if operation.body is None else content
    try:
        decoded = msgspec.json.decode(content or b"{}", type=operation.body)
    except msgspec.ValidationError as error:
        if explain := getattr(operation.body, "explain", None):
            # A body that cannot be read to its end: the first error is the answer.
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                explain(msgspec.json.decode(content or b"{}"))
        raise Problem(422, "body_unfit", f"The body cannot be used: {error}. Nothing was changed.") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(400, "body_unreadable", f"The body is no JSON: {error}. Nothing was changed.") from error
    if _depth(content) > DEPTH_MAX:
        raise Problem(422, "body_too_deep", f"The body nests deeper than {DEPTH_MAX}. Nothing was changed.")
    return decoded


@functools.cache
def _lists_of(query: type[msgspec.Struct]) -> frozenset[str]:
    """The fields that may be given several times. Looking at a type takes longer than all the rest of a request."""
    return frozenset(each.name for each in msgspec.structs.fields(query) if "tuple" in str(each.type))


_NESTS = re.compile(rb'"(?:[^"\\]|\\.)*+"|[^\[\]{}"]++', re.DOTALL)


def _depth(content: bytes) -> int:
    """The depth of lists and objects in a JSON text."""
    if content.count(b"[") + content.count(b"{") <= DEPTH_MAX:
        return 0
    deepest = depth = 0
    for byte in _NESTS.sub(b"", content):
        depth += 1 if byte in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest


def _decoded_query(operation: Operation, request: Request) -> Any:
    given: dict[str, Any] = {}
    lists = _lists_of(operation.query)
    for name, value in request.query_params.multi_items():
        if name in lists:
            given.setdefault(name, []).append(value)
        else:
            given[name] = value
    try:
        return msgspec.convert(given, operation.query, strict=False)
    except msgspec.ValidationError as error:
        raise Problem(422, "query_unfit", f"The query cannot be used: {error}.") from error


def _key(principal: Principal, given: str) -> str:
    """A key is its asker's own: what somebody else sends under the same one is another request."""
    if len(given) > KEY_LENGTH_MAX or not given.isascii() or not given.isprintable():
        detail = f"An Idempotency-Key has up to {KEY_LENGTH_MAX} printable ASCII characters. Nothing was changed."
        raise Problem(422, "idempotency_key_unfit", detail)
    return hashlib.sha256(f"{principal.role}\0{principal.attempt}\0{given}".encode()).hexdigest()[:32]
