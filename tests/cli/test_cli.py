"""The command line as its users meet it: text on stdout, all else on stderr, one line an error."""

import io
import json
import os
import shlex
import signal
import subprocess
import sys

import numpy as np
import pytest
from builders import config_dict, tensor_shapes, toy_tokenizer, write

import minidecode
from minidecode import Warp, generate, load
from minidecode.cli import main, shared
from minidecode.kernels import backend

COMMAND = [sys.executable, "-m", "minidecode"]


def run(*arguments, **options):
    """The finished command as (exit code, stdout, stderr), bytes decoded as UTF-8."""
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, timeout=60, **options)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def in_process(capsys, *arguments):
    code = main(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def spelling_model(directory, text):
    """A model whose greedy text spells `text` byte for byte from the prompt "A", then ends."""
    tokenizer = toy_tokenizer()
    ids = [tokenizer.token_to_id(c) for c in tokenizer.encode(text).tokens]
    eos = tokenizer.token_to_id("<|endoftext|>")
    V, n_positions, d = tokenizer.get_vocab_size(), 64, 64
    path = [*tokenizer.encode("A").ids, *ids, eos]
    config = config_dict(V, 1, 1, d, n_positions, eos_token_id=eos, bos_token_id=None)
    config["tie_word_embeddings"] = False
    tensors = {name: np.zeros(shape, np.float32) for name, shape in tensor_shapes(config).items()}
    # The hidden state is the one-hot of the position alone, and the head reads the next id off it.
    tensors["wpe.weight"] = 20 * np.eye(n_positions, d, dtype=np.float32)
    tensors["ln_f.weight"] = np.ones(d, np.float32)
    head = np.zeros((V, d), np.float32)
    for position, token in enumerate(path[1:]):
        head[token, position] = 10
    tensors["lm_head.weight"] = head
    return write(directory, config, tensors, tokenizer)


# generate


def test_the_text_is_that_of_the_library(capsys):
    model, tokenizer = load("storyteller-6m")
    wanted = generate(
        model, "The king", tokenizer=tokenizer, warp=Warp(temperature=0), max_new_tokens=12
    ).text
    code, out, err = in_process(
        capsys, "generate", "The king", "--greedy", "--max-new-tokens", "12"
    )
    assert (code, out, err) == (0, wanted, "")


def test_a_seed_that_was_printed_reproduces_the_text(capsys):
    _, text, err = in_process(capsys, "generate", "She", "--max-new-tokens", "20")
    seed = err.removeprefix("seed: ").strip()
    assert in_process(capsys, "generate", "She", "--max-new-tokens", "20", "--seed", seed) == (
        0,
        text,
        "",
    )
    other = in_process(capsys, "generate", "She", "--max-new-tokens", "20", "--seed", seed + "1")
    assert other[1] != text


@pytest.mark.parametrize("drafted", [[], ["--draft", "storyteller-1m"]])
def test_a_seed_is_told_only_where_something_is_drawn(capsys, drafted):
    arguments = ["generate", "Once", "--max-new-tokens", "2", *drafted]
    assert main([*arguments, "-t", "0"]) == 0
    greedy = capsys.readouterr()
    assert main([*arguments, "-t", "0.01"]) == 0
    drawn = capsys.readouterr()
    assert (greedy.out, greedy.err) == (drawn.out, "")
    assert drawn.err.startswith("seed: ")


@pytest.mark.parametrize("tokens, words", [(1, "1 token, "), (2, "2 tokens, ")])
def test_one_token_is_no_tokens(capsys, monkeypatch, tokens, words):
    monkeypatch.setattr("sys.stdin", io.StringIO("Once upon"[: 4 if tokens == 1 else 9]))
    assert main(["score", "-"]) == 0
    assert words in capsys.readouterr().err


def test_json_is_one_object_with_everything(capsys):
    arguments = ["generate", "The king", "--seed", "7", "--max-new-tokens", "9", "--ignore-eos"]
    code, out, err = in_process(capsys, *arguments, "--json")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert found["prompt_ids"] == load("storyteller-6m")[1].encode("The king")
    assert len(found["ids"]) == found["stats"]["new_tokens"] == 9
    assert found["text"] == load("storyteller-6m")[1].decode(found["ids"])
    assert (found["finish_reason"], found["seed"]) == ("length", 7)


def test_a_stop_string_ends_before_itself(capsys):
    arguments = ["generate", "Once upon a time", "--greedy", "--max-new-tokens", "30"]
    _, whole, _ = in_process(capsys, *arguments)
    early, late = whole.split()[4], whole.split()[8]
    code, out, _ = in_process(capsys, *arguments, "--stop", late, "--stop", early)
    assert (code, out) == (0, whole[: min(whole.index(early), whole.index(late))])
    assert out


@pytest.mark.parametrize("draft", [(), ("--draft", "storyteller-1m")])
def test_defaults_are_temperature_and_top_p(capsys, draft):
    plain = in_process(capsys, "generate", "She", "--seed", "3", "--max-new-tokens", "9", *draft)
    told = in_process(
        capsys,
        *("generate", "She", "--seed", "3", "--max-new-tokens", "9", *draft),
        *("--temperature", "0.8", "--top-p", "0.95"),
    )
    assert plain == told


@pytest.mark.skipif(backend == "numpy", reason="NumPy's products round by shape, draws may differ")
@pytest.mark.parametrize("draft", ["storyteller-1m", "prompt-lookup"])
def test_coupled_text_does_not_depend_on_the_draft(capsys, draft):
    arguments = ["generate", "She", "--seed", "5", "--coupled", "--max-new-tokens", "40"]
    plain = in_process(capsys, *arguments)
    assert in_process(capsys, *arguments, "--draft", draft, "--schedule", "auto") == plain


def test_statistics_go_to_stderr(capsys):
    arguments = [
        "generate",
        "She",
        "--greedy",
        "--max-new-tokens",
        "9",
        "--draft",
        "storyteller-1m",
    ]
    _, plain, _ = in_process(capsys, *arguments)
    code, out, err = in_process(capsys, *arguments, "--stats")
    assert (code, out) == (0, plain)
    assert "acceptance_by_position" in err
    assert "tokens_per_target_pass" in err


def test_nothing_drafted_shows_as_no_number(capsys):
    arguments = ["generate", "She", "--max-new-tokens", "1", "--draft", "prompt-lookup", "--stats"]
    _, _, err = in_process(capsys, *arguments)
    rates = [line.split() for line in err.splitlines() if line.startswith("acceptance")]
    assert [rate[1] for rate in rates] == ["n/a", "n/a"]


def test_echo_shows_the_prompt_first(capsys):
    arguments = ["generate", "The king", "--greedy", "--max-new-tokens", "3"]
    _, text, _ = in_process(capsys, *arguments)
    assert in_process(capsys, *arguments, "--echo")[1] == "The king" + text


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_prompts_from_files_and_stdin_lose_their_last_line_break(tmp_path, capsys, end):
    wanted = in_process(capsys, "generate", "Old\nking", "--greedy", "--max-new-tokens", "5")
    file = tmp_path / "prompt.txt"
    file.write_bytes(b"Old\nking" + end.encode())
    arguments = ["generate", "--greedy", "--max-new-tokens", "5"]
    assert in_process(capsys, *arguments, "--prompt-file", str(file)) == wanted
    assert run(*arguments, "-", input=file.read_bytes()) == wanted


def test_an_empty_prompt_begins_a_text(capsys):
    code, out, _ = in_process(capsys, "generate", "", "--greedy", "--max-new-tokens", "4")
    assert code == 0
    assert out.strip()
    assert in_process(capsys, "generate", "--greedy", "--max-new-tokens", "4")[1] == out


@pytest.mark.parametrize("text", ["🙂", "é日本", "🙂🙂", "👩‍👩‍👧"])
@pytest.mark.parametrize("draft", [False, True])
def test_characters_come_whole_whatever_the_blocks(tmp_path, capsys, text, draft):
    directory = str(spelling_model(tmp_path / "model", text))
    arguments = ["generate", "A", "--model", directory, "--greedy"]
    arguments += ["--draft", directory, "--num-draft-tokens", "3"] if draft else []
    assert in_process(capsys, *arguments) == (0, text, "")


def test_each_piece_is_written_as_it_comes(tmp_path, capsys, monkeypatch):
    directory = str(spelling_model(tmp_path / "model", "a🙂b"))
    pieces = []
    monkeypatch.setattr("minidecode.cli.generate.show", pieces.append)
    assert main(["generate", "A", "--model", directory, "--greedy"]) == 0
    assert pieces == ["a", "🙂", "b"]


@pytest.mark.parametrize("k", ["1", "2", "4", "8"])
def test_a_stop_string_inside_a_block_ends_it_there(tmp_path, capsys, k):
    directory = str(spelling_model(tmp_path / "model", "one two three"))
    draft = ["--draft", directory, "--num-draft-tokens", k]
    arguments = ["generate", "A", "--model", directory, "--greedy", "--stop", "two", *draft]
    assert in_process(capsys, *arguments) == (0, "one ", "")
    found = json.loads(in_process(capsys, *arguments, "--json")[1])
    assert found["finish_reason"] == "stop"
    assert len(found["ids"]) == len("one two")


# Odd surroundings


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "utf-8"])
def test_a_legacy_encoding_does_not_break_the_text(tmp_path, encoding):
    directory = str(spelling_model(tmp_path / "model", "a🙂b"))
    env = os.environ | {"PYTHONIOENCODING": encoding}
    code, out, _ = run("generate", "A", "--model", directory, "--greedy", env=env)
    assert (code, out) == (0, "a🙂b" if encoding == "utf-8" else "a?b")


