"""How the time of some work grows with its size: ratios of one run, for machines with other work."""

import gc
import time
from collections.abc import Callable


def is_linear(work: Callable[[int], Callable[[], object]]) -> bool:
    """Does eight times as much take at most 24 times as long? work: size -> what is timed; making it is not."""

    def seconds(count: int) -> float:
        do = work(count)
        began = time.process_time()
        do()
        return time.process_time() - began

    seconds(100)
    gc.disable()
    try:
        return min(seconds(16_000) for _ in range(3)) < 24 * max(0.002, min(seconds(2_000) for _ in range(3)))
    finally:
        gc.enable()
