"""Train the embedded model: next-token prediction first, then LLaDA's masked objective with shifted logits.

The model is transformers' Qwen3 with tied embeddings. In the first phase it attends causally; in the second in
both directions, and position i is still predicted from the output at i-1 (Dream's recipe), so what the
first phase learnt carries over. One learning-rate schedule spans both: warm up, hold, drop to zero.

A run lives in one folder: `checkpoint.safetensors` (weights, optimiser moments and, as metadata, the
counters), `tokenizer.json`, `log.jsonl`, and at the end the Hugging Face folder `model/`. Killed at any moment
it goes on from its last checkpoint; every batch is a function of (seed, phase, pool).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from dystruct.model import EvidenceWeights

from ..backbone import Backbone
from ..baselines import Block
from .accuracy import measure_accuracy
from .problems import Drill, Problem, drills, problems
from .rows import Row, autoregressive_row, drill_row, masked_row
from .tokenization import EOS, MASK, build_tokenizer

PROMPT_FORMAT = "{prompt}\n"


@dataclass(frozen=True)
class TrainingConfig:
    """What a training run is made of. Sizes in tokens, rates per step."""

    width: int = 192
    layers: int = 6
    intermediate: int = 512
    head: int = 32
    vocabulary: int = 2048
    autoregressive_tokens: int = 12_400_000
    masked_tokens: int = 11_200_000
    batch_tokens: int = 5_000
    drill_share: float = 0.45  # of the tokens, in the first phase; half of it in the second
    decay: float = 0.35  # the last part of all tokens, over which the learning rates drop to zero
    warmup_steps: int = 60
    muon_rate: float = 0.02
    adam_rate: float = 4e-3
    weight_decay: float = 0.01
    seed: int = 0

    @property
    def total_tokens(self) -> int:
        return self.autoregressive_tokens + self.masked_tokens


@dataclass
class Progress:
    """Where a run stands: tokens seen, steps taken, and the next batch as (phase, pool, index in the pool)."""

    tokens: int = 0
    steps: int = 0
    phase: str = "autoregressive"
    pool: int = 0
    index: int = 0
    seconds: float = 0.0


def train(
    folder: Path,
    config: TrainingConfig,
    *,
    device: str = "cpu",
    compile: bool = True,
    save_every: float = 240.0,
    validate_every: int = 2_000_000,
    accuracy_problems: int = 32,
    report: Callable[[str], None] = print,
) -> Path:
    """Train, or go on training, in `folder`; returns the finished model's Hugging Face folder.

    Every `validate_every` tokens the held-out loss is logged, in the masked phase with the share of
    `accuracy_problems` validation problems that block decoding (a token a pass, blocks of 8) answers exactly.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer(folder, config)
    torch.manual_seed(config.seed)
    model = new_model(config, tokenizer).to(device)
    optimisers = _optimisers(model, config)
    progress = _restore(folder, model, optimisers)
    backbone = torch.compile(model.model, dynamic=True) if compile else model.model
    started, saved = time.monotonic() - progress.seconds, time.monotonic()
    first_tokens, first_time = progress.tokens, time.monotonic()
    next_validation = (progress.tokens // validate_every + 1) * validate_every
    recent: list[float] = []

    while progress.tokens < config.total_tokens:
        phase = "autoregressive" if progress.tokens < config.autoregressive_tokens else "masked"
        if phase != progress.phase:
            progress.phase, progress.index = phase, 0
            progress.pool += 1
        pool = pool_of_batches(tokenizer, config, phase, progress.pool)
        for rows in pool[progress.index :]:
            share = progress.tokens / config.total_tokens
            rate = min(1.0, (progress.steps + 1) / config.warmup_steps, max(0.0, 1 - share) / config.decay)
            for optimiser in optimisers:
                for group in optimiser.param_groups:
                    group["lr"] = group["initial_lr"] * rate
            loss = _loss(backbone, model, rows, phase, tokenizer, device)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for optimiser in optimisers:
                optimiser.step()
                optimiser.zero_grad(set_to_none=True)
            recent.append(float(loss.detach()))
            progress.tokens += sum(len(row.ids) for row in rows)
            progress.steps += 1
            progress.index += 1
            progress.seconds = time.monotonic() - started
            if progress.steps % 50 == 0:
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
                figures = validate(model, tokenizer, config, phase, device)
                if phase == "masked":
                    backbone_now = as_backbone(model, tokenizer)
                    figures["held_out_accuracy"] = measure_accuracy(
                        backbone_now, Block(8), split="validation", count=accuracy_problems
                    ).accuracy
                    model.train()
                _log(folder, {**asdict(progress), **figures})
                report(f"{phase:14s} held out: " + ", ".join(f"{k} {v:.4f}" for k, v in figures.items()))
            if time.monotonic() - saved > save_every:
                _save(folder, model, optimisers, progress)
                saved = time.monotonic()
            if progress.tokens >= config.total_tokens or (
                phase == "autoregressive" and progress.tokens >= config.autoregressive_tokens
            ):
                break
        else:
            progress.pool, progress.index = progress.pool + 1, 0
    _save(folder, model, optimisers, progress)
    return export(model, tokenizer, folder / "model")


def new_model(config: TrainingConfig, tokenizer: Tokenizer) -> Qwen3ForCausalLM:
    """A randomly initialised model of the configured size."""
    eos = tokenizer.token_to_id(EOS)
    settings = Qwen3Config(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=config.width,
        intermediate_size=config.intermediate,
        num_hidden_layers=config.layers,
        num_attention_heads=config.width // config.head,
        num_key_value_heads=config.width // config.head,
        head_dim=config.head,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        use_cache=False,
        eos_token_id=eos,
        pad_token_id=eos,
        bos_token_id=None,
    )
    settings.is_causal = False
    settings.mask_token_id = tokenizer.token_to_id(MASK)
    settings.shifted_logits = True
    settings.prompt_format = PROMPT_FORMAT
    return Qwen3ForCausalLM(settings)


def pool_of_batches(tokenizer: Tokenizer, config: TrainingConfig, phase: str, pool: int) -> list[list[Row]]:
    """The batches of one pool of examples: rows of like length together, about `batch_tokens` a batch."""
    rng = Random(f"{config.seed} {phase} {pool}")
    size = 2048
    words = problems("train", size, start=pool * size)
    rows = _encode(tokenizer, words, phase, rng)
    share = config.drill_share * (1.0 if phase == "autoregressive" else 0.5)
    wanted = share / (1 - share) * sum(len(row.ids) for row in rows)
    for row in _encode_drills(tokenizer, drills(pool, 2 * size), phase, rng):
        if wanted <= 0:
            break
        rows.append(row)
        wanted -= len(row.ids)
    rows.sort(key=lambda row: len(row.ids))
    batches: list[list[Row]] = [[]]
    for row in rows:
        if (len(batches[-1]) + 1) * len(row.ids) > config.batch_tokens:
            batches.append([])
        batches[-1].append(row)
    rng.shuffle(batches)
    return batches


def _encode(tokenizer: Tokenizer, examples: list[Problem], phase: str, rng: Random) -> list[Row]:
    prompts = tokenizer.encode_batch([PROMPT_FORMAT.format(prompt=example.question) for example in examples])
    answers = tokenizer.encode_batch([example.answer for example in examples])
    eos, mask = _special(tokenizer, EOS), _special(tokenizer, MASK)
    pairs = zip(prompts, answers, strict=True)
    if phase == "autoregressive":
        return [autoregressive_row(prompt.ids, answer.ids, eos) for prompt, answer in pairs]
    return [masked_row(prompt.ids, answer.ids, eos, mask, rng) for prompt, answer in pairs]


def _special(tokenizer: Tokenizer, token: str) -> int:
    found = tokenizer.token_to_id(token)
    assert found is not None, f"the tokenizer has no {token}"
    return found


def _encode_drills(tokenizer: Tokenizer, examples: Iterator[Drill], phase: str, rng: Random) -> Iterator[Row]:
    mask = tokenizer.token_to_id(MASK) if phase == "masked" else None
    for example in examples:
        encoding = tokenizer.encode(example.text)
        places = [
            [i for i, (a, b) in enumerate(encoding.offsets) if start <= a and b <= end]
            for start, end in example.results
        ]
        yield drill_row(encoding.ids, places, mask, rng)


def _loss(backbone, model, rows: list[Row], phase: str, tokenizer: Tokenizer, device: str) -> Tensor:
    """Mean negative log likelihood in nats of the rows' targets, each read from the output one position before."""
    logits, targets = _predict(backbone, model, rows, phase, tokenizer, device)
    return nn.functional.cross_entropy(logits.float(), targets)


def _predict(backbone, model, rows, phase, tokenizer, device) -> tuple[Tensor, Tensor]:
    length = max(len(row.ids) for row in rows)
    ids = torch.full((len(rows), length), tokenizer.token_to_id(EOS))
    labels = torch.full((len(rows), length), -100)
    valid = torch.zeros(len(rows), length, dtype=torch.bool)
    for i, row in enumerate(rows):
        ids[i, : len(row.ids)] = torch.tensor(row.ids)
        labels[i, : len(row.ids)] = torch.tensor(row.labels)
        valid[i, : len(row.ids)] = True
    attends = valid[:, None, None, :].expand(-1, 1, length, -1)
    if phase == "autoregressive":
        attends = attends & torch.ones(length, length, dtype=torch.bool).tril()
    places = (labels[:, 1:] != -100).nonzero()
    targets = labels[:, 1:][places[:, 0], places[:, 1]].to(device)
    with torch.autocast(device.split(":")[0], torch.bfloat16):
        hidden = backbone(input_ids=ids.to(device), attention_mask=attends.contiguous().to(device)).last_hidden_state
        return model.lm_head(hidden[places[:, 0].to(device), places[:, 1].to(device)]), targets


@torch.no_grad()
def validate(model, tokenizer: Tokenizer, config: TrainingConfig, phase: str, device: str) -> dict[str, float]:
    """Held-out loss, and the share of 256 worked answers of which every target is the most probable token.

    In the first phase the second figure is the share that greedy left-to-right decoding would reproduce exactly.
    """
    words = problems("validation", 256)
    rows = sorted(_encode(tokenizer, words, phase, Random(7)), key=lambda row: len(row.ids))
    loss, count, exact = 0.0, 0, 0
    for start in range(0, len(rows), 32):
        chunk = rows[start : start + 32]
        logits, targets = _predict(model.model, model, chunk, phase, tokenizer, device)
        loss += float(nn.functional.cross_entropy(logits.float(), targets, reduction="sum"))
        count += len(targets)
        right = (logits.argmax(-1) == targets).tolist()
        for row in chunk:
            size = sum(label != -100 for label in row.labels[1:])
            exact += all(right[:size])
            right = right[size:]
    return {"held_out_loss": loss / count, "held_out_exact": exact / len(rows)}


def as_backbone(model: Qwen3ForCausalLM, tokenizer: Tokenizer) -> Backbone:
    """The model in training as the decoders take it, without calibrated weights."""
    model.eval()
    return Backbone(
        name="in training",
        network=model,
        tokenizer=PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=EOS, pad_token=EOS, mask_token=MASK),
        mask_id=model.config.mask_token_id,
        eos_id=model.config.eos_token_id,
        shifted=True,
        max_length=model.config.max_position_embeddings,
        weights=EvidenceWeights.neutral(),
        calibrated=False,
        prompt_format=PROMPT_FORMAT,
    )


