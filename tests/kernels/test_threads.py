"""Many threads of Python, many threads of the kernels, and processes that fork or spawn."""

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import builders
import numpy as np
import pytest

from minidecode import greedy, kernels
from minidecode.kernels.processors import usable_processors
from minidecode.models.config import Config
from minidecode.models.gpt2 import GPT2

compiled = pytest.mark.skipif(
    kernels.backend != "native", reason="this is about the compiled kernels, which are not in use"
)


@pytest.fixture(autouse=True)
def two_threads():
    """Two threads, so that there is something to share even on one core."""
    old = kernels.num_threads()
    kernels.set_num_threads(2)
    yield
    kernels.set_num_threads(old or 1)


def python(code, *, timeout=30):
    """The finished process that has run `code`, with the modules found here, within the time."""
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=timeout
    )


def shared_arguments():
    rng = np.random.default_rng(0)

    def numbers(*shape):
        x = rng.standard_normal(shape).astype(np.float32)
        x.flags.writeable = False
        return x

    weight = kernels.pack(numbers(96, 1000))
    weight.panels.flags.writeable = False
    return SimpleNamespace(
        rows=numbers(4, 20_000), x=numbers(3, 96), weight=weight, q=numbers(3, 4, 32),
        page=numbers(1, 2, 4, 200, 32), vectors=numbers(2, 96),
    )  # fmt: skip


def all_kernels(a):
    """One call of each, large enough to be shared between the kernels' own threads."""
    return [
        kernels.softmax(a.rows),
        kernels.sampling_filter(a.rows[0], 0.9, 40, 0.9, 1e-4),
        kernels.linear(a.x, a.weight),
        kernels.attention(a.q, [a.page], 0, 190, 0.2),
        kernels.layer_norm(a.x, *a.vectors, 1e-5),
        kernels.gelu(a.rows),
    ]


def run_in_threads(n, work):
    """work(i) in n threads that start together; their results, or the first exception."""
    gate = threading.Barrier(n)

    def wait_and_work(i):
        gate.wait()
        return work(i)

    with ThreadPoolExecutor(n) as pool:
        return list(pool.map(wait_and_work, range(n)))


def same(results, others):
    return all(np.array_equal(a, b) for a, b in zip(results, others, strict=True))


def test_eight_threads_at_once_get_what_one_gets():
    arguments = shared_arguments()
    right = all_kernels(arguments)

    def work(i):
        return all(same(all_kernels(arguments), right) for _ in range(34))  # 204 calls

    assert run_in_threads(8, work) == [True] * 8


def test_a_model_serves_eight_threads_with_a_cache_each():
    config, tensors = builders.random_gpt2(1, 31, 2, 2, 16, 64)
    model = GPT2(Config.from_dict(config), tensors)

    def work(i):
        return [step.tokens for step in greedy(model, [i], max_new_tokens=40)]

    alone = [work(i) for i in range(8)]
    assert run_in_threads(8, work) == alone


def test_an_exception_in_one_thread_is_raised_there_alone():
    good = np.zeros((8, 20_000), np.float32)
    bad = good.copy()
    bad[7, 19_999] = np.nan

    def work(i):
        for _ in range(25):
            if i % 2:
                with pytest.raises(ValueError, match="nan at id 19999"):
                    kernels.softmax(bad)
            else:
                assert kernels.softmax(good)[0, 0] == np.float32(1 / 20_000)
        return True

    assert run_in_threads(8, work) == [True] * 8


def test_changing_the_number_of_threads_meanwhile_changes_nothing():
    arguments = shared_arguments()
    right = all_kernels(arguments)

    def work(i):
        for turn in range(20):
            if i == 0:
                kernels.set_num_threads(1 + turn % 4)
            if not same(all_kernels(arguments), right):
                return False
        return True

    assert run_in_threads(3, work) == [True] * 3


@compiled
def test_other_threads_run_while_a_kernel_works():
    """With the lock of the interpreter held, nothing could be noted down during the call."""
    q = np.ones((1500, 4, 64), np.float32)
    page = np.ones((1, 2, 4, 1500, 64), np.float32)
    span = []

    def work():
        span.append(time.perf_counter())
        kernels.attention(q, [page], 0, 0, 1.0)
        span.append(time.perf_counter())

    for _ in range(5):  # the scheduler may be busy elsewhere
        span.clear()
        thread = threading.Thread(target=work)
        thread.start()
        seen = []
        while thread.is_alive():
            seen.append(time.perf_counter())
            time.sleep(0.0005)
        began, ended = span
        fifth = (ended - began) / 5
        if sum(began + fifth < t < ended - fifth for t in seen) >= 2:
            return
    pytest.fail(f"nothing ran within a call of {ended - began:.3f} s")


