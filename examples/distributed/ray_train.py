"""The training of train.py as tasks of Ray (pip install ray).

python examples/distributed/ray_train.py --processes 2
"""

from __future__ import annotations

import argparse
import os
import pathlib
import secrets
import socket
import sys

import ray

HERE = pathlib.Path(__file__).resolve().parent


@ray.remote(num_cpus=1)
class Worker:
    """One process of the job, on whichever machine Ray puts it."""

    def address(self) -> tuple[str, int]:
        """Where rank 0 can listen."""
        with socket.socket() as s:
            s.bind(("", 0))
            return ray.util.get_node_ip_address(), s.getsockname()[1]

    def run(self, env: dict[str, str], options: argparse.Namespace) -> float:
        os.environ.update(env)
        sys.path.insert(0, str(HERE))
        import train

        import megengine.distributed as dist

        dist.init_process_group()
        return train.train(options)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--batch-size", type=int, default=128, help="of all processes together")
    parser.add_argument("--lr", type=float, default=2e-3)
    options = parser.parse_args()
    ray.init(num_cpus=options.processes, include_dashboard=False)
    workers = [Worker.remote() for _ in range(options.processes)]
    master, port = ray.get(workers[0].address.remote())
    job = {"MASTER_ADDR": master, "MASTER_PORT": str(port), "MGE_DIST_TOKEN": secrets.token_hex(16)}
    tasks = []
    for rank, worker in enumerate(workers):
        env = {**job, "RANK": str(rank), "WORLD_SIZE": str(len(workers)), "LOCAL_RANK": "0"}
        tasks.append(worker.run.remote(env, options))
    print("accuracy of each process:", ray.get(tasks))


if __name__ == "__main__":
    main()
