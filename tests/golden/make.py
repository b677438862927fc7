"""Writes the golden files: what the original projects' own decoding functions give on the integer-hash denoiser.

Usage: PYTHONPATH=tests python -m golden.make FOLDER, where FOLDER holds checkouts of the originals, which are no part
of this project: LLaDA/generate.py, Fast-dLLM/llada/generate.py, AdaBlock-dLLM/llada/generate_adablock.py and
generate_baseline.py (its Fast-dLLM with the factor rule), AdaBlock-dLLM/dream/model/generation_utils.py (Dream's) and
generation_utils_adablock.py, DAEDAL/models/LLaDA_DAEDAL.py, dInfer/python/dinfer/decoding (Hierarchy-dLLM).
"""

from __future__ import annotations

import itertools
import json
import random
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from golden.originals import Anything, Denoiser, Unusable, empty_what_they_do_not_need, load, original
from scripted import EOS, MASK

HERE = Path(__file__).parent


def cases(count: int, seed: int, options: Callable[[random.Random], dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Cases drawn from a seed: a denoiser, a prompt, and what `options` adds."""
    draw = random.Random(seed)
    for _ in range(count):
        yield {
            "script": {
                "seed": draw.randrange(10**6),
                "spread": draw.choice([2, 4, 6, 8]),
                "end_bonus": draw.choice([-2.0, 0.0, 1.0]),
                "mask_bonus": draw.choice([-1024.0, -1024.0, -1.0, 0.5]),
            },
            "prompt": "".join(draw.choice("abcdefghij") for _ in range(draw.randint(1, 6))),
            "seed": draw.randrange(100),
            "temperature": draw.choice([0.0, 0.0, 0.5, 1.0]),
            **options(draw),
        }


def fixed(folder: Path) -> Iterator[tuple[dict[str, Any], list[int], int]]:
    turn = 5
    module = load(folder / "LLaDA/generate.py", "llada_generate", {"126081": str(EOS), "126348": str(turn)})

    def options(draw: random.Random) -> dict[str, Any]:
        length, block = draw.choice([(16, 16), (16, 4), (24, 8), (24, 6), (20, 5), (32, 32)])
        random_ranks = draw.random() < 0.25
        deferring = not random_ranks and draw.random() < 0.3
        settings: dict[str, Any] = {
            "block_length": block,
            "steps": draw.randint(1, block) * (length // block),
            "guidance": draw.choice([0.0, 0.0, 0.5, 2.0]),
            "remasking": "random" if random_ranks else "low_confidence",
        }
        if deferring:
            settings |= {"defer_eos": True, "end_of_turn": turn}
        elif draw.random() < 0.2:
            settings["suppress_eos"] = True
        return {"max_new_tokens": length, "settings": settings}

    for case in cases(72, 1, options):
        denoiser, given = Denoiser(case), case["settings"]
        with original(module, denoiser):
            found = module.generate(
                denoiser, denoiser.inputs, torch.ones_like(denoiser.inputs), steps=given["steps"],
                gen_length=case["max_new_tokens"], block_length=given["block_length"], temperature=case["temperature"],
                cfg_scale=given["guidance"], remasking=given["remasking"], mask_id=MASK,
                logits_eos_inf=given.get("suppress_eos", False), confidence_eos_eot_inf=given.get("defer_eos", False),
            )  # fmt: skip
        yield case, found[0, len(denoiser.prompt) :].tolist(), denoiser.passes


def fast(folder: Path) -> Iterator[tuple[dict[str, Any], list[int], int]]:
    thresholds = load(folder / "Fast-dLLM/llada/generate.py", "fast_generate", {})
    factors = load(folder / "AdaBlock-dLLM/llada/generate_baseline.py", "fast_generate_factor", {})

    def options(draw: random.Random) -> dict[str, Any]:
        length, block = draw.choice([(16, 16), (16, 4), (24, 8), (24, 6), (20, 5), (32, 32)])
        rule = {"factor": draw.choice([0.5, 1.0, 1.5, 2.0])} if draw.random() < 0.45 else {
            "threshold": draw.choice([0.3, 0.5, 0.7, 0.9, 0.95])
        }  # fmt: skip
        return {"max_new_tokens": length, "settings": {"block_length": block, **rule}}

    for case in cases(96, 2, options):
        denoiser, given = Denoiser(case), case["settings"]
        module = factors if "factor" in given else thresholds
        keywords = {"factor": given["factor"]} if "factor" in given else {"threshold": given["threshold"]}
        try:
            with original(module, denoiser):
                found, _ = module.generate(
                    denoiser, denoiser.inputs, steps=case["max_new_tokens"], gen_length=case["max_new_tokens"],
                    block_length=given["block_length"], temperature=case["temperature"], mask_id=MASK, **keywords,
                )  # fmt: skip
        except Unusable:
            continue
        yield case, found[0, len(denoiser.prompt) :].tolist(), denoiser.passes


def _dream_settings(case: dict[str, Any], denoiser: Denoiser, **more: Any) -> Any:
    return SimpleNamespace(
        output_history=False, return_dict_in_generate=False, temperature=case["temperature"], mask_token_id=MASK,
        max_length=len(denoiser.prompt) + case["max_new_tokens"],
        **{"steps": 1, "eps": 1e-3, "alg": None, "alg_temp": None, "top_p": None, "top_k": None, **more},
    )  # fmt: skip


def _dream_model(module: types.ModuleType, denoiser: Denoiser) -> Any:
    def call(self: Any, *arguments: Any, **keywords: Any) -> Any:
        return denoiser(*arguments, **keywords)

    kind = type("Model", (module.DreamGenerationMixin,), {"__call__": call, "device": denoiser.device})
    return kind()


def dream(folder: Path) -> Iterator[tuple[dict[str, Any], list[int], int]]:
    module = load(folder / "AdaBlock-dLLM/dream/model/generation_utils.py", "dream_generation", {})

    def options(draw: random.Random) -> dict[str, Any]:
        alg = draw.choice(["origin", "maskgit_plus", "topk_margin", "entropy", "entropy"])
        length = draw.choice([9, 16, 24, 32])
        return {
            "max_new_tokens": length,
            "settings": {
                "alg": alg,
                "steps": draw.choice([1, 3, 5, 8, length, length + 7]),
                "alg_temp": None if alg == "origin" else draw.choice([None, None, 0.1, 1.0]),
                "top_p": draw.choice([None, None, 0.7, 0.95]),
                "top_k": draw.choice([None, None, 2, 4]),
                "eps": draw.choice([1e-3, 1e-3, 0.1]),
            },
        }

    for case in cases(160, 3, options):
        denoiser, given = Denoiser(case, shifted=True), case["settings"]
        try:
            with original(module, denoiser), mock.patch.object(module.dists, "Categorical", denoiser.categorical):
                found = module.DreamGenerationMixin._sample(
                    _dream_model(module, denoiser), denoiser.inputs, None, _dream_settings(case, denoiser, **given),
                    lambda step, x, logits: x, lambda step, x, logits: logits,
                )  # fmt: skip
        except Unusable:
            continue
        yield case, found[0, len(denoiser.prompt) :].tolist(), denoiser.passes


def daedal(folder: Path) -> Iterator[tuple[dict[str, Any], list[int], int]]:
    module = load(folder / "DAEDAL/models/LLaDA_DAEDAL.py", "daedal_generate", {})

    def options(draw: random.Random) -> dict[str, Any]:
        return {
            "max_new_tokens": draw.choice([12, 20, 28, 40]),
            "settings": {
                "initial_length": draw.choice([4, 8, 12]),
                "block_length": draw.choice([4, 6, 16]),
                "high": draw.choice([0.5, 0.7, 0.9]),
                "low": draw.choice([0.1, 0.3, 0.45]),
                "expansion": draw.choice([2, 4, 8]),
                "eos_threshold": draw.choice([0.1, 0.3, 0.5]),
                "expand_eos_threshold": draw.choice([0.4, 0.6, 0.9]),
                "eos_check_tokens": draw.choice([3, 4, 8]),
            },
        }

    for case in cases(72, 4, options):
        case["script"]["end_bonus"] += 2.0
        denoiser, given = Denoiser(case), case["settings"]
        if given["initial_length"] > case["max_new_tokens"]:
            continue
        with original(module, denoiser):
            (found,) = module.generate(
                denoiser, denoiser.inputs, None, initial_gen_length=given["initial_length"],
                max_gen_length=case["max_new_tokens"], block_length=given["block_length"],
                temperature=case["temperature"], high_conf_threshold=given["high"], low_conf_threshold=given["low"],
                expansion_factor=given["expansion"], mask_id=MASK, eos_token_id=EOS,
                eos_confidence_threshold=given["eos_threshold"],
                expand_eos_confidence_threshold=given["expand_eos_threshold"],
                eos_check_tokens=given["eos_check_tokens"],
            )  # fmt: skip
        yield case, found[len(denoiser.prompt) :].tolist(), denoiser.passes


def adablock(folder: Path) -> Iterator[tuple[dict[str, Any], list[int], int]]:
    delimiters = [3, 4, 8]
    llada = load(folder / "AdaBlock-dLLM/llada/generate_adablock.py", "adablock_llada", {})
    dreaming = load(
        folder / "AdaBlock-dLLM/dream/model/generation_utils_adablock.py", "adablock_dream",
        {"delimiter_ids = [198,": f"delimiter_ids = {str(delimiters)[:-1]},"},
    )  # fmt: skip

    def options(draw: random.Random) -> dict[str, Any]:
        return {
            "max_new_tokens": draw.choice([12, 24, 40]),
            "shifted": draw.random() < 0.4,
            "settings": {
                "block_length": draw.choice([3, 6, 10]),
                "threshold": draw.choice([0.5, 0.7, 0.9, 1.0]),
                "delimiter_threshold": draw.choice([0.2, 0.3, 0.5, 0.8]),
                "delimiter_ids": delimiters,
            },
        }

    for case in cases(80, 5, options):
        if case["shifted"]:
            case["temperature"] = 0.0  # there its confidences are tempered, unlike its LLaDA version's
        denoiser, given = Denoiser(case, shifted=case["shifted"]), case["settings"]
        try:
            if case["shifted"]:
                settings = _dream_settings(case, denoiser, alg="confidence_threshold")
                with original(dreaming, denoiser):
                    found = dreaming.DreamGenerationMixin._sample_adablock(
                        _dream_model(dreaming, denoiser), denoiser.inputs, None, settings, threshold=given["threshold"],
                        block_length=given["block_length"], delimiter_threshold=given["delimiter_threshold"],
                    )  # fmt: skip
            else:
                with original(llada, denoiser):
                    found, _, _ = llada.generate_adablock(
                        denoiser, denoiser.inputs, gen_length=case["max_new_tokens"], mask_id=MASK,
                        init_block_length=given["block_length"], temperature=case["temperature"],
                        threshold=given["threshold"], delimiter_ids=delimiters,
                        delimiter_threshold=given["delimiter_threshold"],
                    )  # fmt: skip
        except Unusable:
            continue
        yield case, found[0, len(denoiser.prompt) :].tolist(), denoiser.passes


def hierarchy(folder: Path) -> Iterator[tuple[dict[str, Any], list[int], int]]:
    home = folder / "dInfer/python/dinfer/decoding"
    sys.modules["dinfer_decoding"] = types.ModuleType("dinfer_decoding")
    sys.modules["dinfer_decoding"].__path__ = []
    with mock.patch.object(torch, "compile", return_value=Anything()):
        utilities = load(home / "utils.py", "dinfer_decoding.utils", {})
        module = load(home / "parallel_strategy.py", "dinfer_decoding.parallel_strategy", {})
        driver = load(home / "generate_hierarchy.py", "dinfer_decoding.generate_hierarchy", {})

    def options(draw: random.Random) -> dict[str, Any]:
        length, block = draw.choice([(16, 16), (16, 4), (24, 8), (24, 6), (20, 10), (32, 32)])
        low = draw.choice([0.3, 0.4, 0.62])
        return {
            "max_new_tokens": length,
            "rule": draw.choice(["function", "class", "remask", "remask"]),
            "settings": {
                "block_length": block,
                "low": low,
                "high": draw.choice([None, 0.7, 0.82, 0.92]),
                "remask": None,
            },
        }

    for case in cases(96, 6, options):
        denoiser, given, rule = Denoiser(case), case["settings"], case.pop("rule")
        if rule == "remask":
            given["remask"] = random.Random(case["seed"]).choice([0.3, 0.4, 0.6])
        if rule == "function" and given["high"] is None:
            rule = "class"  # without a threshold the function decodes by quotas
        start, size = len(denoiser.prompt), given["block_length"]

        def noisy(logits: Tensor, temperature: float, denoiser: Denoiser = denoiser) -> Tensor:
            """Theirs looks at the block alone, so its noise has to be the block's."""
            first = noisy.first
            noise = denoiser.gumbel()[:, first : first + logits.shape[1]]
            return logits.double() / temperature + noise

        try:
            with original(module, denoiser), original(utilities, denoiser), original(driver, denoiser), \
                    mock.patch.object(module, "add_gumbel_noise", noisy):  # fmt: skip
                x = torch.cat((denoiser.inputs, torch.full((1, case["max_new_tokens"]), MASK)), dim=1)
                if rule == "function" and case["temperature"] == 0:
                    x, _ = driver.generate_hierarchy(
                        denoiser, denoiser.inputs, steps=case["max_new_tokens"], gen_length=case["max_new_tokens"],
                        block_length=size, temperature=0.0, mask_id=MASK, decoding="hierarchy_fast_v2",
                        threshold=given["high"], low_threshold=given["low"],
                    )  # fmt: skip
                else:
                    # The driver cannot call its remasking function (it hands over one argument too many).
                    decoder = module.HierarchyDecoder(
                        case["temperature"], mask_id=MASK, eos_id=EOS, threshold=given["high"],
                        low_threshold=given["low"],
                    )  # fmt: skip
                    for first in range(start, x.shape[1], size):
                        noisy.first = first
                        while (x[:, first : first + size] == MASK).any():
                            logits = denoiser(x).logits[:, first : first + size]
                            if rule == "remask":
                                block = x[:, first : first + size]
                                tokens, chosen = module.get_transfer_index_hierarchy_remask(
                                    logits, case["temperature"], block == MASK, block, None, MASK, given["high"],
                                    given["low"], given["remask"],
                                )  # fmt: skip
                                block[chosen] = tokens[chosen]
                            else:
                                decoder.decode(logits, first, first + size, x)
        except Unusable:
            continue
        yield case, x[0, start:].tolist(), denoiser.passes


def main(folder: Path) -> None:
    empty_what_they_do_not_need()
    torch.set_num_threads(1)
    for make in (fixed, fast, dream, daedal, adablock, hierarchy):
        found = [
            json.dumps({**case, "tokens": tokens, "passes": passes})
            for case, tokens, passes in itertools.islice(make(folder), 60)
        ]
        (HERE / f"{make.__name__}.json").write_text("[\n" + ",\n".join(found) + "\n]\n", encoding="utf-8")
        print(make.__name__, len(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
