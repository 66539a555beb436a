"""Whole-program checks: held-out rows, resuming from a folder, export, init, check."""
from common import *


def log_probs(model, rows, dtype="f32"):
    """Of each row's answer tokens, as `keel logprobs` gives them."""
    cases = "".join(json.dumps({"ids": row["ids"]}) + "\n" for row in rows)
    result = run([KEEL, "logprobs", "--model", model, "--cases", "-", "--dtype", dtype], input=cases)
    assert result.returncode == 0, result.stderr
    return [json.loads(line)["logprobs"][row["num_prompt"] - 1:] for line, row in zip(result.stdout.splitlines(), rows)]


class HeldOutRows(ProgramTest):
    def held_out(self, name, **options):
        self.done(train_command(name, trainer__steps=2, data__val_fraction=0.25, trainer__val_n=2, **options))
        folder = WORK / "runs" / name
        rows = read_lines(folder / "samples" / "val_0.jsonl")
        trained = {row["input"] for step in (1, 2) for row in read_lines(folder / "samples" / f"step_{step}.jsonl")}
        return [row["input"] for row in rows[::2]], trained, metrics(folder)

    def test_share_and_seed(self):
        held, trained, rows = self.held_out("held")
        self.assertEqual(len(held), 6)  # of 24 rows
        self.assertFalse(set(held) & trained)
        validated = [row["step"] for row in rows if "val-core/default/reward/mean@2" in row]
        self.assertEqual(validated, [0, 2])
        self.assertEqual(self.held_out("held_again")[0], held)
        self.assertNotEqual(self.held_out("held_otherwise", data__seed=8)[0], held)

    def test_with_validation_files_too(self):
        result = run(train_command("both", data__val_fraction=0.25, data__val_files=WORK / "val.jsonl"))
        self.assert_fault(result, 2, "data.val_fraction", "one of val_files and val_fraction")


