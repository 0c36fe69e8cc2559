from __future__ import annotations

import itertools
import subprocess
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain import definition
from holdfast.domain.definition import BLOCKS, Check, Definition, is_id, parse, problems_of, render
from holdfast.domain.file_problem import FileProblem, Unreadable
from holdfast.domain.issues.issue_records import Origin
from holdfast.domain.yaml_text import VALUES_MAX, read_mapping, write_mapping

EVERYTHING = b"""\
# a task with every key
origin: {source: gh, tracker: github, number: "7", url: "http://x/7", etag: e}
id: parser-2
title: Mend the parser
goal: |
  It must read
  all of it.
role: backend
priority: 2
depends_on: [lexer, "12"]
parent: epic
agent: claude
model: opus
command: [make, all]
script: tools/x.sh
sandbox: strict
budget_usd: 3
budget_tokens: 500
budget_turns: 5
budget_seconds: 60
max_attempts: 3
max_resumes: 0
timeout_s: 90.5
subtask_timeout_s: 60
on_dependency_failed: cancel
paths: [src/parser.py]
verify:
  - pytest -q
  - {name: lint, command: [ruff, check], timeout_s: 60, repeatable: no}
approve: yes
land: pull_request
permissions: ask
may_change_nothing: true
not_before: 2026-01-31T12:00:00+01:00
labels: [bug]
forked_from: parser
context: {free: [1, {form: 2026-01-01}], yes: null}
claim: {agent: claude}
result: {}
error: null
"""


def good(text: bytes, stem: str = "stem") -> Definition:
    made = parse(text, stem)
    assert isinstance(made, Definition), made
    return made


def bad(text: bytes, stem: str = "stem") -> list[FileProblem]:
    found = parse(text, stem)
    assert isinstance(found, list) and found
    return found


def test_every_key_is_read() -> None:
    made = good(EVERYTHING)
    assert made == Definition(
        id="parser-2", title="Mend the parser", goal="It must read\nall of it.\n", role="backend", priority=2,
        depends_on=("lexer", "12"), parent="epic", agent="claude", model="opus", command=("make", "all"),
        script="tools/x.sh", sandbox="strict", budget_usd=3.0, budget_tokens=500,
        budget_turns=5, budget_seconds=60.0, max_attempts=3, max_resumes=0, timeout_s=90.5,
        subtask_timeout_s=60.0, on_dependency_failed="cancel", paths=("src/parser.py",),
        verify=(Check("pytest -q"), Check(("ruff", "check"), "lint", 60.0, repeatable=False)),
        approve=True, land="pull_request", permissions="ask",
        may_change_nothing=True, not_before=1769857200.0, labels=("bug",), forked_from="parser",
        context={"free": [1, {"form": "2026-01-01"}], "yes": None}, claim={"agent": "claude"}, result={},
        origin=Origin("gh", "github", "7", "http://x/7", "e"),
    )  # fmt: skip
    assert set(yaml.safe_load(EVERYTHING)) == set(Definition.__struct_fields__)


def test_the_id_is_the_stem_unless_given() -> None:
    assert good(b"goal: x").id == "stem"
    assert good(b"goal: x\nid: other").id == "other"


@pytest.mark.parametrize(
    ("written", "unix_s"),
    [("1700000000", 1.7e9), ("2026-01-01", 1767225600.0), ("2026-01-01T00:00:00Z", 1767225600.0),
     ('"2026-01-01 01:00:00+01:00"', 1767225600.0), ("null", None)],
)  # fmt: skip
def test_not_before_takes_seconds_and_iso_times(written: str, unix_s: float | None) -> None:
    assert good(f"goal: x\nnot_before: {written}".encode()).not_before == unix_s


def test_verify_takes_one_command_too() -> None:
    assert good(b"goal: x\nverify: make test").verify == (Check("make test"),)
    assert good(b"goal: x\nverify: {command: make test, timeout_s: 5}").verify == (Check("make test", None, 5.0),)


