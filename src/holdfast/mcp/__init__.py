"""Tools for agents at work and for people's own sessions: operations of the API, by the Model Context Protocol or the
command `holdfast-agent`.

Enters: a call of a tool. Leaves: the answer of the operation that the tool is made of, or a sentence. The SDK is an
extra, loaded where a session begins. Read `tools.py` first, then `endpoint.py` and `stdio.py`, the two ways in.
"""
