"""What two manifests say, without a tensor."""

import msgspec
import pytest

from swarepro.bundle.schema import ActionEntry, BackendEntry, CaptureEntry, Manifest
from swarepro.compare.settings import differences, images_of, tokens_differ
from tests.unit.report.made import manifest


def test_equal_settings_are_not_mentioned():
    assert differences(manifest(), manifest(run_id="other", created="later")) == ()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model": "gguf:x"}, "model (synthetic:gemma4-tiny against gguf:x)"),
        ({"faults": ("one-row",)}, "faults (none against one-row)"),
        ({"faults": ("one-row", "b")}, "faults (none against one-row, b)"),
        ({"stages": ()}, "stages (0:12 against none)"),
        ({"recv": "runs/a"}, "hidden states received from (none against runs/a)"),
        ({"case": {"name": "x", "capacity": 9}}, "capacity (default against 9)"),
        ({"case": {"swa_capacity": 9}}, "SWA capacity (default against 9)"),
        ({"case": {"page_size": 4}}, "page size (default against 4)"),
        (
            {"case": {"sessions": [{"images": [[3, 7], [9, 11]]}]}},
            "images (none against 3 to 6 of session 0, 9 to 10 of session 0)",
        ),
        ({"case": {"evict": True}}, "eviction (off against on)"),
        ({"case": {"evict": False}}, None),
        ({"prompts": ((2,) * 64,)}, "prompts (other token ids)"),
        ({"prompts": ((1,) * 6,)}, "prompts (64 against 6 tokens)"),
        ({"steps": manifest().steps[:1]}, "chunks (64, 1 decoded against 64)"),
    ],
)
def test_each_is_said(change, said):
    assert differences(manifest(), manifest(**change)) == (() if said is None else (said,))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"cpu": "other"}, "CPU (x against other)"),
        ({"packages": {"torch": "2.0", "numpy": "1"}}, "torch (none against 2.0)"),
        ({"swarepro": "9"}, "swarepro (x against 9)"),
        ({"platform": "other"}, None),
    ],
)
def test_what_computes_other_bytes_elsewhere_is_said(change, said):
    own = msgspec.structs.replace(
        manifest().environment, cpu="x", swarepro="x", packages={"numpy": "1"}
    )
    pair = (manifest(environment=env) for env in (own, msgspec.structs.replace(own, **change)))
    assert differences(*pair) == (() if said is None else (said,))


def computed(engine: str, dtype: str, case: dict[str, object] | None = None) -> Manifest:
    backend = msgspec.structs.replace(manifest().backend, engine=engine, dtype=dtype)
    return manifest(backend=backend, case=case or {})


def test_the_dtype_of_weights_is_said_where_it_is_another_one():
    dense, half = computed("dense", "fp32"), computed("paged", "bf16")
    single = computed("paged", "fp32", {"dtype": "fp32"})
    said = differences(single, dense)
    assert "dtype of the weights (fp32 against bf16)" in said
    assert not any(each.startswith("dtype of") for each in differences(half, dense))
    assert not any(each.startswith("dtype of") for each in differences(half, single))


@pytest.mark.parametrize(
    "sessions", [None, 3, {}, [], [7], [{"images": 3}], [{"images": [[1]]}], [{"images": ["ab"]}]]
)
def test_what_another_program_says_of_its_sessions_is_no_image(sessions):
    assert images_of(manifest(case={"sessions": sessions}), 0) == []
    assert differences(manifest(), manifest(case={"sessions": sessions})) == ()


def with_resets(*steps: int) -> Manifest:
    first, second = manifest().steps
    return manifest(
        steps=(
            msgspec.structs.replace(first, reset=0 in steps),
            msgspec.structs.replace(second, reset=1 in steps),
        )
    )


def test_a_reset_is_said():
    assert differences(with_resets(), with_resets(1)) == ("resets (none against before step 1)",)


def capturing(*steps: int) -> Manifest:
    return manifest(capture=msgspec.structs.replace(manifest().capture, steps=steps))


@pytest.mark.parametrize(
    ("left", "right", "said"),
    [
        (
            (*range(20), 30),
            (*range(20), 40),
            "captured steps (after 20 that are the same: 30 against 40)",
        ),
        (
            tuple(range(20)),
            tuple(range(14)),
            "captured steps (after 14 that are the same: 14, 15, 16, 17, 18, 19 against"
            " nothing more)",
        ),
        (
            tuple(range(14)),
            tuple(range(1, 15)),
            "captured steps (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 2 more"
            " against 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 and 2 more)",
        ),
        (
            (),
            tuple(range(13)),
            "captured steps (all against 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 1 more)",
        ),
    ],
)
def test_long_lists_are_compared_to_their_end(left, right, said):
    assert differences(capturing(*left), capturing(*right)) == (said,)


def test_a_long_lifecycle_is_compared_to_its_end():
    def ended(last: str) -> Manifest:
        kinds = ["finish"] * 12 + [last]
        actions = tuple(ActionEntry(kind=kind, session=0) for kind in kinds)
        return manifest(final_actions=actions)

    assert differences(ended("finish"), ended("finish")) == ()
    assert differences(ended("finish"), ended("keep")) == (
        "lifecycle (after 12 that are the same: finish 0 at the end against keep 0 at the end)",
    )


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("device", "device"),
        ("dtype", "dtype"),
        ("triton", "triton"),
        ("route", "route"),
        ("schedule", "schedule"),
        ("level", "capture level"),
        ("store", "store"),
        ("points", "captured points"),
        ("layers", "captured layers"),
        ("steps", "captured steps"),
    ],
)
def test_how_it_ran_and_what_was_captured(field, said):
    left = manifest()
    part = "backend" if field in BackendEntry.__struct_fields__ else "capture"
    was = getattr(getattr(left, part), field)
    other = (3,) if field in ("layers", "steps") else ("L0_*",) if field == "points" else "x"
    assert was != other
    entry = msgspec.structs.replace(getattr(left, part), **{field: other})
    (found,) = differences(left, manifest(**{part: entry}))
    assert found.startswith(f"{said} (")


def test_every_field_of_a_capture_counts():
    known = {"level", "store", "points", "layers", "steps"}
    assert known == set(CaptureEntry.__struct_fields__)


def of(*tokens: tuple[int, ...], **changes) -> Manifest:
    prompts = tuple((1,) * 64 for _ in tokens)
    return manifest(**({"tokens": tokens, "prompts": prompts} | changes))


def test_a_run_without_the_head_has_no_tokens_that_differ():
    assert not tokens_differ(of((227,)), of(()))
    assert not tokens_differ(of(()), of((227,)))
    assert tokens_differ(of((227,)), of((228,)))


def test_tokens_of_each_session_count():
    assert not tokens_differ(of((1,), (2,)), of((), (2,)))
    assert tokens_differ(of((1,), (2,)), of((), (3,)))
    assert tokens_differ(of((1,), (2,)), of((1,), (3,)))
    assert not tokens_differ(of((1,), (2,)), of((1,)))


def test_with_equal_steps_all_tokens_count():
    assert tokens_differ(of((1, 2)), of((1,)))
    other_steps = {"steps": manifest().steps[:1]}
    assert not tokens_differ(of((1, 2)), of((1,), **other_steps))
    assert tokens_differ(of((1, 2)), of((2,), **other_steps))
    other_prompt = {"prompts": ((2,) * 64,)}
    assert not tokens_differ(of((1, 2)), of((2,), **other_steps, **other_prompt))
    assert tokens_differ(of((1, 2)), of((2,), **other_prompt))
