"""Inline PTX for sums over a block or a thread-block cluster, which Triton 3.6 does with two barriers or not at all.

Two ways to exchange numbers over a cluster. `barrier`: stores into the peers' shared memory between two cluster barriers; its
release waits for every store of the block and its acquire empties the L1. `remote`: stores that count on a barrier of the
receiver (st.async), with neither. Its waits look at the block's own shared memory alone.
"""

from __future__ import annotations

__all__ = ["block_sum_asm", "cluster_start_asm", "cluster_sum_asm"]

ARRIVE = "barrier.cluster.arrive.relaxed.aligned;"
WAIT = "barrier.cluster.wait.acquire.aligned;"


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


def cluster_start_asm(floats: int, *, remote: bool) -> str:
    """PTX that begins a kernel whose blocks exchange `floats` numbers per sum: "I have started", which the peers wait for.

    The remote way also makes its shared memory ready, and waits here. Later nothing waits for the peers: a block has every number
    that is sent to it before it ends, so none can reach memory that has gone to another block, and its peers live until they
    have its own. The memory serves one sum: a second one would need a second buffer and barrier.
    """
    if not remote:
        return f"{ARRIVE} // $0"
    return "\n".join(
        [
            f".shared .align 16 .b8 exchange[{4 * max(floats, 4)}];",
            ".shared .align 8 .b64 exchange_bar;",
            "{ .reg .pred p; .reg .b32 t; mov.u32 t, %tid.x; setp.eq.u32 p, t, 0;",
            "@p mbarrier.init.shared::cta.b64 [exchange_bar], 1;",
            "@p fence.mbarrier_init.release.cluster;",
            ARRIVE,
            f"{WAIT} // $0",
            "}",
        ]
    )


def _by_barrier(slot: list[str], count: int, value: str) -> list[str]:
    """PTX: the first `count` lanes store `value` into their block of the cluster, between two cluster barriers."""
    return [
        ".reg .pred send; .reg .b32 base, slot, there; mov.u32 base, part;",
        *slot,
        f"shl.b32 slot, slot, 2; add.u32 slot, slot, base; setp.lt.u32 send, lane, {count};",
        WAIT,
        "@send mapa.shared::cluster.u32 there, slot, lane;",
        f"@send st.shared::cluster.f32 [there], {value};",
        "barrier.cluster.arrive.release.aligned;",
        WAIT,
    ]


def _by_remote(floats: int, slot: list[str], count: int, value: str) -> list[str]:
    """PTX: the first `count` lanes send `value` to their block of the cluster; everybody waits for all `floats` numbers."""
    return [
        ".reg .pred send, first, done; .reg .b32 base, bar, slot, there, bar_there, bits;",
        f"mov.b32 bits, {value}; mov.u32 base, exchange; mov.u32 bar, exchange_bar;",
        "mov.u32 there, %tid.x; setp.eq.u32 first, there, 0;",
        f"@first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {4 * floats};",
        *slot,
        f"shl.b32 slot, slot, 2; add.u32 slot, slot, base; setp.lt.u32 send, lane, {count};",
        "@send mapa.shared::cluster.u32 there, slot, lane;",
        "@send mapa.shared::cluster.u32 bar_there, bar, lane;",
        "@send st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [there], bits, [bar_there];",
        "wait: mbarrier.try_wait.parity.shared::cta.b64 done, [bar], 0; @!done bra wait;",
    ]


def block_sum_asm(warps: int, ctas: int, *, remote: bool = False) -> str:
    """PTX that turns each thread's FP32 partial sum ($1) into the sum over the block or cluster ($0), the same in every thread.

    One block: shuffles, one barrier, every thread adds the warps' sums as a tree. A cluster: each warp sends its sum to every
    block, then each warp adds all of them. The order is fixed: bits repeat. `warps` and `ctas` are powers of two, at most 32 and
    16. Once per kernel.
    """
    total = warps * ctas
    butterfly = [f"shfl.sync.bfly.b32 u, {{0}}, {k}, 31, -1; add.f32 {{0}}, {{0}}, u;" for k in (16, 8, 4, 2, 1)]
    lines = [
        "{",
        ".reg .pred p; .reg .b32 lane, warp; .reg .f32 sum, u;",
        "mov.u32 lane, %tid.x; shr.u32 warp, lane, 5; and.b32 lane, lane, 31; mov.f32 sum, $1;",
        *[line.format("sum") for line in butterfly],
    ]
    if not (remote and ctas > 1):
        lines.append(f".shared .align 16 .b8 part[{4 * max(total, 4)}];")
    if ctas == 1:
        lines += [
            f".reg .b32 base, slot; .reg .f32 v<{warps}>; mov.u32 base, part;",
            "setp.eq.u32 p, lane, 0; shl.b32 slot, warp, 2; add.u32 slot, slot, base;",
            "@p st.shared.f32 [slot], sum;",
            "bar.sync 0;",
            *_loads(warps, "base"),
            *_tree(warps),
        ]
    else:
        each = max(1, total // 32)
        slot = [f"mov.u32 slot, %cluster_ctarank; mad.lo.u32 slot, slot, {warps}, warp;"]
        lines += _by_remote(total, slot, ctas, "sum") if remote else _by_barrier(slot, ctas, "sum")
        lines.append(f".reg .f32 v<{each}>; mul.lo.u32 slot, lane, {4 * each}; add.u32 slot, slot, base;")
        if total < 32:
            lines += [f"setp.lt.u32 p, lane, {total}; mov.f32 v0, 0f00000000; @p ld.shared.f32 v0, [slot];"]
        else:
            lines += [*_loads(each, "slot"), *_tree(each)]
        lines += [line.format("v0") for line in butterfly]
    return "\n".join([*lines, "mov.f32 $0, v0;", "}"])


def cluster_sum_asm(ctas: int, *, remote: bool = False) -> str:
    """PTX that adds one FP32 number per block ($1, the same in all its threads) over a cluster of 2 to 16 blocks into $0."""
    slot = ["mov.u32 slot, %cluster_ctarank;"]
    lines = ["{", f".reg .b32 lane; mov.u32 lane, %tid.x; .reg .f32 v<{ctas}>;"]
    if remote:
        lines += _by_remote(ctas, slot, ctas, "$1")
    else:
        lines += [f".shared .align 16 .b8 part[{4 * max(ctas, 4)}];", *_by_barrier(slot, ctas, "$1")]
    return "\n".join([*lines, *_loads(ctas, "base"), *_tree(ctas), "mov.f32 $0, v0;", "}"])