def test_a_closed_pipe_ends_quietly():
    process = subprocess.Popen(
        [*COMMAND, "generate", "She", "--seed", "1", "--ignore-eos", "--max-new-tokens", "400"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stdout.read(1)
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(timeout=60) == 0


def test_ctrl_c_ends_without_a_traceback(tmp_path):
    process = subprocess.Popen(
        [*COMMAND, "generate", "She", "--seed", "1", "--ignore-eos", "--max-new-tokens", "500"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode in (130, 0)  # 0: it was done before the signal came
    assert err == b""


def test_interruption_is_exit_code_130(monkeypatch, capsys):
    def interrupt(args):
        raise KeyboardInterrupt

    monkeypatch.setattr("minidecode.cli.info.run", interrupt)
    assert in_process(capsys, "info") == (130, "", "")


def test_bytes_that_are_no_utf8_are_named():
    code, out, err = run("generate", "-", input=b"ab\xff")
    assert (code, out) == (2, "")
    assert err == "minidecode: standard input: got the byte 0xff at 2, UTF-8 was wanted\n"


@pytest.mark.parametrize(
    "variables, message",
    [
        ({"MINIDECODE_BACKEND": "cuda"}, "MINIDECODE_BACKEND: got 'cuda', numpy or native"),
        ({"MINIDECODE_THREADS": "none"}, "MINIDECODE_THREADS: got 'none', 1 to"),
    ],
)
def test_a_wrong_variable_is_one_line(variables, message):
    arguments = ["generate", "She", "--greedy", "--max-new-tokens", "2"]
    code, out, err = run(*arguments, env=os.environ | variables)
    assert (code, out) == (1, "")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments, code, message",
    [
        (["generate", "a", "--greedy", "--top-p", "0.5"], 2, "--top-p has no effect with --greedy"),
        (["generate", "a", "--greedy", "--temperature", "0.7"], 2, "--temperature has no effect"),
        (["generate", "a", "--greedy", "--coupled"], 2, "--coupled has no effect with --greedy"),
        (["generate", "a", "--greedy", "--top-k", "0"], 2, "--top-k has no effect with --greedy"),
        (["generate", "a", "--alpha", "0.5"], 2, "--alpha has no effect without --amateur"),
        (["generate", "a", "--length-penalty", "0"], 2, "without --num-beams"),
        (["generate", "a", "--num-beams", "2", "--top-p", "0.9"], 2, "--top-p has no effect with"),
        (["generate", "a", "--num-beams", "2", "--coupled"], 2, "--coupled has no effect with"),
        (["generate", "a", "--num-beams", "0"], 2, "num_beams: got 0"),
        (["generate", "a", "--schedule", "auto"], 2, "--schedule has no effect without --draft"),
        (["generate", "a", "--temperature", "-1"], 2, "temperature: got -1.0"),
        (["generate", "a", "--temperature", "nan"], 2, "temperature: got nan"),
        (["generate", "a", "--top-p", "0"], 2, "top_p: got 0.0"),
        (["generate", "a", "--top-k", "-1"], 2, "top_k: got -1"),
        (["generate", "a", "--epsilon", "1"], 2, "epsilon: got 1.0"),
        (["generate", "a", "--seed", "-1"], 2, "seed: got -1"),
        (["generate", "a", "--max-new-tokens", "-1"], 2, "max_new_tokens: got -1"),
        (["generate", "a", "--stop", ""], 2, "stop: got ''"),
        (["generate", "a", "--model", "./nowhere"], 1, "there is no such directory"),
        (["generate", "a", "--prompt-file", "b"], 2, "one was wanted"),
        (["generate", "--prompt-file", "/no/file"], 1, "No such file"),
        (["generate", "a " * 600], 2, "512 positions"),
        (["info", "./nowhere"], 1, "there is no such directory"),
        (["bench", "model", "--shape", "gpt9"], 2, "shape: got 'gpt9', one of"),
    ],
)
def test_bad_input_is_one_line_and_a_code(capsys, arguments, code, message):
    got, out, err = in_process(capsys, *arguments)
    assert (got, out) == (code, "")
    lines = err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("minidecode: ")
    assert message in lines[0]


@pytest.mark.parametrize("command", ["generate", "trace"])
@pytest.mark.parametrize(
    "refused",
    [
        ["--max-new-tokens", "-1"],
        ["--top-k", "-1"],
        ["--min-new-tokens", "9", "--max-new-tokens", "3"],
        ["--stop", ""],
        ["--eos", "99999"],
        ["--bad-words", ""],
        ["--draft", "storyteller-1m", "--num-draft-tokens", "-1"],
        ["--mirostat", "-1"],
        ["--num-beams", "2", "--stochastic", "--num-return-sequences", "3"],
        ["--num-beams", "2", "--num-return-sequences", "3"],
    ],
    ids=" ".join,
)
def test_nothing_is_printed_before_a_setting_is_refused(capsys, command, refused):
    """No seed for a text that never comes."""
    code, out, err = in_process(capsys, command, "a", *refused)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1 and err.startswith("minidecode: "), err


@pytest.mark.parametrize("more", [["--echo"], ["--num-return-sequences", "0"], ["--interactive"]])
def test_nothing_is_shown_before_a_long_prompt_or_a_count_is_refused(capsys, more):
    code, out, err = in_process(capsys, "generate", "a " * 600, *more)
    assert (code, out, err.count("\n")) == (2, "", 1)


@pytest.mark.parametrize(
    "out", ["", "/proc/nowhere", "/dev/null", "/dev/null/below", "a" * 400, "a/" * 3000], ids=len
)
def test_a_place_that_cannot_hold_a_model_is_refused_before_the_model_is_read(
    capsys, monkeypatch, out
):
    monkeypatch.setattr("minidecode.models.loading.load", None)  # who called it would fail
    code, told, err = in_process(
        capsys, "convert", "storyteller-1m", "--dtype", "int8", "--out", out
    )
    assert (code, told, err.count("\n")) == (2, "", 1)
    assert "a new or empty directory was wanted" in err and "Errno" not in err


@pytest.mark.parametrize("name", ["./" + "a" * 400, "./" + "a/" * 3000, "/etc/passwd/x"], ids=len)
def test_a_model_that_cannot_be_looked_for_is_named(capsys, name):
    code, out, err = in_process(capsys, "generate", "x", "--model", name)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith(f"minidecode: {name[:40]}") and "Errno" not in err


@pytest.mark.parametrize("option", ["--seed", "--top-k", "--temperature", "--num-beams"])
def test_a_refused_number_of_any_length_is_a_short_line(option):
    code, out, err = run("generate", "x", option, "1" * 5000 + ("x" if "t" in option else ""))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert len(err) < 300


@pytest.mark.parametrize("error", [MemoryError(), MemoryError("of 9 TB"), OSError("odd")])
def test_a_failure_always_says_something(capsys, monkeypatch, error):
    def fails(*args):
        raise error

    monkeypatch.setattr("minidecode.cli.info.run", fails)
    code, _, err = in_process(capsys, "info")
    assert (code, err) == (
        1,
        f"minidecode: {error!s}\n" if str(error) else "minidecode: out of memory\n",
    )


def test_a_text_without_a_piece_has_its_seed_and_its_prompt(capsys):
    code, out, err = in_process(capsys, "generate", "She", "--echo", "--max-new-tokens", "0")
    assert (code, out) == (0, "She")
    assert err.startswith("seed: ")


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["generate", "a", "--no-such"], ["generate", "--top-k", "x"]]
)
def test_wrong_usage_is_one_line_and_exit_code_2(arguments):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1


# info


def test_info_tells_kernels_and_model(capsys):
    code, out, _ = in_process(capsys, "info", "--json")
    facts = json.loads(out)
    assert code == 0
    assert facts["kernels"]["backend"] == backend
    model = facts["model"]
    assert (model["layers"], model["width"], model["vocabulary"]) == (6, 256, 4096)
    assert (model["parameters"], model["stored as"]) == (5918720, "F16")
    code, table, _ = in_process(capsys, "info", "storyteller-1m")
    assert code == 0
    assert "986624" in table


# Streams that are closed, broken, full, or no files


TEXT = ("generate", "The king", "--greedy", "--max-new-tokens", "5")


def in_shell(redirection, *arguments, unbuffered=""):
    """(exit code, stdout, stderr) of the command with a redirection of the shell."""
    line = " ".join([shlex.join([*COMMAND, *arguments]), redirection])
    env = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(["bash", "-c", line], capture_output=True, timeout=60, env=env)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_trouble_with_one_stream_loses_nothing_on_the_other(capsys, unbuffered):
    _, wanted, _ = in_process(capsys, *TEXT)
    for redirection in ("2>&-", "2>/dev/full", "<&-", "2> >(exit 0)", "2>&- <&-"):
        code, out, err = in_shell(redirection, *TEXT, "--stats", unbuffered=unbuffered)
        assert (code, out) == (0, wanted), redirection
        assert "Traceback" not in err
    for redirection in (">&-", ">&- <&-"):
        code, out, err = in_shell(redirection, *TEXT, "--stats", unbuffered=unbuffered)
        assert (code, out) == (0, "")
        assert err.startswith("finish_reason")
    code, _, err = in_shell(">/dev/full", *TEXT, unbuffered=unbuffered)
    assert (code, err) == (1, "minidecode: [Errno 28] No space left on device\n")


@pytest.mark.parametrize("redirection", [">&-", "2>&-", "2>/dev/full", ">&- 2>&- <&-"])
def test_help_and_complaints_never_end_in_a_traceback(redirection):
    code, _, err = in_shell(redirection, "--help")
    assert (code, err) == (0, "")
    code, out, err = in_shell(redirection, "generate", "--top-k", "x")
    assert (code, out) == (2, "")
    assert "Traceback" not in err


def test_help_that_cannot_be_written_is_a_failure():
    for unbuffered in ("", "1"):
        code, _, err = in_shell(">/dev/full", "--help", unbuffered=unbuffered)
        assert (code, err.count("\n")) == (1, 1)


def test_a_prompt_from_a_closed_standard_input_is_refused():
    code, out, err = in_shell("<&-", "generate", "-")
    assert (code, out) == (2, "")
    assert err == "minidecode: standard input: it is closed, a prompt was wanted\n"


def test_streams_that_are_no_files_serve(monkeypatch):
    out, err = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    monkeypatch.setattr(sys, "stdin", io.StringIO("The king\n"))
    assert main(["generate", "-", "--greedy", "--max-new-tokens", "5"]) == 0
    assert out.getvalue()
    assert main(["generate", "--greedy", "--max-new-tokens", "-1"]) == 2
    assert err.getvalue().startswith("minidecode: max_new_tokens: got -1, ")
    assert (sys.stdout, sys.stderr) == (out, err)
    err.close()
    assert main(["generate", "--top-p", "2"]) == 2
    out.close()
    assert main(list(TEXT)) == 0
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    assert main(list(TEXT)) == 0


# Ctrl-C


def test_ctrl_c_while_the_package_is_imported_is_quiet():
    """The signal comes from an import that takes long, as on a cold disk."""
    program = (
        "import os, signal, sys, importlib.abc\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell may have it ignored
        "class Slow(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == sys.argv[1]: os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Slow())\n"
        "from minidecode.cli import main\n"
        "sys.exit(main(['generate', 'a']))\n"
    )
    for module in (
        "numpy",
        "argparse",
        "minidecode.kernels",
        "tokenizers",
        "minidecode.cli.generate",
    ):
        done = subprocess.run(
            [sys.executable, "-c", program, module], capture_output=True, timeout=60
        )
        assert (done.returncode, done.stderr) == (130, b""), module


def test_the_package_opens_without_numpy():
    program = "import minidecode, minidecode.cli, sys; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0


# Escapes


@pytest.mark.parametrize(
    "text, meant",
    [
        (r"a\nb", "a\nb"),
        (r"\t\\n\r\0", "\t\\n\r\0"),
        (r"\x41\u00e9\U0001f642", "Aé🙂"),
        ("é🙂", "é🙂"),
    ],
)
def test_escapes_are_read_where_they_are_asked_for(tmp_path, capsys, text, meant):
    assert shared.unescape(text) == meant
    prompt = in_process(capsys, "generate", text, "--escape", "--max-new-tokens", "0", "--json")
    assert json.loads(prompt[1])["prompt"] == meant
    plain = in_process(capsys, "generate", text, "--max-new-tokens", "0", "--json")
    assert json.loads(plain[1])["prompt"] == text


@pytest.mark.parametrize("text", ["\\", r"\q", r"\x4", r"\ud800", r"\Uffffffff", "\\\n"])
def test_what_is_no_escape_is_refused(capsys, text):
    code, out, err = in_process(capsys, "generate", "--stop", text, "--escape")
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].startswith("minidecode: --escape: got ")


