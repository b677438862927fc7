"""Calibrating the evidence weights of a model: windows with known targets, from problems with known answers."""

from .collected import collected_windows
from .trajectories import Known, windows_along_reference, windows_on_own_trajectory

__all__ = ["Known", "collected_windows", "windows_along_reference", "windows_on_own_trajectory"]
