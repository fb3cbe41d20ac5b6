"""The loop of opcheck over the operators of the package. `make opcheck` runs all of it."""

from __future__ import annotations

import pytest

from meta.errors import ArgumentError, RegistryError
from meta.testing import Sample, T
from scripts import opcheck
from tests.python.op.samples import samples

ONE_OF_A_KIND = ("hypot", "softmax", "topk")


def test_operators_of_several_kinds_pass(capsys):
    assert opcheck.main(["--first", *ONE_OF_A_KIND]) == 0
    assert capsys.readouterr().out.startswith(f"{len(ONE_OF_A_KIND)} operators on cpu: 0 of ")


def test_reports_failed_checks_with_their_samples(capsys, monkeypatch):
    rows = (Sample("negative", T(2), ref=lambda x: -x), Sample("negative", T(3), ref=lambda x: x))
    monkeypatch.setattr(opcheck, "samples", lambda: rows)
    assert opcheck.main([]) == 1
    printed = capsys.readouterr().out
    assert "negative: 1 of " in printed
    assert "  values, sample 1: " in printed
    assert '    of x=Tensor[(3,), "float32"]' in printed
    assert opcheck.main(["--first"]) == 0


def test_parts_share_the_operators():
    names = sorted(opcheck._rows((), False))
    assert len(names) == len({row.op for row in samples()})
    parts = [opcheck._part(names, f"{i}/3") for i in (1, 2, 3)]
    assert sorted(name for part in parts for name in part) == names


def test_unknown_operators():
    with pytest.raises(RegistryError, match="'tahn'"):
        opcheck.main(["tahn"])
    with pytest.raises(ArgumentError, match=r"\[opcheck\] part is '3/2'; expected I/N with I from 1 to N"):
        opcheck.main(["--part", "3/2"])
