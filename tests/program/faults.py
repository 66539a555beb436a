"""What users meet when something is wrong: one clear line, the documented exit code, state saved where there is state."""
import os
import shutil
import signal
import socket
import subprocess
import time
import unittest

from common import *

IN_NAMESPACE = ["unshare", "-rm", "sh", "-c"]


def can_mount():
    try:
        return run(IN_NAMESPACE + [f"mount -t tmpfs -o size=64k none '{SOURCE}'"]).returncode == 0
    except FileNotFoundError:
        return False


class WrongInput(ProgramTest):
    def fault(self, *words, **options):
        self.assert_fault(run(train_command("wrong", **options)), 2, *words)
        self.assertFalse((WORK / "runs" / "wrong").exists(), "a run folder was made")

    def test_missing_model_folder(self):
        self.fault("model.path", "expected a file or folder", "try " + str(MODELS / "qwen3_moe"),
                   model__path=MODELS / "qwen3_mo")

    def test_missing_hub_model(self):
        self.fault("no-such-org/no-such-model", "huggingface-cli download", model__path="no-such-org/no-such-model")

    def test_damaged_model(self):
        folder = WORK / "cut_model"
        shutil.copytree(MODELS / "qwen3_moe", folder)
        with open(folder / "model.safetensors", "r+b") as f:
            f.truncate(f.seek(0, os.SEEK_END) // 2)
        self.fault("cut_model/model.safetensors", model__path=folder)

    def test_wrong_key(self):
        self.fault("rollout.temprature", "try rollout.temperature", rollout__temprature=1)

    def test_key_of_another_framework(self):
        self.fault("actor.mini_batch_size", actor__ppo_mini_batch_size=2)

    def test_wrong_value(self):
        self.fault("rollout.n", "a whole number", "three", rollout__n="three")
        self.fault("actor.loss", "gspo", actor__loss="gsop")

    def test_missing_recipe(self):
        self.assert_fault(run([KEEL, "train", WORK / "none.yaml"]), 2, "none.yaml")

    def test_broken_recipe(self):
        recipe = WORK / "broken.yaml"
        recipe.write_text("model:\n  path: [unclosed\n")
        self.assert_fault(run([KEEL, "train", recipe]), 2, "broken.yaml:")

    def test_broken_data(self):
        data = write_lines(WORK / "broken.jsonl", prompts(8))
        data.write_text(data.read_text() + '{"prompt": "cut')
        self.fault("broken.jsonl:9", data__train_files=data)

    def test_missing_data(self):
        self.fault("train.jsnl", "train.jsonl", data__train_files=WORK / "train.jsnl")

    def test_data_smaller_than_a_batch(self):
        self.fault("data.train_batch_size", "24", data__train_batch_size=64)

    def test_no_reward_for_the_data(self):
        self.assert_fault(run(train_command("no_rule", reward__path=None, reward__num_workers=None)), 2, "reward.rule")

    def test_broken_reward(self):
        code = WORK / "broken_reward.py"
        code.write_text("def compute_score(:\n")
        self.assert_fault(run(train_command("broken_reward", reward__path=code)), 2, "broken_reward.py")

    def test_answers_longer_than_the_model(self):
        self.fault("rollout.max_new_tokens", rollout__max_new_tokens=100000, actor__micro_batch_tokens=200000)

    def test_run_that_exists(self):
        self.done(train_command("twice", trainer__steps=1))
        self.assert_fault(run(train_command("twice", trainer__resume="never")), 2, "trainer.name", "runs/twice")


class Resources(ProgramTest):
    def test_file_in_place_of_the_run_folder(self):
        (WORK / "file").write_text("")
        self.assert_fault(run(train_command("a", trainer__run_dir=WORK / "file")), 3, WORK / "file", "try")

    @unittest.skipUnless(can_mount(), "no file system can be mounted here")
    def test_read_only_run_folder(self):
        folder = WORK / "read_only"
        folder.mkdir()
        mount = f"mount -t tmpfs none '{folder}' && mount -o remount,ro '{folder}' && exec \"$@\""
        result = run(IN_NAMESPACE + [mount, "sh"] + train_command("a", trainer__run_dir=folder))
        self.assert_fault(result, 3, folder, "Read-only file system", "try")

    @unittest.skipUnless(can_mount(), "no file system can be mounted here")
    def test_full_disk_at_the_start(self):
        folder = WORK / "tiny_disk"
        folder.mkdir()
        mount = f"mount -t tmpfs -o size=4k none '{folder}' && exec \"$@\""
        result = run(IN_NAMESPACE + [mount, "sh"] + train_command("a", trainer__run_dir=folder))
        self.assert_fault(result, 3, folder, "No space left on device", "try")

    @unittest.skipUnless(can_mount(), "no file system can be mounted here")
    def test_disk_that_fills_up_and_is_cleaned(self):
        """The first checkpoint fits, the second does not; with more space the run goes on from the first."""
        options = {"trainer__save_every": 1, "trainer__keep": 2}
        self.done(train_command("whole", **options))
        size = len(weights(WORK / "runs" / "whole", 3))
        folder, out = WORK / "small_disk", WORK / "after_full"
        folder.mkdir()
        script = f"""mount -t tmpfs -o size={size * 3 // 2} none '{folder}' || exit 99
            "$@" 2>'{WORK}/full.txt'; code=$?
            ls -A '{folder}/a/checkpoints' >'{WORK}/left.txt'
            mount -o remount,size={size * 8} '{folder}' && "$@" && cp -r '{folder}/a' '{out}' && exit $code"""
        result = run(IN_NAMESPACE + [script, "sh"] + train_command("a", trainer__run_dir=folder, **options))
        self.assertEqual(result.returncode, 3, result.stderr)
        faults = [line for line in (WORK / "full.txt").read_text().splitlines() if line.startswith("keel: ")]
        self.assertEqual(len(faults), 1, faults)
        self.assertIn("No space left on device", faults[0])
        self.assertEqual((WORK / "left.txt").read_text().split(), ["step_1"])
        self.assert_same_run(out, WORK / "runs" / "whole", 3)


class Interrupts(ProgramTest):
    def interrupt(self, command, ready, signal_number=signal.SIGINT):
        """Sends the signal to the whole process group, as a terminal does, as soon as ready() is true."""
        child = subprocess.Popen([str(c) for c in command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                 start_new_session=True)
        self.addCleanup(child.kill)
        while not ready() and child.poll() is None:
            time.sleep(0.002)
        os.killpg(child.pid, signal_number)
        _, err = child.communicate(timeout=60)
        self.assertEqual(child.returncode, 130, err)
        self.assertNotIn("Traceback", err)
        said = [line for line in err.splitlines() if line.startswith("keel: ")]
        self.assertEqual(len(said), 2, err)
        self.assertIn("stopping at the next safe point", said[0])
        return said[1]

    def interrupt_and_resume(self, name, signal_number):
        options = {"trainer__steps": 12, "data__val_files": WORK / "val.jsonl", "trainer__val_every": 5}
        if not (WORK / "runs" / "unbroken").exists():
            self.done(train_command("unbroken", **options))
        command, folder = train_command(name, **options), WORK / "runs" / name
        line = self.interrupt(command, (folder / "samples" / "step_3.jsonl").exists, signal_number)
        self.assertRegex(line, r"interrupted; step \d+ was saved, the same command goes on from there")
        self.done(command)
        self.assert_same_run(folder, WORK / "runs" / "unbroken", 12)

    def test_ctrl_c_and_resume(self):
        self.interrupt_and_resume("ctrl_c", signal.SIGINT)

    def test_sigterm_and_resume(self):
        self.interrupt_and_resume("sigterm", signal.SIGTERM)

    def test_before_the_first_step(self):
        """In the first validation, which is long here."""
        folder = WORK / "runs" / "early"
        command = train_command("early", trainer__val_n=1000, data__val_files=WORK / "val.jsonl")
        line = self.interrupt(command, (folder / "metrics.jsonl").exists)
        self.assertIn("before the first step", line)

    def test_in_the_supervised_warm_up(self):
        data = write_lines(WORK / "sft.jsonl", [{"prompt": "a", "completion": "b"}] * 32)
        folder = WORK / "runs" / "warm"
        command = train_command("warm", sft__steps=100000, sft__train_files=data)
        line = self.interrupt(command, (folder / "metrics.jsonl").exists)
        self.assertIn("before the first step", line)

    def test_one_of_two_ranks(self):
        """Both stop at the same step, whichever was told."""
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        folder = WORK / "runs" / "two_ranks"
        ranks = []
        for rank in range(2):
            env = {**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            command = train_command("two_ranks", trainer__steps=1000, trainer__log_samples=1)
            ranks.append(subprocess.Popen([str(c) for c in command], env=env, stdout=subprocess.DEVNULL,
                                          stderr=subprocess.PIPE, text=True))
            self.addCleanup(ranks[-1].kill)
        while not (folder / "samples" / "step_2.jsonl").exists() and ranks[0].poll() is None:
            time.sleep(0.005)
        ranks[1].send_signal(signal.SIGINT)
        for rank in ranks:
            _, err = rank.communicate(timeout=60)
            self.assertEqual(rank.returncode, 130, err)
            self.assertRegex(err, r"interrupted; step \d+ was saved")

    def test_rollout(self):
        log = WORK / "rollout_reward.py"
        started = WORK / "rollout_started"
        log.write_text(f"open({str(started)!r}, 'w').close()\n" + REWARD.read_text())
        command = train_command("x", rollout__n=5000, reward__path=log)
        command[1:2] = ["rollout", "--out", WORK / "none.jsonl"]
        self.assertIn("interrupted", self.interrupt(command, started.exists))
        self.assertFalse((WORK / "none.jsonl").exists())


if __name__ == "__main__":
    main()
