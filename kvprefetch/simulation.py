"""Does the recurrence of `schedule` say what link and engine would do? A simulation to hold it against.

A link and an engine run as SimPy processes that know nothing of recurrences: they take buffers,
wait for each other and let the clock run.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

import simpy


def simulated_step(compute: Sequence[float], transfer: Sequence[float], depth: int) -> float:
    """Seconds of one prefetched step, by event simulation. One value a layer; transfer 0 fetches nothing."""
    env = simpy.Environment()
    buffers = simpy.Container(env, capacity=depth + 1, init=depth + 1)
    landed = [env.event() for _ in transfer]

    def link() -> Generator[simpy.Event, None, None]:
        for event, seconds in zip(landed, transfer, strict=True):
            if seconds > 0:
                yield buffers.get(1)
                yield env.timeout(seconds)
            event.succeed()

    def engine() -> Generator[simpy.Event, None, None]:
        for event, fetched, seconds in zip(landed, transfer, compute, strict=True):
            if fetched > 0:
                yield event
            yield env.timeout(seconds)
            if fetched > 0:
                yield buffers.put(1)

    env.process(link())
    env.run(until=env.process(engine()))
    return env.now
