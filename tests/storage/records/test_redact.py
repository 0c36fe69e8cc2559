from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.storage.records.ledger import LineLedger
from holdfast.storage.records.redact import REDACTED, Scrubber, is_secret_name
from kit.disks import examples

plain = Scrubber(environ={})

SECRET = "Zq7xK9mW2vB4nR8tY1uP5sD3"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
PEM = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nMIIEow/+abc=\n-----END RSA PRIVATE KEY-----"


@pytest.mark.parametrize(
    "secret",
    [
        f"sk-{SECRET}",
        f"sk-ant-api03-{SECRET}_x-y",
        f"sk_live_{SECRET}",
        f"ghp_{SECRET}",
        f"gho_{SECRET}",
        f"github_pat_11AB_{SECRET}",
        f"glpat-{SECRET}",
        f"xoxb-123456-{SECRET}",
        "AKIAIOSFODNN7EXAMPLE",
        f"AIza{SECRET}{SECRET}",
        f"npm_{SECRET}{SECRET}",
        JWT,
        PEM,
        PEM[:70],
    ],
)
def test_a_known_shape_is_replaced_wherever_it_stands(secret: str) -> None:
    for text in (secret, f"key {secret}", f"({secret})", f"a\n{secret}\nb", json.dumps({"out": f"a\n{secret}\nb"})):
        cleaned = plain.clean_text(text)
        assert secret not in cleaned and json.dumps(secret)[1:-1] not in cleaned
        assert REDACTED in cleaned
        for piece in (SECRET, "MIIEow", "dBjftJeZ4CVP"):
            assert piece not in cleaned


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("curl -H 'Authorization: Bearer abc.def-123'", "curl -H 'Authorization: Bearer [redacted]'"),
        ("Authorization: Basic dXNlcjpwYXNz", "Authorization: Basic [redacted]"),
        ("authorization: token 0123456789abcdef", "authorization: token [redacted]"),
        ("https://me:hunter2@example.org/x", "https://me:[redacted]@example.org/x"),
        ("git clone https://abcdefghijklmnopqrstuvw@host/x", "git clone https://:[redacted]@host/x"),
        ("password=hunter2&next=1", "password=[redacted]&next=1"),
        ("export DB_PASSWORD='it\"s mine'", "export DB_PASSWORD='[redacted]'"),
        ('{"client_secret": "a\\"b c", "n": 1}', '{"client_secret": "[redacted]", "n": 1}'),
        (r"{\"api_key\":\"abc def\",\"n\":1}", r"{\"api_key\":\"[redacted]\",\"n\":1}"),
        ("Set-Cookie: sid=abc; Path=/\nok", "Set-Cookie: [redacted]\nok"),
        ("?access_token=abc123&x=1", "?access_token=[redacted]&x=1"),
        ("X-Api-Key: abcd1234", "X-Api-Key: [redacted]"),
    ],
)
def test_a_pair_inside_text_loses_its_value_only(text: str, cleaned: str) -> None:
    assert plain.clean_text(text) == cleaned


