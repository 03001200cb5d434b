"""What does a page assume, and what does it leave out? Bullets that follow the terms in force."""

from __future__ import annotations

from collections.abc import Iterator

from kvprefetch.configs import FIRST_ORDER, Terms
from kvprefetch.formats import tokens
from kvprefetch.layers import KV_BYTES


def assumptions(terms: Terms) -> str:
    """How a decode step is pictured, as Markdown bullets."""
    return _bullets(_assumed(terms))


def left_out(terms: Terms) -> str:
    """What is not modelled under these terms, as Markdown bullets."""
    return _bullets(_left_out(terms))


def in_force(terms: Terms) -> str:
    """The terms that are not neutral: what each adds, as Markdown bullets; one sentence where there are none."""
    if terms == FIRST_ORDER:
        return "None is in force: what follows is first order. Section 9 shows what each would change."
    return _bullets(_added(terms))


def _bullets(sentences: Iterator[str]) -> str:
    return "\n".join(f"- {sentence}" for sentence in sentences)


def _assumed(terms: Terms) -> Iterator[str]:
    streamed = "the weights and the cache" if terms.kv_read else "the weights"
    yield (
        "**Single-token decode, bound by reads of GPU memory.** A decode step is a stack of matrix-vector products; "
        f"the engine's time is the time to stream {streamed} from HBM. Prefill and batches large enough to be bound by "
        "arithmetic are out of scope."
    )
    if terms.resident_tokens or terms.resident_windows:
        yield (
            f"**What is not kept on the GPU crosses the link in each step.** {_kept(terms)} A layer with a window "
            "caches at most that many tokens; a layer that caches nothing takes no part in the transfer."
        )
    else:
        yield (
            "**The whole KV of a layer crosses the link in each step.** Nothing of it stays on the GPU between "
            "steps. A layer with a window caches at most that many tokens; a layer that caches nothing takes no part "
            "in the transfer."
        )
    yield (
        "**One link and one engine**, which run side by side; a layer starts when the layer before it is done and its "
        "own KV has landed."
    )
    yield (
        f"**KV of {8 * KV_BYTES[terms.kv_dtype]:g} bits a value** ({terms.kv_dtype}), and $d + 1$ buffers of GPU "
        "memory for it at look-ahead depth $d$."
    )
    yield (
        "**Routed experts**, where a layer has them, are chosen uniformly: a step of $b$ tokens reads "
        r"$E \left( 1 - (1 - u / E)^b \right)$ of $E$ experts when each token uses $u$."
    )
    yield (
        "**Each layer's KV is one contiguous copy** from pinned host memory; copies of small pages are slower. Norms "
        "and biases are left out of the weights."
    )
    if not (terms.copy_latency_us and terms.layer_overhead_us):
        what = [] if terms.copy_latency_us else ["copy latency"]
        what += [] if terms.layer_overhead_us else ["kernel launches"]
        yield f"**No fixed cost** of {' or '.join(what)}, and no protocol stalls beyond the effective PCIe rate."


def _kept(terms: Terms) -> str:
    newest = f"The newest {tokens(terms.resident_tokens)} of every layer stay there." if terms.resident_tokens else ""
    return " ".join(filter(None, [newest, "Layers with a window stay there." if terms.resident_windows else ""]))


def _left_out(terms: Terms) -> Iterator[str]:
    if not terms.kv_read:
        yield (
            "**Attention's own read of the cache.** The engine also reads the landed KV from HBM. It lengthens the "
            "engine's part as the context grows, which helps hide the transfer."
        )
    yield "**Embeddings**, one row a token." if terms.lm_head else "**LM head and embeddings**, once a step."
    shares = {"weights": terms.weight_efficiency, "the cache, by attention,": terms.attention_efficiency}
    if stated := [what for what, share in shares.items() if share == 1]:
        yield f"**Achieved against stated rates.** Reading {' and '.join(stated)} is taken to reach the whole HBM rate."
    if not terms.copy_latency_us:
        yield "**Copy latency**, a fixed time for each copy, which weighs most at short contexts."
    if not terms.layer_overhead_us:
        yield "**Layer overhead:** launches and synchronisation, a fixed time for each layer."
    yield "**Writing the new token's K and V back** to host memory in each step."
    if not terms.cross_token_overlap:
        yield "**Overlap across tokens:** the next token's first fetches could start while this token ends."
    yield ("**Prefill, arithmetic-bound batches, multi-GPU stacks, and contention** for the link or the host's memory.")


def _added(terms: Terms) -> Iterator[str]:
    if terms.kv_dtype != FIRST_ORDER.kv_dtype:
        yield f"**KV dtype** {terms.kv_dtype}: {KV_BYTES[terms.kv_dtype]:g} bytes a cached value instead of 2."
    if terms.resident_tokens:
        yield (
            f"**Resident window**, $R$ = {tokens(terms.resident_tokens)}: the newest stay on the GPU, and of the "
            r"$\min(n, w_l)$ that a layer holds only $\max(0, \min(n, w_l) - R)$ cross the link."
        )
    if terms.resident_windows:
        yield "**Resident sliding layers:** a layer with a window keeps all of it on the GPU and fetches nothing."
    if terms.kv_read:
        yield (
            r"**KV read:** attention reads the cache from HBM too, $c_l$ grows by $K_l(n) / (\text{HBM} \cdot "
            rf"\eta_a)$ with an efficiency $\eta_a$ = {terms.attention_efficiency:g}."
        )
    elif terms.attention_efficiency != 1:
        share = f"{terms.attention_efficiency:g} of the stated HBM rate"
        yield f"**Attention** reaches {share}: of no effect while its reads are not counted."
    if terms.lm_head:
        yield "**LM head:** its matrix is read once after the last layer: in the step, not in the sum of compute."
    if terms.weight_efficiency != 1:
        yield f"**Weights** are read at {terms.weight_efficiency:g} of the stated HBM rate."
    if terms.pcie_efficiency != 1:
        yield f"**Copies** reach {terms.pcie_efficiency:g} of the stated link rate."
    if terms.copy_latency_us:
        yield f"**Copy latency:** {terms.copy_latency_us:g} µs more for each offloaded layer."
    if terms.layer_overhead_us:
        yield f"**Layer overhead:** {terms.layer_overhead_us:g} µs more of engine time for each layer."
    if terms.cross_token_overlap:
        yield (
            "**Overlap across tokens:** the next token's first fetches start while this token ends, so the steady step "
            "is what a second pass over the stack adds to the first."
        )
