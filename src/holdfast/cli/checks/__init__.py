"""The commands that prove and tidy: `check`, `seal`, `prove`, `doctor`, `gc`.

The work is done in `checks/` and `storage/audit/`; these print what was found. Read `doctor.py` first.
"""
