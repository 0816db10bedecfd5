"""The memory contract: what plan says against what a run takes, budgets, packed files and their sharing, locking."""
import json
import os
import re
import resource
import shutil
import socket
import subprocess
import time
import unittest

import harness
import tiny_checkpoint

CLASSES = ["mapped_weights", "packed_weights", "kv_cache", "activations", "scratch", "logits", "operators", "tables",
           "thread_stacks", "tokenizer", "sampler", "metadata"]
ANONYMOUS = ["kv_cache", "activations", "scratch", "logits", "operators", "tables", "thread_stacks", "tokenizer", "sampler"]
MIB = 1 << 20
REAL_MODEL = os.path.expanduser("~/.cache/linnet/models/SmolLM2-135M-Instruct.Q4_1.gguf")


def ids(count):
    return ",".join(str(i % 250) for i in range(count))


def rollup(pid):
    """Bytes of /proc/PID/smaps_rollup by name."""
    with open("/proc/%d/smaps_rollup" % pid) as file:
        return {name: int(value) << 10 for name, value in re.findall(r"^(\w+):\s+(\d+) kB$", file.read(), re.M)}


def mappings_of(pid, suffix):
    """Sums over the mappings of files whose name ends with suffix."""
    sums, counts = {}, False
    with open("/proc/%d/smaps" % pid) as file:
        for line in file:
            if re.match(r"^[0-9a-f]+-[0-9a-f]+ ", line):
                counts = line.rstrip().endswith(suffix)
            elif counts:
                match = re.match(r"^(\w+):\s+(\d+) kB$", line)
                if match:
                    sums[match.group(1)] = sums.get(match.group(1), 0) + (int(match.group(2)) << 10)
    return sums


class ContractTest(harness.ProgramTest):
    def plan(self, model, *args):
        return json.loads(self.run_ok("plan", model, "--json", *args).text)

    def running(self, model, count, *args):
        """`generate` in the middle of its answer, after `count` ids and a few more. For a with statement's body."""
        test = self

        class Running:
            def __enter__(self):
                # A socket with the smallest buffer: whoever writes to it is a few ids ahead of the reader, then waits.
                self.reader, writer = socket.socketpair()
                writer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
                command = harness.PROGRAM + ["generate", model, "--print-ids", "--ignore-eos", "-n", "100000", *args]
                self.process = subprocess.Popen(command, env=test.environment(), stdout=writer, stderr=subprocess.PIPE)
                writer.close()
                seen = 0
                while seen < count:
                    piece = self.reader.recv(64)
                    if not piece:
                        raise AssertionError(self.process.stderr.read().decode())
                    seen += piece.count(b",")
                self.wait_until_it_sleeps()
                return self.process.pid

            def wait_until_it_sleeps(self):
                # Asleep at every look for a tenth of a second, without a wake-up in between.
                same, before = 0, None
                while same < 10:
                    with open("/proc/%d/status" % self.process.pid) as file:
                        text = file.read()
                    now = re.search(r"State:\t(\w)", text).group(1), re.search(r"\nvoluntary.*", text).group(0)
                    same = same + 1 if now == before and now[0] == "S" else 0
                    before = now
                    time.sleep(0.01)

            def __exit__(self, *_):
                self.process.kill()
                self.reader.close()
                self.process.communicate()

        return Running()

    def skip_where_emulated(self):
        if len(harness.PROGRAM) > 1 or not os.path.exists("/proc/self/smaps_rollup"):
            self.skipTest("the process's own memory cannot be seen here")


