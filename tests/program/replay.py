"""trainer.replay: a run that trains on the recorded answers of another equals it bit for bit; wrong records give one line."""
from common import *

RECORDED = WORK / "runs" / "recorded"
# Everything that shapes a step: several updates, truncated sampling, both kinds of reward shaping, dropped groups.
OPTIONS = {"trainer__steps": 4, "trainer__save_every": 1, "trainer__keep": 9, "trainer__val_every": 2,
           "data__val_files": WORK / "val.jsonl", "actor__mini_batch_size": 2, "dynamic_sampling__enable": "true",
           "dynamic_sampling__max_batches": 2, "dynamic_sampling__fallback": "fill", "rollout__top_p": 0.9,
           "rollout__temperature": 0.8, "overlong__enable": "true", "overlong__buffer_tokens": 4,
           "algorithm__use_kl_in_reward": "true", "algorithm__kl_coef": 0.1}


class Replay(ProgramTest):
    @classmethod
    def setUpClass(cls):
        result = run(train_command("recorded", **OPTIONS))
        assert result.returncode == 0, result.stderr

    def replayed(self, name, folder=RECORDED / "samples", **options):
        return train_command(name, **{**OPTIONS, "trainer__replay": folder, **options})

    def test_equals_the_recorded_run(self):
        # Neither the sampling seed nor the reward's code is asked.
        code = WORK / "failing_reward.py"
        code.write_text("def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n    return -5.0\n")
        self.done(self.replayed("equal", rollout__seed=99, reward__path=code, data__seed=1, data__val_files=None,
                                trainer__val_every=0))
        no_val = [{k: v for k, v in row.items() if not k.startswith("val-")} for row in metrics(RECORDED, 1, GENERATION)]
        self.assertEqual(metrics(WORK / "runs" / "equal", 1), no_val)
        self.assertEqual(samples(WORK / "runs" / "equal"), samples(RECORDED))
        self.assertTrue(weights(WORK / "runs" / "equal", 4) == weights(RECORDED, 4))
        self.assertTrue(all(row["training/rollout_probs_diff_max"] == 0 for row in no_val))

    def test_validates_as_the_recorded_run(self):
        self.done(self.replayed("validated"))
        self.assert_same_run(WORK / "runs" / "validated", RECORDED, 4, without=GENERATION)

    def test_one_step_from_a_checkpoint(self):
        folder = WORK / "one_step"
        folder.mkdir()
        shutil.copy(RECORDED / "samples" / "step_3.jsonl", folder)
        self.done(self.replayed("one", folder, trainer__resume=RECORDED / "checkpoints" / "step_2", trainer__steps=3))
        self.assertEqual(metrics(WORK / "runs" / "one", 3, GENERATION)[0]["actor/grad_norm"],
                         metrics(RECORDED, 3, GENERATION)[0]["actor/grad_norm"])
        self.assertTrue(weights(WORK / "runs" / "one", 3) == weights(RECORDED, 3))

    def test_an_edited_score_counts(self):
        folder = WORK / "edited"
        shutil.copytree(RECORDED / "samples", folder)
        rows = read_lines(folder / "step_1.jsonl")
        rows[0]["score"] += 0.5
        write_lines(folder / "step_1.jsonl", rows)
        self.done(self.replayed("edited", folder, trainer__steps=1))
        got, want = metrics(WORK / "runs" / "edited", 1)[0], metrics(RECORDED, 1)[0]
        self.assertAlmostEqual(got["critic/score/mean"] - want["critic/score/mean"], 0.5 / len(rows))
        self.assertFalse(weights(WORK / "runs" / "edited", 1) == weights(RECORDED, 1))

    def fault(self, name, change, *words, **options):
        """change(rows) edits the rows of step 1; or returns the file's text."""
        folder = WORK / name
        shutil.copytree(RECORDED / "samples", folder)
        path = folder / "step_1.jsonl"
        rows = read_lines(path)
        text = change(rows)
        path.write_text(text) if text is not None else write_lines(path, rows)
        self.assert_fault(run(self.replayed(name, folder, **options)), 2, *words)

    def test_missing_step(self):
        (WORK / "gap").mkdir()
        for step in (1, 2, 4):
            shutil.copy(RECORDED / "samples" / f"step_{step}.jsonl", WORK / "gap")
        self.assert_fault(run(self.replayed("gap", WORK / "gap")), 2, "gap/step_3.jsonl", "step 3", "trainer.steps=2")

    def test_missing_folder(self):
        self.assert_fault(run(self.replayed("none", RECORDED / "sample")), 2, "trainer.replay", "samples")

    def test_own_samples(self):
        self.assert_fault(run(self.replayed("recorded")), 2, "trainer.replay", "another trainer.name")

    def test_truncated_line(self):
        text = (RECORDED / "samples" / "step_1.jsonl").read_text()
        self.fault("cut", lambda rows: text[:-200], "step_1.jsonl:16", "cut or damaged")

    def test_lost_line(self):
        self.fault("lost", lambda rows: rows.pop() and None, "step_1.jsonl", "all 16 answers", "got 15")

    def test_id_out_of_vocabulary(self):
        for bad in (-1, 1 << 20, 1 << 40):
            def change(rows):
                rows[2]["ids"][-1] = bad
            self.fault(f"id_{bad}", change, "step_1.jsonl:3", "token ids from 0 to", f"got {bad};")

    def test_row_of_another_version(self):
        def change(rows):
            del rows[0]["numerics_id"]
        self.fault("old", change, "step_1.jsonl:1 numerics_id", "record the run again")

    def test_bad_log_prob(self):
        def change(rows):
            rows[1]["log_probs"][0] = None
        self.fault("no_number", change, "step_1.jsonl:2 log_probs")

    def test_broken_group(self):
        def change(rows):
            rows[3]["uid"] = "0-77"
            rows[3]["ids"] = rows[3]["ids"][:1]
        self.fault("group", change, "step_1.jsonl:4")

    def test_other_tokenizer(self):
        mixed = WORK / "mixed"
        shutil.copytree(MODELS / "qwen3_moe", mixed)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(MODELS / "llama3" / name, mixed)
        for model in (mixed, MODELS / "llama3"):
            self.assert_fault(run(self.replayed("tokenizer", model__path=model)), 2, "step_1.jsonl:1", "tokenizer")

    def test_other_batch(self):
        self.fault("batch", lambda rows: None, "data.train_batch_size = 2", data__train_batch_size=2)
        self.fault("members", lambda rows: None, "rollout.n = 8", rollout__n=8)

    def test_incomplete_record(self):
        self.done(train_command("first_only", trainer__steps=1, trainer__log_samples=8))
        result = run(train_command("replays_first", trainer__steps=1,
                                   trainer__replay=WORK / "runs" / "first_only" / "samples"))
        self.assert_fault(result, 2, "all 16 answers", "got 8", "trainer.log_samples=-1")


if __name__ == "__main__":
    main()
