"""Which images are given to nodes, and which may go."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldiron.errors import ColdironError
from coldiron.provision.shelf import Pointers, Stored, built, promote, prune, roll_back


def image(name: str, created: int = 0, node_class: str = "gpu", inputs: str = "i") -> Stored:
    return Stored(name, node_class, inputs, created, 100)


ALL = [image(name, number) for number, name in enumerate("abcde")]


def test_the_same_inputs_are_not_baked_twice() -> None:
    listing = [image("a", 1), image("b", 2), image("c", 3, inputs="j"), image("d", 4, "head")]
    assert built(listing, "gpu", "i") == listing[1]
    assert built(listing, "gpu", "k") is None
    assert built(listing, "login", "i") is None


def test_forth_and_back() -> None:
    pointers = promote(ALL, "gpu", Pointers(), "a")
    assert pointers == Pointers("a", "")
    pointers = promote(ALL, "gpu", pointers, "b")
    assert pointers == Pointers("b", "a")
    assert promote(ALL, "gpu", pointers, "b") == pointers
    pointers = roll_back(ALL, "gpu", pointers)
    assert pointers == Pointers("a", "b")
    assert roll_back(ALL, "gpu", pointers) == Pointers("b", "a")


def test_what_is_not_there_is_not_promoted() -> None:
    with pytest.raises(ColdironError, match="no image `x` of class gpu; write one of: a, b"):
        promote(ALL, "gpu", Pointers(), "x")
    with pytest.raises(ColdironError, match="no image `a` of class head"):
        promote(ALL, "head", Pointers(), "a")
    with pytest.raises(ColdironError, match="no previous image"):
        roll_back(ALL, "gpu", Pointers("a"))
    with pytest.raises(ColdironError, match="no image `x`"):
        roll_back(ALL, "gpu", Pointers("a", "x"))


def test_the_oldest_that_nobody_needs_may_go() -> None:
    pruning = prune(ALL, {"gpu": Pointers("c", "a")}, ["b", "elsewhere"], newest=1)
    assert [stored.sha256 for stored in pruning.gone] == ["d"]
    assert pruning.kept == {
        "a": "previous",
        "b": "on a node",
        "c": "current",
        "e": "one of the 1 newest of its class",
    }
    assert pruning.bytes_freed == 100


def test_a_listing_that_is_not_whole() -> None:
    with pytest.raises(
        ColdironError, match="the previous image of class gpu is not there; nothing is removed"
    ):
        prune(ALL, {"gpu": Pointers("a", "x")}, [])
    with pytest.raises(ColdironError, match="not below 0"):
        prune(ALL, {}, [], -1)


@given(
    st.lists(
        st.builds(
            image,
            st.sampled_from("abcdefgh"),
            st.integers(0, 3),
            st.sampled_from(["gpu", "head"]),
        ),
        unique_by=lambda stored: stored.sha256,
    ),
    st.data(),
    st.integers(0, 3),
)
def test_nothing_goes_that_is_needed(listing: list[Stored], data: st.DataObject, newest: int) -> None:
    names = [stored.sha256 for stored in listing]
    some = st.sampled_from(["", *names])
    pointers = {"gpu": Pointers(data.draw(some), data.draw(some))}
    on_nodes = data.draw(st.lists(some))
    pruning = prune(listing, pointers, on_nodes, newest)
    gone = {stored.sha256 for stored in pruning.gone}
    assert gone | set(pruning.kept) == set(names)
    assert not gone & {pointers["gpu"].current, pointers["gpu"].previous, *on_nodes}
    for node_class in ("gpu", "head"):
        ours = [stored for stored in listing if stored.node_class == node_class]
        left = [stored for stored in ours if stored.sha256 not in gone]
        assert len(left) >= min(newest, len(ours))
    # A second time there is nothing left to do.
    assert prune([s for s in listing if s.sha256 not in gone], pointers, on_nodes, newest).gone == ()
