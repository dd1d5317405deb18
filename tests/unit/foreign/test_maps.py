"""Maps: what they may say, what contradicts itself, and those that come with swarepro."""

import re

import pytest

from swarepro import points
from swarepro.errors import ForeignError
from swarepro.foreign.load_map import find_map, read_map, shipped_maps
from swarepro.foreign.rules import HIDDEN_STATES
from tests.unit.foreign.dumps import HEADER, RULES, map_text

SIZES = {"H": 8, "K": 4, "D": 16, "I": 32}


def refusal(tmp_path, text: str) -> ForeignError:
    path = tmp_path / "m.toml"
    path.write_text(text)
    with pytest.raises(ForeignError) as caught:
        read_map(path)
    assert str(path) in caught.value.message
    return caught.value


@pytest.mark.parametrize("name", shipped_maps())
def test_every_shipped_map_is_right_and_says_what_it_is(name):
    rules = find_map(name, SIZES)
    assert rules.spec.summary
    assert rules.points


def test_the_maps_of_four_engines_and_of_our_own_exports_are_shipped():
    assert set(shipped_maps()) == {"llama-cpp", "sglang", "swarepro", "transformers", "vllm"}


def test_the_map_of_our_own_exports_has_every_point():
    """A point that is added and forgotten there could not come back."""
    rules = find_map("swarepro")
    assert [rule.point for rule in rules.points] == list(points.ALL)
    for rule in rules.points:
        for other in points.ALL:
            shown = f"step-0000:{other.concrete(3 if '{layer}' in other.name else None)}"
            matches = rule.patterns[0].match(shown) is not None
            assert matches == (other is rule.point), (rule.point.name, shown)


def test_an_unknown_map_is_suggested():
    with pytest.raises(ForeignError) as caught:
        find_map("sglan")
    assert caught.value.hint == "did you mean 'sglang'?"


def rule(point: str, body: str, header: str = HEADER) -> str:
    return map_text({point: body}, header=header)


AFTER, O_PROJ = "after_layer_{layer}", "L{layer}_o_proj"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("engine = ", "not valid TOML"),
        ("engine = 'x'", "missing required field `points`"),
        (map_text() + "\ncolour = 1", "unknown field `colour`"),
        (rule(O_PROJ, 'name = "{layer}"\nlayuot = "T E"'), "unknown field `layuot`"),
        (map_text({}), "missing required field `points`"),
        (rule("L{layer}_oproj", 'name = "{layer}"'), "no such capture point"),
        (rule(O_PROJ, 'name = "o"'), "has no {layer}"),
        (rule("logits", 'name = "{layer}"'), "and the point has none"),
        (rule(O_PROJ, 'name = "{layer}(a+)+$*a*a*a*a*a"'), "5 stars"),
        (rule(O_PROJ, 'name = "{layer}"\nlayout = "T (H D"'), "not closed"),
        (rule(O_PROJ, 'name = "{layer}"\nlayout = "T ((E))"'), "no place there"),
        (rule(O_PROJ, 'name = "{layer}"\nlayout = "T T"'), "there twice"),
        (rule(O_PROJ, 'name = "{layer}"\nlayout = "T e"'), "'e' has no place"),
        (rule(O_PROJ, 'name = "{layer}"\nlayout = "T H D"'), "the point has T E"),
        (rule(O_PROJ, 'name = "{layer}"\nranks = "X"'), "no letter of the layout"),
        (rule(O_PROJ, 'name = "{layer}"\nranks = "T"'), "cannot split rows"),
        (rule(O_PROJ, 'name = "{layer}"\ndtype = "float32"'), "unknown dtype"),
        (rule(O_PROJ, 'name = "{layer}"\nrows = "last"'), "points of one row"),
        (rule(O_PROJ, 'name = "{layer}"\nplane = "residual"'), "hidden states only"),
        (rule(O_PROJ, 'name = ["{layer}.a", "{layer}.b"]\njoin = "add"'), "hidden states only"),
        (rule(O_PROJ, 'name = ["{layer}.a", "{layer}.b"]'), "need a join"),
        (rule(O_PROJ, 'name = "{layer}"\njoin = "E"'), "one has none"),
        (rule(O_PROJ, 'name = ["{layer}.a", "{layer}.b"]\njoin = "H"'), "no dimension of T E"),
        (rule(O_PROJ, 'name = "{layer}"\nlayout = ["T E", "T E"]'), "2 layouts for 1 names"),
        (rule(O_PROJ, 'name = "{layer}"\nparts = [{ q = "H D" }]'), "need ranks"),
        (rule(O_PROJ, 'name = "{layer}"\nranks = "E"\nparts = [{ q = "F" }]'), "needs a size of F"),
        (rule(O_PROJ, 'name = "{layer}"\nranks = "E"\nparts = [{}]'), "0 names"),
        (rule(O_PROJ, 'name = "{layer}"\nranks = "E"\nkeep = ["z"]'), "no such part: 'z'"),
        (rule(AFTER, 'name = "{layer}"'), "needs a plane"),
        (rule(AFTER, 'name = "{layer}"\nplane = "delta"'), "a delta is what a layer adds"),
        (rule(AFTER, 'name = "{layer}"\nplane = "sum"'), "go together"),
        (rule("logits", 'name = "l"\nlayers = [1]'), "go with points of a layer"),
        (rule("logits", 'name = "l"', 'engine = "paged"'), "swarepro's own"),
        (rule("logits", 'name = "l"', 'engine = "a\\nb"'), "engine"),
        (map_text(header=HEADER + '[fields]\ncolour = "x"'), "no such field: 'colour'"),
        (map_text(header='skip = ["{layer"]\n' + HEADER), "skip: pattern"),
        (map_text(header='allow = ["all"]\n' + HEADER), "Invalid enum value 'all'"),
    ],
)
def test_a_map_that_contradicts_itself_is_refused(text, why, tmp_path):
    assert why in str(refusal(tmp_path, text))


def test_an_unknown_key_is_suggested(tmp_path):
    assert refusal(tmp_path, rule(O_PROJ, 'nmae = "{layer}"')).hint == "did you mean 'name'?"


def test_the_map_of_the_other_tests_is_right(tmp_path):
    """The control of the refusals."""
    path = tmp_path / "m.toml"
    path.write_text(map_text())
    assert len(read_map(path).points) == len(RULES)


def test_too_many_rules_and_too_long_maps_are_refused(tmp_path):
    many = map_text(tail='[[points]]\npoint = "logits"\nname = "x"\n' * 70)
    assert "wanted 1 to 64" in str(refusal(tmp_path, many))
    assert "larger than" in str(refusal(tmp_path, "#" * (1 << 21)))


def test_every_point_of_the_residual_stream_asks_for_its_plane():
    width = {point.name for point in points.ALL if point.dims == ("T", "E")}
    assert width >= HIDDEN_STATES
    others = width - HIDDEN_STATES - {"embedding_output"}
    assert all(re.search("normed|o_proj|mlp_output", name) for name in others), others