@pytest.mark.parametrize(
    ("text", "line", "column", "key", "words"),
    [
        (b"goal: x\ngaol: y", 2, 1, "gaol", "did you mean 'goal'?"),
        (b"goal: x\nzzz: y", 2, 1, "zzz", "known are id, title"),
        (b"goal: x\n# c\npriority: high", 3, 1, "priority", "expected a whole number"),
        (b"goal: x\ntitle: 12", 2, 1, "title", "put it in quotes"),
        (b"goal: x\ntitle: yes", 2, 1, "title", "got yes or no: put it in quotes"),
        (b"goal: x\ndepends_on:\n  - a\n  - 12", 4, 5, "depends_on[1]", "expected text"),
        (b"goal: x\ndepends_on: a", 2, 1, "depends_on", "expected a list"),
        (b"goal: x\nverify:\n- command: x\n  timeout_s: soon", 4, 3, "verify[0].timeout_s", "a number"),
        (b"goal: x\nverify:\n- commnad: x", 3, 3, "verify[0]", "commnad"),
        (b"goal: x\nmax_attempts: 0", 2, 1, "max_attempts", ">= 1"),
        (b"goal: x\nbudget_usd: -1", 2, 1, "budget_usd", ">= 0"),
        (b"goal: x\nbudget_usd: .nan", 2, 13, "", "no number"),
        (b"goal: x\ncontext: 99999999999999999999", 2, 10, "", "no number"),
        (b"goal: x\nnot_before: soon", 2, 1, "not_before", "ISO time"),
        (b"goal: x\nclaim: 3", 2, 1, "claim", "a mapping"),
        (b"goal: x\nid: ../x", 2, 1, "id", "1 to 128 letters"),
        (b"goal: x\ndepends_on: [a, b/c]", 2, 17, "depends_on[1]", "1 to 128 letters"),
        (b"goal: x\nparent: a.lock", 2, 1, "parent", "1 to 128 letters"),
        (b"goal: x\nforked_from: ''", 2, 1, "forked_from", "1 to 128 letters"),
        (b"goal: x\ngoal: y", 2, 1, "goal", "given twice"),
        (b"goal: x\ncontext:\n  a: 1\n  'a': 2", 4, 3, "a", "given twice"),
        (b"goal: x\nid: [a\n", 3, 1, "", "not YAML"),
        (b"goal: x\n\tid: a", 2, 1, "", "not YAML"),
        (b"- a\n- b", 1, 1, "", "not a single value or a list"),
        (b"just words", 1, 1, "", "not a single value or a list"),
        (b"", 1, 1, "", "empty"),
        (b"# only a comment\n", 1, 1, "", "empty"),
        (b"{goal: x}", 1, 1, "", "one key per line"),
        (b"goal: x\n---\ngoal: y", 2, 1, "", "second document"),
        (b"goal: x\nrole: \xff", 2, 7, "", "not UTF-8"),
        (b"\xff\xfeg\0", 1, 1, "", "not UTF-8"),
        (b"goal: x\nrole: \x01", 2, 7, "", "not allowed"),
        (b"goal: x\ncontext: !!python/name:os.system x", 2, 10, "", "tag"),
        (b"goal: x\ncontext: !!binary aGk=", 2, 10, "", "tag"),
        (b"goal: x\ncontext: !!set {a, b}", 2, 10, "", "tag"),
        (b"goal: x\ncontext: &a [*a]", 2, 14, "", "no finished value"),
        (b"goal: x\ncontext: {? [a] : b}", 2, 13, "", "plain text"),
        (b"goal: x\ncontext: &c {a: 1}\nclaim: {<<: *c}", 3, 9, "<<", "merge"),
        (b"goal: x\ncontext: " + b"[" * 40 + b"]" * 40, 2, 41, "", "deep"),
        (b"goal: x\ncontext: " + b"[" * 100_000, 2, 41, "", "deep"),
        (b"role: x", 1, 1, "", "nothing to do"),
        (b"goal: " + b"x" * (1 << 20), 1, 1, "", "bytes"),
    ],
)
def test_a_wrong_value_is_reported_with_its_place(text: bytes, line: int, column: int, key: str, words: str) -> None:
    problem = bad(text)[0]
    assert (problem.line, problem.column, problem.key) == (line, column, key), problem
    assert words in problem.message


def test_all_wrong_fields_are_reported_at_once() -> None:
    assert [each.line for each in bad(b"gaol: x\ngoal: 1\nrole: r\nlabels: [1]\n")] == [1, 2, 4]


def test_a_stem_that_is_no_id_is_reported() -> None:
    assert "'my task' cannot be a task id" in bad(b"goal: x", "my task")[0].message
    assert good(b"goal: x\nid: mine", "my task").id == "mine"


@pytest.mark.parametrize("model", [b"--resume", b"' m'", b'"a\\0b"', b'"a\\nb"'])
def test_a_model_that_would_be_an_option_is_reported(model: bytes) -> None:
    (problem,) = bad(b"goal: x\nmodel: " + model)
    assert (problem.line, problem.key) == (2, "model") and "cannot be a model" in problem.message
    assert good(b"goal: x\nmodel: us.vendor/large-v1:0[1m]").model == "us.vendor/large-v1:0[1m]"


