"""A run's attempts as a table of lengths and latencies that `miles simulate --lengths` and benchmarks/schedule.py read.

    miles run RECIPE --set 'middleware=[{use: trace}]'
    python benchmarks/trace.py runs/NAME traces/NAME.parquet

Columns: `group`, `prompt` and `output` (tokens), `seconds` (of the attempt, beside what else ran then), `reward`,
`status`. traces/smollm2-135m.parquet is of recipes/quickstart-async.yaml without its `system:`, so that answers are as
long as the model likes, with `max_new_tokens: 256`, groups of 8 and the model as it was before training.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from miles_core.observe.trajectories import read_groups


def main() -> None:
    run, to = Path(sys.argv[1]), Path(sys.argv[2])
    lines = [json.loads(line) for line in (run / "trace.jsonl").read_text(encoding="utf-8").splitlines()[1:]]
    seconds = {line["attempt"]: line["seconds"] for line in lines if line["purpose"] == "rollout"}
    rows = [
        {
            "group": group.number,
            "prompt": sum(len(sequence) for sequence in trajectory.sequences) - trajectory.sampled_count,
            "output": trajectory.sampled_count,
            "seconds": round(seconds[trajectory.id], 4),
            "reward": trajectory.reward,
            "status": trajectory.status.value,
        }
        for _, group, _ in read_groups(run / "trajectories")
        for trajectory in group.trajectories
    ]
    to.parent.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), to, compression="zstd")
    print(f"{len(rows)} attempts in {to}")


if __name__ == "__main__":
    main()
