"""Every error Holdfast raises on purpose, in one tree.

Enters: the fields of what happened, by name. Leaves: a sentence for people, and the exit code of the command.
A class's docstring is its message: a sentence that says what happened, what was kept and what to do next. The fields in
braces are given by name when the error is raised, and stay readable on the instance. `exit_code` is what the command
line returns for it; docs list the codes. Read `base.py` first.
"""

from __future__ import annotations

from holdfast.errors.arrivals import *
from holdfast.errors.base import *
from holdfast.errors.connections import *
from holdfast.errors.storage import *
from holdfast.errors.tasks import *
from holdfast.errors.work import *
