"""A built program as files: CUDA C++, its header, the cubin, and how it is launched."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path

from tilefoundry.build import Built
from tilefoundry.diag import refuse
from tilefoundry.targets.cuda.host.compiler import SAID


def export(built: Built, folder: str) -> tuple[Path, ...]:
    """Writes the files into ``folder`` and names them."""
    source = built.source
    files = dict(source.readable)
    files[f"{source.name}.json"] = json.dumps(_described(built), indent=1) + "\n"
    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (place / name).write_text(text, encoding="utf-8")
        shutil.copyfile(built.library, place / built.library.name)
    except OSError as error:
        refuse("output-unwritable", path=folder, reason=error.strerror or error)
    return tuple(place / name for name in (*files, built.library.name))


def _described(built: Built) -> dict[str, object]:
    """Arguments in order, bytes of workspace (zeros at first), launches in order with their
    parameters and the tensor maps to encode."""
    source = built.source
    asked = (built.entry.folder / SAID).read_text(encoding="utf-8").splitlines()
    asked = asked if "-cubin" in asked else ["-cubin", *asked]
    return {
        "compile": ["nvcc", *asked, next(iter(source.files))],
        "arguments": [
            {"name": a.name, "role": a.role, "dtype": a.dtype.name, "shape": a.shape}
            for a in source.arguments
        ],
        "workspace": source.workspace,
        "launches": [asdict(x) for x in source.launches],  # type: ignore[call-overload]
    }