class Plan(ContractTest):
    def test_every_class_is_there_and_they_add_up(self):
        plan = self.plan(self.model("q8"), "--context", "100", "--threads", "3")
        self.assertEqual(sum(plan[name + "_bytes"] for name in CLASSES), plan["total_bytes"])
        self.assertEqual(sum(plan[name + "_bytes"] for name in ANONYMOUS), plan["anonymous_bytes"])
        for name in CLASSES:
            self.assertGreater(plan[name + "_bytes"], 0, name)
        text = self.run_ok("plan", self.model("q8"), "--context", "100", "--threads", "3").text
        for name in CLASSES + ["total", "anonymous"]:
            self.assertIn(name, text)
        self.assertIn(" %d " % plan["total_bytes"], text)
        in_memory = self.plan(self.model("q8"), "--context", "100", "--threads", "3", "--no-cache")
        self.assertEqual(in_memory["anonymous_bytes"], plan["anonymous_bytes"] + plan["packed_weights_bytes"])

    def test_nothing_is_loaded_or_written(self):
        shutil.rmtree(self.cache, ignore_errors=True)
        self.plan(self.model("q8"))
        self.assertFalse(os.path.exists(self.cache))


class Budget(ContractTest):
    def test_a_budget_is_used_and_never_passed(self):
        model = self.model("q8")
        whole = self.plan(model, "--context", "256", "--threads", "2")
        budget = str(whole["total_bytes"])
        exact = self.plan(model, "--memory", budget, "--threads", "2")
        self.assertEqual((exact["context"], exact["chunk"], exact["total_bytes"]), (256, whole["chunk"], whole["total_bytes"]))
        self.assertEqual(exact["memory_budget_bytes"], whole["total_bytes"])
        less = self.plan(model, "--memory", str(whole["total_bytes"] - 1), "--threads", "2")
        self.assertLess(less["total_bytes"], whole["total_bytes"])
        self.assertEqual((less["context"], less["chunk"]), (256, whole["chunk"] // 2))
        self.assertIn("left", self.run_ok("plan", model, "--memory", budget, "--threads", "2").text)

    def test_a_run_says_what_was_chosen(self):
        model = self.model("q8")
        total = self.plan(model, "--context", "128", "--threads", "1")["total_bytes"]
        args = ["generate", model, "--ids", "1,2,3", "-n", "8", "--print-ids", "--ignore-eos", "--threads", "1"]
        free = self.run_ok(*args)
        bound = self.run_ok(*args, "--memory", str(total))
        self.assertEqual(bound.text, free.text)
        self.assertRegex(bound.errors, r"--memory .*context \d+, chunk \d+")

    def test_too_small_a_budget_is_refused_with_what_it_takes(self):
        model = self.model("q8")
        line = self.run_fails("generate", model, "--ids", "1", "--memory", "1K", "--threads", "1",
                              contains=["memory budget is too small", "1024", model])
        needed = re.search(r"at least (\d+) bytes", line).group(1)
        self.run_ok("generate", model, "--ids", "1", "-n", "2", "--memory", needed, "--threads", "1")
        self.run_fails("plan", model, "--memory", str(int(needed) - 1), "--threads", "1", contains=[needed])
        self.run_fails("plan", model, "--memory", needed, "--threads", "1", "--context", "256", contains=["at least"])

    def test_sizes_as_people_write_them(self):
        model = self.model("q8")
        for text, value in (("300M", 300 << 20), ("1.5g", 3 << 29), ("2GiB", 2 << 30), ("700000k", 700000 << 10)):
            self.assertEqual(self.plan(model, "--memory", text)["memory_budget_bytes"], value)
        for text in ("", "M", "-1", "0", "1MB", "1e9", "nan", "12X", "1 M", "99999999T"):
            with self.subTest(text=text):
                self.run_fails("plan", model, "--memory", text, status=2, contains=["--memory"])


class Memory(ContractTest):
    def check(self, model, *args):
        """The anonymous memory of a run with a nearly full context is what plan says within 2 MiB."""
        plan = self.plan(model, *args)
        prompt = plan["context"] - 64
        with self.running(model, 16, "--ids", ids(prompt), *args) as pid:
            used = rollup(pid)["Anonymous"]
            packed = mappings_of(pid, ".packed")
        self.assertLess(abs(used - plan["anonymous_bytes"]), 2 * MIB, "%s: %d of %s" % (args, used, plan))
        self.assertEqual(packed["Anonymous"], 0)
        self.assertGreater(packed["Rss"], 0)

    def test_a_run_takes_what_was_planned(self):
        self.skip_where_emulated()
        for weights in ("f32", "q8", "q4"):
            for args in (["--threads", "1", "--kv", "f32"], ["--threads", "3", "--kv", "int8"]):
                with self.subTest(weights=weights, args=args):
                    self.check(self.model(weights), "--context", "4096", *args)

    @unittest.skipUnless(os.path.exists(REAL_MODEL), "no SmolLM2-135M-Instruct in the cache folder")
    def test_a_real_model_takes_what_was_planned(self):
        self.skip_where_emulated()
        model = self.path("smollm2.linnet")
        self.run_ok("convert", REAL_MODEL, "-o", model, "--weights", "q8")
        self.run_ok("pack", model)
        self.check(model, "--context", "1024", "--threads", "2")


class SharedPages(ContractTest):
    def test_two_processes_share_the_packed_weights(self):
        self.skip_where_emulated()
        model = self.model("q8")
        self.run_ok("pack", model)
        args = ["--ids", "1,2,3", "--context", "4096"]
        with self.running(model, 5, *args) as first, self.running(model, 5, *args) as second:
            for pid in (first, second):
                packed = mappings_of(pid, ".packed")
                self.assertEqual(packed["Anonymous"], 0)
                self.assertEqual(packed["Private_Clean"] + packed["Private_Dirty"], 0)
                self.assertEqual(packed["Shared_Clean"] + packed["Shared_Dirty"], packed["Rss"])
                self.assertLessEqual(packed["Pss"], packed["Rss"] // 2 + 4096)


class PackedFiles(ContractTest):
    def packed_files(self):
        folder = os.path.join(self.cache, "packed")
        return sorted(os.path.join(folder, name) for name in os.listdir(folder)) if os.path.exists(folder) else []

    def setUp(self):
        shutil.rmtree(self.cache, ignore_errors=True)

    def generate(self, *args, weights="q4"):
        return self.run_ok("generate", self.model(weights), "--ids", "1,2,3", "-n", "8", "--print-ids", "--ignore-eos", *args)

    def test_altered_bytes_are_found_and_the_file_made_anew(self):
        expected = self.generate().text
        path = self.packed_files()[0]
        with open(path, "rb") as file:
            good = file.read()
        for name, offset in (("header", 9), ("model hash", 20), ("kernels", 50), ("checksum", 72), ("seeds", 130),
                             ("first matrix", 1000), ("end", len(good) - 3)):
            with self.subTest(name=name):
                bad = bytearray(good)
                bad[offset] ^= 0x55
                with open(path, "wb") as file:
                    file.write(bad)
                self.assertEqual(self.generate().text, expected)
                with open(path, "rb") as file:
                    self.assertEqual(file.read(), good)

    def test_files_of_another_cpu_or_model_are_made_anew(self):
        levels = json.loads(self.run_ok("cpu", "--json").text)
        lower = levels["levels"][0]
        if lower == levels["level"]:
            self.skipTest("this CPU has one level")
        expected = self.generate(weights="q8").text
        own = self.packed_files()[0]
        with open(own, "rb") as file:
            good = file.read()
        self.generate("--cpu", lower, weights="q8")
        files = self.packed_files()
        if len(files) == 1:
            self.skipTest("both levels share their kernels' layout")
        files.remove(own)
        shutil.copy(files[0], own)
        self.assertEqual(self.generate(weights="q8").text, expected)
        with open(own, "rb") as file:
            self.assertEqual(file.read(), good)
        self.run_ok("pack", self.model("q4"), "-o", own)
        self.assertEqual(self.generate(weights="q8").text, expected)
        with open(own, "rb") as file:
            self.assertEqual(file.read(), good)

    def test_files_that_nobody_uses_go_when_a_new_one_comes(self):
        self.generate()
        used = self.packed_files()[0]
        folder = os.path.dirname(used)
        month_ago = time.time() - 31 * 24 * 3600
        for name, age in (("a.packed", month_ago), ("b.packed", time.time()), ("c.txt", month_ago),
                          (".linnet-1-1.part", month_ago), (".linnet-1-2.part", time.time())):
            with open(os.path.join(folder, name), "wb") as file:
                file.write(b"x")
            os.utime(file.name, (age, age))
        os.utime(used, (month_ago, month_ago))
        self.generate()  # a start marks its file
        self.run_ok("generate", self.model("q8"), "--ids", "1", "-n", "1", "--print-ids")
        names = {os.path.basename(path) for path in self.packed_files()}
        self.assertEqual(names & {"a.packed", "b.packed", "c.txt", ".linnet-1-1.part", ".linnet-1-2.part"},
                         {"b.packed", "c.txt", ".linnet-1-2.part"})
        self.assertIn(os.path.basename(used), names)
        result = self.run_ok("pack", "--clean")
        self.assertIn("removed 3 packed files", result.text)
        self.assertEqual({os.path.basename(path) for path in self.packed_files()}, {"c.txt", ".linnet-1-2.part"})
        self.run_ok("pack", "--clean", self.model("q4"))
        self.assertIn(used, self.packed_files())
        self.run_fails("pack", status=2, contains=["model"])

    def test_packing_takes_the_memory_of_one_matrix(self):
        self.skip_where_emulated()
        source = self.path("wide")
        tiny_checkpoint.write_checkpoint(source, True, True, wide=True)
        model = source + ".linnet"
        self.run_ok("convert", source, "-o", model, "--weights", "q8")
        packed = self.plan(model)["packed_weights_bytes"]
        self.assertGreater(packed, 24 * MIB)
        text = self.run_ok("pack", model).text
        peak = re.search(r"peak memory ([\d.]+) MiB", text)
        # The program itself and one matrix of 2 MiB with its source, not the 24 MiB of all.
        self.assertLess(float(peak.group(1)), 16, text)


class Lock(ContractTest):
    def test_locked_memory_is_counted_by_the_system(self):
        self.skip_where_emulated()
        model = self.model("q8")
        self.run_ok("pack", model)
        plan = self.plan(model, "--context", "4096")
        if resource.getrlimit(resource.RLIMIT_MEMLOCK)[0] < plan["total_bytes"] and os.geteuid() != 0:
            self.skipTest("this user may lock too little memory")
        with self.running(model, 5, "--ids", "1,2,3", "--context", "4096", "--lock") as pid:
            locked = rollup(pid)["Locked"]
        self.assertGreater(locked, plan["packed_weights_bytes"] + plan["kv_cache_bytes"])

    def test_too_small_a_limit_is_told(self):
        self.skip_where_emulated()
        if shutil.which("setpriv") is None and os.geteuid() == 0:
            self.skipTest("setpriv is needed to give the privilege up")

        def limit():
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))

        drop = ["setpriv", "--bounding-set", "-ipc_lock", "--inh-caps", "-ipc_lock"] if os.geteuid() == 0 else []
        command = drop + harness.PROGRAM + ["generate", self.model("q8"), "--ids", "1", "--lock"]
        result = subprocess.run(command, env=self.environment(), capture_output=True, preexec_fn=limit, timeout=100)
        errors = result.stderr.decode()
        self.assertEqual(result.returncode, 1, errors)
        self.assertRegex(errors, r"RLIMIT_MEMLOCK: expected at least \d+ bytes, found 65536; raise it \(ulimit -l \d+")
        self.assertEqual(len(errors.splitlines()), 1)


if __name__ == "__main__":
    harness.main()
