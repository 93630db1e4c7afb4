"""Trains the embedded pair: a tokenizer, a GPT-2 (target), and a smaller one that drafts for it.

Run from a checkout after `pip install .[train]`. The corpus is one or more text files in UTF-8, in
which a line `<|endoftext|>` ends each document; README.md tells what the published pair read. With
its stories and its books in two files, and some documents of each held out, it came about so:

    texts="--corpus stories.txt books.txt --shares 0.65 0.35 --valid held_out.txt"
    fast="--bf16 --compile"
    train="python weights/train_pair.py"
    $train tokenizer $texts --out first
    $train target $texts --out first --minutes 85
    $train target $texts --tokenizer first --init first --out target --minutes 90 --lr 1.2e-3 $fast

    $train draft $texts --tokenizer first --out start --minutes 7
    $train draft $texts --tokenizer first --init start --teacher first --out learner --minutes 15
    $train sample --init target --tokens 900000 --out written.npy
    $train draft --corpus stories.txt books.txt written.npy --shares 0.325 0.175 0.5 \\
        --valid held_out.txt --tokenizer first --init learner --teacher target --out draft \\
        --minutes 24 $fast

The minutes are those of two CPU cores. A faster machine sees more text in them and learns more, so
no two runs give the same weights. A directory holds config.json, model.safetensors (float16) and
tokenizer.json, as Hugging Face lays them out.
"""

import argparse
import json
import math
import shutil
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch import nn

import minidecode

END_OF_TEXT = "<|endoftext|>"  # id 0; stands before each document, as the prompt of an empty text
V, N_POSITIONS = 4096, 512
SHAPES = {  # GPT-2 small, medium and large are 3, 4 and 5 times the target's width and heads
    "target": {"n_embd": 256, "n_layer": 6, "n_head": 4},
    "draft": {"n_embd": 128, "n_layer": 2, "n_head": 2},
}


# The model. Its modules are named and shaped as GPT-2's, so that its state is the checkpoint.


class Affine(nn.Module):
    """x @ weight + bias, weight [in, out] as GPT-2 stores it (`nn.Linear` has it transposed)."""

    def __init__(self, n_in, n_out):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_in, n_out))
        self.bias = nn.Parameter(torch.zeros(n_out))

    def forward(self, x):
        return x @ self.weight + self.bias


