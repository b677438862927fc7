"""lm-evaluation-harness's model class `dystruct`: any of our models with any of our decoders, by model arguments.

Importing this module registers it. `generate_until` decodes with the decoder, ends texts at the end token and before
the task's stop strings; `loglikelihood` is LLaDA's Monte Carlo estimate (see `likelihood`), which no decoder changes.

Texts do not depend on the batch size. That is tested in float32 on a CPU: in bfloat16, or on a GPU, sums may differ in
their last digits with the size of a batch, so that a near tie between two tokens can fall otherwise.

The harness's own generation arguments but for `until` are not used: how long a text may get and at which temperature it
is decoded are model arguments here, the same for all tasks. A task that asks for another temperature is an error.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import torch
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.api.registry import register_model

from ..backbone import Backbone, load
from ..backbone.placing import out_of_memory
from ..backbone.prompt_format import with_prompt_format
from ..engine import Finished
from ..errors import UserError
from ..generation import generate
from ..generation_settings import Caching
from ..parallel import PATIENCE, process_count
from ..trace import Generation
from .likelihood import LikelihoodSettings, is_greedy, log_likelihood
from .settings import RunSettings

BATCH_SIZE = 8
Members = Sequence[tuple[int, int]]  # numbers of requests, and which repeat of it each is


class Records(Protocol):
    """Where results go as they come, and where those of an earlier attempt are found.

    place: which of a document's requests it is: the repeat of a text, the number of a choice.
    """

    def expect(self, count: int) -> None:
        """So many requests are to be answered now, those known among them."""

    def text(self, request: Instance, place: int) -> str | None:
        """The text on record, None where there is none."""

    def add_text(self, request: Instance, place: int, generation: Generation, seconds: float) -> None:
        """Put a text on record, which took so many seconds."""

    def likelihood(self, request: Instance, place: int) -> tuple[float, bool] | None:
        """The log likelihood on record, None where there is none."""

    def add_likelihood(self, request: Instance, place: int, value: float, greedy: bool) -> None:
        """Put a log likelihood on record."""


@register_model("dystruct")
class DystructLM(LM):
    """A masked diffusion language model as the harness sees it.

    pretrained: as for `load` ("tiny", a folder, a name on the Hub), or a loaded Backbone. decoder: a decoder's name;
    its settings are further arguments, as in decoder=dystruct,structure=sample,passes=share, or stand behind a colon
    where they come from Python. max_new_tokens, budget, temperature, seed, prefix_cache: as for `generate`. device,
    dtype, revision, weights, device_map, prompt_format: as for `load`. mc_samples, mc_batch_size, mc_guidance,
    check_greedy: of the likelihood. Raises UserError for arguments that the decoder has no use for.
    """

    def __init__(
        self,
        pretrained: str | Backbone = "tiny",
        decoder: str = "dystruct",
        max_new_tokens: int = 256,
        budget: int = 256,
        temperature: float = 0.0,
        seed: int = 0,
        batch_size: int | str | None = None,
        prefix_cache: Caching = False,
        device: str | None = None,
        dtype: str | None = None,
        revision: str | None = None,
        weights: str | None = None,
        device_map: str | None = None,
        prompt_format: str | None = None,
        mc_samples: int = 128,
        mc_batch_size: int = 32,
        mc_guidance: float = 0.0,
        check_greedy: bool = True,
        max_batch_size: int | None = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        del max_batch_size  # the harness hands it over whatever the model; batches have the one size here
        listed = ",".join(name if value is True else f"{name}={value}" for name, value in settings.items())
        self.settings = RunSettings(
            decoder=f"{decoder}{',' if ':' in decoder else ':'}{listed}" if listed else decoder,
            tasks=("harness",),
            max_new_tokens=max_new_tokens,
            budget=budget,
            temperature=float(temperature),
            seeds=(seed,),
            batch_size=int(str(batch_size)) if str(batch_size).isdigit() else BATCH_SIZE,  # the harness may say auto
            prefix_cache=prefix_cache,
            prompt_format=prompt_format,
        )
        self.decoder = self.settings.with_decoder()
        self.likelihood = LikelihoodSettings(
            int(mc_samples), int(mc_batch_size), float(mc_guidance), bool(check_greedy)
        )
        self._parallel: Any = None
        if isinstance(pretrained, Backbone):
            self.model = pretrained
        else:
            self.model = load(
                pretrained, device=own_device(device), dtype=dtype, revision=revision, weights=weights,
                device_map=device_map,
            )  # fmt: skip
        self.model = with_prompt_format(self.model, prompt_format)
        if process_count() > 1:
            self._join()
        self._device = self.model.device
        self.records: Records | None = None

    # --- what the harness asks for ------------------------------------------------------------------------------

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """The text for each request, decoded in batches of the same stop strings; what is known already is left out."""
        texts: dict[int, str] = {}
        groups: dict[tuple[str, ...], list[tuple[int, int]]] = {}
        asked: dict[tuple[Any, ...], int] = {}
        first: dict[tuple[Any, ...], int] = {}
        filling: list[tuple[int, tuple[Any, ...]]] = []  # repeats that make the shares of several processes equal
        if self.records is not None:
            self.records.expect(len(requests))
        for number, request in enumerate(requests):
            place = (request.task_name, request.doc_id, request.idx)
            repeat = asked[place] = asked.get(place, -1) + 1
            if repeat >= (request.repeats or 1):
                filling.append((number, place))
                continue
            known = None if self.records is None else self.records.text(request, repeat)
            first.setdefault(place, number)
            if known is not None:
                texts[number] = known
            else:
                groups.setdefault(self._stops(request), []).append((number, repeat))
        for stop, members in groups.items():
            for group in _groups(members, self.settings.together):

                def finished(place: int, generation: Generation, seconds: float, group: Members = group) -> None:
                    number, repeat = group[place]
                    texts[number] = generation.text
                    if self.records is not None:
                        self.records.add_text(requests[number], repeat, generation, seconds)
                    self.cache_hook.add_partial("generate_until", requests[number].args, generation.text)

                self._generate([requests[number].args[0] for number, _ in group], stop, finished)
        texts |= {number: texts[first[place]] for number, place in filling}
        return [texts[number] for number in range(len(requests))]

    def loglikelihood(self, requests: list[Instance], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """The estimate in nats for each (context, continuation), and whether greedy decoding would give it."""

        def estimate(request: Instance) -> tuple[float, bool]:
            found = self._likelihood(*request.args, greedy=self.likelihood.greedy)
            self.cache_hook.add_partial("loglikelihood", request.args, found)
            return found

        return self._on_record(requests, estimate)

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:
        """The estimate in nats for each whole text. Texts longer than the context are an error."""

        def estimate(request: Instance) -> tuple[float, bool]:
            found = self._likelihood("", *request.args, greedy=False)
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, found[0])
            return found

        return [value for value, _ in self._on_record(requests, estimate)]

    # --- chat templates -----------------------------------------------------------------------------------------

    @property
    def tokenizer_name(self) -> str:
        """What the harness files cached requests under."""
        return self.model.name.replace("/", "__")

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        """The model's template, for the record. Raises UserError for a model without one."""
        if not chat_template:
            return ""
        self.model.encode("a", chat=True)
        return str(self.model.tokenizer.chat_template)

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """A conversation as the model's template writes it."""
        return str(
            self.model.tokenizer.apply_chat_template(
                chat_history, tokenize=False, add_generation_prompt=add_generation_prompt,
                continue_final_message=not add_generation_prompt,
            )
        )  # fmt: skip

    # --- data parallel, as accelerate launches it ---------------------------------------------------------------

    def _join(self) -> None:
        try:
            from accelerate import Accelerator, InitProcessGroupKwargs
        except ImportError as error:
            raise UserError(
                "Several processes need accelerate; install it with: pip install 'dystruct[accelerate]'."
            ) from error
        waiting = InitProcessGroupKwargs(timeout=PATIENCE)
        self._parallel = Accelerator(cpu=self.model.device.type == "cpu", kwargs_handlers=[waiting])
        self._rank, self._world_size = self._parallel.process_index, self._parallel.num_processes

    def all_gather(self, tensor: Any) -> Any:
        """A tensor of every process, put together."""
        return tensor if self._parallel is None else self._parallel.gather(tensor.reshape(-1))

    def gather_object(self, obj: Any, dst: int = 0) -> list[Any] | None:
        """An object of every process, on process `dst`."""
        if self._parallel is None:
            return [obj]
        import torch.distributed as together

        found: list[Any] | None = [None] * self._world_size if self._rank == dst else None
        together.gather_object(obj, found, dst=dst)
        return found

    def barrier(self) -> None:
        """Wait for the other processes."""
        if self._parallel is not None:
            self._parallel.wait_for_everyone()

    # --- inside -------------------------------------------------------------------------------------------------

    def _generate(self, prompts: Sequence[str], stop: tuple[str, ...], finished: Finished) -> None:
        # prompts of a chat are in the model's template already
        asked = {**self.settings.generating(self.settings.seeds[0]), "stop": stop, "chat": False}
        generate(self.model, prompts, self.decoder, **asked, finished=finished)

    def _on_record(
        self, requests: Sequence[Instance], estimate: Callable[[Instance], tuple[float, bool]]
    ) -> list[tuple[float, bool]]:
        """The likelihood for each request: as it is on record, or estimated and put there; of repeats once."""
        places = [(request.task_name, request.doc_id, request.idx, *request.args) for request in requests]
        asked, found = dict(zip(places, requests, strict=True)), {}
        if self.records is not None:
            self.records.expect(len(asked))
        for place, request in asked.items():
            known = None if self.records is None else self.records.likelihood(request, request.idx)
            if known is None:
                known = estimate(request)
                if self.records is not None:
                    self.records.add_likelihood(request, request.idx, *known)
            found[place] = known
        return [found[place] for place in places]

    def _likelihood(self, context: str, answer: str, *, greedy: bool) -> tuple[float, bool]:
        """Of an answer. Raises UserError where its masked copies do not fit into the device's memory together."""
        ids = self._pair(context, answer)
        try:
            value = log_likelihood(self.model, *ids, self.likelihood, self.settings.seeds[0])
            return value, greedy and is_greedy(self.model, *ids, self.likelihood)
        except Exception as error:
            if not out_of_memory(error):
                raise
            raise UserError(
                f"The device's memory is too small for {self.likelihood.batch} masked copies at once; give a smaller "
                f"--mc-batch-size (mc_batch_size), and for a run on record, whose estimates depend on it, another "
                f"folder."
            ) from error

    def _stops(self, request: Instance) -> tuple[str, ...]:
        """A request's stop strings. Raises UserError where its task asks for a temperature that is not ours."""
        arguments = dict(request.args[1])
        until = arguments.get("until") or []
        wanted = float(arguments.get("temperature") or 0.0) if arguments.get("do_sample") else None
        if wanted is not None and wanted != self.settings.temperature:
            raise UserError(
                f"The task {request.task_name} samples at temperature {wanted:g}, this run at "
                f"{self.settings.temperature:g}; give temperature={wanted:g}, or another task."
            )
        return tuple(dict.fromkeys([until] if isinstance(until, str) else until))

    def _pair(self, context: str, answer: str) -> tuple[list[int], list[int]]:
        """Ids of a context and of what continues it; spaces between them belong to the answer.

        The context is behind what the model's prompts begin with. Where there is nothing of either it is an end token.
        """
        head, bare = self.model.prompt_format.split("{prompt}")[0], context.rstrip()
        if not bare:
            return self._ids(head) or [self.model.eos_id], self._ids(context + answer)
        together, alone = self._ids(head + context + answer), self._ids(head + bare)
        return together[: len(alone)], together[len(alone) :]

    def _ids(self, text: str) -> list[int]:
        return list(self.model.tokenizer(text, add_special_tokens=False)["input_ids"])


def own_device(asked: str | None = None) -> str | None:
    """The device asked for; else, of several processes each with a GPU of its own, this one's; None: the default.

    cuda:0 is what the harness's command line says where nobody asked for anything, so it counts as nothing.
    """
    if asked not in (None, "cuda:0"):
        return asked
    rank = os.environ.get("LOCAL_RANK")
    return f"cuda:{rank}" if rank is not None and torch.cuda.is_available() else None


def _groups(members: Members, size: int) -> Iterator[Members]:
    for start in range(0, len(members), size):
        yield members[start : start + size]
