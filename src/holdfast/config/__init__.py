"""The configuration: layers of values into one frozen `Config`.

Defaults, then the file `config/settings.yaml` of the data root, then the environment, then the command line; each later
one wins, key by key. `data_root` alone is read from `holdfast.yaml` at the top of the repository, because a file inside
the data root cannot say where the data root is. An unknown key or a value out of range is an error that names key,
value, what is allowed and the place; nothing is ignored.

`settings` says what can be set, `sources` reads it from files and the environment, `layers` checks it and puts it
together.
"""
