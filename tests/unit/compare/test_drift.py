"""How far predictions move, against torch in float64."""

import numpy as np
import pytest
import torch

from swarepro import points
from swarepro.compare.align import align_positions
from swarepro.compare.drift import largest_drift
from tests.unit.bundle.factory import Run, batch, bf16, item, spans

ROWS = np.random.default_rng(3).normal(size=(4, 50)).astype(np.float32) * 4


def run(rows=ROWS, *, dtype="F32", store=True):
    """A run of single rows, each with its logits."""
    items = []
    for step, row in enumerate(rows):
        ids = np.array([step])
        items.append(item(points.INPUT_IDS, ids, dtype="I64", step=step, row_start=step))
        more = {"dtype": dtype, "step": step, "row_start": step, "store": store}
        items.append(item(points.LOGITS, row[None], **more))
    steps = spans(*((step, step + 1) for step in range(len(rows))))
    return Run(items=items, steps=steps, prompts=(tuple(range(len(rows))),))


@pytest.fixture
def drift(tmp_path):
    def between(one, other):
        pair = one.open(tmp_path / "one"), other.open(tmp_path / "other")
        return largest_drift(*pair, [joined.overlaps for joined in align_positions(*pair).joined])

    return between


def test_the_row_that_moves_most(drift):
    moved = ROWS.copy()
    moved[1] += 7.0  # of all logits alike: no prediction moves
    moved[2, ROWS[2].argmax()] -= 0.3
    moved[3, ROWS[3].argmax()] += 0.1
    found = drift(run(), run(moved))
    mine, theirs = (torch.tensor(rows[2]).double().log_softmax(-1) for rows in (ROWS, moved))
    token = int(mine.argmax())
    assert (found.session, found.position, found.token) == (0, 2, token)
    assert found.moved == pytest.approx(float(theirs[token] - mine[token]), rel=1e-9)
    assert found.moved < 0
    kl = torch.nn.functional.kl_div(theirs, mine, log_target=True, reduction="sum")
    assert found.kl == pytest.approx(float(kl), rel=1e-9)


def test_a_row_behind_the_first_window_has_its_own_position(drift, monkeypatch):
    """A capture of another engine has the logits of all rows in one tensor."""
    monkeypatch.setattr("swarepro.compare.windows.WINDOW_BYTES", ROWS[0].nbytes)
    moved = ROWS.copy()
    moved[2, ROWS[2].argmax()] -= 0.3
    sides = []
    for rows in (ROWS, moved):
        made = run()
        made.items = [
            item(points.INPUT_IDS, np.arange(4), dtype="I64"),
            item(points.LOGITS, rows),
        ]
        made.steps = spans((0, 4))
        sides.append(made)
    found = drift(*sides)
    assert (found.position, found.token) == (2, int(ROWS[2].argmax()))


def test_control_equal_logits_do_not_move(drift):
    found = drift(run(), run())
    assert (found.moved, found.kl) == (0.0, 0.0)


def test_what_all_logits_have_in_common_moves_nothing(drift):
    found = drift(run(), run(ROWS + 100))
    assert abs(found.moved) < 1e-4  # float32 rounds the sums
    assert found.kl < 1e-6


def test_two_dtypes(drift):
    found = drift(run(), run(bf16(ROWS), dtype="BF16"))
    truncated = torch.tensor(ROWS).view(torch.int32).bitwise_and(-65536).view(torch.float32)
    mine, theirs = (rows.double().log_softmax(-1) for rows in (torch.tensor(ROWS), truncated))
    moves = (theirs - mine).gather(1, mine.argmax(1, keepdim=True))
    assert abs(found.moved) == pytest.approx(float(moves.abs().max()), rel=1e-9)


def test_digests_say_nothing(drift):
    assert drift(run(), run(ROWS + 1, store=False)) is None


def test_tokens_that_a_sampler_masks(drift):
    """Minus infinity on both sides is no drift; on one side alone the distributions are apart."""
    masked, moved = ROWS.copy(), ROWS.copy()
    masked[:, 7] = moved[:, 7] = -np.inf
    moved[2, masked[2].argmax()] -= 0.3
    found = drift(run(masked), run(moved))
    mine, theirs = (torch.tensor(rows[2]).double().softmax(-1) for rows in (masked, moved))
    kept = mine > 0
    assert found.position == 2
    assert found.kl == pytest.approx(float((mine * (mine / theirs).log())[kept].sum()), rel=1e-9)


def test_a_token_masked_in_the_target_alone(drift):
    moved = ROWS.copy()
    moved[2, ROWS[2].argmax()] = -np.inf
    found = drift(run(), run(moved))
    assert (found.position, found.moved, found.kl) == (2, -np.inf, np.inf)


def test_a_token_without_a_chance_that_the_target_masks(drift):
    """Its probability is 0 in float64, the target's logarithm is infinite: no product of both."""
    own = ROWS.copy()
    own[2, 7] = -2000.0
    moved = own.copy()
    moved[2, 7] = -np.inf
    moved[2, own[2].argmax()] -= 0.3
    found = drift(run(own), run(moved))
    mine, theirs = (torch.tensor(rows[2]).double().softmax(-1) for rows in (own, moved))
    kept = mine > 0
    assert (found.position, int(kept.sum())) == (2, len(kept) - 1)
    assert found.kl == pytest.approx(float((mine * (mine / theirs).log())[kept].sum()), rel=1e-9)


def test_rows_without_probabilities_are_left_out(drift):
    broken = ROWS.copy()
    broken[0] = np.nan
    broken[1, 3] = np.inf
    broken[3, ROWS[3].argmax()] += 0.5
    assert drift(run(), run(broken)).position == 3


@pytest.mark.parametrize("side", [0, 1])
def test_a_row_that_one_side_alone_has_no_probabilities_of(drift, side):
    broken = ROWS.copy()
    broken[0, 3] = np.nan
    runs = [run(), run()]
    runs[side] = run(broken)
    found = drift(*runs)
    assert (found.moved, found.kl) == (0.0, 0.0)


def test_logits_whose_exponents_are_beyond_any_float(drift):
    large = np.zeros((1, 50), dtype=np.float32)
    large[0, 4] = 2000.0
    moved = large.copy()
    moved[0, 5] = 2000.0
    found = drift(run(large), run(moved))
    assert (found.token, found.moved) == (4, pytest.approx(-np.log(2)))


def test_the_session_is_named(drift):
    sides = []
    for moved in (0.0, 1.0):
        made = run(ROWS[:1])
        logits = ROWS[:1].copy()
        logits[0, ROWS[0].argmax()] += moved
        more = {"step": 1, "row_start": 0, "session": 1}
        made.items.append(item(points.INPUT_IDS, np.array([0]), dtype="I64", **more))
        made.items.append(item(points.LOGITS, logits, **more))
        made.steps = batch(0, (0, 0, 1)), batch(1, (1, 0, 1))
        made.prompts = ((0,), (0,))
        made.tokens = ((), ())
        sides.append(made)
    assert drift(*sides).session == 1


def test_no_row_has_probabilities(drift):
    assert drift(run(), run(np.full_like(ROWS, np.nan))) is None
