"""Files of tensors and checkpoints: what is read, and what is refused."""

import json
import pickle
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from process import environment
from tilefoundry.diag import Refusal
from tilefoundry.ir.dtype import DTYPES
from tilefoundry.judge.files import hold, read_tensor
from tilefoundry.judge.safetensors import checkpoint


def code(call):
    with pytest.raises(Refusal) as caught:
        call()
    (diag,) = caught.value.diags
    assert diag.text()
    return diag


@pytest.mark.parametrize(
    "name", ["f64", "f32", "f16", "bf16", "fp8e4m3", "i64", "i8", "u8", "bool"]
)
@pytest.mark.parametrize("suffix", ["pt", "safetensors", "npy"])
def test_a_tensor_is_taken_bit_for_bit(tmp_path, name, suffix):
    dtype = getattr(torch, DTYPES[name].torch)
    tensor = torch.arange(-3, 9).reshape(3, 4).to(dtype).t()
    path = tmp_path / f"x.{suffix}"
    if suffix == "pt":
        torch.save(tensor, path)
    elif suffix == "safetensors":
        save_file({"anything": tensor.contiguous()}, path)
    elif name in ("bf16", "fp8e4m3"):
        pytest.skip("numpy has no such type")
    else:
        np.save(path, tensor.numpy())
    found = read_tensor(str(path), "input x", "x")
    assert (found.dtype.name, found.shape) == (name, (4, 3))
    assert bytes(found.view) == bytes(tensor.contiguous().flatten().view(torch.uint8).tolist())


def test_one_of_several_is_taken_by_name(tmp_path):
    path = tmp_path / "all.safetensors"
    save_file({"x": torch.ones(2), "y": torch.zeros(3)}, path)
    assert read_tensor(str(path), "input x", "x").shape == (2,)
    assert code(lambda: read_tensor(str(path), "input z", "z")).code == "check-file-unreadable"


def test_files_that_hold_no_tensor(tmp_path):
    torch.save({"a": torch.ones(1)}, tmp_path / "dict.pt")
    torch.save(torch.ones(3).to_sparse(), tmp_path / "sparse.pt")
    torch.save(torch.ones(3), tmp_path / "whole.pt")
    (tmp_path / "cut.pt").write_bytes((tmp_path / "whole.pt").read_bytes()[:200])
    (tmp_path / "empty.pt").write_bytes(b"")
    (tmp_path / "text.npy").write_text("no array")
    np.save(tmp_path / "words.npy", np.array(["a"]))
    np.save(tmp_path / "objects.npy", np.array([{}], object), allow_pickle=True)
    (tmp_path / "text.safetensors").write_text("no tensors at all")
    (tmp_path / "x.txt").write_text("1 2 3")
    names = ["dict.pt", "sparse.pt", "cut.pt", "empty.pt", "text.npy", "words.npy", "objects.npy",
             "text.safetensors", "x.txt", "absent.pt"]  # fmt: skip
    for name in names:
        diag = code(lambda name=name: read_tensor(str(tmp_path / name), "input x", "x"))
        assert diag.code == "check-file-unreadable" and diag.exit == 1


def test_a_pickle_that_executes_is_not_executed(tmp_path):
    class Evil:
        def __reduce__(self):
            return (open, (str(tmp_path / "written"), "w"))

    torch.save(Evil(), tmp_path / "evil.pt")
    assert code(lambda: read_tensor(str(tmp_path / "evil.pt"), "x", "x"))
    assert not (tmp_path / "written").exists()


def test_what_a_file_holds_is_held_against_the_declaration():
    f16, f32 = DTYPES["f16"], DTYPES["f32"]
    hold("input x", "x.pt", (f16, (2, 3)), f16, (2, 3))
    assert code(lambda: hold("x", "x.pt", (f32, (2, 3)), f16, (2, 3))).code == "check-file-dtype"
    diag = code(lambda: hold("x", "x.pt", (f16, (3, 2)), f16, (2, 3)))
    assert (diag.code, diag.expected, diag.found) == ("check-file-shape", "2x3", "3x2")


