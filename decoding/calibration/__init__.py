"""Calibrating the evidence weights of a model: windows with known targets, from problems with known answers.

In Python, as `dystruct calibrate` does it:

```python
from pathlib import Path

from dystruct.decoding import load
from dystruct.decoding.backbone import model_folder
from dystruct.decoding.calibration import Known, fingerprint, windows_along_reference, write_calibration
from dystruct.inference.calibration import calibrate

model = load("tiny", neutral=True)
known = [Known(f"How much is {n} + 7?", f"{n} + 7 = {n + 7}") for n in range(10, 20)]
found = calibrate(windows_along_reference(model, known))
print(found.report.position.verdict)  # and what else the fit is worth

# The fingerprint says which model the weights are for; the last argument is for the record, and may hold anything.
own = fingerprint(model_folder("tiny"))
write_calibration(Path("weights.json"), found.fit.weights, own, {"problems": "sums", "count": len(known)})
model = load("tiny", weights="weights.json")
```

With an Instruct model say `chat=True`. What takes long is observed part by part by `collected_windows`, which goes on
where it was killed. As calibration.json in the model's folder the weights are found without being named.
"""

from ..calibration_file import fingerprint, write_calibration
from .collected import collected_windows
from .trajectories import Known, windows_along_reference, windows_on_own_trajectory

__all__ = [
    "Known",
    "collected_windows",
    "fingerprint",
    "windows_along_reference",
    "windows_on_own_trajectory",
    "write_calibration",
]
