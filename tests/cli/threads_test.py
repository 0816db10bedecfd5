"""Threads: --cpus, an affinity mask of one core, a quota of half a core. The answer never depends on any of them."""
import json
import os
import subprocess
import tempfile
import unittest

import harness


class Threads(harness.ProgramTest):
    ARGS = ["--ids", "1,2,3,4,5,6,7,8,9", "-n", "24", "--print-ids", "--ignore-eos"]

    def generate(self, *args, **options):
        return self.run_ok("generate", self.model("q8"), *self.ARGS, *args, **options).text

    def allowed(self):
        if not hasattr(os, "sched_getaffinity") or len(harness.PROGRAM) > 1:
            self.skipTest("affinity masks cannot be seen here")
        return sorted(os.sched_getaffinity(0))

    def test_cpus_bind_the_process_and_give_a_thread_each(self):
        allowed = self.allowed()
        expected = self.generate("--threads", "1")
        spelled = ",".join(map(str, allowed[:8]))
        for text, count in ((str(allowed[0]), 1), (spelled, len(allowed[:8])), ("%d,%d" % (allowed[0], allowed[0]), 1)):
            with self.subTest(cpus=text):
                plan = json.loads(self.run_ok("plan", self.model("q8"), "--json", "--cpus", text).text)
                quota = json.loads(self.run_ok("cpu", "--json").text)["quota_cpus"]
                self.assertEqual(plan["threads"], max(1, min(count, int(quota))) if quota else count)
                self.assertEqual(self.generate("--cpus", text), expected)
                self.assertEqual(self.generate("--cpus", text, "--threads", "3"), expected)

    def test_threads_run_on_the_cpus_that_were_named(self):
        cpu = self.allowed()[-1]
        command = harness.PROGRAM + ["generate", self.model("q8"), *self.ARGS[:2], "--print-ids", "--ignore-eos", "-n",
                                     "100000", "--context", "100000", "--cpus", str(cpu), "--threads", "3"]
        with subprocess.Popen(command, env=self.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            process.stdout.read(100)
            tasks = os.listdir("/proc/%d/task" % process.pid)
            masks = [os.sched_getaffinity(int(task)) for task in tasks]
            process.kill()
        self.assertEqual(masks, [{cpu}] * 3)

    def test_cpus_that_are_not_there_are_refused(self):
        allowed = self.allowed()
        self.run_fails("generate", self.model("q8"), *self.ARGS, "--cpus", "%d,8000" % allowed[0],
                       contains=["may not use", "found 8000", str(allowed[0])])
        if len(allowed) > 1:
            self.run_fails("plan", self.model("q8"), "--cpus", str(allowed[1]), contains=["found %d" % allowed[1]],
                           preexec_fn=lambda: os.sched_setaffinity(0, {allowed[0]}))
        for text in ("", "a", "1-", "-1", "3-1", "1,,2", "1,", "99999", "0-99999999999"):
            with self.subTest(text=text):
                self.run_fails("generate", self.model("q8"), *self.ARGS, "--cpus", text, status=2, contains=["--cpus"])

    def test_an_affinity_mask_of_one_core(self):
        allowed = self.allowed()
        expected = self.generate("--threads", "1")

        def one_core():
            os.sched_setaffinity(0, {allowed[0]})

        report = json.loads(self.run_ok("cpu", "--json", preexec_fn=one_core).text)
        self.assertEqual((report["allowed_cpus"], report["default_threads"]), (1, 1))
        self.assertEqual(self.generate(preexec_fn=one_core), expected)
        # More threads than cores: waiting must give the core away.
        self.assertEqual(self.generate("--threads", "4", preexec_fn=one_core), expected)

    def test_a_quota_of_half_a_core(self):
        self.allowed()
        group, files = make_group()
        if group is None:
            self.skipTest("no control group can be made here")
        try:
            for name, text in files:
                with open(os.path.join(group, name), "w") as file:
                    file.write(text)

            def enter():
                with open(os.path.join(group, "cgroup.procs"), "w") as file:
                    file.write(str(os.getpid()))

            expected = self.generate("--threads", "1")
            report = json.loads(self.run_ok("cpu", "--json", preexec_fn=enter).text)
            self.assertEqual((report["quota_cpus"], report["default_threads"]), (0.5, 1))
            self.assertEqual(self.generate(preexec_fn=enter), expected)
            self.assertEqual(self.generate("--threads", "2", preexec_fn=enter), expected)
        finally:
            os.rmdir(group)


def make_group():
    """A new control group and the files that give it half a core: version 2, else version 1; None where neither works."""
    for root, files in (("/sys/fs/cgroup", [("cpu.max", "50000 100000")]),
                        ("/sys/fs/cgroup/cpu", [("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", "50000")])):
        try:
            group = tempfile.mkdtemp(prefix="linnet_test_", dir=root)
        except OSError:
            continue
        if all(os.path.exists(os.path.join(group, name)) for name, _ in files):
            return group, files
        os.rmdir(group)
    return None, []


if __name__ == "__main__":
    harness.main()
