"""A package `torch` with what a recording of it uses, which behaves as its documentation says: modules, an
optimizer with its hooks, and the profiler with its schedule. What it profiled is in `profiled.json`."""

from __future__ import annotations

from pathlib import Path

FILES = {
    "__init__.py": """
from torch import cuda, nn, optim
__version__ = "2.6.0+fake"
""",
    "cuda.py": """
import os, time
def is_available(): return bool(os.environ.get("FAKE_GPU"))
def is_initialized(): return is_available()
def synchronize(): pass
class Event:
    def __init__(self, enable_timing=False): assert enable_timing
    def record(self): self.at = time.perf_counter()
    def elapsed_time(self, other): return 1000 * (other.at - self.at)
""",
    "nn.py": """
class Module:
    def _call_impl(self, *args, **options): return self.forward(*args, **options)
    __call__ = _call_impl
""",
    "optim/__init__.py": """
from torch.optim import optimizer
class SGD(optimizer.Optimizer): pass
""",
    "optim/optimizer.py": """
HOOKS = []
def register_optimizer_step_post_hook(hook): HOOKS.append(hook)
class Optimizer:
    def step(self):
        for hook in HOOKS: hook(self, (), {})
""",
    "profiler/__init__.py": """
import json, os, shutil, threading
class ProfilerActivity: CPU, CUDA = "CPU", "CUDA"
def schedule(*, wait, warmup, active, repeat=0):
    actions = ["none"] * wait + ["warm"] * warmup + ["record"] * active
    return lambda n: actions[n] if n < len(actions) else "none"
class profile:
    def __init__(self, activities=None, schedule=None, on_trace_ready=None, **options):
        self.plan, self.ready, self.options = schedule or (lambda n: "record"), on_trace_ready, options
        self.activities, self.number, self.recorded = activities, 0, 0
    def start(self):
        self.action, self.thread = self.plan(0), threading.get_ident()
    def here(self):
        if threading.get_ident() != self.thread:
            raise RuntimeError("Can't disable Kineto profiler when it's not running")
    def step(self):
        self.here()
        self.recorded += self.action == "record"
        before, self.number = self.action, self.number + 1
        self.action = self.plan(self.number)
        if before == "record" and self.action != "record" and self.ready: self.ready(self)
    def stop(self):
        self.here()
        if self.action == "record":
            self.recorded += 1
            if self.ready: self.ready(self)
    def __enter__(self): self.start(); return self
    def __exit__(self, *_): self.stop()
    def export_chrome_trace(self, path):
        shutil.copy(os.environ["FAKE_TRACE"], path)
        with open("profiled.json", "w") as file:
            json.dump({"steps": self.recorded, "activities": self.activities, **self.options}, file)
""",
}


def write(folder: Path) -> Path:
    """Write the package below a folder for PYTHONPATH."""
    for name, text in FILES.items():
        path = folder / "torch" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder
