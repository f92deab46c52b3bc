// Pieces that lie where the finished file has them: in any order, from any thread, killed after each, damaged in every way.
#include "compress/work_file.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <thread>

#include "base/test_shared.h"
#include "compress/mapped_reader.h"

namespace hone {
namespace {

namespace fs = std::filesystem;

using Parts = std::vector<std::vector<std::byte>>;

// The log's checksums are CRC-32C as it is defined, a bit at a time, however long a piece is and however it came.
TEST(WorkFile, ChecksumsAreThoseOfTheDefinition) {
  const std::string path = TestPath("checksums");
  std::vector<std::byte> bytes(10000);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * i * 31 >> 5);
  std::string wanted;
  const auto work = WorkFile::Open(path, 1, false);
  ASSERT_TRUE(work);
  for (const size_t size : {0u, 1u, 7u, 8u, 9u, 1024u, 3071u, 3072u, 3073u, 6143u, 6144u, 9999u, 10000u}) {
    const std::span<const std::byte> piece(bytes.data(), size);
    const size_t cut = size / 3;
    ASSERT_TRUE((*work)->Append(piece.first(cut)) && (*work)->Append(piece.subspan(cut)) && (*work)->EndPiece());
    uint32_t state = ~0u;
    for (const std::byte byte : piece) {
      state ^= static_cast<uint32_t>(byte);
      for (int bit = 0; bit < 8; ++bit) state = state >> 1 ^ (state & 1 ? 0x82f63b78u : 0);
    }
    char line[32];
    std::snprintf(line, sizeof(line), "%zu %08x\n", size, ~state);
    wanted += line;
  }
  std::ifstream in(path + ".log");
  const std::string log{std::istreambuf_iterator<char>(in), {}};
  EXPECT_EQ(log.substr(log.find('\n') + 1), wanted);
  (*work)->Remove();
}

class PlacedWorkFile : public testing::Test {
 protected:
  static constexpr uint64_t kJob = 7;
  static constexpr size_t kPieces = 5;

