from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from swarepro.case import _TABLES, CaseSpec, convert_case, load_case
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
    assert (spec.page_size, spec.evict, spec.script, spec.background) == (1, False, (), ())
    session = spec.sessions[0]
    assert (session.chunk, session.chunks, session.decode) == (None, None, 0)
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


SCRIPTED = case(
    sessions=[
        {"prompt": {"random": 8}},
        {"prompt": {"tokens": [2, 818, 3]}},
        {"prompt": {"text": "a"}},
    ],
    page_size=4,
    evict=True,
    capacity=32,
    swa_capacity=16,
    background=["scrambled-padding"],
    script=[
        {"rows": [{"session": 0, "prefill": 8}, {"session": 1, "prefill": 3}]},
        {"rows": [{"session": 1, "decode": True}], "times": 3},
        {"finish": [0, 1], "keep": True},
        {"reuse": {"session": 2, "of": 0, "rows": 4}},
        {"reset": True},
    ],
)


@pytest.mark.parametrize(
    "data",
    [
        case(),
        case(sessions=[{"prompt": {"tokens": [2, 818]}, "chunks": [2]}], capacity=9),
        case(layers="0:4", dtype="fp32", repeats=2, summary="s"),
        SCRIPTED,
    ],
)
def test_a_case_survives_the_manifest(data: dict[str, Any]) -> None:
    spec = convert_case(data, source="x")
    assert msgspec.convert(msgspec.to_builtins(spec), CaseSpec) == spec
    assert convert_case(msgspec.to_builtins(spec), source="x") == spec
    assert convert_case(msgspec.json.decode(msgspec.json.encode(spec)), source="x") == spec


def test_a_script_is_read_from_toml(tmp_path: Path) -> None:
    path = tmp_path / "scripted.toml"
    path.write_text(
        """
        name = "small"
        model = "synthetic:gemma4-tiny"
        page_size = 4
        evict = true
        capacity = 32
        swa_capacity = 16
        background = ["scrambled-padding"]

        [[sessions]]
        prompt = { random = 8 }
        [[sessions]]
        prompt = { tokens = [2, 818, 3] }
        [[sessions]]
        prompt = { text = "a" }

        [[script]]
        rows = [{ session = 0, prefill = 8 }, { session = 1, prefill = 3 }]
        [[script]]
        rows = [{ session = 1, decode = true }]
        times = 3
        [[script]]
        finish = [0, 1]
        keep = true
        [[script]]
        reuse = { session = 2, of = 0, rows = 4 }
        [[script]]
        reset = true
        """,
        encoding="utf-8",
    )
    assert load_case(path) == convert_case(SCRIPTED, source="x")


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
        (case(page_sise=4), "page_sise", "did you mean 'page_size'?"),
        (case(scrip=[]), "scrip", "did you mean 'script'?"),
        (case(script=[{"row": []}]), "row", "did you mean 'rows'?"),
        (case(script=[{"reset": True}, {"finsh": [0]}]), "finsh", "did you mean 'finish'?"),
        (
            case(script=[{"rows": [{"session": 0}, {"session": 0, "prefil": 3}]}]),
            "prefil",
            "did you mean 'prefill'?",
        ),
        (
            case(script=[{"reuse": {"session": 1, "of": 0, "row": 4}}]),
            "row",
            "did you mean 'rows'?",
        ),
        (
            case(expect={"faulty": {"first_violation": {"kind": "x", "stepp": 0}}}),
            "stepp",
            "did you mean 'step'?",
        ),
        (
            case(expect={"healthy": {"fill": {"verdikt": "x"}}}),
            "verdikt",
            "did you mean 'verdict'?",
        ),
        (
            case(expect={"healthy": {"fill": {"first": {"stepp": 0}}}}),
            "stepp",
            "did you mean 'step'?",
        ),
        (
            case(expect={"diff": {"within": {"atoll": 1.0}}}),
            "atoll",
            "did you mean 'atol'?",
        ),
        (case(expect={"diff": {"withn": {}}}), "withn", "did you mean 'within'?"),
        (
            case(expect={"healthy": {"first_violatio": {}}}),
            "first_violatio",
            "did you mean 'first_violation'?",
        ),
    ],
)
def test_a_typo_in_a_key_is_named_with_a_suggestion(
    data: dict[str, Any], key: str, hint: str
) -> None:
    error = refuse(data)
    assert f"`{key}`" in error.message
    assert error.hint == hint


@pytest.mark.parametrize(
    ("data", "path", "hint"),
    [
        (
            case(sessions=[{"prompt": {"name": 5}}]),
            "`$.sessions[0].prompt`",
            "known here: tokens, random, text, seed",
        ),
        (
            case(script=[{}, {"name": 5}]),
            "`$.script[1]`",
            "known here: rows, times, finish, keep, reuse, reset",
        ),
        (
            case(script=[{"rows": [{"session": 0, "name": 5}]}]),
            "`$.script[0].rows[0]`",
            "known here: session, prefill, decode",
        ),
        (
            case(script=[{"reuse": {"name": 5}}]),
            "`$.script[0].reuse`",
            "known here: session, of, rows",
        ),
        (
            case(expect={"faulty": {"first_violation": {"name": 5}}}),
            "`$.expect.faulty.first_violation`",
            "known here: kind, step, layer",
        ),
        (
            case(expect={"healthy": {"fill": {"name": 5}}}),
            "`$.expect.healthy.fill`",
            "known here: verdict, first",
        ),
        (
            case(expect={"diff": {"within": {"name": 5}}}),
            "`$.expect.diff.within`",
            "known here: atol, rtol",
        ),
    ],
)
def test_a_suggestion_comes_from_the_table_that_holds_the_key(
    data: dict[str, Any], path: str, hint: str
) -> None:
    """``name`` is a key of the case, but not of a prompt: suggesting it there would be absurd."""
    error = refuse(data)
    assert path in error.message
    assert error.hint == hint


def test_every_table_of_a_case_has_its_keys_suggested() -> None:
    """A table that was forgotten in `_TABLES` would suggest the keys of the case."""

    def tables(kind: type[msgspec.Struct]) -> dict[str, type[msgspec.Struct]]:
        found: dict[str, type[msgspec.Struct]] = {}
        for field in msgspec.structs.fields(kind):
            for inner in structs_in(field.type):
                found |= {field.name: inner} | tables(inner)
        return found

    def structs_in(hint: Any) -> list[type[msgspec.Struct]]:
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            return [hint]
        return [inner for part in get_args(hint) for inner in structs_in(part)]

    assert tables(CaseSpec) == _TABLES


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
