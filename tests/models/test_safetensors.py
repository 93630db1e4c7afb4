"""Reading safetensors files: types, shards, damage, and how much memory it takes."""

import os
import struct
import subprocess
import sys

import numpy as np
import pytest
from builders import (
    assert_same_tensors,
    random_gpt2,
    write,
    write_index,
    write_safetensors,
)
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file

from minidecode import CheckpointError
from minidecode.models.checkpoint import Checkpoint

CONFIG, TENSORS = random_gpt2(1, V=31, n_layer=2, n_head=2, d=16, n_positions=8)
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"


def stored(directory, dtype, data, shape):
    write_safetensors(directory / SINGLE, {"wte.weight": (dtype, shape, data)})
    return Checkpoint(directory)["wte.weight"]


def test_the_fixtures_are_genuine_safetensors_files(tmp_path):
    loaded = load_file(write(tmp_path, CONFIG, TENSORS) / SINGLE)
    assert loaded.keys() == TENSORS.keys()
    assert all(np.array_equal(loaded[name], TENSORS[name]) for name in loaded)


# Types


@pytest.mark.parametrize(
    "dtype, bits, values",
    [
        ("BF16", "<4H", {0x3F80: 1.0, 0xC049: -3.140625, 0x3DCD: 0.10009765625, 0x7F80: np.inf}),
        ("F16", "<4H", {0x3C00: 1.0, 0xC248: -3.140625, 0x7BFF: 65504.0, 0x0001: 2.0**-24}),
        ("F64", "<3d", {0.1: np.float32(0.1), 1 + 2**-30: 1.0, 1e300: np.inf}),
        ("F32", "<2f", {0.5: 0.5, -np.inf: -np.inf}),
    ],
)
@pytest.mark.filterwarnings("error")
def test_every_floating_type_is_widened_or_rounded_to_float32(tmp_path, dtype, bits, values):
    array = stored(tmp_path, dtype, struct.pack(bits, *values), (len(values),))
    assert array.dtype == np.float32
    np.testing.assert_array_equal(array, np.array(list(values.values()), np.float32))


@given(bits=st.lists(st.integers(0, 0xFFFF), min_size=1, max_size=8))
def test_bf16_is_the_upper_half_of_float32(tmp_path_factory, bits):
    halves = [struct.pack("<H", half) for half in bits]
    array = stored(tmp_path_factory.getbasetemp(), "BF16", b"".join(halves), (len(bits),))
    assert array.tobytes() == b"".join(b"\0\0" + half for half in halves)


@pytest.mark.parametrize("dtype, size", [("I64", 8), ("I8", 1), ("F8_E4M3", 1), ("BOOL", 1)])
def test_a_type_that_is_no_floating_number_is_refused_by_name(tmp_path, dtype, size):
    with pytest.raises(CheckpointError, match=rf"wte\.weight: got dtype {dtype}"):
        stored(tmp_path, dtype, bytes(2 * size), (2,))


def test_float32_is_a_read_only_view_and_any_place_in_the_file_serves(tmp_path):
    entries = {"a": ("F16", (1,), bytes(2)), "wte.weight": ("F32", (2,), struct.pack("<2f", 1, 2))}
    write_safetensors(tmp_path / SINGLE, entries)  # wte begins at no multiple of 4
    array = Checkpoint(tmp_path)["wte.weight"]
    assert array.flags.aligned and array.tolist() == [1, 2]
    array = Checkpoint(write(tmp_path, CONFIG, TENSORS))["wte.weight"]
    assert not array.flags.writeable and not array.flags.owndata
    assert type(array) is np.ndarray


# Shards


def test_shards_load_as_one_file_does(tmp_path):
    assert_same_tensors(Checkpoint(write(tmp_path, CONFIG, TENSORS, shards=3)), TENSORS)


def test_names_of_shards_do_not_matter(tmp_path):
    write(tmp_path, CONFIG, TENSORS)
    (tmp_path / SINGLE).rename(tmp_path / "odd name.safetensors")
    write_index(tmp_path, dict.fromkeys(TENSORS, "odd name.safetensors"))
    assert_same_tensors(Checkpoint(tmp_path), TENSORS)


