"""An agent that speaks the Agent Client Protocol, as a process of its own: it does the steps of a JSON file.

    python acp_agent.py PLAN.json

The plan has `steps`, and where they are wanted `initialize`, `opened`, `reason`, `usage` and `exits`. A step that was
done is noted in the file of its session beside the plan, as an agent keeps its conversation: a session that is loaded
goes on behind it. Every message that it reads is appended to `heard.jsonl` beside the plan.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

PLAN = Path(sys.argv[1])
SESSION = "ses-1"
CAN = {"loadSession": True, "sessionCapabilities": {"resume": {}}, "mcpCapabilities": {"http": True}}


def send(**message: Any) -> None:
    sys.stdout.buffer.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    sys.stdout.buffer.flush()


def heard() -> dict[str, Any] | None:
    line = sys.stdin.buffer.readline()
    if not line:
        return None
    with open(PLAN.parent / "heard.jsonl", "ab") as file:
        file.write(line)
    message: dict[str, Any] = json.loads(line)
    return message


def update(told: str, **facts: Any) -> None:
    send(method="session/update", params={"sessionId": SESSION, "update": {"sessionUpdate": told, **facts}})


def say(text: str) -> None:
    for part in (text[:3], text[3:]):
        update("agent_message_chunk", messageId=text, content={"type": "text", "text": part})


class Agent:
    def __init__(self) -> None:
        self.plan: dict[str, Any] = json.loads(PLAN.read_text())
        self.record = PLAN.parent / f"{SESSION}.json"
        self.done: list[str] = []
        self.asked = 0
        self.cwd = "."

    def work(self) -> None:
        while (message := heard()) is not None:
            method, params = message.get("method"), message.get("params", {})
            if method == "initialize":
                send(id=message["id"], result=self.plan.get("initialize") or _initialized())
            elif method in ("session/new", "session/load", "session/resume"):
                self.open(message["id"], method, params)
            elif method in ("session/set_config_option", "session/set_model"):
                send(id=message["id"], result={})
            elif method == "session/prompt":
                self.prompt(message["id"])
        sys.exit(self.plan.get("exits", 0))

    def open(self, number: int, method: str, params: dict[str, Any]) -> None:
        self.cwd = params["cwd"]
        if error := self.plan.get("opened", {}).get("error"):
            send(id=number, error=error)
            return
        result = dict(self.plan.get("opened", {}))
        if method == "session/new":
            send(id=number, result={"sessionId": SESSION, **result})
        elif not self.record.exists():
            send(id=number, error={"code": -32603, "message": "No such session"})
        else:
            self.done = json.loads(self.record.read_text())
            replay = [] if method == "session/resume" else self.done
            # As Gemini CLI does it: the rest of the conversation comes after the answer.
            send(id=number, result=result)
            for at, name in enumerate(replay):
                update("tool_call", toolCallId=f"old-{at}", title=name, status="completed", kind="edit")

    def prompt(self, number: int) -> None:
        for at, step in enumerate(self.plan["steps"]):
            if str(at) in self.done:
                continue
            (kind, given), *rest = step.items()
            if not getattr(self, f"do_{kind}")(f"call-{at}", given, dict(rest), number):
                return
            self.done.append(str(at))
            if "forgets" not in self.plan:
                self.record.write_text(json.dumps(self.done))
        usage = self.plan.get("usage", {"inputTokens": 100, "outputTokens": 7, "totalTokens": 107})
        send(id=number, result={"stopReason": self.plan.get("reason", "end_turn"), "usage": usage})

    # -- the steps ----------------------------------------------------------------------------------------------------

    def do_say(self, call: str, given: str, more: dict[str, Any], number: int) -> bool:
        say(given)
        return True

    def do_write(self, call: str, given: str, more: dict[str, Any], number: int) -> bool:
        """Writes a file, after permission was asked for where the step has `ask`."""
        facts = {"toolCallId": call, "kind": more.get("kind", "edit"), "title": f"Writing {given}"}
        update("tool_call", **facts, status="pending", rawInput={})
        if "ask" in more and not self.may(facts):
            update("tool_call_update", toolCallId=call, status="failed", rawOutput="not allowed")
            return True
        update("tool_call_update", toolCallId=call, status="in_progress", rawInput={"path": given})
        path = Path(self.cwd, given)
        path.write_text(path.read_text() + "again\n" if path.exists() else f"{given}\n")
        if "kill" in more and not (mark := PLAN.parent / f"killed-{call}").exists():
            mark.touch()
            os.kill(os.getpid(), 9)
        update("tool_call_update", toolCallId=call, status="completed", rawOutput=f"wrote {given}")
        return True

    def may(self, tool: dict[str, Any]) -> bool:
        self.asked += 1
        options = [
            {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
            {"optionId": "no", "name": "No", "kind": "reject_once"},
        ]
        params = {"sessionId": SESSION, "toolCall": tool, "options": options}
        send(id=f"ask-{self.asked}", method="session/request_permission", params=params)
        answer = heard() or {}
        return bool(answer.get("result", {}).get("outcome", {}).get("optionId") == "yes")

    def do_wait(self, call: str, given: str, more: dict[str, Any], number: int) -> bool:
        """Until there is such a file."""
        while not os.path.exists(given):
            time.sleep(0.02)
        return True

    def do_hang(self, call: str, given: str, more: dict[str, Any], number: int) -> bool:
        """Until it is cancelled."""
        Path(self.cwd, given).touch()
        while (message := heard()) is not None:
            if message.get("method") == "session/cancel":
                send(id=number, result={"stopReason": "cancelled"})
                return False
        return False

    def do_raw(self, call: str, given: str, more: dict[str, Any], number: int) -> bool:
        sys.stdout.buffer.write(given.encode("latin-1") * more.get("times", 1))
        sys.stdout.buffer.flush()
        return True

    def do_request(self, call: str, given: str, more: dict[str, Any], number: int) -> bool:
        send(id="req", method=given, params={"path": "/etc/passwd", "sessionId": SESSION})
        say(json.dumps(heard()))
        return True

    def do_cost(self, call: str, given: float, more: dict[str, Any], number: int) -> bool:
        update("usage_update", used=1, size=2, cost={"amount": given, "currency": "USD"})
        return True

    def do_error(self, call: str, given: dict[str, Any], more: dict[str, Any], number: int) -> bool:
        send(id=number, error=given)
        return False


def _initialized() -> dict[str, Any]:
    info = {"name": "scripted-acp", "version": "1.2.3"}
    return {"protocolVersion": 1, "agentCapabilities": CAN, "agentInfo": info}


if __name__ == "__main__":
    Agent().work()
