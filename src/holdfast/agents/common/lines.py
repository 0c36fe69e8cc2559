"""The lines of what an agent writes, as they come: what is held of one is bounded, however long it is."""

from __future__ import annotations

from collections.abc import Iterator


class OutputLines:
    """`most`: a longer line is no event of any agent. It is kept with the output, and not held here."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._rest: dict[int, bytes] = {}
        self._too_long: set[int] = set()

    def feed(self, fd: int, data: bytes) -> Iterator[bytes | None]:
        """The lines that are whole by now; None for one that is too long, once, when it has become so."""
        *lines, rest = (self._rest.get(fd, b"") + data).split(b"\n")
        # What comes of a line may be an end: then nothing of it is to be read again.
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
        """Where the last line has no end."""
        return [fd for fd, rest in self._rest.items() if rest]
