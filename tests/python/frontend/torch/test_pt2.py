"""`.pt2` files: read as the program that was saved, without running what is in them; broken ones are refused."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meta
from meta.dim import maximum, minimum, sym
from meta.errors import FileError, MetaError
from meta.frontend.torch import TorchProgramError, UnsupportedError, examine, from_exported, load
from meta.frontend.torch.archive import read_file
from meta.frontend.torch.size_text import parse_size
from meta.frontend.torch.tree_text import parse_tree
from scripts import fuzz_pt2
from tests.python.frontend.zip_files import shifted


@pytest.fixture(scope="module")
def archives() -> list[bytes]:
    return fuzz_pt2.examples()


@pytest.fixture
def file(tmp_path: Path) -> Callable[..., Path]:
    def write(data: bytes, **members: bytes) -> Path:
        path = tmp_path / "model.pt2"
        path.write_bytes(data)
        return path

    return write


def test_a_file_is_the_program_that_torch_loads_from_it(archives: list[bytes], file: Callable[..., Path]) -> None:
    import torch

    path = file(archives[1])
    program = torch.export.load(path)
    read, live = load(path), load(program)
    x, a = (meta.array(np.random.default_rng(i).normal(size=(5, 4)).astype("float32")) for i in range(2))
    for run in (read, meta.vm.compile(read)):
        result, expected = run(x, more={"a": a}), live(x, more={"a": a})
        np.testing.assert_allclose(result["first"].detach().numpy(), expected["first"].detach().numpy(), rtol=1e-5)
        np.testing.assert_allclose(result["rest"][0].detach().numpy(), expected["rest"][0].detach().numpy(), rtol=1e-5)
        assert result["first"].dtype == "float64"
        assert result["rest"][1] == 5
    for name, value in live.state_dict().items():
        np.testing.assert_allclose(read.state_dict()[name].detach().numpy(), value.detach().numpy(), rtol=1e-5)
    assert [p.requires_grad for p in read.parameters()] == [True] * 4
    assert sorted(read.constants) == sorted(live.constants)
    assert [use.name for use in examine(path)] == [use.name for use in examine(program)]


class Trap:
    """Unpickled, it writes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_nothing_is_unpickled(archives: list[bytes], file: Callable[..., Path], tmp_path: Path) -> None:
    members = fuzz_pt2.contents(archives[0])
    trap = pickle.dumps(Trap(tmp_path / "sprung"))
    changed = {name: trap if name.endswith((".pt", ".pkl")) else data for name, data in members.items()}
    from_exported(file(fuzz_pt2.packed(changed)))
    config = next(name for name in members if name.endswith("model_weights_config.json"))
    weights = json.loads(members[config])
    weights["config"]["linear.weight"]["use_pickle"] = True
    changed |= {config: json.dumps(weights).encode(), next(n for n in members if n.endswith("weight_0")): trap}
    with pytest.raises(TorchProgramError, match=r"tensor 'linear.weight': it is pickled; expected the memory of"):
        from_exported(file(fuzz_pt2.packed(changed)))
    assert not (tmp_path / "sprung").exists()


def edited(archive: bytes, edit: Callable[[Any], Any], member: str = "models/model.json") -> bytes:
    """The archive with one JSON member changed by a function."""
    members = fuzz_pt2.contents(archive)
    name = next(name for name in members if name.endswith(member))
    value = json.loads(members[name])
    edit(value)
    members[name] = json.dumps(value).encode()
    return fuzz_pt2.packed(members)


def _node(value: Any, target: str) -> Any:
    return next(node for node in value["graph_module"]["graph"]["nodes"] if target in node["target"])


def _unknown_operator(value: Any) -> None:
    _node(value, "aten.linear")["target"] = "torch.ops.aten.dark_matter.default"
    _node(value, "aten.mul")["target"] = "os.system"


def _unknown_name(value: Any) -> None:
    _node(value, "aten.mul")["inputs"][0]["arg"] = {"as_tensor": {"name": "nowhere"}}


def _shape(value: Any) -> None:
    value["graph_module"]["graph"]["tensor_values"]["p_linear_weight"]["sizes"][0] = {"as_int": 5}


def _code(value: Any) -> None:
    size = {"as_expr": {"expr_str": "__import__('os').system('true')", "hint": None}}
    value["graph_module"]["graph"]["tensor_values"]["x"]["sizes"][0] = size


def _device(value: Any) -> None:
    value["graph_module"]["graph"]["tensor_values"]["x"]["device"]["type"] = "abacus"


def _axis(value: Any) -> None:
    _node(value, "aten.select")["inputs"][1]["arg"] = {"as_int": 7}


def _version(value: Any) -> None:
    value["schema_version"]["major"] = 9