def test_a_stop_string_may_be_an_escaped_line_break(tmp_path, capsys):
    directory = str(spelling_model(tmp_path / "model", "one\ntwo"))
    arguments = ["generate", "A", "--model", directory, "--greedy", "--stop", r"\n"]
    assert in_process(capsys, *arguments)[1] == "one\ntwo"
    assert in_process(capsys, *arguments, "--escape")[1] == "one"


def test_bad_words_may_be_escaped_as_well(capsys):
    arguments = ["generate", "Once upon a time", "--greedy", "--max-new-tokens", "100"]
    arguments += ["--bad-words", r"\n"]
    assert "\n" in in_process(capsys, *arguments)[1]  # a backslash and an n are banned
    assert "\n" not in in_process(capsys, *arguments, "--escape")[1]


def test_control_characters_are_escaped_on_a_terminal_alone(tmp_path, capsys, monkeypatch):
    text = "a\x1b[31mb\x07\tc\r\n\x7f\x9bd"
    directory = str(spelling_model(tmp_path / "model", text))
    arguments = ["generate", "A", "--model", directory, "--greedy"]
    assert in_process(capsys, *arguments)[1] == text
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    shown = in_process(capsys, *arguments)[1]
    assert shown == "a\\x1b[31mb\\x07\tc\\x0d\n\\x7f\\x9bd\n"


