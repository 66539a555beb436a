#include "keel/balance/rollout_replay.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "keel/base/error.h"

namespace keel::balance {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

class Replay {
 public:
  explicit Replay(const RolloutTrace& trace)
      : t_(trace), shape_(trace.shape), policy_(trace.shape), ranks_(trace.shape.ranks) {
    for (size_t i = 0; i < t_.lengths.size(); ++i) {
      requests_.push_back({static_cast<int32_t>(i) / t_.answers_per_prompt, t_.prompt_tokens});
    }
    start_.resize(requests_.size());
  }

  RolloutResult run() {
    replan();
    double next_check = check_interval();
    std::vector<double> done_at;
    while (done_at.size() < requests_.size()) {
      const double check = t_.lockstep ? kNever : next_check;
      const double until = std::min(check, next_event(next_check));
      if (until == kNever) {  // lockstep, and everything that ran has lost its KV
        replan();
        KEEL_CHECK(next_event(next_check) < kNever, "nothing can run, {} requests are left",
                   requests_.size() - done_at.size());
        continue;
      }
      advance(until);
      const size_t before = done_at.size();
      finish(done_at);
      drop_overflow();
      const double clock = t_.lockstep ? ranks_[0].steps : now_;
      if (clock >= next_check - 1e-6) {
        replan();
        next_check = clock + check_interval();
      } else if (done_at.size() > before) {
        for (int32_t r = 0; r < shape_.ranks; ++r) fill(r);
      }
    }
    out_.makespan_ms = now_;
    out_.tail_after_90 =
        1 - done_at[static_cast<size_t>(0.9 * static_cast<double>(done_at.size()))] / now_;
    out_.idle = 1 - busy_ / (shape_.ranks * now_);
    return std::move(out_);
  }

 private:
  struct Rank {
    std::vector<int32_t> active;
    double steps = 0;
    double free_at = 0;  // stalled until then
    int64_t paused_tokens = 0;
  };

  double check_interval() const { return t_.lockstep ? t_.check_steps : t_.check_ms; }

  double step_ms(int32_t r) const {
    size_t batch = ranks_[r].active.size();
    if (t_.lockstep) {
      for (const auto& x : ranks_) batch = std::max(batch, x.active.size());
    }
    size_t b = 0;
    while (b + 1 < shape_.buckets.size() && shape_.buckets[b] < static_cast<int32_t>(batch)) ++b;
    return shape_.step_ms[b];
  }

  double generated(int32_t q) const {
    const auto& r = requests_[q];
    return r.active ? r.generated + ranks_[r.rank].steps - start_[q] : r.generated;
  }

  double kv_tokens(int32_t r) const {
    double sum = static_cast<double>(ranks_[r].paused_tokens);
    for (const int32_t q : ranks_[r].active) sum += t_.prompt_tokens + generated(q);
    return sum;
  }

  // Time of the next finished answer, full KV pool or (lockstep) check.
  double next_event(double check_steps) const {
    double best = kNever;
    for (int32_t r = 0; r < shape_.ranks; ++r) {
      const auto& rank = ranks_[r];
      if (rank.active.empty()) continue;
      double steps = kNever;
      for (const int32_t q : rank.active) steps = std::min(steps, t_.lengths[q] - generated(q));
      if (rank.active.size() > 1 || rank.paused_tokens > 0) {
        const double room = (static_cast<double>(shape_.kv_capacity_tokens) - kv_tokens(r)) /
                            static_cast<double>(rank.active.size());
        steps = std::min(steps, std::max(1.0, std::floor(room) + 1));
      }
      if (t_.lockstep) steps = std::min(steps, std::max(0.0, check_steps - rank.steps));
      best = std::min(best, std::max(now_, rank.free_at) + steps * step_ms(r));
    }
    return best;
  }

  void advance(double until) {
    std::vector<double> ms(shape_.ranks);
    for (int32_t r = 0; r < shape_.ranks; ++r) ms[r] = step_ms(r);
    for (int32_t r = 0; r < shape_.ranks; ++r) {
      auto& rank = ranks_[r];
      const double runs = std::max(0.0, until - std::max(now_, rank.free_at));
      if (!rank.active.empty()) busy_ += runs;
      if (!rank.active.empty() || t_.lockstep) rank.steps += runs / ms[r];
      if (t_.lockstep) rank.steps = std::round(rank.steps * 1e6) / 1e6;
    }
    now_ = until;
  }

