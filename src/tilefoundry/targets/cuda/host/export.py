"""A built program as files: CUDA C++, its header, the cubin, and how it is launched."""

from __future__ import annotations

import json
from pathlib import Path

from tilefoundry.build import Built
from tilefoundry.build.export import MARK, headers_of, put
from tilefoundry.targets.cuda.host.compiler import SAID


def export(built: Built, folder: str) -> tuple[Path, ...]:
    """Writes the files into ``folder`` and names them."""
    source = built.source
    files = dict(source.readable)
    files[f"{source.name}.json"] = json.dumps(_described(built), indent=1) + "\n"
    return put(folder, files, built.library, built.library.name, headers_of(source))


def _described(built: Built) -> dict[str, object]:
    """Arguments in order, bytes of workspace (zeros at first), launches in order with their
    parameters and the tensor maps to encode."""
    source = built.source
    asked = (built.entry.folder / SAID).read_text(encoding="utf-8").splitlines()
    asked = asked if "-cubin" in asked else ["-cubin", *asked]
    return {
        "note": f"how to launch {source.name}, {MARK}",
        "compile": ["nvcc", *asked, next(iter(source.files))],
        "arguments": [
            {"name": a.name, "role": a.role, "dtype": a.dtype.name, "shape": a.shape}
            for a in source.arguments
        ],
        "workspace": source.workspace,
        "launches": source.launches,
    }
