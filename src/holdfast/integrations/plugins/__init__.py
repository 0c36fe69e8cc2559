"""Plugins: installed packages whose hooks are called for the journal's entries, and which provide agents and gates.

Enters: the settings, and the entry points of the group `holdfast.plugins`. Leaves: loaded plugins, the hook calls of an
entry, and factories by kind and name. Read `hookspecs.py` first, then `catalog.py`; `observers/plugin_hooks.py` calls
the hooks.
"""