# Places to write


@pytest.mark.parametrize(
    "place, message",
    [
        ("missing/page.html", "a file in a directory that exists was wanted"),
        (".", "a file that can be written was wanted (Is a directory)"),
        ("/dev/full", "a file that can be written was wanted (No space left on device)"),
        ("x" * 300, "a file that can be written was wanted (File name too long)"),
    ],
)
def test_a_page_that_cannot_be_written_is_told_before_the_run(tmp_path, capsys, place, message):
    arguments = ["trace", "a", "--html", str(tmp_path / place), "--model", "./nowhere"]
    code, out, err = in_process(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("minidecode: --html: got ") and message in err
    assert list(tmp_path.iterdir()) == []


def test_the_check_of_a_place_leaves_what_is_there(tmp_path, capsys):
    page = tmp_path / "page.html"
    page.write_text("old")
    assert in_process(capsys, "trace", "a", "--html", str(page), "--model", "./nowhere")[0] == 1
    assert page.read_text() == "old"


def test_a_page_may_go_to_standard_output(capsys):
    arguments = ["trace", "She", "--greedy", "--max-new-tokens", "3", "--html", "-"]
    code, out, err = in_process(capsys, *arguments)
    assert code == 0
    assert out.startswith("<!DOCTYPE html>") and out.rstrip().endswith("</html>")
    assert err == "3 tokens; ended: length\n"


def test_files_that_cannot_be_read_are_named_as_everything_is(tmp_path, capsys):
    for path in ("/no/file", str(tmp_path)):
        code, out, err = in_process(capsys, "generate", "--prompt-file", path)
        assert (code, out) == (1, "")
        assert err.startswith(f"minidecode: --prompt-file: got {path}, a file that can be read was")
    marked = tmp_path / "marked.txt"
    marked.write_bytes(b"\xef\xbb\xbfThe king")
    arguments = ["generate", "--prompt-file", str(marked), "--max-new-tokens", "0", "--json"]
    assert json.loads(in_process(capsys, *arguments)[1])["prompt"] == "The king"


# Several texts, and lines as they come


def test_several_sequences_have_the_seeds_that_follow(capsys):
    arguments = ["generate", "She", "--max-new-tokens", "6"]
    wanted = [in_process(capsys, *arguments, "--seed", str(seed))[1] for seed in (4, 5, 6)]
    several = [*arguments, "--seed", "4", "--num-return-sequences", "3"]
    assert in_process(capsys, *several)[1] == f"\n{'-' * 20}\n".join(wanted)
    found = json.loads(in_process(capsys, *several, "--json")[1])
    assert [one["text"] for one in found["sequences"]] == wanted
    assert [one["seed"] for one in found["sequences"]] == [4, 5, 6]
    assert found["text"] == wanted[0]


def test_a_file_of_prompts_gives_json_lines(tmp_path, capsys):
    file = tmp_path / "prompts.txt"
    prompts = [
        f"The {animal}"
        for animal in ["cat", "dog", "fox", "hen", "cow", "bee", "ant", "owl", "pig"]
    ]
    file.write_text("\n\n".join(prompts), encoding="utf-8")
    arguments = ["generate", "--max-new-tokens", "5"]
    several = ["--prompts", str(file), "--seed", "3", "--logprobs", "1"]
    code, out, err = in_process(capsys, *arguments, *several)
    assert (code, err) == (0, "")
    found = [json.loads(line) for line in out.splitlines()]
    assert [one["prompt"] for one in found] == prompts
    assert [one["seed"] for one in found] == list(range(3, 12))
    last = json.loads(in_process(capsys, *arguments, prompts[8], "--seed", "11", "--json")[1])
    assert found[8]["text"] == last["text"]
    assert len(found[8]["logprobs"]) == 5
    code, out, err = in_process(capsys, *arguments, "a", "--prompts", str(file))
    assert (code, out) == (2, "") and "one of them was wanted" in err
    code, out, err = in_process(capsys, *arguments, "--prompts", str(file), "--echo")
    assert (code, out) == (2, "") and "--echo has no effect with --prompts" in err


def test_an_interactive_text_goes_on_after_each_line(capsys, monkeypatch):
    model, tokenizer = load("storyteller-6m")
    ids, wanted = [], ""
    for line in ("The king", " and then", " The end."):
        ids += tokenizer.encode(line)
        result = generate(model, ids, temperature=0, tokenizer=tokenizer, max_new_tokens=6)
        ids += result.tokens
        wanted += result.text
    monkeypatch.setattr(sys, "stdin", io.StringIO(" and then\n\n The end.\n"))
    arguments = ["generate", "The king", "--greedy", "--max-new-tokens", "6", "--interactive"]
    assert in_process(capsys, *arguments) == (0, wanted, "")


def test_the_end_of_the_context_is_told(tmp_path, capsys):
    directory = str(spelling_model(tmp_path / "model", "x" * 63))
    arguments = ["generate", "A", "--model", directory, "--greedy", "--max-new-tokens", "99"]
    code, out, err = in_process(capsys, *arguments, "--ignore-eos")
    assert (code, out) == (0, "x" * 63)
    assert err == "minidecode: the text has filled the model's context\n"


# Conveniences


def test_bare_minidecode_prints_the_help_and_its_version(capsys):
    code, out, err = in_process(capsys)
    assert (code, err) == (0, "") and out.startswith("usage: minidecode")
    assert in_process(capsys, "--version") == (0, f"minidecode {minidecode.__version__}\n", "")


def test_short_options(capsys):
    short = ["generate", "She", "-m", "storyteller-1m", "-n", "5", "-t", "0.5", "-s", "7"]
    long = ["--model", "storyteller-1m", "--max-new-tokens", "5", "--temperature", "0.5"]
    long = ["generate", "She", *long, "--seed", "7"]
    assert in_process(capsys, *short) == in_process(capsys, *long)


def test_one_seed_serves_a_loop_over_methods(capsys):
    for method in (["--greedy"], ["--num-beams", "2"], ["--temperature", "1"]):
        code, out, err = in_process(capsys, "generate", "She", "-n", "3", "--seed", "5", *method)
        assert (code, err) == (0, "") and out


@pytest.mark.parametrize(
    "arguments, meant",
    [
        (["generat", "a"], "generate was perhaps meant"),
        (["generate", "a", "--temprature", "0.5"], "--temperature was perhaps meant"),
        (["generate", "a", "--max-tokens=5"], "--max-new-tokens was perhaps meant"),
        (["bench", "modl"], "model was perhaps meant"),
    ],
)
def test_what_was_perhaps_meant_is_told(capsys, arguments, meant):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    err = capsys.readouterr().err
    assert meant in err and err.count("\n") == 1


def test_the_options_of_generate_stand_in_groups(capsys):
    with pytest.raises(SystemExit):
        main(["generate", "--help"])
    out = capsys.readouterr().out
    heads = ["sampling:", "speculative decoding:", "contrastive decoding:", "beam search:"]
    places = [out.index(f"\n{head}\n") for head in [*heads, "output:"]]
    assert places == sorted(places)
