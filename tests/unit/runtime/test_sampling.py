import pytest
import torch

from swarepro.runtime.routes.sampling import first_largest

INF = float("inf")


@pytest.mark.parametrize(
    ("logits", "chosen"),
    [
        ([1.0, 3.0, 2.0], 1),
        ([3.0, 1.0, 3.0], 0),
        ([-INF, -INF, -1.0], 2),
        ([INF, 1.0, INF], 0),
        ([-INF, -INF], 0),
        ([-0.0, 0.0], 0),
    ],
)
def test_of_ties_the_first(logits: list[float], chosen: int) -> None:
    assert first_largest(torch.tensor([logits])).tolist() == [chosen]
    assert first_largest(torch.tensor([logits], dtype=torch.bfloat16)).tolist() == [chosen]


def test_rows_choose_each_for_itself() -> None:
    rows = torch.tensor([[1.0, 2.0, 2.0], [5.0, 5.0, 1.0]])
    assert first_largest(rows).tolist() == [1, 0]
    assert first_largest(rows).dtype == torch.int64


def test_not_a_number_is_chosen_as_argmax_does() -> None:
    rows = torch.tensor([[1.0, float("nan"), 2.0]])
    assert first_largest(rows).tolist() == rows.argmax(dim=-1).tolist() == [1]
