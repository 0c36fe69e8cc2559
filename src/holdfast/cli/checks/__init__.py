"""The commands that prove and tidy: `check`, `seal`, `prove`, `doctor`, `gc`.

Enters: the data root. Leaves: findings as text or JSON, and an exit code that says whether there were any.
The work is done in `checks/` and `storage/audit/`; these print what was found. Read `doctor.py` first.
"""
