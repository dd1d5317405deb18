"""One stage alone, fed from another run's bundle, gives the bytes of the whole chain."""

from dataclasses import replace

import msgspec
import pytest

from swarepro import api
from swarepro.bundle.read import open_bundle
from swarepro.case import CaseSpec, PromptSpec, SessionSpec
from swarepro.errors import BundleError, CaseError, UsageError
from swarepro.options import CaptureOptions, RunOptions
from swarepro.runs.recv import check_sender

CASE = CaseSpec(
    name="recv",
    model="synthetic:gemma4-tiny",
    capacity=64,
    sessions=(SessionSpec(prompt=PromptSpec(random=40, seed=3), chunks=(35, 5), decode=2),),
)


def alone(layers: str, decode: int = 0, **changes) -> CaseSpec:
    session = msgspec.structs.replace(CASE.sessions[0], decode=decode, **changes)
    return msgspec.structs.replace(CASE, layers=layers, sessions=(session,))


@pytest.fixture(scope="module")
def chain(tmp_path_factory):
    case = msgspec.structs.replace(CASE, stages="0:4,4:8,8:12")
    return api.run_case(case, out=tmp_path_factory.mktemp("chain")).bundle


def digests(bundle, layers=range(12)):
    return {(r.step, r.name): r.digest for r in open_bundle(bundle).records if r.layer in layers}


@pytest.mark.parametrize("layers", ["4:8", "8:12", "6:7"])
def test_a_stage_fed_from_a_bundle_gives_the_chains_bytes(chain, tmp_path, layers):
    result = api.run_case(alone(layers, decode=2), out=tmp_path, options=RunOptions(recv=chain))
    start, end = map(int, layers.split(":"))
    found, expected = digests(result.bundle), digests(chain, range(start, end))
    assert found == expected
    assert len({step for step, _ in found}) == 4
    tokens = open_bundle(chain).manifest.tokens
    assert result.manifest.tokens == (tokens if end == 12 else ((),))


def test_the_first_stage_alone_sends_what_the_chain_sends(chain, tmp_path):
    first = api.run_case(alone("0:4"), out=tmp_path / "a").bundle
    second = api.run_case(alone("4:8"), out=tmp_path / "b", options=RunOptions(recv=first)).bundle
    prefill = {key: digest for key, digest in digests(chain).items() if key[0] < 2}
    assert digests(first) == {k: d for k, d in prefill.items() if k in digests(first)}
    assert digests(second) == {k: d for k, d in prefill.items() if k in digests(second)}
    assert digests(second)


def test_a_later_stage_needs_a_bundle(tmp_path):
    with pytest.raises(UsageError, match="starts at layer 4 needs the hidden states") as caught:
        api.run_case(alone("4:8"), out=tmp_path)
    assert "--recv" in caught.value.hint
    assert not list(tmp_path.iterdir())


def test_decode_without_the_head_is_refused(tmp_path):
    with pytest.raises(CaseError, match="do not reach the head"):
        api.run_case(alone("0:4", decode=1), out=tmp_path)


def test_a_bundle_of_other_chunks_is_refused_and_nothing_is_left(chain, tmp_path):
    with pytest.raises(BundleError, match=r"needs hidden states \[20, 96\] from position 0"):
        api.run_case(alone("4:8", chunks=(20, 20)), out=tmp_path, options=RunOptions(recv=chain))
    assert not list(tmp_path.iterdir())


def test_a_bundle_of_another_model_or_prompt_is_refused(chain, tmp_path):
    options = RunOptions(recv=chain)
    other = msgspec.structs.replace(alone("4:8", decode=2), model="synthetic:gemma4-tiny?seed=1")
    with pytest.raises(BundleError, match=r"is a run of synthetic:gemma4-tiny; this run is of"):
        api.run_case(other, out=tmp_path, options=options)
    prompt = alone("4:8", decode=2, prompt=PromptSpec(random=40, seed=4))
    with pytest.raises(BundleError, match="is a run of another prompt"):
        api.run_case(prompt, out=tmp_path, options=options)
    assert not list(tmp_path.iterdir())


