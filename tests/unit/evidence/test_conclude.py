"""Which answer follows from which evidence; each condition of the answer can fail."""

import pytest

from swarepro.errors import BundleError
from swarepro.evidence.held import state_digest
from swarepro.evidence.units import Unit
from swarepro.report.conditions import condition_sentence
from tests.unit.evidence.fabricated import STORE, VALUE, Story, concluded, record, records


def met(found):
    return {condition.name: condition.met for condition in found.conditions}


def said(found, name):
    return condition_sentence(found, name)


def test_the_cause_is_localised(tmp_path):
    found = concluded(tmp_path / "e")
    assert found.answer == "LOCALIZED"
    assert found.stabilisers == ("alloc-swa",)
    assert found.rejected == ("sync-before-attention",)
    assert set(met(found).values()) == {True}
    anchor = found.anchors[0]
    assert (anchor.replay.step, anchor.replay.found.earliest.name) == (1, STORE)
    assert anchor.baseline.first_value.name == VALUE
    assert anchor.factors[0].chance == pytest.approx(1 / 924)  # 1 / C(12, 6)
    assert found.launches == 2 * 3 + 2 + 2 * 3


def test_a_stable_case_is_not_reproduced(tmp_path):
    story = Story(values={"a": lambda i: "same", "b": lambda i: "same"})
    found = concluded(tmp_path / "e", story)
    assert found.answer == "NOT_REPRODUCED"
    assert found.anchors[0].replay is None
    assert found.anchors[0].factors == ()
    assert not met(found)["reproduced"]


def test_state_alone_is_no_reproduction(tmp_path):
    """A replay is not even asked for: it cannot stand in for the baseline."""
    story = Story(
        anchors=("a",), values={"a": lambda i: "same"}, stores={"a": lambda i: f"store {i}"}
    )
    found = concluded(tmp_path / "e", story)
    assert found.answer == "NOT_REPRODUCED"
    assert found.anchors[0].baseline.earliest.name == STORE
    assert found.anchors[0].baseline.first_value is None


def test_a_control_that_varies_takes_localized_away(tmp_path):
    found = concluded(tmp_path / "e", Story(values={"quiet": lambda i: f"loud {i}"}))
    assert found.answer == "PARTIAL"
    assert [name for name, is_met in met(found).items() if not is_met] == ["control"]


def test_without_a_control_it_is_partial(tmp_path):
    found = concluded(tmp_path / "e", Story(control=None))
    assert found.answer == "PARTIAL"
    assert said(found, "control") == "no control was run"


def test_a_treatment_must_stabilise_every_anchor(tmp_path):
    story = Story(treated={("b", "alloc-swa"): lambda i: f"value {i}"})
    found = concluded(tmp_path / "e", story)
    assert found.answer == "PARTIAL"
    assert found.stabilisers == ()
    assert [each.factors[0].verdict for each in found.anchors] == ["STABILISES", "REJECTED"]


def test_a_factor_that_was_refused_proves_nothing(tmp_path):
    """It changes an output before the step; its trials are all alike, and it does not count."""
    story = Story(treated={"alloc-swa": lambda i: records("s", "right", before="another output")})
    found = concluded(tmp_path / "e", story)
    assert found.answer == "PARTIAL"
    assert {each.factors[0].verdict for each in found.anchors} == {"REFUSED"}
    assert "logits of stage 0 of step 0" in found.anchors[0].factors[0].reason


def test_a_factor_that_does_not_apply_is_not_counted(tmp_path):
    """It stabilises the one anchor where it applies, and is neither shown nor ruled out."""
    story = Story(
        factors=("alloc-swa", "zero-scratch"),
        treated={"zero-scratch": None, ("a", "zero-scratch"): lambda i: "right"},
    )
    found = concluded(tmp_path / "e", story)
    assert found.stabilisers == ("alloc-swa",)
    assert found.rejected == ()
    assert [each.factors[1].verdict for each in found.anchors] == ["STABILISES", "NOT_APPLICABLE"]
    assert found.anchors[1].factors[1].reason == "the step takes no scratch"


def test_what_chance_gives_easily_does_not_count(tmp_path):
    """One of six controls deviates: six treatments that do not are no news."""
    story = Story(
        trials=6,
        treated={"alloc-swa": lambda i: "value 0"},
    )
    found = concluded(tmp_path / "e", story)
    assert found.answer == "LOCALIZED"  # six different controls
    rare = Story(trials=2, treated={"alloc-swa": lambda i: "value 0"})
    found = concluded(tmp_path / "f", rare)
    tried = found.anchors[0].factors[0]
    assert tried.verdict == "STABILISES"
    assert tried.chance == pytest.approx(3 / 6)  # value 0 three times, value 1 once: C(3, 2)
    assert found.answer == "PARTIAL"
    assert not met(found)["stabilised"]


def test_a_replay_that_shows_nothing_locates_nothing(tmp_path):
    story = Story(replayed={"a": lambda i: "same", "b": lambda i: "same"})
    found = concluded(tmp_path / "e", story)
    assert found.answer == "INSUFFICIENT_EVIDENCE"
    assert not met(found)["located"]


def test_state_that_varies_in_the_replay_locates_nothing(tmp_path):
    """The values are as frozen: their cause lies before it, and this store is innocent."""
    story = Story(
        replayed={"a": lambda i: "same", "b": lambda i: "same"},
        stores={"a": lambda i: f"store {i}", "b": lambda i: f"store {i}"},
    )
    found = concluded(tmp_path / "e", story)
    assert found.answer == "INSUFFICIENT_EVIDENCE"
    assert not met(found)["located"]
    assert found.anchors[0].replay.found.earliest.name == STORE


