"""Runs the program in this process, as the console script would."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from swarepro.cli.app import app


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How one command line ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The one JSON document on stdout."""
        return json.loads(self.out)


Invoke = Callable[..., Outcome]


@pytest.fixture
def invoke(capsys: pytest.CaptureFixture[str]) -> Invoke:
    """Run ``swarepro`` with the given arguments."""

    def run(*args: object) -> Outcome:
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            app([str(arg) for arg in args])
        out, err = capsys.readouterr()
        assert isinstance(stop.value.code, int)
        return Outcome(code=stop.value.code, out=out, err=err)

    return run
