"""llama.cpp as a peer: programs that answer as its own do stand in for it."""

import json
import sys

import pytest
from builders import random_gpt2, toy_tokenizer, write

from minidecode import InputError, MinidecodeError, cli
from minidecode.decoding.warp import Warp
from minidecode.measure import llama_cpp, peers, speculation, speed
from minidecode.measure.llama_cpp import LlamaCpp, LlamaSpeculative
from minidecode.measure.shapes import SHAPES, Shape
from minidecode.measure.speculation import Way

BENCH = """
import json
option = dict(zip(args[::2], args[1::2]))
entries = []
for n in map(int, option["-p"].split(",")):
    if n:
        entries.append({"n_prompt": n, "n_gen": 0, "ms": {1: 10, 5: 30, 256: 100}.get(n, 20)})
if int(option["-n"]):
    entries.append({"n_prompt": 0, "n_gen": int(option["-n"]), "ms": 10 * int(option["-n"])})
repeats = int(option["-r"])
print(json.dumps([
    {"n_prompt": e["n_prompt"], "n_gen": e["n_gen"], "model_n_params": PARAMETERS,
     "model_size": 2_000_000_000, "samples_ns": [round(1e6 * e["ms"])] * repeats}
    for e in entries
]))
"""
SPECULATIVE = """
option = dict(zip(args[::2], args[1::2]))
prompt = args[args.index("-p") + 1]
n, k = int(args[args.index("-n") + 1]), int(args[args.index("--spec-draft-n-max") + 1])
print(prompt, "and so on")
said = f'''
0.00.358.935 I encoded   {len(prompt)} tokens in    0.500 seconds, speed: 2329.916 t/s
0.00.358.954 I decoded   {n + 2} tokens in    2.000 seconds, speed:  516.148 t/s
0.00.358.982 I n_draft   = {k}
0.00.358.995 I n_predict = {n + 2}
0.00.359.051 I n_drafted = {4 * k}
0.00.359.065 I n_accept  = {2 * k}
0.00.359.080 I accept    = 50.000%
'''
print(said, file=sys.stderr)
"""


