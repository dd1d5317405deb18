import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarepro.errors import BackendError, SwareproError
from swarepro.registry import Registry, did_you_mean


@pytest.fixture
def routes() -> Registry[int]:
    routes: Registry[int] = Registry("route", error=BackendError)
    routes.register("eager", 1)
    routes.register("triton", 2)
    return routes


def test_keeps_the_order_of_registration(routes: Registry[int]) -> None:
    assert routes.names() == ("eager", "triton")
    assert list(routes) == [("eager", 1), ("triton", 2)]
    assert "eager" in routes
    assert "egaer" not in routes
    assert routes.get("triton") == 2


def test_register_returns_the_value_so_that_it_can_decorate(routes: Registry[int]) -> None:
    assert routes.register("other", 3) == 3


def test_refuses_a_second_value_of_the_same_name(routes: Registry[int]) -> None:
    with pytest.raises(ValueError, match="route 'eager' is registered twice"):
        routes.register("eager", 9)
    assert routes.get("eager") == 1


def test_suggests_the_nearest_name(routes: Registry[int]) -> None:
    with pytest.raises(BackendError) as caught:
        routes.get("tritn")
    assert caught.value.message == "no such route: 'tritn'"
    assert caught.value.hint == "did you mean 'triton'?"


def test_lists_what_is_known_when_nothing_is_near(routes: Registry[int]) -> None:
    with pytest.raises(BackendError) as caught:
        routes.get("zzz")
    assert caught.value.hint == "known: eager, triton"


def test_an_empty_registry_says_so() -> None:
    with pytest.raises(SwareproError) as caught:
        Registry[int]("fault").get("x")
    assert caught.value.hint == "known: none"


@given(st.lists(st.text(min_size=1), unique=True), st.text())
def test_a_suggestion_is_always_a_known_name(known: list[str], name: str) -> None:
    sentence = did_you_mean(name, known)
    assert sentence is None or any(repr(word) in sentence for word in known)
