"""A stack served tick by tick: the slowest way to know how long a step takes, and one that shares
nothing with the package. Times are whole ticks."""

from collections.abc import Sequence


def brute_force_step(compute: Sequence[int], transfer: Sequence[int], depth: int) -> int:
    """Ticks of one prefetched step. A layer whose transfer is 0 fetches nothing."""
    layers = len(compute)
    waiting = [layer for layer in range(layers) if transfer[layer]]
    free_buffers = depth + 1
    landed: set[int] = set()
    computed = 0
    on_link = on_engine = None  # (layer, ticks left)
    clock = 0
    while True:
        moved = True
        while moved:  # all that ends or begins at this instant
            moved = False
            if on_link and on_link[1] == 0:
                landed.add(on_link[0])
                on_link, moved = None, True
            if on_engine and on_engine[1] == 0:
                free_buffers += transfer[on_engine[0]] > 0
                computed += 1
                on_engine, moved = None, True
            if not on_link and waiting and free_buffers:
                on_link, moved = (waiting[0], transfer[waiting.pop(0)]), True
                free_buffers -= 1
            if not on_engine and computed < layers and (not transfer[computed] or computed in landed):
                on_engine, moved = (computed, compute[computed]), True
        if computed == layers:
            return clock
        clock += 1
        on_link = on_link and (on_link[0], on_link[1] - 1)
        on_engine = on_engine and (on_engine[0], on_engine[1] - 1)


def brute_force_ondemand_step(compute: Sequence[int], transfer: Sequence[int]) -> int:
    """Ticks of one on-demand step."""
    clock = 0
    for fetch, work in zip(transfer, compute, strict=True):
        for _ in range(fetch):
            clock += 1
        for _ in range(work):
            clock += 1
    return clock
