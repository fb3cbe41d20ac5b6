"""Nests of tuples, lists and dicts."""

from typing import NamedTuple

from meta.tree import flatten, leaves_of, named_leaves, with_leaves


class Pair(NamedTuple):
    first: object
    second: object


NEST = {"a": [1, (2.0, "x")], "b": Pair(3, None)}


def test_other_leaves_make_nested_tuples():
    nest = (1, [2, ()], ((3,), 4))
    assert list(leaves_of(nest)) == [1, 2, 3, 4]
    assert with_leaves(nest, "abcd") == ("a", ("b", ()), (("c",), "d"))
    assert with_leaves(7, [8]) == 8


def test_leaves_have_paths():
    assert list(named_leaves(NEST)) == [("a.0", 1), ("a.1.0", 2.0), ("a.1.1", "x"), ("b.first", 3), ("b.second", None)]
    assert list(named_leaves(NEST, int, "n")) == [("n.a.0", 1), ("n.b.first", 3)]
    assert list(named_leaves(NEST, (Pair, str))) == [("a.1.1", "x"), ("b", NEST["b"])]
    assert list(named_leaves(5, name="n")) == [("n", 5)]


def test_wide_containers_are_passed_over():
    assert list(named_leaves({"wide": [1, 2, 3], "narrow": (4, 5)}, widest=2)) == [("narrow.0", 4), ("narrow.1", 5)]


def test_trees_rebuild_nests():
    leaves, tree = flatten(NEST, int)
    assert leaves == [("a.0", 1), ("b.first", 3)]
    assert list(tree.statics()) == [2.0, "x", None]
    assert tree.count() == 2
    assert tree.build(iter([x for _, x in leaves])) == NEST
    assert isinstance(tree.build(iter("ab"))["b"], Pair)
