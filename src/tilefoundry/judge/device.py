"""Whether a device is there, without importing torch: that takes seconds."""

from __future__ import annotations

from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path

from tilefoundry.diag import refuse


def require(device: str) -> None:
    """Refuse a device, ``cpu`` or ``cuda:N``, that torch does not have here."""
    if device == "cpu":
        return
    family, _, ordinal = device.partition(":")
    if _built_for() is None:
        refuse("check-device", None, device=device, why="this torch is built for CPUs")
    from tilefoundry.build import host  # it takes time, and is not needed for a CPU

    count = host(family, "state").count()
    if int(ordinal or 0) >= count:
        why = f"there are {count}" if count else "there is none"
        refuse("check-device", None, device=device, why=why)


def _built_for() -> str | None:
    """The version of CUDA that torch is built for, as its own ``torch/version.py`` says."""
    torch = find_spec("torch")
    if torch is None or torch.origin is None:
        return None
    spec = spec_from_file_location("torch_version", Path(torch.origin).with_name("version.py"))
    if spec is None or spec.loader is None:
        return None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, "cuda", None)
