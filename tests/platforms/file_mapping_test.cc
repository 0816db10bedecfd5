#include "core/base/file_mapping.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <string_view>

#include "platforms/mapped_output.h"
#include "tests/platforms/temporary_folder.h"

namespace {

using linnet::AtomicFileWriter;
using linnet::Diagnostic;
using linnet::FileMapping;
using linnet::StatusCode;
using linnet::testing::ReadFile;
using linnet::testing::TemporaryFolder;
using linnet::testing::WriteFile;

std::span<const std::byte> Bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}
std::string Text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
bool Contains(const Diagnostic& diagnostic, const std::string& part) {
  return std::string(diagnostic.text()).find(part) != std::string::npos;
}

// Bytes 0, 1, ..., 250, 0, ...: no period of a page.
std::string Pattern(size_t size) {
  std::string text(size, '\0');
  for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i % 251);
  return text;
}

}  // namespace

TEST_SUITE("platforms") {
  TEST_CASE("FileMapping: maps a file whole and survives a move") {
    TemporaryFolder folder;
    const std::string content = Pattern(100'003);
    WriteFile(folder / "a", content);
    Diagnostic diagnostic;
    auto opened = FileMapping::Open(folder / "a", &diagnostic);
    REQUIRE_MESSAGE(opened.ok(), diagnostic.text());
    FileMapping mapping = std::move(opened).value();
    CHECK(Text(mapping.bytes()) == content);
    FileMapping other;
    other = std::move(mapping);
    CHECK(Text(other.bytes()) == content);
    mapping = FileMapping();
    CHECK(mapping.bytes().empty());
  }

  TEST_CASE("FileMapping: an empty file is an empty span") {
    TemporaryFolder folder;
    WriteFile(folder / "empty", "");
    Diagnostic diagnostic;
    auto mapping = FileMapping::Open(folder / "empty", &diagnostic);
    REQUIRE(mapping.ok());
    CHECK(mapping->bytes().empty());
    mapping->DropPages(0, 10);
    mapping->WillNeed(0, 10);
  }

  TEST_CASE("FileMapping: what is no file is refused by name and reason") {
    TemporaryFolder folder;
    Diagnostic diagnostic;
    SUBCASE("missing") {
      auto mapping = FileMapping::Open(folder / "missing", &diagnostic);
      CHECK(mapping.status().code() == StatusCode::kIoError);
      CHECK(Contains(diagnostic, folder / "missing"));
      CHECK(Contains(diagnostic, strerror(ENOENT)));
    }
    SUBCASE("directory") {
      auto mapping = FileMapping::Open(folder.path(), &diagnostic);
      CHECK(mapping.status().code() == StatusCode::kIoError);
      CHECK(Contains(diagnostic, "found a directory"));
    }
    SUBCASE("a pipe without a writer does not hang") {
      REQUIRE(mkfifo((folder / "pipe").c_str(), 0600) == 0);
      auto mapping = FileMapping::Open(folder / "pipe", &diagnostic);
      CHECK(mapping.status().code() == StatusCode::kIoError);
      CHECK(Contains(diagnostic, "found a pipe"));
    }
    SUBCASE("device") {
      auto mapping = FileMapping::Open("/dev/zero", &diagnostic);
      CHECK(mapping.status().code() == StatusCode::kIoError);
      CHECK(Contains(diagnostic, "found a device"));
    }
    SUBCASE("a null diagnostic is allowed") {
      CHECK(FileMapping::Open(folder / "missing", nullptr).status().code() == StatusCode::kIoError);
    }
  }

  TEST_CASE("FileMapping: a part of a descriptor starts at any offset") {
    TemporaryFolder folder;
    const std::string content = Pattern(300'000);
    WriteFile(folder / "a", content);
    const int descriptor = open((folder / "a").c_str(), O_RDONLY);
    REQUIRE(descriptor >= 0);
    Diagnostic diagnostic;
    for (const uint64_t offset : {0u, 1u, 4095u, 4096u, 65537u, 299'999u, 300'000u}) {
      CAPTURE(offset);
      auto mapping = FileMapping::FromDescriptor(descriptor, offset, 300'000 - offset, &diagnostic);
      REQUIRE_MESSAGE(mapping.ok(), diagnostic.text());
      CHECK(Text(mapping->bytes()) == content.substr(offset));
    }
    CHECK(FileMapping::FromDescriptor(descriptor, 1, 300'000, &diagnostic).status().code() ==
          StatusCode::kInvalidArgument);
    CHECK(FileMapping::FromDescriptor(descriptor, ~uint64_t{0}, 2, &diagnostic).status().code() ==
          StatusCode::kInvalidArgument);
    close(descriptor);
    CHECK_FALSE(FileMapping::FromDescriptor(descriptor, 0, 1, &diagnostic).ok());
  }

  TEST_CASE("FileMapping: dropped pages read the same again") {
    TemporaryFolder folder;
    const std::string content = Pattern(1 << 20);
    WriteFile(folder / "a", content);
    Diagnostic diagnostic;
    auto mapping = FileMapping::Open(folder / "a", &diagnostic);
    REQUIRE(mapping.ok());
    CHECK(Text(mapping->bytes()) == content);
    mapping->DropPages(1, 500'000);
    mapping->DropPages(0, ~uint64_t{0});
    mapping->DropPages(1 << 20, 1);
    mapping->WillNeed(5000, ~uint64_t{0});
    CHECK(Text(mapping->bytes()) == content);
  }

  TEST_CASE("AtomicFileWriter: the target appears whole with Commit and not before") {
    TemporaryFolder folder;
    WriteFile(folder / "out", "old");
    Diagnostic diagnostic;
    auto created = AtomicFileWriter::Create(folder / "out", &diagnostic);
    REQUIRE_MESSAGE(created.ok(), diagnostic.text());
    AtomicFileWriter writer = std::move(created).value();
    REQUIRE(writer.Append(Bytes("hello world"), &diagnostic).ok());
    REQUIRE(writer.PadTo(20, &diagnostic).ok());
    REQUIRE(writer.PadTo(5, &diagnostic).ok());
    REQUIRE(writer.Append(Bytes("end"), &diagnostic).ok());
    REQUIRE(writer.WriteAt(0, Bytes("J"), &diagnostic).ok());
    CHECK(writer.size() == 23);
    CHECK(writer.WriteAt(23, Bytes("x"), &diagnostic).code() == StatusCode::kInvalidArgument);
    CHECK(ReadFile(folder / "out") == "old");
    REQUIRE_MESSAGE(writer.Commit(&diagnostic).ok(), diagnostic.text());
    CHECK(ReadFile(folder / "out") == "Jello world" + std::string(9, '\0') + "end");
    CHECK(folder.count() == 1);
  }

  TEST_CASE("AtomicFileWriter: nothing is left where Commit was not called") {
    TemporaryFolder folder;
    Diagnostic diagnostic;
    {
      auto writer = AtomicFileWriter::Create(folder / "out", &diagnostic);
      REQUIRE(writer.ok());
      REQUIRE(writer->Append(Bytes("part"), &diagnostic).ok());
      CHECK(folder.count() == 1);
    }
    CHECK(folder.count() == 0);
  }

  TEST_CASE("AtomicFileWriter: a target that cannot be written is refused by name and reason") {
    TemporaryFolder folder;
    Diagnostic diagnostic;
    SUBCASE("missing folder") {
      CHECK(AtomicFileWriter::Create(folder / "no/such", &diagnostic).status().code() == StatusCode::kIoError);
      CHECK(Contains(diagnostic, folder / "no/such"));
      CHECK(Contains(diagnostic, strerror(ENOENT)));
    }
    SUBCASE("directory") {
      CHECK_FALSE(AtomicFileWriter::Create(folder.path(), &diagnostic).ok());
      CHECK(Contains(diagnostic, "found a directory"));
    }
    SUBCASE("a device is not replaced") {
      CHECK_FALSE(AtomicFileWriter::Create("/dev/full", &diagnostic).ok());
      CHECK(access("/dev/full", F_OK) == 0);
    }
    SUBCASE("no name") { CHECK_FALSE(AtomicFileWriter::Create("", &diagnostic).ok()); }
    SUBCASE("a name as long as the file system allows works") {
      const std::string name(255, 'n');
      auto writer = AtomicFileWriter::Create(folder / name, &diagnostic);
      REQUIRE_MESSAGE(writer.ok(), diagnostic.text());
      CHECK(writer->Commit(&diagnostic).ok());
      CHECK(access((folder / name).c_str(), F_OK) == 0);
    }
    SUBCASE("a longer one fails and leaves nothing") {
      {
        auto writer = AtomicFileWriter::Create(folder / std::string(256, 'n'), &diagnostic);
        CHECK_FALSE((writer.ok() && writer->Commit(&diagnostic).ok()));
      }
      CHECK(folder.count() == 0);
    }
  }

  TEST_CASE("AtomicFileWriter: a file-size limit gives the path and the reason, and nothing is left") {
    TemporaryFolder folder;
    Diagnostic diagnostic;
    struct rlimit old = {};
    getrlimit(RLIMIT_FSIZE, &old);
    struct rlimit small = {4096, old.rlim_max};
    void (*previous)(int) = signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    {
      auto writer = AtomicFileWriter::Create(folder / "out", &diagnostic);
      REQUIRE(writer.ok());
      const std::string big(10'000, 'x');
      CHECK(writer->Append(Bytes(big), &diagnostic).code() == StatusCode::kIoError);
      CHECK(Contains(diagnostic, folder / "out"));
      CHECK(Contains(diagnostic, strerror(EFBIG)));
      CHECK(writer->PadTo(1 << 20, &diagnostic).code() == StatusCode::kIoError);
    }
    setrlimit(RLIMIT_FSIZE, &old);
    signal(SIGXFSZ, previous);
    CHECK(folder.count() == 0);
  }

  TEST_CASE("AtomicFileWriter: reserved bytes take the disk's room, and too many are told") {
    TemporaryFolder folder;
    Diagnostic diagnostic;
    auto writer = AtomicFileWriter::Create(folder / "out", &diagnostic);
    REQUIRE(writer.ok());
    CHECK(writer->Reserve(&diagnostic).ok());  // of nothing
    REQUIRE(writer->PadTo(1 << 20, &diagnostic).ok());
    REQUIRE(writer->Reserve(&diagnostic).ok());
    REQUIRE(writer->PadTo(uint64_t{8} << 40, &diagnostic).ok());
    CHECK(writer->Reserve(&diagnostic).code() == StatusCode::kIoError);
    CHECK(Contains(diagnostic, folder / "out"));
    CHECK(Contains(diagnostic, strerror(ENOSPC)));
    writer = AtomicFileWriter();
    CHECK(folder.count() == 0);

    writer = AtomicFileWriter::Create(folder / "out", &diagnostic);
    REQUIRE(writer->PadTo(1 << 20, &diagnostic).ok());
    REQUIRE(writer->Reserve(&diagnostic).ok());
    REQUIRE(writer->Commit(&diagnostic).ok());
    struct stat info = {};
    REQUIRE(stat((folder / "out").c_str(), &info) == 0);
    CHECK(info.st_size == 1 << 20);
    CHECK(info.st_blocks * 512 >= 1 << 20);
  }

  TEST_CASE("AtomicFileWriter: replaces the file behind a link and keeps the link") {
    TemporaryFolder folder;
    WriteFile(folder / "real", "old");
    REQUIRE(symlink((folder / "real").c_str(), (folder / "link").c_str()) == 0);
    Diagnostic diagnostic;
    auto writer = AtomicFileWriter::Create(folder / "link", &diagnostic);
    REQUIRE(writer.ok());
    REQUIRE(writer->Append(Bytes("new"), &diagnostic).ok());
    REQUIRE(writer->Commit(&diagnostic).ok());
    CHECK(ReadFile(folder / "real") == "new");
    CHECK(std::filesystem::is_symlink(folder / "link"));
  }

  TEST_CASE("AtomicFileWriter and FileMapping: a sparse file beyond 4 GiB keeps its offsets") {
    if (sizeof(void*) < 8) {
      MESSAGE("skipped: a 32-bit process cannot map 5 GiB");
      return;
    }
    TemporaryFolder folder;
    constexpr uint64_t kOffset = (uint64_t{5} << 30) + 12345;
    Diagnostic diagnostic;
    auto writer = AtomicFileWriter::Create(folder / "big", &diagnostic);
    REQUIRE(writer.ok());
    const auto padded = writer->PadTo(kOffset, &diagnostic);
    if (!padded.ok()) {
      MESSAGE("skipped: the file system has no sparse files: " << diagnostic.text());
      return;
    }
    REQUIRE(writer->Append(Bytes("tail"), &diagnostic).ok());
    REQUIRE(writer->Commit(&diagnostic).ok());
    auto mapping = FileMapping::Open(folder / "big", &diagnostic);
    REQUIRE_MESSAGE(mapping.ok(), diagnostic.text());
    REQUIRE(mapping->bytes().size() == kOffset + 4);
    CHECK(Text(mapping->bytes().subspan(kOffset)) == "tail");
    CHECK(mapping->bytes()[kOffset - 1] == std::byte{0});
  }

  TEST_CASE("MappedOutput: the target appears whole with Commit and not before") {
    TemporaryFolder folder;
    Diagnostic diagnostic;
    {
      auto output = linnet::platform::MappedOutput::Create(folder / "out", 10'000, &diagnostic);
      REQUIRE_MESSAGE(output.ok(), diagnostic.text());
      CHECK(output->bytes().size() == 10'000);
      CHECK(output->bytes()[9'999] == std::byte{0});
    }
    CHECK(folder.count() == 0);
    auto output = linnet::platform::MappedOutput::Create(folder / "out", 10'000, &diagnostic);
    REQUIRE_MESSAGE(output.ok(), diagnostic.text());
    std::memcpy(output->bytes().data() + 5'000, "middle", 6);
    CHECK(access((folder / "out").c_str(), F_OK) != 0);
    REQUIRE_MESSAGE(output->Commit(&diagnostic).ok(), diagnostic.text());
    CHECK(ReadFile(folder / "out").substr(5'000, 6) == "middle");
    CHECK(ReadFile(folder / "out").size() == 10'000);
    CHECK(folder.count() == 1);
  }

  TEST_CASE("MappedOutput: pages that were let go keep what was written") {
    TemporaryFolder folder;
    Diagnostic diagnostic;
    constexpr size_t kBytes = 3 << 20;
    auto output = linnet::platform::MappedOutput::Create(folder / "out", kBytes, &diagnostic);
    REQUIRE_MESSAGE(output.ok(), diagnostic.text());
    const auto bytes = output->bytes();
    for (size_t i = 0; i < kBytes; ++i) bytes[i] = static_cast<std::byte>(i * 7);
    output->DropPages(kBytes / 2 + 5);
    output->DropPages(kBytes + 100'000);
    bool same = true;
    for (size_t i = 0; i < kBytes; ++i) same = same && bytes[i] == static_cast<std::byte>(i * 7);
    CHECK(same);
    REQUIRE(output->Commit(&diagnostic).ok());
    CHECK(ReadFile(folder / "out").size() == kBytes);
  }

  TEST_CASE("MappedOutput: a size that no disk has is refused and leaves nothing") {
    TemporaryFolder folder;
    Diagnostic diagnostic;
    CHECK_FALSE(linnet::platform::MappedOutput::Create(folder / "out", uint64_t{1} << 56, &diagnostic).ok());
    CHECK(Contains(diagnostic, folder / "out"));
    CHECK_FALSE(linnet::platform::MappedOutput::Create(folder / "out", 0, &diagnostic).ok());
    CHECK(folder.count() == 0);
  }

  TEST_CASE("AnonymousMemory: zeroed, movable, and refused where no machine has it") {
    Diagnostic diagnostic;
    auto created = linnet::platform::AnonymousMemory::Create(100'000, &diagnostic);
    REQUIRE_MESSAGE(created.ok(), diagnostic.text());
    linnet::platform::AnonymousMemory memory = std::move(created).value();
    CHECK(memory.bytes().size() == 100'000);
    CHECK(memory.bytes()[99'999] == std::byte{0});
    CHECK(linnet::platform::AnonymousMemory::Create(0, &diagnostic)->bytes().empty());
    CHECK(linnet::platform::AnonymousMemory::Create(~uint64_t{0}, &diagnostic).status().code() ==
          StatusCode::kOutOfMemory);
  }
}
