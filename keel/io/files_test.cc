// Maps, atomic writes, checksums, JSON and compressed files.
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>

#include "keel/io/atomic_file.h"
#include "keel/io/atomic_folder.h"
#include "keel/io/checksum.h"
#include "keel/io/compressed.h"
#include "keel/io/json_file.h"
#include "keel/io/mapped_file.h"
#include "keel/io/test_util.h"

namespace keel {
namespace {

using test::fault_of;
using test::read_bytes;
using test::TempFolder;
using test::write_bytes;

std::span<const std::byte> bytes_of(const std::string& s) { return std::as_bytes(std::span(s)); }

size_t num_entries(const std::string& folder) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

TEST(MappedFile, MapsMovesAndRefuses) {
  TempFolder t;
  write_bytes(t.file("a"), "hello");
  MappedFile a(t.file("a"));
  MappedFile b = std::move(a);
  ASSERT_EQ(b.bytes().size(), 5u);
  EXPECT_EQ(std::memcmp(b.bytes().data(), "hello", 5), 0);
  write_bytes(t.file("empty"), "");
  b = MappedFile(t.file("empty"));
  EXPECT_TRUE(b.bytes().empty());
  EXPECT_EQ(fault_of([&] { MappedFile(t.file("none")); }), "missing_file");
  EXPECT_EQ(fault_of([&] { MappedFile(t.path()); }), "wrong_type");
}

TEST(AtomicFile, WritesReplacesAndLeavesNothingElse) {
  TempFolder t;
  write_file_atomic(t.file("a"), "one");
  write_file_atomic(t.file("a"), "two");
  EXPECT_EQ(read_bytes(t.file("a")), "two");
  EXPECT_EQ(num_entries(t.path()), 1u);
}

TEST(AtomicFile, NothingWithoutCommit) {
  TempFolder t;
  write_bytes(t.file("a"), "old");
  {
    AtomicWriter w(t.file("a"));
    w.write("new");
  }
  EXPECT_EQ(read_bytes(t.file("a")), "old");
  EXPECT_EQ(num_entries(t.path()), 1u);
}

TEST(AtomicFile, StreamsAndChecksums) {
  TempFolder t;
  std::string all;
  AtomicWriter w(t.file("a"));
  for (int i = 0; i < 40; ++i) {
    const std::string piece(static_cast<size_t>(i) * 9973, static_cast<char>('a' + i % 26));
    w.write(piece);
    all += piece;
  }
  w.write(std::string(3 << 20, 'z'));
  all += std::string(3 << 20, 'z');
  w.commit();
  EXPECT_EQ(w.num_bytes(), all.size());
  EXPECT_TRUE(read_bytes(t.file("a")) == all);
  EXPECT_EQ(w.checksum(), checksum(bytes_of(all)));
  EXPECT_EQ(checksum_file(t.file("a")), w.checksum());
}

TEST(AtomicFile, MissingFolderIsOneLine) {
  TempFolder t;
  try {
    write_file_atomic(t.file("no/such/file"), "x");
    FAIL();
  } catch (const Error& e) {
    const std::string line = e.what();
    EXPECT_TRUE(line.starts_with("[" + t.file("no/such/file") + "] cannot create")) << line;
    EXPECT_EQ(line.find('\n'), std::string::npos);
  }
}

TEST(AtomicFile, FullDiskIsResource) {
  TempFolder t;
  if (::mount("none", t.path().c_str(), "tmpfs", 0, "size=1m") != 0) {
    GTEST_SKIP() << "needs the right to mount a tmpfs";
  }
  ErrorKind kind = ErrorKind::kInvalid;
  std::string line;
  try {
    write_file_atomic(t.file("big"), std::string(4 << 20, 'x'));
  } catch (const Error& e) {
    kind = e.kind();
    line = e.what();
  }
  const size_t left = num_entries(t.path());
  ::umount(t.path().c_str());
  EXPECT_EQ(kind, ErrorKind::kResource);
  EXPECT_NE(line.find("No space left"), std::string::npos) << line;
  EXPECT_EQ(left, 0u);
}

TEST(AtomicFile, ReadOnlyFolderIsResource) {
  EXPECT_EQ(fault_of([] { throw_errno("/x", "create", EROFS); }), "read_only");
  try {
    write_file_atomic("/proc/keel_cannot_write_here", "x");
    FAIL();
  } catch (const Error&) {
  }
}

TEST(AtomicFile, StaleTemporariesGo) {
  TempFolder t;
  write_bytes(t.file(".model.tmp-1-0"), "half");
  write_bytes(t.file("model"), "whole");
  remove_stale_temporaries(t.path());
  EXPECT_EQ(num_entries(t.path()), 1u);
}

TEST(AtomicFolder, AppearsCompleteOrNotAtAll) {
  TempFolder t;
  {
    AtomicFolder f(t.file("a/b/"));
    write_file_atomic(f.temporary_path() + "/x", "x");
    EXPECT_FALSE(std::filesystem::exists(t.file("a/b")));
    f.commit();
  }
  EXPECT_EQ(read_bytes(t.file("a/b/x")), "x");
  EXPECT_EQ(fault_of([&] { AtomicFolder f(t.file("a/b")); }), "exists");
  { AtomicFolder f(t.file("a/c")); }
  EXPECT_EQ(num_entries(t.file("a")), 1u);
  std::filesystem::create_directories(t.file("a/d"));
  AtomicFolder into_empty(t.file("a/d"));
  into_empty.commit();
}

TEST(Checksum, KnownValues) {
  EXPECT_EQ(checksum({}), 0x2D06800538D394C2u);  // XXH3 of nothing, seed 0
  Checksum c;
  const std::string text = "one bit matters";
  for (const char& ch : text) c.update(std::as_bytes(std::span(&ch, 1)));
  EXPECT_EQ(c.value(), checksum(bytes_of(text)));
  std::string other = text;
  other[3] ^= 1;
  EXPECT_NE(checksum(bytes_of(other)), c.value());
}

TEST(JsonFile, SaysWhere) {
  TempFolder t;
  write_bytes(t.file("a.json"), "{\n \"x\": 1,\n}\n");
  try {
    read_json_file(t.file("a.json"));
    FAIL();
  } catch (const FileError& e) {
    EXPECT_EQ(e.fault(), "json_syntax");
    EXPECT_NE(std::string(e.what()).find("line 3 column 1"), std::string::npos) << e.what();
  }
}

TEST(JsonFile, Refuses) {
  TempFolder t;
  const auto fault = [&](const std::string& text) {
    write_bytes(t.file("f"), text);
    return fault_of([&] { read_json_file(t.file("f"), 1 << 20); });
  };
  EXPECT_EQ(fault(""), "empty_file");
  EXPECT_EQ(fault("{\"a\": 1e999}"), "json_syntax");
  EXPECT_EQ(fault("{\"a\": \"\xff\"}"), "json_syntax");
  EXPECT_EQ(fault(std::string(100000, '[')), "json_syntax");
  EXPECT_EQ(fault(std::string(2 << 20, ' ')), "too_large");
  EXPECT_EQ(fault("version https://git-lfs.github.com/spec/v1\n"), "lfs_pointer");
  EXPECT_EQ(fault("\xEF\xBB\xBF{\"a\": \"[[\\\"[\"}"), "");
}

std::string gzip(const std::string& text) {
  std::string out(compressBound(text.size()) + 64, '\0');
  z_stream z = {};
  deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  z.avail_in = static_cast<uInt>(text.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  deflate(&z, Z_FINISH);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}

std::string zstd(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

TEST(Compressed, ReadsAllKindsAndBounds) {
  TempFolder t;
  std::string text;
  for (int i = 0; i < 300000; ++i) text += std::to_string(int64_t{i} * 7919) + "\n";
  for (const auto& packed :
       {text, gzip(text), zstd(text), gzip(text) + gzip("more"), zstd(text) + zstd("more")}) {
    write_bytes(t.file("f"), packed);
    const auto got = read_file(t.file("f"));
    EXPECT_TRUE(got == text || got == text + "more");
    EXPECT_EQ(fault_of([&] { read_file(t.file("f"), text.size() / 2); }), "too_large");
  }
  write_bytes(t.file("f"), gzip(text) + gzip("more"));
  EXPECT_EQ(read_file(t.file("f")).size(), text.size() + 4);
}

TEST(Compressed, DamagedOrCut) {
  TempFolder t;
  const std::string text(100000, 'q');
  for (const auto& good : {gzip(text), zstd(text)}) {
    write_bytes(t.file("f"), good.substr(0, good.size() - 3));
    EXPECT_EQ(fault_of([&] { read_file(t.file("f")); }), "bad_compression");
    write_bytes(t.file("f"), good.substr(0, good.size() / 2) + "garbage garbage garbage");
    EXPECT_EQ(fault_of([&] { read_file(t.file("f")); }), "bad_compression");
  }
}

TEST(Files, DroppedPagesComeBack) {
  const TempFolder folder;
  const std::string path = folder.file("big");
  std::string text(100'000, 'x');
  for (size_t i = 0; i < text.size(); i += 7) text[i] = static_cast<char>('a' + i % 23);
  write_file_atomic(path, text);
  const MappedFile file(path);
  const auto bytes = bytes_of(text);
  for (const size_t begin : {size_t{0}, size_t{1}, size_t{4095}, size_t{5000}, text.size()}) {
    file.drop_pages(file.bytes().subspan(begin));
    EXPECT_TRUE(std::ranges::equal(file.bytes(), bytes)) << begin;
  }
  EXPECT_EQ(checksum_file(path), checksum(bytes));
}

}  // namespace
}  // namespace keel