def test_checkpoints(tmp_path):
    a, b = torch.randn(4, 2).bfloat16(), torch.randn(3)
    save_file({"a": a}, tmp_path / "model-1.safetensors")
    save_file({"b": b}, tmp_path / "model-2.safetensors")
    where = {"a": "model-1.safetensors", "b": "model-2.safetensors"}
    assert set(checkpoint(str(tmp_path))) == {"a", "b"}
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": where}))
    found = checkpoint(str(tmp_path))
    assert found["a"].shape == (4, 2) and found["a"].dtype.name == "bf16"
    assert np.array_equal(found["b"].read().flat, b.numpy())


@pytest.mark.parametrize("index", ["{", "[]", '{"weight_map": {"a": "absent.safetensors"}}',
                                   '{"weight_map": {"z": "model-1.safetensors"}}'])  # fmt: skip
def test_unreadable_checkpoints(tmp_path, index):
    save_file({"a": torch.ones(4)}, tmp_path / "model-1.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text(index)
    assert code(lambda: checkpoint(str(tmp_path))).code == "check-file-unreadable"


def test_checkpoints_that_are_not_there(tmp_path):
    for folder in (tmp_path, tmp_path / "absent"):
        assert code(lambda folder=folder: checkpoint(str(folder))).code == "check-file-unreadable"
    header = b'{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}'
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    assert "not all there" in code(lambda: checkpoint(str(tmp_path))).says


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(24.0).reshape(2, 3, 4).transpose(0, 2),
        torch.arange(24)[5:20:3],
        torch.tensor(7.5),
        torch.empty(0, 4),
        torch.arange(6.0).expand(3, 6),
        torch.nn.Parameter(torch.randn(3)),
        torch.randn(5).to(torch.float8_e5m2),
    ],
    ids=["transposed", "strided", "scalar", "empty", "expanded", "parameter", "untyped"],
)
def test_tensors_of_torch_as_they_lie_in_their_storage(tmp_path, tensor):
    torch.save(tensor, tmp_path / "x.pt")
    found = read_tensor(str(tmp_path / "x.pt"), "input x", "x")
    plain = tensor.detach().contiguous()
    assert found.shape == tuple(plain.shape)
    assert bytes(found.view) == bytes(plain.reshape(-1).view(torch.uint8).tolist())


def test_files_of_torch_that_lie(tmp_path):
    """A storage that ends before its tensor, a pickle that changes objects, the old format."""
    whole = tmp_path / "whole.pt"
    torch.save(torch.arange(8.0), whole)
    with zipfile.ZipFile(whole) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}

    def written(**changed):
        path = tmp_path / "changed.pt"
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in entries.items():
                archive.writestr(name, changed.get(name.rpartition("/")[2].replace(".", "_"), data))
        return code(lambda: read_tensor(str(path), "x", "x"))

    assert "beyond its storage" in written(**{"0": b"\0" * 28}).text()
    state = pickle.dumps({"a": 1})[:-1] + b"b."
    assert "with a state" in written(data_pkl=state).text()
    assert "which no plain tensor has" in written(data_pkl=pickle.dumps(print)).text()
    assert "big-endian" in written(byteorder=b"big").text()
    torch.save(torch.ones(2), tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    assert "since 1.6" in code(lambda: read_tensor(str(tmp_path / "old.pt"), "x", "x")).text()


def test_no_torch_is_loaded_to_read_them(tmp_path):
    torch.save(torch.ones(2), tmp_path / "x.pt")
    program = (
        "import sys; from tilefoundry.judge.files import read_tensor; "
        f"read_tensor({str(tmp_path / 'x.pt')!r}, 'x', 'x'); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], env=environment(),
                          capture_output=True, encoding="utf-8")  # fmt: skip
    assert done.stdout == "False\n", done.stderr


def test_the_bytes_of_a_tensor_outlive_its_names():
    torch = pytest.importorskip("torch")
    from tilefoundry.judge.call import bytes_of

    views = [bytes_of(torch.full((1 << 16,), n, dtype=torch.uint8)) for n in range(32)]
    junk = [torch.zeros(1 << 16, dtype=torch.uint8) for _ in range(64)]
    assert all(set(v) == {n} for n, v in enumerate(views)) and len(junk) == 64