def _twice(value: Any) -> None:
    _node(value, "aten.mul")["outputs"] = [{"as_tensor": {"name": "x"}}]


def _object(value: Any) -> None:
    value["graph_module"]["signature"]["input_specs"][0] = {"custom_obj": {"arg": {}, "custom_obj_name": "engine"}}


@pytest.mark.parametrize(("edit", "kind", "message"), [
    (_unknown_operator, UnsupportedError, r"2 operators are not supported: aten.dark_matter.default \(once: fuzz_pt2"),
    (_unknown_name, TorchProgramError, r"model.pt2, node 'mul': 'nowhere' has no value there"),
    (_shape, TorchProgramError, r"input 'p_linear_weight': 'linear.weight' is float32 of shape \(4, 4\); expected T"),
    (_code, TorchProgramError, r"model.pt2, tensor 'x': the size .__import__.*; expected an expression of sizes"),
    (_axis, TorchProgramError, r"node 'select': aten.select.int: .*7.*fuzz_pt2.py:"),
    (_version, UnsupportedError, r"model.pt2: version 9 of the schema; expected version 8"),
    (_twice, TorchProgramError, r"model.pt2: 'x' is defined twice"),
    (_object, UnsupportedError, r"the input 'engine' is a custom_obj; expected tensors and plain values"),
])  # fmt: skip
def test_broken_programs_name_the_node(
    archives: list[bytes], file: Callable[..., Path], edit: Callable[[Any], Any], kind: type[MetaError], message: str
) -> None:
    with pytest.raises(kind, match=message):
        from_exported(file(edited(archives[0], edit)))


def test_a_device_that_no_file_names(archives: list[bytes]) -> None:
    with pytest.raises(TorchProgramError, match="tensor 'x': 'abacus' is not a device; expected \"cpu\", \"cuda\""):
        fuzz_pt2.read(edited(archives[0], _device))


@pytest.mark.parametrize(("names", "expected"), [
    (["None", "more"], ("arg0", "more")),
    (["x", "x"], ("arg0", "more")),
    (["a b", "more"], ("arg0", "more")),
    (["first", "second"], ("first", "second")),
])  # fmt: skip
def test_names_that_no_parameter_can_have(
    archives: list[bytes], file: Callable[..., Path], names: list[str], expected: tuple[str, ...]
) -> None:
    def renamed(value: Any) -> None:
        value["graph_module"]["module_call_graph"][0]["signature"]["forward_arg_names"] = names

    path = file(edited(archives[0], renamed))
    assert read_file(path).names == expected
    from_exported(path)


@pytest.mark.parametrize("key", ["class", "arg0", "a b", ""])
def test_keywords_that_no_parameter_can_have(archives: list[bytes], file: Callable[..., Path], key: str) -> None:
    def renamed(value: Any) -> None:
        signature = value["graph_module"]["module_call_graph"][0]["signature"]
        signature["forward_arg_names"] = None
        version, arguments = json.loads(signature["in_spec"])
        arguments["children_spec"][1]["context"] = json.dumps([key])
        signature["in_spec"] = json.dumps([version, arguments])

    path = file(edited(archives[0], renamed))
    assert read_file(path).names == ("arg0", "arg1")
    from_exported(path)


def _escaping(value: Any) -> None:
    value["config"]["linear.bias"]["path_name"] = "../../../../etc/passwd"


def _reaching_out(value: Any) -> None:
    value["config"]["linear.bias"]["tensor_meta"]["storage_offset"] = {"as_int": 1}


def _dtype(value: Any) -> None:
    value["config"]["linear.bias"]["tensor_meta"]["dtype"] = 29


@pytest.mark.parametrize(("edit", "message"), [
    (_escaping, r"there is no member 'data/weights/../../../../etc/passwd'"),
    (_reaching_out, r"tensor 'linear.bias': 5 elements of float32 in 16 bytes; expected the memory of the tensor"),
    (_dtype, r"tensor 'linear.bias': the dtype number 29 is not supported; expected dtypes of meta"),
])  # fmt: skip
def test_broken_weights_name_the_tensor(
    archives: list[bytes], file: Callable[..., Path], edit: Callable[[Any], Any], message: str
) -> None:
    with pytest.raises(TorchProgramError, match=message):
        from_exported(file(edited(archives[0], edit, "model_weights_config.json")))


def _overlapping(value: Any) -> None:
    bias = value["config"]["linear.bias"]
    bias["path_name"], bias["tensor_meta"]["storage_offset"] = "weight_0", {"as_int": 4}


def test_tensors_of_a_file_are_separate(archives: list[bytes], file: Callable[..., Path]) -> None:
    path = file(edited(archives[0], _overlapping, "model_weights_config.json"))
    first, second = load(path).state_dict(), load(path).state_dict()
    row = first["linear.weight"].detach().numpy()[1].copy()
    with meta.no_grad():
        first["linear.weight"][:] = 7.0
    assert (first["linear.bias"].detach().numpy() == row).all()
    assert (second["linear.weight"].detach().numpy()[1] == row).all()