def test_aliases_work_but_cannot_grow_without_end() -> None:
    assert good(b"goal: &g x\ncontext: {a: &l [1, 2], b: *l, c: *g}").context == {"a": [1, 2], "b": [1, 2], "c": "x"}
    levels = [f"  l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 12)]
    text = "\n".join(["goal: x", "context:", "  l0: &l0 [a, a, a]", *levels])
    problem = bad(text.encode())[0]
    assert f"more than {VALUES_MAX:,} values" in problem.message and problem.line > 3


def test_values_are_counted_once_for_every_alias() -> None:
    """A hundred times a thousand values, side by side."""
    values, aliases = ", ".join(["a"] * 1000), ", ".join(["*l"] * 100)
    problem = bad(f"goal: x\ncontext:\n  l: &l [{values}]\n  all: [{aliases}]\n".encode())[0]
    assert f"more than {VALUES_MAX:,} values" in problem.message and problem.line == 4


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"goal": "do it"}, "goal: do it\n"),
        ({"goal": "a\nb\n", "priority": 3}, "goal: |\n  a\n  b\npriority: 3\n"),
        # What YAML would take for something else is quoted, and so are the rarer line ends.
        ({"goal": "yes", "title": "12"}, "goal: 'yes'\ntitle: '12'\n"),
        ({"goal": "a\rb"}, 'goal: "a\\rb"\n'),
        ({"goal": "ends "}, "goal: 'ends '\n"),
        ({"paths": ["a", "b"]}, "paths:\n- a\n- b\n"),
    ],
)
def test_a_mapping_is_written_as_a_person_would_and_reads_the_same(values: dict[str, Any], text: str) -> None:
    assert write_mapping(values).decode() == text and read_mapping(text.encode()) == values


def test_a_text_at_the_end_means_the_same_with_and_without_a_line_end() -> None:
    assert good(b"goal: |\n  x") == good(b"goal: |\n  x\n")


PLAIN = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(-1e18, 1e18) | PLAIN,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(PLAIN, inner, max_size=4),
    max_leaves=10,
)


@pytest.mark.fuzz
@given(st.dictionaries(PLAIN, VALUES, min_size=1, max_size=5), st.booleans())
def test_reading_agrees_with_pyyaml(value: dict[str, Any], flow: bool) -> None:
    text = yaml.safe_dump({"a": value}, allow_unicode=True, default_flow_style=flow or None, sort_keys=False)
    if not text.startswith("{"):
        assert read_mapping(text.encode()) == yaml.safe_load(text) == {"a": value}


@pytest.mark.fuzz
@given(st.binary(max_size=60) | st.text("ab:-[]{}&*!|>'\"#?%@ \n\t.<0", max_size=60).map(str.encode))
def test_no_bytes_make_parse_raise(text: bytes) -> None:
    for candidate in (text, b"goal: x\ncontext: " + text):
        found = parse(candidate, "stem")
        assert isinstance(found, Definition) or all(each.line >= 1 and each.column >= 1 for each in found)
        try:
            expected = yaml.safe_load(candidate)
        except (yaml.YAMLError, ValueError, IndexError, TypeError, RecursionError):
            continue
        if isinstance(found, Definition):
            assert isinstance(expected, dict)


@pytest.mark.fuzz
@given(
    st.builds(
        Definition,
        id=st.from_regex(r"[A-Za-z0-9][a-z0-9_-]{0,10}", fullmatch=True),
        title=st.none() | PLAIN,
        goal=st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=60),
        priority=st.none() | st.integers(-9, 9),
        depends_on=st.lists(st.sampled_from(["a", "12", "yes", "1e3", "null"]), max_size=3).map(tuple),
        timeout_s=st.none() | st.floats(0.001, 1e15),
        not_before=st.none() | st.floats(0, 1e11),
        verify=st.lists(st.builds(Check, st.just("make") | st.just(("a", "1"))), max_size=2).map(tuple),
        approve=st.none() | st.booleans(),
        context=VALUES,
    )
)
def test_a_rendered_definition_parses_to_the_same(made: Definition) -> None:
    assert parse(render(made), "other") == made


@pytest.mark.fuzz
@given(
    st.text("aZ9._-/~@{ \n:é", max_size=8)
    | st.sampled_from(["a..b", "a.lock", "a.", ".a", "-a", "a" * 128, "a" * 129, "a\n"])
)
def test_every_id_is_safe_in_a_git_ref_and_as_a_file_name(name: str) -> None:
    if is_id(name):
        assert "/" not in name and name not in (".", "..") and len(name) <= 128 and name.isascii()
        ref = f"refs/attempts/{name}/turn-1"
        assert subprocess.run(["git", "check-ref-format", ref], check=False).returncode == 0
    else:
        assert bad(b"goal: x", name)[0].key == "id"


