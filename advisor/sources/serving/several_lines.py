"""What follows from several lines of a server's log: slots of llama.cpp that work at once, layers that stay
on the CPU, and steps of TensorRT-LLM that the host holds up."""

from __future__ import annotations

import re
from statistics import median

from msgspec import Struct, field

from advisor.numerals import read_float

#: A slot takes a request, and gives it back: `slot launch_slot_: id  0 | task 3 | processing task`.
_TAKES = re.compile(r"\bslot\s+launch_slot_\w*: id\s+(\d+) \|")
_GIVES_BACK = re.compile(r"\bslot\s+release: id\s+(\d+) \|")
_TIMED = re.compile(r"\bslot\s+print_timing: id\s+(\d+) \|")
_IDLE = re.compile(r"\ball slots are idle\b")
#: llama.cpp and Ollama, whose newer engine logs it as the text of a message.
_LAYERS = re.compile(r"\boffloaded (\d+)/(\d+) layers to GPU")
#: Where llama.cpp puts the weights.
_WEIGHTS = re.compile(r"\bload_tensors:\s+(\w+) model buffer size =")
_HOST = re.compile(r"\bhost_step_time = (\d+(?:\.\d+)?) ?ms")
_DEVICE = re.compile(r"\bprev_device_step_time = (\d+(?:\.\d+)?) ?ms")
#: From this factor on the host's step is longer: it waits for the device where both are alike. Choice.
_LONGER = 1.25


class SeveralLines(Struct):
    """Reads lines in their order. `weights` names where they are. `busy` holds for each slot that works
    the most that worked at once since it began; `timed` is the slot whose times are being printed."""

    busy: dict[str, int] = field(default_factory=dict)
    timed: str | None = None
    layers: tuple[float, float] | None = None
    weights: set[str] = field(default_factory=set)
    steps: list[tuple[float, float]] = field(default_factory=list)
    host_ms: float | None = None

    def read(self, line: str) -> None:
        """Take a line."""
        if "processing task" in line and (hit := _TAKES.search(line)):
            self.busy[hit[1]] = 1
            self.busy = {slot: max(most, len(self.busy)) for slot, most in self.busy.items()}
        elif hit := _TIMED.search(line):
            if self.timed not in (None, hit[1]):  # no line says that the one before gave its request back
                self.busy.pop(self.timed or "", None)
            self.timed = hit[1]
        elif hit := _GIVES_BACK.search(line):
            self.busy.pop(hit[1], None)
            self.timed = None if self.timed == hit[1] else self.timed
        elif _IDLE.search(line):
            self.busy, self.timed = {}, None
        elif hit := _LAYERS.search(line):
            on_gpu, of = read_float(hit[1]), read_float(hit[2])
            if on_gpu is not None and of and on_gpu <= of:
                self.layers = on_gpu, of
        elif hit := _WEIGHTS.search(line):
            self.weights.add(hit[1])
        elif hit := _HOST.search(line):
            host, device = read_float(hit[1]), _DEVICE.search(line)
            lasted = read_float(device[1]) if device else None
            if self.host_ms and lasted:  # the device's time of a step stands in the line of the next one
                self.steps.append((self.host_ms, lasted))
            self.host_ms = host

    @property
    def at_once(self) -> int:
        """Slots that worked at once while the request ran whose times are being printed, at most; 1 where
        nothing tells."""
        return self.busy.get(self.timed or "", 1)

    def settings(self) -> dict[str, float]:
        """What they tell, by our names."""
        found: dict[str, float] = {}
        if self.layers is not None:
            found |= {"layers_on_gpu": self.layers[0], "layers": self.layers[1]}
        elif self.weights and all(name.startswith("CPU") for name in self.weights):
            found["on_cpu"] = 1.0
        if self.steps:
            longer = [host > _LONGER * device for host, device in self.steps]
            on_host, on_device = (sum(step[i] for step in self.steps) for i in (0, 1))
            found |= {
                "host_step_ms": median(host for host, _ in self.steps),
                "device_step_ms": median(device for _, device in self.steps),
                "host_longer_ratio": sum(longer) / len(longer),
                "device_idle_ratio": max(1 - on_device / on_host, 0.0),
            }
        return found
