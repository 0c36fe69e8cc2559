"""The configuration: layers of values into one frozen `Config`.

Enters: environment, command line and YAML files. Leaves: values that were checked, each with the place it came from.
`settings` is the only list of what can be set; a value that is not in it is refused with its line.
Read `settings.py` first, then `layers.py`.
"""
