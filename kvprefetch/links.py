"""Which links is a card's to be seen beside? Effective rates: one direction, pinned memory, each with its source."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Link:
    """One kind of host link."""

    name: str
    gb_s: float  # GB/s host to device
    source: str


LINKS = (
    Link("PCIe 3 x16", 12, "measured: github.com/ZaidQureshi/bam issue 54, into a V100"),
    Link("PCIe 4 x16", 25, "measured: github.com/ZaidQureshi/bam issue 54, into an A100"),
    Link("PCIe 5 x16", 56.35, "measured: github.com/tinygrad/open-gpu-kernel-modules issue 29, into RTX 5090 cards"),
    Link("PCIe 6 x16", 111, "estimated: 0.88 of the nominal 126 GB/s, the share that an H100 reaches of PCIe 5's 63"),
    Link("NVLink-C2C", 346, "measured: github.com/NVIDIA/nvbandwidth issue 23, into a GH200; nominal 450 each way"),
)
