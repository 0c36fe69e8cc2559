"""The files in `ops/`: they use what a real server tells, and the tools that read them accept them."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kit import TOP
from kit.ops import running, tool
from kit.project import add, make_repo

OPS = TOP / "ops"
_NAME = re.compile(r"\bholdfast_[a-z_]+")


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> str:
    repo = make_repo(tmp_path_factory.mktemp("ops") / "repo")
    add(repo, "a", "write a.txt one", verify=["true"])
    with running(repo) as server:
        server.wait_for_state("a", "CLOSED")
        return server.metrics()


def series(text: str) -> set[str]:
    """Every name that can be asked for; of one without a value yet, what its type promises."""
    found = {line.partition(" ")[0].partition("{")[0] for line in text.splitlines() if not line.startswith("#")}
    for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE):
        found |= {f"{name}_{end}" for end in ("bucket", "sum", "count")} if kind == "histogram" else {name}
    return found


def expressions(dashboard: Any) -> Iterator[str]:
    if isinstance(dashboard, dict):
        yield from (dashboard[key] for key in ("expr", "definition") if isinstance(dashboard.get(key), str))
    if isinstance(dashboard, dict | list):
        for inner in dashboard.values() if isinstance(dashboard, dict) else dashboard:
            yield from expressions(inner)


def promtool(*arguments: object, stdin: str = "") -> None:
    command = [tool("promtool"), *map(str, arguments)]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_dashboard_asks_for_what_there_is(scraped: str) -> None:
    dashboard = json.loads((OPS / "grafana-dashboard.json").read_bytes())
    used = {name for expression in expressions(dashboard) for name in _NAME.findall(expression)}
    assert len(used) > 20 and used <= series(scraped), used - series(scraped)
    places = [panel["gridPos"] for panel in dashboard["panels"]]
    covered = [
        (x, y) for at in places for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(covered) == len(set(covered)) and max(x for x, _ in covered) < 24
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_the_alerts_ask_for_what_there_is(scraped: str) -> None:
    [group] = msgspec.yaml.decode((OPS / "alerts.yml").read_bytes())["groups"]
    used = {name for rule in group["rules"] for name in _NAME.findall(rule["expr"])}
    assert len(used) > 10 and used <= series(scraped), used - series(scraped)


def test_every_alert_says_what_to_do_and_names_commands_that_there_are() -> None:
    from holdfast.cli.commands import COMMANDS

    [group] = msgspec.yaml.decode((OPS / "alerts.yml").read_bytes())["groups"]
    for rule in group["rules"]:
        assert rule["labels"]["severity"] in {"info", "warning", "critical"}
        told = rule["annotations"]["summary"] + rule["annotations"]["description"]
        assert set(re.findall(r"`holdfast ([a-z]+)", told)) <= set(COMMANDS), rule["alert"]


def test_promtool_accepts_the_metrics(scraped: str) -> None:
    promtool("check", "metrics", stdin=scraped)


def test_promtool_accepts_the_rules_and_the_configuration() -> None:
    promtool("check", "rules", OPS / "alerts.yml")
    promtool("check", "config", "--syntax-only", OPS / "prometheus.yml")


def test_promtool_reads_every_expression_of_the_dashboard(tmp_path: Path) -> None:
    """As rules, with values in the places of Grafana's variables."""
    values = {"$__rate_interval": "5m", "$__range": "6h", "$job": ".*", "$instance": ".*"}
    rules = []
    for expression in expressions(json.loads((OPS / "grafana-dashboard.json").read_bytes())):
        if not expression.startswith("label_values("):
            for name, value in values.items():
                expression = expression.replace(name, value)
            assert "$" not in expression
            rules.append({"record": f"tried:{len(rules)}", "expr": expression})
    assert len(rules) > 30
    (tmp_path / "rules.yml").write_bytes(msgspec.yaml.encode({"groups": [{"name": "dashboard", "rules": rules}]}))
    promtool("check", "rules", tmp_path / "rules.yml")


def test_the_alerts_fire_when_they_should_and_not_before() -> None:
    promtool("test", "rules", OPS / "alerts_test.yml")


def test_promtool_would_see_an_alert_that_does_not_fire(tmp_path: Path) -> None:
    """The check above can fail: with other thresholds it does."""
    for name in ("alerts.yml", "alerts_test.yml"):
        (tmp_path / name).write_text((OPS / name).read_text().replace("> 0.8", "> 0.95"))
    with pytest.raises(AssertionError, match="HoldfastBudgetBurning"):
        promtool("test", "rules", tmp_path / "alerts_test.yml")
