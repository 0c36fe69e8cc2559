"""Limits on what one attempt may use of the machine: the section `limits` of the settings.

Its types are read when this module is loaded, so they are not postponed.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from holdfast.domain.attempt_records import Resources

Size = Annotated[int, Meta(ge=4096, le=1 << 50)]
# 0 means the same as null: nothing has to be free.
Least = Annotated[int, Meta(ge=0, le=1 << 50)]
Count = Annotated[int, Meta(ge=16, le=1_000_000_000)]


class LimitSettings(msgspec.Struct, frozen=True):
    memory_bytes_max: Annotated[
        Size | None, Meta(description="memory of an attempt, all its processes together; null: 3/4 of the machine's")
    ] = None
    pids_max: Annotated[Count, Meta(description="processes and threads of an attempt at the same time")] = 4096
    cpus_max: Annotated[
        Annotated[float, Meta(gt=0, le=10_000)] | None,
        Meta(description="cores that an attempt may keep busy, where there are control groups; null: all"),
    ] = None
    nice: Annotated[
        Annotated[int, Meta(ge=0, le=19)],
        Meta(description="niceness of agents and gates; 19: they have what all else leaves of the cores"),
    ] = 19
    written_bytes_max: Annotated[Size, Meta(description="the largest file that an agent may write, anywhere")] = (
        64 << 30
    )
    file_bytes_max: Annotated[
        Size, Meta(description="the largest new file in a snapshot; ignored files do not count")
    ] = 1 << 30
    snapshot_bytes_max: Annotated[
        Size, Meta(description="what all files of a snapshot may have beyond those the attempt began with")
    ] = 8 << 30
    snapshot_files_max: Annotated[Count, Meta(description="and how many more of them there may be")] = 1_000_000
    line_bytes_max: Annotated[
        Size, Meta(description="a longer line of an agent's output is kept, and not read as an event")
    ] = 8 << 20

    @property
    def resources(self) -> Resources:
        return Resources(**msgspec.structs.asdict(self))
