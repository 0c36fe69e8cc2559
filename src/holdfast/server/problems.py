"""Errors as the API tells them: problem documents of RFC 9457, each with a sentence and a code."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

from holdfast import errors
from holdfast.errors import HoldfastError, code_of

CONTENT_TYPE = "application/problem+json"

# By the error's class, the nearest first; whatever is not named is a request that cannot be used.
STATUSES: dict[type[HoldfastError], int] = {
    errors.TaskUnknown: 404,
    errors.PluginUnknown: 404,
    errors.TurnUnknown: 404,
    errors.BlobMissing: 404,
    errors.FileMissing: 404,
    errors.TaskExists: 409,
    errors.AlreadyExists: 409,
    errors.ClaimRefused: 409,
    errors.ClaimLost: 409,
    errors.IllegalTransition: 409,
    errors.DecisionRefused: 409,
    errors.NothingParked: 409,
    errors.TaskIsFinal: 409,
    errors.EntryUnfit: 409,
    errors.BacklogBusy: 409,
    errors.TaskFilesDiffer: 409,
    errors.TaskFileChanged: 412,
    errors.InputError: 422,
    # Whether it is on disk nobody knows now, and the run ends: under the same key it can be asked again.
    errors.DiskError: 503,
    errors.JournalClosed: 503,
    errors.JournalCorrupt: 503,
    errors.StaleEpoch: 503,
}
TITLES = {
    400: "The request cannot be read",
    401: "A token is needed",
    403: "Not with this token",
    404: "There is no such thing",
    405: "Not with this method",
    408: "The request was too slow",
    409: "Not in this state",
    412: "It has changed meanwhile",
    413: "The request is too large",
    421: "Not under this name",
    422: "The request cannot be used",
    429: "Too many at once",
    431: "The head of the request is too large",
    500: "A fault of ours",
    503: "Not now",
}


class ProblemDocument(msgspec.Struct, omit_defaults=True):
    """RFC 9457. `code` names the kind of problem for programs; `detail` is the sentence for people."""

    status: int
    code: str
    detail: str
    title: str = ""
    type: str = "about:blank"
    facts: dict[str, Any] = {}


class Problem(Exception):
    """Refuses a request."""

    def __init__(self, status: int, code: str, detail: str, **headers: str) -> None:
        super().__init__(detail)
        self.document = ProblemDocument(status, code, detail, TITLES.get(status, ""))
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


def problem_of(error: HoldfastError) -> Problem:
    """The problem document for an error of ours."""
    status = next((STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES), 422)
    return Problem(status, code_of(error), str(error))


def response(problem: Problem) -> Response:
    body = msgspec.json.encode(problem.document)
    return Response(body, problem.document.status, media_type=CONTENT_TYPE, headers=problem.headers)
