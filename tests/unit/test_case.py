from pathlib import Path
from typing import Any

import msgspec
import pytest

from swarepro.case import CaseSpec, convert_case, load_case
from swarepro.errors import CaseError


def case(**changes: Any) -> dict[str, Any]:
    """Return the data of a small valid case, changed at the top level."""
    return {
        "name": "small",
        "model": "synthetic:gemma4-tiny",
        "sessions": [{"prompt": {"random": 5}}],
        **changes,
    }


def refuse(data: dict[str, Any]) -> CaseError:
    with pytest.raises(CaseError) as caught:
        convert_case(data, source="small.toml")
    assert caught.value.message.startswith("small.toml: ")
    return caught.value


def test_defaults() -> None:
    spec = convert_case(case(), source="x")
    assert (spec.dtype, spec.stages, spec.layers, spec.fault) == ("bf16", None, None, None)
    assert (spec.capacity, spec.swa_capacity, spec.repeats) == (512, None, 6)
    assert (spec.sessions[0].chunk, spec.sessions[0].chunks, spec.sessions[0].decode) == (
        64,
        None,
        0,
    )
    assert spec.expect.healthy.verdict == "DETERMINISTIC"
    assert spec.expect.faulty is None


def test_loads_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "anchor.toml"
    path.write_text(
        """
        name = "anchor"
        summary = "Two chunks."
        model = "synthetic:gemma4-tiny?seed=1"
        stages = "0:4,4:8,8:12"
        fault = "skip-swa-allocation"

        [[sessions]]
        prompt = { random = 67, seed = 3 }
        chunks = [64, 3]
        decode = 2

        [expect.faulty]
        verdict = "NONDETERMINISTIC"
        earliest_varying = { step = 0, name = "L0_kv_slice_post_write" }
        outputs_vary = [1]
        """,
        encoding="utf-8",
    )
    spec = load_case(path)
    assert spec.sessions[0].chunks == (64, 3)
    assert spec.expect.faulty is not None
    assert spec.expect.faulty.earliest_varying is not None
    assert spec.expect.faulty.earliest_varying.name == "L0_kv_slice_post_write"


def test_a_case_survives_the_manifest() -> None:
    data = case(sessions=[{"prompt": {"tokens": [2, 818]}, "chunks": [2]}], capacity=9)
    spec = convert_case(data, source="x")
    assert msgspec.convert(msgspec.to_builtins(spec), CaseSpec) == spec


@pytest.mark.parametrize(
    ("data", "key", "hint"),
    [
        (case(stage="0:4"), "stage", "did you mean 'stages'?"),
        (case(sesions=[]), "sesions", "did you mean 'sessions'?"),
        (
            case(sessions=[{"prompt": {"random": 5}, "chunkss": [5]}]),
            "chunkss",
            "did you mean 'chunks'?",
        ),
        (case(sessions=[{"prompt": {"randon": 5}}]), "randon", "did you mean 'random'?"),
        (
            case(expect={"faulty": {"earliest_varying": {"step": 0, "nam": "x"}}}),
            "nam",
            "did you mean 'name'?",
        ),
        (
            case(expect={"diff": {"verdict": "DIVERGED", "first_valu": None}}),
            "first_valu",
            "did you mean 'first_value'?",
        ),
    ],
)
def test_a_typo_in_a_key_is_named_with_a_suggestion(
    data: dict[str, Any], key: str, hint: str
) -> None:
    error = refuse(data)
    assert f"`{key}`" in error.message
    assert error.hint == hint


def test_a_suggestion_comes_from_the_table_that_holds_the_key() -> None:
    """``name`` is a key of the case, but not of a prompt: suggesting it there would be absurd."""
    error = refuse(case(sessions=[{"prompt": {"name": 5}}]))
    assert "`$.sessions[0].prompt`" in error.message
    assert error.hint == "known here: tokens, random, text, seed"


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"name": "x"}, "missing required field `model`"),
        (case(sessions=[]), "at least one [[sessions]]"),
        (case(stages="0:4", layers="0:4"), "exclude each other"),
        (case(dtype="int8"), "`$.dtype`"),
        (case(capacity=0), "`$.capacity`"),
        (case(capacity="many"), "`$.capacity`"),
        (case(swa_capacity=0), "`$.swa_capacity`"),
        (case(repeats=0), "`$.repeats`"),
        (case(sessions=[{"prompt": {}}]), "found none"),
        (case(sessions=[{"prompt": {"random": 3, "text": "a"}}]), "found random, text"),
        (case(sessions=[{"prompt": {"tokens": []}}]), "sessions[0].prompt.tokens is empty"),
        (case(sessions=[{"prompt": {"tokens": [2, -1]}}]), "`$.sessions[0].prompt.tokens[1]`"),
        (case(sessions=[{"prompt": {"random": 0}}]), "`$.sessions[0].prompt.random`"),
        (case(sessions=[{"prompt": {"random": 5}, "chunk": 0}]), "`$.sessions[0].chunk`"),
        (case(sessions=[{"prompt": {"random": 5}, "chunks": [5, 0]}]), "chunks[1]"),
        (case(sessions=[{"prompt": {"random": 5}, "decode": -1}]), "`$.sessions[0].decode`"),
        (case(expect={"faulty": {"verdict": "MAYBE"}}), "`$.expect.faulty.verdict`"),
    ],
)
def test_what_is_wrong_is_named(data: dict[str, Any], says: str) -> None:
    assert says in refuse(data).message


def test_a_file_that_is_not_there_or_not_toml_is_named(tmp_path: Path) -> None:
    with pytest.raises(CaseError, match=r"cannot read the case .*none\.toml"):
        load_case(tmp_path / "none.toml")
    with pytest.raises(CaseError, match="cannot read the case"):
        load_case(tmp_path)
    broken = tmp_path / "broken.toml"
    broken.write_text("name = ", encoding="utf-8")
    with pytest.raises(CaseError, match=r"broken\.toml is not valid TOML"):
        load_case(broken)
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CaseError, match=r"cannot read the case .*binary\.toml"):
        load_case(binary)


EXPECTING = {
    "name": "a",
    "model": "synthetic:gemma4-tiny",
    "sessions": [{"prompt": {"random": 3}}],
}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"expect": {"faulty": {}}}, "need a fault; the case names none"),
        ({"expect": {"diff": {"verdict": "DIVERGED"}}}, "need a fault; the case names none"),
        ({"fault": "f"}, "names the fault 'f' and does not say what it must show"),
        (
            {"fault": "f", "expect": {"diff": {"verdict": "DIVERGED"}}},
            "does not say what it must show",
        ),
        (
            {
                "fault": "f",
                "expect": {
                    "healthy": {"error": "CapacityError"},
                    "faulty": {},
                    "diff": {"verdict": "DIVERGED"},
                },
            },
            "the healthy arm expects the error CapacityError",
        ),
    ],
)
def test_an_expectation_that_nobody_would_look_at_is_refused(fields, message):
    with pytest.raises(CaseError, match=message):
        convert_case(EXPECTING | fields, source="a.toml")
    assert convert_case(EXPECTING | {"fault": "f", "expect": {"faulty": {}}}, source="a").fault