def test_a_fixed_order_is_no_cause(tmp_path):
    """Under one seed nothing varies, whatever the defect: that is how it is made to vary."""
    story = Story(factors=("program-order",), fixing=("program-order",))
    story.treated = {"program-order": lambda i: "right"}
    found = concluded(tmp_path / "e", story)
    assert found.answer == "PARTIAL"
    assert (found.stabilisers, found.order_alone) == ((), ("program-order",))
    assert "shows that the order of launches matters, not why" in said(found, "stabilised")


@pytest.mark.parametrize(("ids", "verdict"), [((1, 3), "REFUSED"), ((1, 2), "STABILISES")])
def test_own_steps_must_be_given_the_same_tokens(tmp_path, ids, verdict):
    story = Story(factors=("single-shot",), rounding=("single-shot",), own_steps=("single-shot",))
    story.treated = {"single-shot": lambda i: "right"}
    story.inputs = {"treatment": {0: ids}}
    found = concluded(tmp_path / "e", story)
    assert {each.factors[0].verdict for each in found.anchors} == {verdict}


def test_what_rounds_differently_may_change_outputs_before(tmp_path):
    """And begin from another state: other weights."""
    story = Story(factors=("fp32",), rounding=("fp32",), states={"treatment": "in fp32"})
    story.treated = {"fp32": lambda i: records("s", "right", before="rounded")}
    found = concluded(tmp_path / "e", story)
    assert {each.factors[0].verdict for each in found.anchors} == {"STABILISES"}


def test_arms_from_two_states_are_refused(tmp_path):
    with pytest.raises(BundleError, match="began from another state"):
        concluded(tmp_path / "e", Story(states={"treatment": "another"}))


def test_more_factors_are_more_chances(tmp_path):
    """5 % over all: a chance of 1 of 20 is enough for one factor, not for one of two."""
    story = Story(trials=3, factors=("alloc-swa",))
    assert concluded(tmp_path / "e", story).answer == "LOCALIZED"
    found = concluded(tmp_path / "f", Story(trials=3))
    assert found.anchors[0].factors[0].chance == pytest.approx(1 / 20)
    assert found.chance == 0.025
    assert found.answer == "PARTIAL"


def test_capturing_that_changes_the_result_is_said(tmp_path):
    """Each arm is alike in itself, and no two are alike."""
    story = Story(
        anchors=("a",),
        values={"a": lambda i: "same"},
        observed={("a", arm): lambda i, arm=arm: arm for arm in ("off", "digest", "tensor")},
    )
    found = concluded(tmp_path / "e", story)
    assert not met(found)["observed"]
    assert [arm.deviating for arm in found.anchors[0].observed] == [0, 6, 6]


def test_capturing_that_hides_the_race_is_said(tmp_path):
    story = Story(
        anchors=("a",),
        values={"a": lambda i: "same"},
        observed={("a", "off"): lambda i: f"value {i}"},
    )
    found = concluded(tmp_path / "e", story)
    assert found.answer == "INSUFFICIENT_EVIDENCE"
    assert not met(found)["observed"]
    off, digest, tensor = found.anchors[0].observed
    assert (off.capture, off.deviating, off.distinct) == ("off", 6, 6)
    assert (digest.deviating, tensor.deviating) == (0, 0)
    # Fisher's test of 6 of 6 against 0 of 6, and three pairs of arms.
    assert found.anchors[0].observers_differ == pytest.approx(3 * 2 / 924)


def test_rates_that_differ_are_said_and_take_nothing_away(tmp_path):
    story = Story(observed={("a", "tensor"): lambda i: "same"})
    found = concluded(tmp_path / "e", story)
    assert not met(found)["observed"]
    assert found.answer == "LOCALIZED"


def test_a_stable_case_that_is_wrong(tmp_path):
    story = Story(anchors=("a",), values={"a": lambda i: "wrong"}, reference=records("s", "right"))
    found = concluded(tmp_path / "e", story)
    assert found.answer == "DETERMINISTIC_BUT_WRONG"
    against = found.anchors[0].against
    assert (against.compared, against.differing) == (3, 2)
    assert against.first == f"step 1, {VALUE}"
    story.reference = records("s", "wrong")
    assert concluded(tmp_path / "f", story).answer == "NOT_REPRODUCED"


def test_a_reference_without_the_values_shows_nothing(tmp_path):
    story = Story(
        anchors=("a",), values={"a": lambda i: "x"}, reference=(record(9, VALUE, "right"),)
    )
    found = concluded(tmp_path / "e", story)
    assert found.answer == "NOT_REPRODUCED"
    assert not met(found)["reference"]


def test_an_error_blocks(tmp_path):
    unit = Unit("a", "factor", 1)
    found = concluded(tmp_path / "e", failed=(unit,))
    assert found.answer == "BLOCKED"
    assert found.failures == {unit.folder: "it broke"}


def test_without_a_baseline_nothing_is_said(tmp_path):
    found = concluded(tmp_path / "e", failed=(Unit("quiet", "baseline", 1),))
    assert found.answer == "BLOCKED"
    assert found.anchors == ()
    assert found.control is None


def test_trials_from_two_states_are_refused(tmp_path):
    from tests.unit.evidence import fabricated

    class Moving(Story):
        count = 0

        @property
        def state(self):
            self.count += 1
            return f"state {self.count}"

        @state.setter
        def state(self, value):
            pass

    with pytest.raises(BundleError, match="began from another state"):
        fabricated.concluded(tmp_path / "e", Moving())


def test_a_process_has_a_random_state_of_its_own():
    """Two processes that go on with one diagnosis begin from one state all the same."""
    one, other = {"mapping": "1", "random state": "x"}, {"mapping": "1", "random state": "y"}
    assert state_digest(one) == state_digest(other)
    assert state_digest(one) != state_digest(one | {"mapping": "2"})
