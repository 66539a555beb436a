// The "decoder" of tokenizer.json as a stream: ByteLevel, ByteFallback, Fuse, Replace, Strip,
// Metaspace and Sequence.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "keel/tokenizer/pipeline/component.h"

namespace keel {

// What one step hands to the next.
struct DecodePiece {
  std::string text;
  bool begins = true;  // a new token begins here (false: the previous one goes on)
};

// One step at work on one sequence.
class DecodeStage {
 public:
  virtual ~DecodeStage() = default;
  virtual void push(const DecodePiece& in, std::vector<DecodePiece>& out) = 0;
  virtual void finish(std::vector<DecodePiece>& out) = 0;  // end of the sequence
};

// Immutable; make stages from any thread.
class Decoder {
 public:
  // Throws Error(kInvalid) for a type that is not listed above. A null component joins tokens with
  // blanks, as tokenizers does.
  explicit Decoder(const Component& c);
  std::vector<std::unique_ptr<DecodeStage>> stages() const;
  bool joins_with_blanks() const { return makers_.empty(); }
  // All there is to do is to join raw bytes and repair the UTF-8.
  bool only_byte_level() const { return only_byte_level_; }

 private:
  using Maker = std::shared_ptr<const class DecodeStageMaker>;
  void read(const Component& c);
  std::vector<Maker> makers_;
  bool only_byte_level_ = false;
  bool joined_ = false;  // while reading: what comes next sees one long token
};

class DecodeStageMaker {
 public:
  virtual ~DecodeStageMaker() = default;
  virtual std::unique_ptr<DecodeStage> make() const = 0;
};

}  // namespace keel