def test_a_missing_shard_is_named(tmp_path):
    write(tmp_path, CONFIG, TENSORS, shards=2)
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"model-00002-of-00002\.safetensors.*missing"):
        Checkpoint(tmp_path)


def test_a_tensor_that_its_shard_lacks_is_named(tmp_path):
    write(tmp_path, CONFIG, TENSORS)
    write_index(tmp_path, dict.fromkeys([*TENSORS, "h.9.ln_1.bias"], SINGLE))
    with pytest.raises(CheckpointError, match=r"h\.9\.ln_1\.bias is not in model\.safetensors"):
        Checkpoint(tmp_path)


@pytest.mark.parametrize("stray", ["model-00003-of-00003.safetensors", SINGLE])
def test_the_index_decides_and_stray_files_are_not_read(tmp_path, stray):
    write(tmp_path, CONFIG, TENSORS, shards=2)
    write_safetensors(tmp_path / stray, {"wte.weight": ("F32", (31, 16), bytes(31 * 16 * 4))})
    assert_same_tensors(Checkpoint(tmp_path), TENSORS)


@pytest.mark.parametrize(
    "shard",
    [
        *("../x.safetensors", "/x.safetensors", "a/x.safetensors", r"..\x.safetensors", "x.bin"),
        *("", 3, ["x"], {}, None, "x" * 5000 + ".safetensors", "\0.safetensors"),
    ],
)
def test_an_index_cannot_name_files_elsewhere(tmp_path, shard):
    directory = write(tmp_path / "model", CONFIG, TENSORS)
    (directory / SINGLE).rename(tmp_path / "x.safetensors")
    write_index(directory, dict.fromkeys(TENSORS, shard))
    with pytest.raises(CheckpointError, match=r"index\.json: got shard"):
        Checkpoint(directory)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"weight_map": []}', '{"weight_map": {}}'])
def test_a_broken_index_is_named(tmp_path, content):
    write(tmp_path, CONFIG, TENSORS)
    (tmp_path / INDEX).write_text(content)
    with pytest.raises(CheckpointError, match=r"index\.json"):
        Checkpoint(tmp_path)


# Damage


def test_only_safetensors_are_read(tmp_path):
    with pytest.raises(CheckpointError, match=r"no weights, model\.safetensors"):
        Checkpoint(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    with pytest.raises(CheckpointError, match=r"only pytorch_model\.bin \(a pickle"):
        Checkpoint(tmp_path)


@pytest.mark.parametrize("length", [0, 4, 8, 60, -1])
def test_a_truncated_file_is_named(tmp_path, length):
    path = write(tmp_path, CONFIG, TENSORS) / SINGLE
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(CheckpointError, match=r"model\.safetensors: is not a sound"):
        Checkpoint(tmp_path)


@given(data=st.data())
def test_a_header_of_any_bytes_is_read_or_refused(tmp_path_factory, data):
    directory = tmp_path_factory.getbasetemp()
    write_safetensors(directory / SINGLE, {"wte.weight": ("F32", (2,), bytes(8))})
    content = bytearray((directory / SINGLE).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    (directory / SINGLE).write_bytes(content)
    try:
        checkpoint = Checkpoint(directory)
    except CheckpointError:
        return
    for name in checkpoint:
        assert checkpoint[name].dtype == np.float32


# Memory

PEAK = """
import sys
import numpy as np
from minidecode.models.checkpoint import Checkpoint

def peak():  # of this process, in bytes; ru_maxrss would remember its parent's
    lines = open("/proc/self/status").read().split("\\n")
    return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])

checkpoint = Checkpoint(sys.argv[1])
before = peak()
for name in checkpoint:
    checkpoint[name].sum()
print(peak() - before)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="asks Linux for the peak")
def test_reading_holds_one_tensor_at_a_time(tmp_path):
    n_bytes = 8 << 20
    entries = {f"t{i}": ("F32", (n_bytes // 4,), bytes(n_bytes)) for i in range(8)}
    write_safetensors(tmp_path / SINGLE, entries)
    out = subprocess.run([sys.executable, "-c", PEAK, tmp_path], capture_output=True, check=True)
    assert int(out.stdout) < 1.5 * n_bytes