def export(model: Qwen3ForCausalLM, tokenizer: Tokenizer, folder: Path) -> Path:
    """Write an ordinary Hugging Face folder: weights in bfloat16, config, generation config, tokenizer."""
    copy = Qwen3ForCausalLM(model.config)
    copy.load_state_dict(model.state_dict())
    copy.generation_config.eos_token_id = copy.generation_config.pad_token_id = model.config.eos_token_id
    copy.to(torch.bfloat16).save_pretrained(folder)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=EOS, pad_token=EOS, mask_token=MASK, model_max_length=1024
    ).save_pretrained(folder)
    return folder


def _tokenizer(folder: Path, config: TrainingConfig) -> Tokenizer:
    path = folder / "tokenizer.json"
    if not path.exists():
        words = problems("train", 12_000, start=500_000_000)
        texts: Iterator[str] = (f"{PROMPT_FORMAT.format(prompt=word.question)}{word.answer}" for word in words)
        build_tokenizer(texts, config.vocabulary).save(str(path))
    return Tokenizer.from_file(str(path))


def _optimisers(model: nn.Module, config: TrainingConfig) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the layers, AdamW for the embedding and the norms."""
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and "layers" in name]
    others = [p for name, p in model.named_parameters() if p.ndim != 2 or "layers" not in name]
    optimisers = [
        torch.optim.Muon(matrices, lr=config.muon_rate, weight_decay=config.weight_decay),
        torch.optim.AdamW(others, lr=config.adam_rate, betas=(0.9, 0.95), weight_decay=0.0),
    ]
    for optimiser in optimisers:
        for group in optimiser.param_groups:
            group["initial_lr"] = group["lr"]
    return optimisers


def _save(folder: Path, model: nn.Module, optimisers: list[torch.optim.Optimizer], progress: Progress) -> None:
    tensors = {f"model.{name}": p.detach().cpu().contiguous() for name, p in model.named_parameters()}
    for which, optimiser in enumerate(optimisers):
        for index, moments in optimiser.state_dict()["state"].items():
            tensors |= {f"optimiser.{which}.{index}.{k}": torch.as_tensor(v).cpu() for k, v in moments.items()}
    partial = folder / "checkpoint.partial"
    save_file(tensors, partial, {"progress": json.dumps(asdict(progress))})
    os.replace(partial, folder / "checkpoint.safetensors")


def _restore(folder: Path, model: nn.Module, optimisers: list[torch.optim.Optimizer]) -> Progress:
    path = folder / "checkpoint.safetensors"
    if not path.exists():
        return Progress()
    with safe_open(path, "pt") as file:
        progress = Progress(**json.loads(file.metadata()["progress"]))
        with torch.no_grad():
            for name, parameter in model.named_parameters():
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
