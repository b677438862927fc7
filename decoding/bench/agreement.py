"""How much each prefix cache changes: tokens and accuracy beside the exact mode, on held-out problems.

    python -m dystruct.decoding.bench.agreement runs/agreement --problems 100 --execute-code

Ordinary evaluation runs, one a decoder and mode, in a folder each, that can be stopped and gone on with by the same
command; then what they have on record is compared, into a table and agreement.json. Tokens agree position by position
of the useful text, from the beginning to the end of the longer one; texts agree when all of their tokens do. Accuracies
come with Wilson intervals, their difference with McNemar's exact test on the items on which the two modes differ.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import zip_longest
from pathlib import Path

import torch
from scipy.stats import binomtest

from ..backbone import load, model_folder
from ..errors import UserError
from ..evaluation.local import Progress, run_local
from ..evaluation.run_record import key_of, read_traces
from ..evaluation.settings import RunSettings, identity
from ..evaluation.statistics import mcnemar
from ..files import check_file_target, save_json
from ..generation_settings import Caching
from ..wording import left
from .arguments import positive

DECODERS = {"dystruct": "dystruct:structure=sample,passes=share", "block": "block"}
MODES: dict[str, Caching] = {"exact": False, "cached": True, "appended": "append"}
CACHES = tuple(MODES)[1:]
TASKS = "tiny_maths,tiny_code,tiny_logic"


@dataclass(frozen=True)
class Agreement:
    """A decoder with and without a prefix cache, one of `CACHES`, on a task: shares in [0, 1], right of `items`.

    gain: how many times as fast the runs were with it, of the times that their items have on record.
    """

    decoder: str
    cache: str
    task: str
    items: int
    tokens: float
    texts: float
    exact_correct: int
    cached_correct: int
    only_exact: int
    only_cached: int
    p: float
    gain: float

    def __str__(self) -> str:
        exact, cached = (_share(correct, self.items) for correct in (self.exact_correct, self.cached_correct))
        return (
            f"{self.decoder:9} {self.cache:9} {self.task:11} {self.items:5} {100 * self.tokens:6.1f}% "
            f"{100 * self.texts:6.1f}%   {exact}   {cached}   {self.only_exact:3} : {self.only_cached:<3} "
            f"{self.p:6.3f} {self.gain:6.1f}"
        )


HEADER = (
    f"{'':31} {'items':>5} {'tokens':>7} {'texts':>7}   {'right, exact, %':<20}   {'with the cache':<20}   only one "
    f"{'p':>6} {'faster':>7}"
)


@dataclass(frozen=True)
class _Item:
    tokens: tuple[int, ...]
    right: bool
    seconds: float


def compared(decoder: str, cache: str, exact: Path, cached: Path) -> list[Agreement]:
    """What two runs of the same items came to, task by task and in all. Raises UserError if their items differ."""
    runs = [_items(folder) for folder in (exact, cached)]
    if runs[0].keys() != runs[1].keys() or not runs[0]:
        raise UserError(f"The runs in {str(exact)!r} and {str(cached)!r} have other items; finish both.")
    tasks = dict.fromkeys(key[0] for key in runs[0])
    told = partial(_agreement, decoder, cache)
    found = [told(task, *([run[key] for key in run if key[0] == task] for run in runs)) for task in tasks]
    return found if len(found) == 1 else [*found, told("all", *(list(run.values()) for run in runs))]


def _items(folder: Path) -> dict[tuple[str, int, int, int], _Item]:
    found = {}
    for item, trace in read_traces(folder):
        tokens = tuple(trace["tokens"][: trace["useful_tokens"]])
        found[key_of(item)] = _Item(tokens, bool(item["correct"]), item["seconds"])
    return dict(sorted(found.items()))


def _agreement(decoder: str, cache: str, task: str, exact: Sequence[_Item], cached: Sequence[_Item]) -> Agreement:
    pairs = [(a.tokens, b.tokens) for a, b in zip(exact, cached, strict=True)]
    same = [x == y for a, b in pairs for x, y in zip_longest(a, b)]
    test = mcnemar([item.right for item in exact], [item.right for item in cached])
    return Agreement(
        decoder=decoder,
        cache=cache,
        task=task,
        items=len(pairs),
        tokens=sum(same) / len(same) if same else 1.0,
        texts=sum(a == b for a, b in pairs) / len(pairs),
        exact_correct=test.first_right,
        cached_correct=test.second_right,
        only_exact=test.only_first,
        only_cached=test.only_second,
        p=test.p_exact,
        gain=sum(item.seconds for item in exact) / sum(item.seconds for item in cached),
    )


def _share(correct: int, items: int) -> str:
    low, high = binomtest(correct, items).proportion_ci(method="wilson")
    return f"{100 * correct / items:5.1f} [{100 * low:5.1f}, {100 * high:5.1f}]"


def _reporter(name: str) -> Callable[[Progress], None]:
    def report(progress: Progress) -> None:
        seconds = "" if progress.seconds_left is None else f", {left(progress.seconds_left)}"
        print(f"{name}: {progress.done} of {progress.count} done{seconds}", file=sys.stderr, flush=True)

    return report


def parser() -> argparse.ArgumentParser:
    """What the program takes."""
    found = argparse.ArgumentParser(prog="python -m dystruct.decoding.bench.agreement", description=__doc__)
    whole = partial(found.add_argument, type=positive)
    found.add_argument("folder", type=Path, help="where the runs live; those that stand there are gone on with")
    found.add_argument("--model", default="tiny", help="the embedded model, a folder or a Hub name (default tiny)")
    found.add_argument("--tasks", default=TASKS, help=f"default {TASKS}")
    found.add_argument("--execute-code", action="store_true", help="score code by running it, in a limited subprocess")
    found.add_argument("--decoders", nargs="+", default=list(DECODERS), choices=list(DECODERS), help="default both")
    found.add_argument("--caches", nargs="+", default=list(CACHES), choices=CACHES, help="default both")
    whole("--problems", default=100, help="held-out problems of each task (default 100)")
    whole("--max-new-tokens", default=256, help="and forward passes a problem at most (default 256)")
    whole("--batch-size", default=16, help="default 16")
    whole("--threads", default=torch.get_num_threads(), help="of torch (default: all)")
    return found


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"The folder {str(folder)!r} cannot be made ({error.strerror}); choose another one.") from error


def main(arguments: list[str] | None = None) -> None:
    """Run what is not on record yet, compare, print the table."""
    options = parser().parse_args(arguments)
    for name in ("decoders", "caches"):
        if len(set(getattr(options, name))) < len(getattr(options, name)):
            parser().error(f"--{name} names one of them twice; name each once")
    torch.set_num_threads(options.threads)
    results = options.folder / "agreement.json"
    try:
        _make_folder(options.folder)
        check_file_target(results)
        model = load(options.model)
        told = identity(model, model_folder(options.model))
        found: list[Agreement] = []
        for name in options.decoders:
            folders = {mode: options.folder / f"{name}-{mode}" for mode in ("exact", *options.caches)}
            for mode, folder in folders.items():
                settings = RunSettings(
                    decoder=DECODERS[name], tasks=tuple(options.tasks.split(",")), limit=options.problems,
                    max_new_tokens=options.max_new_tokens, budget=options.max_new_tokens,
                    batch_size=options.batch_size, prefix_cache=MODES[mode], execute_code=options.execute_code,
                )  # fmt: skip
                run_local(settings, model, told, folder, _reporter(folder.name))
            for mode in options.caches:
                found += compared(name, mode, folders["exact"], folders[mode])
    except UserError as error:
        parser().error(str(error))
    save_json(results, [asdict(one) for one in found])
    print("\n".join([HEADER, *map(str, found)]))


if __name__ == "__main__":
    main()