  PlacedWorkFile() : path_(TestPath("placed")) { Clean(); }
  void Clean() {
    for (const char* end : {"", ".log", ".log.new"}) fs::remove(path_ + end);
  }
  // Two parts a piece, those of all pieces interleaved, and a gap that belongs to none.
  static WorkLayout Layout() {
    WorkLayout layout{.head = "the head"};
    for (uint64_t i = 0; i < kPieces; ++i) layout.pieces.push_back({{100 + 300 * i, 200 + i}, {2000 + 50 * i, 40}});
    layout.bytes = 2300;
    return layout;
  }
  static Parts Piece(size_t piece) {
    Parts parts;
    const WorkLayout layout = Layout();
    for (const WorkLayout::Part& part : layout.pieces[piece]) {
      parts.emplace_back(part.bytes);
      for (size_t i = 0; i < part.bytes; ++i) parts.back()[i] = static_cast<std::byte>(31 * piece + 7 * i + part.offset);
    }
    return parts;
  }
  static std::string Bytes(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static void Put(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }
  // Finished pieces of an earlier run; then all of them are put and must be there. The file's bytes.
  std::string GoOn(size_t wanted) {
    const auto work = WorkFile::Open(path_, kJob, true, Layout());
    EXPECT_TRUE(work) << (work ? "" : work.error().message);
    if (!work) return "";
    EXPECT_EQ((*work)->pieces().size(), wanted);
    for (size_t i = (*work)->pieces().size(); i < kPieces; ++i) EXPECT_TRUE((*work)->Put(i, Piece(i)));
    for (size_t i = 0; i < kPieces; ++i) {
      Parts back = Piece(i);
      for (auto& part : back) std::fill(part.begin(), part.end(), std::byte{0});
      EXPECT_TRUE((*work)->Get(i, back));
      EXPECT_TRUE(back == Piece(i)) << i;
      const auto joined = (*work)->Read(i);
      EXPECT_TRUE(joined && joined->size() == back[0].size() + back[1].size());
    }
    EXPECT_TRUE((*work)->Sync());
    return Bytes(path_);
  }
  void PutSome(size_t pieces) {
    const auto work = WorkFile::Open(path_, kJob, false, Layout());
    ASSERT_TRUE(work);
    for (size_t i = 0; i < pieces; ++i) ASSERT_TRUE((*work)->Put(i, Piece(i)));
  }

  const std::string path_;
};

TEST_F(PlacedWorkFile, GoesOnAfterEachPiece) {
  PutSome(kPieces);
  const std::string whole = GoOn(kPieces);
  EXPECT_EQ(whole.size(), Layout().bytes);
  EXPECT_EQ(whole.substr(0, 8), "the head");
  for (size_t pieces = 0; pieces <= kPieces; ++pieces) {
    Clean();
    PutSome(pieces);
    EXPECT_TRUE(GoOn(pieces) == whole) << pieces;
  }
}

TEST_F(PlacedWorkFile, APieceCountsWhenThoseBeforeItDo) {
  {
    const auto work = WorkFile::Open(path_, kJob, false, Layout());
    ASSERT_TRUE(work);
    for (const size_t i : {2, 0, 4}) ASSERT_TRUE((*work)->Put(i, Piece(i)));
    EXPECT_EQ((*work)->pieces().size(), 1u);
    ASSERT_TRUE((*work)->Put(1, Piece(1)));
    EXPECT_EQ((*work)->pieces().size(), 3u);
  }
  GoOn(3);
  Clean();
  {
    const auto work = WorkFile::Open(path_, kJob, false, Layout());
    ASSERT_TRUE(work);
    std::vector<std::thread> threads;
    for (size_t i = 0; i < kPieces; ++i) threads.emplace_back([&, i] { EXPECT_TRUE((*work)->Put(kPieces - 1 - i, Piece(kPieces - 1 - i))); });
    for (std::thread& thread : threads) thread.join();
  }
  GoOn(kPieces);
}

// What is damaged before the job ends is noticed by who asks, in every part and up to its last byte.
TEST_F(PlacedWorkFile, WhatTheFileDoesNotHoldIsNoticed) {
  const auto work = WorkFile::Open(path_, kJob, false, Layout());
  ASSERT_TRUE(work);
  for (size_t i = 0; i < kPieces; ++i) ASSERT_TRUE((*work)->Put(i, Piece(i)));
  const auto flip = [&](uint64_t at) {
    std::fstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
    file.seekg(static_cast<std::streamoff>(at));
    const char was = static_cast<char>(file.get());
    file.seekp(static_cast<std::streamoff>(at));
    file.put(static_cast<char>(was ^ 16));
  };
  const WorkLayout layout = Layout();
  for (size_t i = 0; i < kPieces; ++i) {
    for (const WorkLayout::Part& part : layout.pieces[i]) {
      for (const uint64_t at : {part.offset, part.offset + part.bytes / 2, part.offset + part.bytes - 1}) {
        flip(at);
        for (size_t j = 0; j < kPieces; ++j) {
          const Result<void> holds = (*work)->Holds(j, Piece(j));
          ASSERT_EQ(static_cast<bool>(holds), j != i) << at << " " << j;
          if (holds) continue;
          EXPECT_EQ(holds.error().code, ErrorCode::kIo);
          EXPECT_NE(holds.error().message.find("does not hold what was written"), std::string::npos) << holds.error().message;
        }
        flip(at);
      }
    }
  }
  fs::resize_file(path_, 1000);
  EXPECT_FALSE((*work)->Holds(kPieces - 1, Piece(kPieces - 1)));
}

TEST_F(PlacedWorkFile, WhatIsDamagedIsDoneAgain) {
  PutSome(kPieces);
  const std::string whole = GoOn(kPieces), log = Bytes(path_ + ".log");
  const auto line = [&](size_t n) {  // where line n of the log begins
    size_t at = 0;
    for (; n > 0; --n) at = log.find('\n', at) + 1;
    return at;
  };
  struct Damage {
    const char* what;
    std::string file, log;
    size_t kept;
  };
  std::string flipped = whole, second = whole;
  flipped[2000 + 50 * 3 + 5] ^= 1;  // the second part of piece 3
  second[100 + 300 + 7] ^= 1;
  std::string garbage = log;
  garbage.replace(line(3), std::string::npos, "\xff\xfe not a line\n");
  std::string longer = log.substr(0, line(2)) + "18446744073709551615 00000000\n", negative = log.substr(0, line(2)) + "-5 00000000\n";
  for (const Damage& damage :
       {Damage{"a byte of piece 3", flipped, log, 3}, Damage{"a byte of piece 1", second, log, 1}, Damage{"the file cut short", whole.substr(0, 900), log, 0},
        Damage{"no file", "", log, 0}, Damage{"a longer file", whole + "more", log, kPieces}, Damage{"half a line", whole, log.substr(0, line(3) + 4), 2},
        Damage{"garbage for a line", whole, garbage, 2}, Damage{"a length without end", whole, longer, 1}, Damage{"a negative length", whole, negative, 1},
        Damage{"a line too many", whole, log + "240 00000000\n", kPieces}, Damage{"no log", whole, "", 0}}) {
    SCOPED_TRACE(damage.what);
    Put(path_, damage.file);
    Put(path_ + ".log", damage.log);
    EXPECT_TRUE(GoOn(damage.kept) == whole);
  }
  // Another job's is refused and stays.
  const auto other = WorkFile::Open(path_, kJob + 1, true, Layout());
  ASSERT_FALSE(other);
  EXPECT_NE(other.error().message.find("another job"), std::string::npos);
  EXPECT_TRUE(GoOn(kPieces) == whole);
  Put(path_ + ".log", "not a work file at all\n");
  EXPECT_FALSE(WorkFile::Open(path_, kJob, true, Layout()));
  // Without resume nothing of it is left.
  const auto fresh = WorkFile::Open(path_, kJob, false, Layout());
  ASSERT_TRUE(fresh);
  EXPECT_TRUE((*fresh)->pieces().empty());
  EXPECT_EQ(Bytes(path_).substr(8), std::string(Layout().bytes - 8, '\0'));
  const auto twice = WorkFile::Open(path_, kJob, true, Layout());
  ASSERT_FALSE(twice);
  EXPECT_NE(twice.error().message.find("another process"), std::string::npos);
}

// Any byte of the log wrong, and the log cut anywhere: the job is refused or ends with the same bytes.
TEST_F(PlacedWorkFile, NoDamageOfTheLogChangesTheResult) {
  PutSome(kPieces);
  const std::string whole = GoOn(kPieces), log = Bytes(path_ + ".log");
  const auto go_on = [&](const std::string& damaged) {
    Put(path_, whole);
    Put(path_ + ".log", damaged);
    const auto work = WorkFile::Open(path_, kJob, true, Layout());
    if (!work) {
      EXPECT_EQ(work.error().code, ErrorCode::kUsage);
      return false;
    }
    for (size_t i = (*work)->pieces().size(); i < kPieces; ++i) EXPECT_TRUE((*work)->Put(i, Piece(i)));
    return true;
  };
  const size_t first_line = log.find('\n') + 1;
  for (size_t at = 0; at < log.size(); ++at) {
    for (const char other : {' ', '\n', '0', '9', 'f', '-', '\0', '\xff'}) {
      std::string damaged = log;
      if (damaged[at] == other) continue;
      damaged[at] = other;
      if (go_on(damaged)) {
        EXPECT_GE(at, first_line - 1) << "another job's file was taken";
        EXPECT_TRUE(Bytes(path_) == whole) << at << " " << static_cast<int>(other);
      } else {
        EXPECT_LT(at, first_line);
      }
    }
    if (go_on(log.substr(0, at))) {
      EXPECT_TRUE(Bytes(path_) == whole) << at;
    }
  }
}

// A file that has moved to its place is nobody's work file any more; the name may be the next process's.
TEST_F(PlacedWorkFile, TwoProcessesInTurnLeaveEachOthersFilesAlone) {
  const std::string result = TestPath("placed result");
  fs::remove(result);
  std::string whole;
  {
    const auto first = WorkFile::Open(path_, kJob, false, Layout());
    ASSERT_TRUE(first);
    for (size_t i = 0; i < kPieces; ++i) ASSERT_TRUE((*first)->Put(i, Piece(i)));
    ASSERT_TRUE((*first)->Sync());
    whole = Bytes(path_);
    EXPECT_FALSE(WorkFile::Open(path_, kJob, false, Layout()));  // it has the name
    EXPECT_TRUE(Bytes(path_) == whole);
    fs::rename(path_, result);
    const auto second = WorkFile::Open(path_, kJob, false, Layout());
    ASSERT_TRUE(second);
    ASSERT_TRUE((*second)->Put(0, Piece(0)));
    (*first)->Remove();
    EXPECT_TRUE(fs::exists(path_) && fs::exists(path_ + ".log"));
  }
  EXPECT_TRUE(Bytes(result) == whole);
  EXPECT_TRUE(GoOn(1) == whole);
  // With nobody after it, its log goes too.
  const auto last = WorkFile::Open(path_, kJob, true, Layout());
  ASSERT_TRUE(last);
  fs::rename(path_, result);
  (*last)->Remove();
  EXPECT_FALSE(WorkFile::Exists(path_));
  EXPECT_TRUE(Bytes(result) == whole);
}

TEST_F(PlacedWorkFile, PiecesMayBeAppendedInOrder) {
  PutSome(kPieces);
  const std::string whole = GoOn(kPieces);
  Clean();
  {
    const auto work = WorkFile::Open(path_, kJob, false, Layout());
    ASSERT_TRUE(work);
    for (size_t i = 0; i < 3; ++i) {
      std::vector<std::byte> joined;
      for (const auto& part : Piece(i)) joined.insert(joined.end(), part.begin(), part.end());
      for (size_t at = 0; at < joined.size(); at += 37)  // across the parts
        ASSERT_TRUE((*work)->Append(std::span(joined).subspan(at, std::min<size_t>(37, joined.size() - at))));
      ASSERT_TRUE((*work)->EndPiece());
    }
  }
  EXPECT_TRUE(GoOn(3) == whole);
}

TEST_F(PlacedWorkFile, AFullDiskIsAnErrorBeforeAnyWork) {
  WorkLayout layout = Layout();
  layout.bytes = uint64_t{1} << 60;
  const auto full = WorkFile::Open(path_, kJob, false, layout);
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code, ErrorCode::kIo);
  EXPECT_NE(full.error().message.find("cannot reserve"), std::string::npos) << full.error().message;
  EXPECT_FALSE(fs::exists(path_));
}

// Through the descriptor where the file is mapped, else from memory; also when the file's name is gone or another's.
TEST(MappedReader, ReadsWhatIsMapped) {
  const std::string path = TestPath("mapped file");
  std::string text(300000, ' ');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 7 + i / 251);
  std::ofstream(path, std::ios::binary) << text;
  const auto file = MappedFile::Open(path);
  ASSERT_TRUE(file);
  const std::byte* data = (*file)->bytes().data();
  const auto check = [&](const MappedReader& reader) {
    for (const size_t at : {size_t{0}, size_t{4097}, size_t{123456}}) {
      std::string some(100000, ' ');
      reader.Read(data + at, some.size(), reinterpret_cast<std::byte*>(some.data()));
      EXPECT_TRUE(some == text.substr(at, some.size())) << at;
    }
    std::string own(5, ' ');
    reader.Read(reinterpret_cast<const std::byte*>("hello"), 5, reinterpret_cast<std::byte*>(own.data()));
    EXPECT_EQ(own, "hello");
  };
  {
    const MappedReader reader;
    EXPECT_TRUE(reader.Knows(data) && reader.Knows(data + text.size() - 1));
    EXPECT_FALSE(reader.Knows(reinterpret_cast<const std::byte*>(&text)));
    check(reader);
  }
  {
    const MappedReader reader;
    EXPECT_FALSE(reader.Changed(data));
    fs::resize_file(path, text.size() + 1);
    EXPECT_TRUE(reader.Changed(data));
    fs::resize_file(path, text.size());
  }
  const MappedReader before;
  fs::remove(path);
  EXPECT_FALSE(before.Changed(data));  // what is mapped stays
  check(MappedReader());
  std::ofstream(path, std::ios::binary) << std::string(text.size(), 'x');
  const MappedReader reader;
  EXPECT_FALSE(reader.Knows(data));
  check(reader);
}

}  // namespace
}  // namespace hone
