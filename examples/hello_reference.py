"""Save one input and PyTorch's own result for it: x.pt and expected.pt."""

import torch


def reference(x: torch.Tensor) -> torch.Tensor:
    """The published computation, in eager PyTorch."""
    return (x * x + x) * x


if __name__ == "__main__":
    x = torch.randn(1, 4096, 2048, generator=torch.Generator().manual_seed(7)).half()
    torch.save(x, "x.pt")
    torch.save(reference(x), "expected.pt")
    print("x.pt", tuple(x.shape), x.dtype, "expected.pt")