  void finish(std::vector<double>& done_at) {
    for (auto& rank : ranks_) {
      std::erase_if(rank.active, [&](int32_t q) {
        if (generated(q) < t_.lengths[q] - 1e-6) return false;
        auto& r = requests_[q];
        r.generated = t_.lengths[q];
        r.active = false;
        r.done = true;
        done_at.push_back(now_);
        return true;
      });
    }
  }

  void log(RolloutEvent::Kind kind, int32_t q, int32_t from, int32_t to) {
    out_.events.push_back({kind, now_, q, from, to});
  }

  void stall(int32_t r, double ms) {
    for (int32_t x = 0; x < shape_.ranks; ++x) {
      if (!t_.lockstep && x != r) continue;
      ranks_[x].free_at = std::max(ranks_[x].free_at, now_) + ms;
    }
  }

  void activate(int32_t q, int32_t r) {
    auto& request = requests_[q];
    if (request.rank == r) ranks_[r].paused_tokens -= t_.prompt_tokens + request.generated;
    if (request.rank < 0 && request.generated > 0) {
      stall(r, t_.prefill_ms_per_token * (t_.prompt_tokens + request.generated));
    }
    request.rank = r;
    request.active = true;
    start_[q] = ranks_[r].steps;
    ranks_[r].active.push_back(q);
    log(RolloutEvent::Kind::kStart, q, -1, r);
  }

  void pause(int32_t q) {
    auto& request = requests_[q];
    auto& rank = ranks_[request.rank];
    request.generated = static_cast<int32_t>(std::floor(generated(q) + 1e-6));
    request.active = false;
    rank.paused_tokens += t_.prompt_tokens + request.generated;
    std::erase(rank.active, q);
  }

  void fill(int32_t r) {
    auto& rank = ranks_[r];
    while (static_cast<int32_t>(rank.active.size()) < batch_[r]) {
      const auto room = 0.97 * static_cast<double>(shape_.kv_capacity_tokens) - kv_tokens(r);
      const int32_t q = policy_.next(requests_, r, static_cast<int64_t>(std::max(0.0, room)));
      if (q < 0) return;
      activate(q, r);
    }
  }

  // KV that no longer fits: paused requests lose theirs first, then the newest running one.
  void drop_overflow() {
    for (int32_t r = 0; r < shape_.ranks; ++r) {
      while (kv_tokens(r) > static_cast<double>(shape_.kv_capacity_tokens)) {
        int32_t victim = -1;
        if (ranks_[r].paused_tokens > 0) {
          for (size_t i = 0; i < requests_.size(); ++i) {
            const auto& q = requests_[i];
            if (q.done || q.active || q.rank != r) continue;
            if (victim < 0 || q.generated < requests_[victim].generated) {
              victim = static_cast<int32_t>(i);
            }
          }
        } else if (ranks_[r].active.size() > 1) {
          victim = ranks_[r].active.back();
          pause(victim);
        }
        if (victim < 0) break;
        ranks_[r].paused_tokens -= t_.prompt_tokens + requests_[victim].generated;
        requests_[victim].rank = -1;
        ++out_.dropped;
        log(RolloutEvent::Kind::kDrop, victim, r, -1);
      }
    }
  }

  void replan() {
    auto now = requests_;
    for (size_t i = 0; i < now.size(); ++i) {
      now[i].generated = static_cast<int32_t>(generated(static_cast<int32_t>(i)) + 1e-6);
    }
    const auto& plan = policy_.plan(now);
    batch_ = plan.batch;
    bool changed = false, moved = false;
    std::vector<double> out(shape_.ranks, 0), in(shape_.ranks, 0);
    for (size_t i = 0; i < now.size(); ++i) {
      const auto q = static_cast<int32_t>(i);
      const bool moves = now[i].rank >= 0 && plan.active[i] && plan.rank[i] != now[i].rank;
      if (now[i].active && (!plan.active[i] || moves)) {
        pause(q);
        changed = true;
        if (!moves) {
          ++out_.paused;
          log(RolloutEvent::Kind::kPause, q, now[i].rank, -1);
        }
      }
      if (!moves) continue;
      const double tokens = t_.prompt_tokens + requests_[q].generated;
      out[now[i].rank] += tokens;
      in[plan.rank[i]] += tokens;
      ranks_[now[i].rank].paused_tokens -= static_cast<int64_t>(tokens);
      requests_[q].rank = plan.rank[i];
      ranks_[plan.rank[i]].paused_tokens += static_cast<int64_t>(tokens);
      moved = true;
      ++out_.moved;
      log(RolloutEvent::Kind::kMove, q, now[i].rank, plan.rank[i]);
    }
    for (size_t i = 0; i < now.size(); ++i) {
      if (!plan.active[i] || requests_[i].active) continue;
      changed = changed || requests_[i].rank >= 0;
      activate(static_cast<int32_t>(i), plan.rank[i]);
    }
    charge(changed, moved, out, in);
    for (int32_t r = 0; r < shape_.ranks; ++r) fill(r);
  }

