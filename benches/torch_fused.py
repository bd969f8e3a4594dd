#!/usr/bin/env python3
"""GEMM + ReduceScatter by PyTorch's symmetric memory, on the shapes of benches/reduce_scatter, for comparison.

One process for each GPU. Prints a table and writes JSON: for each shape the median over rounds of the slowest rank's time of
fused_matmul_reduce_scatter, and of matmul followed by reduce_scatter_tensor, which take turns; and the ratio of the two.
Results are checked before they are timed. NVLink multicast stays off: the other candidates do not use it either.

usage: torch_fused.py [--rounds N] [--world N] [--out FILE]
"""

import argparse
import json
import os
import statistics
import sys

os.environ["NCCL_NVLS_ENABLE"] = "0"
os.environ["TORCH_SYMM_MEM_DISABLE_MULTICAST"] = "1"

SHAPES = [
    (8192, 8192, 29568),
    (8192, 8192, 28672),
    (8192, 4096, 14336),
    (8192, 8192, 4096),
    (4096, 4096, 8192),
    (2048, 8192, 28672),
    (512, 8192, 28672),
    (128, 8192, 28672),
    (16, 8192, 28672),
]
CALLS = 8


def measure(rank, world, rounds):
    import torch
    import torch.distributed as dist
    import torch.distributed._symmetric_memory as symm_mem

    group = dist.group.WORLD
    name = group.group_name
    if hasattr(symm_mem, "enable_symm_mem_for_group"):
        symm_mem.enable_symm_mem_for_group(name)
    rows = []
    for m, n, k in SHAPES:
        if m % world or k % world:
            continue
        k_rank = k // world
        torch.manual_seed(rank)
        sets = []
        for _ in range(2):
            a = torch.empty(m, k_rank, device="cuda", dtype=torch.bfloat16).uniform_(-1, 1)
            b = torch.empty(n, k_rank, device="cuda", dtype=torch.bfloat16).uniform_(-1, 1)
            sets.append((a, b.t()))
        out = torch.full((m // world, n), float("nan"), device="cuda", dtype=torch.bfloat16)

        def fused(i):
            a, b = sets[i % 2]
            return torch.ops.symm_mem.fused_matmul_reduce_scatter(a, b, "sum", 0, name)

        def unfused(i):
            a, b = sets[i % 2]
            dist.reduce_scatter_tensor(out, a @ b, group=group)
            return out

        row = {"extents": [m, n, k], "world": world}
        try:
            got, want = fused(0).float(), unfused(0).float()
            scale = want.std().item()
            row["largest_error_in_deviations"] = (got - want).abs().max().item() / scale
            if not row["largest_error_in_deviations"] < 0.05 * world:
                raise RuntimeError("the fused result is wrong")
            samples = {"fused": [], "unfused": []}
            for i in range(rounds + 1):
                for key, run in (("fused", fused), ("unfused", unfused)):
                    torch.cuda.synchronize()
                    dist.barrier()
                    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                    run(0)
                    start.record()
                    for call in range(1, CALLS + 1):
                        run(call)
                    end.record()
                    torch.cuda.synchronize()
                    slowest = torch.tensor([start.elapsed_time(end) / CALLS * 1e-3], device="cuda")
                    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
                    if i > 0:
                        samples[key].append(slowest.item())
            ratios = sorted(u / f for f, u in zip(samples["fused"], samples["unfused"]))
            quartiles = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
            row["ratio"] = statistics.median(samples["unfused"]) / statistics.median(samples["fused"])
            row["spread"] = (quartiles[2] - quartiles[0]) / 2 / quartiles[1]
            for key, values in samples.items():
                seconds = statistics.median(values)
                row[key + "_seconds"] = seconds
                row[key + "_tflops_per_gpu"] = 2 * m * n * k_rank / seconds * 1e-12
        except Exception as error:  # One shape's failure is a result; all ranks fail alike.
            row["error"] = f"{type(error).__name__}: {error}"
        rows.append(row)
    return rows


def table(rows):
    """The rows as text."""
    lines = [("M×N×K", "fused ms", "gemm, then nccl ms", "ratio", "spread")]
    for row in rows:
        shape = "×".join(map(str, row["extents"]))
        if "error" in row:
            lines.append((shape, row["error"], "", "", ""))
            continue
        times = (f"{row[key + '_seconds'] * 1e3:.4f}" for key in ("fused", "unfused"))
        lines.append((shape, *times, f"{row['ratio']:.3f}", f"{row['spread'] * 100:.1f} %"))
    widths = [max(len(line[col]) for line in lines) for col in range(5)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines)


def worker(rank, world, rounds, port, out):
    from datetime import timedelta

    import torch
    import torch.distributed as dist

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=world, timeout=timedelta(seconds=120),
                            device_id=torch.device("cuda", rank))
    try:
        rows = measure(rank, world, rounds)
        if rank == 0:
            card = torch.cuda.get_device_name(0)
            result = {"bench": "torch_fused", "torch": torch.__version__, "card": card, "rows": rows}
            print(f"torch {torch.__version__} on {card}, {world} ranks; K over all ranks\n{table(rows)}", flush=True)
            if out:
                with open(out, "w", encoding="utf-8") as file:
                    file.write(json.dumps(result, indent=2) + "\n")
    finally:
        dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--world", type=int, default=0, help="processes; as many as there are GPUs unless given")
    parser.add_argument("--out", help="also write the JSON to this file")
    arguments = parser.parse_args()
    try:
        import torch
    except ImportError:
        print("torch is not installed here, nothing measured", file=sys.stderr)
        return 0
    world = arguments.world or torch.cuda.device_count()
    if world < 2:
        print(f"two GPUs are needed, {world} there, nothing measured", file=sys.stderr)
        return 0
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    import torch.multiprocessing as mp

    mp.spawn(worker, args=(world, arguments.rounds, port, arguments.out), nprocs=world)
    return 0


if __name__ == "__main__":
    sys.exit(main())
