"""For the scripts of this folder, which run the program as users do and look at what users see.

Usage of each: SCRIPT.py KEEL SOURCE_DIR WORK_DIR [unittest arguments]"""
import json
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

KEEL, SOURCE, WORK = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
MODELS = SOURCE / "tests" / "golden" / "models"
REWARD = SOURCE / "tests" / "resume" / "reward.py"
# Metrics of how a step was generated: a replay has none.
GENERATION = ("training/gen_batches", "training/dropped_groups")


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def prompts(count, word="train"):
    return [{"prompt": f"{word} question {i}: tell me", "answer": str(i)} for i in range(count)]


def train_command(name, **options):
    """A run of the tiny MoE with keys as model__path=...; one not wanted is None."""
    keys = {"model.path": MODELS / "qwen3_moe", "data.train_files": WORK / "train.jsonl", "data.train_batch_size": 4,
            "data.max_prompt_length": 64, "rollout.n": 4, "rollout.max_new_tokens": 12, "optim.lr": 1.0e-3,
            "reward.path": REWARD, "reward.num_workers": 1, "trainer.run_dir": WORK / "runs", "trainer.name": name,
            "trainer.steps": 3, "trainer.threads": 1, "trainer.log_samples": -1}
    keys.update({key.replace("__", "."): value for key, value in options.items()})
    return [KEEL, "train"] + [f"{key}={value}" for key, value in keys.items() if value is not None]


def run(command, **how):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=300, **how)


def metrics(folder, first_step=0, without=()):
    """Rows of metrics.jsonl without what may differ between equal runs."""
    rows = [{k: v for k, v in row.items() if not k.startswith(("timing_", "perf/")) and k not in without}
            for row in read_lines(folder / "metrics.jsonl")]
    return [row for row in rows if row["step"] >= first_step]


def weights(folder, step):
    return (folder / "checkpoints" / f"step_{step}" / "state.safetensors").read_bytes()


def samples(folder, pattern="step_*.jsonl"):
    return {p.name: p.read_bytes() for p in sorted((folder / "samples").glob(pattern))}


class ProgramTest(unittest.TestCase):
    maxDiff = 2000

    def done(self, command, **how):
        """Runs a command that must succeed."""
        result = run(command, **how)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result

    def assert_fault(self, result, code, *words):
        """One line that says what is wrong, nothing else, and the exit code."""
        self.assertEqual(result.returncode, code, result.stderr)
        lines = result.stderr.splitlines()
        self.assertEqual(len(lines), 1, result.stderr)
        self.assertTrue(lines[0].startswith("keel: "), result.stderr)
        for word in words:
            self.assertIn(str(word), lines[0])

    def assert_same_run(self, got, want, last_step, first_step=0, without=()):
        self.assertEqual(metrics(got, first_step, without), metrics(want, first_step, without))
        files = samples(want)
        self.assertEqual({k: v for k, v in samples(got).items() if int(k[5:-6]) >= first_step},
                         {k: v for k, v in files.items() if int(k[5:-6]) >= first_step})
        self.assertTrue(weights(got, last_step) == weights(want, last_step), "weights or moments differ")


def main():
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    write_lines(WORK / "train.jsonl", prompts(24))
    write_lines(WORK / "val.jsonl", prompts(3, "val"))
    unittest.main(module="__main__", argv=sys.argv[:1] + sys.argv[4:], verbosity=2)