  // The busiest rank decides in lockstep; else each rank pays for its own traffic.
  void charge(bool changed, bool moved, const std::vector<double>& out,
              const std::vector<double>& in) {
    if (!changed) return;
    double busiest = 0;
    for (int32_t r = 0; r < shape_.ranks; ++r) {
      const double tokens = std::max(out[r], in[r]);
      busiest = std::max(busiest, tokens);
      if (!t_.lockstep && tokens > 0) {
        stall(r, t_.sync_ms + t_.move_ms + t_.kv_ms_per_token * tokens);
      }
    }
    if (t_.lockstep) {
      stall(0, t_.sync_ms + (moved ? t_.move_ms + t_.kv_ms_per_token * busiest : 0));
    }
  }

  const RolloutTrace& t_;
  const RolloutShape& shape_;
  RolloutPolicy policy_;
  std::vector<RolloutRequest> requests_;
  std::vector<double> start_;  // [requests] steps of its rank when it became active
  std::vector<Rank> ranks_;
  std::vector<int32_t> batch_;
  RolloutResult out_;
  double now_ = 0;
  double busy_ = 0;
};

}  // namespace

RolloutResult replay_rollout(const RolloutTrace& trace) { return Replay(trace).run(); }

RolloutTrace rollout_trace(const OrderedJson& row) {
  RolloutTrace t;
  try {
    t.answers_per_prompt = row.at("n");
    t.lengths = row.at("lengths").get<std::vector<int32_t>>();
    t.prompt_tokens = row.at("prompt_len");
    auto& s = t.shape;
    s.ranks = row.at("ranks");
    s.max_running = row.at("max_num_seqs");
    s.buckets = row.at("buckets").get<std::vector<int32_t>>();
    for (const int32_t b : s.buckets) s.step_ms.push_back(row.at("tau_ms").at(std::to_string(b)));
    t.lockstep = row.at("lockstep");
    s.kv_capacity_tokens = row.at("kv_capacity");
    s.max_new_tokens = row.at("cap");
    t.kv_ms_per_token =
        row.at("kv_bytes_per_token").get<double>() / row.at("link_bytes_per_s").get<double>() * 1e3;
    t.prefill_ms_per_token = row.at("prefill_ms_per_token");
    t.sync_ms = row.at("sync_ms");
    t.move_ms = row.at("move_ms");
  } catch (const OrderedJson::exception& e) {
    throw_invalid("[rollout_traces] expected a trace as in the case files' README, got {}",
                  e.what());
  }
  t.check_steps = 100;
  t.check_ms = 10000;
  KEEL_REQUIRE(t.answers_per_prompt >= 1 && !t.lengths.empty(),
               "[rollout_traces] expected answers, got none");
  for (const int32_t length : t.lengths) {
    KEEL_REQUIRE(length >= 1, "[rollout_traces] expected lengths >= 1, got {}", length);
  }
  return t;
}

std::vector<OrderedJson> run_rollout_trace_case(const OrderedJson& row, double (*now_us)()) {
  const auto trace = rollout_trace(row);
  const double start = now_us();
  const auto result = replay_rollout(trace);
  const double us = now_us() - start;
  static constexpr const char* kKinds[] = {"start", "pause", "move", "drop"};
  OrderedJson plan = OrderedJson::array();
  for (const auto& e : result.events) {
    plan.push_back({std::round(e.at_ms * 1e3) / 1e3, kKinds[static_cast<int>(e.kind)], e.request,
                    e.from, e.to});
  }
  const double seconds = result.makespan_ms / 1e3;
  OrderedJson out = {
      {"id", row.value("id", "")}, {"mode", "keel"}, {"plan", plan}, {"score", seconds}};
  if (row.contains("policies")) {
    const auto& policies = row["policies"];
    out["ratio"] = seconds / policies["verl_order_static_graph"]["makespan_s"].get<double>();
    const auto* oracle = policies.contains("oracle_tail_isolation") ? "oracle_tail_isolation"
                                                                    : "oracle_longest_first_level";
    out["over_oracle"] = seconds / policies[oracle]["makespan_s"].get<double>();
  }
  out["tail_after_90"] = result.tail_after_90;
  out["idle"] = result.idle;
  out["moved"] = result.moved;
  out["paused"] = result.paused;
  out["dropped"] = result.dropped;
  out["us"] = us;
  return {out};
}

}  // namespace keel::balance