class Attention(nn.Module):
    def __init__(self, d, n_head):
        super().__init__()
        self.n_head = n_head
        self.c_attn, self.c_proj = Affine(d, 3 * d), Affine(d, d)

    def forward(self, x):  # [batch, n, d]
        batch, n, d = x.shape
        qkv = self.c_attn(x).view(batch, n, 3, self.n_head, d // self.n_head)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each [batch, h, n, d/h]
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(heads.transpose(1, 2).reshape(batch, n, d))


class MLP(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.c_fc, self.c_proj = Affine(d, 4 * d), Affine(4 * d, d)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, d, n_head):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(d), Attention(d, n_head)
        self.ln_2, self.mlp = nn.LayerNorm(d), MLP(d)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT2(nn.Module):
    def __init__(self, n_embd, n_layer, n_head):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(V, n_embd), nn.Embedding(N_POSITIONS, n_embd)
        self.h = nn.ModuleList(Block(n_embd, n_head) for _ in range(n_layer))
        self.ln_f = nn.LayerNorm(n_embd)
        for name, p in self.named_parameters():
            if p.dim() == 2:  # what adds to the residual starts smaller: 2 * n_layer of them do
                shrink = math.sqrt(2 * n_layer) if "c_proj" in name else 1
                nn.init.normal_(p, std=0.02 / shrink)

    def forward(self, tokens):  # [batch, n] -> logits [batch, n, V]
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.h:
            x = block(x)
        return self.ln_f(x) @ self.wte.weight.T


def save(model, shape, out):
    tensors = {
        "transformer." + name: p.detach().half().contiguous()
        for name, p in model.state_dict().items()
    }
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    config = {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": V,
        "n_positions": N_POSITIONS,
        "n_ctx": N_POSITIONS,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "tie_word_embeddings": True,
        "torch_dtype": "float16",
        **shape,
    }
    (out / "config.json").write_text(json.dumps(config, indent=1))


def load(shape, directory):
    model = GPT2(**shape)
    tensors = load_file(directory / "model.safetensors")
    model.load_state_dict({n.removeprefix("transformer."): t.float() for n, t in tensors.items()})
    return model


# The text.


def documents(path):
    texts = (text.strip() for text in path.read_text(encoding="utf-8").split(END_OF_TEXT))
    return [text for text in texts if text]


def train_tokenizer(corpus, out):
    """A byte-level BPE as GPT-2's, so that any text can be written."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=V, special_tokens=[END_OF_TEXT], initial_alphabet=alphabet
    )
    tokenizer.train_from_iterator((text for path in corpus for text in documents(path)), trainer)
    tokenizer.save(str(out / "tokenizer.json"))


def token_ids(path, tokenizer):
    """All documents of a file, each behind its END_OF_TEXT, as one array; *.npy is one already."""
    if path.suffix == ".npy":
        return np.load(path).astype(np.int64)
    encoded = tokenizer.encode_batch(documents(path))
    return np.concatenate([[0, *document.ids] for document in encoded]).astype(np.int64)


def write_texts(directory, n_tokens, batch, seed):
    """At least `n_tokens` ids that the model in `directory` writes itself, at temperature 1.

    Each text begins with END_OF_TEXT and fills the context: where one document ends, another
    follows, as in the corpus. They stay ids, because a model spells some words in tokens that the
    tokenizer would not choose, and a draft meets those too.
    """
    model, _ = minidecode.load(str(directory))
    chance, warp = minidecode.Dice(seed), minidecode.Warp()
    written = []
    while len(written) * N_POSITIONS < n_tokens:
        texts = [[0] for _ in range(batch)]
        caches = [model.new_cache() for _ in texts]
        for position in range(1, N_POSITIONS):
            rows = model.forward_many([(ids[-1:], cache) for ids, cache in zip(texts, caches)])
            for ids, row in zip(texts, rows):  # [1, V]
                ids.append(chance.choose(warp(row[-1], ids), position))
        written += texts
        print(f"{len(written) * N_POSITIONS} of {n_tokens} tokens", flush=True)
    return np.array(written, dtype=np.uint16).ravel()


def inputs_and_targets(windows):
    """[batch, n+1] ids -> the ids [batch, n] and those that follow them."""
    windows = torch.from_numpy(np.stack(windows))
    return windows[:, :-1], windows[:, 1:]


# Learning.


@torch.no_grad()
def held_out_loss(model, ids):
    """Nats per token over the first windows of `ids`."""
    starts = range(0, min(len(ids) - N_POSITIONS - 1, 40 * N_POSITIONS), N_POSITIONS)
    losses = []
    for start in starts:
        x, y = inputs_and_targets([ids[start : start + N_POSITIONS + 1]])
        losses.append(F.cross_entropy(model(x)[0], y[0]).item())
    return sum(losses) / len(losses)


class WorkingTime:
    """Seconds of work so far; the time between two looks counts as 20 seconds at most.

    What takes longer was a pause (the process was stopped and continued) or, with --compile, the
    compilation. Neither may use up the time to learn, or the learning rate falls for nothing.
    """

    def __init__(self):
        self.last, self.seconds = time.monotonic(), 0.0

    def look(self):
        now = time.monotonic()
        self.seconds += min(now - self.last, 20)
        self.last = now
        return self.seconds


def make_loss(model, teacher, bf16=False):
    """From the text that follows, or from all that the teacher thinks might follow (distillation).

    A draft is accepted as often as its distribution agrees with the target's, and the target's
    whole distribution teaches that better than single tokens do. With `bf16` the model's products
    are taken in bfloat16; the teacher, the loss and the weights stay in float32.
    """

    def loss(x, y):
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            logits = model(x)
        log_q = F.log_softmax(logits.float(), dim=-1)  # [batch, n, V]
        if teacher is None:
            return F.nll_loss(log_q.flatten(0, 1), y.flatten())
        with torch.no_grad():
            p = F.softmax(teacher(x), dim=-1)
        return -(p * log_q).sum(dim=-1).mean()

    return loss


def train(model, loss_of, corpus, options, report):
    """AdamW for `options.minutes`: a short warm-up, then a cosine down to a twentieth."""
    rng = np.random.default_rng(options.seed)
    shares = np.array(options.shares or [len(ids) for ids in corpus], dtype=float)
    shares /= shares.sum()
    matrices = [p for p in model.parameters() if p.dim() == 2]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=options.lr, betas=(0.9, 0.95), fused=True)
    working, step = WorkingTime(), 0
    while (done := working.look() / (60 * options.minutes)) < 1:
        cosine = 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * done))
        for group in optimizer.param_groups:
            group["lr"] = options.lr * min(1, (step + 1) / 100) * cosine
        windows = []
        for i in rng.choice(len(corpus), options.batch, p=shares):
            begin = rng.integers(0, len(corpus[i]) - N_POSITIONS - 1)
            windows.append(corpus[i][begin : begin + N_POSITIONS + 1])
        loss = loss_of(*inputs_and_targets(windows))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step += 1
        if step % 500 == 0:
            report(f"step {step}, {done:.0%} of the time, loss {loss.item():.3f}")
    n_tokens = step * options.batch * N_POSITIONS
    report(f"done: {step} steps, {n_tokens / 1e6:.1f} M tokens")


def parse_options():
    parser = argparse.ArgumentParser(description="Train the embedded pair of models.")
    parser.add_argument("what", choices=["tokenizer", "target", "draft", "sample"])
    corpus = "text files, or *.npy as `sample` writes them"
    parser.add_argument("--corpus", nargs="+", type=Path, default=[], help=corpus)
    parser.add_argument("--shares", nargs="+", type=float, help="how often to read each of them")
    parser.add_argument("--valid", nargs="+", type=Path, default=[], help="text files held out")
    parser.add_argument("--out", type=Path, required=True, help="directory (sample: file) to write")
    parser.add_argument("--tokenizer", type=Path, help="directory with tokenizer.json, if not OUT")
    parser.add_argument("--init", type=Path, help="directory with the weights to start from")
    parser.add_argument("--teacher", type=Path, help="directory of the target to distil from")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--lr", type=float, default=2e-3, help="highest learning rate")
    parser.add_argument("--batch", type=int, default=8, help="windows of text in one step")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bf16", action="store_true", help="products in bfloat16")
    parser.add_argument("--compile", action="store_true", help="compile the loss with torch")
    parser.add_argument("--tokens", type=int, default=1_000_000, help="sample: how many to write")
    options = parser.parse_args()
    if options.what == "sample" and not options.init:
        parser.error("sample needs --init, the directory of the model that writes")
    if options.what != "sample" and not options.corpus:
        parser.error(f"{options.what} needs --corpus")
    return options


def main():
    options = parse_options()
    out = options.out
    if options.what == "sample":
        texts = write_texts(options.init, options.tokens, options.batch, options.seed)
        np.save(out, texts)
        return
    out.mkdir(parents=True, exist_ok=True)
    if options.what == "tokenizer":
        train_tokenizer(options.corpus, out)
        return
    if options.tokenizer:
        shutil.copy(options.tokenizer / "tokenizer.json", out)
    tokenizer = Tokenizer.from_file(str(out / "tokenizer.json"))
    corpus = [token_ids(path, tokenizer) for path in options.corpus]
    valid = [token_ids(path, tokenizer) for path in options.valid]

    torch.manual_seed(options.seed)
    shape = SHAPES[options.what]
    model = load(shape, options.init) if options.init else GPT2(**shape)
    teacher = load(SHAPES["target"], options.teacher) if options.teacher else None

    def report(line):
        losses = ", ".join(f"{held_out_loss(model, ids):.3f}" for ids in valid)
        print(f"{line}; held out: {losses or 'n/a'}", flush=True)
        save(model, shape, out)

    loss = make_loss(model, teacher, options.bf16)
    train(model, torch.compile(loss) if options.compile else loss, corpus, options, report)


if __name__ == "__main__":
    main()
