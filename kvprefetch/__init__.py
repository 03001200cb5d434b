"""Decode-latency planner for LLM serving with the KV cache offloaded to host memory.

Importing this loads nothing else; every name is fetched from its module on first use, and the
built-in configurations are read from the catalogue.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "InputError": "checks",
    "HardwareProfile": "configs",
    "Layer": "layers",
    "ModelConfig": "configs",
    "Terms": "configs",
    "load_hardware": "catalog",
    "load_model": "catalog",
    "Comparison": "planner",
    "compare": "planner",
    "crossover_ctx": "planner",
    "peak_ctx": "planner",
    "sweep": "planner",
    "survey": "grid",
}
_MODELS = {"LLAMA3_8B": "llama3-8b", "LLAMA2_13B": "llama2-13b", "MISTRAL_7B": "mistral-7b"}
_HARDWARE = {"A100_PCIE": "a100", "A100_PCIE_GEN3": "a100-gen3", "RTX4090": "rtx4090"}

__all__ = [*_HOMES, *_MODELS, *_HARDWARE]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(f"kvprefetch.{_HOMES[name]}"), name)
    elif name in _MODELS:
        value = import_module("kvprefetch.catalog").load_model(_MODELS[name])
    elif name in _HARDWARE:
        value = import_module("kvprefetch.catalog").load_hardware(_HARDWARE[name])
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