@pytest.mark.parametrize(
    "name", ["a..b", "a.lock", "a.", ".a", "-a", "a" * 129, "a\n", "", "a/b", "é", "a b", "..", "a\0"]
)
def test_names_that_are_no_ids(name: str) -> None:
    assert not is_id(name)


@pytest.mark.parametrize("name", ["a", "0", "a" * 128, "A.b-c_d", "a.1", "a.lock.b", "a.lockx"])
def test_names_that_are_ids(name: str) -> None:
    assert is_id(name)


def test_a_broken_file_still_hints_at_its_id() -> None:
    assert definition.possible_ids(b"goal: [\nid: 'other' # x\n", "stem") == ("other", "stem")
    assert definition.possible_ids(b"\xff", "stem") == ("stem",)


def task(name: str, *needs: str, parent: str | None = None) -> tuple[str, Definition]:
    return f"open/{name}.yaml", Definition(name, goal="x", depends_on=needs, parent=parent)


def test_a_sound_backlog_has_no_problems() -> None:
    assert problems_of([task("a"), task("b", "a"), task("c", "a", "b", parent="a")]) == []


def test_a_missing_dependency_stops_that_task_and_no_other() -> None:
    found = problems_of([task("a", "gone"), task("b", "a"), task("c", parent="nobody")])
    assert [(each.tasks, each.key, each.file) for each in found] == [
        (("a",), "depends_on[0]", "open/a.yaml"),
        (("c",), "parent", "open/c.yaml"),
    ]
    assert "'gone', and there is no such task" in found[0].message
    assert "whose own file cannot be used" in problems_of([task("a", "gone")], {"gone"})[0].message


def test_a_duplicate_id_names_both_files() -> None:
    found = problems_of([task("a"), ("closed/x.yaml", Definition("a", goal="y", depends_on=("gone",))), task("b", "a")])
    assert [each.tasks for each in found] == [("a",), ("a",)]
    assert all("closed/x.yaml, open/a.yaml" in each.message for each in found)


def test_ids_that_differ_only_by_case_stop_each_other() -> None:
    found = problems_of([task("Fix"), task("fix"), task("fixes"), task("FIX")])
    assert [each.tasks for each in found] == [("Fix",), ("fix",), ("FIX",)] and {each.key for each in found} == {"id"}
    assert "'FIX', 'fix'" in found[0].message and "only by case" in found[0].message


def test_cycles_are_spelled_out_and_stop_their_members_only() -> None:
    tasks = [task("a", "b"), task("b", "c"), task("c", "a"), task("d", "a"), task("e"), task("s", "s"),
             task("p", parent="q"), task("q", parent="p")]  # fmt: skip
    found = problems_of(tasks)
    assert [(each.tasks, each.key) for each in found] == [
        (("a", "b", "c"), "depends_on"), (("s",), "depends_on"), (("p", "q"), "parent"),
    ]  # fmt: skip
    assert "a → b → c → a" in found[0].message and "s → s" in found[1].message and "p → q → p" in found[2].message


def test_a_long_chain_and_a_long_cycle_need_no_recursion() -> None:
    chain = [task(f"t{n}", f"t{n + 1}") for n in range(20_000)]
    assert [each.tasks for each in problems_of([*chain, task("t20000")])] == []
    (circle,) = problems_of([*chain, task("t20000", "t0")])
    assert len(circle.tasks) == 20_001 and len(circle.message) < 1000


@pytest.mark.fuzz
@given(st.dictionaries(st.sampled_from("abcdef"), st.lists(st.sampled_from("abcdef"), max_size=3), max_size=6))
def test_exactly_the_tasks_that_reach_themselves_are_in_cycles(edges: dict[str, list[str]]) -> None:
    def reaches(start: str) -> set[str]:
        reached, front = set(), [start]
        while front:
            for other in edges.get(front.pop(), []):
                if other not in reached:
                    reached.add(other)
                    front.append(other)
        return reached

    found = [
        each for each in problems_of([task(name, *needs) for name, needs in edges.items()]) if "circle" in each.message
    ]
    members = [name for each in found for name in each.tasks]
    assert sorted(members) == sorted(name for name in edges if name in reaches(name))
    for each in found:
        way = each.message.partition("circle: ")[2].split(" → ")
        assert way[0] == way[-1] and all(after in edges[name] for name, after in itertools.pairwise(way))


def test_unreadable_says_where() -> None:
    with pytest.raises(Unreadable) as caught:
        read_mapping(b"a: 1\na: 2")
    assert caught.value.problem.line == 2 and BLOCKS == ("claim", "result", "error")
