"""A run that is killed with SIGKILL at random instants and resumed must equal the unbroken run: metrics (except time and
memory), samples and final training state, bit for bit.

Usage: kill_and_resume.py KEEL SOURCE_DIR WORK_DIR [KILLED_RUNS]"""
import json
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

KEEL, SOURCE, WORK = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
RUNS = int(sys.argv[4]) if len(sys.argv) > 4 else 4
STEPS = 6


def command(name):
    return [KEEL, "train", f"model.path={SOURCE}/tests/golden/models/qwen3_moe", f"data.train_files={WORK}/train.jsonl",
            f"data.val_files={WORK}/val.jsonl", "data.train_batch_size=4", "data.max_prompt_length=64", "rollout.n=4",
            "rollout.max_new_tokens=12", "optim.lr=1.0e-3", f"reward.path={SOURCE}/tests/resume/reward.py",
            "reward.num_workers=1", f"trainer.run_dir={WORK}/runs", f"trainer.name={name}", f"trainer.steps={STEPS}",
            "trainer.save_every=1", "trainer.val_every=2", "trainer.val_n=2", "trainer.log_samples=-1",
            "actor.mini_batch_size=2", "dynamic_sampling.enable=true", "dynamic_sampling.max_batches=2",
            "dynamic_sampling.fallback=fill"]


def untimed(run):
    """metrics.jsonl without what may differ."""
    out = []
    for line in (run / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        out.append({k: v for k, v in row.items() if not k.startswith(("timing_", "perf/"))})
    return out


def snapshot(run):
    files = {p.name: p.read_bytes() for p in sorted((run / "samples").iterdir())}
    state = (run / "checkpoints" / f"step_{STEPS}" / "state.safetensors").read_bytes()
    return untimed(run), files, state


def main():
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    for name, count in (("train", 24), ("val", 3)):
        rows = [json.dumps({"prompt": f"{name} question {i}: tell me", "answer": str(i)}) for i in range(count)]
        (WORK / f"{name}.jsonl").write_text("\n".join(rows) + "\n")
    start = time.time()
    subprocess.run(command("whole"), check=True, capture_output=True)
    seconds = time.time() - start
    want = snapshot(WORK / "runs" / "whole")
    rng = random.Random(3)
    kills = 0
    for run in range(RUNS):
        name = f"killed_{run}"
        while True:
            child = subprocess.Popen(command(name), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            try:
                _, err = child.communicate(timeout=rng.uniform(0.02, seconds * 0.8))
                if child.returncode != 0:
                    sys.exit(f"{name}: exit code {child.returncode}: {err.decode()[-500:]}")
                break
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
                kills += 1
        got = snapshot(WORK / "runs" / name)
        for part, a, b in zip(("metrics", "samples", "state"), got, want):
            if a != b:
                sys.exit(f"{name}: {part} differ from the unbroken run")
        shutil.rmtree(WORK / "runs" / name)
    print(f"{RUNS} runs, {kills} kills: metrics, samples and state equal the unbroken run")


main()
