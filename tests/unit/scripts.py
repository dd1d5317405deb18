"""Entries of scripts, and small cases that hold them."""

from collections.abc import Sequence
from typing import Any

from swarepro.case import CaseSpec, convert_case

Entry = dict[str, Any]


def prefill(session: int, rows: int) -> Entry:
    return {"session": session, "prefill": rows}


def decode(session: int) -> Entry:
    return {"session": session, "decode": True}


def rows(*wanted: Entry, **other: Any) -> Entry:
    return {"rows": list(wanted), **other}


def reuse(session: int, of: int, rows: int) -> Entry:
    return {"reuse": {"session": session, "of": of, "rows": rows}}


def case(*script: Entry, sessions: Sequence[Entry] = ({},), **changes: Any) -> CaseSpec:
    data = {
        "name": "s",
        "model": "synthetic:gemma4-tiny?layers=6",
        "sessions": [{"prompt": {"random": 8}, **session} for session in sessions],
        "script": list(script),
        **changes,
    }
    return convert_case(data, source="s.toml")


START = rows(prefill(0, 8))
KEPT = (START, {"finish": [0], "keep": True})
