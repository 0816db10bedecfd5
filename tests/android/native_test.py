"""The app as it is built for devices, where this machine can: the native part with the NDK that ANDROID_NDK_HOME names, the
APK with Gradle and the SDK that ANDROID_HOME names. native_test.py SOURCE_FOLDER OUTPUT_FOLDER READELF NM
LINNET_ANDROID_TARGETS: targets to build instead of both, separated by spaces."""
import os
import re
import shutil
import struct
import subprocess
import sys
import unittest
import zipfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
from device_test import PT_LOAD, segments  # noqa: E402

SOURCE, OUTPUT, READELF, NM = sys.argv[1:5]
TARGETS = {"aarch64-linux-android": ("arm64-v8a", 183), "x86_64-linux-android": ("x86_64", 62)}  # ABI, e_machine
PAGE = 16384
SYSTEM_LIBRARIES = {"libc.so", "libm.so", "libdl.so", "liblog.so"}


def run(test, *command, **options):
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
    text = result.stdout.decode("utf-8", "replace")
    test.assertEqual(result.returncode, 0, text[-4000:])
    return text


def check_library(test, data, machine):
    test.assertEqual(struct.unpack_from("<H", data, 18)[0], machine)
    alignments = [alignment for kind, alignment in segments(data) if kind == PT_LOAD]
    test.assertGreaterEqual(len(alignments), 2)
    test.assertGreaterEqual(min(alignments), PAGE)


class NativePart(unittest.TestCase):
    """Compiles and links against bionic."""

    def check_target(self, target):
        folder = os.path.join(OUTPUT, target)
        run(self, "cmake", "--preset", target, "-B", folder, "-DLINNET_TESTS=OFF", cwd=SOURCE)
        run(self, "cmake", "--build", folder, "--target", "linnet_jni", "linnet_cli", "-j", str(os.cpu_count()))
        library = os.path.join(folder, "lib", "liblinnet_jni.so")
        with open(library, "rb") as file:
            check_library(self, file.read(), TARGETS[target][1])
        names = [line.split()[-1] for line in run(self, NM, "-D", "--defined-only", library).splitlines()]
        self.assertEqual(names, ["JNI_OnLoad"])
        for file in (library, os.path.join(folder, "bin", "linnet")):
            needed = set(re.findall(r"NEEDED.*\[(.*)\]", run(self, READELF, "-dW", file)))
            self.assertLessEqual(needed, SYSTEM_LIBRARIES)
            print("%s: %s, %d bytes" % (target, os.path.basename(file), os.path.getsize(file)))

    def test_library_and_program_for_each_abi(self):
        if not os.environ.get("ANDROID_NDK_HOME"):
            self.skipTest("ANDROID_NDK_HOME names no NDK")
        for target in os.environ.get("LINNET_ANDROID_TARGETS", " ".join(TARGETS)).split():
            with self.subTest(target=target):
                self.check_target(target)


class Package(unittest.TestCase):
    def test_libraries_lie_in_the_apk_ready_to_be_mapped(self):
        if not os.environ.get("ANDROID_HOME") or not shutil.which("gradle"):
            self.skipTest("ANDROID_HOME names no SDK, or there is no Gradle")
        project = os.path.join(SOURCE, "examples", "android")
        run(self, "gradle", "--no-daemon", ":app:assembleDebug", cwd=project)
        apk = os.path.join(project, "app", "build", "outputs", "apk", "debug", "app-debug.apk")
        with zipfile.ZipFile(apk) as archive, open(apk, "rb") as file:
            for abi, machine in TARGETS.values():
                info = archive.getinfo("lib/%s/liblinnet_jni.so" % abi)
                self.assertEqual(info.compress_type, zipfile.ZIP_STORED)
                file.seek(info.header_offset + 26)  # lengths of the name and of the extra field
                lengths = struct.unpack("<HH", file.read(4))
                self.assertEqual((info.header_offset + 30 + sum(lengths)) % PAGE, 0, abi)
                check_library(self, archive.read(info), machine)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
