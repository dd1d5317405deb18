from pathlib import Path
from typing import Any

import pytest

from swarepro.api import RunOptions
from swarepro.case import CaseSpec, PromptSpec, SessionSpec
from swarepro.cli.assemble import CaseOptions, RunFlags, assemble, build_case, build_options
from swarepro.cli.options import Dtype, Store
from swarepro.errors import CaseError, UsageError
from swarepro.points import Level

TWO_SESSIONS = """
name = "two"
model = "synthetic:gemma4-tiny"
[[sessions]]
prompt = { random = 5 }
[[sessions]]
prompt = { random = 6 }
"""


def case(name: str | None = None, **options: Any) -> CaseSpec:
    return build_case(name, CaseOptions(**options))


def test_a_shipped_case_without_options_is_as_shipped() -> None:
    plain = case("anchor-a")
    assert plain.name == "anchor-a"
    assert plain.sessions[0].chunks == (64, 3)
    assert plain.stages == "0:4,4:8,8:12"


def test_options_go_over_a_case() -> None:
    changed = case(
        "anchor-a", chunk=10, decode=2, dtype=Dtype.FP32, capacity=100, swa_capacity=90, model="m"
    )
    session = changed.sessions[0]
    assert (session.chunk, session.chunks, session.decode) == (10, None, 2)
    assert (changed.dtype, changed.capacity, changed.swa_capacity) == ("fp32", 100, 90)
    assert changed.model == "m"
    assert session.prompt == case("anchor-a").sessions[0].prompt


def test_layers_replace_stages_and_stages_layers() -> None:
    alone = case("anchor-a", layers="0:4")
    assert (alone.stages, alone.layers) == (None, "0:4")
    split = case("anchor-a", stages="0:6,6:12")
    assert (split.stages, split.layers) == ("0:6,6:12", None)


def test_from_options_alone() -> None:
    made = case(model="synthetic:gemma4-tiny", tokens="2,818", chunks="1,1")
    assert made == CaseSpec(
        name="adhoc",
        model="synthetic:gemma4-tiny",
        sessions=(SessionSpec(prompt=PromptSpec(tokens=(2, 818)), chunks=(1, 1)),),
    )
    assert case(model="m", prompt="hi").sessions[0].prompt == PromptSpec(text="hi")


def test_a_toml_path(tmp_path: Path) -> None:
    path = tmp_path / "two.toml"
    path.write_text(TWO_SESSIONS)
    assert len(case(str(path), dtype=Dtype.FP16).sessions) == 2
    with pytest.raises(UsageError, match=r"--tokens, --decode: the case 'two' has 2 sessions"):
        case(str(path), tokens="1", decode=2)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"chunk": 3, "chunks": "1,2"}, "--chunk and --chunks exclude each other"),
        ({"stages": "0:12", "layers": "0:4"}, "--stages and --layers exclude each other"),
        ({"prompt": "a", "tokens": "1"}, "--prompt and --tokens exclude each other"),
        ({}, "without a case, --model and --prompt or --tokens must be given"),
        ({"model": "m"}, "without a case, --prompt or --tokens must be given"),
        ({"tokens": "1"}, "without a case, --model must be given"),
    ],
)
def test_contradictions_name_both_options(options: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        case(**options)


def test_no_such_case() -> None:
    with pytest.raises(CaseError, match="no such case: 'anchor-aa'") as refused:
        case("anchor-aa")
    assert refused.value.hint == "did you mean 'anchor-a'?"


def test_what_is_not_given_keeps_the_default() -> None:
    assert build_options(RunFlags()) == RunOptions()


def test_every_flag_arrives() -> None:
    options = build_options(
        RunFlags(
            faults=("a", "b"),
            unpatched=True,
            schedule="seeded:3",
            capture=Level.BOUNDARY,
            store=Store.DIGEST,
            points="logits",
            device="cpu",
            route="eager",
            max_bundle_bytes="1KiB",
            recv=Path("r"),
        )
    )
    assert options.faults == ("a", "b", "skip-swa-allocation")
    assert (options.schedule, options.device, options.route) == ("seeded:3", "cpu", "eager")
    assert options.max_bundle_bytes == 1024
    assert options.recv == Path("r")
    capture = options.capture
    assert (capture.level, capture.store, capture.points) == (Level.BOUNDARY, "digest", ("logits",))
    assert type(capture.store) is str


def test_unpatched_twice_is_once() -> None:
    flags = RunFlags(faults=("skip-swa-allocation",), unpatched=True)
    assert build_options(flags).faults == ("skip-swa-allocation",)


@pytest.mark.parametrize(
    ("layers", "recv", "named"),
    [
        (None, Path("r"), "--recv needs --layers"),
        ("0:4", Path("r"), "--recv needs --layers"),
        ("4:8", None, "layers 4:8 do not start at layer 0 and --recv is not given"),
    ],
)
def test_recv_goes_with_layers_inside_the_model(
    layers: str | None, recv: Path | None, named: str
) -> None:
    with pytest.raises(UsageError, match=named):
        assemble("anchor-a", CaseOptions(layers=layers), RunFlags(recv=recv))


def test_recv_and_layers_together() -> None:
    spec, options = assemble("anchor-a", CaseOptions(layers="4:8"), RunFlags(recv=Path("r")))
    assert (spec.layers, options.recv) == ("4:8", Path("r"))
