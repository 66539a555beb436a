// The only file that includes Gloo's headers. They are older than the Gloo inside libtorch, so Gloo
// objects are made by libtorch alone (a device, a process group) and handled through c10d.
#define USE_C10D_GLOO
#include "keel/parallel/gloo.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <string>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "keel/base/error.h"
#include "keel/parallel/cpu_share.h"

namespace keel::parallel {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int64_t kChunkBytes = 16 << 20;
constexpr int64_t kSmallBytes = 64 << 10;  // below: one round instead of two
constexpr milliseconds kReportTime{5000};  // for telling the others about a lost rank

std::string reason(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  const std::string text =
      torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
  return text.substr(0, text.find('\n'));
}

std::string read(c10d::Store& store, const std::string& key) {
  const std::vector<uint8_t> bytes = store.get(key);
  return {bytes.begin(), bytes.end()};
}

c10::intrusive_ptr<c10d::Store> open_store(const Launch& launch) {
  c10d::TCPStoreOptions options;
  options.port = launch.port;
  options.isServer = launch.serves_store;
  options.waitWorkers = false;  // we wait for each rank by name
  options.timeout = seconds(launch.timeout_s);
  try {
    auto tcp = c10::make_intrusive<c10d::TCPStore>(launch.address, options);
    return c10::make_intrusive<c10d::PrefixStore>("keel/" + launch.job, tcp);
  } catch (const std::exception& error) {
    KEEL_REQUIRE(
        !launch.serves_store,
        "[KEEL_MASTER_PORT] expected that rank 0 can listen on {}:{}, got: {}; try another "
        "port, and MASTER_ADDR = rank 0's host",
        launch.address, launch.port, reason(error));
    throw Error(ErrorKind::kPeer,
                fmt::format("rank 0 did not arrive at {}:{} within {} s: {}", launch.address,
                            launch.port, launch.timeout_s, reason(error)));
  }
}

// Every rank's text, in rank order.
std::vector<std::string> exchange_texts(c10d::Store& store, const Launch& launch,
                                        const std::string& mine) {
  std::vector<std::string> texts(launch.size);
  int rank = launch.rank;
  try {
    const std::vector<uint8_t> bytes(mine.begin(), mine.end());
    store.set("rank/" + std::to_string(rank), bytes);
    for (rank = 0; rank < launch.size; ++rank) {
      texts[rank] = read(store, "rank/" + std::to_string(rank));
    }
  } catch (const std::exception& error) {
    throw Error(ErrorKind::kPeer, fmt::format("rank {} did not arrive at the start within {} s: {}",
                                              rank, launch.timeout_s, reason(error)));
  }
  return texts;
}

c10::intrusive_ptr<c10d::ProcessGroupGloo> connect(c10::intrusive_ptr<c10d::Store> store,
                                                   const Launch& launch) {
  using c10d::ProcessGroupGloo;
  try {
    auto options = ProcessGroupGloo::Options::create_default(seconds(launch.timeout_s));
    options->threads = 1;  // for library collectives, which we do not call
    options->devices = {
        !launch.interface.empty() ? ProcessGroupGloo::createDeviceForInterface(launch.interface)
        : launch.one_machine      ? ProcessGroupGloo::createDeviceForHostname("127.0.0.1")
                                  : ProcessGroupGloo::createDefaultDevice()};
    return c10::make_intrusive<ProcessGroupGloo>(store, launch.rank, launch.size, options);
  } catch (const std::exception& error) {
    throw Error(ErrorKind::kPeer,
                fmt::format("rank {} cannot connect to all of {} ranks: {}; on several machines, "
                            "GLOO_SOCKET_IFNAME names the network interface to use",
                            launch.rank, launch.size, reason(error)));
  }
}

// One message of this rank with one peer.
struct Message {
  int peer;
  std::span<const std::byte> send;
  std::span<std::byte> receive;
};

template <class T>
std::span<const std::byte> bytes_of(std::span<T> values) {
  return std::as_bytes(values);
}

// Elements [begin, end) of n that rank r of `size` sums.
std::pair<int64_t, int64_t> shard(int64_t n, int r, int size) {
  return {n * r / size, n * (r + 1) / size};
}

class GlooGroup : public Group {
 public:
  explicit GlooGroup(const Launch& launch)
      : rank_(launch.rank), size_(launch.size), timeout_s_(launch.timeout_s) {
    store_ = open_store(launch);
    threads_ = cpu_share(exchange_texts(*store_, launch, describe_cpus()), rank_);
    gloo_ = connect(store_, launch);
    store_->setTimeout(kReportTime);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int suggested_threads() const override { return threads_; }

  void all_reduce_sum(std::span<float> values) override { sum(values, "float"); }
  void all_reduce_sum(std::span<double> values) override { sum(values, "double"); }

  std::vector<std::vector<double>> all_gather(std::span<const double> values) override {
    doing_ = fmt::format("all_gather of {} double", values.size());
    const auto length = static_cast<int64_t>(values.size());
    std::vector<int64_t> lengths(size_, length);
    exchange([&](int peer) {
      return Message{peer, bytes_of(std::span(&length, 1)),
                     std::as_writable_bytes(std::span(&lengths[peer], 1))};
    });
    std::vector<std::vector<double>> all(size_);
    for (int r = 0; r < size_; ++r) all[r].resize(lengths[r]);
    std::ranges::copy(values, all[rank_].begin());
    exchange([&](int peer) {
      return Message{peer, bytes_of(values), std::as_writable_bytes(std::span(all[peer]))};
    });
    return all;
  }

  void barrier() override {
    doing_ = "barrier";
    const std::byte sent{1};
    std::vector<std::byte> received(size_);
    exchange([&](int peer) {
      return Message{peer, std::span(&sent, 1), std::span(&received[peer], 1)};
    });
  }

 private:
  template <class T>
  void sum(std::span<T> values, const char* type) {
    doing_ = fmt::format("all_reduce_sum of {} {}", values.size(), type);
    const int64_t n = values.size();
    if (n * static_cast<int64_t>(sizeof(T)) <= kSmallBytes) return sum_small(values);
    constexpr int64_t kChunk = kChunkBytes / sizeof(T);
    for (int64_t i = 0; i < n; i += kChunk) sum_chunk(values.subspan(i, std::min(kChunk, n - i)));
  }

  // Everyone gets all values and sums them.
  template <class T>
  void sum_small(std::span<T> values) {
    const std::vector<T> mine(values.begin(), values.end());
    std::vector<T> others(values.size() * size_);
    exchange([&](int peer) {
      return Message{peer, bytes_of(std::span(mine)),
                     std::as_writable_bytes(piece(others, peer, values.size()))};
    });
    sum_in_order(values, std::span<const T>(others));
  }

  // Everyone gets and sums one shard, then the sums are gathered in place.
  template <class T>
  void sum_chunk(std::span<T> values) {
    const auto shard_of = [&](int r) {
      const auto [begin, end] = shard(values.size(), r, size_);
      return values.subspan(begin, end - begin);
    };
    const std::span<T> mine = shard_of(rank_);
    std::vector<T> others(mine.size() * size_);
    exchange([&](int peer) {
      return Message{peer, bytes_of(shard_of(peer)),
                     std::as_writable_bytes(piece(others, peer, mine.size()))};
    });
    sum_in_order(mine, std::span<const T>(others));
    exchange([&](int peer) {
      return Message{peer, bytes_of(mine), std::as_writable_bytes(shard_of(peer))};
    });
  }

  template <class T>
  static std::span<T> piece(std::vector<T>& all, int r, size_t n) {
    return std::span(all).subspan(r * n, n);
  }

  // mine: this rank's values, replaced by the sums. others: [ranks, mine.size()], own row unused.
  template <class T>
  void sum_in_order(std::span<T> mine, std::span<const T> others) const {
    const auto add = [](std::span<T> to, std::span<const T> from) {
      for (size_t i = 0; i < to.size(); ++i) to[i] += from[i];
    };
    constexpr size_t kBlock = 2048;
    std::array<T, kBlock> buffer;
    for (size_t i = 0; i < mine.size(); i += kBlock) {
      const std::span<T> own = mine.subspan(i, std::min(kBlock, mine.size() - i));
      const std::span<T> acc = std::span(buffer).first(own.size());
      for (int r = 0; r < size_; ++r) {
        const std::span<const T> row =
            r == rank_ ? own : others.subspan(r * mine.size() + i, own.size());
        r == 0 ? void(std::ranges::copy(row, acc.begin())) : add(acc, row);
      }
      std::ranges::copy(acc, own.begin());
    }
  }

  // Sends to and receives from every other rank at once; message(peer) says what. Throws kPeer.
  template <class MessageOf>
  void exchange(const MessageOf& message) {
    if (!lost_.empty()) throw Error(ErrorKind::kPeer, lost_);
    std::vector<std::pair<int, c10::intrusive_ptr<c10d::Work>>> works;
    int peer = rank_;
    auto started = Clock::now();
    try {
      for (int step = 1; step < size_; ++step) {  // different first peers spread the load
        peer = (rank_ + step) % size_;
        const Message m = message(peer);
        if (!m.receive.empty()) works.emplace_back(peer, receive(m));
        if (!m.send.empty()) works.emplace_back(peer, send(m));
      }
      for (auto& [who, work] : works) {
        peer = who;
        started = Clock::now();
        work->wait(seconds(timeout_s_));
      }
    } catch (const std::exception& error) {
      const bool late = Clock::now() - started >= seconds(timeout_s_);
      lose(peer, late ? "" : reason(error));
    }
  }

  static at::Tensor tensor_of(std::span<const std::byte> bytes) {
    return at::from_blob(const_cast<std::byte*>(bytes.data()), {std::ssize(bytes)}, at::kByte);
  }

  c10::intrusive_ptr<c10d::Work> receive(const Message& m) {
    std::vector<at::Tensor> tensors = {tensor_of(m.receive)};
    return gloo_->recv(tensors, m.peer, 0);
  }

  c10::intrusive_ptr<c10d::Work> send(const Message& m) {
    std::vector<at::Tensor> tensors = {tensor_of(m.send)};
    return gloo_->send(tensors, m.peer, 0);
  }

  // A rank that gives up closes its connections, so others may see it as the one that is lost. The
  // first to notice is right: its words go to the store and everyone repeats them.
  [[noreturn]] void lose(int peer, const std::string& why) {
    lost_ = why.empty()
                ? fmt::format("rank {} did not arrive at {} within {} s", peer, doing_, timeout_s_)
                : fmt::format("rank {} was lost during {}: {}", peer, doing_, why);
    try {
      const std::vector<uint8_t> words(lost_.begin(), lost_.end());
      const std::vector<uint8_t> first = store_->compareSet("lost", {}, words);
      lost_.assign(first.begin(), first.end());
    } catch (const std::exception&) {
      // Rank 0 and its store are gone: our own words have to do.
    }
    throw Error(ErrorKind::kPeer, lost_);
  }

  int rank_;
  int size_;
  int timeout_s_;
  int threads_ = 1;
  std::string doing_;
  std::string lost_;  // why no call can succeed any more
  c10::intrusive_ptr<c10d::Store> store_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo_;
};

}  // namespace

std::shared_ptr<Group> make_gloo_group(const Launch& launch) {
  KEEL_CHECK(launch.size >= 2, "size {}", launch.size);
  return std::make_shared<GlooGroup>(launch);
}

}  // namespace keel::parallel
