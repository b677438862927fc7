"""Train the embedded model: next-token prediction first, then LLaDA's masked objective with shifted logits.

Three phases (see `rows` for what a row of each is). In the first the model attends causally. In the second the
windows of an answer are decoded beside it, all in one row; this keeps teaching what the first phase taught
while attention within a window becomes bidirectional. In the third, rows are what the decoders of this package show
the model. Position i is always predicted from the output at i-1 (Dream's recipe), so what was learnt carries
over. One learning-rate schedule spans all: warm up, hold, drop to zero.

A run lives in one folder: `checkpoint.safetensors` (weights, optimiser moments and, as metadata, the
counters), `tokenizer.json`, `log.jsonl`, and at the end the Hugging Face folder `model/`. Killed at any moment
it goes on from its last checkpoint; every batch is a function of (seed, phase, pool).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch._dynamo.exc import TorchDynamoException
from transformers import Qwen3ForCausalLM

from ..backbone.backbone import first_line
from ..baselines import Block
from ..errors import UserError
from .accuracy import measure_accuracy
from .batches import PHASES, PROMPT_FORMAT, Batch, collate, encode, pool_of_rows
from .network import Size, as_backbone, export, grow, new_network
from .problems import DOMAINS, problems
from .tokenization import EOS, build_tokenizer, special_token

CHECKPOINT = "checkpoint.safetensors"  # of a run, in its folder


@dataclass(frozen=True)
class TrainingConfig:
    """What a training run is made of. Sizes in tokens, rates per step."""

    width: int = 192
    layers: int = 8
    intermediate: int = 512
    head: int = 32
    vocabulary: int = 3072
    autoregressive_tokens: int = 20_000_000
    windowed_tokens: int = 12_000_000
    masked_tokens: int = 8_000_000
    maths: float = 0.4  # the domains' shares of the problems
    code: float = 0.3
    logic: float = 0.3
    batch_tokens: int = 5_000
    drill_share: float = 0.3  # of the tokens, in the first phase; half of it in the others
    decay: float = 0.35  # the last part of all tokens, over which the learning rates drop to zero
    warmup_steps: int = 60
    muon_rate: float = 0.02
    adam_rate: float = 4e-3
    weight_decay: float = 0.01
    seed: int = 0

    @property
    def size(self) -> Size:
        """The network's size."""
        return Size(self.width, self.layers, self.intermediate, self.head, self.vocabulary)

    @property
    def total_tokens(self) -> int:
        """Tokens of all phases."""
        return self.autoregressive_tokens + self.windowed_tokens + self.masked_tokens

    @property
    def mix(self) -> dict[str, float]:
        """Each domain's share of the problems; the shares sum to 1."""
        shares = {"maths": self.maths, "code": self.code, "logic": self.logic}
        return {domain: share / sum(shares.values()) for domain, share in shares.items()}

    def phase(self, tokens: int) -> str:
        """The phase in which a run stands after this many tokens."""
        if tokens < self.autoregressive_tokens:
            return "autoregressive"
        return "windowed" if tokens < self.autoregressive_tokens + self.windowed_tokens else "masked"


@dataclass
class Progress:
    """Where a run stands: tokens seen, steps taken, and the next batch as (phase, pool, index in the pool)."""

    tokens: int = 0
    steps: int = 0
    phase: str = PHASES[0]
    pool: int = 0
    index: int = 0
    seconds: float = 0.0