CHILDREN = """
import multiprocessing, sys
import builders
import numpy as np
from minidecode import kernels

def work(_):
    x = np.arange(4 * 50_000, dtype=np.float32).reshape(4, -1) / 50_000
    w = kernels.pack(x[:, :4800])
    return kernels.softmax(x).tobytes() + kernels.linear(x[:, :4].copy(), w).tobytes()

if __name__ == "__main__":
    kernels.set_num_threads(2)
    right = work(0)
    with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:
        assert pool.map_async(work, range(4)).get(timeout=25) == [right] * 4
    assert work(0) == right  # and the parent goes on
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_children_compute_what_their_parent_does(method, tmp_path):
    if method == "fork" and not hasattr(os, "fork"):
        pytest.skip("this system cannot fork")
    script = tmp_path / "children.py"
    script.write_text(CHILDREN)
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, script, method], env=env, capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 0, done.stderr


FORK_AMID_WORK = """
import os, threading, warnings
import builders
import numpy as np
from minidecode import kernels

warnings.simplefilter("ignore")  # newer Pythons warn of forks beside threads
kernels.set_num_threads(2)
x = np.arange(8 * 50_000, dtype=np.float32).reshape(8, -1) / 50_000
right = kernels.softmax(x).tobytes()
stop = threading.Event()

def work():
    while not stop.is_set():
        kernels.softmax(x)

thread = threading.Thread(target=work)
thread.start()
for _ in range(20):
    child = os.fork()
    if child == 0:
        same = kernels.softmax(x).tobytes() == right
        tasks = "/proc/self/task"  # a second thread must have been started anew
        alone = os.path.exists(tasks) and len(os.listdir(tasks)) == 1
        os._exit(0 if same and not alone else 7)
    assert os.waitpid(child, 0)[1] == 0
stop.set()
thread.join()
assert kernels.softmax(x).tobytes() == right
"""


@compiled
def test_a_fork_while_the_pool_is_at_work_leaves_the_child_able():
    if not hasattr(os, "fork"):
        pytest.skip("this system cannot fork")
    done = python(FORK_AMID_WORK)
    assert done.returncode == 0, done.stderr


FORK_AMID_PACKING = """
import os, signal
import numpy as np
from minidecode import kernels
from minidecode.kernels import memory

with memory._lock:  # as another thread holds it while it packs
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        kernels.pack(np.ones((20, 20), np.float32))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
kernels.pack(np.ones((20, 20), np.float32))
"""


def test_a_fork_while_memory_is_handed_out_leaves_the_child_able():
    if not hasattr(os, "fork"):
        pytest.skip("this system cannot fork")
    done = python(FORK_AMID_PACKING)
    assert done.returncode == 0, done.stderr


LEFT_BEHIND = """
import threading, time
import numpy as np
from minidecode import kernels as k

k.set_num_threads({threads})
x = np.ones((8, 20_000), np.float32)
q, page, w = np.ones((64, 4, 32)), np.ones((1, 2, 4, 200, 32)), k.pack(np.ones((500, 4000)))
calls = {{
    "softmax": (x,), "sampling_filter": (x, 0.9, 40), "attention": (q, [page], 0, 0, 1.0),
    "linear": (np.ones((8, 500)), w), "layer_norm": (x, x[0], x[0], 1e-5), "gelu": (x[:, ::2],),
    "gelu_erf": (x,), "relu": (x,), "silu": (x,), "residual": (x[0], x[1]), "total": (x,),
}}
assert calls.keys() == set(k.KERNELS)

def work(name, arguments):
    while True:
        getattr(k, name)(*arguments)

for item in calls.items():
    threading.Thread(target=work, args=item, daemon=True).start()
time.sleep(0.1)
"""


@compiled
@pytest.mark.parametrize("threads", [1, 2, 2, 2])
def test_python_ends_quietly_while_daemon_threads_are_in_kernels(threads):
    done = python(LEFT_BEHIND.format(threads=threads))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


OUT_OF_MEMORY = """
import resource
import builders
import numpy as np
from minidecode import kernels

kernels.set_num_threads({threads})
small = np.zeros((4, 100_000), np.float32)
right = kernels.softmax(small).tobytes()
x = np.zeros((2, 4_000_000), np.float32)  # each row wants 192 MB to work in
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + 150 * 2**20
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for _ in range(20):  # now in the caller's thread, now in another one
    try:
        kernels.sampling_filter(x, 1.0, 5)
    except MemoryError:
        assert kernels.softmax(small).tobytes() == right
        print("refused")
"""


@compiled
@pytest.mark.parametrize("threads", [1, 2])
def test_an_exception_inside_a_kernel_reaches_python(threads):
    if not os.path.exists("/proc/self/statm"):
        pytest.skip("this system does not tell how much memory a process has")
    done = python(OUT_OF_MEMORY.format(threads=threads))
    assert done.stdout.split() == ["refused"] * 20, done.stderr


@compiled
def test_threads_come_from_the_environment():
    code = "from minidecode import kernels; print(kernels.num_threads())"

    def threads(**env):
        env = {k: v for k, v in os.environ.items() if not k.endswith("_THREADS")} | env
        env["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        done = subprocess.run(
            [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    assert threads(MINIDECODE_THREADS="3", OMP_NUM_THREADS="2") == "3"
    assert threads(OMP_NUM_THREADS="2,1") == "2"
    assert threads(MINIDECODE_THREADS="") == str(usable_processors())


@pytest.mark.parametrize("n", [0, -1, True, 1.0, "2", None, 2**31, 10**6])
def test_a_number_of_threads_that_is_none_is_refused(n):
    with pytest.raises(ValueError, match="threads: got"):
        kernels.set_num_threads(n)
