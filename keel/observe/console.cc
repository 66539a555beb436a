#include "keel/observe/console.h"

#include <fmt/format.h>
#include <spdlog/sinks/base_sink.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "keel/base/log.h"
#include "keel/observe/metric_names.h"

namespace keel {
namespace {

constexpr double kStatusAfterS = 2, kRedrawEveryS = 0.1;
constexpr size_t kEtaSteps = 10;
constexpr int kBarCells = 20, kStepWidth = 9, kEtaWidth = 8;

using Format = std::string (*)(double);

std::string fixed1(double v) { return fmt::format("{:.1f}", v); }
std::string fixed2(double v) { return fmt::format("{:.2f}", v); }
std::string fixed3(double v) { return fmt::format("{:.3f}", v); }
std::string scientific(double v) { return v == 0 ? "0" : fmt::format("{:.2e}", v); }
std::string compact(double v) { return std::abs(v) < 1e4 ? fixed3(v) : scientific(v); }

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool shows_escape_codes(std::FILE* out, ConsoleOptions::Terminal terminal) {
  if (terminal == ConsoleOptions::Terminal::kDetect) return ::isatty(::fileno(out)) == 1;
  return terminal == ConsoleOptions::Terminal::kYes;
}

int terminal_width(std::FILE* out) {
  winsize size{};
  const bool known = ::ioctl(::fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 100;
}

// Stands before the other sinks of the logger, so it runs first.
class ClearStatusSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit ClearStatusSink(Console* console) : console_(console) {}

 private:
  void sink_it_(const spdlog::details::log_msg&) override { console_->clear_status(); }
  void flush_() override {}
  Console* console_;
};

std::string validation_line(const StepRecord& record) {
  std::string out;
  for (const auto& [name, value] : record.metrics()) {
    if (!name.starts_with(metric::kValidationPrefix)) continue;
    const auto shown = name.substr(std::string_view(metric::kValidationPrefix).size());
    out += fmt::format("{}{} {:.3f}", out.empty() ? "" : "   ", shown, value);
  }
  return out.empty() ? out : fmt::format("{:>{}}  validation  {}", "", kStepWidth, out);
}

}  // namespace

struct Console::Column {
  const char* title;
  int width;
  std::vector<const char*> metrics;  // the first that is set is shown
  Format format;
};

const std::vector<Console::Column>& Console::columns() {
  static const std::vector<Column> all = {
      {"reward", 8, {metric::kScoreMean, metric::kRewardMean}, fixed3},
      {"accuracy", 9, {metric::kAccuracy}, fixed3},
      {"length", 8, {metric::kResponseMean}, fixed1},
      {"entropy", 8, {metric::kEntropy}, fixed3},
      {"kl", 9, {metric::kKlLoss, metric::kPpoKl}, scientific},
      {"grad norm", 10, {metric::kGradNorm}, compact},
      {"lr", 9, {metric::kLearningRate}, scientific},
      {"tok/s", 9, {metric::kThroughput}, format_thousands},
      {"s/step", 8, {metric::kTimeStep, metric::kTimePerStep}, fixed2},
  };
  return all;
}

Console::Console(ConsoleOptions options)
    : options_(std::move(options)),
      terminal_(shows_escape_codes(options_.out, options_.terminal)),
      column_seen_(columns().size(), 0) {
  if (!options_.now_s) options_.now_s = steady_seconds;
  if (!terminal_) return;
  auto sink = std::make_shared<ClearStatusSink>(this);
  auto& sinks = spdlog::default_logger()->sinks();
  sinks.insert(sinks.begin(), sink);
  log_sink_ = sink;
}

Console::~Console() {
  end_phase();
  if (!log_sink_) return;
  std::erase_if(spdlog::default_logger()->sinks(),
                [this](const auto& s) { return s.get() == log_sink_.get(); });
}

void Console::phase(int64_t step, std::string_view name, int64_t total, std::string_view unit) {
  const std::lock_guard lock(mu_);
  const double now = options_.now_s();
  phase_ = std::make_unique<Phase>(Phase{.step = step,
                                         .name = std::string(name),
                                         .unit = std::string(unit),
                                         .total = total,
                                         .start_s = now,
                                         .drawn_s = 0});
  clear_status_locked();
}

void Console::progress(int64_t done) {
  const std::lock_guard lock(mu_);
  if (!terminal_ || !phase_) return;
  const double now = options_.now_s();
  if (now - phase_->start_s < kStatusAfterS) return;
  if (status_shown_ && now - phase_->drawn_s < kRedrawEveryS) return;
  phase_->drawn_s = now;
  auto text = status_text(done, now);
  const auto width = static_cast<size_t>(std::max(1, terminal_width(options_.out) - 1));
  if (text.size() > width) text.resize(width);
  fmt::print(options_.out, "\r\033[K{}", text);
  std::fflush(options_.out);
  status_shown_ = true;
}

void Console::end_phase() {
  const std::lock_guard lock(mu_);
  phase_.reset();
  clear_status_locked();
}

void Console::clear_status() {
  const std::lock_guard lock(mu_);
  clear_status_locked();
}

void Console::clear_status_locked() {
  if (!status_shown_) return;
  fmt::print(options_.out, "\r\033[K");
  std::fflush(options_.out);
  status_shown_ = false;
}

std::string Console::status_text(int64_t done, double now) const {
  const auto& p = *phase_;
  const double elapsed = now - p.start_s;
  auto text = options_.num_steps > 0 ? fmt::format("step {}/{}", p.step, options_.num_steps)
                                     : fmt::format("step {}", p.step);
  text += fmt::format("  {}", p.name);
  const auto unit = p.unit.empty() ? "" : " " + p.unit;
  if (p.total <= 0) {
    if (done > 0) text += fmt::format("  {}{}", format_thousands(static_cast<double>(done)), unit);
    return text + "  " + format_duration(elapsed);
  }
  const double share = std::clamp(static_cast<double>(done) / static_cast<double>(p.total), 0., 1.);
  const auto full = static_cast<size_t>(share * kBarCells);
  text += fmt::format("  [{}{}] {}/{}{}  {}", std::string(full, '='),
                      std::string(kBarCells - full, ' '), done, p.total, unit,
                      format_duration(elapsed));
  if (share > 0) text += fmt::format("  eta {}", format_duration(elapsed / share - elapsed));
  return text;
}

std::string Console::eta_text(int64_t step) const {
  if (recent_step_s_.empty() || options_.num_steps <= step) return "";
  double sum = 0;
  for (const double s : recent_step_s_) sum += s;
  const double per_step = sum / static_cast<double>(recent_step_s_.size());
  return format_duration(per_step * static_cast<double>(options_.num_steps - step));
}

void Console::step(const StepRecord& record) {
  const std::lock_guard lock(mu_);
  phase_.reset();
  clear_status_locked();
  const auto& all = columns();
  std::vector<std::string> cells(all.size());
  bool new_column = false;
  for (size_t i = 0; i < all.size(); ++i) {
    for (const char* name : all[i].metrics) {
      const auto value = record.get(name);
      if (!value) continue;
      cells[i] = all[i].format(*value);
      new_column |= column_seen_[i] == 0;
      column_seen_[i] = 1;
      break;
    }
  }
  auto step_s = record.get(metric::kTimeStep);
  if (!step_s) step_s = record.get(metric::kTimePerStep);
  if (step_s) recent_step_s_.push_back(*step_s);
  if (recent_step_s_.size() > kEtaSteps) recent_step_s_.pop_front();

  const auto place = options_.num_steps > 0
                         ? fmt::format("{}/{}", record.step(), options_.num_steps)
                         : fmt::format("{}", record.step());
  auto header = fmt::format("{:>{}}", "step", kStepWidth);
  auto line = fmt::format("{:>{}}", place, kStepWidth);
  for (size_t i = 0; i < all.size(); ++i) {
    if (column_seen_[i] == 0) continue;
    header += fmt::format(" {:>{}}", all[i].title, all[i].width);
    line += fmt::format(" {:>{}}", cells[i], all[i].width);
  }
  if (options_.num_steps > 0) {
    header += fmt::format(" {:>{}}", "eta", kEtaWidth);
    line += fmt::format(" {:>{}}", eta_text(record.step()), kEtaWidth);
  }
  const bool header_due =
      lines_since_header_ < 0 || lines_since_header_ >= options_.header_every_steps;
  if (header_due || new_column) {
    print(terminal_ ? "\033[2m" + header + "\033[0m" : header);
    lines_since_header_ = 0;
  }
  print(line);
  ++lines_since_header_;
  if (const auto validation = validation_line(record); !validation.empty()) print(validation);
}

void Console::print(const std::string& line) {
  const auto end = line.find_last_not_of(' ');
  fmt::print(options_.out, "{}\n", line.substr(0, end + 1));
  std::fflush(options_.out);
}

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e9) return "";
  const auto s = std::llround(seconds);
  if (s < 60) return fmt::format("{}s", s);
  if (s < 3600) return fmt::format("{}m{:02}", s / 60, s % 60);
  if (s < 86400) return fmt::format("{}h{:02}", s / 3600, s / 60 % 60);
  return fmt::format("{}d{:02}h", s / 86400, s / 3600 % 24);
}

std::string format_thousands(double value) {
  if (!std::isfinite(value) || std::abs(value) >= 1e15) return fmt::format("{:.3g}", value);
  const auto digits = fmt::format("{:.0f}", std::abs(value));
  std::string out = value < 0 && digits != "0" ? "-" : "";
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

}  // namespace keel
