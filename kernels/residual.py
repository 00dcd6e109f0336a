"""The fused norm in a model: a module in nn.RMSNorm's place, and a residual stream that adds and normalises in one kernel.

    replaced = replace_rms_norm(model)                       every nn.RMSNorm, in one call
    stack = ResidualStack(layers, norms, final_norm)         pre-norm transformer: one kernel per sublayer, not two

A pre-norm layer computes `x = x + layer(norm(x))`. Written as it stands, each sublayer costs an add and a norm: five passes over
the stream. Carried as (h, residual), `h, residual = norm(layer(h), residual)` is one kernel of four passes, and the last add of
one layer joins the first norm of the next.

Imports without torch; the classes exist from the first use on.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from robot_perf.errors import UsageError

__all__ = ["FusedRMSNorm", "ResidualStack", "replace_rms_norm"]  # noqa: F822 (made on first use)

Tensor = Any
TORCH_DEFAULT_EPS = 2.0**-23  # what nn.RMSNorm(eps=None) means, whatever the input's dtype


def __getattr__(name: str) -> Any:
    if name in ("FusedRMSNorm", "ResidualStack"):
        return _classes()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@lru_cache(maxsize=1)
def _classes() -> dict[str, Any]:
    import torch

    from robot_perf.kernels.rmsnorm import add_rms_norm, rms_norm

    class FusedRMSNorm(torch.nn.Module):  # type: ignore[misc]
        """RMSNorm over the last dimension: `norm(x)` is y, `norm(x, residual)` is (y, x + residual).

        weight None makes a new one of ones (or none with elementwise_affine=False); a given Parameter is shared.
        """

        def __init__(
            self,
            d: int,
            eps: float = 1e-6,
            *,
            weight: Any = None,
            elementwise_affine: bool = True,
            weight_offset: float = 0.0,
            cast: str = "fp32",
            batch_invariant: bool = False,
            device: Any = None,
            dtype: Any = None,
        ) -> None:
            super().__init__()
            if weight is None and elementwise_affine:
                start = torch.zeros if weight_offset else torch.ones
                weight = torch.nn.Parameter(start(d, device=device, dtype=dtype))
            if weight is not None and tuple(weight.shape) != (d,):
                raise UsageError(f"FusedRMSNorm: the weight has shape {tuple(weight.shape)}", why=f"It must be ({d},).")
            self.d = d
            self.eps = eps
            self.weight_offset = weight_offset if weight is not None else 0.0
            self.cast = cast
            self.batch_invariant = batch_invariant
            self.register_parameter("weight", weight)

        def forward(self, x: Tensor, residual: Tensor | None = None) -> Any:
            """y, or (y, s) where a residual is given."""
            if x.shape[-1] != self.d:
                raise UsageError(
                    f"FusedRMSNorm: the last dimension is {x.shape[-1]}", why=f"This norm is for {self.d}."
                )
            options: dict[str, Any] = {
                "weight_offset": self.weight_offset,
                "cast": self.cast,
                "batch_invariant": self.batch_invariant,
            }
            if residual is None:
                return rms_norm(x, self.weight, self.eps, **options)
            return add_rms_norm(x, residual, self.weight, self.eps, **options)

        def extra_repr(self) -> str:
            """Sizes and options, as print(model) shows them."""
            return f"{self.d}, eps={self.eps:g}, affine={self.weight is not None}, cast={self.cast!r}"

    class ResidualStack(torch.nn.Module):  # type: ignore[misc]
        """A pre-norm residual stream: norms[i] goes before layers[i], final_norm after the last.

        `stack(x)` is final_norm of the whole stream; `stack.stream(x)` is (that, the stream itself).
        """

        def __init__(self, layers: Sequence[Any], norms: Sequence[Any], final_norm: Any) -> None:
            super().__init__()
            if len(layers) != len(norms) or not layers:
                raise UsageError(
                    f"ResidualStack: {len(layers)} layers and {len(norms)} norms",
                    why="Each layer has one norm before it.",
                )
            self.layers = torch.nn.ModuleList(layers)
            self.norms = torch.nn.ModuleList(norms)
            self.final_norm = final_norm

        def stream(self, x: Tensor, *context: Any) -> tuple[Tensor, Tensor]:
            """(final_norm of the stream, the stream); `context` goes to every layer (a mask, a condition)."""
            residual, h = x, self.norms[0](x)
            after = [*self.norms[1:], self.final_norm]
            for layer, norm in zip(self.layers, after, strict=True):
                h, residual = norm(layer(h, *context), residual)
            return h, residual

        def forward(self, x: Tensor, *context: Any) -> Tensor:
            """final_norm of the stream."""
            return self.stream(x, *context)[0]

    for made in (FusedRMSNorm, ResidualStack):  # so that a pickled model finds them
        made.__module__, made.__qualname__ = __name__, made.__name__
    return {"FusedRMSNorm": FusedRMSNorm, "ResidualStack": ResidualStack}


def replace_rms_norm(model: Any, *, batch_invariant: bool = False) -> dict[str, str]:
    """Puts a FusedRMSNorm in the place of every nn.RMSNorm of a model, sharing its weight; one held twice stays one.

    Returns what was done by module name: "replaced", or why not ("normalises 2 dimensions", "has hooks", and what is not
    torch.nn.RMSNorm itself: a subclass, a parametrised one, another class whose name ends in RMSNorm). A model that is itself
    an nn.RMSNorm raises UsageError: replace it where it is held.
    """
    import torch

    fused = _classes()["FusedRMSNorm"]
    if isinstance(model, torch.nn.RMSNorm):
        raise UsageError(
            "replace_rms_norm: the model is an nn.RMSNorm itself",
            do="Build FusedRMSNorm(d, eps, weight=norm.weight) instead.",
        )
    done: dict[str, str] = {}
    made: dict[Any, Any] = {}
    for path, parent in list(model.named_modules()):
        for name, child in list(parent._modules.items()):  # named_children leaves out the second name of a module
            why = "replaced" if child in made else _why_kept(child, fused)
            if why is None:
                continue
            done[f"{path}.{name}" if path else name] = why
            if why != "replaced":
                continue
            if child not in made:
                made[child] = fused(
                    child.normalized_shape[0],
                    TORCH_DEFAULT_EPS if child.eps is None else child.eps,
                    weight=child.weight,
                    elementwise_affine=child.weight is not None,
                    batch_invariant=batch_invariant,
                ).train(child.training)
            setattr(parent, name, made[child])
    return done


def _why_kept(module: Any, fused: Any) -> str | None:
    """Why a norm stays as it is; "replaced" where it need not, None for what is no norm."""
    import torch

    if type(module) is torch.nn.RMSNorm:
        hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
        if any(hooks):
            return "has hooks, which a new module would not"
        dimensions = len(module.normalized_shape)
        return "replaced" if dimensions == 1 else f"normalises {dimensions} dimensions"
    if isinstance(module, torch.nn.RMSNorm):
        return "a subclass of torch.nn.RMSNorm: what it computes is its own"
    if type(module).__name__.endswith("RMSNorm") and not isinstance(module, fused):
        return "not torch.nn.RMSNorm: its cast order and weight offset are its own"
    return None
