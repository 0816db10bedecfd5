"""The app's native library as the system's loader sees it, and the app on the desktop's JVM (pom.xml).
robolectric_test.py LIBRARY OUTPUT_FOLDER READELF NM PROGRAM"""
import os
import re
import shutil
import subprocess
import sys
import unittest
from xml.etree import ElementTree

HERE = os.path.dirname(os.path.abspath(__file__))
APP = os.path.join(HERE, "..", "..", "examples", "android", "app")
ANDROID = "{http://schemas.android.com/apk/res/android}"
sys.path.insert(0, os.path.join(HERE, "..", "cli"))
import harness  # noqa: E402

LIBRARY, OUTPUT, READELF, NM = sys.argv[1:5]
del sys.argv[1:5]


def output(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.decode()


class NativeLibrary(unittest.TestCase):
    def test_segments_fit_pages_of_16_kib(self):
        loads = [line for line in output(READELF, "-lW", LIBRARY).splitlines() if line.split()[:1] == ["LOAD"]]
        self.assertGreaterEqual(len(loads), 2)
        for line in loads:
            self.assertGreaterEqual(int(line.split()[-1], 16), 16384, line)

    def test_nothing_but_its_entry_is_visible(self):
        names = [line.split()[-1].split("@")[0] for line in output(NM, "-D", "--defined-only", LIBRARY).splitlines()]
        self.assertEqual(names, ["JNI_OnLoad"])


class Project(unittest.TestCase):
    """What only Gradle and the system read, and so nothing else here would miss."""

    def test_manifest_allows_the_foreground_service(self):
        manifest = ElementTree.parse(os.path.join(APP, "src", "main", "AndroidManifest.xml")).getroot()
        granted = {item.get(ANDROID + "name") for item in manifest.iter("uses-permission")}
        self.assertEqual(granted, {"android.permission." + name for name in
                                   ["FOREGROUND_SERVICE", "FOREGROUND_SERVICE_SPECIAL_USE", "POST_NOTIFICATIONS"]})
        service = manifest.find("application/service")
        self.assertEqual(service.get(ANDROID + "foregroundServiceType"), "specialUse")
        self.assertEqual(service.get(ANDROID + "exported"), "false")
        self.assertIsNotNone(service.find("property").get(ANDROID + "value"))
        self.assertEqual(manifest.find("application/activity").get(ANDROID + "exported"), "true")

    def test_build_is_for_both_abis_from_api_28_on(self):
        with open(os.path.join(APP, "build.gradle"), encoding="utf-8") as file:
            build = file.read()
        for line in ["minSdk 28", "targetSdk 34", "abiFilters 'arm64-v8a', 'x86_64'", "useLegacyPackaging false",
                     "'-DANDROID_SUPPORT_FLEXIBLE_PAGE_SIZES=ON'"]:
            self.assertIn(line, build)


class App(harness.ProgramTest):
    def maven(self, *arguments):
        command = ["mvn", "-B", "-q", "-f", os.path.join(HERE, "pom.xml"), "-DoutputFolder=" + OUTPUT, *arguments]
        env = dict(os.environ)
        # The JDK that has a compiler, where Maven's own choice would be a newer JRE.
        env.setdefault("JAVA_HOME", os.path.dirname(os.path.dirname(os.path.realpath(shutil.which("javac")))))
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=1500, env=env)

    def need(self, condition, reason):
        """A machine may lack things, or its way to Maven Central; LINNET_NO_SKIP says that it must not."""
        if condition:
            return
        if os.environ.get("LINNET_NO_SKIP"):
            self.fail(reason)
        self.skipTest(reason)

    def test_the_app_on_the_desktop(self):
        self.need(shutil.which("mvn") and shutil.which("javac"), "no Maven or no JDK on this machine")
        arguments = ["-DnativeFolder=" + os.path.dirname(LIBRARY), "-DchatModel=" + self.model()]
        source = os.path.join(harness.SHARED, "real", "stories260k")
        if os.path.isdir(source):
            story = self.path("stories.linnet")
            self.run_ok("convert", source, "-o", story, "--weights", "f32")
            arguments.append("-DstoryModel=" + story)
        else:
            print("not tested: no " + source)
            arguments.append("-DstoryModel=")
        result = self.maven(*arguments, "test")
        text = result.stdout.decode("utf-8", "replace")
        unreachable = re.search("Could not resolve|Could not transfer|cannot be resolved", text)
        self.need(result.returncode == 0 or not unreachable, "Maven cannot fetch what is needed: " + text[-800:])
        self.assertEqual(result.returncode, 0, text[-8000:])
        reports = [name for name in os.listdir(os.path.join(OUTPUT, "surefire-reports")) if name.endswith(".txt")]
        counts = []
        for name in reports:
            with open(os.path.join(OUTPUT, "surefire-reports", name), encoding="utf-8") as file:
                counts.append(re.search(r"Tests run: (\d+), Failures: 0, Errors: 0, Skipped: (\d+)", file.read()))
        self.assertEqual(len(counts), 2)
        run = sum(int(count.group(1)) for count in counts)
        print("%d tests of the app ran" % run)
        self.assertGreaterEqual(run, 21)


if __name__ == "__main__":
    harness.main()
