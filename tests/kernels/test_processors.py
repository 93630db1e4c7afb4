"""How many processors there are to use: groups of both versions, written by hand."""

import os

import pytest

from minidecode.kernels.processors import usable_processors


@pytest.fixture(autouse=True)
def eight_processors(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(8), raising=False)


def root(tmp_path, groups, files):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(groups)
    for name, text in files.items():
        path = tmp_path / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("quota", "processors"),
    [
        ("200000 100000", 2),
        ("250000 100000", 2),
        ("50000 100000", 1),
        ("1000 100000", 1),
        ("1600000 100000", 8),
        ("max 100000", 8),
        ("30000 10000", 3),
        ("", 8),
        ("nonsense", 8),
        ("100000 0", 8),
    ],
)
def test_the_quota_of_version_2_is_rounded_down(tmp_path, quota, processors):
    where = root(tmp_path, "0::/box\n", {"box/cpu.max": quota + "\n"})
    assert usable_processors(where) == processors


@pytest.mark.parametrize(
    ("quota", "processors"), [("-1", 8), ("200000", 2), ("350000", 3), ("10000", 1), ("x", 8)]
)
@pytest.mark.parametrize("mount", ["cpu", "cpu,cpuacct"])
def test_the_quota_of_version_1_is_rounded_down(tmp_path, quota, processors, mount):
    names = {"cpu.cfs_quota_us": quota, "cpu.cfs_period_us": "100000"}
    files = {f"{mount}/box/{name}": text + "\n" for name, text in names.items()}
    where = root(tmp_path, "4:memory:/box\n3:cpu,cpuacct:/box\n0::/\n", files)
    assert usable_processors(where) == processors


def test_the_limit_of_an_outer_group_counts(tmp_path):
    files = {"a/cpu.max": "300000 100000", "a/b/cpu.max": "max 100000"}
    assert usable_processors(root(tmp_path, "0::/a/b/c\n", files)) == 3


def test_a_group_named_as_outside_of_the_container_is_the_mount_itself(tmp_path):
    where = root(tmp_path, "0::/docker/0123\n", {"cpu.max": "400000 100000"})
    assert usable_processors(where) == 4


def test_without_groups_the_processors_that_this_process_is_bound_to_count(tmp_path, monkeypatch):
    assert usable_processors(tmp_path) == 8
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(3), raising=False)
    assert usable_processors(tmp_path) == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    assert usable_processors(tmp_path) == 8
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert usable_processors(tmp_path) == 1