def test_a_bundle_of_other_images_is_refused(chain, tmp_path):
    options = RunOptions(recv=chain)
    with pytest.raises(BundleError) as caught:
        api.run_case(alone("4:8", decode=2, images=((3, 7),)), out=tmp_path, options=options)
    assert caught.value.message.endswith(
        "is a run with other images: in session 0 it has none, this run [[3, 7]]"
    )
    assert not list(tmp_path.iterdir())
    first = api.run_case(alone("0:4", images=((3, 7),)), out=tmp_path / "a").bundle
    options = RunOptions(recv=first)
    with pytest.raises(BundleError, match=r"it has \[\[3, 7\]\], this run none"):
        api.run_case(alone("4:8"), out=tmp_path / "b", options=options)


def test_of_an_imported_bundle_nobody_knows_the_images(chain):
    sender = open_bundle(chain).manifest
    told = {"model": sender.model, "prompts": sender.prompts, "images": [((3, 7),)]}
    with pytest.raises(BundleError, match="other images"):
        check_sender(chain, sender, **told)
    check_sender(chain, msgspec.structs.replace(sender, case={"imported": "x"}), **told)


def test_a_chain_with_images_gives_the_bytes_of_its_stages_alone(tmp_path):
    with_image = alone("0:4", images=((3, 7),))
    whole = msgspec.structs.replace(with_image, layers=None, stages="0:4,4:12")
    chain = digests(api.run_case(whole, out=tmp_path / "chain").bundle)
    first = api.run_case(with_image, out=tmp_path / "a").bundle
    last = msgspec.structs.replace(with_image, layers="4:12")
    second = api.run_case(last, out=tmp_path / "b", options=RunOptions(recv=first)).bundle
    assert {**digests(first), **digests(second)} == chain


def test_the_manifest_names_the_sender(chain, tmp_path):
    result = api.run_case(alone("4:8", decode=2), out=tmp_path, options=RunOptions(recv=chain))
    assert result.manifest.recv == str(chain)
    assert open_bundle(chain).manifest.recv is None


def test_a_bundle_of_other_positions_is_refused(tmp_path):
    """The same row counts at other positions: 10 + 10 of a longer prompt against 20 + 10."""
    long = msgspec.structs.replace(
        CASE, sessions=(SessionSpec(prompt=PromptSpec(random=30, seed=3), chunks=(20, 10)),)
    )
    chain = api.run_case(long, out=tmp_path / "chain").bundle
    short = msgspec.structs.replace(
        long,
        layers="4:8",
        sessions=(SessionSpec(prompt=PromptSpec(random=30, seed=3), chunks=(20, 5, 5)),),
    )
    with pytest.raises(BundleError, match=r"step 1 needs hidden states \[5, 96\] from position 20"):
        api.run_case(short, out=tmp_path / "a", options=RunOptions(recv=chain))


def test_a_bundle_of_another_dtype_is_refused(chain, tmp_path):
    case = msgspec.structs.replace(alone("4:8"), dtype="fp32")
    with pytest.raises(BundleError, match="is BF16; the run's dtype is"):
        api.run_case(case, out=tmp_path, options=RunOptions(recv=chain))


def test_a_bundle_of_digests_is_refused(tmp_path):
    options = RunOptions(capture=CaptureOptions(store="digest"))
    digest_only = api.run_case(CASE, out=tmp_path / "a", options=options).bundle
    with pytest.raises(BundleError, match="stores no hidden states that enter layer 4"):
        api.run_case(alone("4:8"), out=tmp_path / "b", options=replace(options, recv=digest_only))
    assert not (tmp_path / "b").exists() or not list((tmp_path / "b").iterdir())
