"""The host's side without a device: what the driver says when it is not there."""

from __future__ import annotations

import ctypes

import pytest

from tilefoundry.diag import Refusal
from tilefoundry.targets.cuda.host import driver


def test_without_a_driver(monkeypatch):
    def missing(name):
        raise OSError(name)

    driver.library.cache_clear()
    monkeypatch.setattr(ctypes, "CDLL", missing)
    with pytest.raises(Refusal, match="build-driver"):
        driver.library()


class Driver:
    """Answers each call with an error, as the driver does."""

    def cuModuleLoadData(self, module, image):
        return 200

    def cuGetErrorString(self, status, text):
        text._obj.value = b"device kernel image is invalid"


def test_what_the_driver_refuses(monkeypatch):
    monkeypatch.setattr(driver, "library", Driver)
    with pytest.raises(Refusal, match="device kernel image is invalid"):
        driver.load(b"no image")


def test_memory_for_tensor_maps_is_aligned():
    for _ in range(8):
        kept, at = driver.aligned(128, 64)
        assert at % 64 == 0
        assert ctypes.addressof(kept) <= at <= ctypes.addressof(kept) + len(kept) - 128
