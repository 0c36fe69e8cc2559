"""What the tests share: recording a program on the simulated disk, and walking the disks it could have left."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.storage.files import disk
from holdfast.storage.files.kernel import Kernel
from holdfast.testing import powercut
from holdfast.testing.recorder import PowerCut, Recorder

# Memory-backed where there is one: the simulated disk decides what a sync means, not the real one.
SCRATCH = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def examples(fast: int) -> int:
    """For a property test whose examples are cheaper or dearer than most; `make fuzz` may ask for more of them."""
    return max(fast, int(os.environ.get("HOLDFAST_EXAMPLES", "0")))


def require_strace() -> None:
    """Skips where there is no strace; where the tests must all run, that is a failure."""
    if shutil.which("strace") is None:
        cannot_trace("strace is not installed")


def cannot_trace(why: str) -> None:
    if os.environ.get("CI") == "true":
        pytest.fail(f"{why}, and without it nothing is shown", pytrace=False)
    pytest.skip(why, allow_module_level=True)


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="holdfast-", dir=SCRATCH))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Struck(BaseException):
    """What a signal handler raises, wherever the program happens to be."""


def striking(call: str) -> Kernel:
    """The real kernel, struck once: right behind the first call of this name, which was carried out."""
    kernel = Kernel()
    real = getattr(kernel, call)

    def strike(*args: Any) -> None:
        delattr(kernel, call)
        real(*args)
        raise Struck

    setattr(kernel, call, strike)
    return kernel


def record(root: Path, program: Callable[[Recorder], object], **options: Any) -> Recorder:
    """Runs `program` once on the simulated disk; it calls `recorder.mark(fact)` for each thing acknowledged."""
    recorder = Recorder(root, **options)
    with disk.use_kernel(recorder):
        program(recorder)
    return recorder


def each_disk(recorder: Recorder, **options: Any) -> Iterator[tuple[list[Any], Path]]:
    """Every disk a power cut could leave, laid out for real, with what had been acknowledged by then."""
    with scratch() as base:
        for number, (acknowledged, content) in enumerate(powercut.cuts(recorder, **options)):
            root = base / str(number)
            root.mkdir()
            powercut.lay(content, root)
            yield acknowledged, root
            shutil.rmtree(root)


def some_disks(recorder: Recorder, moments: int) -> Iterator[tuple[list[Any], Path]]:
    """One disk for each of so many moments, spread over the whole recording; what is kept of it differs each time."""
    last = len(recorder.calls)
    with scratch() as base:
        for number in range(moments):
            count = number * last // (moments - 1)
            disks = list(powercut.Crash(recorder, count, limit=4).disks())
            root = base / str(number)
            root.mkdir()
            powercut.lay(disks[number * 7 % len(disks)], root)
            yield recorder.marked_before(count), root
            shutil.rmtree(root)


def each_fault(
    program: Callable[[Recorder], object], *codes: int, every: int = 1
) -> Iterator[tuple[Recorder, BaseException | None]]:
    """Runs `program` from an empty folder once for each of its operations and errno (none: power cut), failing there.

    With an errno, opening what exists fails too, each time once. Yields the recorder, whose fault is known to have
    fired, and what the program raised. `every` n: only each n-th operation.
    """
    with scratch() as base:
        (base / "whole").mkdir()
        whole = record(base / "whole", program)
        assert whole.calls
        steps = [(index, False) for index in range(len(whole.calls))]
        steps += [(index, True) for index in range(len(whole.opens)) if codes]
        for index, is_open in steps[::every]:
            for code in codes or (None,):
                root = base / f"{index}-{code}{'-open' if is_open else ''}"
                root.mkdir()
                recorder = Recorder(root)
                if code is None:
                    recorder.die_at(index)
                else:
                    (recorder.fail_open_at if is_open else recorder.fail_at)(index, code)
                raised: BaseException | None = None
                with disk.use_kernel(recorder):
                    try:
                        program(recorder)
                    except (Exception, PowerCut) as error:
                        raised = error
                assert recorder.fired, f"the fault at operation {index} never fired"
                yield recorder, raised
                shutil.rmtree(root)
