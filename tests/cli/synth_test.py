"""synth: models of random weights from a config.json alone."""
import json
import os
import subprocess

import harness

CONFIG = {"model_type": "llama", "vocab_size": 999, "hidden_size": 128, "intermediate_size": 384,
          "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
          "max_position_embeddings": 256, "tie_word_embeddings": True}


def contents(path):
    with open(path, "rb") as file:
        return file.read()


class Synth(harness.ProgramTest):
    def config(self, config=CONFIG, name="config.json"):
        path = self.path(name)
        with open(path, "w") as file:
            json.dump(config, file)
        return path

    def synth(self, config, name, *options):
        target = self.path(name)
        report = json.loads(self.run_ok("synth", config, "-o", target, "--json", *options).text)
        return target, report

    def test_the_seed_decides_the_bytes(self):
        config = self.config()
        same, _ = self.synth(config, "a.linnet", "--weights", "q4")
        again, _ = self.synth(self.folder, "b.linnet", "--weights", "q4", "--seed", "0")
        other, _ = self.synth(config, "c.linnet", "--weights", "q4", "--seed", "1")
        self.assertEqual(contents(same), contents(again))
        self.assertNotEqual(contents(same), contents(other))

    def test_it_has_the_parameters_that_count_says_and_runs(self):
        config = self.config()
        model, report = self.synth(config, "run.linnet", "--weights", "q4", "--embedding", "q4", "--head", "q4")
        count = json.loads(self.run_ok("count", config, "--json").text)
        inspect = json.loads(self.run_ok("inspect", model, "--json").text)
        self.assertEqual(inspect["parameters"], count["total_params"])
        self.assertEqual(report["parameters"], count["total_params"])
        self.assertIn("random", json.dumps(inspect))
        logits = self.path("logits.npy")
        self.run_ok("logits", model, "--ids", "1,2,3,998", "-o", logits)
        for row in harness.read_npy(logits):
            self.assertEqual(len(row), CONFIG["vocab_size"])
            self.assertTrue(all(abs(value) < 100 for value in row))  # finite too
            self.assertGreater(max(row) - min(row), 0.1)
        self.run_ok("generate", model, "--ids", "1,2", "-n", "4", "--print-ids", "--ignore-eos")

    def test_other_families(self):
        experts = dict(CONFIG, model_type="mixtral", num_local_experts=4, num_experts_per_tok=2)
        gemma = dict(CONFIG, model_type="gemma", head_dim=32)
        for name, config in (("experts", experts), ("gemma", gemma)):
            model, _ = self.synth(self.config(config, name + ".json"), name + ".linnet", "--weights", "q8")
            self.run_ok("logits", model, "--ids", "1,2,3", "-o", self.path("other.npy"))
            for row in harness.read_npy(self.path("other.npy")):
                self.assertTrue(all(abs(value) < 1000 for value in row))

    def test_memory_does_not_grow_with_the_model(self):
        # 78 M parameters, 312 MB as f32; the program itself, its libraries and the output's pages come on top.
        large = self.config(dict(CONFIG, hidden_size=1024, intermediate_size=4096, num_hidden_layers=4,
                                 num_attention_heads=16, num_key_value_heads=8, vocab_size=16000), "large.json")
        peaks = []
        for config in (self.config(), large):
            command = harness.PROGRAM + ["synth", config, "-o", self.path("m.linnet"), "--weights", "q4"]
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=self.environment())
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = status
            self.assertEqual(status, 0)
            peaks.append(usage.ru_maxrss * 1024)
        self.assertLess(peaks[1] - peaks[0], 16 << 20)

    def test_failures_name_the_reason(self):
        config = self.config()
        target = self.path("never.linnet")
        self.run_fails("synth", self.path("missing.json"), "-o", target, contains=["missing.json"])
        self.run_fails("synth", self.config(dict(CONFIG, model_type="mamba"), "mamba.json"), "-o", target,
                       contains=["mamba"])
        self.run_fails("synth", self.config(dict(CONFIG, rope_scaling={"type": "foo", "factor": 2.0}), "rope.json"),
                       "-o", target, contains=["foo"])
        self.run_fails("synth", config, "-o", config, contains=["config.json"])
        self.run_fails("synth", config, "-o", self.path("no", "such", "folder"), contains=["no/such"])
        self.run_fails("synth", config, "-o", target, "--embedding", "q8", "--head", "q4", contains=["tied"])
        for line in ("synth", "synth c", "synth c -o t --block 5", "synth c -o t --seed x",
                     "synth c -o t --weights q5"):
            self.run_fails(*line.split(), status=2, contains=["usage"])
        self.assertFalse(os.path.exists(target))


if __name__ == "__main__":
    harness.main()
