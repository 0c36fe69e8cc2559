"""`check`, `seal` and `prove`: showing that what is on disk is what was decided and done."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click
import msgspec

from holdfast.cli.options import find_app, print_json, print_notice, prints_json
from holdfast.domain.wording import plain, plain_json, plural
from holdfast.errors import AuditKeyUnusable, InputError

if TYPE_CHECKING:
    from holdfast.checks.check import CheckReport
    from holdfast.layout import Layout
    from holdfast.storage.audit.key import AuditKey

UNSOUND = 4
# Counts whose name in the JSON does not say it to a person.
_LABELS = {"of_tasks_over": "of ended tasks"}


@click.command(short_help="Prove that everything fits together.")
@click.option("--chain", "chain_only", is_flag=True, help="Check the journal's hash chain only.")
@click.option("--repair", "with_repair", is_flag=True, help="Rebuild damaged projections first, then check.")
@prints_json
def check(ctx: click.Context, chain_only: bool, with_repair: bool, as_json: bool) -> None:
    """Read the whole journal, and compare everything else with it: the checkpoint, the backlog's folders, the files
    of every attempt, snapshots and landings in git, open intents, executed keys, blobs, audit log and seals. It
    changes nothing, and may run beside `holdfast run`.

    --repair rebuilds only what follows from the journal; the journal itself is never touched. What was damaged is
    kept in quarantine/.

    There are three answers. Sound: exit code 0. Sound, and the next start has something to finish: exit code 0, and
    each such thing is listed as pending. Not sound: exit code 4, there are findings. Notes do not count.

    \b
    Examples:
      holdfast check
      holdfast check --chain
      holdfast check --json | jq '.sections[].findings[]'
      holdfast check --json | jq '.sections[].pending[]'
      holdfast check --repair
    """
    from holdfast.backlog.folder import Backlog
    from holdfast.checks.check import check as run_check

    if chain_only and with_repair:
        raise click.UsageError("--chain only looks at the journal, which --repair never touches: give one of the two.")
    layout = _layout(ctx, writing=with_repair)
    repo = find_app(ctx).repo
    backlog = Backlog(layout.backlog)
    repaired = None
    if with_repair:
        from holdfast.checks.repair import repair

        repaired = repair(layout, backlog, repo=repo, say=print_notice, key_path=find_app(ctx).audit_key)
    progress = _print_progress if sys.stderr.isatty() else None
    report = run_check(layout, backlog, _key(ctx, layout), repo=repo, chain_only=chain_only, progress=progress)
    if progress is not None:
        click.echo("\r\033[K", err=True, nl=False)
    if as_json:
        print_json({**msgspec.to_builtins(report), **({"repaired": repaired} if repaired else {})})
    else:
        for title, items in msgspec.structs.asdict(repaired).items() if repaired is not None else ():
            for item in items:
                click.echo(plain(f"{title.replace('_', ' ')}: {item}"))
        _print_report(report)
    if not report.sound:
        sys.exit(UNSOUND)


@click.command(short_help="Seal the audit log.")
@prints_json
def seal(ctx: click.Context, as_json: bool) -> None:
    """Verify the audit log and seal all its records: one signed file with one hash, the root. Publish that
    root, or keep it elsewhere: with it, anybody can check a proof, and nobody can cut the log back unseen.

    The key comes from HOLDFAST_AUDIT_KEY, else from the file of the setting
    audit.key_path, else from ~/.config/holdfast/audit.key: the one that has signed the log.

    \b
    Examples:
      holdfast seal
      holdfast seal --json | jq -r .root
    """
    from holdfast.checks.repair import holding
    from holdfast.storage.audit import seals
    from holdfast.storage.audit.days import day_files
    from holdfast.storage.audit.from_journal import complete
    from holdfast.storage.audit.key import load_key

    layout = _layout(ctx, writing=True)
    if not day_files(layout.audit):
        raise InputError(detail=f"the audit log {layout.audit} has no record yet, so there is nothing to seal")
    key_path = find_app(ctx).audit_key
    key = load_key(layout.root, key_path)
    with holding(layout, find_app(ctx).repo):
        # What a kill or an unusable key kept out of the log is sealed with the rest.
        complete(layout, print_notice, key_path=key_path)
        made = seals.seal(layout.audit, key)
    if as_json:
        print_json({"file": made.file, "root": made.root, "sealed_at": made.sealed_at, "days": made.days})
        return
    counted = f"{plural(sum(day.records for day in made.days), 'record')} of {plural(len(made.days), 'day')}"
    click.echo(f"{seals.seals_folder(layout.audit) / made.file}")
    click.echo(f"{counted}, sealed at {made.sealed_at}. Root: {made.root}")


@click.command(short_help="Prove one audit record, or check such a proof.")
@click.argument("day", required=False)
@click.argument("seq", type=click.IntRange(min=0), required=False)
@click.option("--out", type=click.Path(path_type=Path), help="Write the proof to this new file instead of printing it.")
@click.option("--verify", type=click.File("rb"), metavar="FILE", help="Check this proof; `-` reads standard input.")
@click.option("--root", metavar="HEX", help="The root to check it against, as it was published.")
@prints_json
def prove(
    ctx: click.Context,
    day: str | None,
    seq: int | None,
    out: Path | None,
    verify: IO[bytes] | None,
    root: str | None,
    as_json: bool,
) -> None:
    """Prove that record SEQ of a DAY stands in the sealed audit log. With --verify, check such a proof against a
    published root, which needs neither key nor repository. The exit code is 4 when the proof does not hold.

    \b
    Examples:
      holdfast prove 2026-11-15 3
      holdfast prove 2026-11-15 3 --out proof.json
      holdfast prove --verify proof.json --root 5f2c…
    """
    if verify is not None:
        if root is None or day is not None or out is not None:
            raise click.UsageError("--verify needs --root, and neither DAY, SEQ nor --out.")
        _verify_proof(verify.read(), root, as_json)
    elif day is None or seq is None or root is not None:
        raise click.UsageError("Give DAY and SEQ to prove a record, or --verify and --root to check a proof.")
    else:
        _write_proof(_layout(ctx), day, seq, out)


def _write_proof(layout: Layout, day: str, seq: int, out: Path | None) -> None:
    from holdfast.storage.audit.proofs import prove as make_proof
    from holdfast.storage.files import disk

    proof = make_proof(layout.audit, day, seq)
    if out is None:
        click.echo(plain_json(proof.document().decode()), nl=False)
    else:
        disk.create(out.absolute(), proof.document(), disk.COMMON_FILE)
        click.echo(f"{out}: record {seq} of {proof.day.file}, against the root {proof.root}")


def _verify_proof(document: bytes, root: str, as_json: bool) -> None:
    from holdfast.storage.audit.proofs import check_proof

    record = check_proof(document, root.strip().lower())
    if as_json:
        print_json({"holds": True, "record": record})
        return
    moment = datetime.fromtimestamp(record.timestamp, UTC).isoformat(timespec="seconds")
    click.echo(plain(f"The proof holds. Record {record.seq}: {record.event} by {record.actor} at {moment}."))
    if record.details:
        click.echo(plain_json(msgspec.json.encode(record.details).decode()))


# -- the data root and its key ----------------------------------------------------------------------------------------


def _layout(ctx: click.Context, *, writing: bool = False) -> Layout:
    from holdfast.storage.journal.data_root import expect_repository, open_root, read_root

    app = find_app(ctx)
    app.expect_initialised()
    if writing:
        return open_root(app.layout.root, app.repo)
    layout = read_root(app.layout.root)
    expect_repository(layout, app.repo)
    return layout


def _key(ctx: click.Context, layout: Layout) -> AuditKey | None:
    """The key, if there is one: a check makes none, and says what it could not check without."""
    from holdfast.storage.audit.key import load_key

    try:
        return load_key(layout.root, find_app(ctx).audit_key, create=False)
    except AuditKeyUnusable:
        return None


# -- printing ---------------------------------------------------------------------------------------------------------


def _print_progress(entries: int) -> None:
    click.echo(f"\r\033[K{plural(entries, 'entry', 'entries')} of the journal read …", err=True, nl=False)


def _print_report(report: CheckReport) -> None:
    for section in report.sections:
        verdict = "FOUND" if section.findings else "pending" if section.pending else ""
        verdict = verdict or ("not checked" if section.not_checked else "ok")
        counts = {_LABELS.get(name, name.replace("_", " ")): number for name, number in section.counted.items()}
        counted = ", ".join(f"{label} {number:,}" for label, number in counts.items())
        click.echo(f"{section.name:<12} {verdict:<11} {counted}".rstrip())
        lines = [f"  - {finding}" for finding in section.findings]
        lines += [f"    pending: {words}" for words in section.pending]
        lines += [f"    not checked: {section.not_checked}"] if section.not_checked else []
        lines += [f"    note: {note}" for note in section.notes]
        for line in lines:
            click.echo(plain(line))
    if not report.sound:
        click.echo(f"Not sound: {plural(sum(len(section.findings) for section in report.sections), 'finding')}.")
    elif report.pending:
        things = plural(sum(len(section.pending) for section in report.sections), "thing")
        click.echo(f"Sound; the next start has {things} to finish, told above as pending.")
    else:
        click.echo("Sound.")
