#!/usr/bin/env python3
"""Forwards a run's metrics to Weights & Biases while it trains (pip install wandb; wandb login).

    python examples/wandb_forward.py runs/demo [project]
"""
import json, os, sys, time
import wandb

run_dir, project = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "keel"
wandb.init(project=project, name=os.path.basename(os.path.abspath(run_dir)))
with open(os.path.join(run_dir, "metrics.jsonl")) as file:
    line = ""
    while True:  # like tail -f; stop it with Ctrl-C
        line += file.readline()
        if not line.endswith("\n"):  # nothing new, or a line still being written
            time.sleep(1)
            continue
        record, line = json.loads(line), ""
        step, _ = record.pop("step"), record.pop("histograms", None)
        wandb.log({k: float(v) for k, v in record.items()}, step=step)