def program(path, body, parameters=0):
    """An executable file that writes its arguments to a log beside it and runs `body`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    log = path.with_suffix(".log")
    path.write_text(
        f"#!{sys.executable}\nimport sys\nargs = sys.argv[1:]\nPARAMETERS = {parameters}\n"
        f"open({str(log)!r}, 'a').write(repr(args) + '\\n')\n{body}"
    )
    path.chmod(0o755)
    return path


def gguf(path):
    path.write_bytes(b"GGUF" + bytes(20))
    return path


@pytest.fixture
def build(tmp_path):
    """A directory with both programs; and two files for them."""
    program(tmp_path / "build" / "llama-bench", BENCH)
    program(tmp_path / "build" / "llama-speculative-simple", SPECULATIVE)
    gguf(tmp_path / "m-F16.gguf")
    gguf(tmp_path / "m-Q8_0.gguf")
    return tmp_path / "build"


def calls(path):
    return path.with_suffix(".log").read_text().splitlines()


# llama-bench


def test_its_figures_are_those_of_any_engine(build, tmp_path):
    engine = LlamaCpp(build / "llama-bench", tmp_path / "m-F16.gguf", threads=2, context=64)
    seen = engine.visit(3, logits=None)
    assert engine.name == "llama.cpp m-F16"
    assert seen["tokens/s"] == pytest.approx([100] * 3)
    assert seen["pass over 1, ms"] == [10] * 3
    assert seen["pass over 5 / 1"] == [3] * 3
    assert seen["prefill 256, ms"] == [100] * 3
    assert seen["weights, GB"] == [2]
    ours = {f"pass over {n}, ms" for n in speed.PASSES}
    assert ours <= set(seen)


def test_it_is_asked_for_our_context_threads_and_repeats(build, tmp_path):
    LlamaCpp(build / "llama-bench", tmp_path / "m-F16.gguf", threads=2, context=9).visit(3, None)
    short, long = (eval(line) for line in calls(build / "llama-bench"))
    option = dict(zip(short[::2], short[1::2]))
    assert option["-d"] == "9" and option["-t"] == "2" and option["-r"] == "3"
    assert option["-p"] == "1,2,4,5,8,16" and option["-n"] == "24"
    assert option["-m"] == str(tmp_path / "m-F16.gguf")
    assert dict(zip(long[::2], long[1::2]))["-d"] == "0"


@pytest.mark.parametrize("parameters", [1_000_000, 1_010_000, 0])  # 0: it does not tell
def test_a_file_of_the_same_shape_is_measured(tmp_path, parameters):
    bench = program(tmp_path / "llama-bench", BENCH, parameters)
    assert LlamaCpp(bench, gguf(tmp_path / "m.gguf"), 1, 64, 1_000_000).visit(1, None)


def test_a_file_of_another_shape_is_refused(tmp_path):
    bench = program(tmp_path / "llama-bench", BENCH, parameters=124_000_000)
    engine = LlamaCpp(bench, gguf(tmp_path / "m.gguf"), 1, 64, 774_000_000)
    with pytest.raises(InputError, match=r"got .*m\.gguf with 124 million parameters, 774 million"):
        engine.visit(1, None)


WRONG_JSON = {
    "nothing": "",
    "no JSON": "print('usage: llama-bench')",
    "an object": "print('{}')",
    "a list of numbers": "print('[1]')",
    "null": "print('null')",
    "no tests": "print('[]')",
    "no samples": """print('[{"n_prompt": 1, "n_gen": 0}]')""",
    "empty samples": """print('[{"n_prompt": 1, "n_gen": 0, "samples_ns": []}]')""",
    "a time of 0": """print('[{"n_prompt": 1, "n_gen": 0, "samples_ns": [0]}]')""",
    "text for a time": """print('[{"n_prompt": 1, "n_gen": 0, "samples_ns": ["x"]}]')""",
}


@pytest.mark.parametrize("what", WRONG_JSON)
def test_an_answer_that_is_not_llama_benchs_is_one_sentence(tmp_path, what):
    bench = program(tmp_path / "llama-bench", WRONG_JSON[what])
    with pytest.raises(MinidecodeError, match=r"^llama-bench: its JSON was not understood"):
        llama_cpp.bench(bench, "m.gguf", 1, prompts=(1,))


def test_a_program_that_fails_says_why(tmp_path):
    body = "print('loading', file=sys.stderr); sys.exit('error: failed to load model\\n\\n')"
    bench = program(tmp_path / "llama-bench", body)
    with pytest.raises(MinidecodeError) as raised:
        llama_cpp.bench(bench, "m.gguf", 1, prompts=(1,))
    assert str(raised.value) == "llama-bench: ended with code 1 (error: failed to load model)"


def test_a_program_that_cannot_run_is_one_sentence(tmp_path):
    bench = tmp_path / "llama-bench"
    bench.write_bytes(b"\x7fELF no program")
    bench.chmod(0o755)
    with pytest.raises(MinidecodeError, match=r"llama-bench: cannot be run \("):
        llama_cpp.run([bench])


# llama-speculative-simple


class Letters:
    """A tokenizer that spells token 0 as a, 1 as b, ..., and more than that if it is told to."""

    def __init__(self, more=""):
        self.more = more

    def decode(self, tokens):
        return "".join(chr(97 + token) for token in tokens) + self.more


def test_its_texts_are_summed_up(build, tmp_path):
    engine = LlamaSpeculative(build, tmp_path / "m-F16.gguf", "d.gguf", 2, Letters(), [2, 4])
    ways = engine.ways(10)
    name = "llama.cpp m-F16"
    assert list(ways) == [Way("plain", name), Way.constant(2, name), Way.constant(4, name)]
    plain = ways[Way("plain", name)]([0, 1, 2], Warp(temperature=0), 0)
    assert (plain.tokens, plain.passes, plain.text) == (10, 10, None)
    assert plain.rate == pytest.approx(100)
    text = ways[Way.constant(4, name)]([0, 1, 2], Warp(temperature=0), 0)
    assert (text.tokens, text.passes, text.drafted, text.accepted) == (12, 4, 16, 8)
    assert (text.rate, text.seconds) == (6, 2.5)
    (asked,) = calls(build / "llama-speculative-simple")
    assert "'-p', 'abc'" in asked and "'--temp', '0'" in asked and "'-md', 'd.gguf'" in asked


def test_a_prompt_that_it_reads_as_other_tokens_is_refused(build, tmp_path):
    engine = LlamaSpeculative(build, tmp_path / "m-F16.gguf", "d.gguf", 1, Letters("de"), [2])
    with pytest.raises(MinidecodeError, match="got 5 tokens for the prompt 'abcde', 3 as here"):
        engine.ways(10)[Way.constant(2, engine.engine)]([0, 1, 2], None, 0)


def test_a_log_cut_short_is_asked_for_again(build, tmp_path):
    body = f"import os\nif os.path.getsize(__file__ + '.log') < 400: sys.exit()\n{SPECULATIVE}"
    simple = build / "llama-speculative-simple"
    program(simple, body.replace("__file__ + '.log'", repr(str(simple.with_suffix(".log")))))
    engine = LlamaSpeculative(build, tmp_path / "m-F16.gguf", "d.gguf", 1, Letters(), [2])
    write_text = engine.ways(10)[Way.constant(2, engine.engine)]
    assert write_text([0, 1, 2], None, 0).accepted == 4
    assert 1 < len(calls(simple)) <= llama_cpp.TRIES
    program(simple, "print('decoded 5 tokens')")
    with pytest.raises(MinidecodeError, match="llama-speculative-simple: what it said"):
        write_text([0, 1, 2], None, 0)


# The commands


def run(capsys, *argv):
    code = cli.main(["bench", *(str(word) for word in argv)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture
def alone(monkeypatch):
    """No other peer, no waiting, and small shapes."""
    monkeypatch.setattr(peers, "is_installed", lambda peer: False)
    monkeypatch.setattr(speed.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(speed, "memory_speed", lambda: 10.0)
    monkeypatch.setitem(SHAPES, "gpt2", Shape(1, 2, 8, 40, 320))


@pytest.mark.parametrize("folder", ["", "bin", "build/bin"])
def test_the_model_benchmark_prints_it_beside_ours(alone, tmp_path, capsys, folder):
    program(tmp_path / "llama" / folder / "llama-bench", BENCH)
    files = (gguf(tmp_path / "m-F16.gguf"), gguf(tmp_path / "m-Q8_0.gguf"))
    options = ("--peers", "--llama-cpp", tmp_path / "llama", "--gguf", *files, "--repeats", 1)
    code, text, _ = run(capsys, "model", *options, "--json")
    assert code == 0
    results = json.loads(text)["results"]
    assert list(results) == ["minidecode", "llama.cpp m-F16", "llama.cpp m-Q8_0"]
    assert results["llama.cpp m-F16"]["pass over 5 / 1"] == 3
    code, text, _ = run(capsys, "model", *options)
    assert code == 0 and "llama.cpp m-Q8_0" in text


def test_the_speculative_benchmark_prints_it_beside_ours(
    alone, build, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(speculation, "PROMPTS", ("abc", "hello"))
    sizes = {"V": 26, "n_layer": 1, "n_head": 2, "d": 8, "n_positions": 320}
    names = ("target", "draft")
    for seed, name in enumerate(names):
        write(tmp_path / name, *random_gpt2(seed, **sizes), toy_tokenizer(26))
    code, text, said = run(
        capsys,
        *("speculative", "--model", tmp_path / "target", "--draft", tmp_path / "draft"),
        *("--prompts", 2, "--max-new-tokens", 8, "--k", "2,3", "--peers", "--json"),
        *("--llama-cpp", build, "--gguf", tmp_path / "m-F16.gguf"),
        *("--draft-gguf", gguf(tmp_path / "d.gguf")),
    )
    assert code == 0, said
    greedy, sampled = json.loads(text)["results"]
    theirs = {label: way for label, way in greedy["ways"].items() if way["engine"] != "minidecode"}
    assert list(theirs) == [f"llama.cpp m-F16, {way}" for way in ("plain", "k 2", "k 3")]
    assert theirs["llama.cpp m-F16, k 3"]["acceptance"] == 0.5
    assert theirs["llama.cpp m-F16, k 3"]["speed-up"] == pytest.approx(5 / 100)
    assert not [way for way in sampled["ways"].values() if way["engine"] != "minidecode"]


NOWHERE = "/nowhere"


@pytest.mark.parametrize("kind", ["model", "speculative"])
@pytest.mark.parametrize(
    "options, message",
    [
        (("--llama-cpp", "B"), "--llama-cpp has no effect without --peers"),
        (("--gguf", "F"), "--gguf has no effect without --peers"),
        (("--peers", "--gguf", "F"), "--gguf has no effect without --llama-cpp"),
        (("--peers", "--llama-cpp", "B"), "--gguf: got no file, one or more for llama.cpp was"),
        (("--peers", "--llama-cpp", NOWHERE, "--gguf", "F"), "--llama-cpp: got /nowhere, a dir"),
        (("--peers", "--llama-cpp", "F", "--gguf", "F"), "a directory with llama-"),
        (("--peers", "--llama-cpp", "B", "--gguf", NOWHERE), "--gguf: got /nowhere, a GGUF file"),
        (("--peers", "--llama-cpp", "B", "--gguf", "B"), "a GGUF file was wanted"),
        (("--peers", "--llama-cpp", "B", "--gguf", "F", "F"), "got two files called m-F16"),
        (("--peers", "--llama-cpp", "B", "--gguf", "N"), "which is not a GGUF file"),
    ],
)
def test_what_is_missing_is_one_line(alone, build, tmp_path, capsys, kind, options, message):
    (tmp_path / "notes.txt").write_text("no model")
    meant = {"B": build, "F": tmp_path / "m-F16.gguf", "N": tmp_path / "notes.txt"}
    code, text, said = run(capsys, kind, *(meant.get(word, word) for word in options))
    assert (code, text, said.count("\n")) == (2, "", 1)
    assert message in said


@pytest.mark.parametrize(
    "options, message",
    [
        ((), "--draft-gguf: got none, the draft's file for llama.cpp was wanted"),
        (("--draft-gguf", NOWHERE), "--draft-gguf: got /nowhere, a GGUF file was wanted"),
    ],
)
def test_a_draft_that_is_missing_is_one_line(alone, build, tmp_path, capsys, options, message):
    files = ("--peers", "--llama-cpp", build, "--gguf", tmp_path / "m-F16.gguf")
    code, text, said = run(capsys, "speculative", *files, *options)
    assert (code, text, said.count("\n")) == (2, "", 1)
    assert message in said


def test_a_draft_for_nobody_is_one_line(alone, build, tmp_path, capsys):
    code, _, said = run(capsys, "speculative", "--draft-gguf", tmp_path / "m-F16.gguf")
    assert code == 2 and "--draft-gguf has no effect without --peers and --llama-cpp" in said
