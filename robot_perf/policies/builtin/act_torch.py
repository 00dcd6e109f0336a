"""`act` as a torch module, with the weights of its ONNX form."""

from __future__ import annotations

from typing import Any

from robot_perf.policies.builtin import act


def build(dims: act.Dims, seed: int) -> Any:
    """An `nn.Module` in evaluation mode: `forward(images, state) -> (actions,)`."""
    import torch
    from torch import nn
    from torch.nn import functional as f

    e, heads = dims["hidden"], dims["heads"]
    trunk = list(act.blocks(dims))

    class Act(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            convs = {c.name: _conv(nn, c) for c in act.convolutions(dims)}
            self.convs = nn.ModuleDict({_key(k): v for k, v in convs.items()})
            self.linears = nn.ModuleDict({_key(n): nn.Linear(a, b) for n, a, b, _ in act.linears(dims)})
            self.norms = nn.ModuleDict({_key(n): nn.LayerNorm(e) for n in act.norms(dims)})
            self.query = nn.Parameter(torch.zeros(dims["chunk"], e))
            self.position = nn.Parameter(torch.zeros(2, e))
            cells = torch.from_numpy(act.image_positions(dims)).repeat(dims["cameras"], 1)
            self.register_buffer("cells", cells)
            self.register_buffer("latent", torch.zeros(1, dims["latent"]))

        def _linear(self, name: str, x: Any) -> Any:
            return self.linears[_key(name)](x)

        def _attention(self, name: str, queries: Any, keys: Any, values: Any) -> Any:
            q, k, v = (
                self._linear(f"{name}.{part}", x).unflatten(-1, (heads, e // heads)).transpose(1, 2)
                for part, x in (("q", queries), ("k", keys), ("v", values))
            )
            mixed = f.scaled_dot_product_attention(q, k, v)
            return self._linear(f"{name}.out", mixed.transpose(1, 2).flatten(-2))

        def _feedforward(self, name: str, x: Any) -> Any:
            return self._linear(f"{name}.narrow", torch.relu(self._linear(f"{name}.wide", x)))

        def _image_tokens(self, images: Any) -> Any:
            convs = self.convs
            x = torch.relu(convs["stem"](images[0]))
            x = f.max_pool2d(x, 3, stride=2, padding=1)
            for a, b, around in trunk:
                past = x if around is None else convs[_key(around.name)](x)
                x = torch.relu(convs[_key(b.name)](torch.relu(convs[_key(a.name)](x))) + past)
            return convs["image"](x).flatten(2).transpose(1, 2).reshape(1, -1, e)

        def forward(self, images: Any, state: Any) -> tuple[Any]:
            """images [1,cams,3,H,W], state [1,S] -> ([1,chunk,A],)."""
            latent, own = self._linear("latent", self.latent), self._linear("state", state)
            x = torch.cat([latent[:, None], own[:, None], self._image_tokens(images)], dim=1)  # [1, tokens, E]
            place = torch.cat([self.position, self.cells])
            for i in range(dims["encoder_layers"]):
                name = f"encoder.{i}"
                placed = x + place
                x = self.norms[_key(f"{name}.norm1")](x + self._attention(f"{name}.attention", placed, placed, x))
                x = self.norms[_key(f"{name}.norm2")](x + self._feedforward(name, x))
            placed = x + place
            y = torch.zeros_like(self.query)[None]  # [1, chunk, E]
            for i in range(dims["decoder_layers"]):
                name = f"decoder.{i}"
                asked = y + self.query
                y = self.norms[_key(f"{name}.norm1")](y + self._attention(f"{name}.self", asked, asked, y))
                y = self.norms[_key(f"{name}.norm2")](y + self._attention(f"{name}.cross", y + self.query, placed, x))
                y = self.norms[_key(f"{name}.norm3")](y + self._feedforward(name, y))
            return (self._linear("head", self.norms[_key("decoder.norm")](y)),)

    module = Act()
    module.load_state_dict(_state(torch, act.weights(dims, seed), dims), strict=False)
    return module.eval()


def _state(torch: Any, w: Any, dims: act.Dims) -> dict[str, Any]:
    groups = {
        "convs": [c.name for c in act.convolutions(dims)],
        "linears": [n for n, *_ in act.linears(dims)],
        "norms": act.norms(dims),
    }
    found = {
        f"{group}.{_key(name)}.{part}": torch.from_numpy(w[f"{name}.{part}"])
        for group, names in groups.items()
        for name in names
        for part in ("weight", "bias")
    }
    return {**found, "query": torch.from_numpy(w["query"]), "position": torch.from_numpy(w["position"])}


def _conv(nn: Any, c: act.Convolution) -> Any:
    return nn.Conv2d(c.columns, c.rows, c.kernel, c.stride, c.kernel // 2)


def _key(name: str) -> str:
    """A module's name: dots part modules from each other."""
    return name.replace(".", "_")
