"""What mixes the tokens of one layer: its weights, the values it caches a token, the state it keeps.

Attention caches K and V; latent attention one compressed vector; the recurrent kinds nothing that grows.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mixer:
    """Attention, or what stands in its place."""

    kind: str
    params: int  # weights of its matrices
    kv_values: int = 0  # values cached a token
    window: int | None = None  # most tokens cached; None: all
    state_values: int = 0  # values of constant state a sequence


def attention(
    kind: str, window: int | None, hidden: int, heads: int, kv_heads: int, key_dim: int, value_dim: int
) -> Mixer:
    """Multi-head, grouped-query or multi-query attention; q and k have `key_dim` values a head, v `value_dim`."""
    queries_and_output = hidden * heads * (key_dim + value_dim)
    cached = kv_heads * (key_dim + value_dim)
    return Mixer(kind, queries_and_output + hidden * cached, cached, window)


def latent_attention(
    hidden: int, heads: int, q_rank: int | None, kv_rank: int, nope: int, rope: int, value: int
) -> Mixer:
    """Multi-head latent attention: one latent of kv_rank + rope values a token, shared by K and V of all heads.

    `q_rank` None: q is one matrix; else two, through `q_rank` columns.
    """
    q_width = heads * (nope + rope)
    q = hidden * q_width if q_rank is None else q_rank * (hidden + q_width)
    kv = hidden * (kv_rank + rope) + kv_rank * heads * (nope + value)
    return Mixer("mla", q + kv + heads * value * hidden, kv_rank + rope)


def delta_net(
    hidden: int, key_dim: int, value_heads: int, value_head_dim: int, key_head_dim: int, kernel: int
) -> Mixer:
    """Gated DeltaNet (Qwen3-Next): in q, k, v, z and two values a head; a short convolution over q, k and v; out."""
    value_dim = value_heads * value_head_dim
    convolved = 2 * key_dim + value_dim
    params = hidden * (convolved + value_dim + 2 * value_heads) + kernel * convolved + value_dim * hidden
    state = value_heads * key_head_dim * value_head_dim + (kernel - 1) * convolved
    return Mixer("linear", params, state_values=state)


def mamba1(hidden: int, inner: int, state: int, kernel: int, dt_rank: int) -> Mixer:
    """Mamba: in (x and z), convolution, x to dt, B and C, dt up, A, out."""
    params = inner * (2 * hidden + kernel + dt_rank + 2 * state + dt_rank + state + hidden)
    return Mixer("mamba", params, state_values=inner * (state + kernel - 1))


def mamba2(hidden: int, inner: int, heads: int, state: int, groups: int, kernel: int) -> Mixer:
    """Mamba 2: in (z, x, B, C and dt), convolution over x, B and C, out."""
    convolved = inner + 2 * groups * state
    params = hidden * (inner + convolved + heads) + kernel * convolved + inner * hidden
    return Mixer("mamba", params, state_values=inner * state + (kernel - 1) * convolved)
