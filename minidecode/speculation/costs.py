"""What n tokens cost, from the few times seen: of drafting them, or of a pass over them."""

import statistics
from collections import deque

KEPT = 9  # times of each n, the last ones
OWN = 1.0  # times of n that weigh as much as what the line says of it
USUAL = 100.0  # the same for the slope that is usual, in tokens squared


class Costs:
    """Seconds of n tokens: medians of the times seen, leaning towards a line through them.

    fixed: the usual part of the seconds that n has no effect on. The line leans towards it, the
    less the more times were seen and the further apart their n.
    """

    def __init__(self, fixed: float):
        self.fixed = fixed
        self.times: dict[int, deque] = {}
        self.medians: dict[int, float] = {}

    @property
    def longest(self) -> int:
        """The largest n seen."""
        return max(self.medians, default=0)

    def add(self, n: int, seconds: float) -> None:
        times = self.times.setdefault(n, deque(maxlen=KEPT))
        times.append(seconds)
        self.medians[n] = statistics.median(times)

    def up_to(self, most: int) -> list[float]:
        """The seconds of 1, 2, ... most tokens; at least one time must have been seen."""
        middle, level, slope = self._line()
        seconds = []
        for n in range(1, most + 1):
            line = level + slope * (n - middle)
            if n < middle:
                line = max(line, level * n / middle)  # half of the tokens cost at least half
            if n in self.medians:
                weight = len(self.times[n])
                line = (weight * self.medians[n] + OWN * line) / (weight + OWN)
            seconds.append(line)
        return seconds

    def _line(self):
        """(middle, level, slope): the line through the times seen passes (middle, level)."""
        count = tokens = total = squares = products = 0
        for n, seconds in self.medians.items():
            weight = len(self.times[n])
            count += weight
            tokens += weight * n
            total += weight * seconds
            squares += weight * n * n
            products += weight * n * seconds
        middle, level = tokens / count, total / count
        usual = (1 - self.fixed) * level / middle
        spread, rise = squares - tokens * middle, products - total * middle
        slope = (rise + usual * USUAL / count) / (spread + USUAL / count)
        return middle, level, max(0.0, slope)
