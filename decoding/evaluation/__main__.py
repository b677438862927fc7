r"""`python -m dystruct.decoding.evaluation …` is `lm_eval …` that knows the model `dystruct` and the embedded tasks.

    python -m dystruct.decoding.evaluation run --model dystruct --model_args pretrained=tiny,decoder=fast \
        --tasks tiny_maths

Code tasks are scored by our limited subprocess, and need the harness's own flag --confirm_run_unsafe_code. Under
`accelerate launch -m dystruct.decoding.evaluation …` every process takes its share of the items.
"""

from __future__ import annotations

import sys

from lm_eval.__main__ import cli_evaluate

from . import harness  # noqa: F401 - registers the model
from .harness_code import install
from .tasks import FOLDER


def main() -> None:
    """Run the harness's command line with the embedded tasks among its own."""
    install(execute_code="--confirm_run_unsafe_code" in sys.argv)
    if "--include_path" not in sys.argv:
        sys.argv += ["--include_path", str(FOLDER)]
    cli_evaluate()


if __name__ == "__main__":
    main()
