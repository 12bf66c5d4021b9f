"""The child's side of a call: bytes that outlive their tensor, memory that two tensors share."""

import contextlib

import pytest
import torch

from tilefoundry.judge.call import Calls, _overlap, bytes_of


def test_bytes_outlive_the_tensor():
    held = [bytes_of(torch.full((1 << 16,), n, dtype=torch.uint8)) for n in range(8)]
    assert [set(data[:: 1 << 12]) for data in held] == [{n} for n in range(8)]


BASE = torch.zeros(8, 8)


@pytest.mark.parametrize("a, b, shares", [
    (BASE, BASE[3:], True),
    (BASE[:4], BASE[4:], False),
    (BASE[:, :4], BASE[:, 4:], False),  # their extents overlap, their elements do not
    (BASE[:, :5], BASE[:, 4:], True),
    (BASE[::2], BASE[1::2], False),
    (BASE.t(), BASE[7], True),
    (BASE[:0], BASE, False),
    (BASE.view(torch.int16)[:, ::2], BASE.view(torch.int16)[:, 1::2], False),
    (BASE, torch.zeros(8, 8), False),
    (BASE[:1].expand(8, 8), BASE[0], True),
])  # fmt: skip
def test_memory_that_two_tensors_share(a, b, shares):
    assert _overlap(a, b) is shares and _overlap(b, a) is shares


def test_spoiling_leaves_what_lies_between():
    whole = torch.zeros(4, 8)
    Calls()._spoil([whole[:, ::2]])
    assert torch.isnan(whole[:, ::2]).all() and not whole[:, 1::2].any()


class OnDevice(Calls):
    """A device whose memory is the CPU's: copies go there and back as on another."""

    device = "cpu:0"
    weights: dict = {}

    def __init__(self, path):
        super().__init__()
        self.path = path
        self.subject = lambda x: x + 1
        self.loaded = type("Loaded", (), {"is_twin": False})

    def open(self, path, mode):
        return open(path, mode)

    def _settle(self):
        pass

    def _stream(self):
        return contextlib.nullcontext()


def test_inputs_of_a_device_come_back_as_they_are(tmp_path):
    from tensors import raw

    from tilefoundry.judge.channel import read_outputs
    from tilefoundry.judge.image import Image

    image = Image.of(raw([[1.0, 2.0], [3.0, 4.0]]))
    given, out = tmp_path / "given", tmp_path / "out"
    given.write_bytes(image.data.tobytes())
    out.touch()
    calls = OnDevice(tmp_path)
    assert calls.run([image.place(str(given))], str(out), [16]) == {}
    assert given.read_bytes() == image.data.tobytes()
    with out.open("rb") as file:
        (found,) = read_outputs(file)
    assert found.values().tolist() == [2.0, 3.0, 4.0, 5.0]
    assert calls.again(str(out), "last", []) == {}
    with out.open("rb") as file:
        assert read_outputs(file)[0].values().tolist() == [2.0, 3.0, 4.0, 5.0]


@pytest.mark.parametrize("role", ["candidate", "reference", "rival"])
def test_what_is_wrong_is_said_of_whom_it_is(role, tmp_path):
    """A reference or a rival may be a twin too: what it returns is not the candidate's."""
    from types import SimpleNamespace

    from tensors import raw

    from tilefoundry.diag import Refusal
    from tilefoundry.ir.dtype import DTYPES
    from tilefoundry.judge.run import Runner
    from tilefoundry.judge.signature import Declared, Signature
    from tilefoundry.judge.weights import Weights

    manners = {"in_place": {}, "static": False, "watched": True}
    child = SimpleNamespace(role=role, ask=lambda *a, **k: {"weights": {}, "manners": manners})
    out = Declared("output", DTYPES["f32"], (4,))
    signature = Signature("Program", "f", (out,), (out,), (), (), {}, ())
    runner = Runner(child, signature, Weights(), "cpu", tmp_path)
    for answer in ({"form": [0, "a view"]}, {"alias": [0, 0]}):
        with pytest.raises(Refusal) as caught:
            runner.hold_form(answer, ["x"])
        assert caught.value.diags[0].says.startswith(f"output of the {role} is"), answer
    with pytest.raises(Refusal) as caught:
        runner.hold_outputs([raw([1.0, 2.0])], {})
    assert caught.value.diags[0].says.startswith(f"output of the {role} is")