def test_a_damaged_weight_is_noticed(archives: list[bytes], file: Callable[..., Path]) -> None:
    weight = fuzz_pt2.contents(archives[0])["archive/data/weights/weight_0"]
    damaged = archives[0].replace(weight, bytes(len(weight)))
    with pytest.raises(TorchProgramError, match=r"'data/weights/weight_0': its checksum does not match its \d+ bytes"):
        from_exported(file(damaged))


def test_broken_archives(archives: list[bytes], file: Callable[..., Path], tmp_path: Path) -> None:
    for data in (b"", b"PK", archives[0][:-100], archives[0][: len(archives[0]) // 2]):
        with pytest.raises(TorchProgramError, match=r"\[torch\] model.pt2: .*; expected a file that torch.export.save"):
            from_exported(file(data))
    with pytest.raises(TorchProgramError, match="the models in it are none; expected one program"):
        from_exported(file(fuzz_pt2.packed({"m/archive_format": b"pt2", "m/byteorder": b"little"})))
    with pytest.raises(TorchProgramError, match="there is no member 'archive_format'"):
        from_exported(file(fuzz_pt2.packed({"m/data.pkl": b"(.", "m/version": b"3"})))
    with pytest.raises(FileError, match=r"cannot read .*nothing.pt2: No such file"):
        from_exported(tmp_path / "nothing.pt2")


@pytest.mark.parametrize("offset", [1, 2**31, 2**63, 2**64 - 1])
def test_a_directory_that_lies_about_its_place(archives: list[bytes], file: Callable[..., Path], offset: int) -> None:
    with pytest.raises(TorchProgramError, match=r"\[torch\] model.pt2: "):
        from_exported(file(shifted(archives[0], offset)))


def test_mutated_files_are_read_or_refused(archives: list[bytes]) -> None:
    report = fuzz_pt2.ARCHIVES.fuzz(archives, 100, 1)
    assert report.failures == []
    assert report.runs == 100
    assert report.outcomes["accepted"] > 3
    assert report.outcomes["TorchProgramError"] > 30


def test_a_failure_of_the_fuzzer_is_reported(archives: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(data: bytes) -> Any:
        raise KeyError(len(data))

    monkeypatch.setattr(fuzz_pt2, "read", fails)
    assert "KeyError" in fuzz_pt2.ARCHIVES.fuzz(archives, 1, 0).failures[0]


N = sym("s0")


@pytest.mark.parametrize(("text", "size"), [
    ("Symbol('s0', positive=True, integer=True)", N), ("Mul(Integer(2), Symbol('s0', integer=True))", 2 * N),
    ("Add(Integer(-1), s0)", N - 1), ("2*s0 + 3", 2 * N + 3), ("(s0 // 2) - 1", N // 2 - 1), ("Pow(s0, 2)", N * N),
    ("torch.utils._sympy.functions.FloorDiv(s0, Integer(4))", N // 4), ("Mod(s0, Integer(2))", N - N // 2 * 2),
    ("Max(s0, 2)", maximum(N, 2)), ("Min(Integer(3), s0)", minimum(3, N)),
])  # fmt: skip
def test_sizes_are_parsed(text: str, size: Any) -> None:
    assert parse_size(text, "file") == size


@pytest.mark.parametrize("text", [
    "", "s0 +", "f(s0)", "s0.real", "[s0 for _ in s0]", "Symbol('a b')", "True", "1.5",
    "Pow(10, Pow(10, 10))",
    "(" * 2000 + "s0" + ")" * 2000, "s0" * 5000, "lambda: 1", "Pow(Pow(Pow(10, 16), 16), 16)", "FloorDiv(1, 0)",
])  # fmt: skip
def test_other_texts_are_no_sizes(text: str) -> None:
    with pytest.raises(TorchProgramError):
        parse_size(text, "file")


def test_structures_are_parsed() -> None:
    leaf = '{"type": null, "context": null, "children_spec": []}'
    other = f'[1, {{"type": "some.Output", "context": "[\\"logits\\"]", "children_spec": [{leaf}]}}]'
    assert parse_tree(other, "file").build(iter([3])) == {"logits": 3}
    with pytest.raises(TorchProgramError, match="a dict has 1 values and the keys"):
        parse_tree(other.replace("some.Output", "builtins.dict").replace("logits", 'a\\", \\"b'), "file")
    with pytest.raises(TorchProgramError, match=r"file: a structure of version \[2\]; expected version 1"):
        parse_tree(other.replace("[1,", "[2,"), "file")
