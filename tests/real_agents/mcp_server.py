"""A small MCP server for the tests, over its standard input and output: one tool, `recall`, that tells its secret."""

from __future__ import annotations

import json
import os
import sys

TOOL = {"name": "recall", "description": "Tells the secret.", "inputSchema": {"type": "object", "properties": {}}}


def answer(method: str) -> dict[str, object]:
    if method == "initialize":
        about = {"name": "memory", "version": "1"}
        return {"protocolVersion": "2024-11-05", "capabilities": {"tools": {}}, "serverInfo": about}
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": f"it is {os.environ.get('MEMORY_TOKEN')}"}]}
    return {}


for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": answer(asked["method"])}) + "\n")
        sys.stdout.flush()
