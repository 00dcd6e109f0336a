"""One step of a torch policy on a CUDA device, in pieces: upload, compute, feed the state back, download.

Eager and compiled policies run the pieces one after the other; `cuda_graph` captures them. For a graph all tensors are made once, so
that their addresses hold for its life. Else each step's inputs are tensors of their own: a policy may keep what it was given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from robot_perf.backends.gpu import faults, torch_pinned
from robot_perf.backends.gpu.options import DeviceOptions
from robot_perf.backends.gpu.torch_cuda import LOW
from robot_perf.backends.protocol import Array
from robot_perf.backends.shared.closed import closed
from robot_perf.backends.torch_policy.kept import call_on_copies
from robot_perf.backends.torch_policy.runner import assembler, flatten
from robot_perf.backends.torch_policy.state import Reset, assign
from robot_perf.errors import PolicyError, UsageError
from robot_perf.policies.observations import initial_state
from robot_perf.policies.state import Tree
from robot_perf.specs import PolicySpec


class Body:
    """The tensors of one loaded policy. `module` is None for a factory's object that is no nn.Module."""

    def __init__(
        self,
        policy: PolicySpec,
        call: Callable[..., Any],
        arguments: Sequence[Tree],
        reset: Reset,
        module: Any,
        options: DeviceOptions,
    ) -> None:
        import torch

        self.torch, self.policy, self.module, self.options, self._call = torch, policy, module, options, call
        self.device = torch.device(options.device)
        self.low = getattr(torch, LOW[options.precision]) if options.precision in LOW else None
        self._reset: Any = reset
        self._assemble = None if all(a is None for a in arguments) else assembler(arguments)
        # Every step at the same places: what a policy keeps of its inputs would turn into the next step's values.
        self._fixed = options.cuda_graph or options.mapped
        try:
            self._allocate()
        except RuntimeError as error:
            if faults.is_out_of_memory(error):
                raise faults.out_of_memory(policy.name, error, *torch.cuda.mem_get_info(self.device)) from error
            raise
        self.results: list[Any] = []
        self._checked = False
        self._static = self.buffers()
        self._moving: list[str] = []  # buffers that a call changes, once `find_state` has looked
        self._aside: list[tuple[str | int, Any, Any]] = []  # buffer's name or input's position, tensor, its kept value
        self.restart()

    def _allocate(self) -> None:
        torch, policy, device = self.torch, self.policy, self.device
        self._pinned_inputs = [torch_pinned.pinned(torch, policy.inputs[i]) for i in policy.fed]
        self._pinned_outputs = [torch_pinned.pinned(torch, t) for t in policy.outputs]
        self.staged: list[Array] = [t.numpy() for t in self._pinned_inputs]
        self.answers: list[Array] = [t.numpy() for t in self._pinned_outputs]
        # `flat` holds every input by position; state inputs are written by the step itself.
        self.flat = [torch.zeros(t.shape, dtype=getattr(torch, t.dtype), device=device) for t in policy.inputs]
        targets = list(self._pinned_outputs)
        uploads = []
        for where, pinned in zip(policy.fed, self._pinned_inputs, strict=True):
            if self.options.mapped and pinned.numel():
                self.flat[where] = torch_pinned.mapped(torch, pinned, device)
            else:
                uploads.append((where, pinned))
        if self.options.mapped:
            targets = [torch_pinned.mapped(torch, t, device) if t.numel() else t for t in targets]
        self._uploads, self._targets = uploads, targets
        self._carried = [(p.target, p.source) for p in policy.state]
        self._initial = [torch.from_numpy(a).to(device) for a in initial_state(policy)]

    def upload(self) -> None:
        """Host to device. Mapped inputs are read where they lie."""
        for where, pinned in self._uploads:
            self._put(where, pinned)

    def _put(self, where: int, value: Any) -> None:
        """`value` into the input at a position: where it always lies, or into a tensor that the step before has never seen."""
        if not self._fixed:
            self.flat[where] = self.torch.empty_like(self.flat[where])
        self.flat[where].copy_(value, non_blocking=True)

    def compute(self) -> None:
        """The policy's own call."""
        if self._checked:
            self.results = self._called(self._lowered())
        else:
            self._first()

    def _lowered(self) -> list[Any]:
        return self.flat if self.low is None else [t.to(self.low) if t.is_floating_point() else t for t in self.flat]

    def _called(self, flat: list[Any]) -> list[Any]:
        return flatten(self._call(*flat) if self._assemble is None else self._call(*self._assemble(flat)))

    def _watched_call(self, before_look: Callable[[], None] | None = None) -> tuple[list[Any], str]:
        inputs = dict(zip((t.name for t in self.policy.inputs), self._lowered(), strict=True))
        return call_on_copies(self._called, inputs, self.module, before_look)

    def kept_inputs(self) -> str:
        """Which inputs the policy holds after a call, beyond those in buffers that `settle` copies out of; "" for none."""
        return self._watched_call(self.settle)[1]

    def feed_back(self) -> None:
        """State outputs into the state inputs, on the device."""
        for target, source in self._carried:
            self._put(target, self.results[source])

    def download(self) -> None:
        """Device to host; a lowered result is widened on the device first."""
        for target, result in zip(self._targets, self.results, strict=True):
            target.copy_(result, non_blocking=True)

    def _first(self) -> None:
        """The first call: faults that come from the device are told as such, and every result must lie on it."""
        name, device = self.policy.name, str(self.device)
        watch = self._fixed and not self.options.cuda_graph  # a graph's inputs are looked at once it is warm
        try:
            results, held = self._watched_call() if watch else (self._called(self._lowered()), "")
        except Exception as error:
            told = faults.on_device(name, device, error, self.options.precision)
            if told is None:
                raise
            raise told from error
        if held:
            raise faults.keeps_inputs(name, held, graph=False)
        wanted = self.policy.outputs
        if len(results) != len(wanted):
            raise PolicyError(f"{name}: it answered {len(results)} tensors, {len(wanted)} were described")
        for i, (result, tensor) in enumerate(zip(results, wanted, strict=True)):
            if not isinstance(result, self.torch.Tensor) or result.device != self.device:
                where = result.device if isinstance(result, self.torch.Tensor) else type(result).__name__
                raise faults.wrong_device(name, device, detail=f"output {i} is on {where}")
            if tuple(result.shape) != tensor.shape:
                raise PolicyError(f"{name}: output {i} is {list(result.shape)}, {list(tensor.shape)} was described")
        self.results = results
        self._checked = True

    def settle(self) -> None:
        """Values of buffers that the call replaced, copied to where the buffers lay: a graph reads and writes there for ever."""
        for name, current in self.buffers().items():
            static = self._static.get(name)
            if static is None or current.data_ptr() == static.data_ptr():
                continue
            if current.shape != static.shape or current.dtype != static.dtype:
                raise PolicyError(
                    f"{self.policy.name}: its buffer {name} changes its shape or dtype, which a CUDA graph can't follow",
                    why=f"It was {list(static.shape)} {static.dtype}, a call made it {list(current.shape)} {current.dtype}.",
                    do="Keep it fixed, or use --backend eager.",
                )
            static.copy_(current)
            assign(self.module, name, static)

    def find_state(self) -> bool:
        """Finds out what a call changes, by one call; True when there is any state to keep. Raises UsageError where it can't be."""
        if self.policy.state_note.find("kept in the object") >= 0:
            raise UsageError(
                f"{self.policy.name} can't be rehearsed", why="Its state is kept in an object, which a rehearsal would move.",
                do="Use tiny-kernel or spin.",
            )  # fmt: skip
        kept = self.results
        before = self.buffers()
        self._moving = list(before)
        written = {n: _writes(t) for n, t in before.items()}
        self.keep()
        self.compute()
        after = self.buffers()
        # By torch's count of writes too: zeros that a call writes over zeros are state all the same.
        moving = [
            n
            for n, t, v in self._aside
            if isinstance(n, str) and (after[n] is not t or _writes(t) != written[n] or not self.torch.equal(t, v))
        ]
        self.put_back()
        self._moving, self._aside, self.results = moving, [], kept
        return bool(moving or self._carried)

    def keep(self) -> None:
        """Copies the state aside, into tensors that are made once. `find_state` comes first."""
        if not self._aside:
            self._aside = [(name, tensor, self.torch.empty_like(tensor)) for name, tensor in self._state_now().items()]
        else:
            now = self._state_now()  # a call may have put other tensors there
            self._aside = [(name, now[name], value) for name, _, value in self._aside]
            for name, tensor, value in self._aside:
                if tensor.shape != value.shape:  # a copy would broadcast
                    raise UsageError(
                        f"{self.policy.name} can't be rehearsed",
                        why=f"Its buffer {name} was {list(value.shape)}, a call made it {list(tensor.shape)}.",
                        do="Use tiny-kernel or spin.",
                    )
        for _, tensor, value in self._aside:
            value.copy_(tensor)

    def _state_now(self) -> dict[str | int, Any]:
        """Where the state lies at the moment: carried inputs by position, buffers that move by name."""
        buffers = self.buffers() if self._moving else {}
        return {**{target: self.flat[target] for target, _ in self._carried}, **{n: buffers[n] for n in self._moving}}

    def put_back(self) -> None:
        """The state as `keep` found it, in the tensors that held it then."""
        now = self.buffers() if self._moving else {}
        for name, tensor, value in self._aside:
            tensor.copy_(value)
            if isinstance(name, int):
                self.flat[name] = tensor
            elif now[name] is not tensor:
                assign(self.module, name, tensor)

    def restart(self) -> None:
        """Carried state at its start."""
        for (target, _), value in zip(self._carried, self._initial, strict=True):
            self._put(target, value)

    def reset(self) -> None:
        """Everything as after loading, complete on return."""
        self._reset()
        with self.torch.no_grad():
            self.settle()
        self.restart()
        self.torch.cuda.current_stream(self.device).synchronize()

    def poison(self, results: list[Any]) -> None:
        """Overwrites result tensors that outlive a step; what lies in an input, buffer or weight is left alone."""
        own = [*self.flat, *self.weights()]
        kept = {t.untyped_storage().data_ptr() for t in own}
        with self.torch.no_grad():
            for tensor in results:
                if tensor.untyped_storage().data_ptr() not in kept:
                    tensor.fill_(float("nan") if tensor.is_floating_point() else 85)

    def state(self) -> dict[str, Array]:
        """Carried values by input name, and the buffers that changed, on the host."""
        carried = {self.policy.inputs[p.target].name: self.flat[p.target].cpu().numpy() for p in self.policy.state}
        changed = self._reset.state().items()
        return {
            **carried,
            **{k: (v.float() if v.dtype == self.torch.bfloat16 else v).cpu().numpy() for k, v in changed},
        }

    def buffers(self) -> dict[str, Any]:
        """The module's buffers by name."""
        return dict(self.module.named_buffers()) if self.module is not None else {}

    def weights(self) -> list[Any]:
        """Every parameter and buffer on the device."""
        if self.module is None:
            return []
        return [t for t in (*self.module.parameters(), *self.module.buffers()) if t.is_cuda and t.numel()]

    def close(self) -> None:
        """The own close() of a factory's object; drops every tensor and hands the memory back, which torch's allocator would keep."""
        if self.policy.kind == "factory" and self._reset is not closed:
            self._reset.end()
        self.flat, self.results, self._uploads, self._targets, self._carried, self._initial = [], [], [], [], [], []
        for pinned in (self._pinned_inputs, self._pinned_outputs, self.staged, self.answers):
            pinned.clear()  # in place: who queues the step holds the arrays by these lists
        self._static, self.module, self._aside, self._call, self._reset = {}, None, [], closed, closed
        self.torch.cuda.empty_cache()

    def facts(self) -> Mapping[str, Any]:
        """How it is reset, and where its buffers lie."""
        return {"reset": self._reset.how, "pinned_bytes": sum(a.nbytes for a in (*self.staged, *self.answers))}


def _writes(tensor: Any) -> int:
    """How often torch wrote into it in place; 0 for an inference tensor, which keeps no count."""
    return 0 if tensor.is_inference() else int(tensor._version)
