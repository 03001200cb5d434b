"""Decode-latency planner for LLM serving with the KV cache offloaded to host memory.

Importing this loads numpy and nothing heavier; the catalogue is read on first use.
"""

from typing import Any

from kvprefetch.checks import InputError
from kvprefetch.configs import HardwareProfile, Layer, ModelConfig
from kvprefetch.planner import Comparison, compare, crossover_ctx, peak_ctx, sweep

__version__ = "0.1.0"

_BUILT_IN_MODELS = {"LLAMA3_8B": "llama3-8b", "LLAMA2_13B": "llama2-13b", "MISTRAL_7B": "mistral-7b"}
_BUILT_IN_HARDWARE = {"A100_PCIE": "a100", "A100_PCIE_GEN3": "a100-gen3", "RTX4090": "rtx4090"}

__all__ = [
    "Comparison",
    "HardwareProfile",
    "InputError",
    "Layer",
    "ModelConfig",
    "compare",
    "crossover_ctx",
    "load_hardware",
    "load_model",
    "peak_ctx",
    "sweep",
    *_BUILT_IN_MODELS,
    *_BUILT_IN_HARDWARE,
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from kvprefetch import catalog

    if name in _BUILT_IN_MODELS:
        return catalog.load_model(_BUILT_IN_MODELS[name])
    if name in _BUILT_IN_HARDWARE:
        return catalog.load_hardware(_BUILT_IN_HARDWARE[name])
    return getattr(catalog, name)
