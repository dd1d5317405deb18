import inspect
import pickle

import pytest

from swarepro import errors
from swarepro.errors import ExitCode, SwareproError

FAMILY = [
    value
    for value in vars(errors).values()
    if inspect.isclass(value) and issubclass(value, SwareproError)
]


def test_exit_codes_follow_diff() -> None:
    assert [(code.name, code.value) for code in ExitCode] == [
        ("NOTHING_FOUND", 0),
        ("FINDING", 1),
        ("CANNOT_JUDGE", 2),
        ("INTERNAL", 70),
    ]


@pytest.mark.parametrize("error", FAMILY, ids=lambda error: error.__name__)
def test_every_user_error_exits_2_and_never_reads_as_a_finding(error: type[SwareproError]) -> None:
    assert error("x").exit_code is ExitCode.CANNOT_JUDGE


def test_hint_follows_the_message() -> None:
    assert str(SwareproError("no such file: a", hint="write b")) == "no such file: a\nwrite b"
    assert str(SwareproError("no such file: a")) == "no such file: a"


@pytest.mark.parametrize("error", FAMILY, ids=lambda error: error.__name__)
def test_survives_the_way_from_another_process(error: type[SwareproError]) -> None:
    back = pickle.loads(pickle.dumps(error("what", hint="do")))
    assert type(back) is error
    assert (back.message, back.hint) == ("what", "do")


def test_lifecycle_refusals_can_be_caught_together() -> None:
    assert issubclass(errors.PositionGapError, errors.SessionError)
    assert issubclass(errors.CapacityError, errors.SessionError)
