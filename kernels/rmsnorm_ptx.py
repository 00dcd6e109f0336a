"""Inline PTX for sums over a block or a thread-block cluster, which Triton 3.6 does with two barriers or not at all."""

from __future__ import annotations

__all__ = ["block_sum_asm", "cluster_sum_asm"]


def _tree(n: int) -> list[str]:
    lines: list[str] = []
    half = n // 2
    while half:
        lines += [f"add.f32 v{i}, v{i}, v{i + half};" for i in range(half)]
        half //= 2
    return lines


def _loads(n: int, base: str) -> list[str]:
    width = 4 if n >= 4 else n
    kind = {1: "f32", 2: "v2.f32", 4: "v4.f32"}[width]
    lines: list[str] = []
    for i in range(0, n, width):
        names = ", ".join(f"v{j}" for j in range(i, i + width))
        names = f"{{{names}}}" if width > 1 else names
        lines.append(f"ld.shared.{kind} {names}, [{base}+{4 * i}];")
    return lines


def block_sum_asm(warps: int, ctas: int) -> str:
    """PTX that turns each thread's FP32 partial sum ($1) into the sum over the block or cluster ($0), the same in every thread.

    One block: shuffles, one barrier, every thread adds the warps' sums as a tree. A cluster: each warp writes its sum into
    every block's shared memory, one cluster barrier, then each warp adds all of them. The order is fixed: bits repeat.
    `warps` and `ctas` are powers of two, at most 32 and 16.
    """
    total = warps * ctas
    butterfly = [f"shfl.sync.bfly.b32 u, {{0}}, {k}, 31, -1; add.f32 {{0}}, {{0}}, u;" for k in (16, 8, 4, 2, 1)]
    lines = [
        "{",
        ".reg .pred p; .reg .b32 lane, warp, base, slot; .reg .f32 sum, u;",
        f".shared .align 16 .b8 part[{4 * max(total, 4)}];",
        "mov.u32 lane, %tid.x; shr.u32 warp, lane, 5; and.b32 lane, lane, 31; mov.u32 base, part; mov.f32 sum, $1;",
        *[line.format("sum") for line in butterfly],
    ]
    if ctas == 1:
        lines += [
            f".reg .f32 v<{warps}>;",
            "setp.eq.u32 p, lane, 0; shl.b32 slot, warp, 2; add.u32 slot, slot, base;",
            "@p st.shared.f32 [slot], sum;",
            "bar.sync 0;",
            *_loads(warps, "base"),
            *_tree(warps),
        ]
    else:
        each = max(1, total // 32)
        lines += [
            f".reg .f32 v<{each}>; .reg .b32 there;",
            f"mov.u32 slot, %cluster_ctarank; mad.lo.u32 slot, slot, {warps}, warp; shl.b32 slot, slot, 2;",
            "add.u32 slot, slot, base;",
            f"setp.lt.u32 p, lane, {ctas};",
            "barrier.cluster.wait.acquire.aligned;",
            "@p mapa.shared::cluster.u32 there, slot, lane;",
            "@p st.shared::cluster.f32 [there], sum;",
            "barrier.cluster.arrive.release.aligned;",
            "barrier.cluster.wait.acquire.aligned;",
            f"mul.lo.u32 slot, lane, {4 * each}; add.u32 slot, slot, base;",
        ]
        if total < 32:
            lines += [f"setp.lt.u32 p, lane, {total}; mov.f32 v0, 0f00000000; @p ld.shared.f32 v0, [slot];"]
        else:
            lines += [*_loads(each, "slot"), *_tree(each)]
        lines += [line.format("v0") for line in butterfly]
    return "\n".join([*lines, "mov.f32 $0, v0;", "}"])


def cluster_sum_asm(ctas: int) -> str:
    """PTX that adds one FP32 number per block ($1, the same in all its threads) over a cluster of 2, 4 or 8 blocks into $0."""
    lines = [
        "{",
        ".reg .pred p; .reg .b32 lane, base, slot, there;",
        f".reg .f32 v<{ctas}>;",
        f".shared .align 16 .b8 part[{4 * max(ctas, 4)}];",
        "mov.u32 lane, %tid.x; mov.u32 base, part; mov.u32 slot, %cluster_ctarank; shl.b32 slot, slot, 2;",
        f"add.u32 slot, slot, base; setp.lt.u32 p, lane, {ctas};",
        "barrier.cluster.wait.acquire.aligned;",
        "@p mapa.shared::cluster.u32 there, slot, lane;",
        "@p st.shared::cluster.f32 [there], $1;",
        "barrier.cluster.arrive.release.aligned;",
        "barrier.cluster.wait.acquire.aligned;",
        *_loads(ctas, "base"),
        *_tree(ctas),
    ]
    return "\n".join([*lines, "mov.f32 $0, v0;", "}"])
