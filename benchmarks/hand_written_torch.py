"""Steps that one writes by hand in torch: a captured graph, a module as it is, and compiled."""

from __future__ import annotations

import time

from hand_written import Around, Step


def captured(spec, observations) -> tuple[Step, Around]:
    """A captured torch graph of the built-in's own module.

    Its stream is made current around a block, not a step: the calls that do so would warm torch's code up right before the clock is read.
    """
    import torch

    from robot_perf.policies.builtin.torch_module import build

    net = build(spec.builtin, spec.seed).cuda()
    host_in = [torch.zeros(t.shape).pin_memory() for t in spec.inputs]
    dev_in = [torch.zeros(t.shape, device="cuda") for t in spec.inputs]
    host_out = [torch.zeros(t.shape).pin_memory() for t in spec.outputs]
    view, answer = host_in[0].numpy(), host_out[spec.action].numpy()
    stream = torch.cuda.Stream()

    def body() -> None:
        dev_in[0].copy_(host_in[0], non_blocking=True)
        outputs = net(*dev_in)
        for pair in spec.state:
            dev_in[pair.target].copy_(outputs[pair.source])
        for place, output in zip(host_out, outputs, strict=True):
            place.copy_(output, non_blocking=True)

    with torch.no_grad(), torch.cuda.stream(stream):
        for _ in range(5):
            body()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            body()
    replay, wait, now, at = graph.replay, stream.synchronize, time.monotonic_ns, observations.reader()

    def step(k: int) -> int:
        observation = at(k)[0]
        start = now()
        view[...] = observation
        replay()
        wait()
        _ = answer[0, 0]
        return now() - start

    return step, lambda: torch.cuda.stream(stream)


def plain(spec, observations, device: str, *, compiled: bool) -> tuple[Step, Around]:
    """The built-in's own module, called as it is or as torch.compile makes it; the action comes to the host alone.

    `no_grad` is made once around a block.
    """
    import torch

    from robot_perf.policies.builtin.torch_module import build

    net = build(spec.builtin, spec.seed).to(device)
    if compiled:
        net = torch.compile(net, dynamic=False)
    kept = [torch.zeros(spec.inputs[pair.target].shape, device=device) for pair in spec.state]
    sources, action = [pair.source for pair in spec.state], spec.action
    wrap, now, at = torch.from_numpy, time.monotonic_ns, observations.reader()

    def step(k: int) -> int:
        nonlocal kept
        observation = at(k)[0]
        start = now()
        outputs = net(wrap(observation).to(device), *kept)
        kept = [outputs[i] for i in sources]
        answer = outputs[action].cpu().numpy()
        _ = answer[0, 0]
        return now() - start

    return step, torch.no_grad