class ResumeFromFolder(ProgramTest):
    def test_goes_on_from_another_runs_checkpoint(self):
        options = {"trainer__steps": 4, "trainer__save_every": 1, "trainer__keep": 9}
        self.done(train_command("source", **options))
        source, branch = WORK / "runs" / "source", WORK / "runs" / "branch"
        options["trainer__resume"] = source / "checkpoints" / "step_2"
        self.done(train_command("branch", **options))
        self.assertEqual([row["step"] for row in metrics(branch)], [3, 4])
        self.assert_same_run(branch, source, 4, first_step=3)
        # Its own checkpoints win from then on.
        options.update(trainer__steps=5)
        self.assertIn("resumed from step 4", self.done(train_command("branch", **options)).stderr)

    def test_folder_that_is_no_checkpoint(self):
        result = run(train_command("no_checkpoint", trainer__resume=WORK))
        self.assert_fault(result, 2, "trainer.resume", "checkpoint")

    def test_checkpoint_of_another_model(self):
        self.done(train_command("moe", trainer__steps=1))
        result = run(train_command("dense", model__path=MODELS / "qwen3_tied",
                                   trainer__resume=WORK / "runs" / "moe" / "checkpoints" / "step_1"))
        self.assert_fault(result, 2, "step_1", "another model")

    def test_damaged_checkpoint(self):
        self.done(train_command("flipped", trainer__steps=1))
        state = WORK / "runs" / "flipped" / "checkpoints" / "step_1" / "state.safetensors"
        data = bytearray(state.read_bytes())
        data[len(data) // 2] ^= 1
        state.write_bytes(data)
        self.assert_fault(run(train_command("flipped", trainer__steps=2)), 2, "state.safetensors", "checksum")


class Export(ProgramTest):
    @classmethod
    def setUpClass(cls):
        result = run(train_command("exported", trainer__save_every=1, trainer__keep=9))
        assert result.returncode == 0, result.stderr
        cls.run_folder = WORK / "runs" / "exported"

    def test_weights_give_the_log_probs_of_training(self):
        """Answers of step 3 were sampled from the weights after step 2."""
        folder = WORK / "hf_f32"
        self.done([KEEL, "export", self.run_folder, folder, "--step", 2, "--dtype", "f32"])
        self.done([KEEL, "check", "--model", folder, "--weights"])
        rows = read_lines(self.run_folder / "samples" / "step_3.jsonl")
        self.assertEqual(log_probs(folder, rows), [row["log_probs"] for row in rows])
        self.assertNotEqual(log_probs(MODELS / "qwen3_moe", rows), [row["log_probs"] for row in rows])

    def test_exported_folder_trains(self):
        folder = WORK / "hf_bf16"
        self.done([KEEL, "export", self.run_folder, folder])
        self.assertLess((folder / "model.safetensors").stat().st_size, (MODELS / "qwen3_moe/model.safetensors").stat().st_size)
        self.done(train_command("from_export", model__path=folder, model__dtype="bf16", trainer__steps=1))

    def test_faults(self):
        self.assert_fault(run([KEEL, "export", self.run_folder, WORK / "hf_9", "--step", 9]), 2, "step 9", "--step 3")
        self.assert_fault(run([KEEL, "export", WORK, WORK / "hf_no_run"]), 2, "checkpoint")
        self.assert_fault(run([KEEL, "export", self.run_folder, MODELS / "qwen3_moe"]), 2, "empty")
        self.assertFalse((WORK / "hf_9").exists())


class Init(ProgramTest):
    CONFIG = SOURCE / "tests/golden/models/qwen3_moe/config.json"

    def init(self, name, seed):
        self.done([KEEL, "init", self.CONFIG, WORK / name, "--tokenizer", MODELS / "qwen3_moe", "--seed", seed])
        return (WORK / name / "model.safetensors").read_bytes()

    def test_a_new_model_trains(self):
        first = self.init("new_1", 1)
        self.assertTrue(first == self.init("new_1_again", 1))
        self.assertFalse(first == self.init("new_2", 2))
        self.done([KEEL, "check", "--model", WORK / "new_1", "--weights"])
        self.done(train_command("from_new", model__path=WORK / "new_1", trainer__steps=1))

    def test_faults(self):
        result = run([KEEL, "init", self.CONFIG, MODELS / "qwen3_moe"])
        self.assert_fault(result, 2, "qwen3_moe")
        self.assert_fault(run([KEEL, "init", WORK / "none.json", WORK / "x"]), 2, "none.json")
        bad = write_lines(WORK / "bad_config.json", [{"model_type": "no_such_model"}])
        self.assert_fault(run([KEEL, "init", bad, WORK / "x"]), 2, "no_such_model")


class Check(ProgramTest):
    def check(self, *options):
        return run([KEEL, "check", *options])

    def test_good_data_and_model(self):
        result = self.done([KEEL, "check", "--data", WORK / "train.jsonl", WORK / "val.jsonl", "--model", MODELS / "llama3"])
        self.assertEqual(result.stdout, "no errors\n")

    def test_each_fault_is_a_line_with_its_place(self):
        data = WORK / "faulty.jsonl"
        data.write_text('{"prompt": "a", "answer": "1"}\n{"prompt": "", "answer": "2"}\n{"prompt": "c", "answ\n')
        result = self.check("--data", data)
        self.assertEqual((result.returncode, result.stderr), (2, ""), result)
        lines = result.stdout.splitlines()
        self.assertTrue(any(f"{data}:2" in line for line in lines), lines)
        self.assertTrue(any(f"{data}:3" in line for line in lines), lines)
        findings = [json.loads(line) for line in self.check("--data", data, "--json").stdout.splitlines()]
        self.assertEqual({f["line"] for f in findings if f["level"] == "error"}, {2, 3})

    def test_bad_model(self):
        folder = WORK / "no_weights"
        shutil.copytree(MODELS / "llama3", folder)
        (folder / "model.safetensors").unlink()
        result = self.check("--model", folder)
        self.assertEqual((result.returncode, result.stderr), (2, ""), result)
        self.assertIn("error", result.stdout)

    def test_wrong_options(self):
        self.assert_fault(self.check(), 2, "--data", "--model")
        self.assert_fault(self.check("--data", WORK / "train.jsonl", "--task", "rlx"), 2, "rlx")


if __name__ == "__main__":
    main()
