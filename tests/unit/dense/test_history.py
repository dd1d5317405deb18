import pytest
import torch

from swarepro.dense.history import History
from swarepro.errors import PositionGapError, ReuseError
from swarepro.plan import Finish, Reuse


def rows(start: int, end: int) -> torch.Tensor:
    return torch.arange(start, end, dtype=torch.float64)[:, None, None].expand(-1, 1, 2)


def test_rows_stand_in_the_order_of_positions() -> None:
    history = History()
    history.extend(0, 3, 0, rows(0, 4), rows(10, 14))
    k, v = history.extend(0, 3, 4, rows(4, 5), rows(14, 15))
    assert k[:, 0, 0].tolist() == [0, 1, 2, 3, 4]
    assert v[:, 0, 0].tolist() == [10, 11, 12, 13, 14]


@pytest.mark.parametrize("start", [1, 5])
def test_a_gap_or_an_overlap_is_refused(start: int) -> None:
    history = History()
    history.extend(0, 0, 0, rows(0, 4), rows(0, 4))
    with pytest.raises(PositionGapError, match=f"from position {start}"):
        history.extend(0, 0, start, rows(0, 1), rows(0, 1))
    with pytest.raises(PositionGapError):
        history.extend(1, 0, start, rows(0, 1), rows(0, 1))


def test_a_kept_prefix_is_taken_over_and_a_finished_one_is_not() -> None:
    history = History()
    for session in (0, 1):
        history.extend(session, 0, 0, rows(0, 4), rows(0, 4))
    history.act((Finish(session=0, keep=True), Finish(session=1)))
    history.act((Reuse(session=2, of=0, rows=3),))
    k, _ = history.extend(2, 0, 3, rows(7, 8), rows(7, 8))
    assert k[:, 0, 0].tolist() == [0, 1, 2, 7]
    with pytest.raises(ReuseError, match="has 0"):
        history.act((Reuse(session=3, of=1, rows=1),))


def test_a_prefix_that_is_not_there_is_refused() -> None:
    history = History()
    history.extend(0, 0, 0, rows(0, 4), rows(0, 4))
    with pytest.raises(ReuseError, match="5 rows of session 0, which has 4"):
        history.act((Reuse(session=1, of=0, rows=5),))


def test_a_reset_forgets_all() -> None:
    history = History()
    history.extend(0, 0, 0, rows(0, 4), rows(0, 4))
    history.reset()
    k, _ = history.extend(0, 0, 0, rows(0, 2), rows(0, 2))
    assert k.shape[0] == 2
