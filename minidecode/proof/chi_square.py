"""The chi-square test: how far counts are from what they should be, and what it would notice."""

import math


def statistic(counts, probabilities):
    """Pearson's sum of (count - expected)^2 / expected; df = cells - 1 when they sum to 1."""
    n = sum(counts)
    return sum((c - n * p) ** 2 / (n * p) for c, p in zip(counts, probabilities, strict=True))


def tail(x, df):
    """P(chi-square with df degrees of freedom > x): the p-value of a statistic x."""
    return 1.0 if x <= 0 else _upper_gamma(df / 2, x / 2)


def critical(significance, df):
    """The x with tail(x, df) = significance."""
    low, high = 0.0, df + 10.0
    while tail(high, df) > significance:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if tail(middle, df) > significance else (low, middle)
    return high


def power(samples, probabilities, others, significance):
    """The chance that the test rejects when the counts follow `others` instead.

    The statistic is then about a noncentral chi-square: one of df + 2j with j Poisson distributed
    around half the noncentrality.
    """
    df = len(probabilities) - 1
    shift = sum((o - p) ** 2 / p for o, p in zip(others, probabilities, strict=True))
    half = samples * shift / 2
    x = critical(significance, df)
    spread = 12 * math.sqrt(half) + 30
    total = 0.0
    for j in range(max(0, int(half - spread)), int(half + spread) + 1):
        log_weight = j * math.log(half) - half - math.lgamma(j + 1) if half > 0 else -math.inf
        weight = math.exp(log_weight) if half > 0 else float(j == 0)
        total += weight * tail(x, df + 2 * j)
    return min(1.0, total)


def _upper_gamma(a, x):
    """The regularised upper incomplete gamma function Q(a, x), x > 0.

    Below a + 1 the series of P = 1 - Q converges fast, above it the continued fraction of Q
    (Abramowitz and Stegun 6.5.29 and 6.5.31).
    """
    front = math.exp(a * math.log(x) - x - math.lgamma(a))
    if x < a + 1:
        term = total = 1 / a
        n = a
        while term > total * 1e-16:
            n += 1
            term *= x / n
            total += term
        return max(0.0, 1 - front * total)
    tiny = 1e-300
    b = x + 1 - a
    c, d = 1 / tiny, 1 / b
    fraction = d
    for i in range(1, 100_000):
        numerator = -i * (i - a)
        b += 2
        d = 1 / (numerator * d + b or tiny)
        c = b + numerator / c or tiny
        fraction *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return front * fraction
