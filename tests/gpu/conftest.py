"""Workers share the host's processors: torch's threads of all together are no more than those."""

from __future__ import annotations

import os

import torch

workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
torch.set_num_threads(max(1, (os.cpu_count() or 1) // workers))