@pytest.mark.parametrize(
    "text",
    [
        "task-management-for-everyone, disk-usage-monitoring-tool",
        "max_tokens=4096 token: 17, tokens: 500",
        "token = read_token(path)",
        "password=$DB_PASSWORD",
        "ssh://git@github.com/owner/repository.git",
        "https://example.org:8080/a@b",
        "the bearer of news",
        "tokenizer: byte-pair, secretary: Ann, keyboard=qwerty",
        "commit 3f786850e387550fdab836ed7e6dc881de23001b",
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    assert plain.clean_text(text) == text


def test_names_that_hold_secrets_and_names_that_count() -> None:
    for name in ("password", "GITHUB_TOKEN", "x-api-key", "clientSecret", "Authorization", "cookies", "aws_secret_key"):
        assert is_secret_name(name), name
    for name in ("tokens", "token_count", "input_tokens", "max_tokens", "key", "PWD", "author", "secret_count", ""):
        assert not is_secret_name(name), name


def test_everything_under_a_secret_name_goes_and_counts_stay() -> None:
    record = {
        "password": 123456,
        "headers": {"Authorization": "x", "cookies": {"sid": "y", "n": [1, None, True]}, "Accept": "z"},
        "token": 17,
        "input_tokens": 5,
        "empty": {"secret": "", "api_key": None},
    }
    assert plain.clean(record) == {
        "password": REDACTED,
        "headers": {
            "Authorization": REDACTED,
            "cookies": {"sid": REDACTED, "n": [REDACTED, None, True]},
            "Accept": "z",
        },
        "token": 17,
        "input_tokens": 5,
        "empty": {"secret": "", "api_key": None},
    }


def test_registered_values_go_longest_first_in_keys_and_numbers_too() -> None:
    scrubber = Scrubber(["abcdef", "abcdefghij", "31415926", "short"], environ={})
    cleaned = scrubber.clean({"x abcdef": 1, "x abcdefghij": ["abcdefghij.", 31415926, "a short one"]})
    assert cleaned == {"x [redacted]": 1, "x [redacted]'": ["[redacted].", REDACTED, "a short one"]}


def test_a_secret_can_be_registered_later_and_from_the_environment() -> None:
    scrubber = Scrubber(environ={"MY_API_KEY": "value-of-key\n", "HOME": "/home/somebody", "TINY_TOKEN": "abc"})
    assert scrubber.clean({"at": "value-of-key /home/somebody abc"}) == {"at": "[redacted] /home/somebody abc"}
    assert scrubber.clean({"minted-now": 1}) == {"minted-now": 1}
    scrubber.register("minted-now")
    assert scrubber.clean({"minted-now": 1}) == {REDACTED: 1}


nested = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
# No lone surrogates: they have no UTF-8 form, and a record with one is refused as a whole.
secrets = st.text(st.characters(exclude_categories=["Cs"]), min_size=6, max_size=30).filter(
    lambda text: len(text.strip()) >= 6 and text.strip() not in REDACTED
)


def _planted(value: Any, secret: str, draw: Any) -> Any:
    """`value` with `secret` put somewhere inside: in a string, in a key, in quoted JSON, as an item."""
    around = f"{draw(st.text(max_size=5))}{secret}{draw(st.text(max_size=5))}"
    planted: Any = draw(
        st.sampled_from(
            [around, {around: 1}, [around], json.dumps({"a": around}), json.dumps([around], ensure_ascii=False)]
        )
    )
    for _ in range(draw(st.integers(0, 3))):
        planted = draw(st.sampled_from([[value, planted], {"k": planted, "v": value}, (planted,), {"a": [planted]}]))
    return planted


@settings(max_examples=examples(300), deadline=None)
@given(data=st.data(), value=nested, secret=secrets)
def test_a_registered_secret_never_reaches_the_file(data: st.DataObject, value: Any, secret: str) -> None:
    ledger = LineLedger(Path("never-opened.jsonl"), scrub=Scrubber([secret], environ={}), clock=lambda: 1.0)
    line = ledger._encode({"record": _planted(value, secret, data.draw)})
    text = line.decode()
    bare = secret.strip()
    # Three letters of a key, or digits of a number, can be what the secret is made of: look behind the fixed frame.
    body = text.removeprefix('{"ts":1.0,"record":')
    for form in (bare, json.dumps(bare)[1:-1], json.dumps(bare, ensure_ascii=False)[1:-1]):
        if form not in json.dumps(value, ensure_ascii=False):
            assert form not in body
    assert json.loads(text)["ts"] == 1.0


@settings(max_examples=examples(200), deadline=None)
@given(nested)
def test_cleaning_twice_changes_nothing_more(value: Any) -> None:
    once = plain.clean(value)
    assert plain.clean(once) == once


ADVERSARIAL = {
    "jwt without dots": "eyJ",
    "jwt with dots": "eyJaaaaa.",
    "dashes": "-",
    "key blocks": "-----BEGIN PRIVATE KEY-----",
    "half key blocks": "-----BEGIN ",
    "schemes": "://",
    "users": "://a:",
    "pairs": "token=",
    "open quotes": 'token="',
    "escaped quotes": 'token:\\"',
    "backslashes": "\\",
    "names": "token ",
    "short keys": " sk-aaaa",
    "bearers": "bearer ",
    "cookies": "cookie:",
    "slack": "xoxb-",
    "spaces": " ",
}


@pytest.mark.parametrize("name", ADVERSARIAL)
def test_a_megabyte_made_to_be_slow_takes_linear_time(name: str) -> None:
    """No clock: quadratic work on a megabyte would run into the suite's timeout."""
    unit = ADVERSARIAL[name]
    for head, tail in (
        ("", ""),
        ("token=", "("),
        ('password="', ""),
        ("https://", ""),
        ("-----BEGIN PRIVATE KEY-----", ""),
    ):
        plain.clean_text(head + unit * (1_000_000 // len(unit)) + tail)


def test_importing_is_cheap() -> None:
    code = "import sys; import holdfast.storage.records.ledger; sys.exit('backports.zstd' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
