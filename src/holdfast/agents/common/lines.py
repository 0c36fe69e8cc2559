"""Splits an agent's output into lines as it comes, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator


class OutputLines:
    """`most`: a longer line is no event of any agent. It is kept with the output, but not held here."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._rest: dict[int, bytes] = {}
        self._too_long: set[int] = set()

    def feed(self, fd: int, data: bytes) -> Iterator[bytes | None]:
        """The lines that are complete by now; None once for a line that has become too long."""
        *lines, rest = (self._rest.get(fd, b"") + data).split(b"\n")
        # The caller may stop at a line: then none of it is read again.
        self._rest[fd] = b""
        for line in lines:
            if fd in self._too_long:
                self._too_long.discard(fd)
            else:
                yield line.removesuffix(b"\r") if len(line) <= self.most else None
        if fd not in self._too_long and len(rest) > self.most:
            self._too_long.add(fd)
            yield None
        self._rest[fd] = b"" if fd in self._too_long else rest

    def unended(self) -> list[int]:
        """The descriptors whose last line has no end yet."""
        return [fd for fd, rest in self._rest.items() if rest]
