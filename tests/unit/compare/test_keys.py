"""Ranges of keys, found from what a plain softmax over them gives."""

import numpy as np
import pytest

from swarepro.compare.keys import Heads, KeySolver, Seen

P, H, K, D = 40, 4, 2, 8
RNG = np.random.default_rng(7)
Q, KEYS, VALUES = RNG.normal(size=(P, H, D)), RNG.normal(size=(P, K, D)), RNG.normal(size=(P, K, D))


def attend(position: int, first: int, last: int, scale: float, cap: float | None) -> np.ndarray:
    out = np.empty((H, D))
    for head in range(H):
        scores = scale * KEYS[first : last + 1, head // 2] @ Q[position, head]
        if cap is not None:
            scores = cap * np.tanh(scores / cap)
        weights = np.exp(scores - scores.max())
        out[head] = weights @ VALUES[first : last + 1, head // 2] / weights.sum()
    return out


def solver(*, window: int, scale: float = 0.35, cap: float | None = None, noise: float = 0.0):
    out = np.stack([attend(p, max(0, p - window + 1), p, scale, cap) for p in range(P)])
    out += noise * np.random.default_rng(1).normal(size=out.shape) * np.abs(out).mean()
    return KeySolver(Heads(q=Q, k=KEYS, v=VALUES, out=out)), out


@pytest.mark.parametrize("scale", [0.05, 0.35, 1.0])
@pytest.mark.parametrize("cap", [None, 50.0])
@pytest.mark.parametrize("window", [8, P])
def test_the_baselines_own_keys_are_found(scale: float, cap: float | None, window: int) -> None:
    found, out = solver(window=window, scale=scale, cap=cap)
    assert found.fits
    for p in (9, 20, 39):
        assert found.seen(p, out[p]) == Seen(first=max(0, p - window + 1), last=p)


@pytest.mark.parametrize(
    ("position", "first", "last"),
    [(20, 12, 20), (20, 14, 20), (20, 0, 20), (20, 16, 20), (20, 13, 19), (20, 13, 21), (33, 1, 1)],
)
def test_other_keys_are_found(position: int, first: int, last: int) -> None:
    found, _ = solver(window=8)
    out = attend(position, first, last, 0.35, None)
    assert found.seen(position, out) == Seen(first=first, last=last)


def test_rounding_to_bf16_does_not_hide_a_key() -> None:
    found, _ = solver(window=8, noise=2**-9)
    assert found.fits
    out = attend(20, 12, 20, 0.35, None) * (1 + 2**-9)
    assert found.seen(20, out) == Seen(first=12, last=20)


def test_what_is_no_attention_over_a_range_is_not_explained() -> None:
    found, out = solver(window=8)
    assert found.seen(20, np.random.default_rng(3).normal(size=(H, D))) is None
    assert found.seen(20, 2 * out[20]) is None


def test_a_baseline_that_is_no_attention_has_no_scale() -> None:
    out = np.random.default_rng(3).normal(size=(P, H, D))
    assert not KeySolver(Heads(q=Q, k=KEYS, v=VALUES, out=out)).fits


@pytest.mark.parametrize("height", [1, 3, 7])
def test_blocks_of_keys_give_what_all_at_once_do(
    height: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("swarepro.compare.keys._BLOCK", height * H * D)
    for cap in (None, 50.0):
        found, out = solver(window=8, cap=cap)
        for p in (9, 20, 39):
            assert found.seen(p, out[p]) == Seen(first=p - 7, last=p)
    for first, last in ((12, 20), (0, 20), (13, 19), (20, 20)):
        assert solver(window=8)[0].seen(20, attend(20, first, last, 0.35, None)) == Seen(
            first=first, last=last
        )


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_a_broken_key_hides_no_range_without_it(value: float) -> None:
    values = VALUES.copy()
    values[11] = value
    out = np.stack([attend(p, max(0, p - 7), p, 0.35, None) for p in range(P)])
    found = KeySolver(Heads(q=Q, k=KEYS, v=values, out=out))
    assert found.fits
    assert found.seen(20, attend(20, 14, 20, 0.35, None)) == Seen(first=14, last=20)
    assert found.seen(20, attend(20, 9, 20, 0.35, None)) is None


def test_of_ranges_that_fit_alike_the_one_that_ends_nearest_is_named() -> None:
    """The query's own key has next to no weight: rounding alone tells whether it was seen."""
    keys = KEYS.copy()
    keys[20] = -20 * Q[20].reshape(K, H // K, D).sum(axis=1)
    out = np.stack([attend(p, max(0, p - 7), p, 0.35, None) for p in range(P)])
    found = KeySolver(Heads(q=Q, k=keys, v=VALUES, out=out))
    assert found.fits
    noise = 1 + 2**-9 * np.random.default_rng(5).normal(size=(H, D))
    seen = attend(20, 13, 19, 0.35, None)  # the weight of key 20 is below 1e-6
    assert found.seen(20, seen * noise) == Seen(first=13, last=20)
    assert found.seen(20, seen / noise) == Seen(first=13, last=20)


def test_in_a_long_run_ranges_end_near_the_query(monkeypatch: pytest.MonkeyPatch) -> None:
    """To try all would take the square of the positions for each query."""
    monkeypatch.setattr("swarepro.compare.keys._SHORT", P // 2)
    found, _ = solver(window=8)
    assert found.seen(30, attend(30, 25, 28, 0.35, None)) == Seen(first=25, last=28)
    assert found.seen(30, attend(30, 10, 15, 0.35, None)) is None
    assert found.seen(15, attend(15, 5, 8, 0.35, None)) == Seen(first=5, last=8)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 1e200])
def test_no_key_is_looked_for_in_what_is_not_finite_or_too_large_to_square(value: float) -> None:
    found, out = solver(window=8)
    broken = out[20].copy()
    broken[1, 2] = value
    with np.errstate(all="raise", under="ignore"):
        assert found.seen(20, broken) is None
