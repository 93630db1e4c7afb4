"""How many processors this process may keep busy: those it is bound to, and what its group may use.

A container limits its processes through their control group: so much time of processors in each
period. Threads beyond that are stopped together until the next period, which is far slower than
fewer threads. `root` is where the file system begins.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

__all__ = ["usable_processors"]


def usable_processors(root: str | Path = "/") -> int:
    """The least of processors, those this process is bound to, and its group's quota; at least 1.

    A quota of 2.5 processors counts as 2.
    """
    bound = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ()
    counts = [os.cpu_count() or 1, len(bound) or 1024, *map(int, _quotas(Path(root)))]
    return max(1, min(counts))


def _quotas(root: Path) -> Iterator[float]:
    """Processors that each control group around this process may use, where it has a limit."""
    mounts = root / "sys/fs/cgroup"
    for line in _read(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if number == "0" and not controllers:  # version 2
            for directory in _upwards([mounts, mounts / "unified"], group):
                yield from _quota(_read(directory / "cpu.max").split())
        elif "cpu" in controllers.split(","):  # version 1
            for directory in _upwards([mounts / "cpu", mounts / controllers], group):
                names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
                yield from _quota([_read(directory / name).strip() for name in names])


def _upwards(mounts: list[Path], group: str) -> Iterator[Path]:
    """The directories of a group and of all that it is in: each limit counts.

    In a container the group may be named as outside of it; then the mount itself is its directory.
    """
    path = PurePosixPath("/" + group.lstrip("/"))
    for mount in mounts:
        for part in (path, *path.parents):
            yield mount / str(part).lstrip("/")


def _quota(words: list[str]) -> Iterator[float]:
    """Of ["quota", "period"]; "max" and -1 are no limit, and so is what is no number."""
    if len(words) == 2 and all(word.isdecimal() and int(word) > 0 for word in words):
        yield int(words[0]) / int(words[1])


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""
