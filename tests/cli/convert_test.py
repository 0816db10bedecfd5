"""convert, inspect, plan, pack: model files and their errors."""
import array
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import time

import harness
import tiny_checkpoint


class Convert(harness.ProgramTest):
    def source(self, name, **options):
        folder = self.path(name)
        if not os.path.exists(folder):
            tiny_checkpoint.write_checkpoint(folder, **options)
        return folder

    def convert_fails(self, source, *args, contains=(), **options):
        output = self.path("refused", "out.linnet")
        os.makedirs(os.path.dirname(output), exist_ok=True)
        line = self.run_fails("convert", source, "-o", output, *args, contains=contains, **options)
        self.assertEqual(os.listdir(os.path.dirname(output)), [], "something was left behind")
        return line

    def test_every_weight_type_converts_and_reports(self):
        sizes = {}
        for weights in ("f32", "f16", "bf16", "q8", "q4"):
            with self.subTest(weights=weights):
                output = self.path(weights + ".linnet")
                result = self.run_ok("convert", self.source("plain"), "-o", output, "--weights", weights, "--json")
                self.assertTrue(json.loads(result.text))
                report = json.loads(self.run_ok("inspect", output, "--json").text)
                types = {tensor["type"] for tensor in report["tensors"] if tensor["role"] == "ffn.down"}
                self.assertEqual(types, {weights})
                sizes[weights] = report["weight_bytes"]
        self.assertLess(sizes["q4"], sizes["q8"])
        self.assertLess(sizes["q8"], sizes["f16"])
        self.assertEqual(sizes["f16"], sizes["bf16"])

    def test_the_same_source_gives_the_same_bytes(self):
        contents = []
        for name in ("a.linnet", "b.linnet"):
            self.run_ok("convert", self.source("plain"), "-o", self.path(name), "--weights", "q4")
            with open(self.path(name), "rb") as file:
                contents.append(file.read())
        self.assertEqual(contents[0], contents[1])

    def test_inspect_shows_description_tensors_and_origin(self):
        model = self.model()
        report = json.loads(self.run_ok("inspect", model, "--json", "--check").text)
        self.assertEqual(report["config"]["n_layers"], tiny_checkpoint.LAYERS)
        self.assertEqual(report["config"]["vocab_size"], tiny_checkpoint.VOCAB)
        self.assertIn("model.safetensors", [source["name"] for source in report["provenance"]["sources"]])
        self.assertAlmostEqual(report["bits_per_weight"], 32.0)
        text = self.run_ok("inspect", model, "--tensors").text
        for part in ("attention.qkv", "ffn.down", "sha256", "bits per weight"):
            self.assertIn(part, text)

    def test_a_changed_weight_is_found(self):
        copy = self.path("changed.linnet")
        shutil.copy(self.model(), copy)
        size = os.path.getsize(copy)
        with open(copy, "r+b") as file:  # some byte of the last segment
            file.seek(size - 5)
            byte = file.read(1)
            file.seek(size - 5)
            file.write(bytes([byte[0] ^ 0x40]))
        self.run_fails("inspect", copy, "--check")

    def test_truncated_models_are_refused(self):
        with open(self.model(), "rb") as file:
            content = file.read()
        for size in (1, 63, 64, 4096, len(content) // 2, len(content) - 1):
            with self.subTest(size=size):
                cut = self.path("cut.linnet")
                with open(cut, "wb") as file:
                    file.write(content[:size])
                self.run_fails("generate", cut, "--ids", "1", contains=[cut])

    def test_a_truncated_shard_is_refused(self):
        source = self.source("truncated")
        weights = os.path.join(source, "model.safetensors")
        os.truncate(weights, os.path.getsize(weights) - 100)
        self.convert_fails(source, contains=["model.safetensors"])

    def test_an_unknown_family_is_refused_by_name(self):
        source = self.source("unknown")
        path = os.path.join(source, "config.json")
        with open(path, encoding="utf-8") as file:
            config = json.load(file)
        config["model_type"] = "dancer"
        config["architectures"] = ["DancerForCausalLM"]
        with open(path, "w", encoding="utf-8") as file:
            json.dump(config, file)
        self.convert_fails(source, contains=["dancer"])

    def test_an_index_that_names_a_file_outside_is_refused(self):
        source = self.source("outside")
        weights = os.path.join(source, "model.safetensors")
        shutil.move(weights, self.path("stolen.safetensors"))
        names = {name: "../stolen.safetensors" for name in tiny_checkpoint.tensor_shapes()}
        tiny_checkpoint.write_json(source, "model.safetensors.index.json", {"metadata": {}, "weight_map": names})
        self.convert_fails(source, contains=["stolen"])

    def test_a_tokenizer_of_unknown_type_is_refused(self):
        source = self.source("strange")
        path = os.path.join(source, "tokenizer.json")
        with open(path, encoding="utf-8") as file:
            tokenizer = json.load(file)
        tokenizer["model"]["type"] = "Strange"
        with open(path, "w", encoding="utf-8") as file:
            json.dump(tokenizer, file)
        self.convert_fails(source, contains=["Strange"])

    def test_an_empty_directory_is_no_checkpoint(self):
        os.makedirs(self.path("nothing"), exist_ok=True)
        self.convert_fails(self.path("nothing"), contains=["config.json"])

    def test_a_directory_that_holds_a_gguf_only_is_told_to_give_it(self):
        os.makedirs(self.path("quantized"), exist_ok=True)
        with open(self.path("quantized", "some.gguf"), "wb"):
            pass
        self.convert_fails(self.path("quantized"), contains=["config.json", "some.gguf"])

    def test_an_output_that_is_the_input_is_refused(self):
        source = self.source("kept")
        weights = os.path.join(source, "model.safetensors")
        os.symlink(weights, self.path("link"))
        with open(self.path("some.gguf"), "wb") as file:
            file.write(b"GGUF" + bytes(60))
        model = self.path("kept.linnet")
        shutil.copy(self.model(), model)
        text = self.text()
        logits = self.path("kept.kl")
        self.run_ok("perplexity", model, text, "--context", "64", "--windows", "1", "--save-logits", logits)
        scored = ["perplexity", model, text, "--context", "64", "--windows", "1", "--save-logits"]
        for args, path in ((["convert", source, "-o", text, "--weights", "q4", "--calibrate", text], text),
                           (scored + [model], model), (scored + [text], text),
                           (scored + [logits, "--kl-from", logits], logits),
                           (["convert", source, "-o", weights], weights),
                           (["convert", source, "-o", self.path("link")], weights),
                           (["pack", model, "-o", model], model),
                           (["convert", self.path("some.gguf"), "-o", self.path("some.gguf")], self.path("some.gguf"))):
            with self.subTest(args=args):
                with open(path, "rb") as file:
                    before = file.read()
                self.run_fails(*args, contains=["the output is the input"])
                with open(path, "rb") as file:
                    self.assertEqual(file.read(), before)

    def text(self, tokens=1200):
        path = self.path("calibration_%d.txt" % tokens)
        words = ["river", "stone", "light", "under", "old", "seven", "house", "glass"]
        with open(path, "w") as file:
            count = 0
            while count < tokens:  # one token a byte
                word = words[(count * count + count // 7) % len(words)]
                count += file.write(word + " ")
        return path

    def test_calibration_rounds_by_a_text_or_by_the_models_own(self):
        source, outputs = self.source("plain"), {}
        for name, text in (("text", self.text()), ("self", "self"), ("again", "self")):
            output = self.path("calibrated_%s.linnet" % name)
            result = self.run_ok("convert", source, "-o", output, "--weights", "q4", "--calibrate", text,
                                 "--calibrate-windows", "4", "--threads", "1" if name == "again" else "2", "--json")
            groups = {group["group"]: group for group in json.loads(result.text)["groups"]}
            self.assertGreater(groups["linear"]["output_rms_error"], 0.0)
            self.assertEqual(groups["other"]["output_rms_error"], 0.0)
            self.assertEqual([name for name in os.listdir(os.path.dirname(output))
                              if name.startswith(os.path.basename(output)) and name != os.path.basename(output)], [],
                             "something was left beside the model")
            with open(output, "rb") as file:
                outputs[name] = file.read()
        self.assertEqual(outputs["self"], outputs["again"], "the model's own text is seeded")
        self.assertNotEqual(outputs["self"], outputs["text"])

    def test_a_budget_chooses_types_and_tells_why(self):
        source = self.source("plain")
        output = self.path("budget.linnet")
        report = json.loads(self.run_ok("convert", source, "-o", output, "--bits", "6.5", "--calibrate", self.text(),
                                        "--calibrate-windows", "4", "--json").text)
        self.assertLessEqual(report["bits_per_weight"], 6.5)
        self.assertEqual({choice["type"] for choice in report["choices"]} - {"q4", "q8"}, set())
        for choice in report["choices"]:
            self.assertGreaterEqual(choice["probe_loss"], 0.0)
        size = os.path.getsize(output) + 1000
        result = self.run_ok("convert", source, "-o", output, "--size", str(size), "--calibrate", self.text())
        self.assertLessEqual(os.path.getsize(output), size)
        self.assertIn("expected KL divergence", result.text)

    def test_calibration_that_cannot_be_done_is_refused(self):
        source = self.source("plain")
        self.convert_fails(source, "--calibrate", self.text(100), "--weights", "q4", contains=("at least 256",))
        self.convert_fails(source, "--calibrate", self.path("missing.txt"), "--weights", "q4",
                           contains=("missing.txt",))
        self.convert_fails(self.source("mute", tokenizer=False), "--calibrate", self.text(), "--weights", "q4",
                           contains=("tokenizer",))
        self.convert_fails(source, "--calibrate", self.text(), "--weights", "f16", contains=("f16",))
        self.convert_fails(source, "--bits", "4", "--calibrate", self.text(), contains=("--bits: expected at least",))
        self.convert_fails(source, "--size", "1k", "--calibrate", self.text(), contains=("--size: expected at least",))
        # Told before any text is made: writing this one would take longer than the test may.
        for args in (("--weights", "f16", "--calibrate", "self"), ("--bits", "4"), ("--size", "1KiB")):
            with self.subTest(args=args):
                self.convert_fails(source, *args, "--calibrate-windows", "4096", contains=("expected",))
        target = self.path("nowhere", "deeper", "model.linnet")
        self.run_fails("convert", source, "-o", target, "--weights", "q4", "--calibrate", self.text(),
                       contains=(target, "No such file"))
        self.assertFalse(os.path.exists(self.path("nowhere")), "folders were made for a target that has none")
        for wrong in (("--bits", "5", "--weights", "q4"), ("--size", "many"), ("--bits", "5", "--size", "1M"),
                      ("--bits", "1"), ("--bits", "nan"), ("--size", "nan"), ("--size", "5X"),
                      ("--calibrate-windows", "0"),
                      ("--damping", "nan", "--calibrate", self.text()), ("--damping", "0.02"), ("--seed", "3"),
                      ("--seed", "3", "--calibrate", self.text()), ("--calibrate-windows", "3"),
                      ("--size", "1M", "--block", "64"), ("--calibrate", "")):
            with self.subTest(wrong=wrong):
                result = self.run_program("convert", source, "-o", self.path("wrong.linnet"), *wrong)
                self.assertEqual(result.returncode, 2, result.errors)
                self.assertFalse(os.path.exists(self.path("wrong.linnet")))

    def tied_source(self):
        source = self.source("tied")
        path = os.path.join(source, "config.json")
        with open(path, encoding="utf-8") as file:
            config = json.load(file)
        tiny_checkpoint.write_json(source, "config.json", dict(config, tie_word_embeddings=True))
        return source

    def test_a_budget_leaves_a_tied_table_that_one_option_names(self):
        source, target = self.tied_source(), self.path("tied.linnet")
        for option in ("--embedding", "--head"):
            for weights in ("q4", "q8", "f16"):
                with self.subTest(option=option, weights=weights):
                    report = json.loads(self.run_ok("convert", source, "-o", target, "--bits", "12", option, weights,
                                                    "--calibrate", self.text(), "--json").text)
                    types = [group["type"] for group in report["groups"] if group["group"] == "embedding"]
                    self.assertEqual(types, [weights])

    def test_what_stands_in_the_resume_folders_place_stays(self):
        target = self.path("taken.linnet")
        with open(target + ".resume", "w") as file:
            file.write("mine")
        self.run_fails("convert", self.source("plain"), "-o", target, "--weights", "q4", "--calibrate", self.text(),
                       contains=(target + ".resume",))
        with open(target + ".resume") as file:
            self.assertEqual(file.read(), "mine")

    LONG_TEXT = ["--weights", "q4", "--calibrate", "self", "--calibrate-windows", "120"]

    def write_and_interrupt(self, source, target, args):
        """Ends a conversion once the first windows of the model's own text are there; the path of their piece."""
        piece = os.path.join(target + ".resume", "text")
        process = subprocess.Popen(harness.PROGRAM + ["convert", source, "-o", target] + args,
                                   env=self.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        end = time.monotonic() + 60
        while not os.path.exists(piece) and time.monotonic() < end:
            time.sleep(0.001)
        process.send_signal(signal.SIGINT)
        errors = process.communicate(timeout=60)[1].decode()
        self.assertEqual(process.returncode, 1, errors)
        self.assertIn("goes on from where it was", errors)
        self.assertTrue(os.path.exists(piece))
        return piece

    def test_a_model_that_repeats_itself_begins_anew(self):
        source = self.source("parrot", says="a")
        with open(self.write_and_interrupt(source, self.path("parrot.linnet"), self.LONG_TEXT), "rb") as file:
            ids = array.array("i", file.read()[8 + 2 * 32:])  # behind magic, key and hash
        self.assertGreaterEqual(len(ids), 200)
        text = bytes(id for id in ids if id < 256).decode()
        self.assertNotIn("a" * 10, text)  # eight that have been there before
        self.assertIn("a" * 9 + "\n\n", text)
        texts = text.split("\n\n")
        self.assertGreater(len(texts), 4)
        self.assertGreater(len(set(texts)), 4, "openings differ")

    def test_an_interrupted_text_is_written_on(self):
        args = self.LONG_TEXT
        source, target, whole = self.source("plain"), self.path("on.linnet"), self.path("whole.linnet")
        self.write_and_interrupt(source, target, args)
        self.run_ok("convert", source, "-o", target, *args)
        self.assertFalse(os.path.exists(target + ".resume"))
        self.run_ok("convert", source, "-o", whole, *args)
        with open(target, "rb") as one, open(whole, "rb") as other:
            self.assertEqual(one.read(), other.read())

    def test_what_a_killed_run_left_in_the_resume_folder_goes(self):
        target = self.path("killed.linnet")
        os.makedirs(target + ".resume")
        with open(os.path.join(target + ".resume", ".linnet-1-0.part"), "wb") as file:
            file.write(b"half of a piece")
        self.run_ok("convert", self.source("plain"), "-o", target, "--weights", "q4", "--calibrate", self.text())
        self.assertFalse(os.path.exists(target + ".resume"))

    def test_the_least_budget_that_is_told_works(self):
        source, text, target = self.source("plain"), self.text(), self.path("least.linnet")
        for option, pattern in (("--bits", r"at least ([0-9.]+) bits"), ("--size", r"at least ([0-9]+) bytes")):
            with self.subTest(option=option):
                line = self.convert_fails(source, option, "4" if option == "--bits" else "1KB", "--calibrate", text)
                least = re.search(pattern, line).group(1)
                self.run_ok("convert", source, "-o", target, option, least, "--calibrate", text,
                            "--calibrate-windows", "2")
                if option == "--size":
                    self.assertLessEqual(os.path.getsize(target), int(least))

    def test_text_that_will_not_work_is_warned_of(self):
        source = self.source("broken_template")
        path = os.path.join(source, "tokenizer_config.json")
        with open(path, encoding="utf-8") as file:
            config = json.load(file)
        config["chat_template"] = "{% for message in messages %}"
        with open(path, "w", encoding="utf-8") as file:
            json.dump(config, file)
        result = self.run_ok("convert", source, "-o", self.path("broken_template.linnet"))
        self.assertEqual(len(result.errors.splitlines()), 1, result.errors)
        self.assertIn("warning: the chat template", result.errors)

        source = self.source("broken_pattern")
        path = os.path.join(source, "tokenizer.json")
        with open(path, encoding="utf-8") as file:
            tokenizer = json.load(file)
        split = {"type": "Split", "pattern": {"Regex": "(a"}, "behavior": "Isolated", "invert": False}
        tokenizer["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, tokenizer["pre_tokenizer"]]}
        with open(path, "w", encoding="utf-8") as file:
            json.dump(tokenizer, file)
        model = self.path("broken_pattern.linnet")
        result = self.run_ok("convert", source, "-o", model)
        self.assertEqual(len(result.errors.splitlines()), 1, result.errors)
        self.assertIn("warning: the tokenizer", result.errors)
        self.run_ok("generate", model, "--ids", "1,2", "--print-ids", "-n", "3")

    def test_an_output_that_cannot_be_written_is_named(self):
        self.run_fails("convert", self.source("plain"), "-o", self.path("no/such/folder/m"),
                       contains=[self.path("no/such/folder/m"), "No such file"])
        self.run_fails("convert", self.source("plain"), "-o", self.folder, contains=[self.folder, "directory"])

    def test_a_disk_that_ends_leaves_nothing_behind(self):
        limit = 100_000  # below the model's size
        self.convert_fails(self.source("plain"), "--weights", "f32", contains=["out.linnet"],
                           preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))


class Plan(harness.ProgramTest):
    def plan(self, *args):
        return json.loads(self.run_ok("plan", self.model(), "--json", *args).text)

    def test_classes_sum_to_the_total_and_follow_the_options(self):
        wide = self.plan("--context", "256", "--kv", "f32")
        sums = ("total_bytes", "anonymous_bytes")
        classes = [value for name, value in wide.items() if name.endswith("_bytes") and name not in sums]
        self.assertEqual(sum(classes), wide["total_bytes"])
        values = tiny_checkpoint.KV_HEADS * (tiny_checkpoint.DIM // tiny_checkpoint.HEADS) * 2 * tiny_checkpoint.LAYERS
        self.assertEqual(wide["kv_cache_bytes"], 256 * values * 4)
        self.assertEqual(self.plan("--context", "256", "--kv", "f16")["kv_cache_bytes"], 256 * values * 2)
        self.assertEqual(self.plan("--context", "128", "--kv", "f32")["kv_cache_bytes"], 128 * values * 4)
        self.assertEqual(wide["context"], 256)

    def test_the_default_context_is_the_models(self):
        self.assertEqual(self.plan()["context"], tiny_checkpoint.CONTEXT)

    def test_steps_are_listed(self):
        text = self.run_ok("plan", self.model(), "--steps").text
        self.assertIn("attention.qkv", text)


class Packed(harness.ProgramTest):
    def packed_files(self):
        folder = os.path.join(self.cache, "packed")
        return [os.path.join(folder, name) for name in os.listdir(folder)] if os.path.exists(folder) else []

    def setUp(self):
        shutil.rmtree(self.cache, ignore_errors=True)
        self.model("q8")
        self.expected = self.generate("--no-cache").text
        self.assertEqual(self.packed_files(), [])

    def generate(self, *args, **options):
        return self.run_ok("generate", self.model("q8"), "--ids", "1,2,3", "-n", "8", "--print-ids", "--ignore-eos", *args,
                           **options)

    def test_the_first_run_makes_a_file_that_later_runs_map(self):
        self.assertEqual(self.generate().text, self.expected)
        files = self.packed_files()
        self.assertEqual(len(files), 1)
        before = os.stat(files[0]).st_mtime_ns
        self.assertEqual(self.generate().text, self.expected)
        self.assertEqual(os.stat(files[0]).st_mtime_ns, before)

    def test_pack_makes_the_file_beforehand(self):
        self.run_ok("pack", self.model("q8"))
        self.assertEqual(len(self.packed_files()), 1)
        self.run_ok("pack", self.model("q8"), "-o", self.path("own.packed"))
        self.assertGreater(os.path.getsize(self.path("own.packed")), 0)

    def test_a_damaged_file_is_made_anew(self):
        self.generate()
        path = self.packed_files()[0]
        size = os.path.getsize(path)
        for damage in (0, 10, size - 1):
            with self.subTest(size=damage):
                os.truncate(path, damage)
                result = self.generate()
                self.assertEqual(result.text, self.expected)
                self.assertEqual(os.path.getsize(path), size)

    def test_a_cache_that_cannot_be_written_costs_a_note_only(self):
        with open(self.path("file"), "wb"):
            pass
        result = self.generate(env=self.environment(LINNET_CACHE=self.path("file")))
        self.assertEqual(result.text, self.expected)
        self.assertIn("packed weights stay in memory", result.errors)


if __name__ == "__main__":
    harness.main()
