"""The command line: one module for each command or family of commands.

Enters: words and options. Leaves: text for people, JSON for programs, and an exit code.
A command that changes something hands it to `app`; what it shows it has from `views` and `checks`.
Read `commands.py` first: the list of commands; then `run.py`. `tasks/` has the commands for one task, `checks/` those
that prove and tidy, `screen/` what draws on a terminal.
"""
