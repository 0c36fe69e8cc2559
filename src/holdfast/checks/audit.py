"""Compares the audit log with itself, its seals, and the journal's notes on it."""

from __future__ import annotations

from hashlib import sha256

from holdfast.checks.projections import Reading
from holdfast.checks.report import RESTORE, RUN, Draft
from holdfast.domain.wording import plural
from holdfast.layout import Layout
from holdfast.storage.audit import from_journal, seals
from holdfast.storage.audit import notes as audit_notes
from holdfast.storage.audit.key import AuditKey


def audit(reading: Reading, layout: Layout, key: AuditKey | None) -> Draft:
    report = seals.verify(layout.audit, key)
    draft = Draft("audit", days=report.days, records=report.records, seals=report.seals, torn=len(report.torn))
    for finding in report.findings:
        place = f"{layout.audit / finding.file}" + (f", line {finding.line}" if finding.line else "")
        draft.findings.append(f"{place}: {finding.what}: {finding.reason}; keep it as evidence, and {RESTORE}")
    if report.unlisted:
        draft.findings.append(f"{report.unlisted} more of the audit log are not listed")
    if reading.flaw is None:
        _against_journal(draft, reading, layout)
    if report.missing:
        draft.not_checked = f"there is no folder {layout.audit}; if anything was ever logged, {RESTORE}"
    if not report.keyed and report.records + report.seals:
        draft.notes.append("there is no audit key here, so signatures were not checked: only links and sealed content")
    return draft


def _against_journal(draft: Draft, reading: Reading, layout: Layout) -> None:
    """Each decision and landing must have a record, but for the last ones, which a kill may keep out of the log."""
    noted = reading.state.audit
    is_cut = noted is not None and not audit_notes.holds(layout, noted)
    if is_cut and noted is not None:
        draft.findings.append(f"{audit_notes.cut(layout, noted)} {audit_notes.WAY_BACK}")
    for name, digest in reading.seals_noted.items():
        path = layout.seals / name
        if any(str(path) in finding for finding in draft.findings):
            continue
        if not path.exists():
            draft.findings.append(f"the journal has noted the seal {path}, which is gone. {audit_notes.WAY_BACK}")
        elif sha256(path.read_bytes()).hexdigest() != digest:
            draft.findings.append(f"{path} is not the seal that the journal has noted. {audit_notes.WAY_BACK}")
    named, entries = from_journal.named_entries(layout), list(reading.audited.items())
    last = max((place for place, (digest, _) in enumerate(entries) if digest in named), default=-1)
    gone = [fact for digest, fact in entries[: len(entries) if is_cut else last] if digest not in named]
    if gone:
        count = plural(len(gone), "decision or landing", "decisions and landings")
        what = f"{count} of the journal {'has' if len(gone) == 1 else 'have'} no audit record, the first is {gone[0]}"
        draft.findings.append(f"{what}. {audit_notes.WAY_BACK}")
    if not is_cut:
        draft.pending += [f"{fact} has no audit record yet; {RUN}" for _, fact in entries[last + 1 :]]