def train(
    folder: Path,
    config: TrainingConfig,
    *,
    start_from: Path | None = None,
    device: str = "cpu",
    compile: bool = True,
    save_every: float = 240.0,
    validate_every: int = 2_000_000,
    accuracy_problems: int = 16,
    execute_code: bool = False,
    report: Callable[[str], None] = print,
) -> Path:
    """Train, or go on training, in `folder`; returns the finished model's Hugging Face folder.

    start_from: a model folder written by an earlier run, which a new one grows from (see `network.grow`); UserError for
    a run that has a checkpoint, which goes on without it. Every `validate_every` tokens the held-out loss of each
    domain is logged, in the last phase with the share of `accuracy_problems` validation problems a domain that block
    decoding (a token a pass, blocks of 8) answers exactly; code only if `execute_code` allows to run what the model
    wrote, in a limited subprocess. Raises UserError where the model cannot be compiled, unless compile is False.
    """
    folder.mkdir(parents=True, exist_ok=True)
    report("making problems for the tokenizer and the first steps" + ", compiling the model" * compile)
    tokenizer = _tokenizer(folder, config)
    torch.manual_seed(config.seed)
    network = new_network(config.size, tokenizer).to(device)
    optimisers = _optimisers(network, config)
    if start_from is not None:
        if (folder / CHECKPOINT).exists():
            raise UserError(
                f"The run in {str(folder)!r} has begun; leave --start-from out, or train in another folder."
            )
        smaller = Qwen3ForCausalLM.from_pretrained(start_from, dtype=torch.float32)
        grow(network, tokenizer, smaller, Tokenizer.from_file(str(start_from / "tokenizer.json")))
        _save(folder, network, optimisers, Progress())  # so that a run that is killed at once goes on from there
    progress = _restore(folder, network, optimisers)
    # Eager attention: its backward pass is twice as fast as the fused one at these sizes on a CPU.
    network.set_attn_implementation("eager")
    backbone = torch.compile(network.model, dynamic=True) if compile else network.model
    started, saved = time.monotonic() - progress.seconds, time.monotonic()
    first_tokens, first_time = progress.tokens, time.monotonic()
    next_validation = (progress.tokens // validate_every + 1) * validate_every
    recent: list[float] = []
    pad = special_token(tokenizer, EOS)

    while progress.tokens < config.total_tokens:
        phase = config.phase(progress.tokens)
        if phase != progress.phase:
            progress.phase, progress.index = phase, 0
            progress.pool += 1
        pool = pool_of_rows(
            tokenizer,
            phase,
            progress.pool,
            seed=config.seed,
            batch_tokens=config.batch_tokens,
            mix=config.mix,
            drill_share=config.drill_share,
        )
        for rows in pool[progress.index :]:
            share = progress.tokens / config.total_tokens
            rate = min(1.0, (progress.steps + 1) / config.warmup_steps, max(0.0, 1 - share) / config.decay)
            for optimiser in optimisers:
                for group in optimiser.param_groups:
                    group["lr"] = group["initial_lr"] * rate
            batch = collate(rows, pad, device)
            with _compile_errors():
                loss = nn.functional.cross_entropy(_predict(backbone, network, batch).float(), batch.targets)
                loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            for optimiser in optimisers:
                optimiser.step()
                optimiser.zero_grad(set_to_none=True)
            recent.append(float(loss.detach()))
            progress.tokens += sum(len(row.ids) for row in rows)
            progress.steps += 1
            progress.index += 1
            progress.seconds = time.monotonic() - started
            if progress.steps % 50 == 0 or first_tokens == progress.tokens - sum(len(row.ids) for row in rows):
                speed = (progress.tokens - first_tokens) / (time.monotonic() - first_time)
                left = (config.total_tokens - progress.tokens) / speed / 60
                entry = {
                    **asdict(progress), "loss": sum(recent) / len(recent), "rate": rate, "tokens_per_second": speed,
                }  # fmt: skip
                _log(folder, entry)
                report(
                    f"{phase:14s} step {progress.steps:6d}  {progress.tokens / 1e6:6.2f} of "
                    f"{config.total_tokens / 1e6:.1f}M tokens  loss {entry['loss']:.4f}  "
                    f"{speed:.0f} tokens/s  about {left:.0f} min left"
                )
                recent.clear()
            if progress.tokens >= next_validation:
                next_validation += validate_every
                figures = validate(network, tokenizer, phase, device)
                if phase == PHASES[-1] and accuracy_problems:
                    figures |= _accuracies(network, tokenizer, accuracy_problems, execute_code)
                _log(folder, {**asdict(progress), **figures})
                report(f"{phase:14s} held out: " + ", ".join(f"{k} {v:.4f}" for k, v in figures.items()))
            if time.monotonic() - saved > save_every:
                _save(folder, network, optimisers, progress)
                saved = time.monotonic()
            if config.phase(progress.tokens) != phase or progress.tokens >= config.total_tokens:
                break
        else:
            progress.pool, progress.index = progress.pool + 1, 0
    _save(folder, network, optimisers, progress)
    return export(network, tokenizer, folder / "model")


@contextmanager
def _compile_errors() -> Iterator[None]:
    """Ends with one sentence where a step cannot be compiled, which happens when it is first computed."""
    try:
        yield
    except TorchDynamoException as error:
        raise UserError(
            f"The model cannot be compiled here ({first_line(error)}); install a C++ compiler, or train it without: "
            f"--no-compile (compile=False)."
        ) from error


def _predict(backbone: Callable[..., Any], network: Qwen3ForCausalLM, batch: Batch) -> Tensor:
    """Logits (T, V) of the batch's targets, each read from the output one place before."""
    kind = batch.ids.device.type
    bias = torch.zeros(batch.attends.shape, dtype=torch.bfloat16, device=batch.ids.device)
    bias.masked_fill_(~batch.attends, torch.finfo(torch.bfloat16).min)
    with torch.autocast(kind, torch.bfloat16):
        hidden = backbone(
            input_ids=batch.ids, position_ids=batch.positions, attention_mask=bias
        ).last_hidden_state  # fmt: skip
        return network.lm_head(hidden[batch.places[:, 0], batch.places[:, 1]])


@torch.no_grad()
def validate(network: Qwen3ForCausalLM, tokenizer: Tokenizer, phase: str, device: str = "cpu") -> dict[str, float]:
    """Of each domain, the loss in nats a target and the share of 128 rows whose every target is the most probable.

    In the first phase the second figure is the share that greedy left-to-right decoding would reproduce exactly.
    """
    figures: dict[str, float] = {}
    for domain in DOMAINS:
        words = problems(domain, "validation", 128)
        rows = sorted(encode(tokenizer, words, phase, Random(7)), key=lambda row: len(row.ids))
        loss, count, exact = 0.0, 0, 0
        for start in range(0, len(rows), 16):
            chunk = rows[start : start + 16]
            batch = collate(chunk, special_token(tokenizer, EOS), device)
            logits = _predict(network.model, network, batch).float()
            loss += float(nn.functional.cross_entropy(logits, batch.targets, reduction="sum"))
            count += len(batch.targets)
            right = logits.argmax(-1) == batch.targets
            wrong = torch.bincount(batch.places[~right, 0].cpu(), minlength=len(chunk))
            exact += int((wrong == 0).sum())
        figures |= {f"{domain}_loss": loss / count, f"{domain}_exact": exact / len(rows)}
    return figures


def _accuracies(network: Qwen3ForCausalLM, tokenizer: Tokenizer, count: int, execute: bool) -> dict[str, float]:
    backbone = as_backbone(network, tokenizer)
    asked = [domain for domain in DOMAINS if execute or domain != "code"]
    figures = {
        f"{domain}_accuracy": measure_accuracy(
            backbone, Block(8), domain=domain, split="validation", count=count, execute_code=execute
        ).accuracy
        for domain in asked
    }
    network.train()
    return figures


def _tokenizer(folder: Path, config: TrainingConfig) -> Tokenizer:
    path = folder / "tokenizer.json"
    if not path.exists():
        texts: Iterator[str] = (
            f"{PROMPT_FORMAT.format(prompt=problem.question)}{problem.answer}"
            for domain, share in config.mix.items()
            for problem in problems(domain, "train", round(24_000 * share), start=500_000_000)
        )
        build_tokenizer(texts, config.size.vocabulary).save(str(path))
    return Tokenizer.from_file(str(path))


def _optimisers(network: nn.Module, config: TrainingConfig) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the layers, AdamW for the embedding and the norms."""
    matrices = [p for name, p in network.named_parameters() if p.ndim == 2 and "layers" in name]
    others = [p for name, p in network.named_parameters() if p.ndim != 2 or "layers" not in name]
    optimisers = [
        torch.optim.Muon(matrices, lr=config.muon_rate, weight_decay=config.weight_decay),
        torch.optim.AdamW(others, lr=config.adam_rate, betas=(0.9, 0.95), weight_decay=0.0),
    ]
    for optimiser in optimisers:
        for group in optimiser.param_groups:
            group["initial_lr"] = group["lr"]
    return optimisers


def _save(folder: Path, network: nn.Module, optimisers: list[torch.optim.Optimizer], progress: Progress) -> None:
    tensors = {f"model.{name}": p.detach().cpu().contiguous() for name, p in network.named_parameters()}
    for which, optimiser in enumerate(optimisers):
        for index, moments in optimiser.state_dict()["state"].items():
            tensors |= {f"optimiser.{which}.{index}.{k}": torch.as_tensor(v).cpu() for k, v in moments.items()}
    partial = folder / "checkpoint.partial"
    save_file(tensors, partial, {"progress": json.dumps(asdict(progress))})
    os.replace(partial, folder / CHECKPOINT)


def _restore(folder: Path, network: nn.Module, optimisers: list[torch.optim.Optimizer]) -> Progress:
    path = folder / CHECKPOINT
    if not path.exists():
        return Progress()
    with safe_open(path, "pt") as file:
        progress = Progress(**json.loads(file.metadata()["progress"]))
        with torch.no_grad():
            for name, parameter in network.named_parameters():
                parameter.copy_(file.get_tensor(f"model.{name}"))
        for which, optimiser in enumerate(optimisers):
            state: dict[int, dict[str, Tensor]] = {}
            for key in file.keys():  # noqa: SIM118 - a safetensors file is no mapping
                kind, *rest = key.split(".")
                if kind == "optimiser" and int(rest[0]) == which:
                    state.setdefault(int(rest[1]), {})[rest[2]] = file.get_tensor(key)
            groups = optimiser.state_dict()["param_groups"]
            optimiser.load_state_dict({"state": state, "param_groups": groups})
    return progress


def _log(folder: Path, entry: dict) -> None:
    with (folder / "log.jsonl").open("a") as file:
        file.write(json.dumps(entry) + "\n")
