"""Single trials of a factor, in any order."""

from dataclasses import replace

import pytest

from swarepro import api
from swarepro.errors import SessionError
from swarepro.interventions import FACTORS
from swarepro.options import CaptureOptions, RunOptions, no_progress
from swarepro.runs.factor_trials import FactorTrials, evidence_options
from swarepro.runs.prepare import prepare
from swarepro.runtime.wrappers import AttentionWrapper, on_attention


def trials(name, factor, *, faults=(), step=1, capture=None):
    options = RunOptions(faults=faults, capture=capture or CaptureOptions())
    prepared = prepare(
        api.find_case(name), evidence_options(options), copies=0, progress=no_progress
    )
    return FactorTrials(prepared, FACTORS.get(factor), step)


def digests(ran):
    return [(record.step, record.stage, record.key, record.digest) for record in ran.records]


def test_a_trial_depends_on_its_arm_and_index_alone():
    bench = trials("anchor-a", "alternate-route", faults=("skip-swa-allocation",))
    assert bench.reason is None
    assert bench.ran.routes == {"eager-prefill"}
    first = bench.run("control", 1)
    assert first.schedule == "seeded:1"
    bench.run("treatment", 0)
    again = bench.run("control", 1)
    assert again.records == first.records
    assert [record.index for record in first.records] == list(range(len(first.records)))
    assert again.state == first.state
    assert again.violations == first.violations != ()
    assert digests(bench.run("treatment", 1)) != digests(first)
    assert digests(bench.run("control", 2)) != digests(first)


def test_a_trial_from_the_target_has_its_records_alone_and_from_the_start_all():
    for factor, steps in (("program-order", {1}), ("alloc-swa", {0, 1})):
        ran = trials("anchor-a", factor).run("treatment", 0)
        assert {record.step for record in ran.records} == steps


def test_filters_of_what_is_captured_remove_no_evidence():
    narrow = CaptureOptions(points=("logits",), layers=(3,), steps=(0,))
    assert digests(
        trials("anchor-a", "program-order", capture=narrow).run("control", 0)
    ) == digests(trials("anchor-a", "program-order").run("control", 0))


def test_what_does_not_apply_has_no_treatment():
    bench = trials("anchor-a", "zero-scratch")
    assert "takes no memory for partial results" in bench.reason
    with pytest.raises(ValueError, match="zero-scratch does not apply"):
        bench.run("treatment", 0)
    assert bench.run("control", 0).records


class Fails(AttentionWrapper):
    def attend(self, call):
        if call.layer == 6:
            raise SessionError("in the middle of a step")
        return super().attend(call)


def test_a_trial_that_ends_with_an_error_leaves_nothing_behind():
    bench = trials("anchor-a", "program-order")
    wanted = bench.run("control", 0).records
    good, bench.factor = bench.factor, replace(bench.factor, wrap=lambda _: on_attention(Fails))
    with pytest.raises(SessionError, match="in the middle"):
        bench.run("treatment", 0)
    bench.factor = good
    assert bench.run("control", 0).records == wanted
