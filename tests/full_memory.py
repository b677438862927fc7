"""How devices say that their memory is full."""

import torch

OUT_OF_MEMORY = {
    "CUDA": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 112.00 MiB.\nGPU 0 has a capacity of 8"),
    "a full GPU": RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"),
    "MPS": RuntimeError("MPS backend out of memory (MPS allocated: 8.92 GiB)"),
    "CPU": RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you tried to"),
    "the system": RuntimeError("unable to mmap 1024 bytes from file <m.safetensors>: Cannot allocate memory (12)"),
    "Python": MemoryError(),
}
