"""count: parameters, arithmetic and KV cache from a config.json alone."""
import json

import harness

CONFIG = {"model_type": "llama", "vocab_size": 32000, "hidden_size": 8192, "intermediate_size": 28672,
          "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8,
          "max_position_embeddings": 4096}


class Count(harness.ProgramTest):
    def count(self, config, *options):
        path = self.path("config.json")
        with open(path, "w") as file:
            json.dump(config, file)
        return json.loads(self.run_ok("count", path, "--json", *options).text)

    def test_a_large_model(self):
        report = self.count(CONFIG, "--context", "32768")
        self.assertEqual(report["total_params"], 68976648192)
        self.assertEqual(report["context"], 32768)
        self.assertEqual(report["kv_context_bytes"], 10 << 30)
        self.assertEqual(report["kv"]["mha"]["context_bytes"], 80 << 30)
        self.assertTrue(report["kv"]["gqa"]["this_model"])
        self.assertEqual(self.count(CONFIG)["context"], 4096)
        self.assertEqual(self.count(CONFIG, "--kv", "f32")["kv_bytes_per_token"], 2 * report["kv_bytes_per_token"])

    def test_quantized_checkpoints_are_counted_too(self):
        report = self.count(dict(CONFIG, quantization_config={"quant_method": "fp8"}))
        self.assertEqual(report["total_params"], 68976648192)

    def test_a_directory_and_text_for_people(self):
        self.count(CONFIG)
        text = self.run_ok("count", self.folder).text
        for part in ("68976648192", "attention", "ffn", "norms", "2 N + 2 L n d", "MHA", "GQA", "MQA", "MLA"):
            self.assertIn(part, text)

    def test_the_cache_is_what_plan_says(self):
        model = self.model()
        source = model[:-len(".linnet")]
        for kv in ("f32", "f16", "int8"):
            plan = json.loads(self.run_ok("plan", model, "--json", "--kv", kv, "--context", "100").text)
            count = json.loads(self.run_ok("count", source, "--json", "--kv", kv, "--context", "100").text)
            self.assertEqual(count["kv_planned_bytes"], plan["kv_cache_bytes"])
        inspect = json.loads(self.run_ok("inspect", model, "--json").text)
        self.assertEqual(count["total_params"], inspect["parameters"])

    def test_failures_name_the_reason(self):
        self.run_fails("count", self.path("missing.json"), contains=["missing.json", "No such file"])
        path = self.path("bad.json")
        with open(path, "w") as file:
            file.write("{")
        self.run_fails("count", path, contains=["malformed"])
        with open(path, "w") as file:
            json.dump(dict(CONFIG, model_type="mamba"), file)
        self.run_fails("count", path, contains=["mamba"])
        for line in ("count", "count c --context 0", "count c --kv f64"):
            self.run_fails(*line.split(), status=2, contains=["usage"])


if __name__ == "__main__":
    harness.main()
